"""Print the figures of "Distributed inference with minimal off-chip traffic for transformers on low-power MCUs" next to ours.

Two accountings. *block*: a network of one transformer block, whose weights are in L2 when it begins as far as they fit; what fetches
those of the next block is not part of its time, as in the paper, but of its energy. *token*: all blocks in sequence, L3 a resource like
any other.
All figures are those of plans that are executed, walked with the timing of Siracusa at 500 MHz; the single chip's is planned likewise.

    make bench NAME='inference_over_chips [--only NAME ...] [--chips N ...] [--block] [--token] [--l3 B] [--bits 4] [--plots DIR] [--write]'

``--write`` puts the tables into benchmarks/study-chips.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import onnx

from benchmarks.common import ROOT, copied_into, table
from benchmarks.distributed_plots import Bar, breakdown, energies, speedups
from benchmarks.transformer_models import Shape, decoder, encoder
from deeploy import chips
from deeploy.execution.simulation.systems import LINK, SystemRun, walk_system
from deeploy.options import Options
from deeploy.planning.program import Role
from deeploy.target import Target, Topology, load

PAGE = ROOT / "benchmarks" / "study-chips.md"
L3_BYTES = 64 << 20  # the largest HyperRAM of its kind: all weights of the model, which Siracusa's 8 MiB do not hold
CONTEXT = 128
BITS = 8  # of weights, where nothing else is said


@dataclass(frozen=True)
class Paper:
    """What the paper says of a workload on some chips: times faster than one, milliseconds, millijoules, EDP better by."""

    speedup: float | None = None
    ms: float | None = None
    mj: float | None = None
    edp: float | None = None


@dataclass(frozen=True)
class Workload:
    """A network: ``shape`` of one block, ``blocks`` in all."""

    name: str
    title: str
    shape: Shape
    blocks: int
    is_decoder: bool
    chips: tuple[int, ...]
    paper: dict[int, Paper]

    def model(self, layers: int) -> onnx.ModelProto:
        return (decoder if self.is_decoder else encoder)(replace(self.shape, layers=layers))

    @property
    def weights(self) -> int:
        """Bytes of the matrices of one block."""
        matrices = 3 if self.is_decoder else 2
        return (4 * self.shape.width**2 + matrices * self.shape.width * self.shape.inner) * self.shape.bits // 8


MHZ = 500  # the clock of the paper's chips (its section V)
MANY = (1, 2, 4, 8, 16, 32, 64)
WORKLOADS = (
    Workload(
        "llama",
        "TinyLlama-42M, autoregressive, S 128",
        Shape(512, 2048, 8, 1, 1, True),
        8,
        True,
        (1, 2, 4, 8),
        {8: Paper(26.1, 0.54, 0.64, 27.2)},
    ),
    Workload("prompt", "TinyLlama-42M, prompt, S 16", Shape(512, 2048, 8, 1, 16), 8, True, (1, 2, 4, 8), {8: Paper(9.9)}),
    Workload("bert", "MobileBERT, S 268", Shape(512, 512, 4, 1, 268), 24, False, (1, 2, 4), {4: Paper(4.7, 38.8)}),
    Workload("llama64", "TinyLlama with 64 heads, autoregressive", Shape(512, 2048, 64, 1, 1, True), 8, True, MANY, {64: Paper(60.1)}),
    Workload("prompt64", "TinyLlama with 64 heads, prompt", Shape(512, 2048, 64, 1, 16), 8, True, MANY, {16: Paper(16.0)}),
)


@dataclass(frozen=True)
class Point:
    """A workload on some chips.

    Attributes:
        weights: most bytes of matrices that a chip has of one block.
        room: bytes of L2 that a plan may use.
        seconds: that compiling took, without the import.
        planned: how many different plans there are.
    """

    chips: int
    run: SystemRun
    weights: int
    blocks: int
    room: int
    byte_cycles: float
    seconds: float
    planned: int
    topology: Topology
    notes: tuple[str, ...]

    @property
    def place(self) -> str:
        """Where weights are while a network of all blocks runs."""
        if self.weights * self.blocks <= self.room:
            return "resident"
        return "double-buffered" if 2 * self.weights <= self.room else "streamed"

    def moved(self, path: str) -> int:
        return sum(run.traffic[path].bytes for run in self.run.chips)

    def most(self, path: str) -> int:
        return max(run.traffic[path].bytes for run in self.run.chips)

    @property
    def prefetched(self) -> int:
        """Bytes that the block accounting leaves to the block before: all weights, less what is fetched in the block."""
        return 0 if self.place == "resident" else max(0, self.weights * self.chips - self.moved("L3_L2"))

    def millijoules(self, is_block: bool) -> float:
        """By the paper's formula; of a block, with what is fetched for the next one."""
        return self.run.energy.formula / 1e3 + (self.prefetched * 100e-9 if is_block else 0.0)

    @property
    def busy(self) -> float:
        """Cycles in which L3 moves bytes, on the chip with most of them."""
        return max(run.traffic["L3_L2"].busy for run in self.run.chips)

    @property
    def bound(self) -> float:
        """Cycles in which the chip with most of it fetches its bytes from L3."""
        return self.most("L3_L2") * self.byte_cycles


