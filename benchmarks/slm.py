"""The language model of the Deeploy paper (section VI) on Siracusa: its Tables I and II, Figs. 7 and 8, next to what the paper prints.

    make bench NAME='slm [--gvsoc] [--layers N] [--simulated N] [--write] [PART ...]'

Parts: ``compile`` (Table I), ``steps`` (Fig. 8 and cycles per token), ``modes`` (Table II), ``encoder`` (Fig. 7, linear layers, overhead);
all of them by default. Every number of ours is measured or predicted here; the paper's were read in the paper. ``--gvsoc`` simulates
the whole sequence of 256 tokens on GVSoC as well, for two of the layers or as many as ``--simulated`` says, and compares outputs and
cycles, which takes some minutes, of eight layers on all engines half an hour.

Networks: eight decoder layers as the paper's, with seeded weights (``slm_model.py``). Cycles are those of the planner's timing model at
every position. What counts as data marshaling: working out, starting and awaiting transfers, and copies. Exit status 1 when
something differs or a figure that this project set itself is missed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import deeploy
from benchmarks.common import ROOT, record, recorded, write_results
from benchmarks.slm_model import Shape, pairs, steps, types, write
from deeploy.backend import project
from deeploy.backend.project import select_network
from deeploy.errors import DeeployError
from deeploy.execution.runners import gvsoc
from deeploy.execution.simulation.timing import Run
from deeploy.execution.simulation.walk import walk_plan
from deeploy.options import Options
from deeploy.planning.program import Role

CONTEXT, BYTES_PER_CYCLE, MHZ = 256, 7.7, 360
PARTS = ("compile", "steps", "modes", "encoder")
PAPER: dict[str, Sequence[float]] = {
    "operators": [32 * n for n in range(1, 9)],
    "compile": [1, 2.65, 5.17, 7.92, 11.72, 16.9, 22.25, 28],
    "text": [42.4, 61.8, 84.4, 105.7, 128.1, 150.1, 171.5, 194.8],
    "io": [10.4, 18.6, 26.8, 35.0, 43.2, 51.4, 59.5, 67.7],
    "requant": [7.0, 15.3, 23.6, 31.9, 40.2, 48.5, 57.8, 66.1],
    "weights": [64, 128, 192, 256, 320, 384, 448, 512],
}
SIMULATED = 2  # layers, on GVSoC: all layers are equal
LONGEST_COMPILATION, LARGEST_SOURCE, MOST_OVERHEAD = 4.0, 400_000, 0.09
MOST_CYCLES = {"cluster": 450_000, "NPU and NMS": 320_000}


@dataclass(frozen=True)
class Setup:
    """What of the chip is used."""

    name: str
    engines: tuple[str, ...] = ("cluster",)
    has_nms: bool = False
    cores: int | None = None

    @property
    def options(self) -> Options:
        return Options(memory={} if self.has_nms else {"wm": 0}, engines=self.engines, cores=self.cores)


SINGLE, CLUSTER = Setup("one core", cores=1), Setup("cluster")
NPU, NMS = Setup("NPU", ("cluster", "npu")), Setup("NPU and NMS", ("cluster", "npu"), True)


def compiled(shape: Shape, setup: Setup) -> deeploy.Compiled:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "slm.onnx"
        write(shape, path)
        return deeploy.compile(path, "siracusa", input_types=types(shape), states=pairs(shape) or None, **setup.options.given())


class Report:
    """What was found, for people and for scripts; ``missed`` are figures of our own that were not reached."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.missed: list[str] = []

    def title(self, text: str) -> None:
        print(f"\n{text}\n{'-' * len(text)}", flush=True)

    def check(self, name: str, value: float, most: float) -> None:
        self.values[name] = value
        verdict = "reached" if value <= most else "MISSED"
        if value > most:
            self.missed.append(f"{name}: {value:.4g}, at most {most:.4g}")
        print(f"{name}: {value:.4g} (figure of this project: at most {most:.4g}: {verdict})", flush=True)


def row(label: str, values: Sequence[Any], width: int = 9) -> None:
    cells = (f"{v:.2f}" if isinstance(v, float) and v < 100 else f"{v:.0f}" if isinstance(v, float) else str(v) for v in values)
    print(f"{label:<34}" + "".join(f"{cell:>{width}}" for cell in cells), flush=True)


# ---- Table I


