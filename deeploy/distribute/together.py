"""Parts and rows of tensors, put together on the first chip or on all of them, and rows cut out again (``gathers`` says who sends what)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.distribute import collectives, gathers
from deeploy.distribute.dependence import shape_of
from deeploy.distribute.rows import Division
from deeploy.distribute.shards import ROOT, Apart, Shards, chunked_axis, runs, size_of
from deeploy.graph import surgeon
from deeploy.graph.nodes import INTEGER_FORM
from deeploy.operators.views import RESHAPE, TRANSPOSE

WAYS: tuple[gathers.Way, ...] = (gathers.by_leaders, gathers.to_all)  # from few messages to many


def gather(shards: Shards, tensor: gs.Tensor, chips: Sequence[int] = (ROOT,)) -> None:
    """Put a tensor's parts together on the first chip, or on all where all of them need it and that takes less time than copying it."""
    apart = _apart(shards, tensor)
    sizes = {chip: size_of(part) for chip, part in apart.parts.items()}
    seconds, way = _fastest(shards, sizes)
    if len(chips) == shards.cuts.chips and seconds < to_first_seconds(shards, sizes) + copied_seconds(shards, tensor):
        _collect(shards, tensor, apart, way, chips)
        shards.note("all-gather", tensor, "by groups" if way is gathers.to_all else "by leaders", sorted(apart.parts), apart.group)
    else:
        _collect(shards, tensor, apart, gathers.to_first, [ROOT])
        shards.note("gather", tensor, "by groups", sorted(apart.parts), apart.group)


def to_rows(shards: Shards, tensor: gs.Tensor, division: Division) -> None:
    """Give every chip its rows of a tensor, as it has it, or from the first chip; what is in parts is put together first."""
    state = shards.state(tensor)
    if not state.whole:
        first, divided = to_rows_seconds(shards, tensor, division)
        gather(shards, tensor, range(shards.cuts.chips) if divided <= first + _scattered_seconds(shards, tensor, division) else (ROOT,))
    state.division, state.rows = division, {}
    for chip, (begin, end) in division.owned.items():
        name = f"{tensor.name} (rows from {begin})"
        if chip in state.whole:
            state.rows[chip] = shards.cut_out(chip, state.whole[chip], division.axis, begin, end, name)
        else:
            own = shards.cut_out(ROOT, state.whole[ROOT], division.axis, begin, end, name)
            state.rows[chip] = shards.message(ROOT, chip, own, name)
    shards.note("scatter", tensor, "flat", sorted(state.rows))


def to_rows_seconds(shards: Shards, tensor: gs.Tensor, division: Division) -> tuple[float, float]:
    """Seconds until a tensor is whole on the first chip, and until all chips have their rows of it."""
    state = shards.state(tensor)
    if state.whole:
        return 0.0, 0.0 if len(state.whole) > 1 else _scattered_seconds(shards, tensor, division)
    if state.rows and state.division is not None and replace(state.division, axis=0) == replace(division, axis=0):
        return to_first_seconds(shards, state.division.sizes(size_of(tensor))), 0.0
    sizes = {chip: size_of(part) for chip, part in _apart(shards, tensor).parts.items()}
    first = to_first_seconds(shards, sizes)
    return first, min(to_all_seconds(shards, sizes), first + _scattered_seconds(shards, tensor, division))


def _scattered_seconds(shards: Shards, tensor: gs.Tensor, division: Division) -> float:
    """Seconds until all chips have their rows of what the first chip has."""
    line = collectives.Timeline(shards.topology, shards.cuts.chips, shards.costs.message)
    for chip, count in division.sizes(size_of(tensor)).items():
        if chip != ROOT:
            line.receive(chip, line.send(ROOT, chip, count))
    return max(line.free)


def to_first_seconds(shards: Shards, sizes: Mapping[int, int]) -> float:
    """Seconds to put parts of so many bytes, by chip, together on the first chip."""
    return gathers.seconds(gathers.to_first, sizes, shards.topology, shards.cuts.chips, shards.costs.message)


def to_all_seconds(shards: Shards, sizes: Mapping[int, int]) -> float:
    """Seconds to put parts of so many bytes, by chip, together on all chips."""
    return _fastest(shards, sizes)[0]


