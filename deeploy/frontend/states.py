"""States: an input and an output of a model that are one buffer, which grows by the new rows of every inference, or is written anew.

A pair is declared by the user, or found where the file makes it plain: an input with an axis of unknown length and an output
that is this input with rows behind it. In the lowered graph, the concatenation of the pair becomes an ``Append``. A declared pair of one
shape does not grow: what a step leaves, the next one begins with, and a sequence begins with zeros; a ``Keep`` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import ModelError, UnsupportedError, UsageError, shorten
from deeploy.frontend.io import scalar_parameters
from deeploy.frontend.positions import POSITION
from deeploy.graph.nodes import INTEGER_FORM
from deeploy.graph.surgeon import producer, sort
from deeploy.graph.types import DType
from deeploy.operators.views import APPEND, KEEP

_MOVERS = ("Transpose", "Reshape")
_ROWWISE = ("RequantShift", "Lookup", "Clip", "Cast", "Quantize", "Dequantize", "Unary", "Copy")  # commute with appending rows
CONVERSIONS = (*_MOVERS, *_ROWWISE, "QuantizeLinear", "DequantizeLinear", "Identity")  # may lie between a cache and its append


@dataclass(frozen=True)
class Pair:
    """Input ``past`` and output ``present`` of the model, equal but for the rows along ``axis``; None where nothing grows."""

    past: str
    present: str
    axis: int | None


@dataclass(frozen=True)
class Known:
    """A state of another network of the project, as it is stored when it is full; ``scale`` and ``zero_point`` where they are said."""

    past: str
    present: str
    shape: tuple[int, ...]
    axis: int
    dtype: DType
    scale: float | None = None
    zero_point: int | None = None


def named(tensors: Iterable[gs.Tensor], name: str) -> gs.Tensor:
    """The tensor of a name, which is there."""
    return next(tensor for tensor in tensors if tensor.name == name)


_BEFORE = frozenset({"in", "input", "inputs", "past", "prev", "previous", "old", "last", "init", "initial"})
_AFTER = frozenset({"out", "output", "outputs", "present", "new", "next", "n", "cur", "curr", "current", "updated", "final"})


def same_name(inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """Outputs whose names are those of inputs but for a word that says which comes first, by that input.

    ``c0_in`` and ``c0_out``, ``h0`` and ``hn``, ``state`` and ``stateN``, ``cache`` and ``new_cache``. Names that fit several are left out.
    """
    found: dict[str, str] = {}
    for is_loose in (False, True):
        pasts = {name: _stems(name, _BEFORE, "0", is_loose) for name in inputs if name not in found}
        presents = {name: _stems(name, _AFTER, "1n", is_loose) for name in outputs if name not in found.values()}
        fits = [(past, present) for past in pasts for present in presents if past != present and pasts[past] & presents[present]]
        before, after = [past for past, _ in fits], [present for _, present in fits]
        found |= {past: present for past, present in fits if before.count(past) == 1 == after.count(present)}
    return found


def _stems(name: str, words: frozenset[str], marks: str, is_loose: bool) -> set[str]:
    """What is left of a name without words that say when; loosely, without a mark at its end as well."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)]
    stem = " ".join(part for part in parts if part not in words)
    return ({stem} | ({stem[:-1].rstrip()} if is_loose and stem[-1:] in (*marks,) else set())) - {""}


def check_pairs(graph: gs.Graph, names: Mapping[str, str]) -> list[Pair]:
    """The declared pairs with the axes along which they grow.

    Raises:
        ModelError: shapes or types that differ by more than new rows, pairs that grow differently.
    """
    inputs, outputs = {t.name: t for t in graph.inputs}, {t.name: t for t in graph.outputs}
    result: list[Pair] = []
    growth: dict[tuple[int, int], str] = {}
    for past, present in names.items():
        before, after = inputs[past], outputs[present]
        axes = [i for i, (a, b) in enumerate(zip(before.shape, after.shape, strict=False)) if a != b]
        same = len(before.shape) == len(after.shape) and np.dtype(before.dtype) == np.dtype(after.dtype)
        if same and not axes:
            result.append(Pair(past, present, None))
            continue
        if not same or len(axes) != 1 or before.shape[axes[0]] > after.shape[axes[0]]:
            raise ModelError(
                f"--state {shorten(past)}={shorten(present)}: {np.dtype(before.dtype).name}{list(before.shape)} and "
                f"{np.dtype(after.dtype).name}{list(after.shape)} differ by more than new rows along one axis",
                "Declare pairs of which the output is the input followed by new rows.",
            )
        growth.setdefault((before.shape[axes[0]], after.shape[axes[0]]), past)
        result.append(Pair(past, present, axes[0]))
    if len(growth) > 1:
        (first, second), (a, b) = list(growth)[:2], list(growth.values())[:2]
        raise ModelError(
            f"states grow differently: {shorten(a)} from {first[0]} to {first[1]} rows, {shorten(b)} from {second[0]} to {second[1]}",
            "All states of a network have the same number of rows; leave out the pairs that have not.",
        )
    return result


