"""What compiled networks cost, as one table that every commit is compared with.

    python -m tests.figures [--why TEXT]

writes ``tests/figures.json`` anew. A figure that rose by more than ``TOLERANCE`` is written with a reason only: the table keeps it beside
the figure, with what was there before. Cycles are predicted, bytes are what the plan says, and code is what Debian's compiler makes of it.
All but code are the same on every machine; code is compared where the same version of the compiler is there.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import deeploy
from deeploy import api
from tests.frontend.lower.test_constructs import FORMS, write

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".json")
TOLERANCE = 0.01  # of a figure
TARGETS = ("siracusa", "cortex_m4")
EXAMPLES = ("examples/digits/digits.onnx",)
NETWORKS = (
    "attention pool",
    "channels last",
    "inverted residual",
    "multi output",
    "sequence",
    "spatial attention",
    "squeeze excite gemm",
    "u-net",
)  # constructs, in the first form that onnxruntime quantises
Figures = dict[str, int]


def list_models(folder: Path) -> Iterator[tuple[str, Path]]:
    """The networks by name; those that are made are written into ``folder``."""
    for path in EXAMPLES:
        yield Path(path).stem, ROOT / path
    form = next(name for name, options in FORMS.items() if options is not None)
    for name in NETWORKS:
        own = folder / name
        own.mkdir()
        yield f"{name}, {form}", write(name, form, own, np.random.default_rng(7))[1]


def figures_of(model: Path, target: str) -> Figures:
    """Cycles where they are known, bytes of every memory, and bytes of code where a compiler is there."""
    entry = api.report(deeploy.compile(model, target))
    figures = {f"bytes of {level}": use["peak"] for level, use in entry["memory"].items() if use["peak"]}
    figures |= {"cycles": round(entry["cycles"])} if entry["cycles"] is not None else {}
    return figures | ({"bytes of code": entry["sizes"]["code"]} if entry.get("sizes") else {})


def compiler() -> str:
    """The version of the compiler that code is counted with; empty where it is not installed."""
    gcc = shutil.which("arm-none-eabi-gcc")
    return subprocess.run([gcc, "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip() if gcc else ""


def computed(folder: Path) -> dict[str, Figures]:
    """The figures of all networks on all targets."""
    return {f"{name} @ {target}": figures_of(model, target) for name, model in list_models(folder) for target in TARGETS}


def risen(before: dict[str, Figures], now: dict[str, Figures]) -> list[tuple[str, str, int, int]]:
    """Case, figure, what it was, and what it is, of those that rose by more than ``TOLERANCE``."""
    pairs = [
        (case, name, old, now[case][name]) for case, row in before.items() if case in now for name, old in row.items() if name in now[case]
    ]
    return [(case, name, old, new) for case, name, old, new in pairs if new > old * (1 + TOLERANCE)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the table of figures.")
    parser.add_argument("--why", default="", help="why some figures rose")
    why = parser.parse_args().why
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {"figures": {}, "risen": []}
    logging.disable(logging.WARNING)  # of the quantiser
    with tempfile.TemporaryDirectory() as folder:
        now = computed(Path(folder))
    worse = risen(table["figures"], now)
    if worse and not why:
        raise SystemExit("\n".join([*(f"{case}: {name} {old} -> {new}" for case, name, old, new in worse), "say why: --why TEXT"]))
    reasons = [{"case": case, "figure": name, "before": old, "after": new, "why": why} for case, name, old, new in worse]
    table = {
        "compiler": compiler(),
        "figures": {case: dict(sorted(row.items())) for case, row in sorted(now.items())},
        "risen": [*table["risen"], *reasons],
    }
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
