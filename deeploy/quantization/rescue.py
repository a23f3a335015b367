"""Tensors that 8 bits ruin: which ones they are, found by sensitivity, and the quantised network with these in float.

Problem: a quantised network, and what its outputs have to keep of the float one's; the fewest elements of activations and weights in float
that keep it. Model: every conversion to steps can be switched off, so that one session of onnxruntime runs any subset of them. Each is
tried alone. Those that cost most are switched off, as few as suffice within a budget of elements; then each that can be is switched on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deeploy.frontend.structure import read_names
from deeploy.quantization.noise import BEFORE, Noise, format_ratio, round_to_steps, scales_of
from deeploy.quantization.parts import MOVES, TensorPart
from deeploy.quantization.run import in_sequence, run_tensors, session_of, values_of
from deeploy.quantization.samples import Sample

_LARGE = 0.05  # of all elements
MARGIN = 6.0  # decibel above what is asked for: other samples than these lose more
_FEW, _MANY, _MOST_STEPS = 16, 48, 48  # samples that are compared first, and samples and steps that subsets are tried on


@dataclass(frozen=True)
class Switch:
    """A conversion to steps and back.

    Attributes:
        tensor: of the float network.
        steps: what is read of it, rounded to steps.
        source: what it is made of, not rounded; of a weight, the name of its float values.
        cut: the Relu or Clip that the limits of the steps replace.
    """

    tensor: str
    steps: str
    source: str
    cut: onnx.NodeProto | None = None


@dataclass(frozen=True)
class FloatTensor:
    """A tensor in float, and why.

    Attributes:
        alone: signal to noise of the worst output where this tensor alone is quantised, in decibel.
        largest, usual: its largest magnitude, and the median of those that are not 0.
    """

    tensor: str
    node: str
    elements: int
    alone: float
    largest: float
    usual: float

    def __str__(self) -> str:
        reach = f"largest {self.largest:.3g}, half below {self.usual:.3g}, a step {2 * self.largest / 255:.3g}"
        return f"{self.tensor} of {self.node} ({reach}; alone in 8 bits: {format_ratio(self.alone)})"


@dataclass(frozen=True)
class Rescued:
    """A network with tensors in float: ``share`` of all elements."""

    model: onnx.ModelProto
    float_tensors: tuple[FloatTensor, ...] = ()
    share: float = 0.0


def rescue_network(
    model: onnx.ModelProto,
    prepared: onnx.ModelProto,
    samples: Sequence[Sample],
    states: Mapping[str, str],
    parts: Sequence[TensorPart],
    least: float,
    budget: float,
) -> Rescued:
    """The network with as few tensors in float as its outputs need.

    Args:
        model: quantised by onnxruntime from ``prepared``.
        states: outputs by inputs; the samples are steps then.
        parts: of the float network's outputs, which are judged.
        least: signal to noise in decibel that every one is to keep.
        budget: share of all elements that may be in float.
    """
    known = {name for node in prepared.graph.node for name in node.output}
    judged = [part for part in parts if part.is_output and part.tensor in known]
    switches = _list_switches(model, prepared)
    if not switches or not judged:
        return Rescued(model)
    switched = _add_switches(model, prepared, switches)
    few = _pick_samples(samples, _MOST_STEPS if states else _FEW, bool(states))
    worst = _make_trial(switched, prepared, few, states, judged, len(switches))
    lost = _lost_concats(model, prepared, few, [part for part in parts if not part.is_output and part.tensor in known], least)
    every = range(len(switches))
    if worst(set()) >= least and not lost:
        return Rescued(model)
    if not states:
        worst = _make_trial(switched, prepared, _mix_samples(_pick_samples(samples, _MANY, False)), states, judged, len(switches))
    sizes, stats = _measure_switches(switches, prepared, few)
    alone = [worst(set(every) - {i}) for i in every]
    chosen = _choose_switches(worst, alone, sizes, {i for i in every if switches[i].tensor in lost}, least, budget * sum(sizes))
    if not chosen:
        return Rescued(model)
    makers = {name: node.name for node in prepared.graph.node for name in node.output}
    float_tensors = [
        FloatTensor(switches[i].tensor, makers.get(switches[i].tensor, "the network"), sizes[i], alone[i], *stats[switches[i].tensor])
        for i in sorted(chosen, key=lambda i: alone[i])
    ]
    share = sum(sizes[i] for i in chosen) / max(1, sum(sizes))
    return Rescued(_write_without(model, prepared, [switches[i] for i in chosen]), tuple(float_tensors), share)


def _choose_switches(
    worst: Callable[[Set[int]], float], alone: Sequence[float], sizes: Sequence[int], lost: Set[int], least: float, budget: float
) -> set[int]:
    """The switches that are off.

    Args:
        worst: of the switches that are off, signal to noise of the worst output.
        alone: of every switch, with all others off.
        sizes: elements of every switch, of which ``budget`` are off at most.
        lost: switches that are off as far as the budget goes, whatever the outputs say.
    """
    goal, before = least + MARGIN, worst(set())
    fixed, order, spent = set[int](), list[int](), 0
    for i in sorted(range(len(alone)), key=lambda i: (i not in lost, alone[i])):
        if (alone[i] < 2 * goal or i in lost) and spent + sizes[i] <= budget:
            spent += sizes[i]
            fixed |= {i} & lost
            order += [i] * (i not in lost)
    low, high = 0, 0 if worst(fixed) >= least else len(order)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if worst(fixed | set(order[:middle])) >= goal else (middle + 1, high)
    wide = fixed | set(order[:high])
    reached = min(goal, worst(wide))
    if reached < before + 1:
        return fixed
    for i in sorted(order[:high], key=lambda i: (sizes[i] <= _LARGE * sum(sizes), -alone[i])):
        floor = least + MARGIN / 2 if sizes[i] > _LARGE * sum(sizes) else reached - 0.1  # large ones have to be worth it
        wide -= {i} if worst(wide - {i}) >= min(floor, reached - 0.1) else set()
    return wide


def _pick_samples(samples: Sequence[Sample], most: int, is_sequence: bool) -> Sequence[Sample]:
    """The first steps of a sequence, or samples from all of a set."""
    every = np.linspace(0, len(samples) - 1, min(most, len(samples)), dtype=int)
    return samples[:most] if is_sequence else [samples[i] for i in every]


def _mix_samples(samples: Sequence[Sample]) -> list[Sample]:
    """The samples, and as many sums of two of them as there is room for: what happens rarely, such as another sign, is seen more often."""
    chosen = list(samples)
    for distance in range(1, len(samples)):
        for first, second in zip(samples, samples[distance:], strict=False):
            if len(chosen) >= _MANY:
                return chosen
            is_float = {name: array.dtype.kind == "f" for name, array in first.items()}
            mixed = {name: (0.7 * a + 0.3 * second[name]).astype(a.dtype) if is_float[name] else a for name, a in first.items()}
            chosen.append(mixed)
    return chosen


def _lost_concats(
    model: onnx.ModelProto, prepared: onnx.ModelProto, samples: Sequence[Sample], parts: Sequence[TensorPart], least: float
) -> set[str]:
    """Concats of unlike operands inside of the network whose one scale leaves too little of an operand, and what moves their results."""
    scales, lost = scales_of(model), set[str]()
    names = list(dict.fromkeys(part.tensor for part in parts if part.tensor in scales))
    own = [(part, Noise()) for part in parts if part.tensor in scales]
    for values in values_of(prepared, "the float network", names, samples) if names else ():
        for part, noise in own:
            array = values[part.tensor]
            noise.add(round_to_steps(array, *scales[part.tensor])[part.place], array[part.place])
    lost |= {part.tensor for part, noise in own if noise.decibel < least}
    for node in prepared.graph.node:
        if node.op_type in MOVES and lost & set(node.input):
            lost |= set(node.output)
    return lost


def _list_switches(model: onnx.ModelProto, prepared: onnx.ModelProto) -> list[Switch]:
    """The conversions of activations and weights, in the order of the graph."""
    quantised = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    floats = {tensor.name for tensor in prepared.graph.initializer}
    makers = {name: node for node in prepared.graph.node for name in node.output}
    names = {node.name for node in model.graph.node}
    switches = []
    for node in (node for node in model.graph.node if node.op_type == "DequantizeLinear"):
        source = quantised.get(node.input[0])
        if source is not None:
            tensor = source.removesuffix(BEFORE)
            maker = makers.get(tensor)
            is_cut = maker is not None and maker.op_type in ("Relu", "Clip") and maker.name not in names
            switches.append(Switch(tensor, node.output[0], source, maker if is_cut else None))
        elif (weight := node.input[0].removesuffix("_quantized")) in floats and not node.input[1].endswith("_quantized_scale"):
            switches.append(Switch(weight, node.output[0], weight))
    return switches


def _measure_switches(
    switches: Sequence[Switch], prepared: onnx.ModelProto, samples: Sequence[Sample]
) -> tuple[list[int], dict[str, tuple[float, float]]]:
    """The elements of every switch, and of every tensor the largest and the median magnitude."""
    names = list(dict.fromkeys(switch.tensor for switch in switches))
    seen: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for values in values_of(prepared, "the float network", names, samples):
        for name, array in values.items():
            seen[name].append(np.abs(array[np.isfinite(array)]).ravel())
    stats = {}
    for name, arrays in seen.items():
        every = np.concatenate(arrays)
        stats[name] = float(every.max(initial=0)), float(np.median(every[every > 0])) if every.any() else 0.0
    return [seen[switch.tensor][0].size for switch in switches], stats


def _flag_name(number: int) -> str:
    return f"deeploy steps {number}"


def _add_switches(model: onnx.ModelProto, prepared: onnx.ModelProto, switches: Sequence[Switch]) -> onnx.ModelProto:
    """The network with an input for every switch that says whether its steps are taken."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    by_steps = {switch.steps: i for i, switch in enumerate(switches)}
    floats = {tensor.name: tensor for tensor in prepared.graph.initializer}
    known = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        number = by_steps.get(node.output[0]) if node.op_type == "DequantizeLinear" else None
        copy = result.graph.node.add()
        copy.CopyFrom(node)
        if number is None:
            continue
        switch = switches[number]
        copy.output[0] = f"{node.output[0]} (steps)"
        source = switch.source
        if source in floats and source not in known:
            result.graph.initializer.append(floats[source])
            known.add(source)
        if switch.cut is not None:
            source = f"{node.output[0]} (cut)"
            result.graph.node.append(_clip_switch(result, prepared, switch, source))
        result.graph.node.append(helper.make_node("Where", [_flag_name(number), copy.output[0], source], [node.output[0]]))
        result.graph.input.append(helper.make_tensor_value_info(_flag_name(number), onnx.TensorProto.BOOL, []))
    return result


