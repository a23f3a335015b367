"""What a sweep costs beside the work of its cells, and what follows for many cells on many workers (docs/sweep.md).

Cells are of no work: a worker returns figures and a report of the usual size at once. What is left is the compiler's: reading the matrix,
digests, handing out, results, files, and the table. The rest is calculation from that.

    make bench NAME='sweep [--cells N] [--work SECONDS] [--dask]'
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.common import ROOT
from deeploy.documents import Contents
from deeploy.jobs import workers
from deeploy.sweeps import run, table
from deeploy.sweeps.cell import failed_columns
from deeploy.sweeps.matrix import Cell

REPORT = "x" * 100_000  # bytes of a small network's report
MANY, WORKERS = 100_000, 64


def measure(cell: Cell) -> tuple[Contents, str]:
    """What a cell without work gives."""
    return {**failed_columns("ok", ""), "cycles": 1, "microseconds": 1.0, "energy_uj": 1.0, "ram": 1, "flash": 1}, REPORT


@contextlib.contextmanager
def engine(name: str) -> Iterator[None]:
    """One process, two, or a Dask cluster of two workers."""
    if name == "Dask":
        from distributed import LocalCluster

        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
        with cluster, workers(scheduler=cluster.scheduler_address):
            yield
        return
    with workers(1 if name == "1 process" else 2):
        yield


def seconds_of(cells: int) -> tuple[float, float]:
    """Seconds by the clock, and of this process, of a sweep of so many cells."""
    sweep = {
        "models": {"digits": {"file": str(ROOT / "examples" / "digits" / "digits.onnx")}},
        "matrix": [{"target": ["siracusa"], "l1": [str(4096 + number) for number in range(cells)]}],
    }
    with tempfile.TemporaryDirectory() as scratch:
        begin, used = time.perf_counter(), time.process_time()
        run.run_sweep(sweep, Path(scratch) / "out")
        return time.perf_counter() - begin, time.process_time() - used


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--work", type=float, default=0.25, help="seconds of a cell's own work, for the calculation")
    parser.add_argument("--dask", action="store_true", help="on a Dask cluster of two workers as well (extra cluster)")
    given = parser.parse_args(arguments)
    run.measure_cell = measure
    print("milliseconds per cell beside its work: by the clock, of the process that asks\n")
    asked = 0.0
    for name in ("1 process", "2 processes", *(["Dask"] if given.dask else [])):
        with engine(name):
            _, few, many = (seconds_of(count) for count in (10, 10, given.cells))  # workers begin with the first
        clock, own = (1e3 * (b - a) / (given.cells - 10) for a, b in zip(few, many, strict=True))
        asked = max(asked, own / 1e3)
        print(f"{name:12} {clock:7.1f} {own:7.1f}", flush=True)
    row = {"model": "digits", "form": "", "target": "siracusa", "l1": "65536", **measure(None)[0], "report": "cells/" + 32 * "0"}  # type: ignore[arg-type]
    begin = time.process_time()
    files = table.table_files([row] * MANY, ["model", "form", "target", "l1"])
    last = time.process_time() - begin
    sizes = ", ".join(f"{name} {len(data) / 1e6:.0f} MB" for name, data in files.items())
    print(f"\ntable of {MANY} rows: {last:.1f} s; {sizes}; reports {MANY * len(REPORT) / 1e9:.0f} GB")
    handed, worked = MANY * asked, MANY * given.work / WORKERS
    print(f"{MANY} cells of {given.work:g} s on {WORKERS} workers: {worked:.0f} s of work each; {handed:.0f} s of the process that asks,")
    print(f"which is busy for {handed / max(worked, handed):.0%} of the {max(worked, handed) + last:.0f} s that it takes")
