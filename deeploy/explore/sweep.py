"""Sweeps: one study for every point of a grid of hardware parameters, by the workers of ``deeploy.jobs``, resumed where they stopped.

A point's result is a file in the folder of results, named after a digest of all that decides it and written whole or not at all.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from deeploy.documents import Contents, Document, read_document
from deeploy.errors import DeeployError, UsageError, shorten
from deeploy.explore.choose import Objective
from deeploy.explore.hardware import Hardware, load_hardware
from deeploy.explore.study import describe_study, study_unrollings
from deeploy.explore.unrollings import enumerate_unrollings
from deeploy.ir.loops import LayerLoops
from deeploy.jobs import run_tasks
from deeploy.resources import write_whole
from deeploy.version import VERSION

_MOST_POINTS = 100_000

Point = Mapping[str, float]
Task = tuple[Sequence[LayerLoops], Hardware, int, Objective, bool]


def parameter_grid(vary: Sequence[str]) -> list[dict[str, float]]:
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


def sweep_points(
    layers: Sequence[LayerLoops],
    hardware: Path,
    points: Sequence[Point],
    configs: int,
    objective: Objective,
    prune: bool,
    results: Path | None = None,
) -> list[Contents]:
    """The studies of all points, in order, each with its ``point``.

    Args:
        results: folder that keeps results; those that are there are not computed again.
    """
    tasks = [(list(layers), load_hardware(hardware, point), configs, objective, prune) for point in points]
    for task in tasks:  # an array that nothing fills ends the sweep before it begins
        enumerate_unrollings(task[1].pes, layers, prune)
    files = [results / f"{task_digest(task)}.json" if results is not None else None for task in tasks]
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
    done_rows = {index: known for index, file in enumerate(files) if (known := _read_point(file)) is not None}
    missing = [index for index in range(len(tasks)) if index not in done_rows]
    with closing(run_tasks(compute_point, [tasks[index] for index in missing])) as studies:
        for position, description in studies:
            if isinstance(description, DeeployError):
                raise description
            done_rows[missing[position]] = description
            _write_point(files[missing[position]], description)
    return [{"point": dict(point), **done_rows[index]} for index, point in enumerate(points)]


def task_digest(task: Task) -> str:
    """Everything that decides a result, in 24 hexadecimal digits."""
    layers, hardware, configs, objective, prune = task
    decides = [VERSION, [asdict(layer) for layer in layers], asdict(hardware), configs, objective, prune]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:24]


def compute_point(task: Task) -> Contents:
    """One point; runs in a process of its own."""
    return describe_study(study_unrollings(*task))


def _read_point(file: Path | None) -> Contents | None:
    if file is None or not file.is_file():
        return None
    try:
        return read_document(file, "study.json")
    except DeeployError:
        return None  # changed by someone else: compute it again


def _write_point(file: Path | None, description: Document) -> None:
    """Whole or not at all: an interrupted sweep leaves no half file."""
    if file is not None:
        with write_whole(file) as fresh:
            fresh.write_text(json.dumps(description), encoding="utf-8")
