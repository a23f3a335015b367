"""The Python interface: ``deeploy.compile`` and what it returns."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from deeploy import target as targets
from deeploy.errors import FitError, ModelError, NoKernelError, UnsupportedError, UsageError, shorten
from deeploy.frontend import Growing, import_states, readers_first
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.frontend.dialect_types import is_dialect, resolve_input_types
from deeploy.frontend.growing import check_shapes
from deeploy.frontend.io import Port, ports, strip_quantisation
from deeploy.frontend.lower import assign_types
from deeploy.frontend.positions import POSITION
from deeploy.frontend.states import Known, append, begin
from deeploy.graph.target import Target
from deeploy.graph.types import DType
from deeploy.midend.assemble import assemble
from deeploy.midend.bind import custom_type, inferred_shapes
from deeploy.midend.machine import Options, check_code, kernels_of, machine_of, shared
from deeploy.midend.plan import LevelUse, Machine, Plan
from deeploy.midend.planner import make_plan
from deeploy.midend.program import Program
from deeploy.midend.share import groups, known_states, share
from deeploy.prefixes import check_files, check_prefixes, own_dims, own_file

if TYPE_CHECKING:
    from deeploy.simulate.timing import Run

Dialect = Literal["integer", "standard"]
Stage = Callable[[str], None]

MOST_BYTES = 2**31 - 1  # of an arena: offsets are constants of the type int


@dataclass(frozen=True, eq=False)
class Network:
    """One compiled network of a project."""

    plan: Plan
    model: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dialect: bool
    notes: tuple[str, ...]

    @property
    def program(self) -> Program:
        return self.plan.program

    def description(self) -> dict[str, Any]:
        """What is known of the network beyond its plan, for ``deploy.json``."""
        from deeploy.simulate.timing import summary

        ports = {"inputs": [port_entries(p) for p in self.inputs], "outputs": [port_entries(p) for p in self.outputs]}
        return {"model": self.model, **ports, "timing": summary(self.predicted) if self.predicted is not None else None}

    @cached_property
    def predicted(self) -> Run | None:
        """One inference as predicted, where the target says how long things take."""
        from deeploy.simulate.walk import walk

        return walk(self.plan) if not self.plan.target.is_flat and self.plan.target.timing is not None else None


def port_entries(port: Port) -> dict[str, Any]:
    """What ``deploy.json`` says of an input or output beyond its buffer."""
    entries = asdict(port)
    del entries["name"]
    return {**entries, "equality": port.equality.value}


@dataclass(frozen=True, eq=False)
class Compiled:
    """The result of ``deeploy.compile``: one or several networks, planned for one target."""

    networks: Mapping[str, Network]
    seconds: Mapping[str, float]

    @property
    def network(self) -> Network:
        """The only network, or the first one."""
        return next(iter(self.networks.values()))

    @property
    def plan(self) -> Plan:
        return self.network.plan

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user is told."""
        return tuple(note for network in self.networks.values() for note in network.notes)

    @property
    def memory(self) -> Mapping[str, LevelUse]:
        """Bytes used of every memory level."""
        return self.plan.memory

    def files(self) -> Mapping[str, str | bytes]:
        """The emitted project: relative paths and contents."""
        from deeploy.backend.emit import emit

        files = emit({k: n.plan for k, n in self.networks.items()}, {k: n.description() for k, n in self.networks.items()})
        check_files(self.networks, files)
        return {**files, **self._reports(str(files["deploy.json"]))}

    def _reports(self, manifest: str) -> Mapping[str, str]:
        """The files of the project that are made for people."""
        import json

        from deeploy.report.explain import explanations
        from deeploy.report.page import page
        from deeploy.simulate.timeline import timeline
        from deeploy.simulate.trace import trace

        contents = json.loads(manifest)
        entries = {entry["name"]: entry for entry in contents.get("networks") or [contents]}
        runs = {name: (n.plan, n.predicted) for name, n in self.networks.items() if n.predicted is not None}
        reasons = {name: explanations(n.plan, entries[name]) for name, n in self.networks.items() if n.plan.offered}
        files = {"report.html": page(contents, {name: timeline(run) for name, (_, run) in runs.items()}, reasons)}
        if runs:
            files["trace.json"] = trace(runs)
        if reasons:
            files["explain.json"] = json.dumps({"networks": reasons}, separators=(",", ":")) + "\n"
        return files

    def write(self, folder: str | Path) -> None:
        """Write the project, in place of an older one of ours; see ``deeploy.backend.project``."""
        import json

        from deeploy.backend import project

        folder = Path(folder)
        project.check_destination(folder)
        start = time.perf_counter()
        files = dict(self.files())
        seconds = {**self.seconds, "emit": time.perf_counter() - start}
        files["timings.json"] = json.dumps({"total": sum(seconds.values()), **seconds}, indent=1) + "\n"
        project.write(folder, files)

    def run(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray], sanitize: bool = False) -> list[np.ndarray]:
        """Build the C for this machine and run one inference; returns the outputs in order."""
        from deeploy.backend import project
        from deeploy.runners.host import Host

        sample = self._sample(inputs)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "project"
            self.write(folder)
            entry = project.select_network(project.read_manifest(folder), next(iter(self.networks)))
            return [stack[0] for stack in Host(sanitize).run(folder, entry, [sample]).outputs]

    def interpret(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """One inference by the kernels' NumPy references."""
        from deeploy.simulate.interpreter import outputs

        return outputs(self.network.program, self._sample(inputs))

    def interpret_sequence(self, steps: Sequence[Sequence[np.ndarray] | Mapping[str, np.ndarray]]) -> list[list[np.ndarray]]:
        """Consecutive inferences of one sequence by the kernels' NumPy references; the states begin empty."""
        from deeploy.simulate.interpreter import Rows, outputs

        rows = Rows()
        return [outputs(self.network.program, self._sample(step), rows) for step in steps]

    def _sample(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> list[np.ndarray]:
        if isinstance(inputs, Mapping):
            missing = [p.name for p in self.network.inputs if p.name not in inputs]
            if missing:
                raise UsageError(f"input {shorten(missing[0])} is missing", "Pass an array for every input of the model.")
            inputs = [inputs[p.name] for p in self.network.inputs]
        program = self.network.program
        if len(inputs) != len(program.inputs):
            raise UsageError(f"{len(inputs)} arrays were passed for {len(program.inputs)} inputs", "Pass one array per input.")
        result = []
        for array, name in zip(inputs, program.inputs, strict=True):
            buffer = program.buffers[name]
            if tuple(np.shape(array)) != buffer.shape:
                raise UsageError(
                    f"input {shorten(buffer.tensor)} has shape {list(np.shape(array))} instead of {list(buffer.shape)}",
                    "Pass arrays of the model's own shapes.",
                )
            result.append(np.asarray(array, buffer.dtype.numpy))
        return result


def compile(
    model: str | Path | Mapping[str, str | Path],
    target: str | Path | Target = "generic",
    *,
    inputs: str | Path | None = None,
    input_types: Mapping[str, DType | str] | None = None,
    dialect: Dialect | None = None,
    dims: Mapping[str, int] | None = None,
    states: Mapping[str, str] | None = None,
    context: int | None = None,
    quantised_io: bool = False,
    save_after: tuple[str, Path] | None = None,
    options: Options | None = None,
    fallback: bool | str = False,
    on_stage: Stage | None = None,
) -> Compiled:
    """Compile an ONNX model, or several into one project (a mapping from C prefix to model).

    Args:
        target: name or folder of a target, or the target itself.
        inputs: npz with a sample, which decides undeclared input types of dialect graphs.
        input_types: element types of inputs by name, for dialect graphs.
        dims: values of symbolic dimensions; of one of several networks as ``PREFIX:NAME``.
        states: outputs by input that are one state, as ``past_k=present_k`` (docs/state.md); without it, those that are plain.
        context: rows that states hold at most, where the model leaves it open.
        quantised_io: make the integer tensors at the edges the network's inputs and outputs.
        save_after: name of a pass, and where to save the graph as ONNX after it; with several networks, ``FILE.PREFIX.onnx``.
        options: how much of the target may be used (``deeploy.Options``).
        fallback: take generated C for operators without a kernel (docs/fallback.md), on the engine of that name, or on the first one.
        on_stage: called with the name of each stage as it begins.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    machine = target if isinstance(target, Target) else targets.load(target)
    options = options or Options()
    check_sample(inputs)
    models = {"network": model} if isinstance(model, str | Path) else dict(model)
    check_prefixes(models)
    resources = _resources(machine, options, len(models))
    clock = Clock({}, on_stage)
    networks, graphs = dict[str, Network](), dict[str, gs.Graph]()
    own = {prefix: own_dims(dims or {}, prefix, models) for prefix in models}
    for prefix in readers_first(models, own, states or {}):
        path = models[prefix]
        saved = save_after if len(models) == 1 or save_after is None else own_file(save_after, prefix)
        known = known_states(network.program for network in networks.values())
        wanted = Wanted(inputs, element_types(input_types or {}), dialect, own[prefix], states or {}, context, quantised_io, saved, known)
        if fallback is False:
            found = lowered(clock, Path(path), machine, wanted)
        else:
            found, machine = _with_fallback(clock, Path(path), machine, wanted, (resources, fallback))
        planned = _bind_and_plan(clock, prefix, found.graph, machine, resources, options, fallback is False and not found.dialect)
        found.check(planned.program)
        graphs[prefix] = found.graph
        networks[prefix] = Network(planned, Path(path).name, found.inputs, found.outputs, found.dialect, found.notes)
    networks = {prefix: networks[prefix] for prefix in models}
    if len(networks) > 1:
        networks = _together(networks, lambda name, given: _bind_and_plan(clock, name, graphs[name], machine, given, options))
    return Compiled(networks, clock.seconds)


@dataclass(frozen=True)
class Wanted:
    """What the user says of one model; see ``compile``."""

    inputs: str | Path | None
    types: Mapping[str, DType]
    dialect: Dialect | None
    dims: Mapping[str, int]
    states: Mapping[str, str]
    context: int | None
    quantised_io: bool
    save_after: tuple[str, Path] | None = None
    known: tuple[Known, ...] = ()  # states of other networks


@dataclass(frozen=True, eq=False)
class Lowered:
    """A model as the target's passes leave it; ``shorter``: the same one step of its states before, where that is a check."""

    graph: gs.Graph
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dialect: bool
    notes: tuple[str, ...]
    shorter: gs.Graph | None

    def check(self, program: Program) -> None:
        """Raise where a shape depends on the rows of the states that the graph takes for fixed."""
        if self.shorter is not None:
            check_shapes(self.graph, self.shorter, program.live)


def lowered(clock: Clock, model: Path, target: Target, wanted: Wanted) -> Lowered:
    """Import a model and run the target's passes.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    w = wanted
    source = clock("import", import_states, model, dict(w.dims), _shape_rule(target), w.states, w.context, w.known)
    graph, is_integer, notes = clock("lower", _lower, source.graph, source, target, w.inputs, w.types, w.dialect, w.save_after)
    stripped = strip_quantisation(graph) if w.quantised_io else {}
    sources, results = ports(graph, is_integer, stripped)
    shorter = None
    if source.shorter is not None:
        shorter, _, _ = clock("lower", _lower, source.shorter, source, target, None, w.types, w.dialect, None)
        if w.quantised_io:
            strip_quantisation(shorter)
    inputs = tuple(port for port in sources if port.name != POSITION)
    return Lowered(graph, inputs, tuple(results), is_integer, (*source.notes, *notes), shorter)


def _with_fallback(clock: Clock, model: Path, target: Target, wanted: Wanted, how: tuple[Machine, bool | str]) -> tuple[Lowered, Target]:
    """As ``lowered``, with generated kernels for what the target refuses; and the target with these kernels.

    Args:
        how: the machine that plans may use, and the engine of the kernels, or True for the first one.
    """
    from deeploy.fallback import fill

    resources, chosen = how
    engine = _fallback_engine(target, chosen)

    def refusal(path: Path, given: Target, w: Wanted) -> tuple[Lowered | None, UnsupportedError | ModelError | None]:
        try:
            found = lowered(clock, path, given, w)
            assemble("probe", found.graph.copy(), *kernels_of(given, resources))
        except (UnsupportedError, ModelError) as error:
            return None, error
        return found, None

    found, error = refusal(model, target, wanted)
    if found is not None:
        return found, target
    with tempfile.TemporaryDirectory() as scratch:
        probe = Path(scratch) / "probe.onnx"

        def why(alone: onnx.ModelProto) -> str:
            probe.write_bytes(alone.SerializeToString())
            _, error = refusal(probe, target, Wanted(None, {}, "standard", {}, {}, None, False))
            return "" if error is None else error.what

        filled = clock("fallback", fill, model, wanted.dims, engine, why)
        (Path(scratch) / model.name).write_bytes(filled.model.SerializeToString())
        target = replace(target, kernels=(*target.kernels, *filled.kernels))
        found, error = refusal(Path(scratch) / model.name, target, wanted) if filled.kernels else (None, error)
    if found is None:
        assert error is not None  # or there would be a graph
        raise type(error)("\n  ".join([error.what, *filled.reasons]), error.remedy) from error
    return replace(found, notes=(*found.notes, *filled.notes)), target


def _fallback_engine(target: Target, chosen: bool | str) -> str:
    """The engine that generated kernels run on: the one that was named, or the first; cores compute there."""
    links = {kernel.engine for kernel in target.kernels if kernel.link is not None}
    able = [engine.name for engine in target.engines if not engine.accelerator and engine.name not in links]
    able = able or [kernel.engine for kernel in target.kernels[:1]]
    if isinstance(chosen, str) and chosen not in able:
        raise UsageError(f"--fallback-engine {shorten(chosen)}: C runs on {' or '.join(able)} of target {target.name}", "Name one of them.")
    return chosen if isinstance(chosen, str) else able[0]


def _resources(target: Target, options: Options, networks: int) -> Machine:
    """The machine that plans may use, without what several networks cannot share."""
    check_code(target)
    resources = machine_of(target, options)
    return shared(resources, target) if networks > 1 else resources


def _together(networks: Mapping[str, Network], again: Callable[[str, Machine], Plan]) -> dict[str, Network]:
    """Networks of one project, with their plans made to share what outlives inferences."""
    plans = share({name: network.plan for name, network in networks.items()}, again)
    leads = groups({name: plan.program for name, plan in plans.items()})
    result = {}
    for name, network in networks.items():
        lead = leads.get(name, name)
        shared = (f"network {name} shares the caches of network {lead}",) if lead != name else ()
        result[name] = replace(network, plan=plans[name], notes=(*network.notes, *shared))
    return result


def _bind_and_plan(
    clock: Clock, prefix: str, graph: gs.Graph, target: Target, machine: Machine, options: Options, may_fill: bool = False
) -> Plan:
    on, off = kernels_of(target, machine)
    try:
        program = clock("bind", assemble, prefix, graph, on, off)
    except NoKernelError as error:
        if not may_fill:
            raise
        raise error.also("try --fallback") from error
    result: Plan = clock("plan", plan_program, program, target, machine, options)
    return result


def plan_program(program: Program, target: Target, machine: Machine, options: Options) -> Plan:
    """The plan of one program on the part of a target that it may use."""
    plan = make_plan(program, target, machine, options.seconds)
    peak = max(use.peak for use in plan.memory.values())
    if target.is_flat and peak > MOST_BYTES:
        raise FitError(
            f"the arena takes {peak} bytes, addresses in the generated code go up to {MOST_BYTES}",
            "Check the shapes, or pin smaller dimensions: --dim NAME=VALUE.",
        )
    return plan


class Clock:
    """Runs stages and adds up their wall time."""

    def __init__(self, seconds: dict[str, float], on_stage: Stage | None) -> None:
        self.seconds = seconds
        self.on_stage = on_stage

    def __call__(self, name: str, stage: Callable[..., Any], *arguments: Any) -> Any:
        if self.on_stage is not None:
            self.on_stage(name)
        start = time.perf_counter()
        result = stage(*arguments)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        return result


def check_sample(inputs: str | Path | None) -> None:
    """Raise unless the file of a sample, where one is named, is there."""
    if inputs is not None and not Path(inputs).is_file():
        raise UsageError(f"there is no file {shorten(str(inputs))}", "Give the path of an npz file.")


def element_types(types: Mapping[str, DType | str]) -> dict[str, DType]:
    """Types of inputs by name."""
    return {name: t if isinstance(t, DType) else _type(t) for name, t in types.items()}


def _type(name: str) -> DType:
    for dtype in DType:
        if name in (dtype.value, dtype.name.lower()):
            return dtype
    raise UsageError(f"{name} is no element type", f"Use one of {', '.join(t.name.lower() for t in DType)}.")


def _lower(
    graph: gs.Graph,
    model: Growing,
    target: Target,
    inputs: str | Path | None,
    types: Mapping[str, DType],
    dialect: Dialect | None,
    save_after: tuple[str, Path] | None,
) -> tuple[gs.Graph, bool, list[str]]:
    """Assign element types and run the target's passes; returns the graph, whether it is in the dialect, and notices."""
    if save_after is not None and save_after[0] not in [p.name for p in target.passes]:
        raise UsageError(f"there is no pass {save_after[0]}", f"Passes of this target: {', '.join(p.name for p in target.passes)}.")
    integer = is_dialect(graph) if dialect is None else dialect == "integer"
    samples = None
    if inputs is not None and integer:
        samples = load_arrays(Path(inputs), [Expected(t.name, tuple(t.shape)) for t in graph.inputs], "input").samples
    resolved, notes = resolve_input_types(graph, types, integer, samples)
    if integer:
        assign_types(graph, resolved, lambda node: custom_type(target.kernels, node))
    for step in target.passes:
        step(graph)
        if save_after is not None and step.name == save_after[0]:
            _save(graph, save_after[1])
    if model.pairs:
        append(graph, model.pairs)
    if model.begun:
        begin(graph, model.begun)
    return graph, integer, notes


def _save(graph: gs.Graph, path: Path) -> None:
    """Save a graph between two passes for a viewer; open limits and empty lists have no ONNX attribute and are left out."""
    from deeploy.backend import project

    copy = graph.copy()
    for node in copy.nodes:
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in node.attrs.items()}
        node.attrs = {name: int(v) if isinstance(v, bool) else v for name, v in plain.items() if v is not None and v != []}
    project.write_file(path, gs.export_onnx(copy, do_type_check=False).SerializeToString(), "--save-after")


def _shape_rule(target: Target) -> Callable[[gs.Node], list[list[int]] | None]:
    """Shapes of operators that only the target knows, from the loop nests of its kernels."""
    return lambda node: inferred_shapes(target.kernels, node)
