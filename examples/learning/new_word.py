"""A keyword network learns a new word from ten examples: the int8 backbone of the wake word's network, whose float head learns.

The network knows one word, three vowels in an order, from others. Ten recordings of a new word and thirty of what it knows are the samples
of some steps; onnxruntime computes them, and C for Siracusa gives the interpreter's losses to the last bit on the model of the machine.

    python examples/learning/new_word.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import deeploy

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "wakeword"))

from sklearn.linear_model import LogisticRegression  # noqa: E402
from train import FEATURES, FRAMES, VOWELS, WAKE, WORD, make_network, run_model, speak  # noqa: E402

NEW = "oie"
OTHER, KNOWN, LEARNED = range(3)  # classes
EXAMPLES, PASSES, RATE = [LEARNED, OTHER, KNOWN, OTHER] * 10, 20, 0.003
SIZES = {"first": (16, 1, 5, 5), "depth1": (16, 1, 3, 3), "point1": (16, 16, 1, 1), "depth2": (16, 1, 3, 3), "point2": (24, 16, 1, 1)}


def record(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Features of a recording of each class: a word of a random speaker near the end of a window, with noise."""
    samples, sounds = FEATURES.points + (FRAMES - 1) * FEATURES.step, []
    for label in labels:
        vowels = {KNOWN: WAKE, LEARNED: NEW}.get(label, WAKE)
        while label == OTHER and vowels in (WAKE, NEW):
            vowels = "".join(random.choice(list(VOWELS), 3))
        begin = samples - WORD - int(random.integers(0, 1400))
        sound, word = random.normal(0, 0.01, samples), speak(vowels, random)
        sound[begin : begin + len(word)] += word
        sounds.append(sound)
    return run_model(deeploy.frontend_audio(features=FEATURES, frames=FRAMES), np.stack(sounds).astype(np.float32))[:, None]


def make_keyword_network(random: np.random.Generator) -> tuple[onnx.ModelProto, np.ndarray]:
    """The float network with a class that it has never seen, and recordings for calibration."""
    labels = random.integers(0, 2, 400)
    heard = record(labels, random)
    model = make_network({name: random.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape) for name, shape in SIZES.items()}, False)
    found = run_model(model, heard)
    fitted = LogisticRegression(max_iter=3000, C=0.01).fit(found, labels)
    weights, bias = np.zeros((found.shape[1], 3)), np.array([0, fitted.intercept_.item(), -3.0])
    weights[:, KNOWN] = fitted.coef_[0]
    (features,) = model.graph.output
    model.graph.node.append(helper.make_node("Gemm", [features.name, "head", "head_bias"], ["scores"], "head"))
    model.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), n) for a, n in ((weights, "head"), (bias, "head_bias")))
    features.CopyFrom(helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [1, 3]))
    return model, heard[:100]


def run_steps(path: Path, heard: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """The weights behind a step for each recording."""
    session = onnxruntime.InferenceSession(path, quiet(), providers=["CPUExecutionProvider"])
    states = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer if f"{t.name}.next" in names_of(session)}
    rate = np.array([RATE], np.float32)
    for sound, label in zip(heard, labels, strict=True):
        given = {"features": sound[None], "label": np.array([label], np.int32), "learning_rate": rate, **states}
        results = dict(zip(names_of(session), session.run(None, given), strict=True))
        states = {name: results[f"{name}.next"] for name in states}
    return states


def quiet() -> onnxruntime.SessionOptions:
    """Without warnings that weights are inputs, which they are."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return options


def names_of(session: onnxruntime.InferenceSession) -> list[str]:
    return [value.name for value in session.get_outputs()]


def count_right(path: Path, states: dict[str, np.ndarray], heard: np.ndarray, label: np.ndarray) -> float:
    """The share of recordings whose class has the largest score."""
    session = onnxruntime.InferenceSession(path, quiet(), providers=["CPUExecutionProvider"])
    found = [session.run(["scores"], {"features": sound[None], **states})[0].argmax() for sound in heard]
    return float(np.mean(np.array(found) == label))


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    model, calibration = make_keyword_network(random)
    onnx.save(model, folder / "float.onnx")
    int8 = deeploy.quantize(folder / "float.onnx", {"features": calibration})
    paths: dict[str, str | Path] = {name: folder / f"{name}.onnx" for name in ("train", "infer")}
    deeploy.train_graph(int8, "cross_entropy", "last:1", output=paths["train"], inference=paths["infer"])
    test = np.repeat([OTHER, KNOWN, LEARNED], 40)
    heard, step, infer = record(test, random), folder / "train.onnx", folder / "infer.onnx"
    order = np.array(EXAMPLES)
    examples = record(order, random)
    labels, sounds = np.tile(order, PASSES), np.tile(examples, (PASSES, 1, 1, 1))
    rights = []
    for when, states in (("before", run_steps(step, sounds[:0], labels[:0])), ("after", run_steps(step, sounds, labels))):
        rights.append([count_right(infer, states, heard[which], test[which]) for which in (test == LEARNED, test == KNOWN, test == OTHER)])
        new, known, other = rights[-1]
        print(f"right {when} learning: {new:.1%} of the new word, {known:.1%} of the one that was known, {other:.1%} of others")
    rate = np.full((len(order), 1), RATE, np.float32)
    samples = {"features": examples, "label": order[:, None].astype(np.int32), "learning_rate": rate}
    against, compared = deeploy.compile(step, "siracusa").verify(samples, sequence=True).comparisons[0]
    print(f"{len(order)} steps in C beside the {against}: {compared.equal:.0%} of losses are equal")
    compiled = deeploy.compile(paths, "siracusa")
    for name in paths:
        report = compiled.report(name)
        print(f"{name} on Siracusa, predicted: {report['cycles']} cycles, {report['microseconds']} us, {report['energy_uj']} uJ")
    return 0 if compared.equal == 1 and rights[1][0] > rights[0][0] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[1] / "build" / "new_word"))
