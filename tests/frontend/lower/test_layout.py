"""Where transposes go: which kernel calls of a construct move data, and what the rules make of a graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

import deeploy
from deeploy.frontend.lower import layout, resize
from deeploy.ir.surgeon import read_graph
from deeploy.ir.values import Graph
from tests.frontend.lower import lowered as build
from tests.frontend.lower.nets import CONSTRUCTS
from tests.models import Net


def _copies(name: str, path: Path) -> int:
    net = Net()
    result = CONSTRUCTS[name](net)
    onnx.save(net.model([result] if isinstance(result, str) else result), path)
    return sum(call.node.op in ("Copy", "Transpose") for call in deeploy.compile(path).network.program.calls)


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        # One at the input and one at the output, which are channels-first in the model.
        *((name, 2) for name in ("squeeze excite", "squeeze excite hard", "inverted residual", "residual", "pad", "prelu", "swish")),
        *((name, 2) for name in ("gather channel scalar", "split branches", "conv1d through 2d")),
        ("resize sizes", 1),  # repeated where it is written
        ("channel shuffle", 3),  # the shuffle itself
        ("channels last", 0),
        ("global head", 1),
        ("flatten head", 1),
    ],
)
def test_only_edges_and_real_permutations_move_data(name: str, copies: int, tmp_path: Path) -> None:
    assert _copies(name, tmp_path / "m.onnx") == copies


def _text(graph: Graph) -> list[str]:
    return [f"{n.op}{list(n.inputs[0].shape)}->{list(n.outputs[0].shape)} {dict(n.attrs)}" for n in graph.nodes]


def test_blocks_change_places_behind_a_reshape() -> None:
    x, y = build.variable("x", np.int8, [2, 6, 5, 8]), build.variable("y", np.int8, [2, 4, 2, 30])
    result = build.variable("z", np.int8, [2, 4, 2, 30])
    graph = gs.Graph([], [x], [result])
    build.add(graph, "Reshape", [build.transpose(graph, x, (0, 3, 1, 2), "first")], y)
    build.add(graph, "Clip", [y], result, low=0, high=9)
    after = layout.PASS(read_graph(graph))
    assert _text(after) == [
        "Reshape[2, 6, 5, 8]->[2, 30, 4, 2] {}",
        "Clip[2, 30, 4, 2]->[2, 30, 4, 2] {'low': 0, 'high': 9}",
        "Transpose[2, 30, 4, 2]->[2, 4, 2, 30] {'perm': (0, 2, 3, 1)}",
    ]


def test_a_permutation_within_a_block_stays_in_front() -> None:
    x, y = build.variable("x", np.int8, [1, 6, 6, 2, 4]), build.variable("y", np.int8, [1, 8, 6, 6])
    result = build.variable("z", np.int8, [1, 8, 6, 6])
    graph = gs.Graph([], [x], [result])
    build.add(graph, "Reshape", [build.transpose(graph, x, (0, 4, 3, 1, 2), "first")], y)
    build.add(graph, "Clip", [y], result, low=0, high=9)
    after = layout.PASS(read_graph(graph))
    assert _text(after) == [
        "Transpose[1, 6, 6, 2, 4]->[1, 6, 6, 4, 2] {'perm': (0, 1, 2, 4, 3)}",
        "Reshape[1, 6, 6, 4, 2]->[1, 6, 6, 8] {}",
        "Clip[1, 6, 6, 8]->[1, 6, 6, 8] {'low': 0, 'high': 9}",
        "Transpose[1, 6, 6, 8]->[1, 8, 6, 6] {'perm': (0, 3, 1, 2)}",
    ]


def test_flattening_everything_keeps_its_transpose() -> None:
    x, y = build.variable("x", np.int8, [1, 6, 5, 8]), build.variable("y", np.int8, [1, 240])
    graph = gs.Graph([], [x], [y])
    build.add(graph, "Reshape", [build.transpose(graph, x, (0, 3, 1, 2), "first")], y)
    after = layout.PASS(read_graph(graph))
    assert [node.op for node in after.nodes] == ["Transpose", "Reshape"]


def test_nearest_resize_repeats_or_gathers_along_changed_axes_only() -> None:
    x, y, wide = (build.variable(name, np.int8, [1, 2, 3, n]) for name, n in (("x", 4), ("y", 8), ("y", 6)))
    scales = build.const("scales", [1, 1, 1, 2], np.float32)
    graph = gs.Graph([gs.Node("Upsample", "u", {"mode": "nearest"}, [x, scales], [y])], [x], [y])
    assert [(node.op, node.outputs[0].shape[3:]) for node in resize.PASS(read_graph(graph)).nodes][1:2] == [("Expand", (4, 2))]
    scales = build.const("scales", [1, 1, 1, 1.5], np.float32)
    (node,) = resize.PASS(read_graph(gs.Graph([gs.Node("Upsample", "u", {"mode": "nearest"}, [x, scales], [wide])], [x], [wide]))).nodes
    assert (node.op, node.attrs["axis"], node.operands[1].data.tolist()) == ("Gather", 3, [0, 0, 1, 2, 2, 3])


@pytest.mark.parametrize(("perm", "rest"), [((0, 1, 3, 2), None), ((0, 2, 3, 1), (0, 2, 1, 3)), ((0, 3, 2, 1), (0, 3, 2, 1))])
def test_rows_of_the_second_operand_of_a_product_stay_dense(perm: tuple[int, ...], rest: tuple[int, ...] | None) -> None:
    """A transpose whose last axis but one is the last one of its input becomes a flag, and a transpose of the others."""
    source = [2, 4, 6, 8]
    shape = [source[axis] for axis in perm]
    x, z = build.variable("x", np.int8, source), build.variable("z", np.int32, [*shape[:2], 5, shape[3]])
    a = build.variable("a", np.int8, [*shape[:2], 5, shape[2]])
    graph = gs.Graph([], [a, x], [z])
    flags = {"trans_a": False, "trans_b": False, "a_zero_point": 0, "b_zero_point": 0}
    build.add(graph, "MatMul", [a, build.transpose(graph, x, perm, "turned")], z, **flags)
    after = layout.PASS(read_graph(graph))
    product = next(n for n in after.nodes if n.op == "MatMul")
    assert product.attrs["trans_b"] is (perm[2] == 3)
    assert [tuple(n.attrs["perm"]) for n in after.nodes if n.op == "Transpose"] == ([] if rest is None else [rest])