def _clip_switch(model: onnx.ModelProto, prepared: onnx.ModelProto, switch: Switch, output: str) -> onnx.NodeProto:
    """The Relu or Clip of a switch, with its limits among the constants of ``model``."""
    assert switch.cut is not None  # callers ask
    node = onnx.NodeProto()
    node.CopyFrom(switch.cut)
    node.input[0], node.output[0] = switch.source, output
    _add_constants(model, prepared, node.input[1:])
    return node


def _add_constants(model: onnx.ModelProto, prepared: onnx.ModelProto, names: Sequence[str]) -> None:
    known = {tensor.name for tensor in model.graph.initializer}
    model.graph.initializer.extend(tensor for tensor in prepared.graph.initializer if tensor.name in set(names) - known)


def _make_trial(
    switched: onnx.ModelProto,
    prepared: onnx.ModelProto,
    samples: Sequence[Sample],
    states: Mapping[str, str],
    parts: Sequence[TensorPart],
    count: int,
) -> Callable[[Set[int]], float]:
    """A function of the switches that are off: the signal to noise of the worst part, in decibel."""
    wanted = list(dict.fromkeys(part.tensor for part in parts))
    right = [dict(zip(wanted, values, strict=True)) for values in run_tensors(prepared, "the float network", wanted, samples, states)]
    copy = onnx.ModelProto()
    copy.CopyFrom(switched)
    del copy.graph.output[:]
    names = list(dict.fromkeys([*wanted, *states.values()]))
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = session_of(copy, is_plain=True)

    def worst(off: Set[int]) -> float:
        flags = {_flag_name(i): np.array(i not in off) for i in range(count)}
        noises = [Noise() for _ in parts]
        runs = in_sequence(lambda sample: dict(zip(names, session.run(names, {**sample, **flags}), strict=True)), samples, states)
        for got, expected in zip(runs, right, strict=True):
            for noise, part in zip(noises, parts, strict=True):
                noise.add(got[part.tensor][part.place], expected[part.tensor][part.place])
        return min(noise.decibel for noise in noises)

    return worst