def measure_compile(layers: int, folder: Path) -> dict[str, float]:
    """One column of Table I, for the 128th step: seconds, and bytes of what is emitted."""
    shape = Shape(layers=layers, past=127)
    begin, cpu = time.perf_counter(), time.process_time()
    result = compiled(shape, NMS)
    files = result.files()
    wall, seconds = time.perf_counter() - begin, time.process_time() - cpu
    program = result.network.program
    constants = [b for b in program.buffers.values() if b.role is Role.CONSTANT]
    named = {o.buffer for call in program.calls for name, o in call.operands.items() if name in ("mul", "add", "bias")}
    ends = sum(program.buffers[name].bytes for name in (*program.inputs, *program.outputs))
    text = 0.0
    if layers in (1, 2, 4, 8) and shutil.which("riscv64-unknown-elf-gcc"):
        result.write(folder)
        elf = gvsoc.build_network(folder, "network") / "application.elf"
        done = subprocess.run(["riscv64-unknown-elf-size", "-A", elf], capture_output=True, text=True, check=True)
        text = sum(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith(".text")) / 1e3
    sources = {
        n: len(t) for n, t in files.items() if n.startswith(("src/", "include/")) and n.endswith((".c", ".h")) and "weights" not in n
    }
    return {
        "calls": len(program.calls),
        "wall": wall,
        "compile": seconds,
        "text": text,
        "io": (ends + shape.caches) / 1e3,
        "requant": sum(b.bytes for b in constants if b.name in named) / 1e3,
        "weights": sum(b.bytes for b in constants if b.memory) / 1024,
        "source": sum(sources.values()) / 1e3,
    }


def table_1(report: Report) -> None:
    report.title("Table I: compilation of 1 to 8 layers (128th step, NPU and NMS)")
    with tempfile.TemporaryDirectory() as folder:
        compiled(Shape(layers=1, past=127), NMS)  # imports are not compilation
        found = [measure_compile(layers, Path(folder) / str(layers)) for layers in range(1, 9)]
    row("layers", range(1, 9))
    row("operators, paper", PAPER["operators"])
    row("kernel calls, ours", [f["calls"] for f in found])
    for key, label in (
        ("compile", "compile time, s of one core"),
        ("text", ".text, kB"),
        ("io", "inputs, outputs and caches, kB"),
        ("requant", "requantisation, kB"),
        ("weights", "weights, KiB"),
    ):
        row(f"{label}, paper", [float(v) for v in PAPER[key]])
        row(f"{label}, ours", [f[key] or "-" for f in found])
    row("compile time, s passed", [f["wall"] for f in found])
    row("C without weights, kB", [f["source"] for f in found])
    report.values["table_1"] = found
    dynamic_length = [found[2 * n - 1]["compile"] / found[n - 1]["compile"] for n in (1, 2, 4)]
    print(f"compile time of 2, 4 and 8 layers over half as many: {', '.join(f'{g:.2f}' for g in dynamic_length)} (linear: at most 2)")
    report.check("seconds of one core to compile 8 layers", found[-1]["compile"], LONGEST_COMPILATION)
    report.check("bytes of C without weights", found[-1]["source"] * 1e3, LARGEST_SOURCE)


# ---- Fig. 8


def marshaling(run: Run) -> float:
    """Cycles that are spent on moving data."""
    shares = run.shares
    copies = sum(call.compute + call.overhead for call in run.calls if call.name.startswith("copy_of"))
    return sum(cycles for name, cycles in shares.items() if name not in ("compute", "overhead")) + copies


def bound(shape: Shape, past: float) -> float:
    """Cycles of weights and caches once through the path between L2 and L1."""
    return (shape.weights + shape.layers * 2 * shape.width * (past + 1)) / BYTES_PER_CYCLE


