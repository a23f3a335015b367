"""What every measurement uses: its tables as they are printed and recorded, files of results, tables inside of pages, times.

A file of results is JSON with the name and options of the measurement, when it ended, the machine, the versions, the commit, and
``results``: what the measurement recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import io
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from deeploy.execution.runners import gvsoc

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT.parent / "shared" / "models"
PACKAGES = ("deeploy-compiler", "numpy", "onnx", "onnx-graphsurgeon", "onnxruntime", "ortools", "emx-onnx-cgen")
COMPILERS = ("gcc", "riscv64-unknown-elf-gcc", "arm-none-eabi-gcc")
END = "<!-- end -->\n"
_recorded: dict[str, Any] = {}  # by the measurement that runs in this process


def cpu() -> str:
    """The processor's name as the kernel knows it."""
    info = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return match[1] if match else platform.processor() or "unknown"


def first_line(*command: str | Path) -> str:
    """The first line that a program prints; nothing where it is not installed or prints nothing."""
    if shutil.which(command[0]) is None:
        return ""
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().splitlines()
    return lines[0] if lines else ""


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def versions() -> dict[str, str]:
    """The versions of what a figure can depend on, by name: Python, its packages, compilers, the simulator; only what is installed."""
    simulator = os.environ.get("GVSOC") or shutil.which("gvsoc")
    found = {"python": sys.version.split()[0], **{name: version(name) for name in PACKAGES}}
    found |= {name: first_line(name, "--version") for name in COMPILERS}
    found["gvsoc"] = ((simulator and gvsoc.simulator_revision(simulator)) or "")[:7]
    return {name: text for name, text in found.items() if text}


def describe_run() -> dict[str, Any]:
    """What figures depend on beside the measurement: machine, versions, commit."""
    return {
        "machine": f"{cpu()}, {os.cpu_count()} CPUs, {platform.machine()}, {platform.system()} {platform.release()}",
        "versions": versions(),
        "commit": first_line("git", "-C", ROOT, "rev-parse", "--short", "HEAD"),
    }


def record(**results: Any) -> None:
    """Add what was measured to the results of this run, by name."""
    _recorded.update(results)


def recorded() -> dict[str, Any]:
    """What was recorded in this run."""
    return _recorded


class Table:
    """A table that is printed row by row while it is measured; the rows are recorded by the first of its heads.

    Args:
        layout: of a row, for ``str.format``.
    """

    def __init__(self, layout: str, *heads: str) -> None:
        self.layout, self.heads = layout, heads
        self.rows: list[dict[str, Any]] = []
        record(**{heads[0]: self.rows})
        print(layout.format(*heads), flush=True)

    def add(self, *cells: Any, note: str = "") -> None:
        """Print and record a row; ``note`` stands behind it."""
        self.rows.append({**dict(zip(self.heads, cells, strict=True)), **({"note": note.strip()} if note else {})})
        print(self.layout.format(*cells) + note, flush=True)


def write_results(path: Path, results: Mapping[str, Any], **about: Any) -> None:
    """Write a file of results; ``about`` stands in front of machine, versions and commit."""
    ended = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**about, "date": ended, **describe_run(), "results": results}, indent=1, default=str) + "\n")


def read_results(path: Path) -> Any:
    """What a measurement recorded in a file of results."""
    return json.loads(path.read_text())["results"]


@dataclass(frozen=True)
class Page:
    """Results that stay in benchmarks/NAME.json, and benchmarks/NAME.md, which is written from them alone.

    Attributes:
        text: the page of a file of results.
    """

    name: str
    text: Callable[[Any], str]

    @property
    def file(self) -> Path:
        return ROOT / "benchmarks" / f"{self.name}.json"

    @property
    def path(self) -> Path:
        return self.file.with_suffix(".md")

    def parser(self, about: str | None) -> argparse.ArgumentParser:
        """A parser with the options of all such measurements."""
        parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
        parser.add_argument("--gvsoc", action="store_true", help="simulate as well")
        parser.add_argument("--write", action="store_true", help=f"keep the results in {self.file.name} and write {self.path.name}")
        parser.add_argument("--page", action="store_true", help=f"only write {self.path.name}, from the results that were kept")
        return parser

    def read(self) -> Any:
        """The results that were kept; empty where there are none."""
        return read_results(self.file) if self.file.exists() else {}

    def write(self, results: Mapping[str, Any] | None = None) -> int:
        """Keep results, where there are any, and write the page; the exit status."""
        if results is not None:
            write_results(self.file, results, name=self.name)
        self.path.write_text(self.text(json.loads(self.file.read_text())))
        return 0


class Copied(io.TextIOBase):
    """A stream of text whose text is also kept."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.text = stream, io.StringIO()

    def write(self, text: str) -> int:
        self.text.write(text)
        return self.stream.write(text)

    def flush(self) -> None:
        self.stream.flush()


@contextlib.contextmanager
def copied_into(page: Path, name: str, is_written: bool) -> Iterator[None]:
    """Where ``is_written``, what is printed within goes into a page as well, at the place of ``name``, with the commit that printed it."""
    printed = Copied(sys.stdout)
    with contextlib.redirect_stdout(printed):
        yield
    if is_written:
        commit = first_line("git", "-C", ROOT, "rev-parse", "--short", "HEAD")
        replace_table(page, name, ["", *printed.text.getvalue().strip().splitlines(), "", f"Commit {commit}.", ""])


def replace_table(page: Path, name: str, lines: Sequence[str]) -> None:
    """Put the table of the measurement ``name`` into a page, between its mark and the next end.

    Raises:
        SystemExit: the page has no such mark.
    """
    before, mark, rest = page.read_text().partition(f"<!-- bench:{name} -->\n")
    if not mark:
        raise SystemExit(f"{page} has no place for the table of {name}")
    page.write_text(before + mark + "\n".join(lines) + "\n" + END + rest.partition(END)[2])


def read_table(page: Path, name: str) -> list[tuple[str, ...]]:
    """The rows of the table of the measurement ``name`` in a page, without its heads."""
    lines = page.read_text().partition(f"<!-- bench:{name} -->\n")[2].partition(END)[0].splitlines()[2:]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def median_seconds(function: Callable[[], object], repeats: int, warm_up: int = 0) -> float:
    """Median wall time of ``repeats`` calls, in seconds, after ``warm_up`` calls that do not count."""
    for _ in range(warm_up):
        function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


def filled(lines: Sequence[str]) -> str:
    """Lines of a page as its text: those of a paragraph, or of an entry of a list, are filled."""
    found, paragraph, is_code = list[str](), list[str](), False

    def end() -> None:
        if paragraph:
            indent = "  " if paragraph[0].startswith("* ") else ""
            text = " ".join(line.strip() for line in paragraph)
            found.extend(textwrap.wrap(text, 160, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
            paragraph.clear()

    for line in lines:
        is_plain = bool(line) and not line.startswith(("|", "#", "```")) and not is_code
        if not is_plain or line.startswith("* "):
            end()
        is_code ^= line.startswith("```")
        (paragraph if is_plain else found).append(line)
    end()
    return "\n".join(found)
