"""The static allocator on hard instances: the minimalloc benchmarks, into the capacity in their names, on one core.

Per instance: blocks, the lower bound (largest sum of live sizes) against the capacity, the peak, wall seconds, and the work in states of
the beam search, which is the same on any machine; deterministic time of CP-SAT counts as states. Every packing is checked again here. The
CSVs come with the paper "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning"; its solver, in C++, takes 2
to 14 CPU seconds for each. Exit status 1 when an instance is not solved within `SECONDS`.

    python benchmarks/allocation.py [--json] [LETTER ...]
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common import MODELS, PACKAGES, cpu, print_machine, version

from deeploy.planning.packing.addresses import Block, pack_blocks

SECONDS = 60.0
FIELDS = ("instance", "blocks", "lower bound", "capacity", "peak", "solved", "seconds", "states")
COLUMNS = "{:<10}{:>8}{:>14}{:>12}{:>12}{:>9}{:>10}{:>14}"


@dataclass(frozen=True)
class Row:
    """One instance. Sizes in bytes; ``overlaps`` should be 0."""

    instance: str
    blocks: int
    lower_bound: int
    capacity: int
    peak: int
    overlaps: int
    solved: bool
    seconds: float
    states: int


def read(path: Path) -> list[Block]:
    """The blocks of a CSV with columns id, lower, upper (exclusive) and size."""
    with path.open() as file:
        return [Block((row["id"],), int(row["lower"]), int(row["upper"]) - 1, int(row["size"])) for row in csv.DictReader(file)]


def overlaps(blocks: Sequence[Block], offsets: Sequence[int]) -> int:
    """How many pairs of blocks that live at the same time share an address."""
    placed = list(zip(blocks, offsets, strict=True))
    pairs = [(*one, *other) for i, one in enumerate(placed) for other in placed[:i]]
    return sum(a.first <= b.last and b.first <= a.last and at < bt + b.size and bt < at + a.size for a, at, b, bt in pairs)


def measure(path: Path) -> Row:
    """Pack one instance into its capacity."""
    name, capacity = path.name.split(".")[0], int(path.name.split(".")[1])
    blocks = read(path)
    bound = max(sum(b.size for b in blocks if b.first <= step <= b.last) for step in {b.first for b in blocks})
    start = time.perf_counter()
    packing = pack_blocks(blocks, capacity=capacity)
    seconds = time.perf_counter() - start
    wrong = overlaps(blocks, packing.offsets)
    peak = max(offset + block.size for offset, block in zip(packing.offsets, blocks, strict=True))
    solved = wrong == 0 and peak <= capacity and seconds <= SECONDS
    return Row(name, len(blocks), bound, capacity, peak, wrong, solved, seconds, packing.work)


def line(row: Row) -> str:
    """A row of the table."""
    solved = f"WRONG {row.overlaps}" if row.overlaps else "yes" if row.solved else "no"
    return COLUMNS.format(row.instance, row.blocks, row.lower_bound, row.capacity, row.peak, solved, f"{row.seconds:.2f}", row.states)


def main(arguments: Sequence[str]) -> int:
    """Measure the instances named, or all."""
    parser = argparse.ArgumentParser(description="The static allocator on the minimalloc benchmarks.")
    parser.add_argument("letters", nargs="*", metavar="LETTER", help="instances to measure; all by default")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    folder = MODELS / "allocation"
    paths = sorted(path for path in folder.glob("*.csv") if not options.letters or path.name.split(".")[0] in options.letters)
    if not paths:
        print(f"no such instance in {folder}", file=sys.stderr)
        return 2
    rows = []
    if not options.json:
        print_machine()
        print(COLUMNS.format(*FIELDS))
    for path in paths:
        rows.append(measure(path))
        if not options.json:
            print(line(rows[-1]), flush=True)
    solved = sum(row.solved for row in rows)
    if options.json:
        versions = {"python": sys.version.split()[0], **{package: version(package) for package in PACKAGES}}
        print(json.dumps({"cpu": cpu(), "versions": versions, "instances": [dataclasses.asdict(row) for row in rows]}, indent=2))
    else:
        print(f"\n{solved} of {len(rows)} within {SECONDS:.0f} s each")
    return 0 if solved == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
