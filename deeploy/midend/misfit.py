"""Why nothing fits: the call, the buffer and the level, the smallest capacity that would do, and what helps.

What is advised can be done and helps: int8 of floats, few bits of constants that lie in the memory, an option that was not given, smaller
inputs of activations, more memory than the limit where the target has it. It is named in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from deeploy.errors import FitError, shorten
from deeploy.graph.target import Target
from deeploy.graph.types import DType
from deeploy.midend.candidate import Candidate
from deeploy.midend.candidates import Tiler
from deeploy.midend.plan import Machine, constants_in
from deeploy.midend.problem import Problem, Residence
from deeploy.midend.program import Call, Program, Role

_ENOUGH = 2**40


class Held(NamedTuple):
    """Bytes that lie in the memory that is too small, of one buffer of a program.

    Attributes:
        may_be_packed: whether it is a constant that kernels of the target read in few bits too.
    """

    bytes: int
    dtype: DType
    is_constant: bool
    may_be_packed: bool


BYTE = 8
FEW_BITS = 4  # of weights, as ``deeploy quantize --weights`` makes them


def held(program: Program, target: Target, sizes: Iterable[tuple[str, int]]) -> list[Held]:
    """What buffers hold of a memory; ``sizes`` are their names and the bytes there."""
    packable = {
        operand.buffer
        for call in program.calls
        for name, operand in call.operands.items()
        if any(dtype.is_packed for kernel in target.kernels if kernel.op == call.node.op for dtype in kernel.types.get(name, ()))
    }
    found = []
    for name, size in sizes:
        buffer = program.buffers[name]
        is_constant = buffer.role is Role.CONSTANT
        found.append(Held(size, buffer.dtype, is_constant, is_constant and name in packable))
    return found


def remedy(program: Program, target: Target, there: Sequence[Held], sizes: tuple[int, int], options: Sequence[str], last: str) -> str:
    """What makes a network fit a memory, in the order in which it should be tried.

    Args:
        there: what lies in the memory when it is fullest.
        sizes: bytes of it that the network takes, and those that it may take.
        options: that were not given, and help.
        last: how it gets more memory.
    """
    needed, room = sizes
    part = min(1.0, needed / max(1, sum(one.bytes for one in there)))  # of what lies there; chains hold less at once
    constants = round(part * sum(one.bytes for one in there if one.is_constant))
    others = needed - constants  # what is there at the same time, and depends on the size of the inputs
    tries, is_float = list[str](), program.is_float
    if is_float and any(one.dtype is DType.FLOAT32 for one in there):
        constants -= round(part * sum(_saved_by_bytes(one) for one in there if one.is_constant))
        others -= round(part * sum(_saved_by_bytes(one) for one in there if not one.is_constant))
        tries.append(f"int8 ({quantise(target)}), about {constants + others} bytes then")
    weights = sum(one.bytes // one.dtype.bytes for one in there if one.may_be_packed and (is_float or one.dtype.bits == BYTE))
    if weights and others <= room:
        constants -= round(part * weights * (1 - FEW_BITS / BYTE))
        fewer = f"deeploy quantize --weights {FEW_BITS}, of the float model"
        tries.append(f"weights of {FEW_BITS} bits ({fewer}), about {constants + others} bytes then")
    tries += options
    if constants <= room and any(not one.is_constant for one in there):
        tries.append("smaller inputs")
    return f"Try, in this order: {'; '.join([*tries, last])}." if tries else f"Try {last}."


def _saved_by_bytes(one: Held) -> int:
    """What elements of one byte take less."""
    return one.bytes - one.bytes // one.dtype.bytes if one.dtype is DType.FLOAT32 else 0


def quantise(target: Target) -> str:
    """The command that makes a float network one in int8, in the form that suits the target where it can tell."""
    return f"deeploy quantize{f' --for {target.name}' if target.timing is not None else ''}"


def check_constants(program: Program, target: Target, machine: Machine) -> None:
    """Raise ``FitError`` where constants that are read in place from another memory than that of the arena do not fit it."""
    level = constants_in(target, machine)
    constants = [(b.name, b.bytes) for b in program.buffers.values() if b.role is Role.CONSTANT]
    size = sum(count for _, count in constants)
    if target.is_flat and level and size > machine.capacities[level]:
        remedies = remedy(
            program, target, held(program, target, constants), (size, machine.capacities[level]), [], more(target, level, size)
        )
        raise FitError(f"{level} is too small: the constants take {size} bytes, {machine.capacities[level]} are there", remedies)


def more(target: Target, level: str, size: int, beside: int = 0) -> str:
    """How a network gets more of a memory: an option, or another target where this one has not that much.

    Args:
        beside: bytes that lie in the memory and are no part of what is limited.
    """
    memory = target.memory(level)
    most = None if memory.capacity is None else memory.capacity - memory.reserved - beside
    if most is None or size <= most:
        option = f"--{level.lower()} {size}" if level in ("L1", "L2") else f"--memory {level}={size}"
        if target.is_flat:
            return f"a chip with more {level}: {size} bytes for this ({option}), beside all else that lies there"
        return f"a larger memory: {option}"
    has = f"has no more than {most} bytes for it" if most > 0 else "is full of inputs and outputs"
    return f"another target ({level} of {target.name} {has})"


@dataclass(frozen=True)
class Misfit:
    """What did not fit; memories by their distance from the engines' own.

    Attributes:
        at: the problem for another capacity of one memory, with every residence and candidate that could help.
        beside: bytes of constants beside the arena of every memory.
        room: bytes of every memory that the plan and these constants may take.
        io: bytes of the caller's arrays, which lie in the memory around the engines' own.
        again: plans the network on another machine.
    """

    program: Program
    target: Target
    machine: Machine
    levels: Sequence[str]
    at: Callable[[int, int], Problem]
    beside: Sequence[int]
    room: Sequence[int]
    io: int
    again: Callable[[Machine], object]


def misfit(case: Misfit) -> FitError:
    """The error for a problem without a solution."""
    return _call_too_large(case.program, case.target, case.machine, case.levels) or _network_too_large(case)


def _call_too_large(program: Program, target: Target, machine: Machine, levels: Sequence[str]) -> FitError | None:
    """The first memory is too small for the smallest tile of some call."""
    depths = {"auto": (1,), "double": (2,), "single": (1,)}[machine.buffering]
    worst: tuple[int, str, Call, Candidate] | None = None
    for step, call in enumerate(program.calls):
        variants = [variant for variant in program.variants(step) if target.engine(variant.kernel.engine).memory == levels[0]]
        if len(variants) < len(program.variants(step)) and any(
            _fits(variant, program, target, machine, depths) for variant in program.variants(step)
        ):
            continue
        if not variants:
            continue
        needed = min((_smallest_tile(variant, program, target, machine, depths) for variant in variants), key=lambda c: c.bytes[0])
        if needed.bytes[0] > machine.capacities[levels[0]] and (worst is None or needed.bytes[0] > worst[0]):
            largest = max(needed.tiling.streams, key=lambda s: s.bytes)
            what = f"node {shorten(call.node.name)} ({call.node.op}) needs {needed.bytes[0]} bytes of {levels[0]} for its smallest tile"
            worst = needed.bytes[0], f"{what} (largest: operand {largest.operand}, {largest.bytes} bytes)", call, needed
    if worst is None:
        return None
    least, what, call, tile = worst
    windows = [(call.operands[s.operand].buffer, s.bytes * s.depth) for s in tile.tiling.streams if s.bytes]
    options = ["--buffering single"] if machine.buffering == "double" else []
    room = machine.capacities[levels[0]]
    remedies = remedy(program, target, held(program, target, windows), (least, room), options, more(target, levels[0], least))
    return FitError(f"{what}, {room} are there", remedies)


def _smallest_tile(call: Call, program: Program, target: Target, machine: Machine, depths: tuple[int, ...]) -> Candidate:
    """The candidate that needs the least of its engine's memory, from operands in the memory around it."""
    engine = target.engine(call.kernel.engine)
    tiler = Tiler(call, program.buffers, target, {**machine.capacities, engine.memory: _ENOUGH}, machine.cores)
    distances = {name: 0 if program.buffers[operand.buffer].memory else 1 for name, operand in call.operands.items()}
    return min(tiler.candidates(distances, depths), key=lambda c: c.bytes[0])


