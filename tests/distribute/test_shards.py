"""Parts of tensors on their way: what is put together has every element in its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from deeploy.distribute.collectives import Costs
from deeploy.distribute.shards import Apart, Shards
from deeploy.distribute.together import gather
from deeploy.graph import surgeon
from deeploy.graph.topology import Link, Topology

PARTS = [
    ([0, 1, 2, 3], [4, 5, 6, 7]),
    ([0, 1, 4, 5], [2, 3, 6, 7]),
    ([4, 5, 6, 7], [0, 1, 2, 3]),
    ([2, 5, 6], [0, 1, 3, 4, 7]),
    ([0, 1, 4, 5], [2, 3, 6, 7], [8, 9]),
]


def value(tensor: gs.Tensor, known: dict[int, np.ndarray], graphs: list[gs.Graph]) -> np.ndarray:
    """What a tensor of views and messages comes to."""
    if id(tensor) in known:
        return known[id(tensor)]
    (node,) = tensor.inputs
    if node.op == "Recv":
        (sent,) = (other for other in graphs[node.attrs["peer"]].nodes if other.op == "Send" and other.attrs["tag"] == node.attrs["tag"])
        return value(sent.inputs[0], known, graphs)
    read = [value(t, known, graphs) for t in node.inputs]
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
    shards = Shards(cuts, Topology({"wire": Link("wire", 5e8, 3e-7, 100.0)}, 4, "wire"), Costs())
    extent = sum(map(len, kept))
    wanted = np.moveaxis(np.arange(3 * extent).reshape(extent, 3), 0, axis)
    tensor = surgeon.variable("t", np.int8, wanted.shape)
    values = [np.take(wanted, own, axis) for own in kept]
    parts = {chip: surgeon.variable(f"part {chip}", np.int8, own.shape) for chip, own in enumerate(values)}
    shards.state(tensor).apart = Apart(0, axis, [np.array(own) for own in kept], parts)
    gather(shards, tensor)
    known = {id(part): own for part, own in zip(parts.values(), values, strict=True)}
    assert np.array_equal(value(shards.state(tensor).whole[0], known, shards.graphs), wanted)
