"""The first stages: a model is imported and lowered, with generated kernels for what the target has none for where that is wanted."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeAlias, TypeVar

import onnx

from deeploy.backend import project
from deeploy.driver.loops import with_loops
from deeploy.errors import ModelError, UnsupportedError, UsageError, shorten, suggest
from deeploy.frontend import CustomShapes, Imported, import_model, import_read, import_states
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.frontend.dialect_types import Integers, is_dialect, resolve_input_types
from deeploy.frontend.dynamic_axis import check_shapes
from deeploy.frontend.integer_graphs import computes_integers, write_requantisations
from deeploy.frontend.io import Port, check_integer_ports, describe_ports, remove_io_quantisation
from deeploy.frontend.lower import assign_types
from deeploy.frontend.lower.shared_reads import TIES
from deeploy.frontend.pins import Pinned
from deeploy.frontend.rounds import LOOPS, Body
from deeploy.frontend.states import KnownState, append_states, begin_states, keep_states
from deeploy.frontend.streaming import Streamed, stream_graph
from deeploy.frontend.type_legalisation import note_narrow, packed_types
from deeploy.ir.rewriting import rewrite_graph
from deeploy.ir.surgeon import write_model
from deeploy.ir.target import Target
from deeploy.ir.types import WHOLE, DType
from deeploy.ir.values import Graph
from deeploy.operators.views import POSITION
from deeploy.options import Options, Stage
from deeploy.options.texts import parse_stream
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.binding.kernels import custom_type, inferred_shapes
from deeploy.planning.plan import Machine
from deeploy.planning.planner.machine import kernels_of
from deeploy.planning.program import Program

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Tried: TypeAlias = "tuple[Lowered | None, UnsupportedError | ModelError | None]"


class Stopwatch:
    """Runs stages and adds up their wall time."""

    def __init__(self, on_stage: Stage | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.on_stage = on_stage

    def __call__(self, name: str, stage: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        """What a stage returns."""
        if self.on_stage is not None:
            self.on_stage(name)
        start = time.perf_counter()
        result = stage(*arguments, **named)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        return result


@dataclass(frozen=True, eq=False)
class Lowered:
    """A model as the target's passes leave it.

    Attributes:
        dialect: whether its integers are declared, by operators of the dialect or ``--dialect``, or recognised in a float graph.
        notes: what the user is told.
        shorter: the same one step of its states before, where that is a check.
        pinned: inputs of the model that are constants.
        target: with the kernels that are the model's own.
        streamed: how it runs along an input that never ends; None where it does not.
    """

    graph: Graph
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dialect: Integers
    notes: tuple[str, ...]
    shorter: Graph | None
    target: Target
    pinned: tuple[Pinned, ...] = ()
    streamed: Streamed | None = None

    def check(self, program: Program) -> None:
        """Raise where a shape depends on the rows of the states that the graph takes for fixed."""
        if self.shorter is not None:
            check_shapes(self.graph, self.shorter, program.dynamic_axes)


def check_options(options: Options) -> None:
    """Raise UsageError unless the file of a sample, where one is named, is there, and sizes and element types are known."""
    if options.inputs is not None and not Path(options.inputs).is_file():
        raise UsageError(f"there is no file {shorten(str(options.inputs))}", "Give the path of an npz file.")
    _ = input_types_of(options), options.budgets, options.capacities


def input_types_of(options: Options) -> dict[str, DType]:
    """Element types of inputs by name.

    Raises:
        UsageError: there is no such type.
    """
    known = {name: dtype for dtype in WHOLE for name in (dtype.value, dtype.name.lower())}
    types = {name: given if isinstance(given, DType) else known.get(given) for name, given in options.input_types.items()}
    if unknown := [str(options.input_types[name]) for name, dtype in types.items() if dtype is None]:
        raise UsageError(
            f"{unknown[0]} is no element type", f"{suggest(unknown[0], known)}Use one of {', '.join(t.name.lower() for t in WHOLE)}."
        )
    return {name: dtype for name, dtype in types.items() if dtype is not None}


def lower_model(stopwatch: Stopwatch, model: Path, target: Target, options: Options, known: Sequence[KnownState] = ()) -> Lowered:
    """Import a model and run the target's passes.

    Args:
        known: states of other networks of the project.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    shapes = partial(inferred_shapes, target.kernels)  # of operators that only the target knows
    states = (options.states, options.context, tuple(known))
    source = stopwatch("import", import_states, model, dict(options.dims), shapes, *states, options.pins, options.unroll, options.exact)
    target, source = _with_loops(stopwatch, source, target, options, shapes)
    source = _check_stream(source, options)
    graph, dialect, notes, streamed = stopwatch("lower", lower_graph, source.graph, source, target, options)
    if streamed is not None:
        source = replace(source, pairs=streamed.pairs)
    state_names = {name for pair in source.pairs for name in (pair.past, pair.present) if pair.axis is None}

    def finished(graph: Graph) -> tuple[Graph, dict[str, tuple[float, int]]]:
        graph, stripped = remove_io_quantisation(graph, state_names) if options.quantised_io else (graph, {})
        if options.quantised_io:
            check_integer_ports(graph, {name for pair in source.pairs for name in (pair.past, pair.present)})
        return keep_states(graph, source.pairs, {} if streamed is None else streamed.masks, not target.is_flat), stripped

    graph, stripped = finished(graph)
    sources, results = describe_ports(graph, dialect != "", {**source.scales, **stripped})
    shorter = None
    if source.shorter is not None:
        shorter, _, _, _ = stopwatch("lower", lower_graph, source.shorter, source, target, replace(options, inputs=None, save_after=None))
        shorter, _ = finished(shorter)
    inputs = tuple(port for port in sources if port.name != POSITION)
    results = [replace(port, labels=source.labels.get(port.name, ())) for port in results]
    return Lowered(graph, inputs, tuple(results), dialect, (*source.notes, *notes), shorter, target, source.pinned, streamed)


