"""Every construct of the lowering's tests on the machine with several memories: tiled, divided over cores, against an adversary.

Several networks make one project, which is built once. Of all batches and budgets, a seeded sample runs by default.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import quantize_static

import deeploy
from deeploy.backend import project
from deeploy.backend.project import select_network
from deeploy.driver import verify
from deeploy.errors import FitError
from deeploy.execution.runners import host
from deeploy.execution.simulation.interpreter import network_outputs as interpreted
from deeploy.execution.verification.compare import compare_output
from deeploy.options import Options
from tests.frontend.lower.nets import CONSTRUCTS
from tests.frontend.lower.nets_transformer import OPSETS
from tests.frontend.lower.test_constructs import FORMS, _sample, _Samples
from tests.models import OPSET, Net

TOGETHER = 12  # networks in one project
IN_SHORT_RUN = 4
BUDGETS = (
    Options(memory={"l1": 100_000}),
    Options(memory={"l1": 2500}, buffering="double", default_memory="L3"),
    Options(memory={"l1": 1200}, buffering="single", default_memory="L3"),
)
NAMES = sorted(CONSTRUCTS)
BATCHES = tuple(tuple(NAMES[start :: -(-len(NAMES) // TOGETHER)]) for start in range(-(-len(NAMES) // TOGETHER)))


def parameters() -> list[object]:
    """All cases; those outside the seeded sample are slow."""
    cases = [(batch, form, budget) for batch in range(len(BATCHES)) for form in ("float", "qdq int8") for budget in range(len(BUDGETS))]
    sample = set(random.Random(5).sample(cases, IN_SHORT_RUN))
    return [pytest.param(*case, marks=() if case in sample else pytest.mark.slow) for case in cases]


def save_construct(name: str, form: str, folder: Path) -> tuple[Path, list[np.ndarray]] | None:
    """A construct as a file, and a sample; None where onnxruntime cannot quantise it."""
    net, numbers = Net(), np.random.default_rng(1)
    result = CONSTRUCTS[name](net)
    path = folder / "float.onnx"
    onnx.save(net.model([result] if isinstance(result, str) else result, OPSETS.get(name, OPSET)), path)
    sample = _sample(net, numbers)
    options = FORMS[form]
    if options is not None:
        try:
            quantize_static(path, folder / "quantised.onnx", _Samples([sample, _sample(net, numbers)]), **options)
        except (ValueError, IndexError, RuntimeError):
            return None
        path = folder / "quantised.onnx"
    return path, list(sample.values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("batch", "form", "budget"), parameters())
def test_constructs_in_little_memory(batch: int, form: str, budget: int, tmp_path: Path) -> None:
    options = BUDGETS[budget]
    paths: dict[str, Path] = {}
    samples: dict[str, list[np.ndarray]] = {}
    for number, name in enumerate(BATCHES[batch]):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = save_construct(name, form, folder)
        if found is None:
            continue
        try:
            deeploy.compile(found[0], "siracusa", **options.given())
        except FitError:
            continue  # that the message is right is another test's business
        paths[f"net{number}"], samples[f"net{number}"] = found
    assert len(paths) > TOGETHER // 2
    compiled = deeploy.compile(paths, "siracusa", **options.given())
    compiled.write(tmp_path / "project")
    manifest = project.read_manifest(tmp_path / "project")
    for key, network in compiled.networks.items():
        entry = select_network(manifest, key)
        sample = [np.asarray(a, network.program.buffers[n].dtype.numpy) for a, n in zip(samples[key], network.program.inputs, strict=True)]
        outputs = host.Host().run(tmp_path / "project", entry, [sample]).outputs
        ports = verify.interpreted_outputs(network, entry)
        for port, got, want in zip(ports, outputs, interpreted(network.program, sample), strict=True):
            comparison = compare_output(port, got, want[None])
            assert comparison.passed, f"{BATCHES[batch][int(key[3:])]}: {comparison}"
