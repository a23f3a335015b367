"""Why nothing fits: the call, the buffer and the level, the smallest capacity that would do, and what helps.

What is advised can be done and helps: int8 of floats, few bits of constants that lie in the memory, an option that was not given, smaller
inputs of activations, more memory than the limit where the target has it. It is named in this order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import gt

from deeploy.errors import FitError, shorten
from deeploy.ir.target import Target
from deeploy.ir.types import DType
from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.candidates.tiler import Tiler
from deeploy.planning.choice.problem import ChoiceProblem, ConditionalConstant, Residence
from deeploy.planning.plan import UNLIMITED, Machine, constants_in
from deeploy.planning.program import Buffer, Call, Program, Role
from deeploy.planning.tiling.loops import CallTiling

BYTE = 8
FEW_BITS = 4  # of weights, as ``deeploy quantize --weights`` makes them


def suggest_remedy(
    program: Program, target: Target, there: Iterable[tuple[str, int]], sizes: tuple[int, int], options: Sequence[str], last: str
) -> str:
    """What makes a network fit a memory, in the order in which it should be tried.

    Args:
        there: buffers that lie in the memory when it is fullest, and their bytes there.
        sizes: bytes of it that the network takes, and those that it may take.
        options: that were not given, and help.
        last: how it gets more memory.
    """
    (needed, room), held, is_float = sizes, [(program.buffers[name], size) for name, size in there], program.is_float
    whole = [sum(size for buffer, size in held if (buffer.role is Role.CONSTANT) is is_constant) for is_constant in (False, True)]
    constants = min(needed, whole[True])
    others = needed - constants  # what is there at the same time, and depends on the size of the inputs
    parts = min(1.0, others / max(1, whole[False])), constants / max(1, whole[True])  # of what lies there; fused groups hold less at once

    def total(measure: Callable[[Buffer, int], int], is_constant: bool = True) -> int:
        total_bytes = sum(measure(buffer, size) for buffer, size in held if (buffer.role is Role.CONSTANT) is is_constant)
        return round(parts[is_constant] * total_bytes)

    def saved(buffer: Buffer, size: int) -> int:
        """Bytes that a buffer of floats would save if its elements had one byte."""
        return size - size // buffer.dtype.bytes if buffer.dtype is DType.FLOAT32 else 0

    def packed(buffer: Buffer, size: int) -> int:
        """What weights take less that kernels read in few bits."""
        is_weight = buffer.name in packable and (is_float or buffer.dtype.bits == BYTE)
        return size // buffer.dtype.bytes * (BYTE - FEW_BITS) // BYTE if is_weight else 0

    packable = {
        operand.buffer
        for call in program.calls
        for name, operand in call.operands.items()
        if any(dtype.is_packed for kernel in target.kernels if kernel.op == call.node.op for dtype in kernel.types.get(name, ()))
    }
    tries = list[str]()
    if is_float and total(saved) + total(saved, False):
        constants, others = constants - total(saved), others - total(saved, False)
        tries.append(f"int8 ({quantise_command(target)})")
    if total(packed) and others <= room:
        constants -= total(packed)
        tries.append(f"weights of {FEW_BITS} bits (deeploy quantize --weights {FEW_BITS}, of the float model)")
    tries += options
    if constants <= room and any(buffer.role is not Role.CONSTANT for buffer, _ in held):
        tries.append(f"smaller inputs, on which {others} bytes depend")
    return f"Try, in this order: {'; '.join([*tries, last])}." if tries else f"Try {last}."


def quantise_command(target: Target) -> str:
    """The command that makes a float network one in int8, in the form that suits the target where it can tell."""
    return f"deeploy quantize{f' --for {target.name}' if target.timing is not None else ''}"


def check_constants(program: Program, target: Target, machine: Machine) -> None:
    """Raise ``FitError`` where constants that are read in place from another memory than that of the arena do not fit it."""
    level = constants_in(target, machine)
    constants = [(b.name, b.bytes) for b in program.buffers.values() if b.role is Role.CONSTANT]
    size = sum(count for _, count in constants)
    if target.is_flat and level and size > machine.capacities[level]:
        remedies = suggest_remedy(program, target, constants, (size, machine.capacities[level]), [], more_memory(target, level, size))
        raise FitError(f"{level} is too small: the constants take {size} bytes, {machine.capacities[level]} are there", remedies)


def more_memory(target: Target, level: str, size: int, resident_bytes: int = 0) -> str:
    """How a network gets more of a memory: an option, or another target where this one has not that much.

    Args:
        resident_bytes: bytes that lie in the memory and are no part of what is limited.
    """
    memory = target.memory(level)
    most = None if memory.capacity is None else memory.capacity - memory.reserved - resident_bytes
    if most is None or size <= most:
        option = f"--{level.lower()} {size}" if level in ("L1", "L2") else f"--memory {level}={size}"
        if target.is_flat:
            return f"a chip with more {level}: {size} bytes for this ({option}), beside all else that lies there"
        return f"a larger memory: {option}"
    has = f"has no more than {most} bytes for it" if most > 0 else "is full of inputs and outputs"
    return f"another target ({level} of {target.name} {has})"


@dataclass(frozen=True)
class Relaxed:
    """A network that may not fit, as the problem of its bytes alone; memories by their distance from the engines' own.

    Attributes:
        build: the problem, with the fewest bytes of every variant of every call, and every residence that could help.
        shares: its constants that only some variants need.
        resident_bytes: bytes of constants beside the arena of every memory, whatever is chosen.
        room: bytes of every memory that the plan and these constants may take.
        io: bytes of the caller's arrays, which lie in the memory around the engines' own.
        far: the same on another machine, with everything in the furthest memory where it may lie.
    """

    program: Program
    target: Target
    machine: Machine
    levels: Sequence[str]
    build: Callable[[], ChoiceProblem]
    shares: Sequence[ConditionalConstant]
    resident_bytes: Sequence[int]
    room: Sequence[int]
    io: int
    far: Callable[[Machine], Relaxed]

    @cached_property
    def problem(self) -> ChoiceProblem:
        return self.build()

    def least(self, distance: int, others: int | None = None) -> int | None:
        """The fewest bytes of a memory with which a choice exists; None where the other memories are too small.

        Args:
            others: bytes of each of these, instead of what they have. Those that constants alone overfill count as large enough.
        """
        from deeploy.planning.choice.choose import smallest_capacity

        free = [
            room - resident_bytes if others is None else others for room, resident_bytes in zip(self.room, self.resident_bytes, strict=True)
        ]
        smallest = smallest_capacity(replace(self.problem, capacities=[size if size >= 0 else UNLIMITED for size in free]), distance)
        return None if smallest is None else smallest + self.resident_bytes[distance]

    def constants(self, distance: int) -> int:
        """Bytes of constants that lie in a memory whichever variants are chosen: those of the variants with the fewest count."""
        return self.resident_bytes[distance] + fewest_bytes(self.shares, distance, self.program)


def fewest_bytes(shares: Iterable[ConditionalConstant], distance: int, program: Program) -> int:
    """Bytes of shares of constants in a memory that no choice among the variants of a program's calls goes below.

    What several calls share is divided among them.
    """
    taken: dict[tuple[int, int], float] = {}
    for share in (share for share in shares if share.distance == distance):
        for user in share.users:
            taken[user] = taken.get(user, 0) + share.size / len({step for step, _ in share.users})
    variants = (range(len(program.variants(step))) for step in range(len(program.calls)))
    return int(sum(min(taken.get((step, number), 0) for number in each) for step, each in enumerate(variants)))


def bound_candidates(tiler: Tiler, distances: Mapping[str, int], depth: int) -> list[Candidate]:
    """The bytes that no candidate of a call goes below, as candidates without loops that take no time."""
    around, further = tuple(distances[name] for name in tiler.call.operands), (0,) * len(tiler.levels)
    every = [(*taken, *further)[: len(tiler.levels)] for _, taken in tiler.fewest(distances, depth)]
    return [Candidate(CallTiling((), (), None), around, taken, 0, 0, 0, 0, 0, False) for taken in every]


def explain_infeasibility(case: Relaxed) -> FitError | None:
    """Why a network does not fit; None where no memory is too small for its bytes."""
    return _constants_too_large(case) or _call_too_large(case) or _network_too_large(case)


def _constants_too_large(case: Relaxed) -> FitError | None:
    """Some memory is too small for the constants that lie there in any case."""
    for distance, (level, room) in enumerate(zip(case.levels, case.room, strict=True)):
        size, most = case.constants(distance), case.target.memory(level).capacity
        if size > room >= 0:
            is_known = most is not None and size > most  # there is no use in knowing how much more the network takes
            needed = size if is_known else case.least(distance) or case.least(distance, UNLIMITED) or size
            rest = f" beside {case.io} bytes of inputs and outputs" if room < case.machine.capacities[level] else ""
            what = f"{level} is too small: the constants take {size} bytes{rest}, {room} are there"
            return FitError(what, _remedy_case(case, distance, needed, [] if is_known else _fullest_step(case.problem)[1]))
    return None


def _call_too_large(case: Relaxed) -> FitError | None:
    """The first memory is too small for the smallest tile of some call."""
    program, target, machine, level = case.program, case.target, case.machine, case.levels[0]
    worst: tuple[int, Call] | None = None
    for step, candidates in enumerate(case.problem.candidates):
        variants = program.variants(step)
        fixed = [[bool(program.buffers[operand.buffer].memory) for operand in call.operands.values()] for call in variants]
        away = [c for c in candidates if all(near or far for near, far in zip(fixed[c.variant], c.distances, strict=True))]
        if not any(c.bytes[c.engine_memory] <= machine.capacities[case.levels[c.engine_memory]] for c in away):
            own = [(c.bytes[0], c.variant) for c in away if not c.engine_memory]
            if own and (worst is None or min(own)[0] > worst[0]):
                worst = min(own)[0], variants[min(own)[1]]
    if worst is None:
        return None
    depths = {"auto": (1,), "double": (2,), "single": (1,)}
    tile = _smallest_tile(worst[1], case, depths[machine.buffering])
    largest, room = max(tile.tiling.streams, key=lambda s: s.bytes), machine.capacities[level]
    options = []
    if machine.buffering == "double":
        options = [f"--buffering single, {_smallest_tile(worst[1], case, depths['single']).bytes[0]} bytes then"]
    windows = [(worst[1].operands[s.operand].buffer, s.bytes * s.depth) for s in tile.tiling.streams if s.bytes]
    needed = tile.bytes[0]
    return FitError(
        f"node {shorten(worst[1].node.name)} ({worst[1].node.op}) needs {needed} bytes of {level} for its smallest tile "
        f"(largest: operand {largest.operand}, {largest.bytes} bytes), {room} are there",
        suggest_remedy(program, target, windows, (needed, room), options, more_memory(target, level, needed)),
    )


def _smallest_tile(call: Call, case: Relaxed, depths: tuple[int, ...]) -> Candidate:
    """The candidate that needs the least of its engine's memory, from operands in the memory around it."""
    capacities = {**case.machine.capacities, case.levels[0]: UNLIMITED}
    tiler = Tiler(call, case.program.buffers, case.target, capacities, case.machine.cores, case.machine.tiles(call.name))
    distances = {name: 0 if case.program.buffers[operand.buffer].memory else 1 for name, operand in call.operands.items()}
    return min(tiler.candidates(distances, depths), key=lambda c: c.bytes[0])


