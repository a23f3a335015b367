"""What quantisation costs: a quantised network beside the float one on the calibration samples, in all and layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from deeploy.documents import Contents
from deeploy.errors import shorten
from deeploy.quantization import masks
from deeploy.quantization.samples import Sample
from deeploy.quantization.static import failures, quantiser, quiet, tensors, unsupported
from deeploy.report.text import table

EXACT = 200.0  # decibel that stand for no noise at all
_SHOWN = 8  # layers of a summary
_DEQUANTISED = "_DequantizeLinear_Output"  # how onnxruntime names what it makes of an output, and the output of the network
_BEFORE = "_QuantizeLinear_Input"
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
class Comparison:
    """A quantised network beside the float one.

    Attributes:
        samples: how many were compared.
        signal_to_noise: of all outputs of floats, in decibel.
        agreement: share of rows of outputs whose largest element is the float network's; None where rows have one element.
        layers: the worst first.
    """

    samples: int
    signal_to_noise: float
    agreement: float | None
    layers: tuple[Loss, ...]

    def contents(self) -> Contents:
        """For scripts."""
        return asdict(self)

    def summary(self) -> str:
        """The worst layers as a table, under what is said of the outputs."""
        same = "" if self.agreement is None else f", largest element as in float in {100 * self.agreement:.1f} % of rows"
        head = f"outputs beside float, {self.samples} samples: signal to noise {self.signal_to_noise:.1f} dB{same}"
        rows = [(shorten(x.node), x.op, f"{x.signal_to_noise:.1f}", "-" if x.own is None else f"{x.own:.1f}") for x in self.layers[:_SHOWN]]
        return head + "\n" + table(("worst layers", "operator", "signal to noise in dB", "of its own scale"), rows)


def compare(model: onnx.ModelProto, name: str, samples: Sequence[Sample], quantised: Path) -> Comparison:
    """Run both networks on samples, and compare every tensor that both have.

    Args:
        model, name, samples: the float network, as ``deeploy.quantization.static.write_quantised`` took them, which wrote ``quantised``.

    Raises:
        UsageError: onnxruntime is missing.
        UnsupportedError: it cannot run one of the models.
    """
    result = onnx.load(quantised)
    scales, theirs = _scales(result), _theirs(model, result)
    sums = {tensor: np.zeros(3) for tensor in theirs}  # of squares: of the tensor, of the difference, of what its own scale makes of it
    masked = masks.touched(model.graph)
    runs = (tensors(model, name, list(theirs), samples), tensors(result, quantised.name, list(theirs.values()), samples))
    for expected, got in zip(*runs, strict=True):
        for (tensor, total), right, other in zip(sums.items(), expected, got, strict=True):
            shown = right >= masks.HIDDEN if tensor in masked else np.ones(right.shape, bool)  # what hidden scores are does not matter
            signal, other = right[shown].astype(np.float64), other[shown]
            rounded = _rounded(signal, *scales[tensor]) if tensor in scales else signal
            total += [np.square(part).sum() for part in (signal, other - signal, rounded - signal)]
    layers = [
        Loss(node.name, node.op_type, tensor, _decibel(*sums[tensor][:2]), _decibel(*sums[tensor][::2]) if tensor in scales else None)
        for node in model.graph.node
        for tensor in node.output
        if tensor in theirs and sums[tensor][0]
    ]
    outputs = run_model(quantised.read_bytes(), quantised.name, samples), run_model(model.SerializeToString(), name, samples)
    worst_first = tuple(sorted(layers, key=lambda loss: loss.signal_to_noise))
    return Comparison(len(samples), signal_to_noise(*outputs), agreement(*outputs), worst_first)


def _theirs(model: onnx.ModelProto, quantised: onnx.ModelProto) -> dict[str, str]:
    """The tensor of the quantised network, by that of the float one.

    A tensor that only a Relu or Clip reads is left out: its scale holds what these leave of it.
    """
    known, readers = {name for node in quantised.graph.node for name in node.output}, dict[str, set[str]]()
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, set()).add(node.op_type)
    found: dict[str, str] = {}
    for tensor in (tensor for node in model.graph.node for tensor in node.output):
        name = tensor + _DEQUANTISED if tensor + _DEQUANTISED in known else tensor
        if name in known and not (tensor in readers and readers[tensor] <= _CUT):
            found[tensor] = name
    return found


def _scales(model: onnx.ModelProto) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Scale and zero point of every activation that is quantised, by the tensor's name in the float network."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear" and {*node.input[1:]} <= values.keys()]
    return {node.input[0].removesuffix(_BEFORE): (values[node.input[1]], values[node.input[2]]) for node in nodes}


def _rounded(values: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """What is left of values in steps of a scale."""
    limits, offset = np.iinfo(zero.dtype), zero.astype(np.float64)
    steps = np.clip(np.rint(values / scale) + offset, limits.min, limits.max)
    rounded: np.ndarray = (steps - offset) * scale
    return rounded


def run_model(model: bytes, name: str, samples: Sequence[Sample]) -> list[np.ndarray]:
    """Every output of a model, stacked over the samples, as onnxruntime computes it.

    Raises:
        UsageError: onnxruntime is missing.
        UnsupportedError: it cannot run the model, or outputs of samples differ in shape.
    """
    quantiser()
    import onnxruntime

    try:
        with quiet():
            session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
            return [np.stack(column) for column in zip(*(session.run(None, sample) for sample in samples), strict=True)]
    except failures() as error:
        raise unsupported("run", name, error) from error


def signal_to_noise(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """10 log10 of the sum of squares of what is expected over that of the differences, in decibel; of floats alone."""
    pairs = [(g.astype(np.float64), e.astype(np.float64)) for g, e in zip(got, expected, strict=True) if e.dtype.kind == "f"]
    return _decibel(sum(float(np.square(e).sum()) for _, e in pairs), sum(float(np.square(g - e).sum()) for g, e in pairs))


def _decibel(signal: float, noise: float) -> float:
    return EXACT if not noise else min(EXACT, float(10 * np.log10(signal / noise))) if signal else 0.0


def agreement(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float | None:
    """The share of rows, along the last axis, whose largest element is at the same place."""
    pairs = [
        (g.argmax(-1), e.argmax(-1)) for g, e in zip(got, expected, strict=True) if e.dtype.kind == "f" and e.ndim > 1 and e.shape[-1] > 1
    ]
    same = [g == e for g, e in pairs]
    return float(np.mean(np.concatenate([s.ravel() for s in same]))) if same else None
