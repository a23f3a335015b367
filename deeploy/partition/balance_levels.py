"""Layers of a network by depth, which is where pipelines are cut.

The depth of a layer is the longest path that leads to it. A cut between two depths crosses every path that is open there, so what is
read lies on one side and what reads it on the same or on a later one: any such cut makes a pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

INPUT = -1

Cuts = tuple[int, ...]  # first levels of all stages but the first


@dataclass(frozen=True)
class BalancedLayer:
    """One operator, as far as cutting is concerned.

    Attributes:
        name: for messages.
        reads: the layers whose results it reads, all before it in the list; ``INPUT`` is the network's input.
        weights: bytes of its constants.
        output: bytes of its result.
    """

    name: str
    reads: tuple[int, ...]
    weights: int
    output: int


@dataclass(frozen=True)
class Levels:
    """Layers by depth; level i can be cut from the one before.

    Attributes:
        layers: positions of the layers of every level.
        weights: bytes of constants of every level.
        crossing: bytes that cross the border before each level, those that only pass by included; the first entry is what the network is
            given, a further one at the end what it returns.
        names: of the layer with the most constants in each level, for messages.
    """

    layers: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...]
    crossing: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def depth(self) -> int:
        return len(self.layers)


def layer_depths(layers: Sequence[BalancedLayer]) -> list[int]:
    """The longest path from the network's input to every layer, in layers before it."""
    depths: list[int] = []
    for layer in layers:
        depths.append(max((depths[read] + 1 for read in layer.reads if read != INPUT), default=0))
    return depths


def levels_of(
    layers: Sequence[BalancedLayer], given: int, returned: Collection[int] | None = None, together: Iterable[Collection[int]] = ()
) -> Levels:
    """Layers by depth.

    Args:
        given: bytes of the network's input.
        returned: layers whose results leave the network; those that nobody reads, if not given.
        together: groups of layers that one device has to run: depths between those of a group are one level.
    """
    depth = layer_depths(layers)
    level = _layer_levels(depth, together)
    count = max(level, default=-1) + 1
    members: list[list[int]] = [[] for _ in range(count)]
    for position in range(len(layers)):
        members[level[position]].append(position)
    last = _last_readers(layers, level)
    passed = [0] * (count + 1)
    for position, layer in enumerate(layers):
        for border in range(level[position] + 1, last[position] + 1):
            passed[border] += layer.output
    everywhere = {read for layer in layers for read in layer.reads}
    results = [position for position in range(len(layers)) if position not in everywhere] if returned is None else returned
    weights = tuple(sum(layers[position].weights for position in row) for row in members)
    crossing = (given, *passed[1:count], sum(layers[position].output for position in results))
    names = tuple(layers[max(row, key=lambda position: layers[position].weights)].name for row in members)
    return Levels(tuple(map(tuple, members)), weights, crossing, names)


def _layer_levels(depth: Sequence[int], together: Iterable[Collection[int]]) -> list[int]:
    """The level of every layer: its depth, less the borders that are inside a group."""
    closed = {border for group in together for border in range(min(depth[i] for i in group) + 1, max(depth[i] for i in group) + 1)}
    numbers = list(accumulate((border not in closed for border in range(1, max(depth, default=0) + 1)), initial=0))
    return [numbers[d] for d in depth]


def stage_segments(cuts: Cuts, depth: int) -> list[tuple[int, int]]:
    """First level and the one behind the last of every stage."""
    return list(pairwise((0, *cuts, depth)))


def stage_sizes(levels: Levels, cuts: Cuts) -> list[int]:
    """Bytes of constants that each stage holds."""
    return [sum(levels.weights[first:end]) for first, end in stage_segments(cuts, levels.depth)]


def result_spans(layers: Sequence[BalancedLayer], levels: Levels) -> list[tuple[int, int, int]]:
    """Level, last level that reads it, and bytes of every layer's result."""
    numbers = {position: number for number, row in enumerate(levels.layers) for position in row}
    level = [numbers[position] for position in range(len(layers))]
    return [(made, last, layer.output) for made, last, layer in zip(level, _last_readers(layers, level), layers, strict=True)]


def _last_readers(layers: Sequence[BalancedLayer], level: Sequence[int]) -> list[int]:
    """The last level that reads each layer's result; its own where none does."""
    last = list(level)
    for position, layer in enumerate(layers):
        for read in layer.reads:
            if read != INPUT:
                last[read] = max(last[read], level[position])
    return last
