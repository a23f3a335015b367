"""Whether outputs differ from onnxruntime's although the C equals the specification: by evidence, in this order.

1. Every layer alone. onnxruntime computes, without its optimisations, every tensor that the program and the model both have, from the
   interpreter's own values of such tensors before it. Each has to agree: integers by one step, and in 99 % of the elements, ties apart
   (in 95 %, where the others are near a tie; probabilities of a Softmax by one step alone, since onnxruntime's integer form cuts levels
   off); floats within 1e-4 of the element, or of the largest magnitude where that is below 1.
2. Only then the network as a whole: what onnxruntime gives without its optimisations, and how far outputs move where inputs are moved by
   one part in a million, or the results of all layers are: floats by as much, and integers as onnxruntime rounds them in step 1.

A wrong layer is found in step 1, whatever the network makes of its error: what it is given does not depend on other layers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deeploy.documents import Contents, Document
from deeploy.errors import shorten
from deeploy.execution.verification import onnxruntime_reference as reference
from deeploy.execution.verification.compare import (
    EQUAL_SHARE,
    Comparison,
    absolute_differences,
    allowed_difference,
    compare_output,
    is_fine,
)
from deeploy.execution.verification.layers import Place, find_places, run_layers
from deeploy.ir.types import DType
from deeploy.planning.program import Program

MOVED = 1e-6  # part of a value
_TRIALS = 3  # of moved values, each with other signs
_MOVED_SAMPLES = 4
_FACTOR = 2  # of what moved values make of outputs, which roundings at other places may reach
_NEAR_TIE = 0.02  # steps between a value and the border between two integers, either of which it may become
_NEAR, _NEAR_SHARE = 0.125, 0.05  # the same for so many elements: states of recurrent layers have 16 bits, and their functions tables
_GIVEN = " (given)"
_MOST_DIFFERING = 4  # elements of a moved tensor may be that many times fewer than those of the one that is explained


@dataclass(frozen=True)
class Disagreement:
    """A tensor that onnxruntime computes otherwise from the interpreter's own inputs: the worst difference, in ``unit``."""

    tensor: str
    worst: float
    unit: str


@dataclass(frozen=True)
class Evidence:
    """What was found, and whether it explains the difference.

    Attributes:
        tensors: how many were compared, each from the interpreter's own inputs.
        unoptimised: the outputs of the C beside those of onnxruntime without its optimisations.
        moved: the outputs of the interpreter beside those from moved values.
    """

    text: str
    is_explained: bool
    tensors: int
    disagreement: Disagreement | None = None
    unoptimised: Sequence[Comparison] = ()
    moved: Sequence[Comparison] = ()

    def contents(self) -> Contents:
        """The evidence as a document for ``--json``; a difference that is no number is null."""
        told = asdict(self)
        for entry in (*told["unoptimised"], *told["moved"], *([told["disagreement"]] if self.disagreement else [])):
            entry |= {name: value for name, value in entry.items() if not isinstance(value, float) or math.isfinite(value)}
            entry |= {name: None for name, value in entry.items() if isinstance(value, float) and not math.isfinite(value)}
        return told


@dataclass(frozen=True)
class _QuantisedTensor:
    """How a tensor is quantised: what is rounded, whether a Softmax computes that, and its scale, which broadcasts to it."""

    source: str
    is_probability: bool
    scale: np.ndarray


