"""The way from ONNX to C, on the MLPerf Tiny networks and the CNNs in the integer dialect.

Per network: seconds to compile (import of packages excluded), the arena's peak against its lower bound, the share of output
elements equal to the golden ones with the worst difference (in output steps, probabilities in 1/255, float outputs absolute),
and the speed of the generated C (gcc -O3 -march=native, one thread) against onnxruntime (one thread) on the same machine in the
same run. onnxruntime is called from Python, which costs it some microseconds. Exit status 1 when a network differs or fails.

    python benchmarks/spine.py [PART OF A NAME ...]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from common import MODELS, median_seconds, print_machine

import deeploy
from deeploy.errors import BuildError, DeeployError
from deeploy.execution.runners import host
from deeploy.execution.runners.runner import Result
from deeploy.execution.verification.compare import Comparison, compare_output
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.quantization.static import quantize_model

FLAGS = "-O3 -march=native"
COMPILES = 5
SECONDS_PER_MEASUREMENT = 0.5
COLUMNS = "{:<28}{:>11}{:>10}{:>10}{:>11}{:>9}{:>11}{:>11}{:>10}"


@dataclass(frozen=True)
class Case:
    """A network with its samples and golden outputs; onnxruntime runs what is not in the dialect."""

    name: str
    folder: Path
    dialect: bool

    @property
    def model(self) -> Path:
        return self.folder / "network.onnx"


def cases(words: Sequence[str]) -> list[Case]:
    """The networks whose names contain one of ``words`` (all, when there are none)."""
    found = [Case(path.parent.name, path.parent, False) for path in sorted((MODELS / "mlperf_tiny").glob("*/network.onnx"))]
    dialect = MODELS / "dialect" / "Models"
    for path in [
        *sorted(dialect.glob("*CNN*/network.onnx")),
        *sorted(dialect.glob("*MobileNet*/network.onnx")),
        *sorted(dialect.glob("MLPerf/*/network.onnx")),
    ]:
        found.append(Case(str(path.parent.relative_to(dialect)), path.parent, True))
    return [case for case in found if not words or any(word in case.name for word in words)]


def lacking_int8(case: Case, folder: Path) -> list[Case]:
    """The int8 version of a float network that has none beside it; its golden outputs are onnxruntime's."""
    stem = case.name.removesuffix("fp32")
    if stem == case.name or any(case.folder.parent.glob(f"{stem}int8*")):
        return []
    folder.mkdir(exist_ok=True)
    result = Case(f"{stem}int8_here", folder, False)
    shutil.copy(case.folder / "inputs.npz", folder)
    quantize_model(case.model, folder / "inputs.npz", result.model)
    session = onnxruntime.InferenceSession(str(result.model), providers=["CPUExecutionProvider"])
    with np.load(folder / "inputs.npz") as archive:
        feeds = [dict(zip((e.name for e in session.get_inputs()), arrays, strict=True)) for arrays in zip(*archive.values(), strict=True)]
    outputs = [np.stack(stack) for stack in zip(*(session.run(None, feed) for feed in feeds), strict=True)]
    np.savez(folder / "outputs.npz", *outputs)
    return [result]


def arrays(path: Path, ports: Sequence[Mapping[str, Any]], kind: str) -> list[list[np.ndarray]]:
    """Per sample one array per input or output of ``deploy.json``, in the order of the graph."""
    return load_arrays(path, [Expected.of(port) for port in ports], kind).samples


def equality(case: Case, outputs: Sequence[np.ndarray], ports: Sequence[Mapping[str, Any]]) -> list[Comparison]:
    """Compare outputs, stacked over samples, with the golden ones by the rules of ``deeploy run --expect``."""
    golden = zip(*arrays(case.folder / "outputs.npz", ports, "output"), strict=True)
    return [compare_output(port, got, np.stack(want)) for port, got, want in zip(ports, outputs, golden, strict=True)]


def onnxruntime_seconds(case: Case, sample: Sequence[np.ndarray]) -> float:
    """Median time of one inference of onnxruntime on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(case.model), options, providers=["CPUExecutionProvider"])
    feed = {entry.name: array for entry, array in zip(session.get_inputs(), sample, strict=True)}
    once = median_seconds(lambda: session.run(None, feed), 3, warm_up=3)
    return median_seconds(lambda: session.run(None, feed), repeats(once))


def repeats(seconds: float) -> int:
    return int(np.clip(SECONDS_PER_MEASUREMENT / max(seconds, 1e-7), 5, 20000))


def measure(case: Case, folder: Path) -> tuple[str, bool]:
    """One line of the table, and whether all outputs are equal in the sense of their rules."""

    def compile_and_write() -> None:
        deeploy.compile(case.model, target="generic", inputs=case.folder / "inputs.npz").write(folder)

    compile_seconds = median_seconds(compile_and_write, COMPILES, warm_up=1)
    report = json.loads((folder / "deploy.json").read_text())
    (memory,) = report["memory"].values()
    feeds = arrays(case.folder / "inputs.npz", report["inputs"], "input")
    first = host.Host(flags=FLAGS, repeat=3).run(folder, report, feeds)
    timed = host.Host(flags=FLAGS, repeat=repeats(nanoseconds(first) / 1e9)).run(folder, report, feeds[:1])
    c_milliseconds = nanoseconds(timed) / 1e6
    reference = None if case.dialect else 1e3 * onnxruntime_seconds(case, feeds[0])
    compared = equality(case, first.outputs, report["outputs"])
    passed = all(comparison.passed for comparison in compared)
    line = COLUMNS.format(
        case.name,
        f"{compile_seconds:.2f} s",
        memory["peak"],
        memory["lower_bound"],
        f"{100 * min(c.equal for c in compared):.2f} %",
        f"{max(c.worst for c in compared):.2g}",
        f"{c_milliseconds:.3f} ms",
        "-" if reference is None else f"{reference:.3f} ms",
        "-" if reference is None else f"{c_milliseconds / reference:.2f}x",
    )
    return f"{line}  {compared[0].rule}{'' if passed else ': DIFFERS'}", passed


def nanoseconds(result: Result) -> float:
    """Median time of one inference of the C."""
    if result.nanoseconds is None:
        raise BuildError("the program printed no time", "run the benchmark on an unchanged project")
    return result.nanoseconds


def main() -> int:
    print_machine()
    chosen = cases(sys.argv[1:])
    if not chosen:
        print(f"no network in {MODELS} has such a name", file=sys.stderr)
        return 2
    start = median_seconds(
        lambda: subprocess.run([sys.executable, "-c", "from deeploy.cli import main; main()", "--help"], capture_output=True, check=True),
        COMPILES,
        1,
    )
    print(f"deeploy --help: {start:.2f} s\n")
    print(COLUMNS.format("network", "compile", "peak", "bound", "equal", "worst", "C", "onnxrt", "C/onnxrt") + "  equal means")
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for number, case in enumerate(chosen):
            folder = Path(scratch) / str(number)
            try:
                for version in (case, *lacking_int8(case, folder)):
                    line, passed = measure(version, folder / version.name)
                    print(line, flush=True)
                    failed += not passed
            except DeeployError as error:
                print(f"{case.name:<28}  {error.what}", flush=True)
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