def append(graph: gs.Graph, pairs: Sequence[Pair]) -> None:
    """Make states of pairs in a lowered graph: their concatenations become ``Append``, the inputs and outputs vanish.

    Element by element functions between the concatenation and its readers are applied to the new rows, once.

    Raises:
        ModelError: an output that is not the input followed by new rows.
    """
    growing = [pair for pair in pairs if pair.axis is not None]
    for number, pair in enumerate(growing):
        past, present = named(graph.inputs, pair.past), named(graph.outputs, pair.present)
        chain = list(_conversions(present))[::-1]
        tensor = chain[0].inputs[0] if chain else present
        concat = producer(tensor, "Concat")
        if concat is None or len(concat.inputs) != 2 or not _is_alone(graph, concat.inputs[0], past):
            raise ModelError(
                f"--state {shorten(pair.past)}={shorten(pair.present)}: the output is not the input followed by new rows",
                "A state is Concat(past, new), perhaps quantised or transposed; nothing else may read the input.",
            )
        graph.inputs = [t for t in graph.inputs if t is not past]
        graph.outputs = [t for t in graph.outputs if t is not present]
        axis, step = int(concat.attrs["axis"]), _step(concat.inputs[0])
        rows, result = _early(graph, concat.inputs[1], tensor, chain, axis)
        if result is not tensor:
            result.inputs.clear()
        concat.inputs.clear()
        concat.outputs.clear()
        name = f"{concat.name} (append)"
        attrs = {"axis": axis, "number": number, "past": pair.past, "present": pair.present, **step}
        graph.nodes.append(gs.Node(APPEND, name, attrs, [rows], [result], domain=""))
    sort(graph.cleanup())
    known = {node.attrs["present"] for node in graph.nodes if node.op == APPEND}
    for pair in growing:
        if pair.present not in known:
            raise UnsupportedError(
                f"--state {shorten(pair.past)}={shorten(pair.present)}: no other output of the model depends on this state",
                "Leave the pair out.",
            )


def keep(graph: gs.Graph, pairs: Sequence[Pair]) -> None:
    """Make states of the pairs that do not grow: where a sequence begins, they are zeros instead of what was stored.

    Raises:
        UnsupportedError: an output that is a state of the network before it is written.
    """
    kept = [pair for pair in pairs if pair.axis is None]
    position = next((t for t in graph.inputs if t.name == POSITION), None)
    if kept and position is None:
        position = gs.Variable(POSITION, np.int64, [1])
        graph.inputs.append(position)
    stored = [_stored_whole(graph, pair, position) for pair in kept]
    for number, (pair, (tensor, source)) in enumerate(zip(kept, stored, strict=True)):
        attrs = {"number": number, "past": pair.past, "present": pair.present}
        result = gs.Variable(f"{pair.past} (next)", tensor.dtype, list(tensor.shape))
        graph.nodes.append(gs.Node(KEEP, f"{pair.past} (keep)", attrs, [source, tensor], [result], domain=INTEGER_FORM))


def _stored_whole(graph: gs.Graph, pair: Pair, position: gs.Tensor) -> tuple[gs.Variable, gs.Tensor]:
    """The memory of a state, which is read instead of the input, and what it becomes instead of the output."""
    past, source = named(graph.inputs, pair.past), named(graph.outputs, pair.present)
    graph.inputs = [t for t in graph.inputs if t is not past]
    graph.outputs = [t for t in graph.outputs if t is not source]
    tensor = gs.Variable(f"{pair.past} (state)", past.dtype, list(past.shape))
    begun = gs.Variable(f"{pair.past} (begun)", np.bool_, [1])
    zeros = gs.Constant(f"{pair.past} (zeros)", np.zeros(past.shape, past.dtype))
    first = gs.Constant(f"{pair.past} (first)", np.zeros(1, np.int64))
    graph.nodes.append(gs.Node("Binary", begun.name, {"function": "greater"}, [position, first], [begun], domain=INTEGER_FORM))
    graph.nodes.append(gs.Node("Where", f"{pair.past} (begin)", {}, [begun, tensor, zeros], [past], domain=INTEGER_FORM))
    sort(graph)
    return tensor, source