def explain_difference(
    program: Program,
    entry: Document,
    samples: Sequence[Sequence[np.ndarray]],
    model: bytes,
    outputs: Sequence[np.ndarray],
    against: Sequence[Comparison],
) -> Evidence | str:
    """Explain how outputs differ from onnxruntime's, or say why there is no evidence.

    Args:
        outputs: those of the C, which are the interpreter's, stacked over samples.
        against: their comparisons with onnxruntime with its optimisations, of which some fail.
    """
    if program.dynamic_length is not None:
        return "the network has states"
    loaded = onnx.load_from_string(model)
    layers_known = _ExplainedLayers.of(program, entry, loaded)
    if isinstance(layers_known, str):
        return layers_known
    plain: list[list[np.ndarray]] = []
    for sample in samples:
        mine, theirs, whole = layers_known.computed(sample)
        if isinstance(whole, str):
            return whole
        for name in mine:
            wrong = layers_known.disagreement(name, mine[name], theirs)
            if wrong is not None:
                told = f"{shorten(name)} differs by {wrong.worst:g} {wrong.unit} from onnxruntime's, computed from the same inputs"
                return Evidence(told, False, len(mine), wrong)
        plain.append(whole)
    ports = [port for port in entry["outputs"] if port["name"] in {c.name for c in against}]
    places = [entry["outputs"].index(port) for port in ports]
    golden = [np.stack([sample[place] for sample in plain]) for place in places]
    unoptimised = [compare_output(port, outputs[place], want) for port, place, want in zip(ports, places, golden, strict=True)]
    head = f"C equals the specification, and each of {len(layers_known.places)} tensors agrees with onnxruntime's from the same inputs"
    failing = max((c for c in against if not c.passed), key=lambda c: c.worst)
    if all(c.passed for c in unoptimised):
        told = f"{head}; onnxruntime's optimiser differs ({failing.worst:.4g} {failing.unit}): without it, the outputs agree"
        return Evidence(told, True, len(layers_known.places), None, unoptimised)
    worst = sorted(range(len(samples)), key=lambda n: -_output_distance(places, outputs, golden, n))[:_MOVED_SAMPLES]
    moved: list[Comparison] = []
    for what, is_inside in (("inputs", False), ("inputs and the results of layers", True)):
        moved = [
            _worse_comparison(pair)
            for pair in zip(*(layers_known.moved(samples, worst, places, ports, is_inside, seed) for seed in range(_TRIALS)), strict=True)
        ]
        if all(c.passed or _reaches_difference(m, c) for m, c in zip(moved, unoptimised, strict=True)):
            largest = max(moved, key=lambda c: c.worst)
            steps = " (integers by a step, where onnxruntime rounds otherwise)" if is_inside and layers_known.quantised else ""
            move = f"moved by {MOVED:g}{steps} move outputs by {largest.worst:.4g} {largest.unit}"
            told = f"{head}; this network amplifies rounding: {what} {move}"
            return Evidence(told, True, len(layers_known.places), None, unoptimised, moved)
    largest = max(moved, key=lambda c: c.worst)
    told = (
        f"{head}, but roundings do not explain the difference: moved by {MOVED:g}, they move outputs by {largest.worst:.4g} {largest.unit}"
    )
    return Evidence(told, False, len(layers_known.places), None, unoptimised, moved)


def _output_distance(places: Sequence[int], outputs: Sequence[np.ndarray], golden: Sequence[np.ndarray], number: int) -> float:
    """How far the outputs of a sample are from onnxruntime's."""
    return max(
        float(absolute_differences(outputs[place][number], want[number]).max(initial=0)) for place, want in zip(places, golden, strict=True)
    )


def _worse_comparison(comparisons: Sequence[Comparison]) -> Comparison:
    return max(comparisons, key=lambda c: (c.worst, -c.equal))


def _reaches_difference(moved: Comparison, difference: Comparison) -> bool:
    """Whether moved values make as much of an output as the difference that is to be explained."""
    return difference.worst <= _FACTOR * moved.worst and 1 - difference.equal <= _MOST_DIFFERING * (1 - moved.equal)


