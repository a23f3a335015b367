"""What quantisation costs: a quantised network beside the float one on the calibration samples, in all and layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx

from deeploy.documents import Contents
from deeploy.errors import shorten
from deeploy.quantization import masks
from deeploy.quantization.noise import Noise, format_ratio, round_to_steps, scales_of
from deeploy.quantization.run import (
    in_sequence,
    load_quantiser,
    run_tensors,
    runtime_failures,
    session_of,
    silence_runtime,
    unsupported_model,
)
from deeploy.quantization.samples import Sample
from deeploy.quantization.static import CalibrationSource
from deeploy.report.text import align_table

_SHOWN = 8  # layers of a summary
_DEQUANTISED = "_DequantizeLinear_Output"  # how onnxruntime names what it makes of an output, and the output of the network
_CUT = {"Relu", "Clip"}


@dataclass(frozen=True)
class Loss:
    """What quantisation costs in one tensor, as signal to noise in decibel over all samples.

    Attributes:
        node: the node that computes it, of type ``op``.
        signal_to_noise: of the quantised network's tensor beside the float network's.
        own: of the float network's tensor, quantised, beside itself: what its own scale costs; None where it stays in float.
    """

    node: str
    op: str
    tensor: str
    signal_to_noise: float
    own: float | None


@dataclass(frozen=True)
class Judged:
    """An output, or an operand of a Concat of unlike ones (``deeploy.quantization.parts``); signal to noise in decibel."""

    label: str
    is_output: bool
    signal_to_noise: float


@dataclass(frozen=True)
class LossComparison:
    """A quantised network beside the float one.

    Attributes:
        samples: how many were compared.
        signal_to_noise: of the worst output of floats, in decibel.
        agreement: share of rows of outputs whose largest element is the float network's; None where rows have one element.
        layers: the worst first.
        parts: the outputs and what else is judged by itself.
        is_sequence: whether the samples were the steps of one sequence, in which each network kept its own states.
    """

    samples: int
    signal_to_noise: float
    agreement: float | None
    layers: tuple[Loss, ...]
    parts: tuple[Judged, ...] = ()
    is_sequence: bool = False

    def contents(self) -> Contents:
        """The comparison as a document for ``--json``."""
        return asdict(self)

    def summary(self) -> str:
        """The worst layers as a table, under what is said of the outputs."""
        same = "" if self.agreement is None else f", same top-1 as float in {100 * self.agreement:.1f} % of rows"
        among = f"a sequence of {self.samples} steps" if self.is_sequence else f"{self.samples} samples"
        worst = " at the worst output" if sum(part.is_output for part in self.parts) > 1 else ""
        head = f"outputs beside float, {among}: signal to noise {format_ratio(self.signal_to_noise)}{worst}{same}"
        each = [f"  {shorten(part.label, 100)}: {format_ratio(part.signal_to_noise)}" for part in self.parts] if len(self.parts) > 1 else []
        rows = [
            (shorten(x.node), x.op, format_ratio(x.signal_to_noise), "-" if x.own is None else format_ratio(x.own))
            for x in self.layers[:_SHOWN]
        ]
        return "\n".join([head, *each, align_table(("worst layers", "operator", "signal to noise", "of its own scale"), rows)])


def compare_networks(source: CalibrationSource, quantised: Path) -> LossComparison:
    """Run both networks on samples, and compare every tensor that both have.

    Args:
        source: the float network, as ``deeploy.quantization.static.write_quantised`` took it, which wrote ``quantised``.

    Raises:
        UsageError: onnxruntime is missing.
        UnsupportedError: it cannot run one of the models.
    """
    model, name, samples, states = source.model, source.name, source.samples, source.states
    result = onnx.load(quantised)
    scales, theirs = scales_of(result), _matching_tensors(model, result)
    known = {tensor for node in result.graph.node for tensor in node.output}
    theirs |= {part.tensor: part.tensor for part in source.parts if part.tensor in known - theirs.keys()}
    sums = {tensor: (Noise(), Noise()) for tensor in theirs}  # of the tensor, and of what its own scale makes of it
    parts = [(part, Noise()) for part in source.parts if part.tensor in theirs]
    masked = masks.masked_tensors(model.graph)
    runs = (
        run_tensors(model, name, list(theirs), samples, states),
        run_tensors(result, quantised.name, list(theirs.values()), samples, states),
    )
    for expected, got in zip(*runs, strict=True):
        for (tensor, (total, own)), right, other in zip(sums.items(), expected, got, strict=True):
            shown = right >= masks.HIDDEN if tensor in masked else np.ones(right.shape, bool)  # what hidden scores are does not matter
            signal = right[shown].astype(np.float64)
            total.add(other[shown], signal)
            own.add(round_to_steps(signal, *scales[tensor]) if tensor in scales else signal, signal)
        values = dict(zip(theirs, zip(got, expected, strict=True), strict=True))
        for part, noise in parts:
            noise.add(*(array[part.place] for array in values[part.tensor]))
    layers = [
        Loss(node.name, node.op_type, tensor, sums[tensor][0].decibel, sums[tensor][1].decibel if tensor in scales else None)
        for node in model.graph.node
        for tensor in node.output
        if tensor in theirs and sums[tensor][0].signal
    ]
    outputs = run_model(result, quantised.name, samples, states), run_model(model, name, samples, states)
    judged = tuple(Judged(part.label, part.is_output, noise.decibel) for part, noise in parts)
    return LossComparison(
        len(samples),
        min((part.signal_to_noise for part in judged if part.is_output), default=signal_to_noise(*outputs)),
        class_agreement(*outputs),
        tuple(sorted(layers, key=lambda loss: loss.signal_to_noise)),
        judged,
        bool(states),
    )


def _matching_tensors(model: onnx.ModelProto, quantised: onnx.ModelProto) -> dict[str, str]:
    """The tensor of the quantised network, by that of the float one.

    A tensor that only a Relu or Clip reads is left out: its scale holds what these leave of it.
    """
    known, readers = {name for node in quantised.graph.node for name in node.output}, dict[str, set[str]]()
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, set()).add(node.op_type)
    names: dict[str, str] = {}
    for tensor in (tensor for node in model.graph.node for tensor in node.output):
        name = tensor + _DEQUANTISED if tensor + _DEQUANTISED in known else tensor
        if name in known and not (tensor in readers and readers[tensor] <= _CUT):
            names[tensor] = name
    return names


def run_model(model: onnx.ModelProto, name: str, samples: Sequence[Sample], states: Mapping[str, str]) -> list[np.ndarray]:
    """Every output of a model, stacked over the samples, as onnxruntime computes it; ``states`` are carried from one to the next.

    Raises:
        UsageError: onnxruntime is missing.
        UnsupportedError: it cannot run the model, or outputs of samples differ in shape.
    """
    load_quantiser()
    names = [value.name for value in model.graph.output]
    try:
        with silence_runtime():
            session = session_of(model)
            steps = in_sequence(lambda sample: dict(zip(names, session.run(names, sample), strict=True)), samples, states)
            return [np.stack(column) for column in zip(*([step[name] for name in names] for step in steps), strict=True)]
    except runtime_failures() as error:
        raise unsupported_model("run", name, error) from error


def signal_to_noise(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The signal-to-noise ratio of all float outputs together, in decibel."""
    noise = Noise()
    for g, e in zip(got, expected, strict=True):
        if e.dtype.kind == "f":
            noise.add(g, e)
    return noise.decibel


def class_agreement(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float | None:
    """The share of rows, along the last axis, whose largest element is at the same place."""
    pairs = [
        (g.argmax(-1), e.argmax(-1)) for g, e in zip(got, expected, strict=True) if e.dtype.kind == "f" and e.ndim > 1 and e.shape[-1] > 1
    ]
    same = [g == e for g, e in pairs]
    return float(np.mean(np.concatenate([s.ravel() for s in same]))) if same else None