def _check_stream(source: Imported, options: Options) -> Imported:
    """The model; raise UsageError where it has states of its own, and one of its inputs shall stream."""
    if options.stream is not None and (source.pairs or source.begun):
        told = f"--stream {shorten(options.stream)}: the model carries states itself"
        raise UsageError(told, "Leave --stream out, and feed it chunk by chunk (docs/state.md).")
    return source


def lowered_for_chips(stopwatch: Stopwatch, model: Path, target: Target, options: Options) -> Lowered:
    """Lowers without the pass that makes constants views of each other, of which chips may hold other parts."""
    return lower_model(stopwatch, model, replace(target, passes=tuple(step for step in target.passes if step.name != TIES.name)), options)


def _with_loops(stopwatch: Stopwatch, source: Imported, target: Target, options: Options, shapes: CustomShapes) -> tuple[Target, Imported]:
    """The target with kernels for the loops of a model that stay loops, and the model with nodes of these."""
    loop = next((node for node in source.graph.nodes if node.domain == LOOPS), None)
    if loop is not None and (source.shorter is not None or is_dialect(source.graph)):
        raise UnsupportedError(
            f"node {shorten(loop.name)} ({loop.op}) has more rounds than --unroll {options.unroll} allows nodes, and cannot stay a loop "
            f"{'beside states that grow' if source.shorter is not None else 'in the integer dialect'}",
            f"Allow more: --unroll {10 * options.unroll}",
        )
    if loop is None:
        return target, source
    plain = replace(options, inputs=None, save_after=None, dialect="standard", stream=None)

    def lower(body: Body, flat: Target) -> tuple[Graph, Target]:
        graph, flat = with_loops(import_read(body.model, None, shapes, options.unroll), flat, lower)
        return lower_graph(graph, Imported(graph, narrow=source.narrow), flat, plain)[0], flat

    graph, target = stopwatch("loops", with_loops, source.graph, target, lower)
    return target, replace(source, graph=graph)


def lower_graph(graph: Graph, model: Imported, target: Target, options: Options) -> tuple[Graph, Integers, list[str], Streamed | None]:
    """Assign element types and run the target's passes.

    Returns: the graph, what says that it is in the dialect, notices, and what is streamed.
    """
    saved, path = options.save_after or (None, Path())
    if saved is not None and saved not in [p.name for p in target.passes]:
        raise _unknown_pass(saved, [p.name for p in target.passes])
    graph, dialect, notes = _assign_types(graph, model, target, options)
    streamed = None
    if options.stream is not None:
        streamed = stream_graph(graph, parse_stream(options.stream), options.stream_mode == "window")
        graph, notes = streamed.graph, [*notes, *streamed.stream.tell()]
    for step in target.passes:
        graph = step(graph)
        if step.name == saved:
            project.write_file(path, write_model(graph).SerializeToString(), "--save-after")
    graph = append_states(note_narrow(graph, model.narrow | packed_types(options.weight_bits or 0)), model.pairs)
    return begin_states(graph, model.begun), dialect, notes, streamed


def _unknown_pass(name: str, known: Sequence[str]) -> UsageError:
    return UsageError(f"there is no pass {shorten(name)}", f"{suggest(name, known)}Passes of this target: {', '.join(known)}.")


