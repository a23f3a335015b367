"""The Plan: where every buffer lies, at which level, and for how long, and how every call is tiled.

Local buffers, windows and scratch are packed by lifetime and address (``packing.addresses``); inputs and outputs belong to the caller.
``planner.network`` makes plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from deeploy.errors import shorten
from deeploy.ir.target import Target
from deeploy.options import Buffering, Objective
from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.packing.addresses import Placement
from deeploy.planning.packing.lifetimes import FOR_EVER
from deeploy.planning.program import Buffer, Call, Program, Role, calls_ahead
from deeploy.planning.tiling.fused_group import Arrangement, FusedGroup
from deeploy.planning.tiling.loops import CallTiling

UNLIMITED = 2**40  # bytes of a memory whose target does not say how many there are


@dataclass(frozen=True)
class Fix:
    """What the user fixes: ``what`` of a node or tensor (``engine``, ``kernel``, ``tile.DIM``, ``buffering``, ``after``, ``memory``).

    ``names``: of the calls, or of the buffer, that this is about.
    """

    subject: str
    what: str
    value: str
    names: frozenset[str] = frozenset()

    @property
    def dim(self) -> str:
        """The dimension whose tile size the user fixes."""
        return self.what.partition(".")[2]

    def __str__(self) -> str:
        return f"--fix {shorten(self.subject, 60)}.{self.what}={shorten(self.value, 40)}"


@dataclass(frozen=True)
class Machine:
    """The part of a target that a plan may use.

    Attributes:
        capacities: bytes of every level's arena; constants that live beside it are counted in it.
        cores: of every engine's team, at most.
        default_memory: where constants lie; empty on a flat machine, where they are part of the program.
        engines: that may run calls; all of the target's where none are named.
        residences: levels of states by buffer, where another network of the project says so.
        objective: the fewest cycles within the capacities, the least memory of a flat machine, fused groups that move the fewest bytes, the
            least energy, or the least product of energy and cycles.
        price: picojoules that count as much as a cycle when tiles and engines are chosen; 0: energy counts nothing.
        fusion: calls may be computed together; on a flat machine always.
        copies: constants of a flat machine may be copied to RAM for ever.
        fixes: what the user fixes of calls and buffers.
    """

    capacities: Mapping[str, int]
    cores: int
    buffering: Buffering
    default_memory: str
    engines: tuple[str, ...] = ()
    residences: Mapping[str, str] = field(default_factory=dict)
    objective: Objective = "cycles"
    fusion: bool = True
    copies: bool = True
    fixes: tuple[Fix, ...] = ()
    price: float = 0.0

    def fixed(self, name: str) -> dict[str, str]:
        """What is fixed of a call or a buffer."""
        return {fix.what: fix.value for fix in self.fixes if name in fix.names}

    def tiles(self, call: str) -> dict[str, int]:
        """Sizes of tiles that are fixed of a call, by dimension."""
        return {fix.dim: int(fix.value) for fix in self.fixes if fix.dim and call in fix.names}


@dataclass(frozen=True)
class LevelUse:
    """Bytes of one memory level: the arena's peak and its lower bound, the caller's arrays, constants, reserved.

    ``peak`` counts the constants that lie in the memory.
    """

    capacity: int | None
    alignment: int
    peak: int
    lower_bound: int
    io: int
    constants: int
    reserved: int = 0


def constants_in(target: Target, machine: Machine) -> str:
    """The memory that holds constants which kernels want nowhere else; empty where they are a part of a program for one memory."""
    return next((m.name for m in target.memories if m.is_far), "") if target.is_flat else machine.default_memory


@dataclass(frozen=True)
class Prediction:
    """What the planner's cost model says: cycles of the plan, of no better plan, and of the greedy one."""

    cycles: int
    bound: int
    greedy: int | None


ChainReason = Literal["taken", "cannot be cut", "read elsewhere", "no room", "slower", "more bytes", "less saved", "not packed"]


