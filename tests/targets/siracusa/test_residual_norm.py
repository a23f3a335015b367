"""A residual connection and the norm of its rows as one call: what becomes one, and that it computes what the two nodes do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeploy.api import Compiled, Network
from deeploy.backend.project import select_network
from deeploy.execution.runners import host
from deeploy.execution.simulation.interpreter import network_outputs
from deeploy.frontend.io import describe_ports
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph, substitute_tensors
from deeploy.options import Options
from deeploy.planning import cost
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.binding.kernel_fusion import fuse_sums_and_norms
from deeploy.planning.planner.machine import kernels_of, machine_of
from deeploy.planning.planner.network import make_plan
from deeploy.planning.program import Program
from deeploy.target import Target, load

SHAPES = ((1, 1, 61), (3, 5, 20))
SCALED: dict[str, Any] = {"mul_a": 3 << 12, "mul_b": 5 << 11, "add": 1 << 13, "shift": 14, "low": -128, "high": 127}
OPERANDS: dict[str, Any] = {
    f"{name}_{side}": value for side in "ab" for name, value in (("add", 4), ("shift", 3), ("low", -90), ("high", 99))
}
STAGE: dict[str, Any] = {"epilogue": ("requantise",), "low": -128, "high": 127}
SUMS: dict[str, dict[str, Any]] = {
    "ScaledAdd": SCALED,
    "RequantAdd": {**OPERANDS, "mul_a": 7, "mul_b": 6, **STAGE, "shift": 9},
    "Add": {**STAGE, "shift": 9},
}
NORMS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "IntegerRMSNorm": ({"shift": 9}, ("weight",)),
    "IntegerLayerNorm": ({"shift": 10}, ("weight", "bias")),
    "Standardise": ({"centred": True, "zero_point": 3, "fraction": 23, "epsilon": 1 << 20, **STAGE, "shift": 50}, ("mul", "add")),
}


def sums_and_norms(cases: list[tuple[str, str, tuple[int, ...]]]) -> Graph:
    """For every pair of operators and shape a sum, its norm, and a sum that reads both."""
    rng = np.random.default_rng(3)
    nodes, inputs, outputs = list[Node](), list[Tensor](), list[Tensor]()
    for number, (sum_op, norm_op, shape) in enumerate(cases):
        a, b, x, y, z = (Tensor(f"{name}{number}", shape, DType.INT8) for name in "abxyz")

        def constant(name: str, values: np.ndarray, number: int = number) -> Tensor:
            return Tensor(f"{name}{number}", values.shape, DType.of(values.dtype), values)

        stages = [constant("sum_mul", np.array([301], np.int32)), constant("sum_add", np.array([256], np.int32))]
        attrs, names = NORMS[norm_op]
        drawn = {
            "weight": rng.integers(-(2**16), 2**16, shape[-1]).astype(np.int32),
            "bias": rng.integers(-(2**10), 2**10, shape[-1]).astype(np.int32),
            "mul": rng.integers(2**28, 2**30, shape[-1]).astype(np.int32),
            "add": rng.integers(-(2**55), 2**55, shape[-1]),
        }
        nodes.append(Node(f"sum{number}", sum_op, (a, b, *(stages if "epilogue" in SUMS[sum_op] else [])), (x,), SUMS[sum_op]))
        nodes.append(Node(f"norm{number}", norm_op, (x, *(constant(name, drawn[name]) for name in names)), (y,), attrs))
        nodes.append(Node(f"last{number}", "ScaledAdd", (x, y), (z,), SCALED))
        inputs += [a, b]
        outputs.append(z)
    return Graph("network", tuple(inputs), tuple(outputs), order=tuple(nodes))


def programs(graph: Graph, target: Target, options: Options) -> tuple[Program, Program]:
    """As it is planned, and by kernels of one piece."""
    kernels, off = kernels_of(target, machine_of(target, options))
    return assemble_program("network", graph, kernels, off), assemble_program("network", graph, [k for k in kernels if not k.phases], off)


CASES = [(sum_op, norm_op, shape) for sum_op in SUMS for norm_op in NORMS for shape in SHAPES]


@pytest.mark.parametrize(("l1", "cores"), [(60_000, 8), (1_200, 3)])
def test_one_call_computes_what_two_do(tmp_path: Path, l1: int, cores: int) -> None:
    """Whole and in tiles, rows or the columns of few over cores that meet in between; on the model of the machine."""
    target, options = load("siracusa"), Options(memory={"l1": l1}, cores=cores, engines=("cluster",))
    graph = sums_and_norms(CASES)
    joined, apart = programs(graph, target, options)
    assert [len(call.phases) for call in joined.calls] == [2, 1] * len(CASES) and len(apart.calls) == 3 * len(CASES)
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-128, 128, tensor.shape).astype(np.int8) for tensor in graph.inputs]
    wanted = network_outputs(apart, arrays)
    for have, want in zip(network_outputs(joined, arrays), wanted, strict=True):
        np.testing.assert_array_equal(have, want)
    plan = make_plan(joined, target, machine_of(target, options), options.seconds)
    sources, results = describe_ports(graph, True, {})
    made = Compiled({"network": Network(plan, "network", tuple(sources), tuple(results), "declared", ())}, {})
    made.write(tmp_path)
    entry = select_network(json.loads((tmp_path / "deploy.json").read_text()))
    for have, want in zip(host.Host(sanitize=True).run(tmp_path, entry, [arrays]).outputs, wanted, strict=True):
        np.testing.assert_array_equal(have[0], want)
    dims = {plan.tiling(step).core_dims for step, call in enumerate(joined.calls) if len(call.phases) == 2}
    assert "k" in dims and dims & {"d0", "d1"} and any(plan.tiling(step).tiles > 1 for step in range(len(joined.calls))) == (l1 < 2000)


def test_what_stays_two_calls() -> None:
    """Operands of other shapes, other kernels, targets without a kernel of both."""
    target, options = load("siracusa"), Options(engines=("cluster",))
    graph = sums_and_norms([("ScaledAdd", "IntegerRMSNorm", (4, 16))])
    row, weights = replace(graph.inputs[1], shape=(1, 16)), graph.nodes[1].operands[1]
    narrower = substitute_tensors(replace(graph, inputs=(graph.inputs[0], row)), {graph.inputs[1]: row})
    assert [len(call.phases) for call in programs(narrower, target, options)[0].calls] == [1, 1, 1]
    large = replace(weights, data=np.full(16, 2**28, np.int32))  # products that the cluster's norm does not hold
    graph = substitute_tensors(graph, {weights: large})
    assert [call.kernel.name for call in programs(graph, target, options)[0].calls][1] == "integer_rms_norm"
    assert fuse_sums_and_norms([], load("generic").kernels) == [] and not any(kernel.phases for kernel in load("generic").kernels)


@pytest.mark.parametrize("shape", [(1, 64), (64, 64)])
def test_one_call_is_predicted_faster(shape: tuple[int, ...]) -> None:
    """By what a call costs, less a barrier where cores divide columns; the work is the same."""
    target = load("siracusa")
    joined, apart = programs(sums_and_norms([("RequantAdd", "IntegerRMSNorm", shape)]), target, Options(engines=("cluster",)))
    both, parts = joined.calls[0], apart.calls[:2]
    assert cost.call_once(both, False, target) == sum(cost.call_once(part, False, target) for part in parts)
    meeting = cost.barrier_cycles(both, target) * (shape[0] < 8)
    assert cost.tile_overhead(both, target) == sum(cost.tile_overhead(part, target) for part in parts) + meeting

    def cycles(call: Any) -> float:
        return float(
            cost.kernel_work(call, target).cycles(lambda name, step: cost.whole_steps(call.geometry.extents[name], step) if step else 1)
        )

    assert cycles(both) == pytest.approx(sum(map(cycles, parts)))