def _write_without(model: onnx.ModelProto, prepared: onnx.ModelProto, off: Sequence[Switch]) -> onnx.ModelProto:
    """The network without these conversions; nodes whose activations are all floats have float weights as well."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    by_steps = {switch.steps: switch for switch in off}
    outputs = {value.name for value in model.graph.output}
    renamed: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        switch = by_steps.get(node.output[0]) if node.op_type == "DequantizeLinear" else None
        if switch is None:
            nodes.append(node)
            continue
        _add_constants(result, prepared, [switch.source])
        if switch.cut is not None:
            nodes.append(_clip_switch(result, prepared, switch, switch.steps))
        elif switch.steps in outputs:
            nodes.append(helper.make_node("Identity", [switch.source], [switch.steps], f"{switch.tensor} (float)"))
        else:
            renamed[switch.steps] = switch.source
    dequantised = {node.output[0]: node for node in nodes if node.op_type == "DequantizeLinear"}
    sources = {node.name: node for node in prepared.graph.node}
    constants = {tensor.name for tensor in prepared.graph.initializer}
    for node in nodes:
        copy = result.graph.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [renamed.get(name, name) for name in node.input]
        source = sources.get(node.name)
        if source is None or len(source.input) != len(copy.input):
            continue
        moving = [name for name, original in zip(copy.input, source.input, strict=True) if original and original not in constants]
        if moving and not any(name in dequantised for name in moving) and any(name in dequantised for name in copy.input):
            for place, original in enumerate(source.input):
                if copy.input[place] in dequantised:
                    fresh = f"{original} (float)"
                    copy.input[place] = fresh
                    _add_float(result, prepared, original, fresh)
    _remove_dead(result.graph)
    return result


def _add_float(model: onnx.ModelProto, prepared: onnx.ModelProto, name: str, fresh: str) -> None:
    """A constant of the float network under a name of its own."""
    if all(tensor.name != fresh for tensor in model.graph.initializer):
        tensor = next(tensor for tensor in prepared.graph.initializer if tensor.name == name)
        model.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(tensor), fresh))


def _remove_dead(graph: onnx.GraphProto) -> None:
    """Remove nodes and constants that nothing reads."""
    read = {value.name for value in graph.output}
    used = []
    for node in reversed(graph.node):
        if read & set(node.output):
            used.append(node)
            read |= set(read_names(node))
    del graph.node[:]
    graph.node.extend(reversed(used))
    constants = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(constants)