@dataclass(frozen=True)
class FusionChoice:
    """Neighbouring calls that could be computed together, what that takes, and what became of it.

    Attributes:
        tiles: of the first call; 0 where no fused group of these calls is possible.
        reason: ``taken``, or why not: a call ``cannot be cut`` into rows; another call reads what should stay inside (``read elsewhere``);
            windows, line buffers and weights need more than there is (``no room``); it does not save enough cycles (``slower``); it moves
            no fewer bytes (``more bytes``); other fused groups with these calls save more (``less saved``); no addresses were found for it
            (``not packed``).
        cycles_apart: of the calls one after the other, by the walk; None where no fused group of them is possible.
        cycles_fused: of the fused group: by the walk where it was chosen once, else estimated.
        bytes_apart: that the calls move, by path; empty where no fused group of them is possible, as for ``bytes_fused``.
        peak_apart: bytes of the engines' memory while the calls run one after the other.
        peak_fused: bytes of it that the fused group needs; None where it cannot be cut.
    """

    first: int
    last: int
    tiles: int
    reason: ChainReason
    cycles_apart: int | None
    cycles_fused: int | None
    bytes_apart: Mapping[str, int]
    bytes_fused: Mapping[str, int]
    peak_apart: int
    peak_fused: int | None

    @property
    def is_taken(self) -> bool:
        """Whether the plan fuses these calls."""
        return self.reason == "taken"


