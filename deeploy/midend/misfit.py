"""Why nothing fits: the call, the buffer and the level, the smallest capacity that would do, and the option that helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deeploy.errors import FitError, shorten
from deeploy.graph.target import Target
from deeploy.midend.candidates import Tiler
from deeploy.midend.choose import Problem, smallest
from deeploy.midend.plan import Machine
from deeploy.midend.program import Program

_ENOUGH = 2**40


def misfit(program: Program, target: Target, machine: Machine, problem: Problem, levels: Sequence[str]) -> FitError:
    """The error for a problem without a solution."""
    return _call_too_large(program, target, machine, levels) or _network_too_large(program, target, machine, problem, levels)


def _call_too_large(program: Program, target: Target, machine: Machine, levels: Sequence[str]) -> FitError | None:
    """The first memory is too small for the smallest tile of some call."""
    depths = {"auto": (1,), "double": (2,), "single": (1,)}[machine.buffering]
    worst: tuple[int, str, str] | None = None
    for call in program.calls:
        cores = min(machine.cores, target.engine(call.kernel.engine).cores)
        tiler = Tiler(call, program.buffers, target, {**machine.capacities, levels[0]: _ENOUGH}, cores)
        needed = min(tiler.candidates(dict.fromkeys(call.operands, 1), depths), key=lambda c: c.bytes[0])
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


def _network_too_large(program: Program, target: Target, machine: Machine, problem: Problem, levels: Sequence[str]) -> FitError:
    """Every call fits alone; the buffers of some memory do not."""
    for hop in range(len(levels) - 1, -1, -1):
        needed = smallest(replace(problem, capacities=[_ENOUGH if c < 0 else c for c in problem.capacities]), hop)
        if needed is None or needed <= problem.capacities[hop]:
            continue
        beside = machine.capacities[levels[hop]] - problem.capacities[hop]
        step, names = _fullest(problem, hop)
        call = program.calls[step]
        lever = ""
        if not target.memory(machine.default_memory).is_far and any(m.is_far for m in target.memories):
            lever = f", or --default-memory {next(m.name for m in target.memories if m.is_far)}"
        rest = f" beside {beside} bytes of constants" if beside else ""
        return FitError(
            f"{levels[hop]} is too small: node {shorten(call.node.name)} ({call.node.op}) needs {needed} bytes at once{rest}, "
            f"{machine.capacities[levels[hop]]} are there; largest buffers then: {', '.join(map(shorten, names))}",
            f"The smallest that would do is --{levels[hop].lower()} {needed + beside}{lever}.",
        )
    return FitError("the network fits no memory of the target", "Give it more memory (--l1, --l2), or another target.")


def _fullest(problem: Problem, hop: int) -> tuple[int, list[str]]:
    """The step with the most bytes of buffers that may live in a memory, and the largest of them."""
    loads = [sum(h.size for h in problem.homes if h.steps[0] <= step <= h.steps[1]) for step in range(len(problem.candidates))]
    step = max(range(len(loads)), key=loads.__getitem__)
    alive = sorted((h for h in problem.homes if h.steps[0] <= step <= h.steps[1]), key=lambda h: (-h.size, h.name))
    return step, [f"{h.name} ({h.size})" for h in alive[:3]] or ["constants"]
