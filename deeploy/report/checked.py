"""What ``deeploy target check`` prints: a table, coloured on a terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from deeploy.documents import Document

_STYLES = {"ok": "green", "failed": "bold red", "note": "yellow"}


def print_findings(contents: Document) -> None:
    """Print the findings (``deeploy.bringup.check.Findings.contents``) to standard output."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    table = Table(title=f"target {contents['target']}", title_justify="left", box=None, pad_edge=False)
    for head in ("part", "name", "", "variants", "cases", "finding"):
        table.add_column(head, justify="right" if head in ("variants", "cases") else "left", overflow="fold", no_wrap=False)
    for row in contents["rows"]:
        status = f"[{_STYLES[row['status']]}]{row['status']}[/]"
        table.add_row(row["part"], row["name"], status, str(row["variants"] or ""), str(row["runs"] or ""), _escape_markup(row["finding"]))
    console.print(table)
    failed = sum(row["status"] == "failed" for row in contents["rows"])
    verdict = f"{failed} part{'s' * (failed != 1)} failed" if failed else "nothing failed"
    drawn = f"{contents['samples']} random nodes each, seed {contents['seed']}"
    console.print(
        f"{verdict}; {contents['kernels']} kernels, {contents['variants']} variants of their C, {contents['cases']} cases ({drawn})"
    )
    console.print("Every case was compared with its reference, bit for bit where it is of integers.")


def _escape_markup(text: str) -> str:
    """The text with what rich would read as markup escaped."""
    return text.replace("[", r"\[")
