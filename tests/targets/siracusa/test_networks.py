"""Whole networks on the simulator, without an SDK: every output equals the golden one, wherever constants lie."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from deeploy.api import compile as compile_model
from deeploy.driver.verify import run_project
from deeploy.execution.runners.runner import split_outputs, write_samples
from deeploy.options import Options

from .conftest import SIMULATED, Simulate, build

L1_BYTES = 256 * 1024
STACKS = 16 * 1024  # the portable kernels want 1.7 KiB of stack on every core
ARENA = L1_BYTES - STACKS

CASES = {
    "miniMobileNet": ("miniMobileNet", Options(memory={"l1": ARENA})),
    "keywords": ("MLPerf/KeywordSpotting", Options(memory={"l1": ARENA})),
    "far constants": ("miniMobileNet", Options(memory={"l1": 8000, "l2": 20000}, default_memory="L3")),
    "far constants, streamed": ("CNN_Linear2", Options(memory={"l1": 24000, "l2": 30000}, default_memory="L3")),
    "one core": ("miniMobileNet", Options(memory={"l1": ARENA}, cores=1)),
}

# Built by the project's own Makefile and run by `deeploy run --on gvsoc`: folders below the shared models, and samples of each.
SAMPLES = 2
MODELS = (
    "dialect/Models/MLPerf/KeywordSpotting",
    "dialect/Models/MLPerf/ImageClassification",
    "dialect/Models/CNN_Linear2",
    "dialect/Models/microLlama/INT8/microLlama1",
    "dialect/Models/microLlama/INT8/microLlama64",
    "mlperf_tiny/ad_int8_qdq_pc",
    "mlperf_tiny/ic_int8_qdq_pc",
    "mlperf_tiny/ic_int8_qdq_pt",
    "mlperf_tiny/kws_int8_qdq_pc",
    "mlperf_tiny/kws_int8_qdq_pt",
)


def few(arrays: Path, folder: Path) -> Path:
    """A file with the first of the samples that ``arrays`` stacks, or ``arrays`` itself where it holds one."""
    if "mlperf_tiny" not in arrays.parts:
        return arrays
    with np.load(arrays) as file:
        np.savez(folder / arrays.name, **{name: array[:SAMPLES] for name, array in file.items()})
    return folder / arrays.name


@pytest.mark.gvsoc
@pytest.mark.parametrize("name", MODELS)
def test_networks_are_right_bit_for_bit(shared_models: Path, simulate: Simulate, tmp_path: Path, name: str) -> None:
    """Against the golden outputs by the rules of ``deeploy run``, and against the interpreter bit for bit."""
    model = shared_models / name
    inputs, golden = (few(model / f"{part}.npz", tmp_path) for part in ("inputs", "outputs"))
    compiled = compile_model(model / "network.onnx", "siracusa", inputs=inputs)
    compiled.write(tmp_path / "project")
    verdict = run_project(tmp_path / "project", inputs, golden, on="gvsoc")
    assert all(comparison.passed for _, comparison in verdict.comparisons), verdict.comparisons
    with np.load(inputs) as file:
        stacks = list(file.values())
    for sample in range(verdict.samples):
        wanted = compiled.interpret([stack[sample] if verdict.stacked else stack for stack in stacks])
        for got, expected in zip(verdict.outputs, wanted, strict=True):
            if expected.dtype.kind != "f":
                np.testing.assert_array_equal(got[sample], expected)
    assert len(verdict.cycles) == verdict.samples and min(verdict.cycles) > 1000


@pytest.mark.gvsoc
@pytest.mark.parametrize("case", CASES)
def test_outputs_equal_the_golden_ones(shared_models: Path, simulate: Simulate, tmp_path: Path, case: str) -> None:
    name, options = CASES[case]
    model = shared_models / "dialect" / "Models" / name
    project = tmp_path / "project"
    compile_model(model / "network.onnx", "siracusa", inputs=model / "inputs.npz", **options.given()).write(project)
    manifest = json.loads((project / "deploy.json").read_text())
    sources = [
        SIMULATED / "main.c",
        *(path for folder in ("src", "src/kernels", "runtime") for path in sorted((project / folder).glob("*.c"))),
    ]
    l2 = manifest["memory"]["L2"]
    application = build(
        tmp_path / "build",
        sources,
        INCLUDES=" ".join(map(str, [project / "include", project / "runtime", *(project / "kernels").iterdir()])),
        DEFINES="-DDEEPLOY_PROFILE",
        L1_RESERVED_BYTES=STACKS,
        L2_ARENA_BYTES=l2["peak"] - l2["constants"],
    )
    with np.load(model / "inputs.npz") as inputs, np.load(model / "outputs.npz") as outputs:
        write_samples(tmp_path / "inputs.bin", manifest, [list(inputs.values())])
        golden = list(outputs.values())
    (tmp_path / "weights.bin").write_bytes((project / "network_weights.bin").read_bytes())

    run = simulate(application, tmp_path)
    assert run.is_success, run.lines
    got = split_outputs((tmp_path / "outputs.bin").read_bytes(), manifest["outputs"], 1)
    for array, expected in zip(got, golden, strict=True):
        np.testing.assert_array_equal(array[0].astype(np.int64), expected.astype(np.int64))
    layers = run.numbers("layer")
    assert [key.split()[-1] for key in layers] == [call["name"] for call in manifest["calls"]]
    assert 0.9 * run.numbers("total")["0"] < sum(layers.values()) < run.numbers("total")["0"]
