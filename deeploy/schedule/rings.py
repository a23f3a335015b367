"""What buffers between calls of a chain hold, element by element, as tiles write, move and read them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deeploy.midend.plan import Plan
from deeploy.schedule.ir import Layer, Slide
from deeploy.schedule.unroll import Table

NOTHING = -1


@dataclass(frozen=True)
class Box:
    """Elements of an operand that a tile sees: where they lie behind the address, and which elements of the whole buffer they are."""

    places: np.ndarray
    elements: np.ndarray


def box(layer: Layer, name: str, tile: int, table: Table) -> Box:
    """What the only core of a layer sees of an operand that is used where it lies, in a tile."""
    operand, access = layer.work.operands[name], layer.call.operands[name].access
    within = np.zeros((), np.int64)
    element = np.full((), access.offset, np.int64)
    for window, stride in zip(operand.axes, access.strides, strict=True):
        indices = np.arange(table.at(window.count, tile), dtype=np.int64) * stride
        within = np.add.outer(within, indices)
        element = np.add.outer(element, indices + table.at(window.first, tile) * stride)
    return Box((within + table.at(operand.element, tile)).ravel(), element.ravel())


class Rings:
    """The contents of all buffers that calls of chains write: of every place the element of the tensor that it holds, ``NOTHING`` at first.

    Args:
        error: makes the error that says what is wrong.
    """

    def __init__(self, plan: Plan, error: Callable[[str], Exception]) -> None:
        self.error = error
        self.plan = plan
        self.held: dict[str, np.ndarray] = {}
        for chain in plan.chains:
            for call in plan.program.calls[chain.first : chain.last + 1]:
                for operand in (call.operands[name] for name in call.writes):
                    ring, whole = chain.rings.get(operand.buffer), math.prod(plan.program.buffers[operand.buffer].shape)
                    if ring is not None:
                        self.held[operand.buffer] = np.full(ring.rows * ring.pitch, NOTHING, np.int64)
                        continue
                    held = self.held.setdefault(operand.buffer, np.arange(whole))  # other parts of it may be there already
                    held[operand.elements()] = NOTHING

    def slide(self, node: Slide, tile: int, table: Table) -> None:
        """Rows that stay are moved to the beginning."""
        held, unit = self.held[node.ring.block], self.plan.program.buffers[node.ring.block].dtype.bytes
        begin, count = (table.at(value, tile) // unit for value in (node.begin, node.bytes))
        if begin < 0 or count < 0 or begin + count > held.size:
            raise self.error(f"{node.ring.block} has {held.size} elements, {begin} to {begin + count} are moved")
        held[:count] = held[begin : begin + count].copy()
        held[count:] = NOTHING

    def compute(self, layer: Layer, tile: int, table: Table) -> None:
        """A tile of a call reads its elements, and then writes others."""
        inside = [(name, operand) for name, operand in layer.work.operands.items() if operand.address.block in self.held]
        for name, operand in sorted(inside, key=lambda one: one[0] in layer.call.writes):
            held, seen = self.held[operand.address.block], box(layer, name, tile, table)
            if seen.places.size and (seen.places.min() < 0 or seen.places.max() >= held.size):
                raise self.error(f"{name} reaches from {seen.places.min()} to {seen.places.max()} of {held.size} elements")
            if name in layer.call.writes:
                held[seen.places] = seen.elements
            elif not np.array_equal(held[seen.places], seen.elements):
                raise self.error(f"{name} is not what {operand.address.block} holds")