def _network_too_large(case: Relaxed) -> FitError | None:
    """Every call fits alone; what is there at once does not fit some memory."""
    for others, distance in itertools.product((None, UNLIMITED), reversed(range(len(case.levels)))):
        room, constants, level = case.room[distance], case.constants(distance), case.levels[distance]
        needed = case.least(distance, others)
        if needed is None:
            continue
        if needed <= room and others is None and not any(map(gt, case.resident_bytes, case.room)):
            return None
        if needed <= room:
            continue
        step, alive = _fullest_step(case.problem)
        call = case.program.calls[step]
        names = [f"{h.name} ({h.size})" for h in alive[:3]] or ["constants"]
        rest = f" beside {constants} bytes of constants" if constants else ""
        rest += f" and {case.io} of inputs and outputs" if room < case.machine.capacities[level] else ""
        what = f"node {shorten(call.node.name)} ({call.node.op}) needs {needed - constants} bytes at once{rest}, {max(0, room)} are there"
        what += f"; largest buffers then: {', '.join(map(shorten, names))}"
        return FitError(f"{level} is too small: {what}", _remedy_case(case, distance, needed, alive))
    return None


def _remedy_case(case: Relaxed, distance: int, size: int, alive: Sequence[Residence]) -> str:
    level, room, program, machine = case.levels[distance], case.room[distance], case.program, case.machine
    buffers, options = program.buffers, list[str]()
    saved = _converted_bytes(program) if distance == 1 and room < machine.capacities[level] and not program.is_float else 0
    if saved:
        options.append(f"--quantised-io, {case.io - saved} bytes of inputs and outputs then")
    far = next((m.name for m in case.target.memories if m.is_far), machine.default_memory)
    if far != machine.default_memory:
        left = case.far(replace(machine, default_memory=far)).least(distance)
        options += [f"--default-memory {far}, about {left} bytes then"] * (left is not None and left <= room)
    states = sum(buffer.bytes for buffer in buffers.values() if buffer.role is Role.STATE)
    if states and program.dynamic_length is not None:
        options.append(f"a smaller --context (states take {states // max(1, program.dynamic_length.context)} bytes for each row)")
    names = {name for residence in alive for name in residence.buffers if name in buffers}
    read = (buffers[operand.buffer] for call in program.calls for operand in call.operands.values())
    names |= {b.name for b in read if b.role is Role.CONSTANT and (b.memory or machine.default_memory) == level}
    there = [(name, buffers[name].bytes) for name in sorted(names)]
    return suggest_remedy(
        program, case.target, there, (size, max(0, room)), options, more_memory(case.target, level, size, case.io * (distance == 1))
    )


