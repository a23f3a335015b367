"""Partial sums of a product on several chips, added up on the first one or by rows on all of them, and what follows the sum in its node.

Chips compute what they add at once or in pieces, and send one while they compute the next. Pieces lie along the axis of the output along
which the constants are divided with them, so that no byte of a matrix is read twice: the columns of a matrix, the output channels of a
convolution. What arrives at a chip of a chunk is added by one call, together with its own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deeploy.ir import epilogue
from deeploy.ir.memo import by_arguments
from deeploy.ir.nodes import Attributes, Node, Tensor, compute
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.operators.reduce import REDUCE_SUM
from deeploy.operators.table import shared
from deeploy.operators.views import CONCAT, SLICE
from deeploy.partition import collectives
from deeploy.partition.collectives import Algorithm, ComputePiece, Effort, Piece
from deeploy.partition.rows import Division, RowRegion, Rows, divide_rows
from deeploy.partition.sharding import bring_tensor, copied_seconds, to_all_seconds, to_first_seconds, to_rows_seconds, turned_seconds
from deeploy.partition.shards import (
    ROOT,
    Mover,
    Parts,
    Shards,
    bytes_of,
    chunked_axis,
    cut_out,
    graph_of,
    in_rows,
    join_pieces,
    make_like,
    name_result,
    with_extent,
)


@dataclass(frozen=True)
class Pieces:
    """Where pieces lie: an axis of the output, and per input the axis whose indices go with it, None where a piece needs all of it."""

    axis: int
    inputs: tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class CutProduct:
    """A node of which every chip computes a partial sum, over its share of a reduction.

    Attributes:
        attrs: of the node on each chip.
        axes: of the inputs of the body, along which chips have parts.
        pieces: None where it is computed at once.
    """

    shards: Shards
    node: Node
    group: int
    attrs: Mapping[int, Attributes]
    axes: Sequence[int | None]
    pieces: Pieces | None

    @property
    def result(self) -> Tensor:
        return self.node.outputs[0]

    @property
    def axis(self) -> int:
        """The axis of the output along which it is sent in chunks."""
        return chunked_axis(self.result)[0] if self.pieces is None else self.pieces.axis

    @property
    def reduced(self) -> int:
        """The axis of its input along which chips have parts."""
        return next(axis or 0 for tensor, axis in zip(self.node.operands, self.axes, strict=False) if tensor.data is None)

    @property
    def extent(self) -> int:
        return self.result.shape[self.axis] if self.result.shape else 1

    def part(self, chip: int, begin: int, end: int) -> Tensor:
        """What a chip has of the outputs ``begin`` to ``end`` along the axis."""
        if (begin, end) == (0, self.extent):
            return self._computed(chip, None)
        if self.pieces is not None:
            return self._computed(chip, (begin, end))
        name = f"{self.result.name} (partial, from {begin} to {end})"
        return self.shards.add(chip, cut_out(self._whole(chip), self.axis, begin, end), name)

    @by_arguments
    def _whole(self, chip: int) -> Tensor:
        """All outputs of the node on a chip."""
        return self._computed(chip, None)

    def _bare(self, chip: int) -> Attributes:
        """The attributes of the node on a chip, without an epilogue's."""
        return {name: value for name, value in self.attrs[chip].items() if name not in epilogue.ATTRIBUTES}

    def _computed(self, chip: int, part: tuple[int, int] | None) -> Tensor:
        """The node on a chip: all of its outputs, or those from one index to another."""
        inputs, (begin, end) = [], part or (0, self.extent)
        for position, axis in enumerate(self.axes):
            along = self.pieces.inputs[position] if self.pieces is not None and part is not None else None
            box = None if along is None else (along, begin, end)
            inputs.append(self.shards.operand(self.node, position, chip, Parts(self.group), axis, box))
        suffix = " (partial)" if part is None else f" (partial, from {begin} to {end})"
        result = make_like(self.result, self.axis, end - begin, suffix, DType.INT32)
        return self.shards.put(chip, self.node, inputs, [result], self._bare(chip))[0]

    def _shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the inputs of the body, as the first chip has them."""
        cuts = self.shards.cuts
        return [
            tensor.shape if axis is None else with_extent(tensor.shape, axis, len(cuts.indices_of(tensor, axis)[ROOT]))
            for tensor, axis in zip(self.node.operands, self.axes, strict=False)
        ]

    def example(self) -> Graph:
        """What the first chip computes, as a graph of its own, in which constants are zero."""
        return self._alone(self._shapes(), make_like(self.result, dtype=DType.INT32), self._bare(ROOT))

    def by_outputs(self) -> Graph | None:
        """What a chip would compute of the node if it had all of the reduction and a share of the outputs, as a graph of its own; None
        where outputs cannot be divided with the constants."""
        if self.pieces is None:
            return None
        extent = -(-self.extent // len(self.attrs))
        shapes = []
        for position, tensor in enumerate(self.node.operands):
            place = self.pieces.inputs[position] if position < len(self.pieces.inputs) else tensor.rank - 1
            is_divided = place is not None and tensor.shape and tensor.shape[place] == self.extent
            shapes.append(with_extent(tensor.shape, place if is_divided else None, extent))
        return self._alone(shapes, make_like(self.result, self.axis, extent), self.node.attrs)

    def _alone(self, shapes: Sequence[tuple[int, ...]], result: Tensor, attrs: Attributes) -> Graph:
        inputs = tuple(
            replace(tensor, shape=shape, data=None if tensor.data is None else np.zeros(shape, tensor.dtype.numpy))
            for tensor, shape in zip(self.node.operands, shapes, strict=False)
        )
        return graph_of(self.node.another(inputs=inputs, outputs=(result,), attrs=attrs))


def pieces_of(node: Node, count: int, rows: Rows) -> Pieces | None:
    """Where pieces of a product may lie: the axis along which most bytes of constants are divided with them; None where there is none.

    Args:
        count: inputs of the body, without those of the epilogue.
    """
    body, output, pieces = node.operands[:count], node.outputs[0], dict[int, Pieces]()
    for axis, extent in enumerate(output.shape):
        places = rows.matching(node, output, axis, body) if extent > 1 else None
        if places is None:
            continue
        axes = (*places, *[None] * (len(node.operands) - count), axis)
        divided = sum(bytes_of(t) for t, place in zip(body, places, strict=True) if t.data is not None and place is not None)
        if divided and shared(node, axes, [None if place is None else np.arange(1) for place in axes]) == dict(node.attrs):
            pieces.setdefault(divided, Pieces(axis, places))
    return pieces[max(pieces)] if pieces else None


def add_up(terms: Tensor, *rest: Tensor, dtype: DType | None = None, **attrs: Any) -> Tensor:
    """The sum of tensors that lie one behind the other; ``rest`` and ``attrs`` are those of an epilogue."""
    dtype = dtype or terms.dtype
    return compute(REDUCE_SUM.name, terms, *rest, shape=terms.shape[1:], dtype=dtype, axes=(0,), keepdims=False, **attrs)


def sum_of(shape: Sequence[int], terms: int, dtype: DType = DType.INT32) -> Graph:
    """The sum of so many tensors, as a graph of its own."""
    x = Tensor("terms", (terms, *shape), dtype)
    return Graph("", (x,), (name_result(add_up(x), "sum"),))


def sum_of_rows(shape: Sequence[int], axis: int, rows: int, terms: int) -> Graph:
    """The sum of so many tensors of int32, one of which are the first rows of a tensor of ``shape``, as a graph of its own."""
    own = with_extent(shape, axis, rows)
    x, others = Tensor("x", tuple(shape), DType.INT32), Tensor("others", (terms - 1, *own), DType.INT32)
    part = name_result(compute(SLICE, x, starts=(0,) * len(own), ends=own, steps=(1,) * len(own)), "part")
    row = name_result(part.reshape((1, *own)), "row")
    both = name_result(compute(CONCAT, row, others, shape=(terms, *own), axis=0), "terms")
    return Graph("", (x, others), (name_result(add_up(both), "sum"),))


def plan_sum(product: CutProduct, follows: Mapping[int, RowRegion]) -> Division | None:
    """Note how partial sums are added up (``State.add_up``), and the node's epilogue computed: on the first chip, one of those that have
    them, or on all chips for some rows, whose division is returned.

    Where that is estimated to end later than the product of a whole input with a share of the constants, that is noted.

    Args:
        follows: what comes row by row behind the sum, by the axis of its rows.
    """
    shards, tensor, members = product.shards, product.result, sorted(product.attrs)
    count, costs = tensor.elements * 4, shards.effort
    own = costs(product.example()) if product.pieces is not None else Effort()
    total = costs(sum_of(tensor.shape, min(len(members), shards.links.topology.group or len(members))))
    topology, chunks = shards.links.topology, collectives.chunks_of(product.extent, count)
    algorithms = collectives.list_reductions(members, topology.group, chunks, topology.collective)
    algorithm, seconds = collectives.fastest_algorithm(algorithms, count, shards.links, own, total)
    is_on_all = len(members) == shards.cuts.chips
    scattered = _scatter_sum(product, follows, own, count) if is_on_all else None
    rest = alone_seconds(shards, scattered.region) if scattered is not None else 0.0
    is_by_rows = scattered is not None and scattered.seconds < seconds + rest
    if is_on_all:
        least = scattered.seconds if scattered is not None and is_by_rows else seconds + rest
        if gathered_seconds(product, follows) + rest < least / (1 + collectives.SLACK):
            shards.gathered.add(product.node)
    if scattered is None or not is_by_rows:
        shards.states[tensor].add_up = RunningSum(product, algorithm).run
        return None
    rows = scattered.rows
    shards.states[tensor].add_up = RunningSum(
        product, Algorithm("by groups", scattered.chunks, tuple(rows.events(scattered.chunks))), rows
    ).run
    return rows


def gathered_seconds(product: CutProduct, follows: Mapping[int, RowRegion]) -> float:
    """Seconds until a product is done whose input is put together on all chips, and its output on the first one; where what follows by rows
    ends earlier than on the first chip, as much less."""
    shards, result = product.shards, product.result
    example = product.by_outputs()
    if example is None:
        return math.inf
    seconds = shards.effort(example).whole
    for source in product.node.variables:
        sizes = _equal_parts(shards, source)
        copied = to_first_seconds(shards, sizes) + copied_seconds(shards, source)
        seconds += min(to_all_seconds(shards, sizes), copied) + turned_seconds(shards, source, product.reduced)
    turned = turned_seconds(shards, result, product.axis)
    ends = [to_first_seconds(shards, _equal_parts(shards, result)) + turned]
    for axis, region in follows.items():
        rows = division_of(shards, result, axis)
        if rows is not None:
            every = to_all_seconds(shards, _equal_parts(shards, result)) + turned
            ends.append(every + rows_seconds(shards, rows, region) - alone_seconds(shards, region))
    return seconds + min(ends)


def _equal_parts(shards: Shards, tensor: Tensor) -> dict[int, int]:
    """Bytes of equal parts of a tensor on all chips."""
    return dict.fromkeys(range(shards.cuts.chips), -(-bytes_of(tensor) // shards.cuts.chips))


def division_of(shards: Shards, tensor: Tensor, axis: int) -> Division | None:
    """How the indices of an axis are divided as rows."""
    return divide_rows(axis, tensor.shape[axis], shards.cuts.chips, shards.links.topology.group)


def rows_seconds(shards: Shards, rows: Division, region: RowRegion) -> float:
    """What follows row by row, computed by all chips that have rows, and put together where it is read whole."""
    largest = max(end - begin for begin, end in rows.owned.values()) / rows.extent
    seconds = sum(shards.effort_of(node).share(largest) for node in region.nodes)
    for read, axis in region.read:
        seconds += to_all_seconds(shards, rows.sizes(bytes_of(read))) + turned_seconds(shards, read, axis, len(rows.levels) == 1)
    return seconds


def alone_seconds(shards: Shards, region: RowRegion) -> float:
    """What follows a sum, where the first chip computes it and copies what others read."""
    computed = sum(shards.effort_of(node).whole for node in region.nodes)
    return computed + sum(copied_seconds(shards, read) for read, _ in region.read)


@dataclass(frozen=True)
class _Scattered:
    """How rows are divided, in how many chunks the product is computed, seconds until all is done, and what follows, which is included."""

    rows: Division
    chunks: int
    seconds: float
    region: RowRegion


def _scatter_sum(product: CutProduct, follows: Mapping[int, RowRegion], own: Effort, count: int) -> _Scattered | None:
    """The fastest way to add a product up by rows; ``own`` is what a chip takes to compute what it adds, of ``count`` bytes."""
    shards, possible = product.shards, list[_Scattered]()
    for axis, region in follows.items():
        rows = division_of(shards, product.result, axis)
        if rows is None or (product.pieces is not None and product.axis == axis):
            continue
        least = count // rows.levels[0][1]
        after = rows_seconds(shards, rows, region)
        for chunks in collectives.chunks_of(product.extent, least) if product.axis != axis else (1,):
            possible.append(_Scattered(rows, chunks, _added_seconds(product, rows, chunks, own, count) + after, region))
    return min(possible, key=lambda way: way.seconds, default=None)


def _added_seconds(product: CutProduct, rows: Division, chunks: int, own: Effort, count: int) -> float:
    """When the last chip has its rows of a sum."""
    sums = _sum_seconds(product, rows, chunks)
    return product.shards.links.seconds(
        rows.events(chunks),
        lambda sent: count * (rows.count(sent.target, sent.piece[1] + 1) / rows.extent) / chunks,
        lambda event: own.part(chunks) if isinstance(event, ComputePiece) else sums[event.piece[1]],
    )


def _sum_seconds(product: CutProduct, rows: Division, chunks: int) -> list[float]:
    """Seconds for what a chip adds up of a chunk, by level."""
    seconds, shape = list[float](), product.result.shape
    if chunks > 1:
        shape = with_extent(shape, product.axis, -(-shape[product.axis] // chunks))
    for level, (_, terms) in enumerate(rows.levels, 1):
        own = max(rows.count(chip, level) for chip in range(rows.chips))
        seconds.append(product.shards.effort(sum_of_rows(shape, rows.axis, own, terms)).whole)
        shape = with_extent(shape, rows.axis, own)
    return seconds


class RunningSum(Mover):
    """One sum: chunks of it on their way to the first chip, or with ``rows``, to the chips that add these up."""

    def __init__(self, product: CutProduct, algorithm: Algorithm, rows: Division | None = None) -> None:
        self.product = product
        self.shards = product.shards
        self.tensor = product.result
        self.algorithm = algorithm
        self.rows = rows
        self.place = "" if rows is None else " (rows)"
        self.sums: dict[tuple[int, int], Tensor] = {}  # by chip and chunk
        self.arrived = defaultdict[tuple[int, int], list[Tensor]](list)  # what is not added yet

    def run(self) -> None:
        """Products, messages and sums in turn; the result is whole on the first chip, or in rows."""
        shards, state, product = self.shards, self.shards.states[self.tensor], self.product
        shards.carry_out(self.algorithm.events, self)
        if self.rows is None:
            state.whole[ROOT] = self.join_chunks(ROOT)
        else:
            state.rows = in_rows(self.rows, {chip: self.join_chunks(chip) for chip in self.rows.owned})
        state.add_up = None
        shards.note("reduce" if self.rows is None else "reduce-scatter", self.tensor, self.algorithm.name, product.attrs, product.group)

    def box(self, chunk: int) -> tuple[int, int]:
        return collectives.chunk_box(chunk, self.algorithm.chunks, self.product.extent)

    def name(self, source: int, piece: Piece) -> str:
        level = "" if self.rows is None else f"level {piece[1]}, "
        return f"{self.tensor.name} (from {source}, {level}chunk {piece[0]})"

    def compute(self, chip: int, piece: Piece) -> None:
        self.sums[chip, piece[0]] = self.product.part(chip, *self.box(piece[0]))

    def take(self, chip: int, target: int, piece: Piece) -> Tensor:
        """What a chip has; where rows are added up, those that the other chip has behind the level."""
        chunk = piece[0]
        if self.rows is None:
            return self.sums[chip, chunk]
        (begin, end), (first, _) = self.rows.boxes[piece[1] + 1][target], self.rows.boxes[piece[1]][chip]
        name = f"{self.tensor.name} (rows from {begin} to {end}, level {piece[1]}, chunk {chunk})"
        return self.shards.add(chip, cut_out(self.sums[chip, chunk], self.rows.axis, begin - first, end - first), name)

    def put(self, chip: int, piece: Piece, tensor: Tensor) -> None:
        self.arrived[chip, piece[0]].append(tensor)

    def add(self, chip: int, piece: Piece) -> None:
        """Add what has arrived by one call; the last one computes the node's epilogue."""
        chunk, node = piece[0], self.product.node
        terms = [self.take(chip, chip, piece), *self.arrived.pop((chip, chunk))]
        is_last = chip == ROOT if self.rows is None else piece[1] == len(self.rows.levels) - 1
        if not is_last:
            name = f"{terms[-1].name} (sum)"
            self.sums[chip, chunk] = self.shards.add(chip, add_up(self.stacked(chip, terms, name)), name)
            return
        stages = node.epilogue
        operands = [self.row(chip, t, chunk) for t in node.operands[len(node.operands) - len(epilogue.stage_operands(stages)) :]]
        attrs = {name: node.attrs[name] for name in epilogue.ATTRIBUTES if stages and name in node.attrs}
        begin, end = self.box(chunk)
        suffix = "" if self.algorithm.chunks == 1 else f" (from {begin} to {end})"
        total = add_up(self.stacked(chip, terms, f"{node.name}{suffix}"), *operands, dtype=self.tensor.dtype, **attrs)
        self.sums[chip, chunk] = self.shards.add(chip, total, f"{self.tensor.name}{self.place}{suffix}", f"{node.name}{suffix}")

    def stacked(self, chip: int, terms: list[Tensor], name: str) -> Tensor:
        """Tensors one behind the other along an axis of their own."""
        rows = [self.shards.add(chip, term.reshape((1, *term.shape)), f"{term.name} (row)") for term in terms]
        return self.shards.add(chip, join_pieces(rows, 0), f"{name} (terms)")

    def row(self, chip: int, tensor: Tensor, chunk: int) -> Tensor:
        """An operand of the epilogue; where chunks lie along its axis, the chunk's."""
        is_whole = self.algorithm.chunks == 1 or self.product.axis != self.tensor.rank - 1 or tensor.elements == 1
        box = None if is_whole else (tensor.rank - 1, *self.box(chunk))
        return self.shards.constant(tensor, chip, box=box, is_copy=self.rows is not None)

    def join_chunks(self, chip: int) -> Tensor:
        """The result on a chip, with all chunks."""
        chunks = [self.sums[chip, chunk] for chunk in range(self.algorithm.chunks)]
        return self.shards.add(chip, join_pieces(chunks, self.product.axis), f"{self.tensor.name}{self.place}")