def machine(bandwidth: float | None = None) -> Target:
    """Siracusa with an L3 that holds the model; ``bandwidth``: bytes that it gives and takes in a cycle, None: as measured."""
    target = load("siracusa")
    memories = tuple(replace(m, capacity=L3_BYTES) if m.name == "L3" else m for m in target.memories)
    timing = target.timing
    if bandwidth is not None and timing is not None:
        path = replace(timing.paths["L3_L2"], byte=(1 / bandwidth, 1 / bandwidth))
        timing = replace(timing, paths={**timing.paths, "L3_L2": path})
    return replace(target, memories=memories, timing=timing).at(MHZ)


OPTIONS = Options(engines=("cluster",), default_memory="L3")


def measure(workload: Workload, path: Path, count: int, layers: int, target: Target, options: Options = OPTIONS) -> Point:
    """Compile a network of so many layers, which is in ``path``, for several chips, and walk its plans."""
    context = CONTEXT if workload.shape.past else None
    bits = workload.shape.bits if workload.shape.bits < BITS else None
    found = chips.compile(path, target, count, dialect="integer", context=context, weight_bits=bits, **options.given())
    assert target.timing is not None
    memory = target.memory("L2")
    assert memory.capacity is not None
    own = [sum(b.bytes for b in plan.program.buffers.values() if b.role is Role.CONSTANT and b.dtype.bits <= BITS) for plan in found.plans]
    return Point(
        len(found.plans),
        walk_system(found.plans, found.topology),
        max(own) // layers,
        workload.blocks,
        memory.capacity - memory.reserved,
        target.timing.paths["L3_L2"].byte[0],
        sum(seconds for stage, seconds in found.seconds.items() if stage != "import"),
        len(set(found.leads)),
        found.topology,
        found.notes,
    )


HEADS = ("workload", "chips", "ms", "times faster", "bound", "paper", "mJ", "EDP better by", "weights", "L3, kB", "L2, kB", "links, kB")


def print_table(workload: Workload, counts: Sequence[int], is_block: bool, target: Target) -> list[Point]:
    """Measure on these numbers of chips; a row for each as soon as it is known."""
    layers = 1 if is_block else workload.blocks
    print("\n".join(table((*HEADS, "waits", "share of the bound"), ())), flush=True)
    points: list[Point] = []
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.onnx"
        onnx.save(workload.model(layers), path)
        for count in counts:
            points.append(measure(workload, path, count, layers, target))
            print(f"| {' | '.join(row_cells(workload, points[0], points[-1], is_block))} |", flush=True)
    return points


