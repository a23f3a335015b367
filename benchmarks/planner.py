"""The planner: compile time, growth with depth, gain over a greedy plan, memory against its bound, size of the code.

Compile time is that of the whole command, `python -c "from deeploy.cli import main; main()" compile ...`, interpreter start, imports and
the writing of all files included: wall and CPU seconds (user and system) and peak memory of the process, medians of `--repeats` runs.
The synthetic networks are transformer encoders of 60 nodes per layer (`benchmarks/stacked.py`). Goals are printed beside the figures;
exit status 1 when one that does not depend on the machine's speed is missed.

    python benchmarks/planner.py [--json] [--repeats N] [--only SECTION ...]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import stacked
from common import MODELS, PACKAGES, ROOT, cpu, print_machine, version

import deeploy
from deeploy.errors import FitError
from deeploy.planning.plan import Buffering
from deeploy.planning.planner.machine import Options

TARGET = "siracusa"
BUDGET = 64_000  # bytes of L1 for times and code size
BUDGETS = (245_760, 128_000, 64_000, 16_000)  # the first is all that the target leaves to a plan
DEPTHS = (1, 2, 4, 8, 16, 32)
RESNET, KEYWORDS = "ic_int8_qdq_pc", "kws_int8_qdq_pc"
MOST_SHARE, MOST_CODE, MOST_MEMORY = 0.09, 60_000, 400.0  # of the inference; bytes; MB
COMMAND = "from deeploy.cli import main; main()"

Row = dict[str, Any]


def networks() -> list[Path]:
    """The MLPerf Tiny networks."""
    return sorted((MODELS / "mlperf_tiny").glob("*/network.onnx"))


def command(model: Path, folder: Path, repeats: int) -> Row:
    """Median wall and CPU seconds, and peak memory in MB, of compiling a model by the command line."""
    call = [sys.executable, "-c", COMMAND, "compile", str(model), "--target", TARGET, "--l1", str(BUDGET), "-o", str(folder)]
    walls, cpus, peaks = [], [], []
    for _ in range(repeats):
        start = time.perf_counter()
        process = subprocess.Popen(call, stdout=subprocess.DEVNULL, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{model}: the command ended with status {process.returncode}")
        walls.append(time.perf_counter() - start)
        cpus.append(usage.ru_utime + usage.ru_stime)
        peaks.append(usage.ru_maxrss / 1000)
    stages = json.loads((folder / "timings.json").read_text())
    return {
        "seconds": round(statistics.median(walls), 2),
        "cpu_seconds": round(statistics.median(cpus), 2),
        "memory_mb": round(statistics.median(peaks)),
        "plan_seconds": round(stages["plan"], 2),
        "goal": None,
        "missed": max(peaks) > MOST_MEMORY,
    }


def times(folder: Path, repeats: int) -> list[Row]:
    """The whole command for each network; the goal is 2 s on two quiet cores."""
    return [{"network": m.parent.name} | command(m, folder / "times", repeats) | {"goal": "2 s"} for m in networks()]


def growth(folder: Path, repeats: int) -> list[Row]:
    """The whole command for deeper and deeper networks; the goal is 4 s for 8 layers, linear growth, 400 MB."""
    rows = []
    for depth in DEPTHS:
        model = folder / f"stacked{depth}.onnx"
        nodes = stacked.save(model, depth)
        measured = command(model, folder / "growth", repeats) | {"goal": "4 s" if depth == 8 else None}
        rows.append({"layers": depth, "nodes": nodes} | measured | {"cpu_seconds_per_layer": round(measured["cpu_seconds"] / depth, 2)})
    return rows


def compiled(model: Path, l1: int, buffering: Buffering = "auto", default_memory: str = "L2") -> deeploy.Compiled:
    options = Options({"l1": l1}, None, buffering, default_memory)
    return deeploy.compile(model, TARGET, inputs=model.parent / "inputs.npz", options=options)


def plans(_folder: Path, _repeats: int) -> list[Row]:
    """Per network, budget and default memory: predicted cycles, gap of the solver, gain over the greedy plan, peaks over their bounds."""
    rows = []
    for model in networks():
        for l1 in BUDGETS:
            for memory in ("L2", "L3"):
                row: Row = {"network": model.parent.name, "l1": l1, "memory": memory}
                try:
                    result = compiled(model, l1, default_memory=memory)
                except FitError as error:
                    rows.append(row | {"cycles": error.remedy})
                    continue
                rows.append(row | _plan(result))
    return rows


def _plan(result: deeploy.Compiled) -> Row:
    prediction, walked = result.plan.prediction, result.network.predicted
    if prediction is None or walked is None:
        raise SystemExit(f"target {TARGET} has one flat memory: nothing was planned")
    greedy = prediction.greedy
    peaks = {f"{name}_over_bound": use.peak - use.lower_bound for name, use in result.memory.items()}
    return {
        "cycles": prediction.cycles,
        "walked": round(walked.cycles),
        "gap_percent": round(100 * (1 - prediction.bound / prediction.cycles), 3),
        "greedy_gain": None if greedy is None else round(greedy / prediction.cycles, 3),
        **peaks,
        "missed": any(peaks.values()),
    }


def code(folder: Path, _repeats: int) -> list[Row]:
    """Bytes of src/ and include/ without the weights and the table of checks, and lines of the network's own file."""
    rows = []
    for model in networks():
        compiled(model, BUDGET).write(folder / "code")
        files = [path for part in ("src", "include") for path in (folder / "code" / part).rglob("*") if path.is_file()]
        counted = [path for path in files if "_weights" not in path.name and "_checks" not in path.name]
        size = sum(path.stat().st_size for path in counted)
        is_goal = model.parent.name == KEYWORDS
        lines = len((folder / "code" / "src" / "network.c").read_text().splitlines())
        row = {"network": model.parent.name, "bytes": size, "lines": lines, "goal": MOST_CODE if is_goal else None}
        rows.append(row | {"missed": is_goal and size > MOST_CODE})
    return rows


