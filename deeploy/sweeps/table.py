"""The table of a sweep: its rows beside those of another one, as CSV, JSON and Parquet, and as a page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from deeploy.documents import Contents, Document, read_document
from deeploy.report.page import POLICY, STYLE
from deeploy.sweeps.cell import FIGURES
from deeploy.version import VERSION

TABLE = "table.json"


def compare_rows(rows: Sequence[Contents], base: Path, axes: Sequence[str]) -> list[Contents]:
    """The rows with the status that each has in the table of another sweep, and by how much its figures are larger now.

    Rows are the same where their columns of ``axes`` are, as far as both tables have these; of several such rows none is.

    Raises:
        UsageError: the folder holds no sweep.
    """
    before = read_document(base / TABLE, TABLE)["rows"]
    common = [axis for axis in axes if before and axis in before[0]]
    known: dict[tuple[object, ...], Document | None] = {}
    for row in before:
        key = tuple(row[axis] for axis in common)
        known[key] = None if key in known else row
    columns = []
    for row in rows:
        old = known.get(tuple(row[axis] for axis in common)) or {}
        changes = {f"{name}_change": _relative_change(row[name], old.get(name)) for name in FIGURES}
        columns.append({**row, "status_before": old.get("status"), **changes})
    return columns


def _relative_change(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else round(now - before, 9)


def table_files(rows: Sequence[Contents], axes: Sequence[str]) -> Mapping[str, bytes]:
    """The files of a table, by their names; Parquet where pyarrow is installed."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    files = {TABLE: f'{{"generator": "deeploy", "version": "{VERSION}", "rows": [\n{lines}\n]}}\n'.encode()}
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files |= {"table.csv": text.getvalue().encode(), "sweep.html": table_page(rows, axes).encode()}
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return files
    data = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), data)
    return {**files, "table.parquet": data.getvalue()}


def table_page(rows: Sequence[Contents], axes: Sequence[str]) -> str:
    """A page with filters, a picture of two columns with its Pareto front, and the table; it reads no file and no network."""
    template = (files("deeploy") / "sweeps/assets/sweep.html").read_text(encoding="utf-8")
    columns = list(rows[0])
    data = {"axes": list(axes), "columns": columns, "rows": [[row[name] for name in columns] for row in rows]}
    shown = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return template.replace("POLICY", POLICY, 1).replace("STYLE", STYLE, 1).replace('"DATA"', shown, 1)
