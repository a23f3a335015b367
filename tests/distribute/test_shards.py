"""Parts of tensors on their way: what is put together has every element in its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deeploy.distribute.collectives import Costs
from deeploy.distribute.shards import Shards
from deeploy.frontend.lower import build
from deeploy.graph.topology import Topology


@pytest.mark.parametrize("kept", [([0, 1, 2, 3], [4, 5, 6, 7]), ([0, 1, 4, 5], [2, 3, 6, 7]), ([2, 5, 6], [0, 1, 3, 4, 7])], ids=str)
def test_parts_of_several_runs_are_put_together_in_order(kept: tuple[list[int], list[int]]) -> None:
    """Each chip has the elements that it keeps one behind the other."""
    cuts: Any = SimpleNamespace(chips=2)
    shards = Shards(cuts, Topology({}), Costs())
    tensor = build.variable("t", np.int8, [8])
    parts = {chip: build.variable(f"part {chip}", np.int8, [len(own)]) for chip, own in enumerate(kept)}
    shards.collect(tensor, (0, 0), [np.array(own) for own in kept], parts)
    (concat,) = shards.state(tensor).whole[0].inputs
    values: list[int] = []
    for piece in concat.inputs:
        cut = piece.inputs[0] if piece.inputs and piece.inputs[0].op == "Slice" else None
        source = piece if cut is None else cut.inputs[0]
        own = kept[0] if source is parts[0] else kept[1]
        values += own if cut is None else own[cut.attrs["starts"][0] : cut.attrs["ends"][0]]
    assert values == list(range(8))
