"""Bounds of plans: exact where they can be worked out by hand, and never above what the walk predicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.options import Options
from deeploy.planning.planner.bounds import peak_products, plan_bounds
from tests.e2e.test_constructs import save_construct
from tests.models import save_graph

ROWS, INNER, COLUMNS = 32, 64, 48

CASES = [  # options; whether weights move to L1 in every inference, and from L3
    pytest.param(Options(), False, False, id="kept in L1"),
    pytest.param(Options(memory={"l1": 11000}), True, False, id="in L2"),
    pytest.param(Options(memory={"l1": 11000}, default_memory="L3"), True, False, id="kept in L2"),
    pytest.param(Options(memory={"l1": 11000, "l2": 12000}, default_memory="L3"), True, True, id="in L3"),
]


def product(path: Path) -> Path:
    """A float product of (32, 64) with constants of (64, 48)."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [ROWS, INNER]), ("y", [ROWS, COLUMNS]))]
    weights = numpy_helper.from_array(np.ones((INNER, COLUMNS), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weights])
    save_graph(graph, path)
    return path


@pytest.mark.parametrize(("options", "weights", "beyond"), CASES)
def test_a_product(options: Options, weights: bool, beyond: bool, tmp_path: Path) -> None:
    """Products over the peak of the cores; tensors once over the path to L1 unless they are there for ever, and over that from L3."""
    plan = deeploy.compile(product(tmp_path / "m.onnx"), "siracusa", **options.given()).plan
    found, timing = plan_bounds(plan), plan.target.timing
    assert timing is not None
    assert found.compute == {"cluster": round(ROWS * INNER * COLUMNS / peak_products(plan)["cluster"])}
    inner, outer = (timing.paths[name].byte for name in ("L2_L1", "L3_L2"))
    fetched, stored = 4 * INNER * (ROWS + COLUMNS * weights), 4 * ROWS * COLUMNS
    expected = {"L2_L1": round(fetched * inner[0] + stored * inner[1]), "L3_L2": round(4 * INNER * COLUMNS * outer[0] * beyond)}
    assert {name: found.traffic[name] for name in expected} == expected
    assert found.binding == max({**found.compute, **found.traffic}.items(), key=lambda one: one[1])


@pytest.mark.parametrize(
    "options", [Options(), Options(memory={"l1": 24000}), Options(default_memory="L3")], ids=["roomy", "little", "far"]
)
def test_no_prediction_is_below(options: Options, tmp_path: Path) -> None:
    compiled = deeploy.compile(product(tmp_path / "m.onnx"), "siracusa", **options.given())
    run = compiled.network.predicted
    assert run is not None and 0 < plan_bounds(compiled.plan).binding[1] <= run.cycles


def test_matrices_of_a_batch_do_not_raise_the_peak(tmp_path: Path) -> None:
    """A kernel that takes one matrix at a time is called again for every one of them."""
    found = save_construct("matmul rank 3", "qdq int8", tmp_path)
    assert found is not None
    (network,) = deeploy.compile(found[0], "siracusa").networks.values()
    batched = [call for call in network.program.calls if call.node.op == "MatMul"]
    assert [call.node.outputs[0].shape[0] for call in batched] == [2]
    reached = peak_products(network.plan)
    assert set(reached) == {"cluster", "npu"} and all(10 < peak < 1000 for peak in reached.values())
