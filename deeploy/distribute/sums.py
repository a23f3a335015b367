"""Partial sums of several chips, added up on the first one, and what follows the sum in its node.

What arrives at a chip is added by one call, together with its own, before the chip sends the result on or is sent more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.distribute import collectives
from deeploy.distribute.collectives import Way
from deeploy.distribute.shards import ROOT, Shard, Shards, chunked_axis, size_of
from deeploy.distribute.ties import shape_of
from deeploy.frontend.lower import build

STAGES = {"bias": 1, "requantise": 2}  # operands of an epilogue's stages


def reduce(shards: Shards, node: gs.Node, partial: Mapping[int, gs.Tensor], group: int) -> None:
    """Add partial sums up on the first chip, one of those that have them; the node's epilogue is computed there, once."""
    tensor = node.outputs[0]
    _, extent = chunked_axis(tensor)
    count, members = size_of(next(iter(partial.values()))), sorted(partial)
    ways = collectives.reductions(members, shards.topology.group, collectives.chunks_of(extent, count))
    way = shards.choose(ways, count, True)
    shards.state(tensor).whole[ROOT] = _Sum(shards, node, partial, way).run()
    shards.note("reduce", tensor, way.name, members, group)


class _Sum:
    """One sum: chunks of it on their way to the first chip."""

    def __init__(self, shards: Shards, node: gs.Node, partial: Mapping[int, gs.Tensor], way: Way) -> None:
        self.shards = shards
        self.node = node
        self.tensor = node.outputs[0]
        self.partial = partial
        self.way = way
        self.axis, self.extent = chunked_axis(self.tensor)
        self.sums: dict[tuple[int, int], gs.Tensor] = {}
        self.waiting: dict[tuple[int, int], list[gs.Tensor]] = {}  # what has arrived at a chip of a chunk, and is not added yet

    def run(self) -> gs.Tensor:
        """The messages in turn; returns the result on the first chip."""
        steps = self.way.steps
        last = {step.chunk: number for number, step in enumerate(steps) if step.target == ROOT}
        for number, step in enumerate(steps):
            if step.level > 0 and (ROOT, step.chunk) in self.waiting:
                self.total(ROOT, step.chunk)
            name = f"{self.tensor.name} (from {step.source}, chunk {step.chunk})"
            other = self.shards.message(step.source, step.target, self.total(step.source, step.chunk), name)
            self.waiting.setdefault((step.target, step.chunk), []).append(other)
            if last.get(step.chunk) == number:
                self.total(ROOT, step.chunk, is_last=True)
        whole = [self.sums[ROOT, chunk] for chunk in range(self.way.chunks)]
        if len(whole) == 1:
            return whole[0]
        return self.shards.joined(ROOT, whole, self.axis, self.shards.like(self.tensor, None, 0, ""))

    def total(self, chip: int, chunk: int, is_last: bool = False) -> gs.Tensor:
        """What a chip has of a chunk, with all that has arrived."""
        if (chip, chunk) not in self.sums:
            name = f"{self.tensor.name} (partial chunk {chunk})"
            self.sums[chip, chunk] = self.shards.cut_out(chip, self.partial[chip], self.axis, *self.box(chunk), name)
        terms = [self.sums[chip, chunk], *self.waiting.pop((chip, chunk), [])]
        if is_last:
            self.sums[chip, chunk] = self.finish(terms, chunk)
        elif len(terms) > 1:
            result = build.variable(f"{terms[-1].name} (sum)", np.int32, shape_of(terms[0]))
            self.sums[chip, chunk] = self.add(chip, terms, result, result.name)
        return self.sums[chip, chunk]

    def box(self, chunk: int) -> tuple[int, int]:
        return self.way.box(chunk, self.extent)

    def add(self, chip: int, terms: list[gs.Tensor], result: gs.Tensor, name: str, *rest: gs.Tensor, **attrs: Any) -> gs.Tensor:
        """The sum of two or more tensors by one call; ``rest`` and ``attrs`` are those of an epilogue."""
        shards = self.shards
        if len(terms) == 2:
            return shards.add(chip, "Add", [*terms, *rest], result, name, **attrs)
        shape, rows = shape_of(terms[0]), list[gs.Tensor]()
        for term in terms:
            row = build.variable(f"{term.name} (row)", np.int32, (1, *shape))
            rows.append(shards.add(chip, "Reshape", [term], row, row.name))
        both = shards.joined(chip, rows, 0, build.variable(f"{name} (terms)", np.int32, (len(terms), *shape)))
        return shards.add(chip, "ReduceSum", [both, *rest], result, name, axes=(0,), keepdims=False, **attrs)

    def finish(self, terms: list[gs.Tensor], chunk: int) -> gs.Tensor:
        """The last sum, and behind it the stages of the node's epilogue."""
        node, tensor, stages = self.node, self.tensor, tuple(self.node.attrs.get("epilogue", ()))
        extra = node.inputs[len(node.inputs) - sum(STAGES.get(stage, 0) for stage in stages) :]
        operands = [self.row(t, chunk) for t in extra]
        suffix = "" if self.way.chunks == 1 else f" (chunk {chunk})"
        begin, end = self.box(chunk)
        extent = end - begin
        if "bias" in stages:
            total = self.shards.like(tensor, self.axis, extent, f"{suffix} (sum)", np.int32)
            terms = [self.add(ROOT, terms, total, total.name), operands.pop(0)]
        rest = tuple(stage for stage in stages if stage != "bias")
        attrs = {name: node.attrs[name] for name in ("shift", "low", "high", "even") if rest and name in node.attrs}
        if rest:
            attrs["epilogue"] = rest
        result = self.shards.like(tensor, self.axis, extent, suffix)
        return self.add(ROOT, terms, result, f"{node.name}{suffix}", *operands, **attrs)

    def row(self, tensor: gs.Tensor, chunk: int) -> gs.Tensor:
        """An operand of the epilogue; where chunks lie along its axis, the chunk's."""
        assert isinstance(tensor, gs.Constant)
        values = np.asarray(tensor.values)
        if self.way.chunks == 1 or self.axis != len(shape_of(self.tensor)) - 1 or values.size == 1:
            return self.shards.constant(tensor, ROOT, None, True)
        indices = np.arange(*self.box(chunk))
        piece = np.ascontiguousarray(values.ravel()[indices])
        self.shards.shards.append(Shard(tensor, ROOT, values.ndim - 1, indices, piece))
        return gs.Constant(f"{tensor.name} (chunk {chunk})", piece)
