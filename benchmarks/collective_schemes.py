"""Print blocks of transformers on several chips by the paper's scheme ("Distributed inference with minimal off-chip traffic for
transformers on low-power MCUs") beside ours.

*paper* is ``--collective hierarchical --no-gathers``: partial sums are added up in groups of four, the residual connection on the way, the
norm is computed on one chip, which copies its result to all. *ours* is what is fastest by the estimate. Each is compared with one chip
three times:

* *measured*: our plan, with the L3 that was measured (one byte in a cycle);
* *slow L3*: our plan, with the rate at which all weights of a block pass in the paper's time of one chip;
* *paper's*: the same L3, single buffering, and so little L2 that all weights and tensors of the block pass L3, which nothing hides.

    python benchmarks/collective_schemes.py [--only NAME ...] [--chips N ...]
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import onnx
from common import print_machine
from inference_over_chips import MHZ, OPTIONS, WORKLOADS, Paper, Point, Workload, machine, measure

from deeploy import chips

SCHEMES = {"ours": {}, "paper": {"collective": "hierarchical", "has_gathers": False}}
LITTLE_L2 = 200_000  # bytes: a tenth of L2, room for what L1 works on and nothing that stays


def paper_rate() -> float:
    """Bytes of L3 in a cycle, if all that one chip does in the paper's time of one token is to fetch the weights of a block once."""
    workload = next(w for w in WORKLOADS if w.name == "llama")
    paper = workload.paper[8]
    assert paper.speedup is not None and paper.ms is not None
    return workload.weights / (paper.speedup * paper.ms * 1e3 * MHZ)


def baselines(workload: Workload, path: Path) -> dict[str, Point]:
    """One chip, in three ways."""
    slow, one = machine(paper_rate()), chips.Cut(1)
    exposed = replace(OPTIONS, buffering="single", capacities={"L2": LITTLE_L2}, chains=False)
    return {
        "measured": measure(workload, path, one, 1, machine()),
        "slow L3": measure(workload, path, one, 1, slow),
        "paper's": measure(workload, path, one, 1, slow, exposed),
    }


def print_workload(workload: Workload, counts: list[int]) -> None:
    print(f"\n{workload.title}")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.onnx"
        onnx.save(workload.model(1), path)
        ones = baselines(workload, path)
        for name, one in ones.items():
            fetched = one.moved("L3_L2") / 1e3
            print(
                f"   1 chip, {name:8} {one.run.milliseconds:8.3f} ms {one.millijoules(True):7.3f} mJ, of L3 {fetched:5.0f} kB in the block"
            )
        print("chips scheme       ms      mJ  link kB  messages    " + "".join(f"{name:>10}    EDP" for name in ones) + "    paper    EDP")
        for count in counts:
            paper = workload.paper.get(count, Paper())
            for scheme, cut in SCHEMES.items():
                point = measure(workload, path, replace(chips.Cut(count), **cut), 1, machine(paper_rate()))
                print_line(scheme, point, ones, paper)


def print_line(scheme: str, point: Point, ones: dict[str, Point], paper: Paper) -> None:
    """Time, energy and messages on several chips, and how much better than one chip each time."""
    run, mj = point.run, point.millijoules(True)
    gains = ""
    for one in ones.values():
        faster = one.run.cycles / run.cycles
        gains += f"{faster:9.1f}x {faster * one.millijoules(True) / mj:5.1f}x"
    said = "".join(f"{value:8}x" if value is not None else "        -" for value in (paper.speedup, paper.edp))
    moved = next(note.split("between chips: ")[1] for note in point.notes if "between chips: " in note)
    spent = f"{point.chips:5} {scheme:6} {run.milliseconds:8.3f} {mj:7.3f} {run.link_bytes / 1e3:8.0f} {len(run.deliveries):9}"
    print(f"{spent}    {gains} {said}   {moved}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=[w.name for w in WORKLOADS], help="workloads; all by default")
    parser.add_argument("--chips", nargs="*", type=int, metavar="N", help="numbers of chips; those of the study by default")
    args = parser.parse_args()
    print_machine()
    print(f"L3 of the paper: {paper_rate():.3f} bytes in a cycle")
    for workload in WORKLOADS:
        if not args.only or workload.name in args.only:
            print_workload(workload, [n for n in workload.chips if n > 1 and (not args.chips or n in args.chips)])


if __name__ == "__main__":
    main()