@dataclass(frozen=True)
class _ExplainedLayers:
    """The tensors that a program and a model both have, and onnxruntime without its optimisations for each layer alone and for all."""

    program: Program
    entry: Document
    places: Mapping[str, Place]
    quantised: Mapping[str, _QuantisedTensor]
    alone: reference.Session
    whole: reference.Session

    @classmethod
    def of(cls, program: Program, entry: Document, model: onnx.ModelProto) -> _ExplainedLayers | str:
        """For a model whose floats are float32; or why there is no such session."""
        places = {place.name: place for place in find_places(program, model.graph)}
        kinds = {name: program.buffers[place.operand.buffer].dtype for name, place in places.items()}
        ports = [port["name"] for port in entry["outputs"]]
        makers = {name: node for node in model.graph.node for name in node.output}
        quantised = _tensor_quantisations(model.graph, makers)
        whole, reason = reference.open_session(_with_outputs(model, places).SerializeToString(), entry, optimise=False)
        if whole is None:
            return reason
        types = {value.name: value.type for value in whole.session.get_outputs()}
        ranks = {value.name: len(value.shape) for value in whole.session.get_outputs()}  # rows may be images of one row in the program
        places = {name: place.in_rank(ranks[name]) for name, place in places.items() if name in types}
        places = {
            name: place
            for name, place in places.items()
            if reference.name_type(kinds[name]) == types[name] and len(place.shape) == ranks[name]
        }
        if missing := [name for name in ports if name not in places]:
            return f"the program has no tensor {shorten(missing[0])} as the model has it"
        sources = [q.source for name, q in quantised.items() if name in places and types.get(q.source, "tensor(float)") == "tensor(float)"]
        sources = [name for name in dict.fromkeys(sources) if name in makers]
        cut = _with_inputs(model, {name: (places[name].shape, kinds[name]) for name in places})
        more = [{"name": name + _GIVEN, "type": kinds[name].value, "shape": list(places[name].shape)} for name in places]
        wider = {**entry, "inputs": [*entry["inputs"], *more]}
        alone, reason = reference.open_session(_with_outputs(cut, (*places, *sources)).SerializeToString(), wider, optimise=False)
        if alone is None:
            return reason
        alone = reference.Session(alone.session, [*places, *sources], wider)
        return cls(program, entry, places, quantised, alone, whole)

    def computed(self, sample: Sequence[np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], list[np.ndarray] | str]:
        """Tensors of one sample: the interpreter's, onnxruntime's from the same inputs, and its outputs from the network's inputs."""
        mine, _ = run_layers(self.program, sample, list(self.places.values()))
        given = [mine[port["name"].removesuffix(_GIVEN)] for port in self.alone.entry["inputs"][len(sample) :]]
        theirs, whole = self.alone.run([[*sample, *given]]), self.whole.run([sample])
        if isinstance(theirs, str) or isinstance(whole, str):
            return mine, {}, theirs if isinstance(theirs, str) else str(whole)
        named = {name: array[0] for name, array in zip(self.alone.outputs, theirs, strict=True) if array is not None}
        return mine, named, [array[0] for array in whole if array is not None]

    def disagreement(self, name: str, mine: np.ndarray, theirs: Mapping[str, np.ndarray]) -> Disagreement | None:
        """How a tensor differs from onnxruntime's by more than the rule; None where it does not."""
        want = theirs[name]
        port = next((port for port in self.entry["outputs"] if port["name"] == name), None)
        if mine.shape != want.shape:
            return Disagreement(name, math.inf, f"(shape {list(mine.shape)} instead of {list(want.shape)})")
        apart = absolute_differences(mine, want)
        worst = float(apart.max(initial=0.0))
        if port is not None and port["equality"] in ("softmax", "steps"):
            difference = compare_output(port, mine, want)
            if difference.passed or port["equality"] == "softmax":
                return None if difference.passed else Disagreement(name, difference.worst, difference.unit)
        if mine.dtype.kind == "f":
            return None if not (apart > allowed_difference(want)).any() else Disagreement(name, worst, "absolute")
        quantised = self.quantised.get(name)
        if mine.dtype.kind not in "iu" or mine.dtype.itemsize > 2:
            return None if worst == 0 else Disagreement(name, worst, "(all of it has to be equal)")
        border = np.ones(mine.shape)  # how far the value is from where it would be rounded the other way, in steps
        if quantised is not None and quantised.source in theirs:
            value = theirs[quantised.source].astype(np.float64) / quantised.scale
            border = np.abs(value - np.floor(value) - 0.5)
        wrong = border[(apart > 0) & (border > _NEAR_TIE)]
        share = _NEAR_SHARE if wrong.max(initial=0) <= _NEAR else 1 - EQUAL_SHARE
        share = 1 if quantised is not None and quantised.is_probability else share
        most = max(1 if share == _NEAR_SHARE else 0, share * apart.size)
        return None if (worst <= 1 and wrong.size <= most) or is_fine(mine, want) else Disagreement(name, worst, "step(s)")

    def moved(
        self,
        samples: Sequence[Sequence[np.ndarray]],
        chosen: Sequence[int],
        places: Sequence[int],
        ports: Sequence[Document],
        is_inside: bool,
        seed: int,
    ) -> list[Comparison]:
        """The outputs from moved inputs, and from moved results of layers, beside the interpreter's."""
        rng = np.random.default_rng(seed)
        runs: list[tuple[list[np.ndarray], list[np.ndarray]]] = []

        def move(array: np.ndarray) -> np.ndarray:
            if array.dtype.kind != "f":
                return array
            return (array * (1 + MOVED * rng.choice((-1.0, 1.0), array.shape))).astype(array.dtype)

        for number in chosen:
            mine, theirs, _ = self.computed(samples[number])
            _, plain = run_layers(self.program, samples[number], ())

            def change(
                name: str, array: np.ndarray, mine: Mapping[str, np.ndarray] = mine, theirs: Mapping[str, np.ndarray] = theirs
            ) -> np.ndarray:
                if array.dtype.kind == "f":
                    return move(array)
                if array.dtype.kind not in "iu":
                    return array
                ends = np.iinfo(array.dtype)
                other = array.astype(np.int64) + theirs[name].astype(np.int64) - mine[name].astype(np.int64)
                return np.clip(other, ends.min, ends.max).astype(array.dtype)

            inner: Sequence[Place] = list(self.places.values()) if is_inside else ()
            _, after = run_layers(self.program, [move(array) for array in samples[number]], inner, change)
            runs.append((plain, after))
        pairs = [[np.stack([pair[side][place] for pair in runs]) for side in (0, 1)] for place in places]
        return [compare_output(port, after, plain) for port, (plain, after) in zip(ports, pairs, strict=True)]