def graph_after(model: Path, target: Target, name: str, options: Options) -> Graph:
    """A model's graph behind the pass of a name, or before the first one where that is ``import``.

    Raises:
        UsageError: the target has no such pass.
        DeeployError: the model cannot be imported, or not be lowered so far.
    """
    names = ["import", *(step.name for step in target.passes)]
    if name not in names:
        raise _unknown_pass(name, names)
    graph = import_model(model, dict(options.dims), partial(inferred_shapes, target.kernels), options.pins)
    graph, _, _ = _assign_types(graph, Imported(graph), target, options)
    return rewrite_graph(graph, target.passes[: names.index(name)])


def _assign_types(graph: Graph, model: Imported, target: Target, options: Options) -> tuple[Graph, Integers, list[str]]:
    """The graph, with element types where it is in the dialect or computes integers only; what says so; and notices."""
    written = options.dialect is None and not is_dialect(graph) and computes_integers(graph)
    if options.dialect == "standard" or not (written or options.dialect == "integer" or is_dialect(graph)):
        return graph, "", resolve_input_types(graph, input_types_of(options), False)[1]
    samples = None
    if options.inputs is not None:
        wanted = [Expected(t.name, t.shape) for t in graph.inputs]
        samples = load_arrays(Path(options.inputs), wanted, "input", model.pinned).samples
    types, notes = resolve_input_types(graph, input_types_of(options), True, samples)
    if written and any(dtype.is_float for dtype in types.values()):
        return graph, "", []
    try:
        typed = assign_types(write_requantisations(graph, types), types, partial(custom_type, target.kernels))
    except (ModelError, UnsupportedError) as error:
        if not written:
            raise
        return graph, "", [f"the model computes integers only, but stays in floats: {error.what}"]
    if written:
        notes.append("the model computes integers only, in floats: it is taken for integers; --dialect standard keeps floats")
    return typed, "recognised" if written else "declared", notes


def lower_with_fallback(
    stopwatch: Stopwatch, model: Path, target: Target, options: Options, known: Sequence[KnownState], machine: Machine
) -> Lowered:
    """Lowers a model as ``lower_model`` does, with generated kernels for what the target refuses.

    Args:
        machine: that plans may use.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    from deeploy.fallback import fill_model

    engine = _fallback_engine(target, options.fallback_engine)

    def refusal(path: Path, given: Target, wanted: Options, known: Sequence[KnownState] = known) -> _Tried:
        try:
            lowered_graph = lower_model(stopwatch, path, given, wanted, known)
            assemble_program("probe", lowered_graph.graph, *kernels_of(lowered_graph.target, machine))
        except (UnsupportedError, ModelError) as error:
            return None, error
        return lowered_graph, None

    filled_graph, error = refusal(model, target, options)
    if filled_graph is not None:
        return filled_graph
    with tempfile.TemporaryDirectory() as scratch:
        probe = Path(scratch) / "probe.onnx"

        def why(alone: onnx.ModelProto) -> str:
            probe.write_bytes(alone.SerializeToString())
            _, error = refusal(probe, target, Options(dialect="standard"), ())
            return "" if error is None else error.what

        generated = stopwatch("fallback", fill_model, model, options.dims, options.pins, engine, why)
        (Path(scratch) / model.name).write_bytes(generated.model.SerializeToString())
        target = replace(target, kernels=(*target.kernels, *generated.kernels))
        filled_graph, error = refusal(Path(scratch) / model.name, target, replace(options, pins={})) if generated.kernels else (None, error)
    if filled_graph is None:
        assert error is not None  # or there would be a graph
        if isinstance(error, ModelError):  # nothing helps what is not valid
            raise error
        raise type(error)("\n  ".join([error.what, *generated.reasons]), error.remedy) from error
    return replace(filled_graph, notes=(*filled_graph.notes, *generated.notes), pinned=generated.pinned)


def _fallback_engine(target: Target, chosen: str | None) -> str:
    """The engine that generated kernels run on: the one that was named, or the first; cores compute there."""
    links = {kernel.engine for kernel in target.kernels if kernel.link is not None}
    able = [engine.name for engine in target.engines if not engine.accelerator and engine.name not in links]
    able = able or [kernel.engine for kernel in target.kernels[:1]]
    if chosen is not None and chosen not in able:
        raise UsageError(f"--fallback-engine {shorten(chosen)}: C runs on {' or '.join(able)} of target {target.name}", "Name one of them.")
    return able[0] if chosen is None else chosen
