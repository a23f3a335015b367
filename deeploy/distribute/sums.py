"""Partial sums of several chips, added up on the first one, and what follows the sum in its node.

Chips compute what they add in chunks, and send one while they compute the next. What arrives at a chip of a chunk is added by one call,
together with its own.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.distribute import collectives
from deeploy.distribute.collectives import Algorithm, Effort, Piece, Step, Work
from deeploy.distribute.dependence import shape_of
from deeploy.distribute.products import Product, sum_of
from deeploy.distribute.shards import ROOT
from deeploy.frontend.lower import build
from deeploy.graph import epilogue
from deeploy.operators.reduce import REDUCE_SUM
from deeploy.operators.views import RESHAPE


def reduce(product: Product, group: int) -> None:
    """Add partial sums up on the first chip, one of those that have them; the node's epilogue is computed there, once."""
    shards, tensor, members = product.shards, product.node.outputs[0], sorted(product.attrs)
    count = int(np.prod(shape_of(tensor))) * 4
    algorithms = collectives.reductions(members, shards.topology.group, collectives.chunks_of(product.extent, count))
    algorithm = shards.choose(algorithms, count, _work(product, len(members)))
    shards.state(tensor).whole[ROOT] = _Sum(product, algorithm).run()
    shards.note("reduce", tensor, algorithm.name, members, group)


def _work(product: Product, members: int) -> Work:
    """What chips compute for a sum: its products, where they are computed in pieces, and the sums of what arrives."""
    costs, shape = product.shards.costs, shape_of(product.node.outputs[0])
    terms = min(members, product.shards.topology.group or members)
    own = costs.effort(product.example()) if product.pieces is not None else Effort()
    return Work(product=own, total=costs.effort(sum_of(shape, terms)))


class _Sum:
    """One sum: chunks of it on their way to the first chip."""

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
                self.sums[event.chip, event.chunk] = self.finish(terms, event.chunk) if event.chip == ROOT else self.add(event.chip, terms)
        whole = [self.sums[ROOT, chunk] for chunk in range(self.algorithm.chunks)]
        if len(whole) == 1:
            return whole[0]
        return self.shards.joined(ROOT, whole, self.product.axis, self.shards.like(self.tensor, None, 0, ""))

    def box(self, chunk: int) -> tuple[int, int]:
        return self.algorithm.box(chunk, self.product.extent)

    def add(self, chip: int, terms: list[gs.Tensor]) -> gs.Tensor:
        """The sum of tensors on a chip that sends it on."""
        result = build.variable(f"{terms[-1].name} (sum)", np.int32, shape_of(terms[0]))
        return self.call(chip, terms, result, result.name)

    def call(self, chip: int, terms: list[gs.Tensor], result: gs.Tensor, name: str, *rest: gs.Tensor, **attrs: object) -> gs.Tensor:
        """The sum of tensors by one call; ``rest`` and ``attrs`` are those of an epilogue."""
        shards, shape, rows = self.shards, shape_of(terms[0]), list[gs.Tensor]()
        for term in terms:
            row = build.variable(f"{term.name} (row)", np.int32, (1, *shape))
            rows.append(shards.add(chip, RESHAPE, [term], row, row.name))
        both = shards.joined(chip, rows, 0, build.variable(f"{name} (terms)", np.int32, (len(terms), *shape)))
        return shards.add(chip, REDUCE_SUM.name, [both, *rest], result, name, axes=(0,), keepdims=False, **attrs)

    def finish(self, terms: list[gs.Tensor], chunk: int) -> gs.Tensor:
        """The last sum, with the node's epilogue."""
        node, stages = self.node, tuple(self.node.attrs.get("epilogue", ()))
        operands = [self.row(t, chunk) for t in node.inputs[len(node.inputs) - len(epilogue.operands(stages)) :]]
        attrs = {name: node.attrs[name] for name in epilogue.ATTRIBUTES if stages and name in node.attrs}
        begin, end = self.box(chunk)
        suffix = "" if self.algorithm.chunks == 1 else f" (from {begin} to {end})"
        result = self.shards.like(self.tensor, self.product.axis, end - begin, suffix)
        return self.call(ROOT, terms, result, f"{node.name}{suffix}", *operands, **attrs)

    def row(self, tensor: gs.Tensor, chunk: int) -> gs.Tensor:
        """An operand of the epilogue; where chunks lie along its axis, the chunk's."""
        assert isinstance(tensor, gs.Constant)
        values = np.asarray(tensor.values)
        is_whole = self.algorithm.chunks == 1 or self.product.axis != len(shape_of(self.tensor)) - 1 or values.size == 1
        return self.shards.constant(tensor, ROOT, None, True, None if is_whole else (values.ndim - 1, *self.box(chunk)))