def fig_8(report: Report, layers: int, simulated: int) -> dict[str, float]:
    """Cycles of every step in three set-ups; returns the averages."""
    report.title(f"Fig. 8: cycles of one step of generation, {layers} layers, d 64, 16 heads, context {CONTEXT}")
    shape, shown = Shape(layers=layers), [*range(0, CONTEXT, 32), CONTEXT - 1]
    averages: dict[str, float] = {}
    row("rows before the step", shown)
    row("weights and caches once", [bound(shape, past) for past in shown])
    plans = {setup.name: compiled(shape, setup) for setup in (CLUSTER, NPU, NMS)}
    runs = {name: {past: walk_plan(c.plan, past) for past in range(CONTEXT)} for name, c in plans.items()}
    for name, every in runs.items():
        row(name, [every[past].cycles for past in shown])
        averages[name] = fmean(run.cycles for run in every.values())
    for name, every in runs.items():
        row(f"data marshaling, {name}, %", [100 * marshaling(every[past]) / every[past].cycles for past in shown])
    print("\naverage over all positions                 ours   times the bound   token/s at 360 MHz (paper: 340 with NPU and NMS)")
    for name, cycles in averages.items():
        times = cycles / bound(shape, CONTEXT / 2)
        print(f"  {name:<36}{cycles:>10.0f}{times:>16.1f}{MHZ * 1e6 / cycles:>14.0f}")
    operators(plans, runs)
    share = fmean(marshaling(run) / run.cycles for run in runs[NMS.name].values())
    print(f"data marshaling in generation: {share:.1%} (paper: 40 %)")
    report.values |= {"cycles_per_token": averages, "marshaling_generation": share}
    if layers == 8:
        for name, most in MOST_CYCLES.items():
            report.check(f"cycles per token, {name}", averages[name], most)
    if simulated:
        for setup in (CLUSTER, NMS):
            simulate(report, replace(shape, layers=min(layers, simulated)), setup)
    return averages


def operators(plans: dict[str, deeploy.Compiled], runs: dict[str, dict[int, Run]]) -> None:
    """Cycles by operator, averaged over all positions."""
    print(f"\nby operator{'':<23}" + "".join(f"{name:>14}" for name in plans))
    totals: dict[str, dict[str, float]] = {}
    for name, c in plans.items():
        totals[name] = defaultdict(float)
        for run in runs[name].values():
            for call, timing in zip(c.plan.program.calls, run.calls, strict=True):
                totals[name][call.node.op] += timing.cycles / len(runs[name])
    for op in sorted(totals[CLUSTER.name], key=lambda op: -totals[CLUSTER.name][op]):
        print(f"  {op:<32}" + "".join(f"{totals[name][op]:>14.0f}" for name in plans), flush=True)


