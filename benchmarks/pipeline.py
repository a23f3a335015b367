"""A ResNet18 in int8 whose constants do not fit the L2 of one Siracusa, over 1 to 8 of them: cycles by strategy, and outputs.

The network is built with seeded weights. First every strategy: stages are planned and walked through, their transfers over the links
added as if they overlapped nothing. Then the cuts by ``cycles`` are compiled, a stream of inferences is predicted by discrete events
over all chips and links, and the emitted C runs on the host model of the machine: its outputs are compared with those of one chip.

    make bench NAME='pipeline [--channels 40] [--image 32] [--inputs 100] [--chips 2 3 4 6 8] [--engines cluster] [--write]'

``--write`` puts the tables into benchmarks/segmentation.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from benchmarks.common import ROOT, copied_into
from benchmarks.networks import resnet
from deeploy import chips, target
from deeploy.backend import project
from deeploy.driver.lower import Lowered, Stopwatch, lower_model
from deeploy.errors import UsageError
from deeploy.execution.runners import host
from deeploy.execution.simulation import chips as golden
from deeploy.execution.simulation.stages import PlannedStages
from deeploy.execution.simulation.systems import clock_of
from deeploy.ir.target import Target
from deeploy.options import Balance, Options
from deeploy.partition.balance_levels import Cuts, stage_segments
from deeploy.partition.pipeline import choose_cuts_by, cut_stages, levels_of_graph
from deeploy.partition.system import system_of_one

PAGE = ROOT / "benchmarks" / "segmentation.md"


def print_cut(costs: PlannedStages, name: str, cuts: Cuts, one: float, seconds: float) -> None:
    """One line: the stages of a cut, and what is gained."""
    times = costs.times(cuts)
    streamed = sum(costs.stage(*part).streamed for part in stage_segments(cuts, costs.levels.depth))
    stages = ", ".join(f"{t / 1e3:.0f}" for t in times)
    cells = [f"{len(times)}", name, stages, f"{max(times) / 1e3:.0f}", f"{one / max(times):.2f}", f"{streamed}", f"{seconds:.1f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


def strategies(costs: PlannedStages, counts: list[int]) -> dict[int, Cuts]:
    """Print all strategies; the cuts by cycles."""
    print("| chips | balance | stages | slowest | speedup | bytes streamed | planning, s |\n|---|---|---|---|---|---|---|")
    start = time.perf_counter()
    one = costs.stage(0, costs.levels.depth).cycles
    print_cut(costs, "", (), one, time.perf_counter() - start)
    best: dict[int, Cuts] = {1: ()}
    for count in counts:
        for strategy in get_args(Balance):
            start = time.perf_counter()
            try:
                cuts = choose_cuts_by(costs.levels, count, strategy, costs)
            except UsageError as error:
                print(f"| {count} | {strategy} | {error.what} |" + " |" * 4)
                continue
            print_cut(costs, strategy if costs.is_exact else f"{strategy}, best planned", cuts, one, time.perf_counter() - start)
            best[count] = cuts
    return best


def run(found: Lowered, costs: PlannedStages, cuts: Cuts, settings: Options, images: np.ndarray, first: float | None) -> float:
    """Compile and run a cut, and print what a stream takes; returns cycles per input."""
    machine, topology, clock = costs.target, costs.topology, Stopwatch()
    system = system_of_one(costs.graph) if not cuts else cut_stages(costs.graph, costs.levels, cuts)
    start = time.perf_counter()
    compiled = chips.build(system, found, "resnet18", machine, topology, settings, clock)
    seconds = time.perf_counter() - start
    assert compiled.predicted is not None
    flow = compiled.stream
    pace, latency = (flow.interval, flow.latency) if flow is not None else (compiled.predicted.cycles,) * 2
    idle = ", ".join(f"{100 * part:.0f}" for part in flow.idle) if flow is not None else "0"
    far = sum(path.traffic["L3_L2"].bytes_in for path in compiled.predicted.chips)
    whole = system_of_one(costs.graph)
    programs = golden.chip_programs(whole, machine)
    expected = np.stack([golden.system_outputs(whole, programs, [image])[0] for image in images])
    with tempfile.TemporaryDirectory() as scratch:
        compiled.write(Path(scratch) / "out")
        manifest = project.read_manifest(Path(scratch) / "out")
        got = host.Host().run(Path(scratch) / "out", manifest, [[image] for image in images]).outputs[0]
    equal = sum(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
    energy = compiled.predicted.energy.total
    cells = [
        f"{pace / 1e3:.0f}",
        f"{(first or pace) / pace:.2f}",
        f"{clock_of(compiled.plans) * 1e6 / pace:.0f}",
        f"{latency / 1e3:.0f}",
        idle,
    ]
    cells += [f"{far}", f"{compiled.predicted.link_bytes}", f"{energy:.0f}", f"{equal} of {len(images)}", f"{seconds:.1f}"]
    print(f"| {len(system.chips)} | {' | '.join(cells)} |", flush=True)
    return float(pace)


def prepare(folder: Path, machine: Target, channels: int, image: int) -> Lowered:
    """The network, lowered for a target."""
    model = resnet.build(folder, channels, image)
    return lower_model(Stopwatch(), model, machine, Options())


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--channels", type=int, default=40)
    parser.add_argument("--image", type=int, default=32)
    parser.add_argument("--inputs", type=int, default=100)
    parser.add_argument("--chips", type=int, nargs="+", default=[2, 3, 4, 6, 8])
    parser.add_argument("--engines", default="cluster")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    options = parser.parse_args(arguments)
    machine = target.load("siracusa").at(500)  # the clock of the other studies
    assert machine.topology is not None and machine.timing is not None
    with tempfile.TemporaryDirectory() as scratch:
        found = prepare(Path(scratch), machine, options.channels, options.image)
    graph = found.graph
    levels = levels_of_graph(graph)
    settings = Options(default_memory="L3", engines=tuple(options.engines.split(",")))
    costs = PlannedStages(graph, levels, machine, settings, machine.topology)
    with copied_into(PAGE, "pipeline planned", options.write):
        print(
            f"ResNet18, {options.channels} channels, {options.image} x {options.image}: {sum(levels.weights)} bytes of constants, ", end=""
        )
        print(f"{len(graph.nodes)} nodes on {levels.depth} levels; thousand cycles; {machine.timing.mhz:.0f} MHz.\n")
        best = strategies(costs, options.chips)
    with copied_into(PAGE, "pipeline compiled", options.write):
        print("\nCut by cycles, compiled; microjoule and bytes per input:\n")
        head = "chips | interval | speedup | inputs/s | latency | idle % | bytes of L3 | of links | uJ | bit-equal | compiling, s"
        print(f"| {head} |\n|" + "---|" * len(head.split("|")))
        images = resnet.images(options.inputs, options.image)
        first: float | None = None
        for cuts in best.values():
            pace = run(found, costs, cuts, settings, images, first)
            first = first or pace
