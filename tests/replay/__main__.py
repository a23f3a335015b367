"""Compile a corpus with two commits and compare what they write, byte for byte: ``make replay BASE=COMMIT``.

    python -m tests.replay [BASE] [--cases COUNT] [--minutes M] [--jobs N] [--show REGEX] [--renaming]

BASE (default: HEAD) is compared with the working tree. Every emitted file, what is printed on stderr, and the exit status count; versions,
comments in C, and the words of ``renamed.toml`` do not. Of a refusal, the error is what is compared. Results of BASE are kept in
``build/replay``. With ``--renaming``, only C and what is printed count, and identifiers may differ one to one. Exit status: 0 where all
is equal, 1 where a case differs.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeploy.jobs import in_order, workers
from deeploy.resources import write_whole
from tests.replay import corpus
from tests.replay.corpus import ROOT, Case
from tests.replay.worker import INTERNAL

KEPT = ROOT / "build" / "replay"
WORKER = Path(__file__).with_name("worker.py")
RENAMED = Path(__file__).with_name("renamed.toml")
SAMPLE = 600  # cases
SECONDS = 30  # of a processor that BASE may take for a case; the working tree may take three times as long
BASES = 3  # whose results are kept
EXCERPTS, LINES = 3, 20  # cases whose difference is shown at once, and lines of it
DIED = "over the time limit, or killed"
Answer = dict[str, Any]  # status and files: see worker.py


@dataclass
class Compiler:
    """The processes that compile with the sources in ``root``."""

    root: Path
    store: Path
    scratch: Path
    idle: list[subprocess.Popen[str]] = field(default_factory=list)

    def _started(self) -> subprocess.Popen[str]:
        folders = self.store, self.root / "examples" / "targets", Path(tempfile.mkdtemp(dir=self.scratch))
        command, pipe = [sys.executable, "-PWignore", WORKER, *folders], subprocess.PIPE
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, start_new_session=True)

    def __call__(self, model: Path, arguments: Sequence[str], seconds: float) -> Answer:
        try:
            worker = self.idle.pop()
        except IndexError:
            worker = self._started()
        print(json.dumps([str(model), arguments, seconds]), file=worker.stdin, flush=True)
        if line := worker.stdout.readline():
            self.idle.append(worker)
            return json.loads(line)
        worker.wait()
        return {"status": DIED, "files": {}}


class Replay:
    """The corpus, compiled with two trees.

    Args:
        base: the sources of BASE; ``kept`` is the folder of its results.
        words: what the working tree calls words of BASE.
        deadline: of the clock, after which no case is begun.
    """

    def __init__(
        self, base: Path, tree: Path, kept: Path, scratch: Path, words: dict[str, str], deadline: float = math.inf, renaming: bool = False
    ) -> None:
        self.kept, self.store, self.words, self.deadline = kept, kept / "files", words, deadline
        self.renaming = renaming
        self.store.mkdir(parents=True, exist_ok=True)
        self.base, self.tree = Compiler(base, self.store, scratch), Compiler(tree, self.store, scratch)
        self._preparing = threading.Lock()

    def __call__(self, case: Case) -> list[Answer]:
        """The answers of both trees; none where there is no such model, or the time is over."""
        if time.monotonic() > self.deadline:
            return []
        with self._preparing:
            prepared = case.prepared(self.kept / "models")
        if prepared is None:
            return []
        key = repr((WORKER.read_text(), prepared[1], prepared[0].read_bytes()))
        place = self.kept / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
        if not place.exists():
            with write_whole(place) as fresh:
                fresh.write_text(json.dumps(self.base(*prepared, SECONDS)))
        base = json.loads(place.read_text())
        return [base, base if base["status"] == DIED else self.tree(*prepared, 3 * SECONDS)]

    def sides(self, name: str, answers: Sequence[Answer]) -> list[str]:
        """A file: what BASE has, in the words of the working tree, and what the working tree has."""
        paths = [self.store / answer["files"].get(name, name) for answer in answers]
        texts = [zlib.decompress(path.read_bytes()).decode(errors="backslashreplace") if path.exists() else "" for path in paths]
        return [re.sub(r"[A-Za-z_]\w*", lambda word: self.words.get(word[0], word[0]), texts[0]), texts[1]]

    def differences(self, answers: Sequence[Answer]) -> list[str]:
        """The files in which two answers differ; one that is empty is as good as none."""
        one, two = (answer["files"] for answer in answers)
        names = [name for name in one.keys() | two.keys() if one.get(name) != two.get(name)]
        if self.renaming:
            return sorted(name for name in names if name.endswith((".c", ".h", "stderr")) and not is_renamed(*self.sides(name, answers)))
        return sorted((name for name in names if len({*self.sides(name, answers)}) > 1), key=lambda name: (name != "stderr", name))

    def lines(self, name: str, answers: Sequence[Answer]) -> list[str]:
        """The lines of a file that differ; of each, what fits a screen."""
        one, two = (text.splitlines() for text in self.sides(name, answers))
        return [f"    {line[:200]}" for line in difflib.unified_diff(one, two, f"BASE/{name}", name, lineterm="")]

    def run(self, cases: Sequence[Case], most: int | None = LINES) -> tuple[int, str]:
        """Compile, compare, and print what differs, ``most`` lines of each of the first cases: how many differ, and a summary."""
        count, differing, broken = 0, 0, 0
        with closing(in_order(self, cases, threads=True)) as found:
            try:
                for case, answers in zip(cases, found, strict=True):
                    if not answers:
                        continue
                    states = [answer["status"] for answer in answers]
                    names = self.differences(answers)
                    is_broken = bool({INTERNAL, DIED} & {*states})
                    count, differing, broken = count + 1, differing + bool(names), broken + is_broken
                    if names or is_broken:
                        print(f"{case.name}: {' became '.join(dict.fromkeys(states))}; {len(names)} files differ: {', '.join(names[:4])}")
                    for line in [line for name in names for line in self.lines(name, answers)][:most] if differing <= EXCERPTS else ():
                        print(line, flush=True)
            finally:
                found.close()
                for worker in self.base.idle + self.tree.idle:
                    worker.kill()
                    worker.wait()
        state = f"{differing} of {count} cases differ" if differing else f"equal, {count} cases"
        return differing, f"replay: {state}" + f", {broken} with internal errors or over the time limit" * bool(broken)


def is_renamed(one: str, two: str) -> bool:
    """Whether two texts of C are the same but for identifiers, of which each stands for one of the other text."""
    words = [re.findall(r'"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|[\w.]+|\S', text) for text in (one, two)]
    there: dict[str, str] = {}
    back: dict[str, str] = {}
    for a, b in zip(*words, strict=False):
        if a != b and not (re.match(r'[A-Za-z_"]', a) and re.match(r'[A-Za-z_"]', b)):
            return False
        if there.setdefault(a, b) != b or back.setdefault(b, a) != a:
            return False
    return len(words[0]) == len(words[1])


def output_of(*command: str) -> bytes:
    """What a command on the repository prints."""
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


def main() -> int:
    """The command."""
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", nargs="?", default="HEAD", help="the commit that the working tree is compared with")
    parser.add_argument("--cases", type=int, default=SAMPLE, help="how many; 0: all")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no case is begun")
    parser.add_argument("--show", default="", help="only cases whose name matches; whole differences")
    parser.add_argument("--renaming", action="store_true", help="C alone counts, and identifiers may differ one to one")
    parser.add_argument("--jobs", type=int, default=None, help="cases at once; default: one for each core")
    given = parser.parse_args()
    commit = output_of("git", "rev-parse", "--verify", f"{given.base}^{{commit}}").decode().strip()
    kept = KEPT / commit
    kept.mkdir(parents=True, exist_ok=True)
    os.utime(kept)
    for old in sorted(KEPT.iterdir(), key=lambda path: -path.stat().st_mtime)[BASES:]:
        shutil.rmtree(old)
    cases = [case for case in corpus.cases() if re.search(given.show, case.name)]
    with tempfile.TemporaryDirectory(prefix="deeploy-replay-") as scratch:
        base = Path(scratch) / "base"
        base.mkdir()
        subprocess.run(["tar", "-x"], cwd=base, input=output_of("git", "archive", commit), check=True)
        words = tomllib.loads(RENAMED.read_text())["words"]
        replay = Replay(base, ROOT, kept, Path(scratch), words, begin + 60 * given.minutes, given.renaming)
        with workers(given.jobs):
            differing, summary = replay.run(cases[: given.cases or None], None if given.show else LINES)
    print(summary, time.strftime("%Mm%S", time.gmtime(time.monotonic() - begin)), sep=", ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
