"""Proves on a schedule, before it is emitted, that it is free of hazards; everything here is a defect of the compiler, never of the input.

One inference is gone through, tile by tile, as deep as memories and tokens show:

* a kernel reads a window only after the wait for its transfer, and the window is the one that its tile needs;
* nothing is moved into, or computed into, what a transfer or an accelerator still reads or writes;
* what is computed into a window leaves before another one is computed there;
* every transfer stays within the block that it reads or writes, and the block is alive in that step;
* a tile of a chain reads the rows that it needs, and these are in the ring, in which nothing moves while an accelerator uses it;
* behind a chain, all tiles of what others read are there;
* tiles that add up to the same outputs follow each other, and all of them are added;
* while cores may still compute, that is until the next barrier, the first core moves nothing that they use, and computes nothing;
* no more tickets of a path are open at once than its engine has, and none is left open at the end.

Where the number of rows differs from inference to inference, the first position and the last one are gone through.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from deeploy.errors import BuildError
from deeploy.midend.place import Placement
from deeploy.midend.plan import Plan
from deeploy.midend.program import Call, Program
from deeploy.schedule.build import PAST, build, rows
from deeploy.schedule.ir import Address, Barrier, Compute, Finish, Layer, Move, Region, Schedule, Second, Slide, Token, Wait
from deeploy.schedule.rings import Rings
from deeploy.schedule.team import blocks, placements
from deeploy.schedule.unroll import Event, Table, Unrolled

Slot = tuple[str, int]  # a block, and the offset of a window in it
Content = tuple[int, ...]  # which window: where it begins on the far side, and its box; the same of the window that it is cut from


class ScheduleError(BuildError):
    """A hazard: the call, the tile, and what is wrong."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "Report this with the model; the schedule is the compiler's duty.")


def check(plan: Plan, schedule: Schedule | None = None) -> None:
    """Go through a schedule; by default that of the plan.

    Raises:
        ScheduleError: the first hazard that is found.
    """
    schedule = schedule or build(plan)
    last = rows(plan.program)
    for values in [rows(plan.program, past) for past in sorted({0, last[PAST]})] if last else [last]:
        _Check(plan, schedule, values).run()


@dataclass
class _Window:
    """What a slot holds: a window, while a transfer or a job fills it under ``arriving``, or reads it under ``leaving``."""

    content: Content | None = None
    arriving: Token | str | None = None
    leaving: dict[Token | str, None] = field(default_factory=dict)
    result: str = ""  # the operand that a kernel computed into it, until that leaves


