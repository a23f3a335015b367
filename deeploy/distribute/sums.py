"""Partial sums of several chips, added up on the first one, and what follows the sum in its node.

Chips compute what they add in chunks, and send one while they compute the next. What arrives at a chip of a chunk is added by one call,
together with its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.distribute import collectives
from deeploy.distribute.collectives import Algorithm, Effort, Piece, Step, Work
from deeploy.distribute.dependence import shape_of
from deeploy.distribute.products import Product, sum_of, sum_of_rows
from deeploy.distribute.rows import Division, Post, Region, Take, division, share_of
from deeploy.distribute.shards import ROOT, Shards, size_of
from deeploy.distribute.together import copied_seconds, to_all_seconds, to_first_seconds, turned_seconds
from deeploy.graph import epilogue, surgeon
from deeploy.operators.reduce import REDUCE_SUM
from deeploy.operators.views import RESHAPE


def reduce(product: Product, group: int, follows: Mapping[int, Region]) -> None:
    """Add partial sums up, and compute the node's epilogue: on the first chip, one of those that have them, or on all chips for some rows.

    Where that is estimated to end later than the product of a whole input with a share of the constants, that is noted.

    Args:
        follows: what comes row by row behind the sum, by the axis of its rows.
    """
    shards, tensor, members = product.shards, product.node.outputs[0], sorted(product.attrs)
    count = int(np.prod(shape_of(tensor))) * 4
    algorithms = collectives.reductions(members, shards.topology.group, collectives.chunks_of(product.extent, count))
    work = _work(product, len(members))
    algorithm, seconds = shards.choose(algorithms, count, work)
    is_on_all = len(members) == shards.cuts.chips
    found = _scattered(product, follows, work, count) if is_on_all else None
    is_by_rows = found is not None and found[2] < seconds + alone_seconds(shards, found[3])
    if is_on_all:
        rest = alone_seconds(shards, found[3]) if found is not None else 0.0
        least = found[2] if found is not None and is_by_rows else seconds + rest
        if gathered_seconds(product, follows) + rest < least / (1 + collectives.SLACK):
            shards.gathered.add(id(product.node))
    if found is not None and is_by_rows:
        division, chunks = found[:2]
        shards.state(tensor).division = division
        shards.state(tensor).rows = _Scattered(product, Algorithm("by groups", chunks, ()), division).run_rows()
        shards.note("reduce-scatter", tensor, "by groups", members, group)
        return
    shards.state(tensor).whole[ROOT] = _Sum(product, algorithm).run()
    shards.note("reduce", tensor, algorithm.name, members, group)


def gathered_seconds(product: Product, follows: Mapping[int, Region]) -> float:
    """Seconds until a product is done whose input is put together on all chips, and its output on the first one; where what follows by rows
    ends earlier than on the first chip, as much less."""
    shards, node = product.shards, product.node
    example = product.by_outputs()
    if example is None:
        return math.inf
    seconds = shards.costs.effort(example).whole
    for source in node.inputs:
        if isinstance(source, gs.Variable):
            sizes = shares(size_of(source), shards.cuts.chips)
            copied = to_first_seconds(shards, sizes) + copied_seconds(shards, source)
            seconds += min(to_all_seconds(shards, sizes), copied) + turned_seconds(shards, source, product.reduced)
    result, alone = node.outputs[0], math.inf
    turned = turned_seconds(shards, result, product.axis)
    first = to_first_seconds(shards, shares(size_of(result), shards.cuts.chips)) + turned
    for axis, region in follows.items():
        rows = division(axis, shape_of(result)[axis], shards.cuts.chips, shards.topology.group)
        if rows is not None:
            every = to_all_seconds(shards, shares(size_of(result), shards.cuts.chips)) + turned
            alone = min(alone, every + rows_seconds(shards, rows, region) - alone_seconds(shards, region))
    return seconds + min(first, alone)


def shares(bytes_: int, chips: int) -> dict[int, int]:
    """Bytes of equal parts on all chips."""
    return dict.fromkeys(range(chips), -(-bytes_ // chips))


def rows_seconds(shards: Shards, rows: Division, region: Region) -> float:
    """What follows row by row, computed by all chips that have rows, and put together where it is read whole."""
    largest = max(end - begin for begin, end in rows.owned.values()) / rows.extent
    seconds = sum(share_of(effort, largest) for effort in efforts(shards, region))
    for read, axis in region.read:
        seconds += to_all_seconds(shards, rows.sizes(size_of(read))) + turned_seconds(shards, read, axis, len(rows.levels) == 1)
    return seconds


def _scattered(product: Product, follows: Mapping[int, Region], work: Work, count: int) -> tuple[Division, int, float, Region] | None:
    """How rows are divided, in how many chunks the product is computed, seconds until all is done, and what follows, which is included."""
    shards, tensor = product.shards, product.node.outputs[0]
    work = replace(work, message=shards.costs.message)
    best: tuple[Division, int, float, Region] | None = None
    for axis, region in follows.items():
        rows = division(axis, shape_of(tensor)[axis], shards.cuts.chips, shards.topology.group)
        if rows is None or (product.pieces is not None and product.axis == axis):
            continue
        least = count // rows.levels[0][1]
        sizes = collectives.chunks_of(product.extent, least) if product.axis != axis else (1,)
        after = rows_seconds(shards, rows, region)
        for chunks in sizes:
            seconds = rows.added_seconds(count, chunks, shards.topology, work, _sums(product, rows, chunks)) + after
            if best is None or seconds < best[2]:
                best = rows, chunks, seconds, region
    return best


def _sums(product: Product, rows: Division, chunks: int) -> list[float]:
    """Seconds for what a chip adds up of a chunk, by level."""
    found, shape = list[float](), list(shape_of(product.node.outputs[0]))
    if chunks > 1:
        shape[product.axis] = -(-shape[product.axis] // chunks)
    for level, (_, terms) in enumerate(rows.levels):
        own = max(end - begin for begin, end in rows.boxes[level + 1])
        found.append(product.shards.costs.effort(sum_of_rows(shape, rows.axis, own, terms)).whole)
        shape[rows.axis] = own
    return found


def efforts(shards: Shards, region: Region) -> list[Effort]:
    """What one chip takes for each node of a region."""
    return [shards.effort(node) for node in region.nodes]


def alone_seconds(shards: Shards, region: Region) -> float:
    """What follows a sum, where the first chip computes it and copies what others read."""
    computed = sum(effort.whole for effort in efforts(shards, region))
    return computed + sum(copied_seconds(shards, read) for read, _ in region.read)


def _work(product: Product, members: int) -> Work:
    """What chips compute for a sum: its products, where they are computed in pieces, and the sums of what arrives."""
    costs, shape = product.shards.costs, shape_of(product.node.outputs[0])
    terms = min(members, product.shards.topology.group or members)
    own = costs.effort(product.example()) if product.pieces is not None else Effort()
    return Work(product=own, total=costs.effort(sum_of(shape, terms)))


class _Sum:
    """One sum: chunks of it on their way to the first chip."""

    place = ""  # what is said of results
    is_copied = False  # whether several chips have the constants of the epilogue

    def __init__(self, product: Product, algorithm: Algorithm) -> None:
        self.product = product
        self.shards = product.shards
        self.node = product.node
        self.tensor = product.node.outputs[0]
        self.algorithm = algorithm
        self.sums: dict[tuple[int, int], gs.Tensor] = {}
        self.waiting: dict[tuple[int, int], list[gs.Tensor]] = {}  # what has arrived at a chip of a chunk, and is not added yet

    def run(self) -> gs.Tensor:
        """Products, messages and sums in turn; returns the result on the first chip."""
        for event in collectives.script(self.algorithm):
            if isinstance(event, Step):
                name = f"{self.tensor.name} (from {event.source}, chunk {event.chunk})"
                other = self.shards.message(event.source, event.target, self.sums[event.source, event.chunk], name)
                self.waiting.setdefault((event.target, event.chunk), []).append(other)
            elif isinstance(event, Piece):
                self.sums[event.chip, event.chunk] = self.product.part(event.chip, *self.box(event.chunk))
            else:
                terms = [self.sums[event.chip, event.chunk], *self.waiting.pop((event.chip, event.chunk))]
                is_last = event.chip == ROOT
                self.sums[event.chip, event.chunk] = self.finish(ROOT, terms, event.chunk) if is_last else self.add(event.chip, terms)
        whole = [self.sums[ROOT, chunk] for chunk in range(self.algorithm.chunks)]
        if len(whole) == 1:
            return whole[0]
        return self.shards.joined(ROOT, whole, self.product.axis, self.shards.like(self.tensor, None, 0, ""))

    def box(self, chunk: int) -> tuple[int, int]:
        return self.algorithm.box(chunk, self.product.extent)

    def add(self, chip: int, terms: list[gs.Tensor]) -> gs.Tensor:
        """The sum of tensors on a chip that sends it on."""
        result = surgeon.variable(f"{terms[-1].name} (sum)", np.int32, shape_of(terms[0]))
        return self.call(chip, terms, result, result.name)

    def call(self, chip: int, terms: list[gs.Tensor], result: gs.Tensor, name: str, *rest: gs.Tensor, **attrs: object) -> gs.Tensor:
        """The sum of tensors by one call; ``rest`` and ``attrs`` are those of an epilogue."""
        shards, shape, rows = self.shards, shape_of(terms[0]), list[gs.Tensor]()
        for term in terms:
            row = surgeon.variable(f"{term.name} (row)", np.int32, (1, *shape))
            rows.append(shards.add(chip, RESHAPE, [term], row, row.name))
        both = shards.joined(chip, rows, 0, surgeon.variable(f"{name} (terms)", np.int32, (len(terms), *shape)))
        return shards.add(chip, REDUCE_SUM.name, [both, *rest], result, name, axes=(0,), keepdims=False, **attrs)

    def finish(self, chip: int, terms: list[gs.Tensor], chunk: int) -> gs.Tensor:
        """The last sum, with the node's epilogue."""
        node, stages = self.node, tuple(self.node.attrs.get("epilogue", ()))
        operands = [self.row(chip, t, chunk) for t in node.inputs[len(node.inputs) - len(epilogue.operands(stages)) :]]
        attrs = {name: node.attrs[name] for name in epilogue.ATTRIBUTES if stages and name in node.attrs}
        begin, end = self.box(chunk)
        suffix = "" if self.algorithm.chunks == 1 else f" (from {begin} to {end})"
        result = surgeon.variable(f"{self.tensor.name}{self.place}{suffix}", self.tensor.dtype, shape_of(terms[0]))
        return self.call(chip, terms, result, f"{node.name}{suffix}", *operands, **attrs)

    def row(self, chip: int, tensor: gs.Tensor, chunk: int) -> gs.Tensor:
        """An operand of the epilogue; where chunks lie along its axis, the chunk's."""
        assert isinstance(tensor, gs.Constant)
        values = np.asarray(tensor.values)
        is_whole = self.algorithm.chunks == 1 or self.product.axis != len(shape_of(self.tensor)) - 1 or values.size == 1
        return self.shards.constant(tensor, chip, None, True, None if is_whole else (values.ndim - 1, *self.box(chunk)), self.is_copied)