def check_begun(graph: gs.Graph, known: Sequence[Known]) -> list[Known]:
    """The states of other networks whose first rows are outputs of this one.

    Raises:
        ModelError: an output that differs from its state by more than the number of rows, or from others in that number.
        UsageError: more rows than the states hold.
    """
    outputs = {t.name: list(t.shape) for t in graph.outputs}
    begun = [state for state in known if state.present in outputs]
    for state in begun:
        shape, full = outputs[state.present], list(state.shape)
        name, other = shorten(state.present), begun[0]
        if [n for i, n in enumerate(shape) if i != state.axis] != [n for i, n in enumerate(full) if i != state.axis]:
            raise ModelError(
                f"output {name} {shape} differs by more than the number of rows (axis {state.axis}) from the cache {full} of that name",
                "Export both networks with one layout of their caches.",
            )
        if shape[state.axis] > full[state.axis]:
            raise UsageError(
                f"output {name} has {shape[state.axis]} rows, the caches hold {full[state.axis]}", "Give a larger --context, or fewer rows."
            )
        if shape[state.axis] != outputs[other.present][other.axis]:
            raise ModelError(
                f"outputs {shorten(other.present)} and {name} begin caches with {outputs[other.present][other.axis]} and "
                f"{shape[state.axis]} rows",
                "All states of a network get the same number of rows.",
            )
    return begun


def begin(graph: gs.Graph, states: Sequence[Known]) -> None:
    """Outputs of a lowered graph without caches become the first rows of states, stored as the other network stores them."""
    kept = [t for t in graph.outputs if t.name not in {state.present for state in states}]
    appends = []
    for number, state in enumerate(states):
        rows = named(graph.outputs, state.present)
        full = gs.Variable(f"{state.present} (state)", state.dtype.numpy, list(state.shape))
        attrs = {"axis": state.axis, "number": number, "past": state.past, "present": state.present, "begins": True}
        attrs |= {} if state.scale is None else {"scale": state.scale, "zero_point": state.zero_point}
        appends.append(gs.Node(APPEND, f"{state.present} (append)", attrs, [_stored(graph, rows, state)], [full], domain=""))
    graph.nodes.extend(appends)
    graph.outputs = [*kept, *(node.outputs[0] for node in appends)]
    sort(graph.cleanup())
    graph.outputs = kept


def _stored(graph: gs.Graph, rows: gs.Tensor, state: Known) -> gs.Tensor:
    """The rows in the type and scale of a state."""
    node = producer(rows, "Dequantize")
    if state.scale is None:
        return node.inputs[0] if node is not None and state.dtype.is_integer else rows
    if node is not None and scalar_parameters(node) == (state.scale, state.zero_point):
        return node.inputs[0]
    parameters = [
        gs.Constant(f"{state.present} (scale)", np.array([state.scale], np.float32)),
        gs.Constant(f"{state.present} (zero point)", np.array([state.zero_point], np.int32)),
    ]
    low, high = state.dtype.range
    result = gs.Variable(f"{state.present} (quantised)", state.dtype.numpy, list(rows.shape))
    attrs = {"low": low, "high": high}
    graph.nodes.append(gs.Node("Quantize", f"{state.present} (quantise)", attrs, [rows, *parameters], [result], domain=INTEGER_FORM))
    return result


def _conversions(tensor: gs.Tensor) -> Iterator[gs.Node]:
    """What reorders or converts the rows of a cache before they are ``tensor``, the last one first."""
    while (node := producer(tensor)) is not None and node.op in (*_MOVERS, *_ROWWISE):
        yield node
        tensor = node.inputs[0]


def _step(tensor: gs.Tensor) -> dict[str, float | int]:
    """Scale and zero point of a cache's rows, where they are quantised on the way to their append."""
    for node in _conversions(tensor):
        if node.op == "Quantize" and (parameters := scalar_parameters(node)) is not None:
            return {"scale": parameters[0], "zero_point": parameters[1]}
    return {}


def _is_alone(graph: gs.Graph, tensor: gs.Tensor, past: gs.Tensor) -> bool:
    """Whether ``tensor`` is ``past``, reordered or converted, and nobody else reads it on the way."""
    path = [tensor, *(node.inputs[0] for node in _conversions(tensor))]
    return path[-1] is past and all(len(t.outputs) == 1 and not any(t is out for out in graph.outputs) for t in path)


def _early(graph: gs.Graph, rows: gs.Tensor, tensor: gs.Tensor, chain: list[gs.Node], axis: int) -> tuple[gs.Tensor, gs.Tensor]:
    """The new rows and the tensor they are appended to, after the functions that come before all other readers."""
    for node in chain:
        result = node.outputs[0]
        others = [t for t in node.inputs[1:] if len(t.shape) >= len(tensor.shape) - axis and t.shape[axis - len(tensor.shape)] > 1]
        if node.op not in _ROWWISE or node.op == "Dequantize" or len(tensor.outputs) != 1 or not result.outputs or others:
            break
        early = gs.Variable(f"{result.name} (new rows)", result.dtype, list(rows.shape))
        graph.nodes.append(
            gs.Node(node.op, f"{node.name} (new rows)", dict(node.attrs), [rows, *node.inputs[1:]], [early], domain=node.domain)
        )
        rows, tensor = early, result
    return rows, tensor