def row_cells(workload: Workload, one: Point, point: Point, is_block: bool) -> list[str]:
    """The figures of a number of chips next to those of one, and what the paper has of them; empty where one chip has none."""
    run, paper = point.run, workload.paper.get(point.chips, Paper()) if is_block else Paper()
    mj = point.millijoules(is_block)
    is_one = point.chips == 1
    gain = one.millijoules(is_block) * one.run.cycles / (mj * run.cycles)
    waits = max(run.waited(chip) for chip in range(point.chips)) / run.cycles
    share = point.bound / run.cycles
    return [
        workload.title if is_one else "",
        str(point.chips),
        f"{run.milliseconds:.3f}",
        "" if is_one else f"{one.run.cycles / run.cycles:.1f}",
        "" if is_one else f"{bound(one, point):.1f}",
        "" if paper.speedup is None else f"{paper.speedup}",
        f"{mj:.3f}",
        "" if is_one else f"{gain:.1f}",
        point.place,
        *(f"{moved / 1e3:.0f}" for moved in (point.moved("L3_L2"), point.moved("L2_L1"))),
        "" if is_one else f"{run.link_bytes / 1e3:.0f}",
        "" if is_one else f"{100 * waits:.0f} %",
        f"{100 * share:.0f} %" if share >= 0.005 else "",
    ]


def print_paper(workload: Workload, point: Point) -> None:
    """What the paper says of a number of chips beside how many times faster they are."""
    run, paper = point.run, workload.paper.get(point.chips, Paper())
    for text, value in (("ms", paper.ms), ("mJ", paper.mj), ("times less EDP", paper.edp)):
        if value is not None:
            print(f"      paper, {point.chips} chips: {value} {text}")
    if paper.ms is not None and paper.speedup is not None:
        alone = paper.ms * paper.speedup
        rate = workload.weights / (alone * 1e3 * run.mhz)
        print(f"      paper, 1 chip: {alone:.1f} ms, all weights in it: {rate:.2f} B/cycle of L3; ours {1 / point.byte_cycles:.2f}")


def bound(one: Point, point: Point) -> float:
    """Times faster than one chip that chips are at the most: as they are if the cycles of one chip's kernels are divided among them."""
    return one.run.cycles * point.chips / one.run.chips[0].shares["compute"]


def print_shares(point: Point, one: Point) -> None:
    """Where the cycles of a number of chips go, what L3 alone would take, and how long compiling took."""
    total = point.run.cycles
    compiled = f"{point.planned} plans, compiled in {point.seconds:.1f} s ({point.seconds / one.seconds:.1f} of one chip's)"
    print(f"      {point.chips} chips: {_shares(point)}; {compiled}")
    if point.bound > 0.01 * total:
        print(
            f"         L3: bytes over bandwidth ({1 / point.byte_cycles:.2f} B/cycle) {point.bound / 1e3:.0f} k cycles,"
            f" {100 * point.bound / total:.0f} % of the time; busy {100 * (point.busy / point.bound - 1):.1f} % longer than that"
        )


def print_cycles(points: Sequence[Point]) -> None:
    """Where the cycles of the first chip are, and what the port of links does that is taken for the longest time."""
    print("      thousand cycles of chip 0                                       of the port that is busiest")
    print("chips    compute  call entry  waits for L2  for L3  for chips       bytes   latency  messages")
    for point in points:
        shares, kinds, (moved, latency, count) = point.run.chips[0].shares, parts(point), busiest(point)
        entry, waits = shares["overhead"] + shares["issue"], kinds["chip to chip"]
        print(
            f"{point.chips:5} {shares['compute'] / 1e3:10.1f} {entry / 1e3:11.1f}"
            f" {shares['L2_L1'] / 1e3:13.1f} {shares['L3_L2'] / 1e3:7.1f}"
            f" {waits / 1e3:10.1f} {moved / 1e3:11.1f} {latency / 1e3:9.1f} {count:9}"
        )


