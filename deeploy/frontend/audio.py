"""Features of sound as a graph of ONNX, to put in front of a network: resampling, biquads, spectra, mel bands, logarithms or PCEN, cepstra.

Along a stream (docs/streams.md) frames, smoothing and what follows run on new samples alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.compose
import onnx.version_converter
from onnx import TensorProto, helper, numpy_helper

from deeploy.errors import UsageError, shorten

_OPSET, _OPSET_OF_WORDS = 17, 21  # the first with STFT, and with integers of 16 bits
_STEP = 2.0**-15  # of samples in 16 bits
_ZEROS, _BETA, _MOST = 10, 5.0, 32  # crossings of zero on each side of a filter that resamples, Kaiser's beta, and the largest factor
_FLOOR = 1e-6  # added to the energy of a band
_IDENTITY: dict[str, Any] = {"activations": ["Affine"], "activation_alpha": [1.0], "activation_beta": [0.0]}  # of a recurrent layer
_PCEN = {"smoothing": 0.025, "gain": 0.98, "bias": 2.0, "power": 0.5}  # Wang et al., Trainable Frontend (2017), table 1


@dataclass(frozen=True, kw_only=True)
class AudioFeatures:
    """What is computed of sound.

    Attributes:
        rate: samples per second; where the sound has another number, ``source``, it is resampled.
        sections: of a filter in front of frames, biquads one behind the other: b0, b1, b2, a0, a1, a2, as SciPy's ``sos``.
        length: samples of a frame, which a Hann window weights; ``step`` samples lie between the beginnings of two.
        points: of the transform, a power of two; frames are shorter or as long.
        mels: bands between the frequencies ``low`` and ``high`` (default: half the rate), triangles that are equally wide in mel.
        coefficients: of the cepstrum (DCT-II of the logarithms, orthonormal); 0: none.
        pcen: energies are normalised by their smoothed course instead of their logarithm being taken.
        fixed: samples are between -1 and 1; they and spectra have 16 bits, those in steps of 2^-15, these in steps of 2^-15 * points.
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
    fixed: bool = False
    source: int | None = None
    sections: Sequence[Sequence[float]] = ()

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

        if any(len(row) != 6 or not np.isfinite(row).all() or not row[3] for row in self.sections):
            raise UsageError("a section has six numbers, of which the fourth is not 0", "Give b0, b1, b2, a0, a1, a2, as SciPy's sos.")
        if self.source is not None and (self.source <= 0 or max(self.factors) > _MOST or self.factors[0] > self.step):
            what = f"{self.source} samples per second do not become {self.rate} by factors of up to {_MOST}"
            raise UsageError(what, "Choose a rate whose ratio to that of the sound has a small numerator and denominator.")

    @property
    def factors(self) -> tuple[int, int]:
        """By how much the rate of the sound is multiplied, and divided."""
        source = self.rate if self.source is None else self.source
        common = math.gcd(self.rate, source)
        return self.rate // common, source // common

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


def polyphase_filters(up: int, down: int) -> np.ndarray:
    """The phases [up, width] of a low pass: output n * up + p is the product of phase p with what begins at sample n * down.

    The low pass is a sinc, cut at the smaller one of both rates, in a Kaiser window.
    """
    reach = _ZEROS * max(up, down)
    places = np.arange(-reach, reach + 1)
    low_pass = np.sinc(places / max(up, down)) * np.kaiser(len(places), _BETA)
    taps = (np.arange(up)[:, None] * down + 2 * reach) - up * np.arange(((up - 1) * down + 2 * reach) // up + 1)
    inside = (taps >= 0) & (taps <= 2 * reach)
    return np.where(inside, (low_pass * up / low_pass.sum())[np.where(inside, taps, 0)], 0).astype(np.float32)


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

    samples, sound = about.points + (frames - 1) * about.step, "audio"
    if about.source is not None:
        sound, samples = _resample_sound(add, about, samples)
    for number, section in enumerate(about.sections):
        sound = _filter_sound(add, np.asarray(section, float), sound, f"section {number}")
    if about.fixed:
        spectrum = _transform_words(add, about, frames, sound)
    else:
        spectrum = add("STFT", sound, np.array(about.step), frame_window(about), name="spectrum", onesided=1)
    power = add("ReduceSum", add("Mul", spectrum, spectrum, name="squares"), np.array([3]), name="power", keepdims=0)
    energy = add("MatMul", power, mel_bands(about), name="energy")
    if about.pcen:
        result = _normalise_energy(add, about, frames, energy)
    else:
        result = add("Log", add("Add", energy, _FLOOR, name="raised energy"), name="bands" if about.coefficients else "features")
    if about.coefficients:
        result = add("MatMul", result, cosine_transform(about), name="features")
    ends = [("audio", [1, samples]), (result, [1, frames, about.width])]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in ends)
    graph = helper.make_graph(nodes, "features", inputs, outputs, constants)
    opset, version = (_OPSET_OF_WORDS, 10) if about.fixed else (_OPSET, 8)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=version)