class _Scattered(_Sum):
    """One sum, of which every chip adds up its rows."""

    place = " (rows)"
    is_copied = True

    def __init__(self, product: Product, algorithm: Algorithm, rows: Division) -> None:
        super().__init__(product, algorithm)
        self.rows = rows
        self.sent: dict[Post, tuple[gs.Tensor, int]] = {}

    def run_rows(self) -> dict[int, gs.Tensor]:
        """Products, messages and sums in turn; returns the results of the chips that have rows."""
        for event in self.rows.script(self.algorithm.chunks):
            if isinstance(event, Piece):
                self.sums[event.chip, event.chunk] = self.product.part(event.chip, *self.box(event.chunk))
            elif isinstance(event, Post):
                own = self.own(event.source, event.target, event.level, event.chunk)
                self.sent[event] = own, self.shards.send(event.source, event.target, own)
            elif isinstance(event, Take):
                self.take(event.post)
            else:
                terms = [self.own(event.chip, event.chip, event.level, event.chunk), *self.waiting.pop((event.chip, event.chunk))]
                is_last = event.level == len(self.rows.levels) - 1
                total = self.finish(event.chip, terms, event.chunk) if is_last else self.add(event.chip, terms)
                self.sums[event.chip, event.chunk] = total
        return {chip: self.joined(chip) for chip in self.rows.owned}

    def take(self, post: Post) -> None:
        name = f"{self.tensor.name} (from {post.source}, level {post.level}, chunk {post.chunk})"
        other = self.shards.receive(post.source, post.target, *self.sent[post], name)
        self.waiting.setdefault((post.target, post.chunk), []).append(other)

    def own(self, chip: int, owner: int, level: int, chunk: int) -> gs.Tensor:
        """What a chip has before a level of the rows that ``owner`` has behind it."""
        begin, end = self.rows.boxes[level + 1][owner]
        first = self.rows.boxes[level][chip][0]
        name = f"{self.tensor.name} (rows from {begin} to {end}, level {level}, chunk {chunk})"
        return self.shards.cut_out(chip, self.sums[chip, chunk], self.rows.axis, begin - first, end - first, name)

    def joined(self, chip: int) -> gs.Tensor:
        """The result on a chip, with all chunks."""
        own = [self.sums[chip, chunk] for chunk in range(self.algorithm.chunks)]
        shape = list(shape_of(own[0]))
        shape[self.product.axis] = self.product.extent
        whole = surgeon.variable(f"{self.tensor.name}{self.place}", own[0].dtype, shape)
        return own[0] if len(own) == 1 else self.shards.joined(chip, own, self.product.axis, whole)