def busiest(point: Point) -> tuple[float, float, int]:
    """Of the port that is taken for the longest time: cycles for bytes, for latencies, and how many messages take it."""
    ports: dict[tuple[str, int], list[tuple[float, float]]] = {("", 0): []}
    hertz = point.run.mhz * 1e6
    for delivery in point.run.deliveries:
        way = delivery.sender, delivery.receiver, point.chips
        latency = point.topology.seconds(delivery.sender, delivery.receiver, 0, point.chips)
        taken = (point.topology.seconds(delivery.sender, delivery.receiver, delivery.bytes, point.chips) - latency) * hertz, latency * hertz
        for one, two in pairwise(point.topology.route(*way) or ()):
            ports.setdefault(("out", one), []).append(taken)
            ports.setdefault(("in", two), []).append(taken)
    most = max(ports.values(), key=lambda messages: sum(map(sum, messages)))
    return sum(moved for moved, _ in most), sum(latency for _, latency in most), len(most)


def _shares(point: Point) -> str:
    """What the first chip's cycles are spent on."""
    shares = parts(point)
    return "chip 0: " + ", ".join(f"{name} {100 * cycles / point.run.cycles:.0f} %" for name, cycles in shares.items())


def parts(point: Point) -> dict[str, float]:
    """Cycles of the first chip by the paper's four kinds: compute, L2 access, L3 access, chip to chip."""
    shares = point.run.chips[0].shares
    return {
        "compute": shares["compute"] + shares["overhead"],
        "L2": shares["L2_L1"] + shares["issue"],
        "L3": shares["L3_L2"],
        "chip to chip": shares.get(LINK, 0.0) + point.run.cycles - point.run.chips[0].cycles,
    }


def draw(folder: Path, results: dict[str, list[Point]]) -> None:
    """The paper's figures 4, 5 and 6 with our block accounting."""
    folder.mkdir(parents=True, exist_ok=True)
    titles = {workload.name: workload.title for workload in WORKLOADS}
    for name, points in results.items():
        bars = [Bar(str(p.chips), parts(p), points[0].run.cycles / p.run.cycles) for p in points]
        (folder / f"{name}.svg").write_text(breakdown(titles[name], bars))
        marks = [(str(p.chips), p.run.milliseconds, p.millijoules(True)) for p in points]
        (folder / f"{name}_energy.svg").write_text(energies(titles[name], marks))
    lines = {titles[n]: [(p.chips, results[n][0].run.cycles / p.run.cycles) for p in results[n]] for n in results if n.endswith("64")}
    if lines:
        (folder / "scaling.svg").write_text(speedups(lines))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=[w.name for w in WORKLOADS], help="workloads; all by default")
    parser.add_argument("--chips", nargs="*", type=int, metavar="N", help="numbers of chips besides one")
    parser.add_argument("--block", action="store_true", help="the block accounting alone")
    parser.add_argument("--token", action="store_true", help="the token accounting alone")
    parser.add_argument("--l3", type=float, metavar="B", help="bytes that L3 gives and takes in a cycle, instead of what was measured")
    parser.add_argument("--bits", type=int, default=BITS, choices=(BITS, 4), help="of weights")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="where SVG files go")
    args = parser.parse_args(arguments)
    target = machine(args.l3)
    print(f"timing: targets/siracusa/timing.toml, links: targets/siracusa/topology.toml (0.5 GB/s, 100 pJ/B, groups of four), {MHZ} MHz")
    print("energy: 13 mW a core while it works, 100 pJ/B of L3 and of links, 2 pJ/B of L2 (the paper's formula)")
    results: dict[str, list[Point]] = {}
    for workload in (replace(given, shape=replace(given.shape, bits=args.bits)) for given in WORKLOADS):
        if args.only and workload.name not in args.only:
            continue
        counts = [n for n in workload.chips if not args.chips or n == 1 or n in args.chips]
        for kind, is_asked in (("block", not args.token), ("token", not args.block)):
            if not is_asked:
                continue
            print(f"\n{kind}: weights of a block {workload.weights / 1e6:.2f} MB in {workload.shape.bits} bits\n")
            with copied_into(PAGE, f"inference_over_chips {workload.name} {kind}", args.write):
                points = print_table(workload, counts, kind == "block", target)
            for point in points:
                print_paper(workload, point)
                print_shares(point, points[0])
            print_cycles(points)
            if kind == "block":
                results[workload.name] = points
    if args.plots and results:
        draw(args.plots, results)