def _converted_bytes(program: Program) -> int:
    """Bytes that inputs and outputs take less as the integers that calls only convert them to or from."""
    saved = 0
    for call in program.calls:
        whole = (operand.buffer for operand in call.operands.values() if operand.access.is_dense)
        operands = [program.buffers[name] for name in dict.fromkeys(whole)]
        ports = [b for b in operands if b.role in (Role.INPUT, Role.OUTPUT) and b.dtype is DType.FLOAT32]
        inner = [b for b in operands if b.role is Role.LOCAL and b.dtype.is_integer]
        if len(ports) == len(inner) == 1:
            saved += ports[0].bytes - inner[0].bytes
    return saved


def explain_unpacked(target: Target, level: str, needed: int, room: Mapping[str, int]) -> FitError:
    """The error for a network whose buffers fit a memory by their bytes, and for which no addresses were found."""
    what = f"{level} is too small: no addresses were found for the buffers of the network, which take {needed} bytes side by side"
    return FitError(f"{what}, {room[level]} are there", f"Try {more_memory(target, level, needed)}.")


def _fullest_step(problem: ChoiceProblem) -> tuple[int, list[Residence]]:
    """The step with the most bytes of buffers that may live in a memory, and these, the largest first."""
    residences = [residence for residence in problem.residences if not residence.users]
    loads = [sum(h.size for h in residences if h.steps[0] <= step <= h.steps[1]) for step in range(len(problem.candidates))]
    step = max(range(len(loads)), key=loads.__getitem__)
    return step, sorted((h for h in residences if h.steps[0] <= step <= h.steps[1]), key=lambda h: (-h.size, h.name))