def _fastest(shards: Shards, sizes: Mapping[int, int]) -> tuple[float, gathers.Way]:
    """The way to all chips that ends first, and its seconds; that with few messages, where it ends about as early."""
    seconds = [gathers.seconds(way, sizes, shards.topology, shards.cuts.chips, shards.costs.message) for way in WAYS]
    number = 0 if seconds[0] <= min(seconds) * (1 + collectives.SLACK) else 1
    return seconds[number], WAYS[number]


def turned_seconds(shards: Shards, tensor: gs.Tensor, axis: int, is_ordered: bool = True) -> float:
    """Seconds to bring parts that lie one behind the other, cut along an axis, to their places; ``is_ordered``: in the order of chips."""
    shape, chips = shape_of(tensor), shards.cuts.chips
    if (is_ordered and math.prod(shape[:axis]) == 1) or shape[axis] < chips:
        return 0.0
    part = [-(-n // chips) if i == axis else n for i, n in enumerate(shape)]
    x = surgeon.variable("parts", tensor.dtype, [chips, *part])
    order = (*range(1, axis + 1), 0, *range(axis + 1, len(part) + 1))
    turned = surgeon.variable("turned", tensor.dtype, [shape_of(x)[i] for i in order])
    y = surgeon.variable("whole", tensor.dtype, [n * chips if i == axis else n for i, n in enumerate(part)])
    nodes = [
        gs.Node(TRANSPOSE, "turned", {"perm": order}, [x], [turned], domain=INTEGER_FORM),
        gs.Node(RESHAPE, "whole", {}, [turned], [y], domain=INTEGER_FORM),
    ]
    return shards.costs.effort(gs.Graph(nodes, [x], [y])).whole


def copied_seconds(shards: Shards, tensor: gs.Tensor) -> float:
    """Seconds to copy a tensor from the first chip to all others."""
    count = size_of(tensor)
    chunks = collectives.chunks_of(chunked_axis(tensor)[1], count)
    return shards.choose(collectives.spreads(range(shards.cuts.chips), shards.topology.group, chunks), count)[1]


def _apart(shards: Shards, tensor: gs.Tensor) -> Apart:
    """Where the parts of a tensor are that is whole nowhere."""
    state = shards.state(tensor)
    if state.apart is not None:
        return state.apart
    if state.rows:
        assert state.division is not None
        kept = [np.arange(*box) for box in state.division.boxes[-1]]
        return Apart(None, state.division.axis, kept, state.rows)
    group, parts = next(iter(state.parts.items()))
    axis = shards.cuts.dependence.axis(tensor, group)
    assert axis is not None
    return Apart(group, axis, shards.cuts.kept(tensor, axis), parts)


def _collect(shards: Shards, tensor: gs.Tensor, apart: Apart, way: gathers.Way, chips: Sequence[int]) -> None:
    """Send parts, and put them together on some chips."""
    stores = {chip: _Store(shards, chip, tensor, apart) for chip in range(shards.cuts.chips)}
    sent: dict[gathers.Pass, tuple[gs.Tensor, int]] = {}
    every = tuple(sorted(apart.parts))
    for event in way(range(shards.cuts.chips), shards.topology.group, every):
        if isinstance(event, gathers.Pass):
            store = stores[event.source]
            if event.is_down:  # of what it has together
                store.take(every)
            own = store.take(event.parts)
            sent[event] = own, shards.send(event.source, event.target, own)
        else:
            passed = event.passed
            name = f"{tensor.name} (parts of {passed.parts[0]} to {passed.parts[-1]})"
            stores[passed.target].held[passed.parts] = shards.receive(passed.source, passed.target, *sent[passed], name)
    for chip in chips:
        shards.state(tensor).whole[chip] = stores[chip].whole()


class _Store:
    """What a chip has of the parts of a tensor: runs of them, one behind the other, by the chips whose parts they are."""

    def __init__(self, shards: Shards, chip: int, tensor: gs.Tensor, apart: Apart) -> None:
        self.shards = shards
        self.chip = chip
        self.tensor = tensor
        self.apart = apart
        self.held: dict[tuple[int, ...], gs.Tensor] = {}
        self.sizes = {other: math.prod(shape_of(part)) for other, part in apart.parts.items()}

    def reshaped(self, tensor: gs.Tensor, shape: Sequence[int], name: str) -> gs.Tensor:
        if tuple(shape) == shape_of(tensor):
            return tensor
        return self.shards.add(self.chip, RESHAPE, [tensor], surgeon.variable(name, tensor.dtype, shape), name)

    def take(self, parts: tuple[int, ...]) -> gs.Tensor:
        """A run of parts: one that has arrived, a piece of a longer one, or put together."""
        if (self.chip,) not in self.held and self.chip in self.apart.parts:
            own = self.apart.parts[self.chip]
            self.held[(self.chip,)] = self.reshaped(own, [self.sizes[self.chip]], f"{own.name} (flat)")
        if parts not in self.held:
            name = f"{self.tensor.name} (parts of {parts[0]} to {parts[-1]}, together)"
            longer = next((held for held in self.held if set(parts) <= set(held)), None)
            self.held[parts] = self.joined(parts, name) if longer is None else self.cut_out(parts, longer, name)
        return self.held[parts]

    def joined(self, parts: tuple[int, ...], name: str) -> gs.Tensor:
        """Parts put together from the longest runs."""
        pieces, left = list[gs.Tensor](), parts
        while left:
            run = max((held for held in self.held if held == left[: len(held)]), key=len)
            pieces.append(self.held[run])
            left = left[len(run) :]
        return self.shards.joined(
            self.chip, pieces, 0, surgeon.variable(name, self.tensor.dtype, [sum(self.sizes[part] for part in parts)])
        )

    def cut_out(self, parts: tuple[int, ...], run: tuple[int, ...], name: str) -> gs.Tensor:
        """Parts that lie in a longer run."""
        begin = sum(self.sizes[part] for part in run[: run.index(parts[0])])
        return self.shards.cut_out(self.chip, self.held[run], 0, begin, begin + sum(self.sizes[part] for part in parts), name)

    def whole(self) -> gs.Tensor:
        """The tensor, of all parts: they are turned together where they are alike, else put there piece by piece."""
        members, axis, kept = tuple(sorted(self.apart.parts)), self.apart.axis, self.apart.kept
        flat, shape = self.take(members), shape_of(self.tensor)
        order = np.concatenate([kept[chip] for chip in members])
        if np.array_equal(order, np.arange(shape[axis])) and math.prod(shape[:axis]) == 1:
            return self.reshaped(flat, shape, self.tensor.name)
        factors = _factors(order, len(members)) if len(set(self.sizes.values())) == 1 else None
        if factors is not None:
            part = shape_of(self.apart.parts[members[0]])
            stacked = self.reshaped(flat, (*factors, *part), f"{self.tensor.name} (stacked)")
            turned_to = (*range(2, 2 + axis), 1, 0, *range(2 + axis, 2 + len(part)))
            turned = surgeon.variable(f"{self.tensor.name} (turned)", self.tensor.dtype, [shape_of(stacked)[i] for i in turned_to])
            self.shards.add(self.chip, TRANSPOSE, [stacked], turned, turned.name, perm=turned_to)
            return self.reshaped(turned, shape, self.tensor.name)
        pieces: list[tuple[int, gs.Tensor]] = []
        for chip in members:
            own = self.cut_out((chip,), members, f"{self.tensor.name} (flat part of {chip})")
            own = self.reshaped(own, shape_of(self.apart.parts[chip]), f"{self.tensor.name} (part of {chip})")
            begin = 0
            for a, b in runs(kept[chip]):
                name = f"{self.tensor.name} (from {a} to {b})"
                pieces.append((a, self.shards.cut_out(self.chip, own, axis, begin, begin + b - a, name)))
                begin += b - a
        ordered = [piece for _, piece in sorted(pieces, key=lambda entry: entry[0])]
        return self.shards.joined(self.chip, ordered, axis, self.shards.like(self.tensor, None, 0, ""))


def _factors(order: np.ndarray, count: int) -> tuple[int, int] | None:
    """Two factors of the number of parts, such that parts that lie in rows of the second are in order where they are read by columns;
    None where there are none. ``order`` are the indices that parts have, one behind the other.
    """
    extent = len(order) // count
    for columns in range(1, count + 1):
        if count % columns == 0:
            wanted = np.arange(len(order)).reshape(columns, count // columns, extent).transpose(1, 0, 2)
            if np.array_equal(wanted.ravel(), order):
                return count // columns, columns
    return None