def overhead(_folder: Path, _repeats: int) -> list[Row]:
    """ResNet8 at 64 000 bytes, double buffered: cycles of the walk that are not computing."""
    walked = compiled(MODELS / "mlperf_tiny" / RESNET / "network.onnx", BUDGET, "double").network.predicted
    if walked is None:
        raise SystemExit(f"target {TARGET} has no timing")
    shares = {name: round(cycles) for name, cycles in walked.shares.items()}
    rest = 1 - walked.shares["compute"] / walked.cycles
    return [
        {"network": RESNET, "cycles": round(walked.cycles)}
        | shares
        | {"not_computing": round(rest, 4), "goal": MOST_SHARE, "missed": rest > MOST_SHARE}
    ]


SECTIONS: dict[str, Callable[[Path, int], list[Row]]] = {
    "times": times,
    "growth": growth,
    "plans": plans,
    "code": code,
    "overhead": overhead,
}


def table(rows: Sequence[Row]) -> str:
    """Rows as text; columns are the keys of all rows, in order of appearance."""
    names = [name for name in dict.fromkeys(key for row in rows for key in row) if name != "missed"]
    cells = [names, *([_text(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in cells)


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def main(arguments: Sequence[str]) -> int:
    """Measure the sections named, or all."""
    parser = argparse.ArgumentParser(description="The planner on the MLPerf Tiny networks and on equal layers.")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="sections to measure; all by default")
    parser.add_argument("--repeats", type=int, default=3, help="runs of every command")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args(arguments)
    if not networks() and set(options.only) != {"growth"}:
        print(f"no networks in {MODELS}: only the section growth can be measured", file=sys.stderr)
        return 2
    if not options.json:
        print_machine()
    results: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.only:
            results[name] = SECTIONS[name](Path(scratch), options.repeats)
            if not options.json:
                print(f"{name}: {(SECTIONS[name].__doc__ or '').strip()}\n{table(results[name])}\n", flush=True)
    if options.json:
        versions = {"python": sys.version.split()[0], **{package: version(package) for package in PACKAGES}}
        print(json.dumps({"cpu": cpu(), "cpus": os.cpu_count(), "versions": versions, **results}, indent=2))
    return int(any(row.get("missed") for rows in results.values() for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
