"""Views, copies, sharing of memory: what becomes of small lowered graphs, as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import deeploy
from deeploy.errors import FitError, UnsupportedError
from deeploy.ir.target import Memory, Target
from deeploy.planning.packing.lifetimes import block_lifetimes
from deeploy.target import load
from tests.models import node, save_model


def compile_nodes(
    folder: Path, nodes: Sequence[onnx.NodeProto], inputs: dict[str, list[int]], outputs: dict[str, list[int]], **options: Any
) -> deeploy.Compiled:
    """A float graph, compiled for the generic target."""
    return deeploy.compile(save_model(folder / "model.onnx", nodes, inputs, outputs), **options)


def calls(result: deeploy.Compiled) -> list[str]:
    return [line.strip() for line in str(result.network.program).splitlines() if "(" in line]


def check_run(result: deeploy.Compiled, arrays: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for got in (result.interpret(arrays), result.run(arrays, sanitize=True)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_parts_of_a_concat_are_written_in_place(tmp_path: Path) -> None:
    result = compile_nodes(
        tmp_path,
        [node("Sqrt", "x", "a"), node("Neg", "x", "b"), node("Concat", "a b", "c", axis=1), node("Abs", "c", "y")],
        {"x": [2, 3]},
        {"y": [2, 6]},
    )
    assert calls(result) == ["a_node: unary(x=x, y=c+0[6, 1])", "b_node: unary(x=x, y=c+3[6, 1])", "y_node: unary(x=c, y=y)"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    check_run(result, [x], [np.concatenate([np.sqrt(x), x], 1)])


def test_an_input_in_a_concat_and_a_tensor_used_twice_are_copied(tmp_path: Path) -> None:
    result = compile_nodes(tmp_path, [node("Neg", "x", "a"), node("Concat", "x a a", "y", axis=0)], {"x": [2, 3]}, {"y": [6, 3]})
    assert [line.split(": ")[1].split("(")[0] for line in calls(result)] == ["unary", "copy", "copy"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    check_run(result, [x], [np.concatenate([x, -x, -x])])


def test_slices_and_transposes_are_followed_by_elementwise_kernels_without_a_copy(tmp_path: Path) -> None:
    result = compile_nodes(
        tmp_path,
        [
            node("Neg", "x", "n"),
            node("Split", "n", "l r", axis=1),
            node("Transpose", "l", "t", perm=[1, 0]),
            node("Abs", "t", "y"),
            node("Sqrt", "r", "z"),
        ],
        {"x": [3, 4]},
        {"y": [2, 3], "z": [3, 2]},
    )
    assert sorted(calls(result)) == [
        "n_node: unary(x=x, y=n)",
        "y_node: unary(x=n+0[4, 1], y=y+0[1, 3])",
        "z_node: unary(x=n+2[4, 1], y=z)",
    ]
    x = -np.arange(12, dtype=np.float32).reshape(3, 4)
    check_run(result, [x], [-x[:, :2].T, np.sqrt(-x[:, 2:])])


def test_a_softmax_reads_a_dense_copy_of_a_transposed_tensor_shared_by_its_readers(tmp_path: Path) -> None:
    result = compile_nodes(
        tmp_path,
        [node("Neg", "x", "n"), node("Transpose", "n", "t", perm=[1, 0]), node("Softmax", "t", "y"), node("Softmax", "t", "z")],
        {"x": [3, 4]},
        {"y": [4, 3], "z": [4, 3]},
    )
    assert [line.split("(")[0].split(": ")[1] for line in calls(result)] == ["unary", "copy", "softmax", "softmax"]
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    e = np.exp(-x.T + x.T.min(axis=1, keepdims=True))
    check_run(result, [x], [e / e.sum(1, keepdims=True)] * 2)


def test_outputs_that_are_inputs_views_or_the_same_tensor_own_their_memory(tmp_path: Path) -> None:
    result = compile_nodes(
        tmp_path,
        [
            node("Neg", "x", "n"),
            node("Identity", "x", "same"),
            node("Reshape", "n shape", "flat"),
            node("Constant", "", "shape", value_ints=[6]),
        ],
        {"x": [2, 3]},
        {"n": [2, 3], "same": [2, 3], "flat": [6]},
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    check_run(result, [x], [-x, x, -x.ravel()])


def test_a_chain_of_elementwise_layers_shares_one_address(tmp_path: Path) -> None:
    chain = [node("Neg", "x", "a"), node("Abs", "a", "b"), node("Sqrt", "b", "c"), node("Add", "c x", "d"), node("Relu", "d", "y")]
    result = compile_nodes(tmp_path, chain, {"x": [4, 8]}, {"y": [4, 8]})
    blocks = block_lifetimes(result.network.program)
    assert [(b.buffers, b.size) for b in blocks] == [(("a", "b", "c"), 128)]
    assert (result.memory["arena"].peak, result.memory["arena"].lower_bound) == (128, 128)


def test_a_tensor_that_is_read_later_is_not_overwritten(tmp_path: Path) -> None:
    nodes = [node("Neg", "x", "a"), node("Abs", "a", "b"), node("Add", "a b", "c"), node("Sqrt", "c", "y")]
    result = compile_nodes(tmp_path, nodes, {"x": [2, 4]}, {"y": [2, 4]})
    groups = [set(b.buffers) for b in block_lifetimes(result.network.program)]
    assert not any({"a", "b"} <= group for group in groups)
    x = -np.arange(8, dtype=np.float32).reshape(2, 4)
    check_run(result, [x], [np.sqrt(-2 * x)])


def test_a_broadcast_operand_is_not_overwritten(tmp_path: Path) -> None:
    nodes = [node("Neg", "x", "a"), node("Neg", "r", "b"), node("Mul", "b a", "c"), node("Neg", "c", "y")]
    result = compile_nodes(tmp_path, nodes, {"x": [4, 4], "r": [1, 4]}, {"y": [4, 4]})
    assert all("b" not in block.buffers or block.buffers == ("b",) for block in block_lifetimes(result.network.program))


def test_every_node_without_kernel_is_listed(tmp_path: Path) -> None:
    nodes = [node("Det", "x", "a"), node("LpPool", "w", "b", kernel_shape=[2, 2]), node("Neg", "a", "y")]
    with pytest.raises(UnsupportedError) as error:
        compile_nodes(tmp_path, nodes, {"x": [3, 3], "w": [1, 2, 3, 3]}, {"y": [], "b": [1, 2, 2, 2]})
    assert "2 nodes have no kernel" in error.value.what
    assert "a_node (Det): f32[3,3]" in error.value.what and "b_node (LpPool)" in error.value.what


def test_what_does_not_fit_names_the_bytes(tmp_path: Path) -> None:
    from dataclasses import replace

    def small(capacity: int) -> Target:
        return replace(load("generic"), memories=(Memory("tiny", capacity=capacity),))

    nodes = [node("Neg", "x", "a"), node("Softmax", "a", "b"), node("Softmax", "b", "y")]
    assert compile_nodes(tmp_path, nodes, {"x": [4, 8]}, {"y": [4, 8]}, target=small(64)).plan.fused_groups  # one row of both
    with pytest.raises(FitError) as error:
        compile_nodes(tmp_path, nodes, {"x": [4, 8]}, {"y": [4, 8]}, target=small(63))
    assert error.value.exit_status == 3
    assert "64" in str(error.value) and "63" in str(error.value)
