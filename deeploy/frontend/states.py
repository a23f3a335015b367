"""States: an input and an output of a model that are one buffer, which grows by the new rows of every inference, or is written anew.

A pair is declared by the user, or found where the file makes it plain: an input with an axis of unknown length and an output
that is this input with rows behind it. In the lowered graph, the concatenation of the pair becomes an ``Append``. A declared pair of one
shape does not grow: what a step leaves, the next one begins with; a ``Keep`` writes it. A sequence begins with the value that the input
has in the file, or zeros. An input with a value is a state where the file has an output of its name with ``.next`` behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import onnx

from deeploy.errors import ModelError, UnsupportedError, UsageError, shorten
from deeploy.frontend.attributes import read_array
from deeploy.frontend.io import scalar_parameters
from deeploy.ir.nodes import Attributes, Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph, change_nodes, substitute_tensors
from deeploy.operators.views import APPEND, CONCAT, KEEP, POSITION, SETTLES, SLICE, TURNS

_MOVERS = ("Transpose", "Reshape")
_TURNS, _MOST_TURNS = 8, 32  # inferences until a state is copied, which then costs little in the mean; and at most
_ROWWISE = ("RequantShift", "Lookup", "Clip", "Cast", "Quantize", "Dequantize", "Unary", "Copy")  # commute with appending rows
CONVERSIONS = (*_MOVERS, *_ROWWISE, "QuantizeLinear", "DequantizeLinear", "Identity")  # may lie between a cache and its append


@dataclass(frozen=True)
class Pair:
    """Input ``past`` and output ``present`` of the model, equal but for the rows along ``axis``; None where nothing grows.

    ``initial`` is what a sequence begins with, where that is not zeros: all elements, or one number for all of them.
    """

    past: str
    present: str
    axis: int | None
    initial: np.ndarray | None = field(default=None, compare=False)


@dataclass(frozen=True)
class KnownState:
    """A state of another network of the project, as it is stored when it is full; ``scale`` and ``zero_point`` where they are said."""

    past: str
    present: str
    shape: tuple[int, ...]
    axis: int
    dtype: DType
    scale: float | None = None
    zero_point: int | None = None


def named_tensor(tensors: Iterable[Tensor], name: str) -> Tensor:
    """The tensor of a name, which is there."""
    return next(tensor for tensor in tensors if tensor.name == name)


RATE, LOSS = "learning_rate", "loss"  # an input and the output of a graph that is a training step


def next_name(past: str) -> str:
    """The output that an input with a value is in the next inference, where a file has both."""
    return f"{past}.next"


def take_values(graph: onnx.GraphProto, declared: Mapping[str, str]) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The declared states and those that a file says by names, and the values of their inputs, which the graph loses, in place."""
    inputs, outputs = {value.name for value in graph.input}, {value.name for value in graph.output}
    values = {tensor.name: tensor for tensor in graph.initializer if tensor.name in inputs}
    pairs = {name: next_name(name) for name in values if next_name(name) in outputs - {*declared.values()}} | {**declared}
    taken = {name: read_array(tensor, name) for name, tensor in values.items() if name in pairs}
    for name in taken:
        graph.initializer.remove(values[name])
    return pairs, taken


_BEFORE = frozenset({"in", "input", "inputs", "past", "prev", "previous", "old", "last", "init", "initial"})
_AFTER = frozenset({"out", "output", "outputs", "present", "new", "next", "n", "cur", "curr", "current", "updated", "final"})


