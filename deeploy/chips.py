"""The Python interface for several chips: ``deeploy.chips.compile`` and what it returns."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx_graphsurgeon as gs

from deeploy import api
from deeploy import target as targets
from deeploy.distribute.collectives import Costs, Effort
from deeploy.distribute.joins import joined
from deeploy.distribute.pipeline import BALANCES, Balance
from deeploy.distribute.proof import prove
from deeploy.distribute.system import System, check
from deeploy.distribute.tensor import partition
from deeploy.errors import FitError, UsageError, shorten
from deeploy.frontend.io import Port
from deeploy.frontend.positions import POSITION
from deeploy.graph.nodes import Node
from deeploy.graph.target import Target
from deeploy.graph.topology import Topology, load_members, load_topology
from deeploy.graph.types import DType
from deeploy.midend.alike import carried, signature, wording
from deeploy.midend.assemble import assemble
from deeploy.midend.bind import declarations
from deeploy.midend.cost import fork, once, overhead
from deeploy.midend.machine import Options, check_code, kernels_of, machine_of
from deeploy.midend.plan import Machine, Plan
from deeploy.midend.planner import make_plan
from deeploy.midend.program import Program
from deeploy.report.explain import explanations
from deeploy.schemas import PLAN
from deeploy.simulate import chips as golden
from deeploy.simulate.devices import DevicePlan, plan_devices
from deeploy.simulate.stages import own_options, pipelined
from deeploy.simulate.systems import LINK, Stream, SystemRun, joint_trace, stream, system_summary, walk_system
from deeploy.simulate.timing import summary
from deeploy.simulate.walk import walk

PAGE = 4096  # bytes that the memory of queues is a multiple of
STREAMED = 6  # inferences that are predicted beyond those that fill a pipeline


@dataclass(frozen=True)
class Cut:
    """How a model is cut: over how many chips, by what, and how they are joined (None: as the target says)."""

    chips: int | Literal["auto"]
    partition: str = "tensor"
    balance: str = "cycles"
    topology: Path | None = None


@dataclass(frozen=True, eq=False)
class Distributed:
    """A model compiled for several chips.

    Attributes:
        plans: of every chip; ``leads`` the first chip with the same code.
        inputs, outputs: of the model.
        target: without what a chip's queues take of it.
    """

    system: System
    topology: Topology
    target: Target
    plans: tuple[Plan, ...]
    leads: tuple[int, ...]
    model: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dialect: bool
    notes: tuple[str, ...]
    seconds: Mapping[str, float]

    def files(self) -> Mapping[str, str | bytes]:
        """The emitted project: relative paths and contents."""
        from deeploy.backend.chips import emit

        descriptions = [self._description(chip) for chip in range(len(self.plans))]
        files = dict(emit(self.plans, self.leads, descriptions, self.target, self.topology.queue, self._head()))
        manifest = json.loads(files["deploy.json"])
        reasons = {
            chip: explanations(self.plans[chip], manifest["chips"][chip]) for chip in sorted(set(self.leads)) if self.plans[chip].offered
        }
        files |= self._reports(manifest, reasons)
        if self.predicted is not None:
            files["trace.json"] = joint_trace(self.plans, self.predicted.chips)
        return files

    def _reports(self, manifest: dict[str, Any], reasons: Mapping[int, Any]) -> dict[str, str | bytes]:
        """What is made for people: the page, and what ``deeploy explain`` shows."""
        from deeploy.report.chips import page
        from deeploy.simulate.joint import strips
        from deeploy.simulate.timeline import timeline

        runs = self.predicted.chips if self.predicted is not None else ()
        drawn = {chip: timeline(runs[chip]) for chip in reasons if runs}
        files: dict[str, str | bytes] = {"report.html": page(manifest, strips(runs, LINK), drawn, reasons)}
        if reasons:
            named = {f"chip{chip}": found for chip, found in sorted(reasons.items())}
            files["explain.json"] = json.dumps({"networks": named}, separators=(",", ":")) + "\n"
        return files

    @cached_property
    def predicted(self) -> SystemRun | None:
        """One inference as predicted, where the target says how long things take."""
        is_timed = not self.target.is_flat and self.target.timing is not None
        return walk_system(self.plans, self.topology) if is_timed else None

    @cached_property
    def stream(self) -> Stream | None:
        """Inferences one behind the other, where messages go from chip to chip in one direction: there stages work at a time."""
        is_pipeline = all(message.sender[0] < message.receiver[0] for message in self.system.messages)
        if self.predicted is None or not is_pipeline or len(self.plans) == 1:
            return None
        return stream(self.plans, self.topology, len(self.plans) + STREAMED)

    def write(self, folder: str | Path) -> None:
        """Write the project, in place of an older one of ours; see ``deeploy.backend.project``."""
        from deeploy.backend import project

        folder = Path(folder)
        project.check_destination(folder)
        start = time.perf_counter()
        files = dict(self.files())
        seconds = {**self.seconds, "emit": time.perf_counter() - start}
        files["timings.json"] = json.dumps({"total": sum(seconds.values()), **seconds}, indent=1) + "\n"
        project.write(folder, files)

    def interpret(self, samples: Sequence[Sequence[np.ndarray]], sequence: bool = False) -> list[list[np.ndarray]]:
        """Outputs of the model by the kernels' NumPy references, per sample."""
        states = golden.States()
        programs = [plan.program for plan in self.plans]
        return [golden.outputs(self.system, programs, sample, states if sequence else None) for sample in samples]

    def _description(self, chip: int) -> dict[str, Any]:
        """What is known of a chip's tensors, for its entry in ``deploy.json``."""
        graph = self.system.chips[chip]
        known = {port.name: api.port_entries(port) for port in (*self.inputs, *self.outputs)}
        sides = {"inputs": [t.name for t in graph.inputs if t.name != POSITION], "outputs": [t.name for t in graph.outputs]}
        timing = summary(self.predicted.chips[chip]) if self.predicted is not None else None
        return {"model": self.model, **{side: [known[name] for name in names] for side, names in sides.items()}, "timing": timing}

    @cached_property
    def shapes(self) -> Mapping[str, tuple[DType, tuple[int, ...]]]:
        """Element types and shapes of the model's inputs and outputs."""
        found = {}
        for plan in self.plans:
            for name in (*plan.program.inputs, *plan.program.outputs):
                buffer = plan.program.buffers[name]
                found[buffer.tensor] = buffer.dtype, buffer.shape
        return found

    def _head(self) -> dict[str, Any]:
        """What ``deploy.json`` says of the system as a whole."""
        inputs = [{**self._port(port), "chips": list(self.system.given(port.name))} for port in self.inputs]
        outputs = [{**self._port(port), "chip": self.system.holder(port.name)} for port in self.outputs]
        growth = self.plans[0].program.growth
        return {
            "name": "network",
            "model": self.model,
            "target": self.target.name,
            "machine": {"mhz": self.topology.mhz} if not self.target.is_flat else None,
            "memory": {name: self._fullest(name) for name in self.plans[0].memory},
            "inputs": inputs,
            "outputs": outputs,
            **({"context": growth.context, "rows": growth.rows} if growth is not None else {}),
            "calls": [self._call(chip, step) for chip, plan in enumerate(self.plans) for step in range(len(plan.program.calls))],
            "buffers": [],
            **system_summary(self.predicted, self.stream),
            "code": list(self.leads),
            "queue": self.topology.queue,
            "messages": [
                {"from": m.sender[0], "to": m.receiver[0], "tag": m.tag, "bytes": m.bytes, "type": DType.of(m.dtype).value}
                for m in self.system.messages
            ],
            "notes": list(self.system.notes),
        }

    def _fullest(self, level: str) -> dict[str, Any]:
        """A memory level of the chip that uses most of it."""
        chip = max(range(len(self.plans)), key=lambda c: self.plans[c].memory[level].peak)
        return {"chip": chip, **asdict(self.plans[chip].memory[level])}

    def _call(self, chip: int, step: int) -> dict[str, Any]:
        """A call of a chip in short; the entry of the chip says more."""
        call, plan = self.plans[chip].program.calls[step], self.plans[chip]
        head = {"chip": chip, "name": call.name, "op": call.node.op, "kernel": call.kernel.name, "engine": call.kernel.engine}
        tiles = plan.tiling(step).tiles if plan.calls else 1
        cycles = round(self.predicted.chips[chip].calls[step].cycles) if self.predicted is not None else None
        return {**head, "macs": call.geometry.macs(), "tiles": tiles, "cycles": cycles}

    def _port(self, port: Port) -> dict[str, Any]:
        dtype, shape = self.shapes[port.name]
        return {"name": port.name, "type": dtype.value, "shape": list(shape), **api.port_entries(port)}