def _resample_sound(add: Callable[..., str], about: AudioFeatures, samples: int) -> tuple[str, int]:
    """Sound of another rate by a polyphase filter, at least so many samples; and how many it is made of."""
    up, down = about.factors
    filters = polyphase_filters(up, down)
    rows = add("Reshape", "audio", np.array([1, 1, -1]), name="row of sound")
    phases = add("Conv", rows, filters[:, None], name="phases", kernel_shape=[filters.shape[1]], strides=[down])
    sound = add("Reshape", add("Transpose", phases, name="phases by time", perm=[0, 2, 1]), np.array([1, -1]), name="resampled sound")
    return sound, (-(-samples // up) - 1) * down + filters.shape[1]


def _filter_sound(add: Callable[..., str], section: np.ndarray, sound: str, name: str) -> str:
    """A biquad in transposed direct form II as a recurrent layer of identities: its state is its output and two sums of earlier samples."""
    b0, b1, b2, _, a1, a2 = section / section[3]
    inputs = np.array([[[b0], [b1 - a1 * b0], [b2 - a2 * b0]]], np.float32)
    states = np.array([[[0, 1, 0], [0, -a1, 1], [0, -a2, 0]]], np.float32)
    steps = add("Reshape", sound, np.array([-1, 1, 1]), name=f"{name}: samples")
    state = add("RNN", steps, inputs, states, name=f"{name}: states", hidden_size=3, **_IDENTITY)
    return add("Reshape", add("Gather", state, np.array([0]), name=f"{name}: output", axis=3), np.array([1, -1]), name=name)


def _transform_words(add: Callable[..., str], about: AudioFeatures, frames: int, sound: str) -> str:
    """The spectrum in 16 bits."""

    def store(value: str, step: float) -> str:
        words = add("QuantizeLinear", value, step, np.array(0, np.int16), name=f"{value} in words")
        return add("DequantizeLinear", words, step, np.array(0, np.int16), name=f"{value} of words")

    places = np.arange(frames)[:, None] * about.step + np.arange(about.points)
    framed = add("Gather", store(sound, _STEP), places, name="frames", axis=1)
    rows = store(add("Mul", framed, frame_window(about), name="windowed frames"), _STEP)
    real = add("Reshape", rows, np.array([1, frames, about.points, 1]), name="real frames")
    return store(add("DFT", real, np.array(about.points), np.array(2), name="spectrum", onesided=1), _STEP * about.points)


def _normalise_energy(add: Callable[..., str], about: AudioFeatures, frames: int, energy: str) -> str:
    """PCEN: (E / (floor + M)^gain + bias)^power - bias^power, where M is E smoothed by a recurrent layer of identities."""
    s, unit = _PCEN["smoothing"], np.eye(about.mels, dtype=np.float32)[None]
    steps = add("Transpose", energy, name="energy in steps", perm=[1, 0, 2])
    smooth = add(
        "RNN", steps, unit * np.float32(s), unit * np.float32(1 - s), name="smoothed energy in steps", hidden_size=about.mels, **_IDENTITY
    )
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
    of_front = front.opset_import[0].version
    target = max(version, of_front)
    pair = (front, of_front), (model, version)
    front, back = (each if old == target else onnx.version_converter.convert_version(each, target) for each, old in pair)
    front.ir_version = back.ir_version = max(front.ir_version, back.ir_version)
    return onnx.compose.merge_models(front, back, [("shaped features", taken[0])], prefix2="" if _is_apart(front, back) else "network/")


def _is_apart(front: onnx.ModelProto, back: onnx.ModelProto) -> bool:
    """Whether two graphs have no name in common."""
    names = [{n for node in graph.node for n in (node.name, *node.input, *node.output)} for graph in (front.graph, back.graph)]
    return not (names[0] & names[1]) - {""}
