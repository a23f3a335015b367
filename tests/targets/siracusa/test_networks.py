"""Whole networks on the simulator, without an SDK: every output equals the golden one, wherever constants lie."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from deeploy.api import compile as compile_model
from deeploy.backend.host import split, write_samples
from deeploy.midend.machine import Options

from .conftest import BARE, Simulate, build

L1_BYTES = 256 * 1024
STACKS = 16 * 1024  # the portable kernels want 1.7 KiB of stack on every core
ARENA = L1_BYTES - STACKS

CASES = {
    "miniMobileNet": ("miniMobileNet", Options({"l1": ARENA})),
    "keywords": ("MLPerf/KeywordSpotting", Options({"l1": ARENA})),
    "far constants": ("miniMobileNet", Options({"l1": 8000, "l2": 20000}, default_memory="L3")),
    "far constants, streamed": ("CNN_Linear2", Options({"l1": 24000, "l2": 30000}, default_memory="L3")),
    "one core": ("miniMobileNet", Options({"l1": ARENA}, cores=1)),
}


@pytest.mark.gvsoc
@pytest.mark.parametrize("case", CASES)
def test_outputs_equal_the_golden_ones(shared_models: Path, simulate: Simulate, tmp_path: Path, case: str) -> None:
    name, options = CASES[case]
    model = shared_models / "dialect" / "Models" / name
    project = tmp_path / "project"
    compile_model(model / "network.onnx", "siracusa", inputs=model / "inputs.npz", options=options).write(project)
    manifest = json.loads((project / "deploy.json").read_text())
    sources = [BARE / "main.c", *(path for folder in ("src", "src/kernels", "runtime") for path in sorted((project / folder).glob("*.c")))]
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
    got = split((tmp_path / "outputs.bin").read_bytes(), manifest["outputs"], 1)
    for array, expected in zip(got, golden, strict=True):
        np.testing.assert_array_equal(array[0].astype(np.int64), expected.astype(np.int64))
    layers = run.numbers("layer")
    assert [key.split()[-1] for key in layers] == [call["name"] for call in manifest["calls"]]
    assert 0.9 * run.numbers("total")["0"] < sum(layers.values()) < run.numbers("total")["0"]