def compile(
    model: str | Path,
    target: str | Path | Target,
    cut: Cut,
    *,
    inputs: str | Path | None = None,
    input_types: Mapping[str, DType | str] | None = None,
    dialect: api.Dialect | None = None,
    dims: Mapping[str, int] | None = None,
    states: Mapping[str, str] | None = None,
    context: int | None = None,
    quantised_io: bool = False,
    save_after: tuple[str, Path] | None = None,
    options: Options | None = None,
    on_stage: api.Stage | None = None,
) -> Distributed:
    """Compile an ONNX model for several chips; see ``deeploy.compile`` for what both have in common.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    machine = target if isinstance(target, Target) else targets.load(target)
    options = options or Options()
    check_code(machine)
    api.check_sample(inputs)
    topology = topology_of(machine, cut.topology)
    _check_count(cut)
    _check_members(machine, topology, options)
    clock = api.Clock({}, on_stage)
    wanted = api.Wanted(inputs, api.element_types(input_types or {}), dialect, dims or {}, states or {}, context, quantised_io, save_after)
    found = api.lowered(clock, Path(model), machine, wanted)
    if found.shorter is not None:
        found.check(clock("bind", assemble, "network", found.graph, *kernels_of(machine, machine_of(machine, options))))
    system = clock("partition", partitioned, found, cut, machine, topology, options)
    return build(system, found, Path(model).name, machine, topology, options, clock)


@dataclass(frozen=True, eq=False)
class Planned:
    """A pipeline of a target for which no code is made: memory and times only."""

    plan: DevicePlan
    model: str
    target: str
    notes: tuple[str, ...]

    def contents(self) -> dict[str, Any]:
        """What ``plan.json`` says."""
        from deeploy.backend.describe import GENERATOR

        why = f"target {self.target} is for planning only: no code is made"
        return {"generator": GENERATOR, "model": self.model, "target": self.target, "planning": why, **self.plan.contents()}

    def write(self, folder: str | Path) -> None:
        """Write ``plan.json``, in place of an older project of ours; see ``deeploy.backend.project``."""
        from deeploy.backend import project

        project.write(Path(folder), {PLAN: json.dumps(self.contents(), indent=1) + "\n"})


def plan(
    model: str | Path,
    target: str | Path | Target,
    cut: Cut,
    *,
    inputs: str | Path | None = None,
    input_types: Mapping[str, DType | str] | None = None,
    dialect: api.Dialect | None = None,
    dims: Mapping[str, int] | None = None,
    states: Mapping[str, str] | None = None,
    context: int | None = None,
    quantised_io: bool = False,
    save_after: tuple[str, Path] | None = None,
    options: Options | None = None,
    on_stage: api.Stage | None = None,
) -> Planned:
    """Plan a pipeline for a target with a ``device``, for which no code is made; arguments are those of ``compile``.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    machine = target if isinstance(target, Target) else targets.load(target)
    if cut.partition != "pipeline":
        raise UsageError(f"target {machine.name} is for planning pipelines only", "Say --partition pipeline.")
    if machine.device is None:
        raise UsageError(f"target {machine.name} has no figures of devices to plan with", "Compile for it: deeploy.chips.compile.")
    api.check_sample(inputs)
    _check_count(cut)
    balance = _balance(cut)
    members = load_members(cut.topology) if cut.topology is not None else {}
    clock = api.Clock({}, on_stage)
    wanted = api.Wanted(inputs, api.element_types(input_types or {}), dialect, dims or {}, states or {}, context, quantised_io, save_after)
    found = api.lowered(clock, Path(model), machine, wanted)
    result = clock("partition", plan_devices, found.graph, machine, cut.chips, balance, options or Options(), members)
    return Planned(result, Path(model).name, machine.name, (*found.notes, *result.notes))


