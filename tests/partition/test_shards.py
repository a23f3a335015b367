"""Parts of tensors on their way: what is put together has every element in its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.topology import Link, Topology
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.partition.collectives import Costs
from deeploy.partition.sharding import gather_tensor
from deeploy.partition.shards import Divided, Shards, Whole

PARTS = [
    ([0, 1, 2, 3], [4, 5, 6, 7]),
    ([0, 1, 4, 5], [2, 3, 6, 7]),
    ([4, 5, 6, 7], [0, 1, 2, 3]),
    ([2, 5, 6], [0, 1, 3, 4, 7]),
    ([0, 1, 4, 5], [2, 3, 6, 7], [8, 9]),
]


def value(tensor: Tensor, known: dict[Tensor, np.ndarray], chips: list[list[Node]]) -> np.ndarray:
    """What a tensor of views and messages comes to."""
    if tensor in known:
        return known[tensor]
    node = tensor.maker
    assert node is not None
    if node.op == "Recv":
        (sent,) = (other for other in chips[node.attrs["peer"]] if other.op == "Send" and other.attrs["tag"] == node.attrs["tag"])
        return value(sent.operands[0], known, chips)
    read = [value(t, known, chips) for t in node.operands]
    if node.op == "Concat":
        return np.concatenate(read, node.attrs["axis"])
    if node.op == "Reshape":
        return read[0].reshape(tensor.shape)
    if node.op == "Transpose":
        return read[0].transpose(node.attrs["perm"])
    assert node.op == "Slice"
    return read[0][tuple(slice(*bounds) for bounds in zip(node.attrs["starts"], node.attrs["ends"], strict=True))]


@pytest.mark.parametrize("kept", PARTS, ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_several_runs_are_put_together_in_order(kept: tuple[list[int], ...], axis: int) -> None:
    """Each chip has the elements that it keeps one behind the other."""
    cuts: Any = SimpleNamespace(chips=len(kept))
    extent = sum(map(len, kept))
    wanted = np.moveaxis(np.arange(3 * extent).reshape(extent, 3), 0, axis)
    tensor = Tensor("t", wanted.shape, DType.INT8)
    topology = Topology({"wire": Link("wire", 5e8, 3e-7, 100.0)}, 4, "wire")
    shards = Shards(Graph("", (), (tensor,)), cuts, topology, Costs())
    values = [np.take(wanted, own, axis) for own in kept]
    parts = {chip: Tensor(f"part {chip}", own.shape, DType.INT8) for chip, own in enumerate(values)}
    shards.states[tensor].apart = Divided(axis, [np.array(own) for own in kept], parts, 0)
    gather_tensor(shards, tensor, Whole())
    known = dict(zip(parts.values(), values, strict=True))
    assert np.array_equal(value(shards.states[tensor].whole[0], known, shards.nodes), wanted)
