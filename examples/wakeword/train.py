"""A wake word that is made up here: three vowels in an order, among others, silence and noise; or words that espeak-ng speaks.

    python examples/wakeword/train.py FOLDER [--speech]

A small DS-CNN with random filters finds features, a linear classifier behind them is trained. FOLDER gets ``float.onnx``, which reads
features of sound, ``calibrate.npz``, and ``recording.wav`` with three wake words in ten seconds; with --speech, by a speaker who was not
heard in training. Needs the extra ``demo``.
"""

from __future__ import annotations

import argparse
import wave
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import speech
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LogisticRegression

import deeploy

FEATURES = deeploy.AudioFeatures(rate=8000, length=256, step=128, points=256, mels=16, low=60)
FRAMES, SOUNDS, WORD = 64, 900, 5600  # frames of a window, sounds to learn from and to test on, samples of a word
VOWELS = {"a": (850, 1610), "i": (240, 2400), "o": (360, 640), "e": (530, 1840)}  # the first two formants in hertz
WAKE = "aio"
SPOKEN = (2.0, 5.0, 8.2)  # seconds at which the wake word begins in the recording
Words = Mapping[str, list[np.ndarray]]  # recordings of each, the last one of a speaker to test with; without any, vowels are made up


def speak(vowels: str, rng: np.random.Generator) -> np.ndarray:
    """Vowels, one behind the other, of a speaker of some pitch."""
    samples = WORD // 3
    seconds, pitch = np.arange(samples) / FEATURES.rate, rng.uniform(90, 200)
    harmonics = pitch * np.arange(1, int(3500 / pitch))
    parts = []
    for vowel in vowels:
        heights = sum(np.exp(-(((harmonics - formant * rng.normal(1, 0.03)) / 120) ** 2) / 2) for formant in VOWELS[vowel]) + 0.01
        parts.append((np.sin(2 * np.pi * np.outer(seconds, harmonics) + rng.uniform(0, 6, len(harmonics))) * heights).sum(1))
    return np.concatenate(parts) * 0.05


def say(word: str, rng: np.random.Generator, words: Words) -> np.ndarray:
    """A word by one of the speakers to learn from."""
    return words[word][rng.integers(len(words[word]) - 1)] if words else speak(word, rng)


def make_sound(is_wake: bool, rng: np.random.Generator, words: Words) -> np.ndarray:
    """A window with the wake word near its end; or another word, a part of one, or nothing. With noise."""
    samples = FEATURES.points + (FRAMES - 1) * FEATURES.step
    sound = rng.normal(0, 0.01, samples)
    if not is_wake and rng.random() < 0.2:
        return sound
    wake = word = speech.WAKE if words else WAKE
    while not is_wake and word == wake:
        word = str(rng.choice(speech.OTHERS)) if words else "".join(rng.choice(list(VOWELS), 3))
    begin = samples - WORD - int(rng.integers(0, 1400))
    if not is_wake and rng.random() < 0.5:  # the wake word, only begun, or long over
        word, begin = wake, samples - int(rng.integers(0, WORD // 2)) if rng.random() < 0.5 else begin - int(rng.integers(3000, 5000))
    spoken = say(word, rng, words)
    first, last = max(0, begin), min(samples, begin + len(spoken))
    sound[first:last] += spoken[first - begin : last - begin]
    return sound


def make_network(weights: dict[str, np.ndarray], is_trained: bool) -> onnx.ModelProto:
    """A convolution, two separable ones, and means of eight frames; with a classifier, its score, else the features."""
    nodes, x = [], "features"
    for name, stride, group in (("first", 2, 1), ("depth1", 1, 16), ("point1", 1, 1), ("depth2", 1, 16), ("point2", 1, 1)):
        border = [weights[name].shape[2] // 2] * 4
        nodes.append(helper.make_node("Conv", [x, name], [f"{name}_sum"], name, strides=[stride] * 2, pads=border, group=group))
        nodes.append(helper.make_node("Relu", [f"{name}_sum"], [f"{name}_out"], f"{name}_relu"))
        x = f"{name}_out"
    nodes.append(helper.make_node("AveragePool", [x], ["means"], "means_of_frames", kernel_shape=[4, 2], strides=[4, 2]))
    nodes.append(helper.make_node("Flatten", ["means"], ["found"], "flatten"))
    if is_trained:
        nodes.append(helper.make_node("Gemm", ["found", "classifier", "bias"], ["logit"], "classify", transB=1))
        nodes.append(helper.make_node("Sigmoid", ["logit"], ["score"], "sigmoid"))
    ends = [("features", [1, 1, FRAMES, FEATURES.mels]), ("score", [1, 1]) if is_trained else ("found", None)]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in ends)
    used = {name for node in nodes for name in node.input}
    arrays = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items() if name in used]
    graph = helper.make_graph(nodes, "wakeword", inputs, outputs, arrays)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def run_model(model: onnx.ModelProto, samples: np.ndarray) -> np.ndarray:
    """The output of a model for every sample."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return np.concatenate([session.run(None, {name: sample[None]})[0] for sample in samples])


def write_recording(path: Path, rng: np.random.Generator, words: Words) -> None:
    """Ten seconds with three wake words and two others."""
    sound = rng.normal(0, 0.01, 10 * FEATURES.rate)
    wake, first, second = (speech.WAKE, *speech.OTHERS[-2:]) if words else (WAKE, "oia", "eae")
    for seconds, word in (*((begin, wake) for begin in SPOKEN), (0.7, first), (6.7, second)):
        begin, spoken = int(seconds * FEATURES.rate), words[word][-1] if words else speak(word, rng)
        sound[begin : begin + len(spoken)] += spoken
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(FEATURES.rate)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--speech", action="store_true", help="words that espeak-ng speaks, instead of vowels")
    arguments = parser.parse_args()
    folder, rng = arguments.folder, np.random.default_rng(0)
    words = speech.record_words(FEATURES.rate, WORD, rng) if arguments.speech else {}
    labels = rng.integers(0, 2, SOUNDS)
    sounds = np.stack([make_sound(bool(label), rng, words) for label in labels]).astype(np.float32)
    features = run_model(deeploy.frontend_audio(features=FEATURES, frames=FRAMES), sounds)[:, None]
    shapes = {"first": (16, 1, 5, 5), "depth1": (16, 1, 3, 3), "point1": (16, 16, 1, 1), "depth2": (16, 1, 3, 3), "point2": (24, 16, 1, 1)}
    weights = {name: rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape) for name, shape in shapes.items()}
    found, count = run_model(make_network(weights, False), features), SOUNDS * 3 // 4
    fitted = LogisticRegression(max_iter=3000, C=0.01).fit(found[:count], labels[:count])
    model = make_network(weights | {"classifier": fitted.coef_, "bias": fitted.intercept_}, True)
    right = np.mean((run_model(model, features[count:])[:, 0] > 0.5) == labels[count:])
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "float.onnx")
    np.savez(folder / "calibrate.npz", features=features[:100])
    write_recording(folder / "recording.wav", rng, words)
    print(f"{folder}: the float network is right for {right:.1%} of {SOUNDS - count} sounds")


if __name__ == "__main__":
    main()