def _check_count(cut: Cut) -> None:
    if cut.chips != "auto" and cut.chips < 1:
        raise UsageError(f"--chips {cut.chips}: a system has at least one chip", "For example: --chips 4")


def _check_members(target: Target, topology: Topology, options: Options) -> None:
    """Raise ``UsageError`` where the topology says of a chip what the target does not have."""
    for chip in sorted(topology.members):
        try:
            machine_of(target, own_options(options, topology, chip))
        except UsageError as error:
            raise UsageError(f"chip {chip} of the topology: {error.what}", error.remedy) from error


def topology_of(target: Target, file: Path | None) -> Topology:
    """The topology of a file, else the target's.

    Raises:
        UsageError: there is none.
    """
    if file is not None:
        return load_topology(file, target.topology)
    if target.topology is None:
        raise UsageError(f"target {target.name} does not say how its chips are joined", "Name a file: --topology FILE (docs/chips.md).")
    return target.topology


def partitioned(found: api.Lowered, cut: Cut, target: Target, topology: Topology, options: Options) -> System:
    """Cut a lowered graph.

    Raises:
        UsageError, FitError, UnsupportedError: it cannot be cut so.
    """
    if cut.partition == "tensor":
        return _tensor(found, cut, target, topology, options)
    if cut.partition == "pipeline":
        return _pipeline(found, cut, target, topology, options)
    raise UsageError(f"--partition {cut.partition} is unknown", "Use --partition tensor or --partition pipeline.")