def _fits(call: Call, program: Program, target: Target, machine: Machine, depths: tuple[int, ...]) -> bool:
    capacity = machine.capacities[target.engine(call.kernel.engine).memory]
    return _smallest_tile(call, program, target, machine, depths).bytes[0] <= capacity


def _network_too_large(case: Misfit) -> FitError:
    """Every call fits alone; the buffers of some memory do not."""
    for distance in range(len(case.levels) - 1, -1, -1):
        needed, beside, level = _least(case, distance), case.beside[distance], case.levels[distance]
        if needed is None or needed + beside <= case.room[distance]:
            continue
        step, alive = _fullest(case.at(1, _ENOUGH))
        names = [f"{h.name} ({h.size})" for h in alive[:3]] or ["constants"]
        call = case.program.calls[step]
        rest = f" beside {beside} bytes of constants" if beside else ""
        rest += f" and {case.io} of inputs and outputs" if distance == 1 and case.room[distance] < case.machine.capacities[level] else ""
        return FitError(
            f"{level} is too small: node {shorten(call.node.name)} ({call.node.op}) needs {needed} bytes at once{rest}, "
            f"{max(0, case.room[distance])} are there; largest buffers then: {', '.join(map(shorten, names))}",
            _remedy(case, distance, needed + beside, alive),
        )
    program = case.program
    there = held(program, case.target, [(name, buffer.bytes) for name, buffer in program.buffers.items()])
    size = sum(one.bytes for one in there)
    return FitError("the network fits no memory of the target", remedy(program, case.target, there, (size, 0), [], "another target"))


