"""Energy of an inference, by what takes it: cores, accelerators, memories, paths, and the chip as such.

``E = P T + sum over paths of N E``, as in the paper on distributed inference, section V, with three further terms: accelerators by the time
in which they work, memories that kernels read in place by bytes, and the power that the chip takes whatever it does. What has no figure in
the target's timing, or 0, is named: a sum without it is too low.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deeploy.errors import UsageError
from deeploy.ir.target import Target, Timing
from deeploy.options import Objective
from deeploy.planning.plan import Plan, constants_in
from deeploy.planning.program import Call, Role
from deeploy.planning.tiling.loops import Footprints

STATIC = "static"
ENERGY: tuple[Objective, ...] = ("energy", "edp")  # the objectives that need energies


@dataclass(frozen=True)
class Energy:
    """Microjoules of one inference.

    Attributes:
        cores: of all cores of the team, which stay on for the whole inference.
        paths: by what they move.
        static: of the chip, whatever it does.
        accelerators: while they work.
        memories: that kernels read in place.
        missing: what takes part and has no figure.
    """

    cores: float
    paths: Mapping[str, float]
    static: float = 0.0
    accelerators: Mapping[str, float] = field(default_factory=dict)
    memories: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, float]:
        """Microjoules of every part of one inference by its name: cores, accelerators, paths, memories, static power."""
        static = {STATIC: self.static} if self.static else {}
        return {"cores": self.cores, **self.accelerators, **self.paths, **self.memories, **static}


def _computing_engines(calls: Iterable[Call]) -> set[str]:
    """The engines that compute; what sends and receives is counted by links."""
    return {part.kernel.engine for call in calls for part in call.parts if part.kernel.link is None}


def core_milliwatt(plan: Plan) -> float:
    """The power of all cores of the teams that compute a plan; of one core where there are only accelerators, which it serves."""
    target = plan.target
    power = target.timing.core_mw if target.timing is not None else {}
    engines = [target.engine(name) for name in sorted(_computing_engines(plan.program.calls) & power.keys())]
    teams = [power[engine.name] * min(plan.machine.cores, engine.cores) for engine in engines if not engine.accelerator]
    return sum(teams) if teams else max((power[engine.name] for engine in engines), default=0.0)


def energy(plan: Plan, cycles: float, moved: Mapping[str, int], worked: Mapping[str, float]) -> Energy:
    """Energy of an inference of ``cycles``.

    Args:
        moved: bytes by path.
        worked: cycles of accelerators.
    """
    timing = plan.target.timing
    assert timing is not None
    read = sum(map(Counter, read_in_place(plan)), Counter[str]())
    return Energy(
        core_milliwatt(plan) * cycles / timing.mhz / 1e3,
        {name: count * timing.paths[name].pj_per_byte / 1e6 for name, count in moved.items()},
        timing.static_mw * cycles / timing.mhz / 1e3,
        {name: timing.active_mw.get(name, 0.0) * busy / timing.mhz / 1e3 for name, busy in worked.items()},
        {name: count * timing.memory_pj[name] / 1e6 for name, count in read.items() if name in timing.memory_pj},
        missing_energy(plan.target, _computing_engines(plan.program.calls), {name for name, count in moved.items() if count}, read),
    )


def read_in_place(plan: Plan) -> list[dict[str, int]]:
    """Bytes of constants that the kernels of every call read where they lie, by memory: every tile reads its part once."""
    counted: list[dict[str, int]] = [{} for _ in plan.program.calls]
    flat = constants_in(plan.target, plan.machine) if plan.target.is_flat else ""
    for step, call in enumerate(plan.program.calls):
        for name, operand in call.operands.items():
            buffer = plan.program.buffers[operand.buffer]
            if buffer.role is Role.CONSTANT and (memory := buffer.memory or flat):
                dims = Footprints(call.geometry, name, operand).dims
                again = math.prod(loop.trips for loop in plan.tiling(step).loops if loop.dim not in dims)
                counted[step][memory] = counted[step].get(memory, 0) + buffer.bytes * again
    return counted


def missing_energy(target: Target, engines: Iterable[str], paths: Iterable[str], memories: Iterable[str] = ()) -> tuple[str, ...]:
    """What has no energy, in words; an engine's power is also that of the memory in which it works, a path's that of both its ends."""
    timing = target.timing or Timing(1.0, {}, 0.0, {}, {}, {})
    known = [target.engine(name) for name in sorted(engines)]
    counted = [f"engine {e.name}" for e in known if not (timing.active_mw if e.accelerator else timing.core_mw).get(e.name)]
    counted += [f"path {name}" for name in sorted(paths) if name not in timing.paths or not timing.paths[name].pj_per_byte]
    within = {engine.memory for engine in target.engines}
    counted += [f"memory {name}" for name in sorted(memories) if name not in within and not timing.memory_pj.get(name)]
    return (*counted, *(["static power"] if not timing.static_mw else []))


def unknown_energy(plan: Plan) -> tuple[str, ...]:
    """What has no energy where nothing is known of a target's time."""
    read = {memory for one in read_in_place(plan) for memory in one}
    return missing_energy(plan.target, _computing_engines(plan.program.calls), [path.name for path in plan.target.paths], read)


def check_energies(target: Target, objective: str, engines: Iterable[str]) -> None:
    """Raise ``UsageError`` where a plan for little energy would take something for free."""
    names = list(engines) or [e.name for e in target.engines if any(k.engine == e.name for k in target.computing)]
    weights = [engine.weights for engine in map(target.engine, names) if engine.weights]
    lacking = [one for one in missing_energy(target, names, [path.name for path in target.paths], weights) if one != "static power"]
    if objective in ENERGY and lacking:
        raise UsageError(
            f"--objective {objective}: target {target.name} has no energy of {', '.join(lacking)}",
            "Add it to the target's timing.toml (docs/timing.md), or use --objective cycles.",
        )


def milliwatt(target: Target, cores: int) -> float:
    """The power of all teams and of the chip as such: what a cycle takes in which nothing moves and no accelerator works."""
    assert target.timing is not None
    power = target.timing.core_mw
    return target.timing.static_mw + sum(power.get(e.name, 0.0) * min(cores, e.cores) for e in target.engines if not e.accelerator)


def measure_objective(objective: Objective, cycles: float, microjoule: float) -> float:
    """The number that the objective makes small: cycles, microjoules, or their product."""
    return {"energy": microjoule, "edp": microjoule * cycles}.get(objective, cycles)