class _Check:
    def __init__(self, plan: Plan, schedule: Schedule, values: dict[str, int]) -> None:
        self.plan = plan
        self.unrolled = Unrolled(schedule, values)
        self.places: dict[str, list[Placement]] = {}
        for placement in plan.placements:
            for name in placement.buffers:
                self.places.setdefault(name, []).append(placement)
        self.slots: dict[Slot, _Window] = {}
        fetched = {} if plan.target.is_flat else plan.fetched
        self.copies = {name: p.buffers[0] for p in plan.placements for name in p.buffers if name in fetched}
        self.whole: dict[str, _Window] = {}  # copies of constants that were begun to be fetched, by the first of those that share one
        self.open: dict[Token | str, list[_Window]] = {}
        self.tickets = {path.name: path.tickets for path in plan.target.paths}
        self.bounded: set[int] = set()
        self.event: Event | None = None
        self.rings = Rings(plan, self.error)
        self.computing: Layer | None = None  # what cores may still compute
        self.kept: dict[int, int] = {}  # of calls whose tiles add up, the last tile that was added

    def run(self) -> None:
        """What is done before the first inference, and the whole inference."""
        for node in self.unrolled.schedule.initialise:
            if isinstance(node, Move):
                copy = self.slots.setdefault((node.near.block, 0), _Window((0,), node.token))
                self.whole[self.copies[node.near.block]] = copy
                self.open.setdefault(node.token, []).append(copy)
            elif isinstance(node, Wait):
                self.complete(node.token)
        firsts = {section.first for section in self.unrolled.schedule.sections}
        for layer in self.unrolled.schedule.layers:
            if layer.step in firsts:
                self.computing = None
            for event in self.unrolled.events(layer.step):
                self.event = event
                node, tile, table = event
                if isinstance(node, Move):
                    self.move(node, tile, table, layer)
                elif isinstance(node, Barrier):
                    self.computing = None
                elif isinstance(node, Compute):
                    self.compute(table.layer, tile, table)
                elif isinstance(node, Second):
                    self.second(table.layer, tile, table)
                elif isinstance(node, Slide):
                    self.rings.slide(node, tile, table)
                elif isinstance(node, Finish):
                    self.rings.finish(node.accelerator)
                    self.complete(node.accelerator)
                else:
                    self.complete(node.token)
            left = [token for token in self.open if not isinstance(token, Token) or token.purpose in ("in", "out")]
            if left:
                raise self.error(f"nobody waits for {left[0]} in this call")
            lost = next((window.result for window in self.slots.values() if window.result), "")
            if lost:
                raise self.error(f"{lost} never leaves")
            self.rings.complete(self.unrolled.schedule.layers, layer.step)
            if self.kept:
                raise self.error(f"the sums of tile {next(iter(self.kept.values()))} are never completed")
        self.event = None
        if self.open:
            raise self.error(f"nobody waits for {next(iter(self.open))}")

    def error(self, what: str) -> ScheduleError:
        """A hazard at the present event."""
        if self.event is None:
            return ScheduleError(f"at the end: {what}")
        return ScheduleError(f"call {self.event.table.layer.call.name}, tile {self.event.tile}, {self.event.node}: {what}")

    # ---- cores

    def apart(self, address: Address, running: Layer) -> None:
        """What the first core begins to move lies where cores that still compute use nothing."""
        if self.computing is None:
            return
        used = blocks(self.computing)
        ours = [(p.level, p.offset, p.size) for name in used for p in placements(self.plan, name, self.computing.step)]
        moved = [p for p in placements(self.plan, address.block, running.step) if address.level]
        if address.block in used or any(
            p.level == level and p.offset < at + size and at < p.offset + p.size for p in moved for level, at, size in ours
        ):
            raise self.error(f"cores may still compute {self.computing.call.name}, which uses {address.block}")

    # ---- transfers

    def move(self, move: Move, tile: int, table: Table, running: Layer) -> None:
        """Begin a transfer."""
        for address in (move.near, move.far):
            self.apart(address, running)
        if id(move) not in self.bounded:
            self.bounded.add(id(move))
            self.within(move, table, running)
        if _is_empty(move, tile, table):
            return
        self.arrived(move.far.block)
        used = {token.ticket for token in self.open if isinstance(token, Token) and token.path == move.token.path} | {move.token.ticket}
        if len(used) > self.tickets[move.token.path]:
            raise self.error(f"{len(used)} tickets of {move.token.path} are open, the engine has {self.tickets[move.token.path]}")
        near = self.slot(move.near, tile, table)
        if move.token.purpose == "constants":
            self.whole[self.copies.get(move.near.block, "")] = near
        ends = [(near, move.is_store, _content(move, tile, table))]
        source = self.around(move, tile, table)
        if source is not None:
            ends.append((source[0], not move.is_store, source[1]))
        for window, is_read, content in ends:
            if is_read:
                self.read(window, content, move.token)
                window.result = ""
            else:
                is_again = window.content == content  # parts of what moves on together
                window.result = "" if is_again else window.result
                self.written(window, move.label)
                window.content, window.arriving = content, move.token
                window.result = move.label if move.is_store else ""
        self.open.setdefault(move.token, []).extend(window for window, _, _ in ends)

    def arrived(self, block: str) -> None:
        """The copy of a whole constant has been fetched, and waited for."""
        copy = self.copies.get(block)
        if copy is not None and (copy not in self.whole or self.whole[copy].arriving is not None):
            raise self.error(f"{block} is read before it has arrived")

    def slot(self, address: Address, tile: int, table: Table) -> _Window:
        """What a window's slot holds."""
        return self.slots.setdefault((address.block, table.at(address.offset, tile)), _Window())

    def around(self, move: Move, tile: int, table: Table) -> tuple[_Window, Content] | None:
        """The slot one memory further out that a window is cut from, and what it has to hold; None where that is a buffer."""
        outer = table.layer.regions.get(move.far.block)
        return None if outer is None else (self.slot(outer.near, tile, table), _content(outer, tile, table))

    def read(self, window: _Window, content: Content, reader: Token | str) -> None:
        """A transfer or a kernel begins to read a window."""
        if window.arriving is not None:
            raise self.error(f"it is read before the wait for {window.arriving}")
        if window.content != content:
            raise self.error("it holds another window" if window.content else "nothing was ever put there")
        window.leaving[reader] = None

    def written(self, window: _Window, label: str) -> None:
        """Something begins to write a window."""
        if window.result:
            raise self.error(f"{window.result} is overwritten before it leaves")
        if window.leaving or window.arriving is not None:
            raise self.error(f"{label} is overwritten before the wait for {window.arriving or next(iter(window.leaving))}")

    def complete(self, token: Token | str) -> None:
        """What was begun under a token is over."""
        for window in self.open.pop(token, ()):
            window.leaving.pop(token, None)
            if window.arriving == token:
                window.arriving = None

    # ---- computing

    def compute(self, layer: Layer, tile: int, table: Table) -> None:
        """A kernel runs on a tile, or the first part of it does: at once, or until its accelerator is waited for."""
        is_team = layer.accelerator is None and layer.work.cores > 1
        if self.computing is not None and not is_team:
            raise self.error(f"cores may still compute {self.computing.call.name}")
        self.computing = layer if is_team else None
        name = layer.accelerator or "cores"
        self.add(layer, tile)
        self.rings.compute(layer, layer.call.parts[0], tile, table)
        self.touch(layer, layer.call.parts[0], name, tile, table)
        if layer.sums is not None:
            sums = self.slot(layer.sums, tile, table)
            self.written(sums, layer.sums.block)
            if tile % layer.partial and sums.content != (tile // layer.partial,):
                raise self.error("it is added to the sums of another tile")
            sums.content, sums.arriving = (tile // layer.partial,), name
            self.open.setdefault(name, []).append(sums)
        if layer.accelerator is None:
            self.complete(name)

    def add(self, layer: Layer, tile: int) -> None:
        """A tile is added to the sums that tiles along a reduction have in common: the first of them begins, the others follow."""
        if layer.partial == 1:
            return
        last = self.kept.pop(layer.step, -1)
        if tile % layer.partial and last != tile - 1:
            raise self.error(f"its sums hold tile {last} instead of the one before" if last >= 0 else "nothing was added to its sums")
        if tile % layer.partial == 0 and last >= 0:
            raise self.error(f"it begins sums anew, of which tile {last} was not the last")
        if (tile + 1) % layer.partial:
            self.kept[layer.step] = tile

    def second(self, layer: Layer, tile: int, table: Table) -> None:
        """The second part of a kernel runs on a tile."""
        assert layer.sums is not None
        self.computing = layer if layer.cores > 1 else None
        if (tile + 1) % layer.partial:
            raise self.error("not all tiles were added to its sums")
        self.read(self.slot(layer.sums, tile, table), (tile // layer.partial,), "cores")
        self.slot(layer.sums, tile, table).leaving.clear()
        self.rings.compute(layer, layer.call.parts[-1], tile, table)
        self.touch(layer, layer.call.parts[-1], "cores", tile, table)
        self.complete("cores")

    def touch(self, layer: Layer, part: Call, name: str, tile: int, table: Table) -> None:
        """What a kernel, or a part of it, reads and writes of the windows of a tile."""
        for operand in part.operands:
            if operand in layer.call.writes and (part is not layer.call.parts[-1] or (tile + 1) % layer.partial):
                continue  # it leaves sums instead
            block = layer.work.operands[operand].address.block
            self.arrived(block)
            region = layer.regions.get(block)
            if region is None or _is_empty(region, tile, table):
                continue
            window, content = self.slot(region.near, tile, table), _content(region, tile, table)
            if operand in layer.call.writes:
                is_again = window.content == content  # several tiles compute it together, or the same of it
                window.result = "" if is_again else window.result
                self.written(window, operand)
                window.content, window.arriving, window.result = content, name, "" if is_again else operand
            else:
                self.read(window, content, name)
            self.open.setdefault(name, []).append(window)

    # ---- bounds

    def within(self, move: Move, table: Table, running: Layer) -> None:
        """Whether all boxes of a move lie within the blocks that they read and write, for as long as these are alive."""
        counts = table.rows([move.box.run, *(axis.count for axis in move.box.axes)])
        pitches = table.rows([axis.pitch for axis in move.box.axes])
        some = (counts > 0).all(axis=1)
        steps = (counts[:, 1:] - 1) * pitches
        far = np.minimum(steps, 0).sum(axis=1), np.maximum(steps, 0).sum(axis=1) + counts[:, 0]
        for address, (low, high) in ((move.near, (np.zeros(len(counts), int), counts.prod(axis=1))), (move.far, far)):
            begin = table.rows([address.offset])[:, 0]
            size, is_alive = self.room(address, running.step)
            first, end = (begin + low)[some], (begin + high)[some]
            if first.size and (first.min() < 0 or end.max() > size):
                raise self.error(f"{address.block} has {size} bytes, bytes {first.min()} to {end.max()} are moved")
            if not is_alive:
                raise self.error(f"{address.block} is not alive in step {running.step}")

    def room(self, address: Address, step: int) -> tuple[float, bool]:
        """Bytes of a block, and whether it is alive in a step."""
        if not address.level:
            return _bytes(self.plan.program, address.block), True
        places = self.places[address.block]
        return max(p.size for p in places), any(p.first <= step <= p.last for p in places)


def _bytes(program: Program, block: str) -> float:
    """Bytes of a buffer that lies outside of the arenas."""
    buffer = program.buffers.get(block.removesuffix(" far"))
    return buffer.bytes if buffer is not None else math.inf


def _content(move: Move | Region, tile: int, table: Table) -> Content:
    values = (move.far.offset, move.box.run, *(value for axis in move.box.axes for value in (axis.count, axis.pitch)))
    outer = table.layer.regions.get(move.far.block)
    return (*(table.at(value, tile) for value in values), *(() if outer is None else _content(outer, tile, table)))


def _is_empty(move: Move | Region, tile: int, table: Table) -> bool:
    return not all(table.at(n, tile) > 0 for n in (move.box.run, *(axis.count for axis in move.box.axes)))
