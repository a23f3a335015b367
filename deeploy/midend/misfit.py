"""Why nothing fits: the call, the buffer and the level, the smallest capacity that would do, and the option that helps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from deeploy.errors import FitError, shorten
from deeploy.graph.target import Target
from deeploy.midend.candidate import Candidate
from deeploy.midend.candidates import Tiler
from deeploy.midend.plan import Machine
from deeploy.midend.problem import Problem
from deeploy.midend.program import Call, Program, Role

_ENOUGH = 2**40


@dataclass(frozen=True)
class Misfit:
    """What did not fit; memories by their distance from the engines' own.

    Attributes:
        at: the problem for another capacity of one memory, with every residence and candidate that could help.
        beside: bytes of constants beside the arena of every memory.
        room: bytes of every memory that the plan and these constants may take.
        io: bytes of the caller's arrays, which lie in the memory around the engines' own.
    """

    program: Program
    target: Target
    machine: Machine
    levels: Sequence[str]
    at: Callable[[int, int], Problem]
    beside: Sequence[int]
    room: Sequence[int]
    io: int


def misfit(case: Misfit) -> FitError:
    """The error for a problem without a solution."""
    return _call_too_large(case.program, case.target, case.machine, case.levels) or _network_too_large(case)


def _call_too_large(program: Program, target: Target, machine: Machine, levels: Sequence[str]) -> FitError | None:
    """The first memory is too small for the smallest tile of some call."""
    depths = {"auto": (1,), "double": (2,), "single": (1,)}[machine.buffering]
    worst: tuple[int, str, str] | None = None
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
            worst = needed.bytes[0], what, f"largest: operand {largest.operand}, {largest.bytes} bytes"
    if worst is None:
        return None
    lever = " or --buffering single" if machine.buffering == "double" else ""
    return FitError(
        f"{worst[1]} ({worst[2]}), {machine.capacities[levels[0]]} are there",
        f"The smallest that would do is --{levels[0].lower()} {worst[0]}{lever}.",
    )


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
        step, names = _fullest(case.at(1, _ENOUGH))
        call = case.program.calls[step]
        rest = f" beside {beside} bytes of constants" if beside else ""
        rest += f" and {case.io} of inputs and outputs" if distance == 1 and case.room[distance] < case.machine.capacities[level] else ""
        return FitError(
            f"{level} is too small: node {shorten(call.node.name)} ({call.node.op}) needs {needed} bytes at once{rest}, "
            f"{max(0, case.room[distance])} are there; largest buffers then: {', '.join(map(shorten, names))}",
            _remedy(case, level, needed + beside),
        )
    return FitError("the network fits no memory of the target", "Give it more memory (--l1, --l2), or another target.")


def _least(case: Misfit, distance: int) -> int | None:
    """The smallest arena with which a choice exists, the other memories as they are; None where they are too small."""
    from deeploy.midend.choose import smallest

    return smallest(_unlimited(case.at(distance, _ENOUGH)), distance)


def _unlimited(problem: Problem) -> Problem:
    """The problem with memories that are full already taken as large enough: one is looked at after the other."""
    return replace(problem, capacities=[_ENOUGH if c < 0 else c for c in problem.capacities])


def _remedy(case: Misfit, level: str, size: int) -> str:
    has_states = any(b.role is Role.STATE for b in case.program.buffers.values())
    memory, far = case.target.memory(level), [m.name for m in case.target.memories if m.is_far]
    levers = [f"--default-memory {far[0]}"] if far and case.machine.default_memory not in far else []
    lever = " or ".join(levers + ["a smaller --context"] * has_states)
    if memory.capacity is not None and size > (most := memory.capacity - memory.reserved - (case.io if level == case.levels[1] else 0)):
        has = f"has no more than {most}" if most > 0 else "is full of inputs and outputs"
        return f"{level} {has}: try {lever or 'another target'}."
    return f"The smallest that would do is --{level.lower()} {size}{', or ' if lever else ''}{lever}."


def _fullest(problem: Problem) -> tuple[int, list[str]]:
    """The step with the most bytes of buffers that may live in a memory, and the largest of them."""
    residences = [residence for residence in problem.residences if not residence.users]
    loads = [sum(h.size for h in residences if h.steps[0] <= step <= h.steps[1]) for step in range(len(problem.candidates))]
    step = max(range(len(loads)), key=loads.__getitem__)
    alive = sorted((h for h in residences if h.steps[0] <= step <= h.steps[1]), key=lambda h: (-h.size, h.name))
    return step, [f"{h.name} ({h.size})" for h in alive[:3]] or ["constants"]
