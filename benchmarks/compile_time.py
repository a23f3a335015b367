"""Compile time: CPU seconds and peak memory of the whole command, for networks, growing graphs and many weights, beside their goals.

The command is `deeploy compile MODEL --target TARGET -o DIR --no-cache`, interpreter start, imports and the writing of all files included.
Of CPU seconds (user and system) the least of `--repeats` runs counts: what else the machine does makes them longer, never shorter. A run
that takes more than `--limit` CPU seconds is ended, and printed as that.

    make bench NAME='compile_time [--only TEXT ...] [--repeats N] [--limit SECONDS] [--write] [--plot FILE.svg]'

``--write`` writes the table into benchmarks/README.md; ``--plot`` draws how time grows with the number of nodes.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.common import MODELS, ROOT, replace_table
from benchmarks.graphs import Graph

PAGE = ROOT / "benchmarks" / "README.md"
GROWTH = (100, 300, 1000, 3000, 10_000)  # nodes


class Case(NamedTuple):
    """A model, its target, the CPU seconds that it took before, and its goals: CPU seconds, and GB of memory where that matters."""

    name: str
    model: Callable[[Path], Path]
    target: str
    before: str
    goal: float | None
    memory: float | None = None
    nodes: int = 0
    graph: str = ""  # its kind, where time is drawn over the number of nodes


class Measured(NamedTuple):
    """CPU seconds and peak memory in GB of a command; None where it took too long, or failed."""

    seconds: float | None
    memory: float
    failure: str = ""


def _saved(graph: Graph, folder: Path, source: tuple[str, list[int]], result: tuple[str, list[int]]) -> Path:
    """The graph as a file, between one input and one output of floats."""
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in (source, result)]
    model = helper.make_model(helper.make_graph(graph.nodes, "grown", *ends, graph.constants), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, folder / "model.onnx", save_as_external_data=model.ByteSize() > 1 << 30, location="model.data")
    return folder / "model.onnx"


def convolutions(count: int) -> Callable[[Path], Path]:
    """A chain of convolutions of which no two have the same numbers of channels; their 6 MB of weights fit L3, and not L2."""

    def make(folder: Path) -> Path:
        kinds, mean = math.isqrt(count - 1) + 1, math.isqrt(6_000_000 // (36 * count))
        stride = max(1, (2 * mean - 1) // kinds)
        channels = [max(1, mean - stride * (kinds - 1) // 2) + stride * number for number in range(kinds)]
        walk = [one for i in range(kinds) for j in range(i, kinds) for one in channels[i : i + 1] + channels[j : j + 1] * (j > i)]
        walk.append(walk[0])  # every pair of numbers once
        graph, name = Graph(0), "x"
        for before, after in itertools.pairwise(walk[: count + 1]):
            weights = graph.constant(graph.rng.normal(size=(after, before, 3, 3)) * 0.1)
            name = graph.node("Conv", name, weights, pads=[1, 1, 1, 1])
        return _saved(graph, folder, ("x", [1, walk[0], 16, 16]), (name, [1, walk[count], 16, 16]))

    return make


def wide(count: int) -> Callable[[Path], Path]:
    """So many nodes on one input, added up two by two."""

    def make(folder: Path) -> Path:
        graph = Graph(0)
        names = [graph.node("Mul", "x", graph.constant(graph.rng.normal(size=64))) for _ in range(count // 2)]
        while len(names) > 1:
            pairs = [graph.node("Add", *names[i : i + 2]) for i in range(0, len(names) - 1, 2)]
            names = pairs + names[len(pairs) * 2 :]
        return _saved(graph, folder, ("x", [1, 64]), (names[0], [1, 64]))

    return make


def dense(layers: int) -> Callable[[Path], Path]:
    """Blocks of layers that read what all layers before them in the block wrote (DenseNet), 13 to a block."""

    def make(folder: Path) -> Path:
        graph, name = Graph(0), "x"
        for _ in range(layers // 39):
            known = [name]
            for number in range(13):
                joined = graph.node("Concat", *known, axis=1) if len(known) > 1 else known[0]
                weights = graph.constant(graph.rng.normal(size=(4, 8 + 4 * number, 1, 1)) * 0.1)
                known.append(graph.node("Relu", graph.node("Conv", joined, weights)))
            weights = graph.constant(graph.rng.normal(size=(8, 60, 1, 1)) * 0.1)
            name = graph.node("Conv", graph.node("Concat", *known, axis=1), weights)
        return _saved(graph, folder, ("x", [1, 8, 8, 8]), (name, [1, 8, 8, 8]))

    return make


def weights(count: int) -> Callable[[Path], Path]:
    """Products of matrices with so many weights in all, in floats."""

    def make(folder: Path) -> Path:
        graph, name, width = Graph(0), "x", 2500
        for _ in range(count // width**2):
            name = graph.node("MatMul", name, graph.constant(graph.rng.normal(size=(width, width)).astype(np.float32)))
        return _saved(graph, folder, ("x", [1, width]), (name, [1, width]))

    return make


def stored_model(path: str) -> Callable[[Path], Path]:
    return lambda folder: MODELS / path / "network.onnx"


CASES = (
    Case("keyword spotting", stored_model("mlperf_tiny/kws_int8_qdq_pc"), "siracusa", "2.5", 1.2),
    Case("ResNet8", stored_model("mlperf_tiny/ic_int8_qdq_pc"), "siracusa", "3.3", 1.4),
    Case("visual wake words, floats", stored_model("mlperf_tiny/vww_fp32"), "siracusa", "6 to 7", 1.8),
    Case("autoencoder", stored_model("mlperf_tiny/ad_int8_qdq_pc"), "siracusa", "2.5", 0.9),
    Case("microLlama64", stored_model("dialect/Models/microLlama/INT8/microLlama64"), "siracusa", "4.5 to 5.6", 2.0),
    Case("keyword spotting", stored_model("mlperf_tiny/kws_int8_qdq_pc"), "generic", "1.2 to 2.0", 0.6),
    Case("100 distinct convolutions", convolutions(100), "siracusa", "over 60", 4.0, nodes=100, graph="distinct convolutions"),
    Case("800 distinct convolutions", convolutions(800), "siracusa", "", 20.0, nodes=800, graph="distinct convolutions"),
    Case("wide graph of 2 000 nodes", wide(2000), "siracusa", "over 20", 30.0, nodes=2000, graph="wide graph"),
    Case("DenseNet of 1 950 layers", dense(1950), "siracusa", "over 20", 30.0, nodes=1950, graph="DenseNet"),
    Case("100 million float weights", weights(100_000_000), "generic", "over 35", 20.0, 1.5),
    *(Case(f"growth: {count} nodes", wide(count), "generic", "", None, nodes=count, graph="wide graph") for count in GROWTH),
)


def measured(case: Case, repeats: int, limit: int, *options: str) -> Measured:
    """The least CPU seconds, and the most memory, of some runs of the command with further options."""
    best, peak = None, 0.0
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        call = [sys.executable, "-m", "deeploy", "compile", str(case.model(folder)), "--target", case.target, "-o", str(folder / "out")]
        call += ["--default-memory", "L3"] if case.nodes and case.target == "siracusa" else []
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        for _ in range(repeats):
            process = subprocess.Popen(
                [*call, "--no-cache", *options],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=ROOT,
                env=environment,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
            )
            assert process.stderr is not None
            told = process.stderr.read().decode(errors="replace")
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            peak = max(peak, usage.ru_maxrss / 1e6)
            if process.returncode < 0:
                return Measured(None, peak)
            if process.returncode:
                return Measured(None, peak, f"status {process.returncode}: {told.strip().splitlines()[0][:60]}")
            seconds = usage.ru_utime + usage.ru_stime
            best = seconds if best is None else min(best, seconds)
    return Measured(best, peak)


def is_missed(case: Case, found: Measured) -> bool:
    """Whether a goal is missed."""
    late = case.goal is not None and (found.seconds is None or found.seconds > case.goal)
    return late or (case.memory is not None and found.memory > case.memory)


def row(case: Case, found: Measured, limit: int) -> str:
    """A line of the table."""
    seconds = found.failure or f"over {limit}" if found.seconds is None else f"{found.seconds:.2f}"
    goal = "" if case.goal is None else f"{case.goal:g}" + (f", {case.memory:g} GB" if case.memory is not None else "")
    told = "" if case.goal is None else "missed" if is_missed(case, found) else "reached"
    return f"| {case.name} | {case.target} | {case.before} | {seconds} | {found.memory:.2f} | {goal} | {told} |"


def table(results: list[tuple[Case, Measured]], limit: int) -> str:
    """All results, what is missed first."""
    ordered = sorted(results, key=lambda one: (not is_missed(*one), one[0].goal is None))
    head = "| network | target | before | CPU s | peak GB | goal | |\n|---|---|---|---|---|---|---|\n"
    return head + "\n".join(row(*one, limit) for one in ordered) + "\n"


def plot(results: list[tuple[Case, Measured]], file: Path) -> None:
    """CPU seconds by the number of nodes, a line for each kind of graph and target; both axes logarithmic."""
    import matplotlib.pyplot as plt  # type: ignore[import-not-found, unused-ignore]

    plt.rcParams["svg.hashsalt"] = "compile time"
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    lines: dict[str, list[tuple[int, float]]] = {}
    for case, found in results:
        if case.graph and found.seconds is not None:
            lines.setdefault(f"{case.graph}, {case.target}", []).append((case.nodes, found.seconds))
    for label, points in lines.items():
        axes.loglog(*zip(*sorted(points), strict=True), "o-", label=label)
    axes.set(xlabel="nodes", ylabel="CPU seconds")
    figure.legend(loc="outside upper center", ncols=2)
    figure.savefig(file, metadata={"Date": None})


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="cases whose name holds this")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=int, default=120, metavar="SECONDS")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    results = []
    for case in CASES:
        if not given.only or any(text in case.name for text in given.only):
            results.append((case, measured(case, given.repeats if case.before and case.goal else 1, given.limit)))
            print(row(*results[-1], given.limit), flush=True)
    text = table(results, given.limit)
    print("\n" + text)
    if given.write:
        replace_table(PAGE, "compile_time", text.splitlines())
    if given.plot is not None:
        plot(results, given.plot)
    sys.exit(any(is_missed(*one) for one in results))