def simulate(report: Report, shape: Shape, setup: Setup) -> None:
    """The whole sequence on GVSoC: outputs as the interpreter's, cycles of every step as it is, without marks of layers."""
    every, c, name = steps(shape, CONTEXT), compiled(shape, setup), setup.name
    predicted = [walk_plan(c.plan, past).cycles for past in range(CONTEXT)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        c.write(folder)
        entry = select_network(project.read_manifest(folder))
        samples = [[step[port["name"]] for port in entry["inputs"]] for step in every]
        found = gvsoc.Gvsoc(seconds=3600, has_layers=False).run(folder, entry, samples)
    want = [outputs[0] for outputs in c.interpret_sequence(every)]
    is_right = all(np.array_equal(a, b) for a, b in zip(found.outputs[0], want, strict=True))
    errors = [predicted[past] / found.cycles[past] - 1 for past in (0, CONTEXT // 2, CONTEXT - 1)]
    print(
        f"GVSoC, {name}: outputs {'are' if is_right else 'ARE NOT'} the interpreter's; {fmean(found.cycles):.0f} cycles per token", end=""
    )
    print(f"; prediction at 0, {CONTEXT // 2} and {CONTEXT - 1} rows: {', '.join(f'{e:+.1%}' for e in errors)}")
    print(f"cycles of the token at {CONTEXT // 2} positions, of {shape.layers} layers: {found.cycles[CONTEXT // 2 - 1]}", flush=True)
    report.values[f"gvsoc, {name}"] = {"cycles_per_token": fmean(found.cycles), "errors": errors}
    report.check(f"largest error of the prediction, {name}", max(map(abs, errors)), 0.10)
    if not is_right:
        report.missed.append(f"outputs on GVSoC, {name}")


# ---- Table II


def table_2(report: Report, layers: int) -> None:
    report.title("Table II: 256 steps, without caches and with them (NPU and NMS)")
    lengths = [1, 32, 64, 128, 192, CONTEXT]
    runs = [walk_plan(compiled(Shape(layers=layers, rows=n, past=None), NMS).plan) for n in lengths]
    every = range(1, CONTEXT + 1)
    cycles = np.interp(every, lengths, [run.cycles for run in runs])
    energy = np.interp(every, lengths, [run.energy.total for run in runs])
    step = compiled(Shape(layers=layers), NMS)
    cached = [walk_plan(step.plan, past) for past in range(CONTEXT)]
    whole, own = cycles.sum() / MHZ / 1e6, sum(run.cycles for run in cached) / MHZ / 1e6
    joules, own_joules = energy.sum() / 1e3, sum(run.energy.total for run in cached) / 1e3
    row("", ["parallel", "cached", "ratio"], 12)
    row("latency, s, paper", [17.6, 0.75, 23.0], 12)
    row("latency, s, ours", [float(whole), float(own), float(whole / own)], 12)
    row("energy, mJ, paper", [3193.0, 125.0, 26.0], 12)
    row("energy, mJ, ours (predicted)", [float(joules), float(own_joules), float(joules / own_joules)], 12)
    share = marshaling(runs[-1]) / runs[-1].cycles
    print(f"without caches, steps of {', '.join(map(str, lengths))} tokens were planned, those between them interpolated")
    print(f"data marshaling of {CONTEXT} tokens in parallel: {share:.1%} (paper: 14 %)")
    report.values |= {"seconds_parallel": float(whole), "seconds_cached": float(own), "marshaling_parallel": share}
    parts: dict[str, float] = defaultdict(float)
    for run in cached:
        for name, microjoule in run.energy.parts.items():
            parts[name] += microjoule / 1e3
    report.values |= {"millijoules_parallel": float(joules), "millijoules_cached": float(own_joules), "parts_cached": dict(parts)}


# ---- Fig. 7


def encoder(report: Report) -> None:
    report.title("Fig. 7: one encoder layer, d 64, 16 heads, d_ff 256, 32 tokens")
    shape = Shape(layers=1, rows=32, past=None, is_encoder=True)
    found = {setup.name: compiled(shape, setup) for setup in (SINGLE, CLUSTER, NPU, NMS)}
    runs = {name: walk_plan(c.plan) for name, c in found.items()}
    linear = {name: _linear(c, runs[name]) for name, c in found.items()}
    row("", list(found), 14)
    row("cycles", [run.cycles for run in runs.values()], 14)
    row("of linear layers", list(linear.values()), 14)
    row("data marshaling, %", [100 * marshaling(run) / run.cycles for run in runs.values()], 14)
    gain = runs[CLUSTER.name].cycles / runs[NMS.name].cycles - 1
    print(f"gain of the layer by NPU and NMS: {gain:.0%} (paper: 61 %)")
    print(f"linear layers: eight cores over one {linear[SINGLE.name] / linear[CLUSTER.name]:.1f}x (paper: 6.2x), ", end="")
    print(f"NPU and NMS over eight cores {linear[CLUSTER.name] / linear[NMS.name]:.1f}x (paper: 17.8x), ", end="")
    print(f"NMS over NPU alone {linear[NPU.name] / linear[NMS.name]:.2f}x (paper: 1.6x to 2.1x)")
    report.values |= {"encoder_linear": linear, "encoder_marshaling": {name: marshaling(run) / run.cycles for name, run in runs.items()}}
    report.values |= {"encoder_gain": gain, "encoder_cycles": {name: run.cycles for name, run in runs.items()}}
    for name in (CLUSTER.name, NMS.name):
        run, timing = runs[name], found[name].plan.target.timing
        assert timing is not None
        forks = run.forks * timing.fork.get("cluster", 0.0)
        report.check(f"overhead of the encoder layer (transfers, forks), {name}", (marshaling(run) + forks) / run.cycles, MOST_OVERHEAD)


def _linear(c: deeploy.Compiled, run: Run) -> float:
    """Cycles of products with constant weights."""
    total = 0.0
    for call, timing in zip(c.plan.program.calls, run.calls, strict=True):
        factor = call.node.inputs[1] if call.node.op == "MatMul" else None
        total += timing.cycles if factor is not None and factor.data is not None else 0.0
    return total


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--gvsoc", action="store_true")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--simulated", type=int, default=SIMULATED, metavar="LAYERS", help="of the network that GVSoC runs")
    parser.add_argument("--write", action="store_true", help="keep the results in benchmarks/slm.json, which pages are written from")
    given = parser.parse_args(arguments)
    wanted = given.parts or PARTS
    if not set(wanted) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    report = Report()
    try:
        if "compile" in wanted:
            table_1(report)
        if "steps" in wanted:
            fig_8(report, given.layers, given.simulated if given.gvsoc else 0)
        if "modes" in wanted:
            table_2(report, given.layers)
        if "encoder" in wanted:
            encoder(report)
    except DeeployError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    record(**report.values, missed=report.missed)
    if given.write:
        write_results(ROOT / "benchmarks" / "slm.json", recorded(), name="slm", options=list(arguments))
    print("\n" + ("missed: " + "; ".join(report.missed) if report.missed else "all figures of this project are reached"))
    return int(bool(report.missed))