def same_name(inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """Outputs whose names are those of inputs but for a word that says which comes first, by that input.

    ``c0_in`` and ``c0_out``, ``h0`` and ``hn``, ``state`` and ``stateN``, ``cache`` and ``new_cache``. Names that fit several are left out.
    """
    pairs: dict[str, str] = {}
    for is_loose in (False, True):
        pasts = {name: _name_stems(name, _BEFORE, "0", is_loose) for name in inputs if name not in pairs}
        presents = {name: _name_stems(name, _AFTER, "1n", is_loose) for name in outputs if name not in pairs.values()}
        fits = [(past, present) for past in pasts for present in presents if past != present and pasts[past] & presents[present]]
        before, after = [past for past, _ in fits], [present for _, present in fits]
        pairs |= {past: present for past, present in fits if before.count(past) == 1 == after.count(present)}
    return pairs


def _name_stems(name: str, words: frozenset[str], marks: str, is_loose: bool) -> set[str]:
    """What is left of a name without words that say when; loosely, without a mark at its end as well."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)]
    stem = " ".join(part for part in parts if part not in words)
    return ({stem} | ({stem[:-1].rstrip()} if is_loose and stem[-1:] in (*marks,) else set())) - {""}


def check_pairs(graph: Graph, names: Mapping[str, str]) -> list[Pair]:
    """The declared pairs with the axes along which they grow.

    Raises:
        ModelError: shapes or types that differ by more than new rows, pairs that grow differently.
    """
    inputs, outputs = {t.name: t for t in graph.inputs}, {t.name: t for t in graph.outputs}
    result: list[Pair] = []
    lengths: dict[tuple[int, int], str] = {}
    for past, present in names.items():
        before, after = inputs[past], outputs[present]
        axes = [i for i, (a, b) in enumerate(zip(before.shape, after.shape, strict=False)) if a != b]
        same = len(before.shape) == len(after.shape) and before.dtype is after.dtype
        if same and not axes:
            result.append(Pair(past, present, None))
            continue
        if not same or len(axes) != 1 or before.shape[axes[0]] > after.shape[axes[0]]:
            raise ModelError(
                f"--state {shorten(past)}={shorten(present)}: {before.dtype.numpy.name}{list(before.shape)} and "
                f"{after.dtype.numpy.name}{list(after.shape)} differ by more than new rows along one axis",
                "Declare pairs of which the output is the input followed by new rows.",
            )
        lengths.setdefault((before.shape[axes[0]], after.shape[axes[0]]), past)
        result.append(Pair(past, present, axes[0]))
    if len(lengths) > 1:
        (first, second), (a, b) = list(lengths)[:2], list(lengths.values())[:2]
        raise ModelError(
            f"states grow differently: {shorten(a)} from {first[0]} to {first[1]} rows, {shorten(b)} from {second[0]} to {second[1]}",
            "All states of a network have the same number of rows; leave out the pairs that have not.",
        )
    return result


def append_states(graph: Graph, pairs: Sequence[Pair]) -> Graph:
    """Make states of pairs in a lowered graph: their concatenations become ``Append``, the inputs and outputs vanish.

    Element by element functions between the concatenation and its readers are applied to the new rows, once.

    Raises:
        ModelError: an output that is not the input followed by new rows.
    """
    dynamic = [pair for pair in pairs if pair.axis is not None]
    for number, pair in enumerate(dynamic):
        graph = _append_state(graph, pair, number)
    known = {node.attrs["present"] for node in graph.nodes if node.op == APPEND}
    for pair in dynamic:
        if pair.present not in known:
            raise UnsupportedError(
                f"--state {shorten(pair.past)}={shorten(pair.present)}: no other output of the model depends on this state",
                "Leave the pair out.",
            )
    return graph


def _append_state(graph: Graph, pair: Pair, number: int) -> Graph:
    """A lowered graph whose pair of a number is a state."""
    past, present = named_tensor(graph.inputs, pair.past), named_tensor(graph.outputs, pair.present)
    chain = list(_cache_conversions(present))[::-1]
    tensor = chain[0].operands[0] if chain else present
    concat = tensor.made_by("Concat")
    if concat is None or len(concat.operands) != 2 or not _is_alone(graph, concat.operands[0], past):
        raise ModelError(
            f"--state {shorten(pair.past)}={shorten(pair.present)}: the output is not the input followed by new rows",
            "A state is Concat(past, new), perhaps quantised or transposed; nothing else may read the input.",
        )
    axis = int(concat.attrs["axis"])
    rows, result = _move_append_forward(graph, concat.operands[1], tensor, chain, axis)
    attrs: Attributes = {
        "axis": axis,
        "number": number,
        "past": pair.past,
        "present": pair.present,
        **_quantisation_step(concat.operands[0]),
    }
    state = Node(f"{concat.name} (append)", APPEND, (rows,), (replace(result, maker=None),), attrs, domain="").outputs[0]
    return substitute_tensors(_drop_ports(graph, past, present), {result: state})


def _drop_ports(graph: Graph, *tensors: Tensor) -> Graph:
    """A graph without some inputs and outputs."""
    inputs, outputs = (tuple(t for t in ends if t not in tensors) for ends in (graph.inputs, graph.outputs))
    return replace(graph, inputs=inputs, outputs=outputs)


def keep_states(
    graph: Graph, pairs: Sequence[Pair], masks: Mapping[str, np.ndarray] = MappingProxyType({}), has_room: bool = False
) -> Graph:
    """Make states of the pairs that do not grow: where a sequence begins, they are their initial values instead of what was stored.

    Args:
        masks: by the names of inputs, at which position each element becomes true; they are no inputs any more.
        has_room: whether there is memory that saves copies.

    Raises:
        UnsupportedError: an output that is a state of the network before it is written.
    """
    rewritten = [pair for pair in pairs if pair.axis is None]
    if not rewritten and not masks:
        return graph
    position = next((t for t in graph.inputs if t.name == POSITION), Tensor(POSITION, (1,), DType.INT64))
    pasts, sources = (
        [named_tensor(graph.inputs, pair.past) for pair in rewritten],
        [named_tensor(graph.outputs, pair.present) for pair in rewritten],
    )
    states = [replace(past, name=f"{past.name} (state)") for past in pasts]
    inputs = (*graph.inputs, *(() if position in graph.inputs else (position,)))
    graph = replace(_drop_ports(replace(graph, inputs=inputs), *pasts, *sources), next_states=tuple(sources))
    periods = [graph.periods.get(pair.present, 1) for pair in rewritten]
    turns = [_count_turns(*ends) if has_room else 0 for ends in zip(pasts, sources, periods, strict=True)]
    begins = {period: f"has begun{f' {period}' if period > 1 else ''}" for period in sorted({1, *periods})}
    numbers = {**{name: np.full(1, period, np.int64) for period, name in begins.items()}, **masks}
    shown = _compare_position(position, numbers)
    has_begun, shown = dict(zip(begins, shown, strict=False)), shown[len(begins) :]
    begun = {
        past: _begin_state(past, state, has_begun[period], period, pair.initial)
        for pair, past, state, period in zip(rewritten, pasts, states, periods, strict=True)
    }
    known = {mask: tensor for mask in inputs for tensor in shown if mask.name == tensor.name}
    graph = substitute_tensors(_drop_ports(graph, *known), {**begun, **known})
    graph = _settle_masked(graph, {tensor: int(masks[mask.name].max()) for mask, tensor in known.items()})
    written = [
        _keep_state(source, state, pair, number, count)
        for number, (pair, source, state, count) in enumerate(zip(rewritten, graph.next_states, states, turns, strict=True))
    ]
    named = {tensor.name: period for tensor, period in zip(written, periods, strict=True) if period > 1}
    return replace(graph, next_states=tuple(written), periods={**graph.periods, **named})


def _count_turns(past: Tensor, present: Tensor, period: int) -> int:
    """How often new columns are written behind those of a state until it is copied to its beginning, so that copies do not overlap.

    0 where it is copied always. Powers of two have all states copied in one inference, so that there are few different ones to prove.
    """
    last = present.made_by(SLICE)
    both = last.operands[0].made_by(CONCAT) if last is not None else None
    if both is None or both.operands[0] is not past or len(both.operands) != 2:
        return 0
    axis = both.attrs["axis"]
    least = max(-(-past.shape[axis] // both.operands[1].shape[axis]), _TURNS // period)
    count = 1 << (least - 1).bit_length()
    return count if count * period <= _MOST_TURNS else 0


def _keep_state(source: Tensor, state: Tensor, pair: Pair, number: int, turns: int) -> Tensor:
    """A state as it is written anew."""
    attrs: Attributes = {"number": number, "past": pair.past, "present": pair.present, **({TURNS: turns} if turns else {})}
    attrs = attrs if pair.initial is None or not pair.initial.ndim else {**attrs, "has_value": True}
    return Node(f"{pair.past} (keep)", KEEP, (source, state), (replace(state, name=f"{pair.past} (next)"),), attrs).outputs[0]


def _begin_state(past: Tensor, state: Tensor, has_begun: Tensor, period: int, initial: np.ndarray | None) -> Tensor:
    """What is read instead of an input: what a state holds, or where a sequence begins its first value, else zeros."""
    values = np.asarray(0 if initial is None else initial).astype(past.dtype.numpy)
    values = values.reshape([1] * past.rank if values.size == 1 else past.shape)
    first = Tensor(f"{past.name} (initial)", values.shape, past.dtype, values)
    return Node(f"{past.name} (begin)", "Where", (has_begun, state, first), (replace(past),), {SETTLES: period}).outputs[0]


def _settle_masked(graph: Graph, masks: Mapping[Tensor, int]) -> Graph:
    """The graph in which nodes that masks choose for say when they settle: when all elements of their mask are true."""
    settled = dict(masks)

    def change(node: Node) -> Node:
        behind = settled.get(node.operands[0]) if node.operands else None
        if behind is not None and node.op in _MOVERS:
            settled[node.outputs[0]] = behind
        if behind is None or node.op != "Where" or node.operands[1].shape != node.outputs[0].shape:
            return node
        return node.another(attrs={**node.attrs, SETTLES: behind})

    return change_nodes(graph, change) if masks else graph


def _compare_position(position: Tensor, numbers: Mapping[str, np.ndarray]) -> list[Tensor]:
    """Whether the position has reached numbers: a tensor for each name, all of them computed at once."""
    last = np.concatenate([values.ravel() for values in numbers.values()]) - 1
    constant, result = Tensor("last positions", last.shape, DType.INT64, last), Tensor("has begun", last.shape, DType.BOOL)
    if len(numbers) > 1:
        result = replace(result, name="have begun")
    (flat,) = Node(result.name, "Binary", (position, constant), (result,), {"function": "greater"}).outputs
    if len(numbers) == 1:
        return [flat]
    ends = np.cumsum([values.size for values in numbers.values()]).tolist()
    results: list[Tensor] = []
    for (name, values), end in zip(numbers.items(), ends, strict=True):
        attrs = {"starts": (end - values.size,), "ends": (end,), "steps": (1,)}
        (part,) = Node(f"{name} (part)", "Slice", (flat,), (Tensor(f"{name} (part)", (values.size,), DType.BOOL),), attrs).outputs
        results += Node(f"{name} (view)", "Reshape", (part,), (Tensor(name, values.shape, DType.BOOL),)).outputs
    return results


def check_begun(graph: Graph, known: Sequence[KnownState]) -> list[KnownState]:
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


def begin_states(graph: Graph, states: Sequence[KnownState]) -> Graph:
    """Outputs of a lowered graph without caches become the first rows of states, stored as the other network stores them."""
    appended: list[Tensor] = []
    for number, state in enumerate(states):
        attrs = {"axis": state.axis, "number": number, "past": state.past, "present": state.present, "begins": True}
        attrs |= {} if state.scale is None else {"scale": state.scale, "zero_point": state.zero_point}
        rows, full = (
            _store_rows(named_tensor(graph.outputs, state.present), state),
            Tensor(f"{state.present} (state)", state.shape, state.dtype),
        )
        appended += Node(f"{state.present} (append)", APPEND, (rows,), (full,), attrs, domain="").outputs
    return replace(_drop_ports(graph, *(named_tensor(graph.outputs, state.present) for state in states)), next_states=tuple(appended))


def _store_rows(rows: Tensor, state: KnownState) -> Tensor:
    """The rows in the type and scale of a state."""
    node = rows.made_by("Dequantize")
    if state.scale is None:
        return node.operands[0] if node is not None and state.dtype.is_integer else rows
    if node is not None and scalar_parameters(node) == (state.scale, state.zero_point):
        return node.operands[0]
    scale = Tensor(f"{state.present} (scale)", (1,), DType.FLOAT32, np.array([state.scale], np.float32))
    zero = Tensor(f"{state.present} (zero point)", (1,), DType.INT32, np.array([state.zero_point], np.int32))
    result, (low, high) = Tensor(f"{state.present} (quantised)", rows.shape, state.dtype), state.dtype.range
    return Node(f"{state.present} (quantise)", "Quantize", (rows, scale, zero), (result,), {"low": low, "high": high}).outputs[0]


def _cache_conversions(tensor: Tensor) -> Iterator[Node]:
    """What reorders or converts the rows of a cache before they are ``tensor``, the last one first."""
    while (node := tensor.made_by(*_MOVERS, *_ROWWISE)) is not None:
        yield node
        tensor = node.operands[0]


def _quantisation_step(tensor: Tensor) -> dict[str, float | int]:
    """Scale and zero point of a cache's rows, where they are quantised on the way to their append."""
    for node in _cache_conversions(tensor):
        if node.op == "Quantize" and (parameters := scalar_parameters(node)) is not None:
            return {"scale": parameters[0], "zero_point": parameters[1]}
    return {}


def _is_alone(graph: Graph, tensor: Tensor, past: Tensor) -> bool:
    """Whether ``tensor`` is ``past``, reordered or converted, and nobody else reads it on the way."""
    path = [tensor, *(node.operands[0] for node in _cache_conversions(tensor))]
    return path[-1] is past and all(len(graph.readers[t]) == 1 and t not in graph.outputs for t in path)


def _move_append_forward(graph: Graph, rows: Tensor, tensor: Tensor, chain: list[Node], axis: int) -> tuple[Tensor, Tensor]:
    """The new rows and the tensor they are appended to, after the functions that come before all other readers."""
    for node in chain:
        result = node.outputs[0]
        others = [t for t in node.operands[1:] if t.rank >= tensor.rank - axis and t.shape[axis - tensor.rank] > 1]
        is_last = result not in graph.readers or len(graph.readers[tensor]) != 1
        if node.op not in _ROWWISE or node.op == "Dequantize" or is_last or others:
            break
        early = Tensor(f"{result.name} (new rows)", rows.shape, result.dtype)
        rows = node.another(name=f"{node.name} (new rows)", inputs=(rows, *node.inputs[1:]), outputs=(early,)).outputs[0]
        tensor = result
    return rows, tensor
