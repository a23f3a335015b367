"""What is claimed of a graph that is cut by tensor parallelism, checked on the graphs that came out.

Constants are on one chip each, or in parts of which no element is on two; what is read whole by every iteration (tables of functions,
scales) is no constant in this sense. Every class of dimensions that is cut ends in one synchronisation, a sum or a gathering.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.distribute.dependence import Declare, Dependence, key, read_dependence
from deeploy.distribute.shards import Shard
from deeploy.distribute.tensor import Partition
from deeploy.errors import ModelError, shorten
from deeploy.operators.link import SEND

_REPORT = "Report this model and its options: partitioning keeps to this by construction."


def prove(graph: gs.Graph, declare: Declare, partition: Partition) -> None:
    """Check that no constant is on two chips, and that none is missing. Copies of what rows need on every chip are none of this.

    Raises:
        ModelError: names the constant.
    """
    if len(partition.system.chips) == 1:
        return
    dependence = read_dependence(graph, declare)
    _once(graph, dependence, partition)
    _known(graph, dependence, partition)


def synchronisations(partition: Partition) -> Mapping[int, int]:
    """How often the chips wait for each other's results, per class that is cut: sums and gatherings."""
    return Counter(c.group for c in partition.collectives if c.kind in ("reduce", "reduce-scatter", "gather") and c.group is not None)


def _mapped(graph: gs.Graph, dependence: Dependence) -> dict[object, gs.Constant]:
    """The constants that loop nests map, with more than one element."""
    found = {}
    for node in graph.nodes:
        positions = dependence.mapped.get(id(node), frozenset(range(len(node.inputs))))
        for position, tensor in enumerate(node.inputs):
            if isinstance(tensor, gs.Constant) and position in positions and np.asarray(tensor.values).size > 1:
                found[key(tensor)] = tensor
    return found


def _once(graph: gs.Graph, dependence: Dependence, partition: Partition) -> None:
    """Every element of a constant is on one chip, with its value."""
    by_constant: dict[object, list[Shard]] = {}
    for shard in partition.shards:
        by_constant.setdefault(key(shard.constant), []).append(shard)
    for name, tensor in _mapped(graph, dependence).items():
        values = np.asarray(tensor.values)
        chips, copied = np.full(values.shape, -1), np.zeros(values.shape, bool)
        for shard in by_constant.get(name, ()):
            place = np.ix_(*(shard.indices.get(axis, np.arange(size)) for axis, size in enumerate(values.shape)))
            if not np.array_equal(values[place].ravel(), shard.values.ravel()):
                raise ModelError(f"chip {shard.chip} has other values of constant {shorten(tensor.name)} than the model", _REPORT)
            if ((chips[place] != -1) & (chips[place] != shard.chip) & ~(copied[place] & shard.is_copy)).any():
                raise ModelError(f"constant {shorten(tensor.name)} is on chip {shard.chip} and on another one", _REPORT)
            chips[place], copied[place] = shard.chip, shard.is_copy
        if (chips == -1).any():
            raise ModelError(f"{int((chips == -1).sum())} elements of constant {shorten(tensor.name)} are on no chip", _REPORT)


def _known(graph: gs.Graph, dependence: Dependence, partition: Partition) -> None:
    """No chip has a constant of more than one element but its shards, and tables, which nests do not map."""
    own = {(shard.chip, id(shard.values)) for shard in partition.shards}
    tables = {node.name: dependence.mapped.get(id(node), frozenset(range(len(node.inputs)))) for node in graph.nodes}
    for chip, part in enumerate(partition.system.chips):
        for node in part.nodes:
            mapped = tables.get(node.name, frozenset(range(len(node.inputs))))
            for position, tensor in enumerate(node.inputs):
                if not isinstance(tensor, gs.Constant) or np.asarray(tensor.values).size <= 1:
                    continue
                is_table = position not in mapped and node.op != SEND
                if not is_table and (chip, id(tensor.values)) not in own:
                    raise ModelError(f"chip {chip}, node {shorten(node.name)}: constant {shorten(tensor.name)} is no part of it", _REPORT)
