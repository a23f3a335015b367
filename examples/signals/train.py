"""Small classifiers of signals that are made up here: three kinds of heartbeats, or three words of two vowels.

    python examples/signals/train.py heart FOLDER
    python examples/signals/train.py words FOLDER

Two convolutions with random filters find features, a linear classifier behind them is trained. FOLDER gets ``float.onnx``,
``calibrate.npz``, ``test.npz`` and ``labels.npz``. Needs the extra ``demo``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LogisticRegression

TRAIN, TEST = 600, 90
HERTZ, BEAT = 128, 128  # samples per second of the electrocardiogram, and of a window
AUDIO_HERTZ, FRAME, HOP, FRAMES, BANDS = 8000, 256, 128, 30, 16
VOWELS = {"a": (850, 1610), "i": (240, 2400), "o": (360, 640)}  # the first two formants in hertz
WORDS = (("a", "i"), ("i", "a"), ("o", "a"))


def make_heartbeat(kind: int, rng: np.random.Generator) -> np.ndarray:
    """One second of one lead, [1, 128]: 0 a normal beat, 1 a premature ventricular one, 2 one of atrial fibrillation."""
    seconds = np.arange(BEAT) / HERTZ
    centre = 0.45 + rng.normal(0, 0.03)
    waves = {  # height, distance from the R wave and width in seconds
        0: ((0.15, -0.17, 0.025), (-0.1, -0.03, 0.01), (1.0, 0, 0.012), (-0.2, 0.03, 0.012), (0.3, 0.25, 0.04)),
        1: ((1.2, 0, 0.04), (-0.5, 0.09, 0.035), (-0.35, 0.28, 0.06)),
        2: ((-0.1, -0.03, 0.01), (0.9, 0, 0.012), (-0.2, 0.03, 0.012), (0.2, 0.25, 0.04)),
    }[kind]
    beat = sum(rng.normal(1, 0.1) * height * np.exp(-(((seconds - centre - at) / width) ** 2) / 2) for height, at, width in waves)
    if kind == 2:
        beat = beat + 0.08 * np.sin(2 * np.pi * (rng.uniform(5, 8) * seconds + rng.uniform()))
    drift = 0.1 * np.sin(2 * np.pi * (0.3 * seconds + rng.uniform()))
    return (beat + drift + rng.normal(0, 0.03, BEAT))[None].astype(np.float32)


def make_word(kind: int, rng: np.random.Generator) -> np.ndarray:
    """The logarithms of 16 bands of a spectrogram of half a second, [1, 30, 16]: two vowels, one after the other."""
    samples = (FRAMES - 1) * HOP + FRAME
    seconds = np.arange(samples) / AUDIO_HERTZ
    pitch, change = rng.uniform(90, 220), int(samples * rng.uniform(0.4, 0.6))
    harmonics = pitch * np.arange(1, int(3500 / pitch))
    parts = []
    for vowel in WORDS[kind]:
        heights = sum(np.exp(-(((harmonics - formant * rng.normal(1, 0.04)) / 120) ** 2) / 2) for formant in VOWELS[vowel]) + 0.01
        parts.append((np.sin(2 * np.pi * np.outer(seconds, harmonics) + rng.uniform(0, 6, len(harmonics))) * heights).sum(1))
    sound = np.where(np.arange(samples) < change, *parts) + rng.normal(0, 0.2, samples)
    frames = np.stack([sound[at * HOP : at * HOP + FRAME] for at in range(FRAMES)]) * np.hanning(FRAME)
    power = np.abs(np.fft.rfft(frames)[:, 1:]) ** 2
    return np.log(power.reshape(FRAMES, BANDS, -1).mean(2) + 1e-3)[None].astype(np.float32)


def make_network(extents: tuple[int, ...], classifier: tuple[np.ndarray, np.ndarray] | None, rng: np.random.Generator) -> onnx.ModelProto:
    """Two convolutions and pools of windows of [1, *extents]; with a classifier's weights and bias, its scores, else the features."""
    axes = len(extents)
    window, stride = [5] * axes, [2] * axes
    weights = {"w0": rng.normal(0, 0.4, (16, 1, *window)), "b0": rng.normal(0, 0.3, 16), "w1": rng.normal(0, 0.15, (32, 16, *window))}
    conv = {"pads": [2] * (2 * axes), "strides": stride}
    pool = {"kernel_shape": [max(1, n // 16) for n in extents], "strides": [max(1, n // 16) for n in extents]}
    nodes = [
        helper.make_node("Conv", ["signal", "w0", "b0"], ["a"], "first", **conv),
        helper.make_node("Relu", ["a"], ["b"], "relu_first"),
        helper.make_node("Conv", ["b", "w1"], ["c"], "second", **conv),
        helper.make_node("Relu", ["c"], ["d"], "relu_second"),
        helper.make_node("MaxPool", ["d"], ["e"], "pool", **pool),
        helper.make_node("Flatten", ["e"], ["features"], "flatten"),
    ]
    if classifier is not None:
        weights |= {"w2": classifier[0], "b2": classifier[1]}
        nodes.append(helper.make_node("Gemm", ["features", "w2", "b2"], ["scores"], "classifier", transB=1))
    ends = (("signal", [1, 1, *extents]), ("features" if classifier is None else "scores", None if classifier is None else [1, 3]))
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in ends]
    arrays = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "signals", *ports, arrays)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])


def run_network(model: onnx.ModelProto, signals: np.ndarray) -> np.ndarray:
    """The outputs of all signals, one row each."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"signal": signal[None]})[0] for signal in signals])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("signals", choices=("heart", "words"))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, TRAIN + TEST)
    make = make_heartbeat if arguments.signals == "heart" else make_word
    signals = np.stack([make(int(kind), rng) for kind in labels])
    extents = signals.shape[2:]
    features = run_network(make_network(extents, None, np.random.default_rng(1)), signals)
    fitted = LogisticRegression(max_iter=2000, C=10).fit(features[:TRAIN], labels[:TRAIN])
    model = make_network(extents, (fitted.coef_, fitted.intercept_), np.random.default_rng(1))
    right = np.mean(run_network(model, signals[TRAIN:]).argmax(1) == labels[TRAIN:])
    arguments.folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, arguments.folder / "float.onnx")
    np.savez(arguments.folder / "calibrate.npz", signal=signals[:100])
    np.savez(arguments.folder / "test.npz", signal=signals[TRAIN:, None])
    np.savez(arguments.folder / "labels.npz", labels=labels[TRAIN:])
    print(f"{arguments.folder}: the float network is right in {right:.1%} of {TEST} signals")


if __name__ == "__main__":
    main()
