"""Layers of sequences, whose images have one row: cores divide columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deeploy.backend.project import read_manifest, select_network
from deeploy.execution.runners import host
from deeploy.options import Options
from deeploy.target import load
from tests.execution.simulation.nets import compile_nodes, node

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "targets"
TARGETS = {
    "siracusa": "siracusa",
    "pulp_open": EXAMPLES / "pulp_open" / "deeploy_pulp_open",
    "snitch": EXAMPLES / "snitch" / "deeploy_snitch",
}


@pytest.mark.parametrize("name", TARGETS)
def test_what_divides_rows_of_an_image_divides_columns_too(name: str) -> None:
    """N-EUREKA's jobs are cut into rows and filters by the first core."""
    target = load(TARGETS[name])
    own = [kernel for kernel in target.kernels if "oh" in kernel.cores and not target.engine(kernel.engine).accelerator]
    assert own and [kernel.name for kernel in own if "ow" not in kernel.cores] == []


def test_windows_over_one_row_are_divided_and_right(tmp_path: Path) -> None:
    """Depthwise, dilated, of several outputs for a channel, of groups; pools. Each is a branch of its own."""
    wide = {"pads": [0, 2, 0, 2]}
    nodes = [
        node("Conv", "x w", "a", group=12, **wide),
        node("Conv", "x w", "b", group=12, dilations=[1, 2], pads=[0, 4, 0, 4]),
        node("Conv", "x w2", "c", group=12, **wide),
        node("Conv", "x w3", "d", group=3, **wide),
        node("MaxPool", "x", "e", kernel_shape=[1, 5], **wide),
        node("AveragePool", "x", "f", kernel_shape=[1, 5], **wide),
    ]
    shape = [1, 12, 1, 67]
    outputs = {name: [1, 24 if name == "c" else 12, 1, 67] for name in "abcdef"}
    weights = {"w": [12, 1, 1, 5], "w2": [24, 1, 1, 5], "w3": [12, 4, 1, 5]}
    made = compile_nodes(tmp_path, nodes, {"x": shape}, outputs, weights, Options(memory={"l1": 6_000}))
    windows = [step for step, call in enumerate(made.plan.program.calls) if call.node.op in ("Conv", "MaxPool", "AveragePool")]
    assert len(windows) == len(nodes) and {made.plan.tiling(step).core_dims for step in windows} == {"ow"}
    made.write(tmp_path / "project")
    sample = [np.random.default_rng(2).uniform(-1, 1, shape).astype(np.float32)]
    entry = select_network(read_manifest(tmp_path / "project"))
    for got, want in zip(host.Host(sanitize=True).run(tmp_path / "project", entry, [sample]).outputs, made.interpret(sample), strict=True):
        np.testing.assert_array_equal(got[0], want)
