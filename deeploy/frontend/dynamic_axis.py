"""Models with an axis of dynamic length, along which caches grow: how long it is when the context is full, and what else depends on that.

A model with an axis of unknown length on its caches is imported with the caches full. One compiled network serves every position
only if nothing but the number of rows depends on it: the model is imported a second time, one row shorter, and compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import onnx

from deeploy.errors import DeeployError, ModelError, UnsupportedError, UsageError, quote_words, shorten, suggest
from deeploy.frontend.labels import Labels
from deeploy.frontend.pins import Pinned
from deeploy.frontend.position_tables import (
    constants_equal,
    differing_constants,
    look_up,
    position_error,
    position_tables,
    slide_constants,
    sliding_constants,
)
from deeploy.frontend.states import CONVERSIONS, KnownState, Pair, check_begun, check_pairs, named_tensor
from deeploy.frontend.structure import open_inputs
from deeploy.frontend.vendors import CARRIED, TFLITE_DOMAIN
from deeploy.ir.nodes import Node
from deeploy.ir.types import DType
from deeploy.ir.values import Graph

Import = Callable[[Mapping[str, int]], Graph]
Fold = Callable[[onnx.ModelProto, Mapping[str, int]], Graph]


OTHERWISE = "is not the number of rows"


@dataclass(frozen=True)
class Imported:
    """An imported model with its pairs; ``shorter`` is the same model with one row less, where lengths are not fixed.

    ``begun`` are states of other networks whose first rows are outputs of this one, which has no caches for inputs; ``pinned`` are
    inputs that are constants. ``narrow`` are narrow types that it has some of its weights in
    (``deeploy.frontend.type_legalisation.narrow_types``).
    """

    graph: Graph
    pairs: tuple[Pair, ...] = ()
    shorter: Graph | None = None
    notes: tuple[str, ...] = ()
    begun: tuple[KnownState, ...] = ()
    pinned: tuple[Pinned, ...] = ()
    labels: Labels = field(default_factory=dict)
    scales: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    narrow: frozenset[DType] = frozenset()


@dataclass(frozen=True)
class _Lengths:
    """The symbols of unknown length: of rows before an inference, and of all rows."""

    before: frozenset[str]
    total: frozenset[str] = field(default_factory=frozenset)


def import_dynamic(
    model: onnx.ModelProto,
    fold: Fold,
    dims: Mapping[str, int],
    declared: Mapping[str, str],
    context: int | None,
    known: Sequence[KnownState] = (),
) -> Imported:
    """Import a model with the pairs that are declared, or found where caches have an unknown length.

    Args:
        fold: imports a model, or a part of this one, with the extents of its symbolic dimensions.
        declared: outputs by input, as ``--state`` says.
        context: most rows of the caches.
        known: the states of the other networks of the project that have caches.

    Raises:
        UsageError: pairs without a length, a context without pairs or too small.
    """
    if known and not has_caches(model, dims, declared):
        return _import_beginning(fold(model, dims), known)
    _check_names(model.graph, declared)

    def load(extents: Mapping[str, int]) -> Graph:
        return fold(model, extents)

    dims_by_value = {a: b for a, b in _find_states(model, dims).items() if a not in declared and b not in declared.values()}
    names = {**declared, **dims_by_value}
    if not names:
        if context is not None:
            raise UsageError("--context: the model has no caches", "Declare them with --state PAST=PRESENT, or leave --context out.")
        return Imported(load(dims))
    notes = _describe_found(dims_by_value)
    lengths = _find_lengths(model.graph, names, dims)
    if not lengths.before:
        graph = load(dims)
        pairs = check_pairs(graph, names)
        dynamic = next(((pair.present, pair.axis) for pair in pairs if pair.axis is not None), None)
        if dynamic is None and context is not None:
            raise UsageError("--context: the states of the model do not grow", "Leave --context out.")
        rows = named_tensor(graph.outputs, dynamic[0]).shape[dynamic[1]] if dynamic is not None else None
        if context is not None and context != rows:
            raise UsageError(
                f"--context {context}: the model was exported with caches of {rows} rows",
                f"Use --context {rows}, or export it with an axis of unknown length.",
            )
        return Imported(graph, tuple(pairs), notes=notes)
    if context is None:
        listed = ", ".join(shorten(s) for s in sorted(lengths.before))
        raise UsageError(
            f"the caches grow along the dimension {listed}: how many rows they hold at most is not known",
            f"Give --context ROWS, or fix the length ({quote_words(['--dim', f'{sorted(lengths.before)[0]}=VALUE'])}).",
        )
    graph, rows = _import_full(load, names, lengths, dims, context, _fixed_extents(model.graph, names))
    shorter = load(_axis_extents(lengths, dims, context - 1, rows)) if context - 1 > rows else None
    if shorter is not None:
        extents = partial(_axis_extents, lengths, dims, rows=rows)
        graph, shorter = _follow_position(model, fold, graph, shorter, extents, (rows, context))
    return Imported(graph, tuple(check_pairs(graph, names)), shorter, notes)


def _describe_found(states: Mapping[str, str]) -> tuple[str, ...]:
    """What the user is told of states that were found."""
    hint = "say otherwise with --state, or fix its length with --dim"
    return tuple(
        f"variable {shorten(past)} carries over from one inference to the next (docs/state.md)"
        if present == f"{past}{CARRIED}"
        else f"state found: {shorten(past)} = {shorten(present)} ({hint})"
        for past, present in states.items()
    )


def has_caches(model: onnx.ModelProto, dims: Mapping[str, int], declared: Mapping[str, str]) -> bool:
    """Whether inputs of a model are states, declared or found."""
    return any(v.name in declared for v in model.graph.input) or bool(_find_states(model, dims))


def _import_beginning(graph: Graph, known: Sequence[KnownState]) -> Imported:
    """A model without caches for inputs, in a project where others have them: what it says of theirs are their first rows."""
    begun = check_begun(graph, known)
    rows = next((t.shape[begun[0].axis] for t in graph.outputs if begun and t.name == begun[0].present), 0)
    note = f"no caches for inputs: an inference begins anew and writes rows 0 to {rows - 1} of {shorten(begun[0].past)}" if begun else ""
    more = f" and {len(begun) - 1} more" if len(begun) > 1 else ""
    return Imported(graph, notes=(note + more,) if begun else (), begun=tuple(begun))


def _follow_position(
    model: onnx.ModelProto,
    fold: Fold,
    graph: Graph,
    shorter: Graph,
    extents: Callable[[int], Mapping[str, int]],
    totals: tuple[int, int],
) -> tuple[Graph, Graph]:
    """Both graphs, in which constants that are others at every position are rows of tables, and masks slide.

    ``totals``: fewest and most rows in all; the fewest are those of one inference.
    """
    names, moving = differing_constants(graph, shorter), sliding_constants(graph, shorter)
    for other in (shorter, fold(model, extents(totals[0] + 1))):
        check_constants(graph, other, names, moving)
    values = position_tables(model, names, lambda part, total: fold(part, extents(total)), range(totals[0], totals[1] + 1)) if names else {}
    shorter_values = {name: value[:-1] for name, value in values.items()}
    return look_up(slide_constants(graph, moving, totals[0]), values), look_up(slide_constants(shorter, moving, totals[0]), shorter_values)


def _import_full(
    load: Import, names: Mapping[str, str], lengths: _Lengths, dims: Mapping[str, int], context: int, sizes: Sequence[int]
) -> tuple[Graph, int]:
    """The model with full caches, and the rows that an inference appends: one of the extents that the model or the user names."""
    first: DeeployError | None = None
    for rows in dict.fromkeys((1, *sorted(dims.values()), *sizes)):
        if not 0 < rows < context:
            continue
        try:
            graph = load(_axis_extents(lengths, dims, context, rows))
        except DeeployError as error:
            first = first or error
            continue
        pairs = [(named_tensor(graph.inputs, past).shape, named_tensor(graph.outputs, present).shape) for past, present in names.items()]
        before, after = next(((a, b) for a, b in pairs if a != b), pairs[0])
        changed = [(m, n) for m, n in zip(before, after, strict=False) if m != n]
        if changed == [(context - rows, context)] or len(before) != len(after):
            return graph, rows
        first = first or ModelError(
            f"the caches grow by more rows than --context {context} has, or by {changed} (from, to)", "Give a larger --context."
        )
    if first is not None:
        raise type(first)(first.what, f"{first.remedy.rstrip('.')}; or try another --context, up to what the model has room for.")
    raise UsageError(f"--context {context} has no room for rows before those of one inference", "Give a larger --context.")


def _fixed_extents(graph: onnx.GraphProto, names: Mapping[str, str]) -> list[int]:
    """The fixed extents of inputs that are no states, smallest first."""
    shapes = [v.type.tensor_type.shape.dim for v in graph.input if v.name not in names]
    return sorted({int(dim.dim_value) for shape in shapes for dim in shape if dim.HasField("dim_value")})


def _axis_extents(lengths: _Lengths, dims: Mapping[str, int], context: int, rows: int) -> dict[str, int]:
    return {**dict.fromkeys(sorted(lengths.total), context), **dict.fromkeys(sorted(lengths.before), context - rows), **dims}


def _open_axes(value: onnx.ValueInfoProto, dims: Mapping[str, int]) -> Iterator[tuple[int, str]]:
    """The axes of unknown length, and what --dim calls them."""
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        unnamed = f"{value.name}:{axis}"
        if not dim.HasField("dim_value") and dim.dim_param not in dims and unnamed not in dims:
            yield axis, dim.dim_param or unnamed


def _find_lengths(graph: onnx.GraphProto, names: Mapping[str, str], dims: Mapping[str, int]) -> _Lengths:
    inputs, outputs = {v.name: v for v in graph.input}, {v.name: v for v in graph.output}
    before, total = set[str](), set[str]()
    for past, present in names.items():
        after = dict(_open_axes(outputs[present], dims))
        for axis, symbol in _open_axes(inputs[past], dims):
            if after.get(axis) != symbol:
                before.add(symbol)
                total |= {after[axis]} if axis in after else set()
    others = {symbol for v in graph.input if v.name not in names for _, symbol in _open_axes(v, dims)}
    named = {s for s in others - before if re.search("total|past", s)}
    known = {dim.dim_param for v in graph.input for dim in v.type.tensor_type.shape.dim}
    return _Lengths(frozenset(before), frozenset((total & known) | (named if before else set())))


def _check_names(graph: onnx.GraphProto, declared: Mapping[str, str]) -> None:
    inputs, outputs = ([v.name for v in values] for values in (open_inputs(graph), graph.output))
    for past, present in declared.items():
        for name, known, kind in ((past, inputs, "input"), (present, outputs, "output")):
            if name not in known:
                listed = ", ".join(shorten(n) for n in known[:10])
                what = f"--state {shorten(past)}={shorten(present)}: the model has no {kind} {shorten(name)}"
                raise UsageError(what, f"{suggest(name, known)}Its {kind}s: {listed}.")


def _find_states(model: onnx.ModelProto, dims: Mapping[str, int]) -> dict[str, str]:
    """Outputs that are an input of unknown length with rows behind it, by that input; by their names where that is not seen.

    Variables of a TensorFlow Lite file are states, too.
    """
    graph = model.graph
    dynamic = {v.name for v in graph.input if any(True for _ in _open_axes(v, dims))}
    makers = {name: node for node in graph.node for name in node.output}
    outputs = {v.name for v in graph.output}

    def origin(name: str) -> str:
        while name in makers and makers[name].op_type in CONVERSIONS:
            name = makers[name].input[0]
        return name

    result: dict[str, str] = {}
    for output in graph.output:
        node = makers.get(origin(output.name))
        if node is not None and node.op_type == "Concat" and len(node.input) == 2:
            source = origin(node.input[0])
            if source in dynamic:
                result.setdefault(source, output.name)
    for name in sorted(dynamic - result.keys()):
        for part in ("past_key_values", "past"):
            for other in ("present", "present_key_values"):
                present = name.replace(part, other)
                if present != name and present in outputs and present not in result.values():
                    result.setdefault(name, present)
    if any(entry.domain == TFLITE_DOMAIN for entry in model.opset_import):
        result |= {v.name: f"{v.name}{CARRIED}" for v in graph.input if f"{v.name}{CARRIED}" in outputs}
    return {name: result[name] for name in (v.name for v in graph.input) if name in result}


def check_constants(graph: Graph, shorter: Graph, looked_up: Sequence[str], moving: Mapping[str, int]) -> None:
    """Compare a model with the same one of fewer rows, as imported: what does not grow with the rows is equal.

    Args:
        looked_up: constants with a value for every position.
        moving: constants that lose their first columns with rows, and the axes of these.

    Raises:
        UnsupportedError: something in the model depends on the position in another way.
    """
    for node, other in _pair_nodes(graph, shorter):
        where = f"node {shorten(node.name)} ({shorten(node.op)})"
        if node.attrs != other.attrs:
            raise position_error(f"an attribute of {where}", OTHERWISE)
        for a, b in zip(node.inputs, other.inputs, strict=True):
            if a is not None and b is not None and a.data is not None and b.data is not None and a.name not in looked_up:
                _check_constant(a.data, b.data, moving.get(a.name), where)


def check_shapes(graph: Graph, shorter: Graph, dynamic_axes: Mapping[str, frozenset[int]]) -> None:
    """Compare both after lowering: the axes that changed are those that are known to be dynamic.

    Raises:
        UnsupportedError: another axis, or not every dynamic one.
    """
    for node, other in _pair_nodes(graph, shorter):
        for a, b in zip((*node.inputs, *node.outputs), (*other.inputs, *other.outputs), strict=True):
            if a is None or b is None or a.data is not None:
                continue
            changed = {i for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)) if m != n}
            if changed != set(dynamic_axes.get(a.name, ())):
                raise position_error(f"the shape of {shorten(a.name)}, at node {shorten(node.name)} ({shorten(node.op)}),", OTHERWISE)


def _pair_nodes(graph: Graph, shorter: Graph) -> Iterator[tuple[Node, Node]]:
    if [n.op for n in graph.nodes] != [n.op for n in shorter.nodes]:
        raise UnsupportedError(
            "the graph has other operators when the caches have one row less", "Try another --context, or fix the length with --dim."
        )
    yield from zip(graph.nodes, shorter.nodes, strict=True)


def _check_constant(a: np.ndarray, b: np.ndarray, axis: int | None, where: str) -> None:
    """Constants may be longer where there are more rows, behind those that both have; along ``axis``, in front of them."""
    box = [slice(n) for n in b.shape]
    if axis is not None and a.ndim == b.ndim:
        box[axis] = slice(a.shape[axis] - b.shape[axis], None)
    if a.ndim != b.ndim or not constants_equal(a[tuple(box)], b):
        raise position_error(f"a constant of {where}", OTHERWISE)
