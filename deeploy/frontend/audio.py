"""Features of sound as a graph of ONNX, to put in front of a network: frames, spectra, mel bands, logarithms or PCEN, cepstra.

Along a stream (docs/streams.md) frames, smoothing and what follows run on new samples alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.compose
import onnx.version_converter
from onnx import TensorProto, helper, numpy_helper

from deeploy.errors import UsageError, shorten

_OPSET = 17  # the first with STFT
_FLOOR = 1e-6  # added to the energy of a band
_PCEN = {"smoothing": 0.025, "gain": 0.98, "bias": 2.0, "power": 0.5}  # Wang et al., Trainable Frontend (2017), table 1


@dataclass(frozen=True, kw_only=True)
class AudioFeatures:
    """What is computed of sound.

    Attributes:
        rate: samples per second.
        length: samples of a frame, which a Hann window weights; ``step`` samples lie between the beginnings of two.
        points: of the transform, a power of two; frames are shorter or as long.
        mels: bands between the frequencies ``low`` and ``high`` (default: half the rate), triangles that are equally wide in mel.
        coefficients: of the cepstrum (DCT-II of the logarithms, orthonormal); 0: none.
        pcen: energies are normalised by their smoothed course instead of their logarithm being taken.
    """

    rate: int = 16_000
    length: int = 480
    step: int = 320
    points: int = 512
    mels: int = 40
    low: float = 20.0
    high: float | None = None
    coefficients: int = 0
    pcen: bool = False

    def __post_init__(self) -> None:
        if self.points < 4 or self.points & (self.points - 1) or not 1 < self.length <= self.points or not 0 < self.step <= self.length:
            what = f"step {self.step}, length {self.length} and points {self.points} do not fit each other"
            raise UsageError(what, "Points are a power of two, frames are not longer than that, and a step is not longer than a frame.")
        if (
            not 0 <= self.low < self.top <= self.rate / 2
            or not 0 < self.mels <= self.points // 2
            or not 0 <= self.coefficients <= self.mels
        ):
            what = f"{self.mels} bands from {self.low:g} to {self.top:g} Hz and {self.coefficients} coefficients do not fit each other"
            raise UsageError(what, f"Frequencies go up to {self.rate / 2:g} Hz; there are no more coefficients than bands.")
        if self.pcen and self.coefficients:
            raise UsageError("a cepstrum is one of logarithms", "Leave coefficients or pcen out.")

    @property
    def top(self) -> float:
        return self.rate / 2 if self.high is None else self.high

    @property
    def width(self) -> int:
        """Features of a frame."""
        return self.coefficients or self.mels


def mel_bands(about: AudioFeatures) -> np.ndarray:
    """The weights [points/2 + 1, mels] of triangles whose corners are equally far in mel, 2595 log10(1 + f/700)."""
    low, high = (2595 * float(np.log10(1 + hertz / 700)) for hertz in (about.low, about.top))
    corners = 700 * (10 ** (np.linspace(low, high, about.mels + 2) / 2595) - 1)
    frequencies = np.arange(about.points // 2 + 1)[:, None] * about.rate / about.points
    rising = (frequencies - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - frequencies) / (corners[2:] - corners[1:-1])
    return np.asarray(np.maximum(0, np.minimum(rising, falling)), np.float32)


def cosine_transform(about: AudioFeatures) -> np.ndarray:
    """The orthonormal DCT-II [mels, coefficients]."""
    angles = np.pi / about.mels * np.outer(np.arange(about.mels) + 0.5, np.arange(about.coefficients))
    scale = np.sqrt(np.where(np.arange(about.coefficients) == 0, 1, 2) / about.mels)
    return (np.cos(angles) * scale).astype(np.float32)


def frame_window(about: AudioFeatures) -> np.ndarray:
    """A periodic Hann window behind as many zeros as the transform is longer: what is newest of a frame is used at once."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(about.length) / about.length)
    return np.pad(window, (about.points - about.length, 0)).astype(np.float32)