def _least(case: Misfit, distance: int) -> int | None:
    """The smallest arena with which a choice exists, the other memories as they are; None where they are too small."""
    from deeploy.midend.choose import smallest

    return smallest(_unlimited(case.at(distance, _ENOUGH)), distance)


def _unlimited(problem: Problem) -> Problem:
    """The problem with memories that are full already taken as large enough: one is looked at after the other."""
    return replace(problem, capacities=[_ENOUGH if c < 0 else c for c in problem.capacities])


def _remedy(case: Misfit, distance: int, size: int, alive: Sequence[Residence]) -> str:
    level, room, buffers = case.levels[distance], case.room[distance], case.program.buffers
    ports = {buffers[name].dtype for name in (*case.program.inputs, *case.program.outputs)}
    is_full_of_ports = distance == 1 and room < case.machine.capacities[level]
    options = ["--quantised-io"] * (is_full_of_ports and DType.FLOAT32 in ports and not case.program.is_float)
    far = next((m.name for m in case.target.memories if m.is_far), case.machine.default_memory)
    if far != case.machine.default_memory and _has_plan(case, replace(case.machine, default_memory=far)):
        options.append(f"--default-memory {far}")
    options += ["a smaller --context"] * any(b.role is Role.STATE for b in buffers.values())
    names = {name for residence in alive for name in residence.buffers if name in buffers}
    names |= {name for name in _certain(case.program) if (buffers[name].memory or case.machine.default_memory) == level}
    there = held(case.program, case.target, [(name, buffers[name].bytes) for name in sorted(names)])
    last = more(case.target, level, size, case.io * (distance == 1))
    return remedy(case.program, case.target, there, (size, max(0, room)), options, last)


def _has_plan(case: Misfit, machine: Machine) -> bool:
    try:
        case.again(machine)
    except FitError:
        return False
    return True


def _certain(program: Program) -> set[str]:
    """The constants that a network needs by whichever variants its calls run."""
    found = set[str]()
    for step in range(len(program.calls)):
        found |= set.intersection(*({operand.buffer for operand in call.operands.values()} for call in program.variants(step)))
    return {name for name in found if program.buffers[name].role is Role.CONSTANT}


def _fullest(problem: Problem) -> tuple[int, list[Residence]]:
    """The step with the most bytes of buffers that may live in a memory, and these, the largest first."""
    residences = [residence for residence in problem.residences if not residence.users]
    loads = [sum(h.size for h in residences if h.steps[0] <= step <= h.steps[1]) for step in range(len(problem.candidates))]
    step = max(range(len(loads)), key=loads.__getitem__)
    return step, sorted((h for h in residences if h.steps[0] <= step <= h.steps[1]), key=lambda h: (-h.size, h.name))
