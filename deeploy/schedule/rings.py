"""What buffers between calls of a chain hold, element by element, as tiles write, move and read them.

An accelerator reads from when it is started to when it is waited for, and what it writes is there then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deeploy.midend.plan import Plan
from deeploy.midend.program import Call
from deeploy.schedule.ir import CORE, TILE, Layer, Slide
from deeploy.schedule.unroll import Table

NOTHING = -1


@dataclass(frozen=True)
class Box:
    """Elements of an operand that a tile sees: where they lie behind the address, and which elements of the whole buffer they are."""

    places: np.ndarray
    elements: np.ndarray


def boxes(layer: Layer, name: str, tile: int, tables: Sequence[Table]) -> Box:
    """What all cores of a layer, with a table each, see of an operand that is used where it lies, in a tile."""
    every = [box(layer, name, tile, table) for table in tables if all(table.at(count, tile) > 0 for count in layer.work.empty)]
    if not every:
        return Box(np.zeros(0, np.int64), np.zeros(0, np.int64))
    return Box(np.concatenate([one.places for one in every]), np.concatenate([one.elements for one in every]))


def box(layer: Layer, name: str, tile: int, table: Table) -> Box:
    """What one core of a layer sees of an operand that is used where it lies, in a tile."""
    operand, access = layer.work.operands[name], layer.call.operands[name].access
    within = np.zeros((), np.int64)
    element = np.full((), access.offset, np.int64)
    for window, stride, pitch in zip(operand.axes, access.strides, operand.strides, strict=True):
        indices = np.arange(table.at(window.count, tile), dtype=np.int64)
        within = np.add.outer(within, indices * table.at(pitch, tile))
        element = np.add.outer(element, (indices + table.at(window.first, tile)) * stride)
    return Box((within + table.at(operand.element, tile)).ravel(), element.ravel())


class Rings:
    """The contents of all buffers that calls of chains write in place: by place the element that it holds, ``NOTHING`` at first.

    Args:
        error: makes the error that says what is wrong.
    """

    def __init__(self, plan: Plan, error: Callable[[str], Exception]) -> None:
        self.error = error
        self.plan = plan
        self.held: dict[str, np.ndarray] = {}
        self.busy: dict[str, list[tuple[str, np.ndarray, bool]]] = {}  # what accelerators use: block, places, and whether they write
        self.tables: dict[int, list[Table]] = {}  # of every core, by step
        for chain in plan.chains:
            for step in range(chain.first, chain.last + 1):
                call, moved = plan.program.calls[step], {stream.operand for stream in plan.tiling(step).streams}
                for operand in (call.operands[name] for name in call.writes if name not in moved):
                    room, whole = chain.held.get(operand.buffer), math.prod(plan.program.buffers[operand.buffer].shape)
                    if room is not None:
                        self.held[operand.buffer] = np.full(room, NOTHING, np.int64)
                        continue
                    held = self.held.setdefault(operand.buffer, np.arange(whole))  # other parts of it may be there already
                    held[operand.elements()] = NOTHING

    def slide(self, node: Slide, tile: int, table: Table) -> None:
        """Rows that stay are moved to the beginning."""
        held, unit = self.held[node.ring.block], self.plan.program.buffers[node.ring.block].dtype.bytes
        begin, count = (table.at(value, tile) // unit for value in (node.begin, node.bytes))
        if begin < 0 or count < 0 or begin + count > held.size:
            raise self.error(f"{node.ring.block} has {held.size} elements, {begin} to {begin + count} are moved")
        if not self.plan.target.is_flat and count > begin:
            raise self.error(f"elements {begin} to {begin + count} of {node.ring.block} are moved over each other by several cores")
        self._free(node.ring.block, np.arange(held.size), True)
        held[:count] = held[begin : begin + count].copy()
        held[count:] = NOTHING

    def compute(self, layer: Layer, part: Call, tile: int, table: Table) -> None:
        """A tile of a call, or a part of it, reads its elements, and then writes others; an accelerator until it is waited for."""
        inside = {name: layer.work.operands[name] for name in part.operands if layer.work.operands[name].address.block in self.held}
        is_complete = part is layer.call.parts[-1] and (tile + 1) % layer.partial == 0
        writes = layer.call.writes if is_complete else ()
        name = layer.accelerator if layer.accelerator and part is layer.call.parts[0] else None
        tables = self._tables(layer, table) if inside else ()
        for operand in sorted(inside.keys() - set(layer.call.writes)) + sorted(inside.keys() & set(writes)):
            block, is_write = inside[operand].address.block, operand in writes
            held, seen = self.held[block], boxes(layer, operand, tile, tables)
            if seen.places.size and (seen.places.min() < 0 or seen.places.max() >= held.size):
                raise self.error(f"{operand} reaches from {seen.places.min()} to {seen.places.max()} of {held.size} elements")
            self._free(block, seen.places, is_write)
            if is_write:
                held[seen.places] = seen.elements
            elif not np.array_equal(held[seen.places], seen.elements):
                raise self.error(f"{operand} is not what {block} holds")
            if name is not None:
                self.busy.setdefault(name, []).append((block, seen.places, is_write))

    def complete(self, layers: Sequence[Layer], step: int) -> None:
        """Behind a chain, what its calls write where they work, and others read, is there as a whole."""
        for chain in (chain for chain in self.plan.chains if chain.last == step):
            for layer in layers[chain.first : chain.last + 1]:
                for name in layer.call.writes:
                    block, elements = layer.work.operands[name].address.block, layer.call.operands[name].elements()
                    if block in self.held and block not in chain.held and not np.array_equal(self.held[block][elements], elements):
                        raise self.error(f"not all tiles of {block} are computed")

    def finish(self, accelerator: str) -> None:
        """An accelerator uses nothing any more."""
        self.busy.pop(accelerator, None)

    def _free(self, block: str, places: np.ndarray, is_write: bool) -> None:
        """No accelerator writes some places, nor reads what is to be written."""
        for name, uses in self.busy.items():
            for other, taken, is_written in uses:
                if other == block and (is_write or is_written) and np.intersect1d(places, taken).size:
                    raise self.error(f"{name} may still use {block}")

    def _tables(self, layer: Layer, table: Table) -> Sequence[Table]:
        """The values of a layer's expressions on each core."""
        if layer.work.share is None or layer.call.kernel.team:
            return [table]
        if layer.step not in self.tables:
            values = {name: value for name, value in table.values.items() if name != TILE and isinstance(value, int)}
            self.tables[layer.step] = [Table(layer, {**values, CORE: core}) for core in range(layer.work.cores)]
        return self.tables[layer.step]
