"""Which classes of dimensions are cut across chips, and who gets which atoms.

Work is in the nodes that sum products of an activation and a constant. Each is cut along one dimension of its constant: along a
reduction when its input is there in parts already, which leaves partial sums; else along a dimension of its outputs, which leaves
them in parts for those behind it. So queries, keys and values are cut by heads and the product behind attention by rows, the
matrices of a feed-forward block by its inner width, and of convolutions in a row every other one by its output channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from deeploy.errors import UsageError
from deeploy.ir.memo import by_arguments
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.values import Graph
from deeploy.partition.dependence import Declare, Dependence, NestDimension, read_dependence


@dataclass(frozen=True, eq=False)
class Cuts:
    """What is cut, and how.

    Attributes:
        chips: how many there are.
        owner: the chip of every atom, -1 where it is not cut.
        chosen: per node that is cut by its constant, the dimension.
        whole: names of nodes with constants that are not cut and run on the first chip.
    """

    dependence: Dependence
    chips: int
    owner: np.ndarray
    chosen: Mapping[Node, NestDimension]
    whole: tuple[str, ...]

    @property
    def groups(self) -> frozenset[int]:
        """The dependence classes along which something is cut."""
        return frozenset(loop.group for loop in self.chosen.values())

    @by_arguments
    def indices_of(self, tensor: Tensor, axis: int) -> tuple[np.ndarray, ...]:
        """Per chip the indices of an axis that it has, in order."""
        owners = self.owner[self.dependence.index_classes(tensor, axis)]
        return tuple(np.flatnonzero(owners == chip) for chip in range(self.chips))

    def members(self, group: int) -> tuple[int, ...]:
        """The chips that have atoms of a class."""
        return tuple(int(chip) for chip in np.unique(self.owner[self.dependence.group == group]) if chip >= 0)


def choose_cuts(graph: Graph, declare: Declare, chips: int, gathered: frozenset[Node] = frozenset()) -> Cuts:
    """Choose what to cut.

    A node whose outputs belong to no class, as a norm along them comes next, is cut along them all the same; then they are made whole
    at once. So are those in ``gathered``, whose inputs are in parts along a reduction: their inputs are made whole instead.

    Raises:
        UsageError: nothing can be cut, or not for so many chips.
    """
    dependence = read_dependence(graph, declare, gathered)
    chosen, whole = _choose_dimensions(graph, dependence, gathered)
    along = {loop.group for loop in chosen.values() if not loop.is_sum}  # reductions over what nothing in front is cut along come too late
    apart = whole.keys() | {node for node, loop in chosen.items() if loop.is_sum and loop.group not in along}
    if apart:
        dependence = read_dependence(graph, declare, gathered | apart)
        chosen, whole = _choose_dimensions(graph, dependence, gathered)
    if not chosen:
        raise UsageError(
            f"--chips {chips}: the model has nothing that can be cut across chips: no sum of products with a constant operand",
            "Use --chips 1, or cut it by depth: --partition pipeline.",
        )
    owner = np.full(len(dependence.index_class), -1, np.int64)
    seeds = _seed_axes(graph, dependence)
    for group in sorted({loop.group for loop in chosen.values()}):
        first = dependence.index_classes(*seeds[group])
        _distribute_index_classes(owner, first, chips)
        members = np.unique(dependence.index_class[dependence.group[dependence.index_class] == group])
        _distribute_index_classes(owner, np.setdiff1d(members, first), chips)
    _check_none_is_empty(owner, chips, dependence)
    return Cuts(dependence, chips, owner, chosen, tuple(whole.values()))


def _product_factors(node: Node, dependence: Dependence) -> list[Tensor]:
    """The matrices and filters that a node sums products with."""
    return [t for t in node.operands if t.data is not None and t.rank > 1] if node in dependence.factors else []


def _choose_dimensions(
    graph: Graph, dependence: Dependence, gathered: frozenset[Node]
) -> tuple[dict[Node, NestDimension], dict[Node, str]]:
    """The dimension of every node that is cut, and the names of those that cannot be."""
    chosen, whole, groups = dict[Node, NestDimension](), dict[Node, str](), set[int]()
    for node in graph.nodes:
        constants = _product_factors(node, dependence)
        if constants:
            classes = {group for tensor in constants for group in dependence.classes(tensor)} - {-1}
            loop = _choose_dimension(dependence.loops[node], classes, groups, node in gathered)
            if loop is None:
                whole[node] = node.name
            else:
                chosen[node] = loop
                groups.add(loop.group)
    return chosen, whole


def _seed_axes(graph: Graph, dependence: Dependence) -> dict[int, tuple[Tensor, int]]:
    """Of every class the first axis of a matrix or of filters: its order is the order of the atoms."""
    seeds = dict[int, tuple[Tensor, int]]()
    for node in graph.nodes:
        for tensor in _product_factors(node, dependence):
            for axis, group in enumerate(dependence.classes(tensor)):
                seeds.setdefault(group, (tensor, axis))
    return seeds


def _choose_dimension(loops: Sequence[NestDimension], classes: set[int], groups: set[int], is_gathered: bool) -> NestDimension | None:
    """The dimension to cut a node along: a reduction over what is cut already, unless its input is gathered; else its outputs, else any
    reduction.
    """
    own = [loop for loop in loops if loop.group in classes and sum(other.group == loop.group for other in loops) == 1]
    known = [loop for loop in own if loop.group in groups]
    outputs = [loop for loop in own if not loop.is_sum]
    first = outputs if is_gathered and outputs else [loop for loop in known if loop.is_sum] or known or outputs or own
    return first[0] if first else None


def _distribute_index_classes(owner: np.ndarray, atoms: np.ndarray, chips: int) -> None:
    """Hand out the atoms of a class in their order along an axis: as many to each chip, the first one never without."""
    order = list(dict.fromkeys(atoms.tolist()))
    bounds = [-(-chip * len(order) // chips) for chip in range(chips + 1)]
    for chip, (begin, end) in enumerate(pairwise(bounds)):
        owner[order[begin:end]] = chip


def _check_none_is_empty(owner: np.ndarray, chips: int, dependence: Dependence) -> None:
    empty = set(range(chips)) - set(owner.tolist())
    if empty:
        sizes = {int(g): int((dependence.group[owner >= 0] == g).sum()) for g in np.unique(dependence.group[owner >= 0])}
        most = max(sizes.values())
        raise UsageError(
            f"--chips {chips}: {len(empty)} chips would have nothing to do: no dimension that is cut has more than {most} parts",
            f"Use at most --chips {most}.",
        )
