"""Print blocks of transformers on several chips by the paper's scheme ("Distributed inference with minimal off-chip traffic for
transformers on low-power MCUs") beside ours.

*paper* is ``--collective hierarchical --no-gathers``: partial sums are added up in groups of four, the residual connection on the way, the
norm is computed on one chip, which copies its result to all. *ours* is what is fastest by the estimate. Each is compared with one chip
three times:

* *measured*: our plan, with the L3 that was measured (one byte in a cycle);
* *slow L3*: our plan, with the rate at which all weights of a block pass in the paper's time of one chip;
* *paper's*: the same L3, single buffering, and so little L2 that all weights and tensors of the block pass L3, which nothing hides.

    make bench NAME='collective_schemes [--only NAME ...] [--chips N ...] [--write]'

``--write`` puts the tables into benchmarks/study-collectives.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from benchmarks.common import ROOT, copied_into, table
from benchmarks.inference_over_chips import MHZ, OPTIONS, WORKLOADS, Paper, Point, Workload, machine, measure
from benchmarks.transformer_models import Shape, decoder
from deeploy.driver.lower import Stopwatch, lower_model
from deeploy.ir.values import Graph
from deeploy.operators.residual import RESIDUAL_SUM
from deeploy.options import Options
from deeploy.partition.collectives import Costs
from deeploy.partition.joins import join_residuals
from deeploy.partition.tensor import partition_by_tensor
from deeploy.planning.binding.kernels import kernel_declarations
from deeploy.target import load

PAGE = ROOT / "benchmarks" / "study-collectives.md"
HEADS = ("workload", "chips", "scheme", "ms", "mJ", "links, kB", "messages", "faster: measured", "slow L3", "paper's", "paper")
SCHEMES = {"ours": OPTIONS, "paper": replace(OPTIONS, collective="hierarchical", gathers=False)}
LITTLE_L2 = 200_000  # bytes: a tenth of L2, room for what L1 works on and nothing that stays


def paper_rate() -> float:
    """Bytes of L3 in a cycle, if all that one chip does in the paper's time of one token is to fetch the weights of a block once."""
    workload = next(w for w in WORKLOADS if w.name == "llama")
    paper = workload.paper[8]
    assert paper.speedup is not None and paper.ms is not None
    return workload.weights / (paper.speedup * paper.ms * 1e3 * MHZ)


def baselines(workload: Workload, path: Path) -> dict[str, Point]:
    """One chip, in three ways."""
    slow = machine(paper_rate())
    exposed = replace(OPTIONS, buffering="single", memory={"L2": LITTLE_L2}, fusion=False)
    return {
        "measured": measure(workload, path, 1, 1, machine()),
        "slow L3": measure(workload, path, 1, 1, slow),
        "paper's": measure(workload, path, 1, 1, slow, exposed),
    }


def print_workload(workload: Workload, counts: list[int], is_written: bool) -> None:
    """One chip in three ways, then a table of both schemes on every number of chips."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.onnx"
        onnx.save(workload.model(1), path)
        ones = baselines(workload, path)
        print(f"\n{workload.title}, 1 chip:")
        for name, one in ones.items():
            fetched = one.moved("L3_L2") / 1e3
            print(f"* {name}: {one.run.milliseconds:.3f} ms, {one.millijoules(True):.3f} mJ, of L3 {fetched:.0f} kB in the block")
        print()
        notes: list[str] = []
        with copied_into(PAGE, f"collective_schemes {workload.name}", is_written):
            print("\n".join(table((*HEADS, "EDP: measured", "slow L3", "paper"), ())))
            for count in counts:
                for scheme, options in SCHEMES.items():
                    point = measure(workload, path, count, 1, machine(paper_rate()), options)
                    titles = (workload.title if not notes else "", str(count) if scheme == "ours" else "")
                    cells = scheme_cells(scheme, point, ones, workload.paper.get(count, Paper()))
                    print(f"| {' | '.join((*titles, *cells))} |", flush=True)
                    moved = next(note.split("between chips: ")[1] for note in point.notes if "between chips: " in note)
                    notes.append(f"* {count} chips, {scheme}: {moved}")
        print("\n" + "\n".join(notes))


def scheme_cells(scheme: str, point: Point, ones: dict[str, Point], paper: Paper) -> list[str]:
    """Time, energy and messages on several chips, and how much better than one chip each time."""
    run, mj = point.run, point.millijoules(True)
    faster = {name: one.run.cycles / run.cycles for name, one in ones.items()}
    edp = {name: faster[name] * one.millijoules(True) / mj for name, one in ones.items()}
    said = ["" if value is None else f"{value}" for value in (paper.speedup, paper.edp)]
    spent = [f"{run.milliseconds:.3f}", f"{mj:.3f}", f"{run.link_bytes / 1e3:.0f}", str(len(run.deliveries))]
    return [
        scheme,
        *spent,
        *(f"{gain:.1f}" for gain in faster.values()),
        said[0],
        f"{edp['measured']:.1f}",
        f"{edp['slow L3']:.1f}",
        said[1],
    ]


@dataclass(frozen=True)
class Counted:
    """What the paper says of its scheme, counted in a decoder that is cut by it.

    Attributes:
        synchronisations: of all chips in a block.
        repeated: bytes of weights that are on more chips than one.
        joined: residual connections that join the addition of partial sums, in a block.
        residuals: residual connections in a block.
    """

    synchronisations: float
    repeated: int
    joined: float
    residuals: float


def count_scheme(count: int = 8, blocks: int = 2) -> Counted:
    """Cut a small decoder for ``count`` chips by the paper's scheme, and count."""
    whole = load("siracusa")
    target = replace(whole, kernels=tuple(kernel for kernel in whole.kernels if kernel.engine == "cluster"))
    assert target.topology is not None
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "decoder.onnx"
        onnx.save(decoder(Shape(64, 128, 16, blocks, 1, True)), path)
        graph = lower_model(Stopwatch(), path, target, Options(dialect="integer", context=16)).graph
    topology = replace(target.topology, collective="hierarchical", has_gathers=False)
    found = partition_by_tensor(graph, count, topology, lambda node: kernel_declarations(target.kernels, node), Costs())
    joined = join_residuals(found.system, lambda node: any(kernel_declarations(target.kernels, node)))

    def weights(own: Graph) -> int:
        matrices = {
            t: t.data for node in own.nodes if node.op == "MatMul" for t in node.operands if t.data is not None and len(t.shape) > 1
        }
        return sum(data.nbytes for data in matrices.values())

    return Counted(
        sum(one.kind == "reduce" for one in found.collectives) / blocks,
        sum(map(weights, found.system.chips)) - weights(graph),
        sum(node.op == RESIDUAL_SUM.name for own in joined.chips for node in own.nodes) / blocks,
        sum(node.op == "Add" for node in graph.nodes) / blocks,
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=[w.name for w in WORKLOADS], help="workloads; all by default")
    parser.add_argument("--chips", nargs="*", type=int, metavar="N", help="numbers of chips; those of the study by default")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    args = parser.parse_args(arguments)
    print(f"L3 of the paper: {paper_rate():.3f} bytes in a cycle")
    for workload in WORKLOADS:
        if not args.only or workload.name in args.only:
            print_workload(workload, [n for n in workload.chips if n > 1 and (not args.chips or n in args.chips)], args.write)
