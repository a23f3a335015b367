"""Seeded defects: what the tests that ``make test`` runs still find.

    python -m tests.defects [--part REGEX] [--name REGEX] [--draw SEED|all]

Each defect of ``defects.toml`` is one change of one source. It is made in a copy of the tree, whose tests named beside it run in the
selection of ``make test`` (``--draw``: with another sample of large matrices, or with all of their cases) until one fails. A failure
counts where the same test passes without the defect. Exit status: 0; 1 where a defect survives or a test fails without it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".toml")
SECONDS = 900.0  # after which a test counts as one that does not end
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?::.*?|\S+)(?: - .*)?$", re.MULTILINE)
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "dist", "__pycache__", ".*_cache", ".hypothesis")

Fate = Literal["killed", "survived", "fails without it"]


@dataclass(frozen=True)
class Defect:
    """One change of one source: ``old``, which is there once, becomes ``new``; ``tests`` have to notice."""

    name: str
    part: str
    file: str
    old: str
    new: str
    tests: Sequence[str]

    def applied(self, text: str) -> str:
        """The source with the defect."""
        assert text.count(self.old) == 1, f"{self.name}: {self.file} has {text.count(self.old)} places of:\n{self.old}"
        return text.replace(self.old, self.new)


def every(path: Path = LIST) -> list[Defect]:
    """The defects of a list."""
    return [Defect(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["defect"]]


class Tree:
    """A copy of the repository, in which tests run."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.root = folder / "tree"
        shutil.copytree(root, self.root, ignore=_LEFT_OUT, symlinks=True)
        shared = root.parent / "shared"
        if shared.is_dir():
            (folder / "shared").symlink_to(shared)
        self._moment = time.time()

    def _write(self, path: Path, text: str) -> None:
        """Every text has a time of its own, by which Python knows whether what it compiled is of this one."""
        path.write_text(text, encoding="utf-8")
        self._moment += 2
        os.utime(path, (self._moment, self._moment))

    @contextmanager
    def having(self, defect: Defect) -> Iterator[None]:
        """With the defect, for a while."""
        path = self.root / defect.file
        text = path.read_text(encoding="utf-8")
        self._write(path, defect.applied(text))
        try:
            yield
        finally:
            self._write(path, text)

    def failing(self, tests: Sequence[str], options: Sequence[str] = ()) -> str | None:
        """The first test that fails; ``""`` where pytest itself does or does not end, None where all pass."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options, *tests]
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        try:
            done = subprocess.run(
                command,
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ""
        if done.returncode == 0:
            return None
        found = _FAILED.search(done.stdout)
        return found[1] if found is not None else ""


def judge(tree: Tree, defect: Defect, draw: str = "0") -> tuple[Fate, str]:
    """What becomes of a defect, and the test that noticed."""
    with tree.having(defect):
        noticed = tree.failing(defect.tests, ["-m", "not slow and not gvsoc", "--draw", draw])
    if noticed is None:
        return "survived", ""
    fails_anyway = tree.failing([noticed] if noticed else defect.tests, ["--draw", "all"]) is not None
    return ("fails without it" if fails_anyway else "killed"), noticed


def summary(fates: Mapping[str, Sequence[Fate]]) -> str:
    """By part, and in all."""
    lines = ["| part | defects | killed |", "|---|---|---|"]
    lines += [f"| {part} | {len(found)} | {found.count('killed')} |" for part, found in fates.items()]
    total = [fate for found in fates.values() for fate in found]
    return "\n".join([*lines, f"| all | {len(total)} | {total.count('killed')} |"])


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.defects", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", default="", help="only parts that match this regular expression")
    parser.add_argument("--name", default="", help="only defects whose name matches this regular expression")
    parser.add_argument("--draw", default="0", help="the sample of large matrices of tests; all: every case")
    given = parser.parse_args(words)
    chosen = [defect for defect in every() if re.search(given.part, defect.part) and re.search(given.name, defect.name)]
    fates: dict[str, list[Fate]] = {}
    with tempfile.TemporaryDirectory(prefix="deeploy-defects-") as scratch:
        tree = Tree(Path(scratch))
        for defect in chosen:
            fate, noticed = judge(tree, defect, given.draw)
            fates.setdefault(defect.part, []).append(fate)
            print(f"{fate}: {defect.part}: {defect.name}{f' ({noticed})' if noticed else ''}", flush=True)
    print(summary(fates))
    return int(any(fate != "killed" for found in fates.values() for fate in found))


if __name__ == "__main__":
    sys.exit(main())