def _tensor(found: api.Lowered, cut: Cut, target: Target, topology: Topology, options: Options) -> System:
    """Every layer over all chips; what is claimed of that is proved."""
    if cut.chips == "auto":
        raise UsageError("--chips auto: only pipelines know how many chips they need", "Name a number, or say --partition pipeline.")
    kernels, _ = kernels_of(target, machine_of(target, options))

    def declare(node: Node) -> Any:
        return declarations(kernels, node)

    result = partition(found.graph, cut.chips, topology, declare, costs_of(target, topology, options))
    prove(found.graph, declare, result)
    return joined(result.system, lambda node: any(declare(node)))


def costs_of(target: Target, topology: Topology, options: Options) -> Costs:
    """What a target's timing says of messages, and the planner of graphs of one call; nothing, where there is no timing."""
    timing, machine = target.timing, machine_of(target, options)
    if timing is None or target.is_flat:
        return Costs()
    kernels, off = kernels_of(target, machine)
    second = topology.mhz * 1e6
    known: dict[object, Effort] = {}

    def effort(graph: gs.Graph) -> Effort:
        program = assemble("probe", graph, kernels, off)
        key = signature(program)
        if key not in known:
            try:
                plan = make_plan(program, target, machine, options.seconds)
            except FitError:  # which is said of the chip that it does not fit on
                return Effort()
            call = plan.program.calls[0]
            least = overhead(call, target) + once(call, False, target) + fork(call, target)
            known[key] = Effort(walk(plan).cycles / second, least / second)
        return known[key]

    link = next((kernel.name for kernel in kernels if kernel.link is not None), "default")
    return Costs((timing.loops.layer + timing.tile + timing.kernel(link).call) / second, effort)


