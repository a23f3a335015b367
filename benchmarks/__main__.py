"""Runs a measurement by its name, prints what it depends on, and writes its results: make bench NAME="gvsoc/predict --cores 1".

    python -m benchmarks [--results FILE] [NAME [OPTION ...]]

Without a name: what there is. A measurement is a module of this folder with a function ``main`` that takes the options; it is called by
its place (``planner``, ``gvsoc/kernels``), and the first paragraph of its docstring says what it measures. Its results are written to
``build/bench/NAME.json``: machine, versions, commit, what it recorded and what it printed (``common.py``). Exit status: the measurement's.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import ROOT, Copied, describe_run, recorded, write_results

HERE = Path(__file__).resolve().parent


def find_measurements() -> dict[str, str]:
    """What every measurement measures, by its name."""
    found = {}
    for path in sorted(HERE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        if path != Path(__file__).resolve() and any(isinstance(one, ast.FunctionDef) and one.name == "main" for one in tree.body):
            found[path.relative_to(HERE).with_suffix("").as_posix()] = " ".join(
                (ast.get_docstring(tree) or "").partition("\n\n")[0].split()
            )
    return found


def run(name: str, options: Sequence[str], results: Path) -> int:
    """Run a measurement and write its results; its exit status."""
    for key, value in describe_run().items():
        print(f"{key:<9}", "; ".join(f"{of} {what}" for of, what in value.items()) if isinstance(value, dict) else value)
    print(flush=True)
    sys.argv = [f"make bench NAME={name}", *options]  # what argparse calls the program
    begin, status, printed = time.time(), 1, Copied(sys.stdout)
    try:
        with contextlib.redirect_stdout(printed):
            status = int(importlib.import_module(f"benchmarks.{name.replace('/', '.')}").main(options) or 0)
    finally:
        about = {"name": name, "options": list(options), "status": status, "seconds": round(time.time() - begin, 1)}
        write_results(results, {**recorded(), "printed": printed.text.getvalue().splitlines()}, **about)
    return status


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, metavar="FILE", help="where results are written; build/bench/NAME.json by default")
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of the measurement")
    given = parser.parse_args()
    measurements = find_measurements()
    if not given.name:
        width = max(map(len, measurements))
        print("\n".join(f"{name:<{width}}  {what}" for name, what in measurements.items()))
        return 0
    if given.name not in measurements:
        parser.error(f"there is no measurement {given.name}: take one of {', '.join(measurements)}")
    return run(given.name, given.options, given.results or ROOT / "build" / "bench" / f"{given.name}.json")


if __name__ == "__main__":
    sys.exit(main())
