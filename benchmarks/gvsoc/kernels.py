"""Cycles of the cluster's kernels on GVSoC, data in L1, on one core and on eight.

    make bench NAME='gvsoc/kernels [PART OF A NAME ...]'

Every result is compared with the kernel's reference, bit for bit. Exit status 1 when one differs or nothing can be simulated.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.common import record
from benchmarks.gvsoc.cases import CASES
from benchmarks.gvsoc.layer import Case, Measured, SimulationError, check_and_measure

COLUMNS = "{:<46}{:<26}{:>11}{:>10}{:>8}{:>8}{:>8}{:>10}"


def row(case: Case, one: Measured, eight: Measured) -> dict[str, Any]:
    per_cycle = {"1": one.macs / one.cycles, "8": eight.macs / eight.cycles}
    return {"case": case.name, "one": asdict(one), "eight": asdict(eight), "macs_per_cycle": per_cycle}


def main(arguments: Sequence[str]) -> int:
    print(COLUMNS.format("case", "kernel", "1 core", "8 cores", "MAC/c 1", "MAC/c 8", "1 / 8", "8 cold"))
    rows, failed = [], False
    record(rows=rows)
    for case in CASES:
        if arguments and not any(word in case.name for word in arguments):
            continue
        try:
            one, eight = check_and_measure(case, 1), check_and_measure(case, 8)
        except SimulationError as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            failed = True
            continue
        rows.append(row(case, one, eight))
        rates = (f"{m.macs / m.cycles:.2f}" for m in (one, eight))
        speedup = f"{one.cycles / eight.cycles:.2f}"
        print(COLUMNS.format(case.name, one.kernel, one.cycles, eight.cycles, *rates, speedup, eight.cold), flush=True)
    return int(failed)
