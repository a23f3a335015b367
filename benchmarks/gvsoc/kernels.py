"""Cycles of the cluster's kernels on GVSoC, data in L1, on one core and on eight.

    python benchmarks/gvsoc/kernels.py [--json] [PART OF A NAME ...]

Every result is compared with the kernel's reference, bit for bit. Exit status 1 when one differs or nothing can be simulated.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cases import CASES
from common import cpu
from layer import Case, Measured, SimulationError, check_and_measure, launcher

from deeploy.execution.runners import gvsoc

COLUMNS = "{:<46}{:<26}{:>11}{:>10}{:>8}{:>8}{:>8}{:>10}"


def line_of(*command: str) -> str:
    """The first line that a tool prints about itself."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().splitlines()[0] if done.stdout or done.stderr else "unknown"


def versions() -> dict[str, str]:
    """The machine, the simulator's revision, the compiler."""
    found = launcher()
    revision = gvsoc.simulator_revision(found) if found else None
    return {"cpu": cpu(), "gvsoc": (revision or "unknown")[:7], "gcc": line_of("riscv64-unknown-elf-gcc", "--version")}


def row(case: Case, one: Measured, eight: Measured) -> dict[str, Any]:
    per_cycle = {"1": one.macs / one.cycles, "8": eight.macs / eight.cycles}
    return {"case": case.name, "one": asdict(one), "eight": asdict(eight), "macs_per_cycle": per_cycle}


def main(arguments: list[str]) -> int:
    words = [word for word in arguments if not word.startswith("--")]
    as_json = "--json" in arguments
    head = versions()
    if not as_json:
        print("  ".join(f"{key}: {value}" for key, value in head.items()))
        print(COLUMNS.format("case", "kernel", "1 core", "8 cores", "MAC/c 1", "MAC/c 8", "1 / 8", "8 cold"))
    rows, failed = [], False
    for case in CASES:
        if words and not any(word in case.name for word in words):
            continue
        try:
            one, eight = check_and_measure(case, 1), check_and_measure(case, 8)
        except SimulationError as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            failed = True
            continue
        rows.append(row(case, one, eight))
        if not as_json:
            rates = (f"{m.macs / m.cycles:.2f}" for m in (one, eight))
            print(COLUMNS.format(case.name, one.kernel, one.cycles, eight.cycles, *rates, f"{one.cycles / eight.cycles:.2f}", eight.cold))
    if as_json:
        print(json.dumps({"versions": head, "rows": rows}, indent=1))
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