def _pipeline(found: api.Lowered, cut: Cut, target: Target, topology: Topology, options: Options) -> System:
    """Stages of the network's depth, one behind the other."""
    return pipelined(found.graph, target, cut.chips, _balance(cut), topology, options).system


def _balance(cut: Cut) -> Balance:
    if cut.balance not in BALANCES:
        raise UsageError(f"--balance {shorten(cut.balance)} is unknown", f"Use one of {', '.join(BALANCES)}.")
    return next(name for name in BALANCES if name == cut.balance)


def _clocks(target: Target, topology: Topology) -> tuple[str, ...]:
    """What to mind where chips of a system run at another clock than a chip alone."""
    if target.timing is None or target.timing.mhz == topology.mhz:
        return ()
    clocks = f"the topology's chips run at {topology.mhz:g} MHz, {target.name} alone at {target.timing.mhz:g} MHz"
    return (f"{clocks}: compare cycles, or times with those of --chips 1",)


def build(
    system: System, found: api.Lowered, model: str, target: Target, topology: Topology, options: Options, clock: api.Clock
) -> Distributed:
    """Plan every chip of a system; chips that differ in the values of constants and in their peers are planned once."""
    clock("check", check, system, topology)
    plans: list[Plan] = []
    leads: list[int] = []
    known: dict[object, tuple[int, Program]] = {}
    written: dict[object, int] = {}
    for chip, graph in enumerate(system.chips):
        own = as_member(target, system, chip, topology)
        limits = own_options(options, topology, chip)
        machine = machine_of(own, limits)
        program = clock("bind", assemble, "network", graph, *kernels_of(own, machine))
        key = signature(program), own.memories, repr(machine), tuple(t.name for t in (*graph.inputs, *graph.outputs))
        if key in known:
            first, planned = known[key]
            plans.append(clock("plan", carried, plans[first], planned, program))
        else:
            known[key] = chip, program
            plans.append(clock("plan", _planned, chip, program, own, machine, limits))
        leads.append(written.setdefault((key, wording(plans[chip])), chip))
    notes = (*found.notes, *system.notes, *_clocks(target, topology))
    return Distributed(
        system, topology, target, tuple(plans), tuple(leads), model, found.inputs, found.outputs, found.dialect, notes, clock.seconds
    )


def _planned(chip: int, program: Program, target: Target, machine: Machine, options: Options) -> Plan:
    try:
        return api.plan_program(program, target, machine, options)
    except FitError as error:
        raise FitError(f"chip {chip}: {error.what}", error.remedy) from error


def as_member(target: Target, system: System, chip: int, topology: Topology) -> Target:
    """The target at the clock of the system, with the memory reserved that queues take at both ends.

    For each chip that it sends to, and for each that it receives from, there is room for as many messages as may wait; rounded up, so that
    chips whose messages hardly differ have equally much memory left.
    """
    engines = {kernel.engine for kernel in target.kernels if kernel.link is not None}
    levels = {engine.memory for engine in target.engines if engine.name in engines and not target.is_flat}
    largest: dict[tuple[int, int], int] = {}
    for message in system.messages:
        ends = message.sender[0], message.receiver[0]
        if chip in ends:
            largest[ends] = max(largest.get(ends, 0), message.bytes)
    memories = []
    for memory in target.memories:
        sizes = [-(-size // memory.alignment) * memory.alignment for size in largest.values()]
        more = -(-topology.queue * sum(sizes) // PAGE) * PAGE if memory.name in levels else 0
        memories.append(replace(memory, reserved=memory.reserved + more))
    timing = target.timing if target.timing is None else replace(target.timing, mhz=topology.mhz)
    return replace(target, memories=tuple(memories), timing=timing)
