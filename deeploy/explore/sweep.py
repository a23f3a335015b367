"""Sweeps: one study for every point of a grid of hardware parameters, in processes or on Dask, resumed where they stopped.

A point's result is a file in the folder of results, named after a digest of all that decides it and written whole or not at all.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict
from pathlib import Path

from deeploy.documents import Contents, Document, read_document
from deeploy.errors import DeeployError, UsageError, shorten
from deeploy.explore.choose import Objective
from deeploy.explore.hardware import Hardware, load
from deeploy.explore.study import describe, processes, study
from deeploy.explore.unrollings import unrollings
from deeploy.graph.loops import Layer
from deeploy.version import VERSION

_MOST_POINTS = 100_000

Point = Mapping[str, float]
Task = tuple[Sequence[Layer], Hardware, int, Objective, bool]


def grid(vary: Sequence[str]) -> list[dict[str, float]]:
    """All combinations of ``FIELD=VALUE,VALUE,...``."""
    fields: dict[str, list[float]] = {}
    for text in vary:
        field, equals, values = text.partition("=")
        try:
            numbers = [float(value) for value in values.split(",")]
        except ValueError:
            numbers = []
        if not equals or not field or not numbers or field in fields:
            raise UsageError(f"--vary {shorten(text)} is not of the form FIELD=NUMBER,NUMBER,...", "For example: --vary pes=256,1024")
        fields[field] = numbers
    if math.prod(map(len, fields.values())) > _MOST_POINTS:
        raise UsageError(f"--vary makes a grid of more than {_MOST_POINTS} points", "Vary fewer fields at a time, or give fewer values.")
    return [dict(zip(fields, values, strict=True)) for values in itertools.product(*fields.values())]


def sweep(
    layers: Sequence[Layer],
    hardware: Path,
    points: Sequence[Point],
    configs: int,
    objective: Objective,
    prune: bool,
    results: Path | None = None,
    workers: int | None = None,
    dask: str | None = None,
) -> list[Contents]:
    """The studies of all points, in order, each with its ``point``.

    Args:
        results: folder that keeps results; those that are there are not computed again.
        workers: processes; the machine's cores by default.
        dask: address of a Dask scheduler to use instead of processes.
    """
    tasks = [(list(layers), load(hardware, point), configs, objective, prune) for point in points]
    for task in tasks:  # an array that nothing fills ends the sweep before it begins
        unrollings(task[1].pes, layers, prune)
    files = [results / f"{digest(task)}.json" if results is not None else None for task in tasks]
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
    found = {index: known for index, file in enumerate(files) if (known := _read(file)) is not None}
    missing = [index for index in range(len(tasks)) if index not in found]
    run = _on_dask(dask) if dask is not None else _in_processes(workers or os.cpu_count() or 1)
    for position, description in run([tasks[index] for index in missing]):
        index = missing[position]
        found[index] = description
        _write(files[index], description)
    return [{"point": dict(point), **found[index]} for index, point in enumerate(points)]


def digest(task: Task) -> str:
    """Everything that decides a result, in 24 hexadecimal digits."""
    layers, hardware, configs, objective, prune = task
    decides = [VERSION, [asdict(layer) for layer in layers], asdict(hardware), configs, objective, prune]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:24]


def compute(task: Task) -> Contents:
    """One point; runs in a process of its own."""
    return describe(study(*task))


Runner = Callable[[Sequence[Task]], Iterator[tuple[int, Contents]]]


def _in_processes(workers: int) -> Runner:
    def run(tasks: Sequence[Task]) -> Iterator[tuple[int, Contents]]:
        if min(workers, len(tasks)) <= 1:
            yield from ((position, compute(task)) for position, task in enumerate(tasks))
            return
        with processes(min(workers, len(tasks))) as pool:
            futures = {pool.submit(compute, task): position for position, task in enumerate(tasks)}
            for future in as_completed(futures):
                yield futures[future], future.result()

    return run


def _on_dask(address: str) -> Runner:
    try:
        from distributed import Client
        from distributed import as_completed as completed
    except ImportError as error:
        raise UsageError("--dask needs the package distributed", "Install it: pip install distributed") from error

    def run(tasks: Sequence[Task]) -> Iterator[tuple[int, Contents]]:
        try:
            client = Client(address, timeout=10)
        except (OSError, ValueError) as error:
            raise UsageError(f"no Dask scheduler answers at {shorten(address)}", "Start one with: dask scheduler") from error
        with client:
            futures = {client.submit(compute, task, pure=False): position for position, task in enumerate(tasks)}
            for future in completed(list(futures)):
                yield futures[future], future.result()

    return run


def _read(file: Path | None) -> Contents | None:
    if file is None or not file.is_file():
        return None
    try:
        return read_document(file, "study.json")
    except DeeployError:
        return None  # changed by someone else: compute it again


def _write(file: Path | None, description: Document) -> None:
    """Whole or not at all: an interrupted sweep leaves no half file."""
    if file is not None:
        part = file.with_suffix(".part")
        part.write_text(json.dumps(description), encoding="utf-8")
        part.replace(file)
