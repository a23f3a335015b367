"""What every benchmark prints and measures with: the machine, the versions, and the median of repeated runs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT.parent / "shared" / "models"
PACKAGES = ("deeploy-compiler", "numpy", "onnx", "onnx-graphsurgeon", "onnxruntime", "ortools")


def cpu() -> str:
    """The processor's name as the kernel knows it."""
    info = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return match[1] if match else platform.processor() or "unknown"


def compiler() -> str:
    """First line of what the C compiler says of itself."""
    gcc = shutil.which("gcc")
    return subprocess.run([gcc, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0] if gcc else "no gcc"


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def print_machine() -> None:
    """Print what a figure depends on: machine, compiler, versions."""
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    print(f"machine   {platform.machine()}, {platform.system()} {platform.release()}, {os.cpu_count()} CPUs: {cpu()}")
    print(f"compiler  {compiler()}")
    print(f"python    {sys.version.split()[0]}; {', '.join(f'{package} {version(package)}' for package in PACKAGES)}")
    print(f"commit    {commit or 'unknown'}\n")


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