@dataclass(frozen=True)
class OrderChoice:
    """An order of calls in which more of them can run side by side than in the order of the file, and what became of it.

    Attributes:
        file: names of the calls in the order of the file, or in the one that needs the least memory where that does not fit.
        cycles_file: of the network in that order, by the walk.
        cycles_other: in the order that brings calls of different engines next to each other.
        is_taken: whether the plan has that one.
    """

    file: tuple[str, ...]
    cycles_file: int
    cycles_other: int
    is_taken: bool


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything needed to emit a program for a target.

    Attributes:
        calls: the candidate of every call.
        residences: the level of every buffer.
        fetched: the step in which the fetch of a far constant begins (-1: once, before the first inference); on a flat machine, of those
            that are copied to RAM.
        prediction: None where the target has no timing.
        offered: the candidates that every call could choose from, where the target has a timing.
        variants: the calls that their numbers of variants mean.
        fused_groups: calls that are computed together, a few rows at a time.
        arrangements: where there are fused groups, what other limits would give: from the least memory to none of them.
        fusion_choices: fused groups that were taken, and that were not; none where fused groups are switched off.
        order: another order of calls that was planned as well; None where none was.
        free_cycles: of the plan in which nothing is fixed; None where nothing is, or cycles are not known.
    """

    program: Program
    target: Target
    placements: tuple[Placement, ...]
    memory: Mapping[str, LevelUse]
    machine: Machine
    calls: tuple[Candidate, ...]
    residences: Mapping[str, str]
    fetched: Mapping[str, int]
    prediction: Prediction | None = None
    offered: tuple[tuple[Candidate, ...], ...] = ()
    variants: tuple[tuple[Call, ...], ...] = ()
    fused_groups: tuple[FusedGroup, ...] = ()
    arrangements: tuple[Arrangement, ...] = ()
    fusion_choices: tuple[FusionChoice, ...] = ()
    order: OrderChoice | None = None
    free_cycles: int | None = None

    @property
    def added(self) -> int:
        """How many tiles the plan has besides one for each call."""
        return sum(candidate.tiling.tiles - 1 for candidate in self.calls)

    @cached_property
    def offsets(self) -> Mapping[str, int]:
        """Offset of every buffer, window and scratch in its arena, in bytes."""
        return {name: p.offset for p in self.placements for name in p.buffers}

    def tiling(self, step: int) -> CallTiling:
        """How the call of a step is cut."""
        return self.calls[step].tiling

    @property
    def slower(self) -> float:
        """Cycles that a byte of constants takes more where it lies than in RAM, on a flat machine."""
        timing = self.target.timing
        memories = timing.memories if timing is not None and self.target.is_flat else {}
        return max((memories.get(memory.name, 0.0) for memory in self.target.memories[1:]), default=0.0)

    def stored(self, buffer: Buffer) -> str:
        """The memory that holds a constant, see ``constants_in``."""
        return buffer.memory or constants_in(self.target, self.machine)

    def constants(self, step: int) -> list[str]:
        """The constants that the call of a step reads whole."""
        call = self.program.calls[step]
        named = dict.fromkeys(operand.buffer for name, operand in call.operands.items() if name not in call.geometry.nest.indirect)
        buffers = (self.program.buffers[name] for name in named)
        return [buffer.name for buffer in buffers if buffer.role is Role.CONSTANT and not buffer.memory and buffer.bytes]

    def saved(self, step: int) -> float:
        """Cycles that a call takes less since constants are copied to RAM, each of which it reads once."""
        return self.slower * sum(self.program.buffers[name].bytes for name in self.constants(step) if name in self.fetched)

    @cached_property
    def first_uses(self) -> Mapping[str, int]:
        """The step that first needs each constant that is fetched at every inference."""
        uses: dict[str, int] = {}
        for step, call in enumerate(self.program.calls):
            for operand in call.operands.values():
                if self.fetched.get(operand.buffer, FOR_EVER) != FOR_EVER:
                    uses.setdefault(operand.buffer, step)
        return uses

    def loads(self, step: int) -> Sequence[str]:
        """Constants whose fetch begins with a step, in the order in which they are used."""
        return sorted((name for name in self.first_uses if self.fetched[name] == step), key=lambda name: self.first_uses[name])

    @cached_property
    def load_tickets(self) -> Mapping[int, int]:
        """The ticket of the whole constants that are first used in a step: behind those of windows in and out, each in its turn."""
        steps = sorted(set(self.first_uses.values()))
        tickets = self.target.outward(self.target.engines[0].memory)[-1].tickets if steps else 0
        return {step: 2 + number % (tickets - 2) for number, step in enumerate(steps)}

    @cached_property
    def followers(self) -> Mapping[int, int]:
        """The call whose early windows set out in a step, by that step."""
        prefetching = [step for step, call in enumerate(self.calls) if any(s.is_prefetchable for s in call.tiling.streams)]
        return {step - calls_ahead(self.program.calls, step): step for step in prefetching}

    def __str__(self) -> str:
        rows = [f"plan {self.program.name} for {self.target.name}"]
        for name, use in self.memory.items():
            rows.append(f"  {name}: peak {use.peak} of lower bound {use.lower_bound}, io {use.io}, constants {use.constants}")
        for call, candidate in zip(self.program.calls, self.calls, strict=True):
            loops = ", ".join(f"{loop.dim} {loop.trips} x {loop.tile}" for loop in candidate.tiling.loops) or "one tile"
            streams = ", ".join(
                f"{s.operand} {s.path} {s.depth} x {s.bytes}{' early' * s.is_prefetchable}" for s in candidate.tiling.streams
            )
            rows.append(f"  {call.name}: {loops}; {streams}; {candidate.cycles} cycles")
        for p in sorted(self.placements, key=lambda p: (p.first, p.level, p.offset)):
            rows.append(f"  {p.level}+{p.offset}: {'='.join(p.buffers)} {p.size} bytes, steps {p.first}..{p.last}")
        return "\n".join(rows)


def memory_of(plan: Plan) -> Mapping[str, LevelUse]:
    """What every memory holds, by its name; of a flat machine also the one that constants are read from in place.

    Where there is no such memory, constants are a part of the program, and not of the arena.
    """
    target, uses = plan.target, dict(plan.memory)
    if target.is_flat:
        level = constants_in(target, plan.machine)
        constants = sum(buffer.bytes for buffer in plan.program.buffers.values() if buffer.role is Role.CONSTANT)
        if level:
            memory = target.memory(level)
            uses[level] = LevelUse(plan.machine.capacities[level], memory.alignment, constants, constants, 0, constants, memory.reserved)
        else:
            first = target.memories[0].name
            uses[first] = replace(uses[first], constants=constants)
    return uses