def make_features(about: AudioFeatures, frames: int) -> onnx.ModelProto:
    """A model from ``audio`` [1, samples] to ``features`` [1, frames, width]."""
    nodes, constants = list[onnx.NodeProto](), list[onnx.TensorProto]()

    def add(op: str, *inputs: str | np.ndarray | float, name: str, **attributes: Any) -> str:
        names = []
        for value in inputs:
            names.append(value if isinstance(value, str) else f"{name} (constant {len(constants)})")
            if not isinstance(value, str):
                array = np.asarray(value) if isinstance(value, np.ndarray) else np.float32(value)
                constants.append(numpy_helper.from_array(np.asarray(array), names[-1]))
        nodes.append(helper.make_node(op, names, [name], f"{op} of {name}", **attributes))
        return name

    spectrum = add("STFT", "audio", np.array(about.step), frame_window(about), name="spectrum", onesided=1)
    power = add("ReduceSum", add("Mul", spectrum, spectrum, name="squares"), np.array([3]), name="power", keepdims=0)
    energy = add("MatMul", power, mel_bands(about), name="energy")
    if about.pcen:
        result = _normalise_energy(add, about, frames, energy)
    else:
        result = add("Log", add("Add", energy, _FLOOR, name="raised energy"), name="bands" if about.coefficients else "features")
    if about.coefficients:
        result = add("MatMul", result, cosine_transform(about), name="features")
    samples = about.points + (frames - 1) * about.step
    ends = [("audio", [1, samples]), (result, [1, frames, about.width])]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in ends)
    graph = helper.make_graph(nodes, "features", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)


def _normalise_energy(add: Callable[..., str], about: AudioFeatures, frames: int, energy: str) -> str:
    """PCEN: (E / (floor + M)^gain + bias)^power - bias^power, where M is E smoothed by a recurrent layer of identities."""
    s, unit = _PCEN["smoothing"], np.eye(about.mels, dtype=np.float32)[None]
    steps = add("Transpose", energy, name="energy in steps", perm=[1, 0, 2])
    options = {"hidden_size": about.mels, "activations": ["Affine"], "activation_alpha": [1.0], "activation_beta": [0.0]}
    smooth = add("RNN", steps, unit * np.float32(s), unit * np.float32(1 - s), name="smoothed energy in steps", **options)
    course = add("Transpose", add("Squeeze", smooth, np.array([1]), name="course"), name="smoothed energy", perm=[1, 0, 2])
    gain = add("Pow", add("Add", course, _FLOOR, name="raised course"), _PCEN["gain"], name="gain")
    raised = add("Add", add("Div", energy, gain, name="gained energy"), _PCEN["bias"], name="biased energy")
    root = add("Pow", raised, _PCEN["power"], name="root")
    return add("Sub", root, _PCEN["bias"] ** _PCEN["power"], name="features")


def put_in_front(about: AudioFeatures, model: onnx.ModelProto, name: str | None = None) -> onnx.ModelProto:
    """A model of sound from one of features: its input, ``name`` or the only one, has frames and features as axes, beside some of 1.

    Raises:
        UsageError: it has not.
    """
    inputs = {port.name: [dim.dim_value for dim in port.type.tensor_type.shape.dim] for port in model.graph.input}
    taken = [name] if name is not None else list(inputs)
    shape = inputs.get(taken[0], []) if len(taken) == 1 else []
    axes = [n for n in shape if n != 1]
    if len(axes) != 2 or about.width not in axes:
        told = ", ".join(f"{shorten(each)} {extents}" for each, extents in inputs.items())
        raise UsageError(f"no input has frames of {about.width} features: {told}", "Name the input, or change mels or coefficients.")
    is_last = axes[1] == about.width
    front = make_features(about, axes[0] if is_last else axes[1])
    made, last = front.graph, front.graph.output[0].name
    if not is_last:
        made.node.append(helper.make_node("Transpose", [last], ["turned features"], "turn features", perm=[0, 2, 1]))
        last = "turned features"
    made.initializer.append(numpy_helper.from_array(np.array(shape), "shape of features"))
    made.node.append(helper.make_node("Reshape", [last, "shape of features"], ["shaped features"], "shape features"))
    del made.output[:]
    made.output.append(helper.make_tensor_value_info("shaped features", TensorProto.FLOAT, shape))
    version = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    target = max(version, _OPSET)
    front, back = (
        each if old == target else onnx.version_converter.convert_version(each, target) for each, old in ((front, _OPSET), (model, version))
    )
    front.ir_version = back.ir_version = max(front.ir_version, back.ir_version)
    return onnx.compose.merge_models(front, back, [("shaped features", taken[0])], prefix2="" if _is_apart(front, back) else "network/")


def _is_apart(front: onnx.ModelProto, back: onnx.ModelProto) -> bool:
    """Whether two graphs have no name in common."""
    names = [{n for node in graph.node for n in (node.name, *node.input, *node.output)} for graph in (front.graph, back.graph)]
    return not (names[0] & names[1]) - {""}