# ---- rows of what is no sum


def divide_tensor(shards: Shards, tensor: Tensor, regions: Mapping[int, RowRegion]) -> None:
    """Give all chips rows of a tensor that is whole on the first chip alone, or in parts, if what can be computed from it row by row and
    is read whole by all chips is there earlier then.

    Args:
        regions: what follows from the tensor row by row, by the axis of its rows.
    """
    state = shards.states[tensor]
    if state.rows is not None or len(state.whole) > 1:
        return
    for axis, region in regions.items():
        follows, others = _known_followers(shards, tensor, region)
        rows = division_of(shards, tensor, axis)
        if rows is None or not follows.read:
            continue
        moved = [to_rows_seconds(shards, one, rows) for one in (tensor, *others)]
        first, divided = map(sum, zip(*moved, strict=True))
        if divided + rows_seconds(shards, rows, follows) < first + alone_seconds(shards, follows):
            bring_tensor(shards, tensor, rows)
            state.is_divided = True
            return


def _known_followers(shards: Shards, tensor: Tensor, follows: RowRegion) -> tuple[RowRegion, list[Tensor]]:
    """What follows from a tensor and from others that are there already, and these others."""
    computed, others, nodes = {tensor}, dict[Tensor, None](), list[Node]()
    listed = set(follows.nodes)
    for node in filter(listed.__contains__, shards.graph.nodes):
        variables = [t for t in node.variables if t not in computed]
        if all(shards.states[t].is_there for t in variables):
            nodes.append(node)
            computed.update(node.outputs)
            others |= dict.fromkeys(variables)
    return RowRegion(tuple(nodes), tuple((t, axis) for t, axis in follows.read if t in computed)), list(others)
