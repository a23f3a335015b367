"""A sweep from its file to its table: cells that are not there yet are computed, each kept by what decides it.

The folder has ``cells/DIGEST.json``, written whole or not at all, with the report of the cell beside it, and ``models`` with networks that
were quantised. A cell whose worker died, or had too little memory, is a row and is not kept: the next run tries it again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from deeploy.documents import Contents, Document, digest_of, read_document
from deeploy.errors import DeeployError, UsageError, shorten
from deeploy.frontend.load import files_of
from deeploy.jobs import run_tasks
from deeploy.resources import resource, write_whole
from deeploy.sweeps import table
from deeploy.sweeps.cell import failed_columns, measure_cell, quantise_cell
from deeploy.sweeps.matrix import Cell, read_matrix
from deeploy.target import origin
from deeploy.version import VERSION

CELL = "cell.json"
Say = Callable[[str], None]
Held = Callable[[Path | None], list[str]]


def run_sweep(given: str | Path | Document, output: Path, base: Path | None = None, on_progress: Say = lambda text: None) -> list[Contents]:
    """Run a sweep, and write its table and page.

    Args:
        given: the file of the sweep, or what such a file holds.
        output: folder for all of it; cells that lie there are not computed again.
        base: folder of the sweep that this one is compared with, in place of the file's.
        on_progress: called with how far it is.

    Returns:
        The rows of the table.

    Raises:
        UsageError: the file is wrong, or the folder is something else.
    """
    wanted = read_matrix(given)
    base = base or wanted.base
    if output.exists() and not (output.is_dir() and ((output / "cells").is_dir() or not any(output.iterdir()))):
        raise UsageError(f"{shorten(str(output))} exists and holds no sweep", "Name another folder (-o), or empty this one.")
    if base is not None:
        read_document(base / table.TABLE, table.TABLE)
    (output / "cells").mkdir(parents=True, exist_ok=True)
    axes = list(wanted.cells[0].settings)
    rows: dict[int, Contents] = {}
    held, place = cache(_file_contents), cache(origin)  # each file and target is looked at once
    cells = _in_their_forms(wanted.cells, output / "models", held, rows, on_progress)
    files = {number: output / "cells" / f"{cell_digest(cell, held, place)}.json" for number, cell in cells.items()}
    rows |= {number: known for number, file in files.items() if (known := _read_cell(file)) is not None}
    missing = [number for number in files if number not in rows]
    track = _Track(len(wanted.cells), [str(wanted.cells[number]) for number in missing], on_progress)
    with closing(run_tasks(measure_cell, [cells[number] for number in missing])) as results:
        for position, result in results:
            number = missing[position]
            rows[number] = _failed_row(result) if isinstance(result, DeeployError) else _write_cell(files[number], *result)
            track(position, rows[number]["status"])
    whole = [_table_row(cell, rows[number], files.get(number)) for number, cell in enumerate(wanted.cells)]
    for name, data in table.table_files(table.compare_rows(whole, base, axes) if base is not None else whole, axes).items():
        with write_whole(output / name) as fresh:
            fresh.write_bytes(data)
    return whole if base is None else table.compare_rows(whole, base, axes)


def _table_row(cell: Cell, figures: Contents, file: Path | None) -> Contents:
    report = file.with_suffix(".html") if file is not None else None
    return {**cell.settings, **figures, "report": f"cells/{report.name}" if report is not None and report.is_file() else None}


def _failed_row(error: DeeployError) -> Contents:
    return failed_columns("not run", f"{error.what}; {error.remedy}")


def _in_their_forms(cells: tuple[Cell, ...], folder: Path, held: Held, rows: dict[int, Contents], say: Say) -> dict[int, Cell]:
    """The cells by their numbers, with networks that are quantised where that is wanted; ``rows`` gets those of which there are none."""
    made: dict[Path, list[int]] = {}
    for number, cell in enumerate(cells):
        if cell.form is not None:
            made.setdefault(
                folder / _hash_text([_compiler_digest(), held(cell.file), held(cell.calibrate), asdict(cell.form)]) / cell.file.name, []
            ).append(number)
    missing = [path for path in made if not path.is_file()]
    if missing:
        say(f"quantise {len(missing)} networks")
    with closing(run_tasks(quantise_cell, [cells[made[path][0]] for path in missing])) as results:
        for position, result in results:
            if isinstance(result, DeeployError):
                status = "refused" if type(result).__name__ != "LostError" else "not run"
                rows |= {number: failed_columns(status, f"{result.what}; {result.remedy}") for number in made[missing[position]]}
                continue
            with write_whole(missing[position]) as fresh:
                fresh.write_bytes(result)
    files = {number: path for path, numbers in made.items() for number in numbers}
    return {number: replace(cell, file=files.get(number, cell.file)) for number, cell in enumerate(cells) if number not in rows}


def _read_cell(file: Path) -> Contents | None:
    """The columns of a cell that was computed before; None where it was not, or where somebody changed the file."""
    try:
        return read_document(file, CELL) if file.is_file() else None
    except DeeployError:
        return None


def _write_cell(file: Path, figures: Contents, report: str) -> Contents:
    """Keep a cell; its report first, so that a cell is whole where it is."""
    for path, text in ((file.with_suffix(".html"), report), (file, json.dumps(figures))):
        if text:
            with write_whole(path) as fresh:
                fresh.write_text(text, encoding="utf-8")
    return figures


class _Track:
    """How far a sweep is: what runs, and when it ends."""

    def __init__(self, total: int, waiting: list[str], say: Say) -> None:
        self.total, self.waiting, self.say = total, dict(enumerate(waiting)), say
        self.count, self.begin, self.statuses = len(waiting), time.monotonic(), Counter[str]()
        self._show()

    def __call__(self, position: int, status: str) -> None:
        del self.waiting[position]
        self.statuses[status] += 1
        self._show()

    def _show(self) -> None:
        left, done = len(self.waiting), self.count - len(self.waiting)
        parts = [f"{self.total - left} of {self.total} cells"]
        parts += [f"{count} {status}" for status, count in self.statuses.items() if status != "ok"]
        if left:
            parts.append(f"running: {shorten(next(iter(self.waiting.values())), 60)}")
        if done and left:
            seconds = round((time.monotonic() - self.begin) / done * left)
            parts.append(f"ends in {seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}")
        self.say("; ".join(parts))


def cell_digest(cell: Cell, held: Held, origin_of: Callable[[str], Path]) -> str:
    """All that decides the columns of a cell, wherever its files lie."""
    given = {name: held(value) if isinstance(value, Path) else value for name, value in cell.options.given().items()}
    place = origin_of(str(cell.options.target))
    given["target"] = [place.name, held(place)]
    own = [cell.file.name, held(cell.file), held(cell.inputs), held(cell.labels), cell.is_verified, cell.has_report]
    metric = held(Path(cell.metric.rpartition(":")[0])) if ":" in cell.metric else None
    return _hash_text([_compiler_digest(), given, own, cell.metric, metric])


def _file_contents(path: Path | None) -> list[str]:
    """What a file holds, a network with the files of its tensors, or a folder of Python and C."""
    if path is None or not path.exists():
        return []
    if path.is_dir():
        names = sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        return [f"{file.relative_to(path).as_posix()} {digest_of(file)}" for file in names]
    try:
        return [digest_of(file) for file in (files_of(path) if path.suffix == ".onnx" else [path])]
    except DeeployError:
        return [digest_of(path)]


@cache
def _compiler_digest() -> str:
    """The compiler itself, by what its files hold."""
    folders: Iterable[Path] = (Path(__file__).parents[1], *(resource(kind) for kind in ("kernels", "templates")))
    return _hash_text([VERSION, *(_file_contents(folder) for folder in folders)])


def _hash_text(what: object) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]
