"""The whole way on real input: quantise the float network, compile it for a chip with scratchpad memories, run it on the machine model
of this host, classify every held-out digit with it.

Compares the generated C with onnxruntime on the same int8 network. Exit status 1 when the C is more than half a point worse.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from data import Digits, load

import deeploy

HERE = Path(__file__).resolve().parent
FLOAT_MODEL = HERE / "digits.onnx"
WORK = HERE.parents[1] / "build" / "digits"
CALIBRATION_IMAGES = 200
TOLERATED_LOSS = 0.5  # percentage points against onnxruntime
SHADES = " ░▒▓█"


def command(*arguments: str) -> None:
    """Run the compiler as a user would, in the work folder."""
    program = shutil.which("deeploy", path=Path(sys.executable).parent) or shutil.which("deeploy")
    if program is None:
        sys.exit("the command deeploy is not installed: pip install -e .")
    print(f"$ deeploy {' '.join(arguments)}", flush=True)
    status = subprocess.run([program, *arguments], cwd=WORK, check=False).returncode
    if status:
        sys.exit(status)


def prepare(digits: Digits) -> None:
    """Lay out the files that the commands read."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    shutil.copy(FLOAT_MODEL, WORK / "float.onnx")
    np.savez(WORK / "calibration.npz", image=digits.train_images[:CALIBRATION_IMAGES])
    np.savez(WORK / "test.npz", image=digits.test_images[:, None])


def onnxruntime_scores(model: Path, images: np.ndarray) -> np.ndarray:
    """Scores [N, 10] of images [N, 1, 8, 8], computed by onnxruntime one image at a time."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"image": image[None]})[0] for image in images])


def draw(images: np.ndarray, captions: Sequence[str]) -> str:
    """Images [N, 8, 8] of values in 0..1 side by side, each above its caption."""
    levels = np.rint(images * (len(SHADES) - 1)).astype(int)
    rows = ["  ".join("".join(SHADES[level] * 2 for level in image[row]) for image in levels) for row in range(8)]
    return "\n".join([*rows, "  ".join(caption.center(16) for caption in captions)])


def memory_lines(report: Mapping[str, Any]) -> list[str]:
    """What the network needs, in bytes, and its cycles where the target has a timing model."""
    lines = []
    for level, use in report["memory"].items():
        arena = f"arena {use['peak']} (lower bound {use['lower_bound']})"
        lines.append(f"memory {level}: weights {use['constants']}, {arena}, input and output {use['io']} bytes")
    if report["cycles"] is not None:
        lines.append(f"{report['cycles']} cycles")
    return lines


def engines(report: Mapping[str, Any]) -> str:
    """How the layers are shared by the engines."""
    shares = {name: [call for call in report["calls"] if call["engine"] == name] for name in report["machine"]["engines"]}
    told = [f"{len(calls)} on {name} ({sum(call['macs'] for call in calls)} MAC)" for name, calls in shares.items() if calls]
    return f"Of {len(report['calls'])} layers, {' and '.join(told)}: what each of them costs is in the report."


def show(digits: Digits, predictions: np.ndarray) -> None:
    """Draw the first digits and, if there is one, the first that is taken for another."""
    wrong = np.flatnonzero(predictions != digits.test_labels)[:1]
    chosen = [*range(4), *wrong] if len(wrong) else [*range(5)]
    captions = [
        f"C says {p}" + ("" if p == label else f", is {label}")
        for p, label in zip(predictions[chosen], digits.test_labels[chosen], strict=True)
    ]
    print("\n" + draw(digits.test_images[chosen, 0], captions) + "\n")


def main() -> int:
    digits = load()
    prepare(digits)
    command("quantize", "float.onnx", "--calibrate", "calibration.npz", "-o", "int8.onnx")
    print(
        "\nSiracusa has eight RISC-V cores and N-EUREKA, an accelerator for convolutions. The plan may use all of the chip.\n", flush=True
    )
    command("compile", "int8.onnx", "--target", "siracusa", "-o", "out")
    command("report", "out")
    command("run", "out", "--inputs", "test.npz", "--save", "got.npz")

    with np.load(WORK / "got.npz") as archive:
        generated = archive["scores"].reshape(-1, 10)
    reference = onnxruntime_scores(WORK / "int8.onnx", digits.test_images)
    rows = {
        "float, onnxruntime": onnxruntime_scores(FLOAT_MODEL, digits.test_images),
        "int8, onnxruntime": reference,
        "int8, generated C": generated,
    }
    accuracy = {name: 100 * float(np.mean(scores.argmax(1) == digits.test_labels)) for name, scores in rows.items()}

    compiled = deeploy.compile(WORK / "int8.onnx", target="siracusa")
    again = compiled.run({"image": digits.test_images[:1]})[0]
    if not np.array_equal(np.ravel(again), generated[0]):
        print("the Python interface and the command line computed different scores", file=sys.stderr)
        return 1

    show(digits, generated.argmax(1))
    print(f"{len(generated)} held-out images")
    for name, percent in accuracy.items():
        print(f"{name:<22}{percent:>8.2f} % right")
    same_digit = 100 * np.mean(generated.argmax(1) == reference.argmax(1))
    print(f"{'agreement of the two':<22}{same_digit:>8.2f} % in the digit, {100 * np.mean(generated == reference):.2f} % in all scores")
    print(*memory_lines(json.loads((WORK / "out" / "deploy.json").read_text())), sep="\n")
    report = json.loads((WORK / "out" / "deploy.json").read_text())
    print(f"\n{engines(report)}")
    cores = deeploy.compile(WORK / "int8.onnx", target="siracusa", engines=("cluster",)).network.predicted
    if cores is not None:
        times = cores.cycles / report["cycles"]
        print(f"Without N-EUREKA (--engines cluster) an inference takes {cores.cycles:.0f} cycles, {times:.1f} times as many.")
    print(f"The C is in {WORK / 'out'}.")
    print(f"Open {WORK / 'out' / 'report.html'} in a browser: what would make it faster, every layer, every memory over time.")
    return 0 if accuracy["int8, generated C"] >= accuracy["int8, onnxruntime"] - TOLERATED_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
