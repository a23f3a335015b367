"""What moves a tensor from where it is to where it is wanted: a table of collectives by both shardings, and how long that takes.

What is divided is put together on the first chip or on all of them (``gathers`` says who sends what).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deeploy.ir.nodes import Node, Tensor, compute
from deeploy.ir.values import Graph
from deeploy.operators.views import TRANSPOSE, VIEWS
from deeploy.partition import collectives, gathers
from deeploy.partition.collectives import Piece, pass_on
from deeploy.partition.rows import Division
from deeploy.partition.shards import (
    ROOT,
    Divided,
    Mover,
    Partial,
    Parts,
    Sharding,
    Shards,
    Whole,
    bytes_of,
    chunked_axis,
    cut_out,
    index_runs,
    join_pieces,
    make_like,
    name_result,
    with_extent,
)

TO_FIRST: gathers.Way = gathers.to_first
WAYS: tuple[gathers.Way, ...] = (gathers.by_leaders, gathers.to_all)  # from few messages to many


def bring_tensor(shards: Shards, tensor: Tensor, wanted: Sharding) -> None:
    """Move a tensor to where it is wanted, by one collective or several."""
    state = shards.states[tensor]
    while not state.has(wanted):
        here = Partial if state.add_up is not None else Divided if state.divided and not state.whole else Whole
        _COLLECTIVES[here, type(wanted)](shards, tensor, wanted)


def whole_tensor(shards: Shards, tensor: Tensor) -> Tensor:
    """A tensor as the first chip has it, after it is put together there."""
    if tensor.data is not None:
        return shards.constant(tensor, ROOT)
    bring_tensor(shards, tensor, Whole())
    return shards.states[tensor].whole[ROOT]


def _add_up(shards: Shards, tensor: Tensor, wanted: Sharding) -> None:
    """Sum partial sums as was planned."""
    total = shards.states[tensor].add_up
    assert total is not None
    total()


def _spread_tensor(shards: Shards, tensor: Tensor, wanted: Whole) -> None:
    """Make a tensor whole on several chips.

    An input of the model that nothing but cut nodes read is given to each of the chips. Of what is another view of a tensor, that is
    sent, once for all views. What follows from a constant that slides, as masks do, is computed again by every chip: how much of it is
    read changes from one inference to the next.
    """
    waiting: list[tuple[Tensor, Node | None]] = [(tensor, None)]  # and who computes it again, once its inputs are there
    while waiting:
        tensor, again = waiting.pop()
        node, copies = tensor.maker, shards.states[tensor].whole
        missing = [chip for chip in wanted.chips if chip not in copies]
        if again is not None:
            for chip in missing:
                inputs = [shards.operand(again, position, chip, wanted, None) for position in range(len(again.operands))]
                (copies[chip],) = shards.put(chip, again, inputs, [make_like(tensor)], again.attrs)
        elif tensor.data is not None:  # which lies on the first chip alone
            copies.setdefault(ROOT, shards.constant(tensor, ROOT))
            _broadcast_tensor(shards, tensor, wanted.chips)
        elif tensor in shards.free:
            for chip in missing:
                shards.give(tensor, chip)
        elif node is None or not (_is_view(shards, node) or tensor in shards.sliding) or len(node.outputs) != 1:
            _broadcast_tensor(shards, tensor, wanted.chips)
        else:
            read = [t for i, t in enumerate(node.operands) if t.data is None or shards.is_sent(node, i)]
            waiting += [(tensor, node), *((t, None) for t in read[::-1])]


def _is_view(shards: Shards, node: Node) -> bool:
    """Whether a node is another view of all of a tensor that the first chip has whole."""
    source = node.operands[0] if len(node.operands) == 1 else None
    if source is None or source.data is not None or node.op not in VIEWS:
        return False
    return bytes_of(source) == bytes_of(node.outputs[0]) and ROOT in shards.states[source].whole


class _Copy(Mover):
    """Chunks of a tensor on their way from the first chip to others."""

    def __init__(self, shards: Shards, tensor: Tensor, chunks: int) -> None:
        self.shards = shards
        self.tensor = tensor
        self.chunks = chunks
        self.pieces: dict[tuple[int, int], Tensor] = {}  # by chip and chunk

    def name(self, source: int, piece: Piece) -> str:
        return self.tensor.name if self.chunks == 1 else f"{self.tensor.name} (chunk {piece[0]})"

    def take(self, chip: int, target: int, piece: Piece) -> Tensor:
        if (chip, piece[0]) not in self.pieces:
            axis, extent = chunked_axis(self.tensor)
            own = cut_out(self.shards.states[self.tensor].whole[chip], axis, *collectives.chunk_box(piece[0], self.chunks, extent))
            self.pieces[chip, piece[0]] = self.shards.add(chip, own, self.name(chip, piece))
        return self.pieces[chip, piece[0]]

    def put(self, chip: int, piece: Piece, tensor: Tensor) -> None:
        self.pieces[chip, piece[0]] = tensor


def _broadcast_tensor(shards: Shards, tensor: Tensor, chips: Sequence[int]) -> None:
    """Make a tensor that is whole on the first chip whole on others."""
    copies = shards.states[tensor].whole
    missing = [chip for chip in chips if chip not in copies]
    if not missing:
        return
    axis, extent = chunked_axis(tensor)
    count, links = bytes_of(tensor), shards.links
    algorithms = collectives.list_spreads(
        [ROOT, *missing], links.topology.group, collectives.chunks_of(extent, count), links.topology.collective
    )
    algorithm, _ = collectives.fastest_algorithm(algorithms, count, links)
    copy = _Copy(shards, tensor, algorithm.chunks)
    shards.carry_out(algorithm.events, copy)
    for chip in missing:
        copies[chip] = shards.add(chip, join_pieces([copy.pieces[chip, chunk] for chunk in range(algorithm.chunks)], axis), tensor.name)
    shards.note("broadcast", tensor, algorithm.name, [ROOT, *missing])


def _scatter_tensor(shards: Shards, tensor: Tensor, wanted: Parts | Division) -> None:
    """Give every chip its part or its rows of a tensor, as it has it, or from the first chip."""
    state, parts, rows = shards.states[tensor], dict[int, Tensor](), wanted if isinstance(wanted, Division) else None
    group = wanted.group if isinstance(wanted, Parts) else None
    axis = rows.axis if rows is not None else shards.cuts.dependence.axis(tensor, group)
    assert axis is not None
    indices = rows.indices if rows is not None else shards.cuts.indices_of(tensor, axis)
    for chip, own in enumerate(indices):
        if not len(own):
            continue
        source, name = chip if chip in state.whole else ROOT, f"{tensor.name} ({'part' if rows is None else f'rows from {own[0]}'})"
        title = name if source == chip or rows is not None else f"{name} of {chip}"
        boxes = [  # one, or several side by side
            shards.add(source, cut_out(state.whole[source], axis, a, b), title if rows is not None else f"{title} (from {a} to {b})")
            for a, b in index_runs(own)
        ]
        parts[chip] = shards.add(source, join_pieces(boxes, axis), title)
        if source != chip:
            parts[chip] = shards.message(ROOT, chip, parts[chip], name)
    divided = Divided(axis, indices, parts, group, rows)
    if group is not None:
        state.parts[group] = divided
    else:
        state.rows = divided
    if shards.sent or group is None:
        shards.note("scatter", tensor, "flat", parts, group)


# ---- divided tensors, put together


def gather_tensor(shards: Shards, tensor: Tensor, wanted: Sharding) -> None:
    """Put a tensor together on the first chip, or on all: where all of them need it, and that takes less time than copying it; or where the
    rows that they cut out are there earlier than those that the first chip would send.
    """
    chips = wanted.chips if isinstance(wanted, Whole) else (ROOT,)
    if isinstance(wanted, Division):
        first, every = to_rows_seconds(shards, tensor, wanted)
        chips = tuple(range(shards.cuts.chips)) if every <= first + _scattered_seconds(shards, tensor, wanted) else chips
    divided = shards.states[tensor].divided
    assert divided is not None
    sizes = {chip: bytes_of(part) for chip, part in divided.tensors.items()}
    kind, way = "gather", TO_FIRST
    seconds, fastest = _fastest_gather(shards, sizes)
    if len(chips) == shards.cuts.chips and seconds < to_first_seconds(shards, sizes) + copied_seconds(shards, tensor):
        kind, way = "all-gather", fastest
    else:
        chips = (ROOT,)
    store = _PartStore(shards, tensor, divided)
    shards.carry_out(way(range(shards.cuts.chips), shards.links.topology.group, store.members), store)
    for chip in chips:
        shards.states[tensor].whole[chip] = store.whole(chip)
    shards.note(kind, tensor, "by leaders" if way is gathers.by_leaders else "by groups", divided.tensors, divided.group)


def to_first_seconds(shards: Shards, sizes: Mapping[int, int]) -> float:
    """Seconds to put parts of so many bytes, by chip, together on the first chip."""
    return gathers.gather_seconds(TO_FIRST, sizes, shards.links)


def to_all_seconds(shards: Shards, sizes: Mapping[int, int]) -> float:
    """Seconds to put parts of so many bytes, by chip, together on all chips."""
    return _fastest_gather(shards, sizes)[0]


def _fastest_gather(shards: Shards, sizes: Mapping[int, int]) -> tuple[float, gathers.Way]:
    """The way to all chips that ends first, and its seconds; that with few messages, where it ends about as early."""
    seconds = [gathers.gather_seconds(way, sizes, shards.links) for way in WAYS]
    number = 0 if seconds[0] <= min(seconds) * (1 + collectives.SLACK) else 1
    return seconds[number], WAYS[number]


def turned_seconds(shards: Shards, tensor: Tensor, axis: int, is_ordered: bool = True) -> float:
    """Seconds to bring parts that lie one behind the other, cut along an axis, to their places; ``is_ordered``: in the order of chips."""
    shape, chips = tensor.shape, shards.cuts.chips
    if (is_ordered and math.prod(shape[:axis]) == 1) or shape[axis] < chips:
        return 0.0
    extent = -(-shape[axis] // chips)
    x = Tensor("parts", (chips, *with_extent(shape, axis, extent)), tensor.dtype)
    order = (*range(1, axis + 1), 0, *range(axis + 1, x.rank))
    turned = name_result(compute(TRANSPOSE, x, perm=order), "turned")
    y = name_result(turned.reshape(with_extent(shape, axis, extent * chips)), "whole")
    return shards.effort(Graph("", (x,), (y,))).whole


def copied_seconds(shards: Shards, tensor: Tensor) -> float:
    """Seconds to copy a tensor from the first chip to all others."""
    count, links = bytes_of(tensor), shards.links
    chunks = collectives.chunks_of(chunked_axis(tensor)[1], count)
    return collectives.fastest_algorithm(
        collectives.list_spreads(range(links.chips), links.topology.group, chunks, links.topology.collective), count, links
    )[1]


class _PartStore(Mover):
    """What chips have of the parts of a tensor: runs of them, one behind the other, by the chips whose parts they are."""

    def __init__(self, shards: Shards, tensor: Tensor, divided: Divided) -> None:
        self.shards = shards
        self.tensor = tensor
        self.divided = divided
        self.members = tuple(sorted(divided.tensors))
        self.sizes = {chip: part.elements for chip, part in divided.tensors.items()}
        self.runs: list[dict[Piece, Tensor]] = [{} for _ in range(shards.cuts.chips)]

    def name(self, source: int, piece: Piece) -> str:
        return f"{self.tensor.name} (parts of {piece[0]} to {piece[-1]})"

    def put(self, chip: int, piece: Piece, tensor: Tensor) -> None:
        self.runs[chip][piece] = tensor

    def add(self, chip: int, piece: Piece) -> None:
        self.take(chip, chip, piece)

    def take(self, chip: int, target: int, piece: Piece) -> Tensor:
        """A run of parts: one that has arrived, a piece of a longer one, or put together from the longest runs."""
        held, name = self.runs[chip], f"{self.name(chip, piece)[:-1]}, together)"
        if (chip,) not in held and chip in self.sizes:
            own = self.divided.tensors[chip]
            held[(chip,)] = self.shards.add(chip, own.reshape([own.elements]), f"{own.name} (flat)")
        longer = next((run for run in held if set(piece) <= set(run)), None)
        if piece not in held and longer is not None:
            held[piece] = self.cut_out(chip, piece, longer, name)
        elif piece not in held:
            pieces, left = list[Tensor](), piece
            while left:
                run = max((run for run in held if run == left[: len(run)]), key=len)
                pieces.append(held[run])
                left = left[len(run) :]
            held[piece] = self.shards.add(chip, join_pieces(pieces, 0), name)
        return held[piece]

    def cut_out(self, chip: int, piece: Piece, run: Piece, name: str) -> Tensor:
        """A slice of ``run`` on ``chip`` that holds the parts ``piece``."""
        begin, size = (sum(self.sizes[part] for part in parts) for parts in (run[: run.index(piece[0])], piece))
        return self.shards.add(chip, cut_out(self.runs[chip][run], 0, begin, begin + size), name)

    def whole(self, chip: int) -> Tensor:
        """The tensor on a chip, of all parts: they are turned together where they are alike, else put there piece by piece."""
        shards, members, axis, indices = self.shards, self.members, self.divided.axis, self.divided.indices
        flat, shape, name = self.take(chip, chip, members), self.tensor.shape, self.tensor.name
        order = np.concatenate([indices[member] for member in members])
        if np.array_equal(order, np.arange(shape[axis])) and math.prod(shape[:axis]) == 1:
            return shards.add(chip, flat.reshape(shape), name)
        factors = _grid_factors(order, len(members)) if len(set(self.sizes.values())) == 1 else None
        if factors is not None:
            stacked = flat.reshape((*factors, *self.divided.tensors[members[0]].shape))
            stacked = shards.add(chip, stacked, f"{name} (stacked)")
            turned_to = (*range(2, 2 + axis), 1, 0, *range(2 + axis, stacked.rank))
            turned = shards.add(chip, stacked.transpose(turned_to), f"{name} (turned)")
            return shards.add(chip, turned.reshape(shape), name)
        pieces: dict[int, Tensor] = {}
        for member in members:
            own = self.cut_out(chip, (member,), members, f"{name} (flat part of {member})")
            own = own.reshape(self.divided.tensors[member].shape)
            own = shards.add(chip, own, f"{name} (part of {member})")
            begin = 0
            for a, b in index_runs(indices[member]):
                pieces[a] = shards.add(chip, cut_out(own, axis, begin, begin + b - a), f"{name} (from {a} to {b})")
                begin += b - a
        return shards.add(chip, join_pieces([pieces[a] for a in sorted(pieces)], axis), name)


def _grid_factors(order: np.ndarray, count: int) -> tuple[int, int] | None:
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


def to_rows_seconds(shards: Shards, tensor: Tensor, rows: Division) -> tuple[float, float]:
    """Seconds until a tensor is whole on the first chip, and until all chips have their rows of it."""
    state = shards.states[tensor]
    if state.whole or state.divided is None:
        return 0.0, 0.0 if len(state.whole) > 1 else _scattered_seconds(shards, tensor, rows)
    if state.division is not None and replace(state.division, axis=0) == replace(rows, axis=0):
        return to_first_seconds(shards, state.division.sizes(bytes_of(tensor))), 0.0
    sizes = {chip: bytes_of(part) for chip, part in state.divided.tensors.items()}
    first = to_first_seconds(shards, sizes)
    return first, min(to_all_seconds(shards, sizes), first + _scattered_seconds(shards, tensor, rows))


def _scattered_seconds(shards: Shards, tensor: Tensor, rows: Division) -> float:
    """Seconds until all chips have their rows of what the first chip has."""
    sizes = rows.sizes(bytes_of(tensor))
    events = (event for chip in sizes if chip != ROOT for event in pass_on(ROOT, chip, (chip,)))
    return shards.links.seconds(events, lambda sent: sizes[sent.target])


_COLLECTIVES: Mapping[tuple[type, type], Callable[[Shards, Tensor, Any], None]] = {  # from where a tensor is to where it is wanted
    (Partial, Whole): _add_up,
    (Partial, Division): _add_up,
    (Divided, Whole): gather_tensor,
    (Divided, Parts): gather_tensor,
    (Divided, Division): gather_tensor,
    (Whole, Whole): _spread_tensor,
    (Whole, Parts): _scatter_tensor,
    (Whole, Division): _scatter_tensor,
}
