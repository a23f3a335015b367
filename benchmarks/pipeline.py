"""A ResNet18 in int8 whose constants do not fit the L2 of one Siracusa, over 1 to 8 of them: cycles by strategy, and outputs.

The network is built with seeded weights; every stage is planned and walked through. Stages and their speedup have their transfers over
the links added, as if they overlapped nothing; in the stream, links work while stages do, and filling and draining count. Outputs of
the pipeline are compared with those of one chip, bit for bit, by the golden model of systems.

    python benchmarks/pipeline.py [--channels 40] [--image 32] [--inputs 100] [--chips 2 3 4 6 8] [--engines cluster]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx_graphsurgeon as gs
from common import print_machine
from networks import resnet

from deeploy import target
from deeploy.distribute.balance_levels import Cuts, segments
from deeploy.distribute.pipeline import choose, cut, levels_of_graph
from deeploy.distribute.system import alone, check
from deeploy.errors import DeeployError
from deeploy.frontend import import_model
from deeploy.graph.target import Target
from deeploy.midend.machine import Options
from deeploy.simulate import chips
from deeploy.simulate.stages import PlannedStages
from deeploy.simulate.stream import stream

STRATEGIES = ("layers", "parameters", "profile", "cycles")


def lowered(model: Path, machine: Target) -> gs.Graph:
    """The network as the target's passes leave it."""
    graph = import_model(model)
    for step in machine.passes:
        step(graph)
    return graph


def print_cut(costs: PlannedStages, name: str, cuts: Cuts, one: float, seconds: float, inputs: int) -> None:
    """One line: the stages of a cut, and what a stream of inputs gains."""
    times, parts = costs.times(cuts), segments(cuts, costs.levels.depth)
    alone = [costs.stage(*part).cycles for part in parts]
    moved = [
        (costs.topology.seconds(k, k + 1, costs.levels.crossing[cut], len(parts))) * costs.topology.mhz * 1e6 for k, cut in enumerate(cuts)
    ]
    found = stream(alone, moved, costs.topology.queue, inputs)
    stages, idle = ", ".join(f"{t / 1e3:.0f}" for t in times), ", ".join(f"{100 * share:.0f}" for share in found.idle)
    rate = costs.topology.mhz * 1e6 * inputs / found.total
    cells = [f"{len(times)}", name, stages, f"{max(times) / 1e3:.0f}", f"{one / max(times):.2f}", f"{one * inputs / found.total:.2f}"]
    cells += [
        f"{rate:.0f}",
        f"{found.latencies[0] / 1e3:.0f}",
        idle,
        f"{sum(costs.stage(*part).streamed for part in parts)}",
        f"{seconds:.1f}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def compare(graph: gs.Graph, costs: PlannedStages, cuts: Cuts, machine: Target, images: np.ndarray) -> int:
    """How many inputs give the same bits on one chip and on the pipeline, streamed in order."""
    whole, system = alone(graph), cut(graph, costs.levels, cuts)
    check(system, costs.topology)
    one, many = chips.programs(whole, machine), chips.programs(system, machine)
    return sum(np.array_equal(chips.outputs(whole, one, [x])[0], chips.outputs(system, many, [x])[0]) for x in images)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--channels", type=int, default=40)
    parser.add_argument("--image", type=int, default=32)
    parser.add_argument("--inputs", type=int, default=100)
    parser.add_argument("--chips", type=int, nargs="+", default=[2, 3, 4, 6, 8])
    parser.add_argument("--engines", default="cluster")
    options = parser.parse_args()
    print_machine()
    machine = target.load("siracusa")
    assert machine.topology is not None
    with tempfile.TemporaryDirectory() as scratch:
        graph = lowered(resnet.build(Path(scratch), options.channels, options.image), machine)
    levels = levels_of_graph(graph)
    settings = Options(default_memory="L3", engines=tuple(options.engines.split(",")))
    costs = PlannedStages(graph, levels, machine, settings, machine.topology)
    start = time.perf_counter()
    one = costs.stage(0, levels.depth).cycles
    print(f"ResNet18, {options.channels} channels, {options.image} x {options.image}: {sum(levels.weights)} bytes of constants, ", end="")
    print(f"{len(graph.nodes)} nodes on {levels.depth} levels; thousand cycles; throughput at {machine.topology.mhz:.0f} MHz\n")
    print("| chips | balance | stages | slowest | speedup | of a stream | inputs/s | latency | idle % | bytes streamed | planning, s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    print_cut(costs, "", (), one, time.perf_counter() - start, options.inputs)
    best: dict[int, Cuts] = {}
    for count in options.chips:
        for strategy in STRATEGIES:
            start = time.perf_counter()
            try:
                cuts = choose(levels, count, strategy, costs)  # type: ignore[arg-type]
            except DeeployError as error:
                print(f"| {count} | {strategy} | {error.what} |" + " |" * 8)
                continue
            print_cut(
                costs, strategy if costs.is_exact else f"{strategy}, best planned", cuts, one, time.perf_counter() - start, options.inputs
            )
            best[count] = cuts
    images = resnet.images(options.inputs, options.image)
    print()
    for count, cuts in best.items():
        print(f"{count} chips: {compare(graph, costs, cuts, machine, images)} of {len(images)} inputs bit-equal to one chip, in order")


if __name__ == "__main__":
    main()
