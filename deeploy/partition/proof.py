"""What is claimed of a graph that is cut by tensor parallelism, checked on the graphs that came out.

Constants are on one chip each, or in parts of which no element is on two; what is read whole by every iteration (tables of functions,
scales) is no constant in this sense. Every class of dimensions that is cut ends in one synchronisation, a sum or a gathering.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from deeploy.errors import ModelError, shorten
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.values import Graph
from deeploy.operators.link import SEND
from deeploy.partition.dependence import Declare, Dependence, read_dependence
from deeploy.partition.shards import Shard
from deeploy.partition.tensor import Partition

_REPORT = "Report this model and its options: partitioning keeps to this by construction."


def prove_partition(graph: Graph, declare: Declare, partition: Partition) -> None:
    """Check that no constant is on two chips, and that none is missing. Copies of what rows need on every chip are none of this.

    Raises:
        ModelError: names the constant.
    """
    if len(partition.system.chips) == 1:
        return
    dependence = read_dependence(graph, declare)
    _check_once(graph, dependence, partition)
    _check_known(graph, dependence, partition)


def _mapped_inputs(node: Node, dependence: Dependence) -> frozenset[int]:
    """Positions of the inputs of a node that loop nests map."""
    return dependence.mapped.get(node, frozenset(range(len(node.operands))))


def _check_once(graph: Graph, dependence: Dependence, partition: Partition) -> None:
    """Every element of a constant that loop nests map, and that has more than one, is on one chip, with its value."""
    by_constant = defaultdict[Tensor, list[Shard]](list)
    for shard in partition.shards:
        by_constant[shard.constant].append(shard)
    for tensor in dict.fromkeys(node.operands[position] for node in graph.nodes for position in sorted(_mapped_inputs(node, dependence))):
        values = tensor.data
        if values is None or values.size <= 1:
            continue
        chips, copied = np.full(values.shape, -1), np.zeros(values.shape, bool)
        for shard in by_constant[tensor]:
            place = np.ix_(*(shard.indices.get(axis, np.arange(size)) for axis, size in enumerate(values.shape)))
            if not np.array_equal(values[place].ravel(), shard.values.ravel()):
                raise ModelError(f"chip {shard.chip} has other values of constant {shorten(tensor.name)} than the model", _REPORT)
            if ((chips[place] != -1) & (chips[place] != shard.chip) & ~(copied[place] & shard.is_copy)).any():
                raise ModelError(f"constant {shorten(tensor.name)} is on chip {shard.chip} and on another one", _REPORT)
            chips[place], copied[place] = shard.chip, shard.is_copy
        if (chips == -1).any():
            raise ModelError(f"{int((chips == -1).sum())} elements of constant {shorten(tensor.name)} are on no chip", _REPORT)


def _check_known(graph: Graph, dependence: Dependence, partition: Partition) -> None:
    """No chip has a constant of more than one element but its shards, and tables, which nests do not map."""
    own = {(shard.chip, id(shard.values)) for shard in partition.shards}
    maps = {node.name: _mapped_inputs(node, dependence) for node in graph.nodes}
    for chip, part in enumerate(partition.system.chips):
        for node in part.nodes:
            for position, tensor in enumerate(node.operands):
                is_table = node.name in maps and position not in maps[node.name] and node.op != SEND
                if tensor.data is not None and tensor.elements > 1 and not is_table and (chip, id(tensor.data)) not in own:
                    raise ModelError(f"chip {chip}, node {shorten(node.name)}: constant {shorten(tensor.name)} is no part of it", _REPORT)
