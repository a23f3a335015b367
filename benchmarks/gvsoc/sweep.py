"""Many operators on GVSoC in one program: a network of layers that do not depend on each other, one tile each where L1 has the room.

What is measured of a layer is what its teams take from fork to join, data in L1, once with cold and once with warm instruction
caches. Results are not compared here: tests/targets/siracusa does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gvsoc.layer import Case, SimulationError, build, expected, l1_bytes, simulate, write_forked
from deeploy.api import Compiled, Network
from deeploy.frontend.io import describe_ports
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.options import Buffering, Options
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.plan import Plan
from deeploy.planning.planner.machine import machine_of
from deeploy.planning.planner.network import make_plan
from deeploy.planning.program import Program, choose_variants
from deeploy.target import Target


@dataclass(frozen=True)
class Team:
    """One fork: which call of the plan, which of its tiles, cycles with cold and with warm caches."""

    step: int
    tile: int
    cold: int
    warm: int


@dataclass(frozen=True)
class Swept:
    """What was measured of a network of cases: teams that are forked alone; every call in one fork of all, with its transfers, caches cold.

    Calls are measured where that is asked for.
    """

    plan: Plan
    teams: tuple[Team, ...]
    layers: tuple[int, ...]


def compiled(
    cases: Sequence[Case],
    target: Target,
    cores: int,
    l1: int | None = None,
    engine: str | None = "cluster",
    kernels: Sequence[str] = (),
    buffering: Buffering = "single",
) -> Compiled:
    """The cases as a project of one layer each, side by side, on one engine or on any; ``kernels`` names the one of each case."""
    inputs, outputs = list[Tensor](), list[Tensor]()
    for number, case in enumerate(cases):
        tensors = case.tensors(f"_{number}")
        results = {"y": (_shape(case, target), case.y), **case.further}
        made = tuple(Tensor(f"{n}_{number}", tuple(shape), DType(kind)) for n, (shape, kind) in results.items())
        outputs += Node(f"layer_{number}", case.op, tuple(tensors.values()), made, case.attrs).outputs
        inputs += [tensors[n] for n in case.variables]
    graph = Graph("network", tuple(inputs), tuple(outputs))
    options = Options(memory={"l1": l1 or l1_bytes(target)}, cores=cores, buffering=buffering)
    machine = machine_of(target, options)
    assert machine is not None, "the target has scratchpad memories"
    program = assemble_program("network", graph, [kernel for kernel in target.kernels if engine in (None, kernel.engine)])
    plan = make_plan(_by_kernels(program, kernels) if kernels else program, target, machine, options.seconds)
    sources, results = describe_ports(graph, True, {})
    return Compiled({"network": Network(plan, "sweep", tuple(sources), tuple(results), True, ())}, {})


def writers(program: Program, count: int) -> list[int]:
    """The call of every case: the one that writes its output."""
    writes = {program.buffers[call.operands[name].buffer].tensor: step for step, call in enumerate(program.calls) for name in call.writes}
    return [writes[f"y_{number}"] for number in range(count)]


def _by_kernels(program: Program, kernels: Sequence[str]) -> Program:
    """The program whose cases are run by the kernels of these names, and by no other one."""
    numbers = [0] * len(program.calls)
    for step, wanted in zip(writers(program, len(kernels)), kernels, strict=True):
        names = [call.kernel.name for call in program.variants(step)]
        if wanted not in names:
            raise SimulationError(f"{program.calls[step].name}: none of {', '.join(names)} is {wanted}")
        numbers[step] = names.index(wanted)
    return choose_variants(program, numbers)


def sample_of(cases: Sequence[Case]) -> bytes:
    """The inputs of the network of the cases."""
    return b"".join(case.operands[name].tobytes() for case in cases for name in case.variables)


def _shape(case: Case, target: Target) -> tuple[int, ...]:
    """Of the result."""
    if case.op == "Expand":
        return tuple(case.attrs["shape"])
    if case.op != "Transpose":
        return expected(case, target).shape
    shape = case.operands["x"].shape
    return tuple(shape[axis] for axis in case.attrs["perm"])


def sweep(
    cases: Sequence[Case],
    target: Target,
    cores: int = 8,
    l1: int | None = None,
    kernels: Sequence[str] = (),
    has_layers: bool = False,
) -> Swept:
    """Measure the cases, each by the kernel that is named where ``kernels`` are given, and whole calls if ``has_layers``.

    Raises:
        SimulationError: no simulator, the program fails on it, or a kernel cannot run its case.
    """
    project = compiled(cases, target, cores, l1, kernels=kernels)
    plan = project.networks["network"].plan
    with tempfile.TemporaryDirectory(prefix="deeploy-gvsoc-") as scratch:
        folder = Path(scratch)
        write_forked(project, folder / "forked")
        project.write(folder / "project")
        sample, l2 = sample_of(cases), plan.memory["L2"].peak
        lines = _lines(folder / "forked", folder / "work", target, sample, l2, "-DDEEPLOY_PROFILE", ("rt_fork",))
        plain = (
            _lines(folder / "project", folder / "together", target, sample, l2, "-DDEEPLOY_PROFILE -DONE_TEAM", ()) if has_layers else []
        )
    forks = [(int(words[2]), int(words[3])) for words in lines if words[:1] == ["fork"]]
    places = [(step, tile) for step in range(len(plan.program.calls)) for tile in range(plan.tiling(step).tiles)]
    teams = tuple(Team(*place, *cycles) for place, cycles in zip(places, forks, strict=True))
    return Swept(plan, teams, tuple(int(words[2]) for words in plain if words[:1] == ["layer"]))


def _lines(project: Path, work: Path, target: Target, sample: bytes, l2: int, flags: str, wrapped: Sequence[str]) -> list[list[str]]:
    """What a project with probe.c prints, word by word."""
    program = build(project, work, target, flags, l2_bytes=l2, main="probe.c", wrapped=wrapped)
    (work / "inputs.bin").write_bytes(sample)
    (work / "weights.bin").write_bytes(b"")
    return [line.split() for line in simulate(program, work, target)]