def _graph_constants(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value":
                constants[node.output[0]] = numpy_helper.to_array(attribute.t)
    return constants


def _tensor_quantisations(graph: onnx.GraphProto, makers: Mapping[str, onnx.NodeProto]) -> dict[str, _QuantisedTensor]:
    """How tensors are quantised, by their names."""
    constants, tensors = _graph_constants(graph), dict[str, _QuantisedTensor]()
    for name, node in makers.items():
        scale = constants.get(node.input[1]) if node.op_type == "QuantizeLinear" else None
        if scale is not None and scale.size == 1:
            maker = makers.get(node.input[0])
            is_probability = maker is not None and maker.op_type == "Softmax"
            tensors[name] = _QuantisedTensor(str(node.input[0]), is_probability, scale.astype(np.float64).reshape(()))
    return tensors


def _with_outputs(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """A model that returns these tensors, too."""
    wider = onnx.ModelProto()
    wider.CopyFrom(model)
    known = {value.name for value in model.graph.output}
    wider.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names) if name not in known)
    return wider


def _with_inputs(model: onnx.ModelProto, tensors: Mapping[str, tuple[Sequence[int], DType]]) -> onnx.ModelProto:
    """A model whose nodes read inputs in the place of these tensors, which it still computes."""
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    for name, (shape, dtype) in tensors.items():
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype.numpy))
        cut.graph.input.append(helper.make_tensor_value_info(name + _GIVEN, kind, shape))
    _read_inputs(cut.graph, tensors)
    return cut


def _read_inputs(graph: onnx.GraphProto, tensors: Collection[str]) -> None:
    """In the graphs that nodes hold as well."""
    for node in graph.node:
        node.input[:] = [name + _GIVEN if name in tensors else name for name in node.input]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _read_inputs(attribute.g, tensors)
