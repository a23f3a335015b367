"""Whether all chips compute rows of what follows from a tensor that is no sum of partial sums: an input of the model, the output of a
product that is cut along its outputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_graphsurgeon as gs

from deeploy.distribute.dependence import key, shape_of
from deeploy.distribute.rows import Region, division
from deeploy.distribute.shards import Shards
from deeploy.distribute.sums import alone_seconds, rows_seconds
from deeploy.distribute.together import to_rows, to_rows_seconds


def divide(shards: Shards, graph: gs.Graph, tensor: gs.Tensor, regions: Mapping[int, Region]) -> None:
    """Give all chips rows of a tensor that is whole on the first chip alone, or in parts, if what can be computed from it row by row and
    is read whole by all chips is there earlier then.

    Args:
        regions: what follows from the tensor row by row, by the axis of its rows.
    """
    state = shards.state(tensor)
    if state.rows or len(state.whole) > 1:
        return
    for axis, region in regions.items():
        follows, others = _known(shards, graph, tensor, region)
        rows = division(axis, shape_of(tensor)[axis], shards.cuts.chips, shards.topology.group)
        if rows is None or not follows.read:
            continue
        moved = [to_rows_seconds(shards, one, rows) for one in (tensor, *others)]
        first, divided = sum(way[0] for way in moved), sum(way[1] for way in moved)
        if divided + rows_seconds(shards, rows, follows) < first + alone_seconds(shards, follows):
            to_rows(shards, tensor, rows)
            state.is_divided = True
            return


def _known(shards: Shards, graph: gs.Graph, tensor: gs.Tensor, follows: Region) -> tuple[Region, list[gs.Tensor]]:
    """What follows from a tensor and from others that are there already, and these others."""
    made, others, nodes = {key(tensor)}, dict[object, gs.Tensor](), list[gs.Node]()
    listed = {id(node) for node in follows.nodes}
    for node in (node for node in graph.nodes if id(node) in listed):
        variables = [t for t in node.inputs if not isinstance(t, gs.Constant) and key(t) not in made]
        if all(shards.state(t).is_there for t in variables):
            nodes.append(node)
            made |= {key(t) for t in node.outputs}
            others |= {key(t): t for t in variables}
    return Region(tuple(nodes), tuple((t, axis) for t, axis in follows.read if key(t) in made)), list(others.values())
