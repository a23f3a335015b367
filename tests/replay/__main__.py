"""Compile a corpus with two commits and compare what they write, byte for byte: ``make replay BASE=COMMIT``.

    python -m tests.replay [BASE] [--cases COUNT|all] [--minutes M] [--show REGEX]

BASE (default: HEAD) is compared with the working tree. Every emitted file, what is printed on stderr, and the exit status count; versions,
comments in C, and the words of ``renamed.toml`` do not. Of a refusal, the error is what is compared. Results of BASE are kept in
``build/replay``. Exit status: 0 where all is equal, 1 where a case differs.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from deeploy.resources import put
from tests.replay import corpus
from tests.replay.corpus import ROOT, Case
from tests.replay.worker import INTERNAL

KEPT = ROOT / "build" / "replay"
WORKER = Path(__file__).with_name("worker.py")
RENAMED = Path(__file__).with_name("renamed.toml")
SAMPLE = "600"  # cases
WORKERS = 2  # processes that compile at the same time
SECONDS = 60  # of a processor that BASE may take for a case; the working tree may take three times as long
BASES = 3  # whose results are kept
EXCERPTS, LINES = 3, 20  # cases whose difference is shown at once, and lines of it
DIED = "over the time limit, or killed"
Answer = dict[str, Any]  # status and files: see worker.py


class Compiler:
    """The processes that compile with the sources in ``root``."""

    def __init__(self, root: Path, store: Path, scratch: Path) -> None:
        self.root, self.store, self.scratch = root, store, scratch
        self.idle: list[subprocess.Popen[str]] = []

    def _started(self) -> subprocess.Popen[str]:
        folders = self.store, self.root / "examples" / "targets", Path(tempfile.mkdtemp(dir=self.scratch))
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        return subprocess.Popen([sys.executable, "-P", WORKER, *folders], env=environment, start_new_session=True, **pipes)

    def __call__(self, model: Path, arguments: Sequence[str], seconds: float) -> Answer:
        try:
            worker = self.idle.pop()
        except IndexError:
            worker = self._started()
        assert worker.stdin is not None and worker.stdout is not None
        print(json.dumps([str(model), arguments, seconds]), file=worker.stdin, flush=True)
        if line := worker.stdout.readline():
            self.idle.append(worker)
            found: Answer = json.loads(line)
            return found
        worker.wait()
        return {"status": DIED, "files": {}}

    def stop(self) -> None:
        for worker in self.idle:
            worker.kill()
            worker.wait()


class Replay:
    """The corpus, compiled with two trees.

    Args:
        base: the sources of BASE; ``kept`` is the folder of its results.
        words: what the working tree calls words of BASE.
        deadline: of the clock, after which no case is begun.
    """

    def __init__(self, base: Path, tree: Path, kept: Path, scratch: Path, words: dict[str, str], deadline: float = math.inf) -> None:
        self.kept, self.store, self.words, self.deadline = kept, kept / "files", words, deadline
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
        place = self.kept / f"{digest_of(prepared[1], prepared[0].read_bytes())}.json"
        if not place.exists():
            with put(place) as fresh:
                fresh.write_text(json.dumps(self.base(*prepared, SECONDS)))
        return [json.loads(place.read_text()), self.tree(*prepared, 3 * SECONDS)]

    def sides(self, name: str, answers: Sequence[Answer]) -> list[list[str]]:
        """The lines of a file: what BASE has, in the words of the working tree, and what the working tree has."""
        paths = [self.store / answer["files"].get(name, name) for answer in answers]
        texts = [zlib.decompress(path.read_bytes()).decode(errors="backslashreplace") if path.exists() else "" for path in paths]
        texts[0] = re.sub(r"[A-Za-z_]\w*", lambda word: self.words.get(word[0], word[0]), texts[0])
        return [text.splitlines() for text in texts]

    def differences(self, answers: Sequence[Answer]) -> list[str]:
        """The files in which two answers differ, those that tell most first."""
        one, two = (answer["files"] for answer in answers)
        names = [name for name in one.keys() | two.keys() if one.get(name) != two.get(name)]
        names = [name for name in names if (name in one) != (name in two) or len({*map(tuple, self.sides(name, answers))}) > 1]
        return sorted(names, key=lambda name: (name not in ("stderr", "deploy.json"), not name.startswith("src/"), name))

    def print_difference(self, names: Sequence[str], answers: Sequence[Answer], most: int | None) -> None:
        """Print the first lines that differ; of each, what fits a screen."""
        lines = [line for name in names for line in difflib.unified_diff(*self.sides(name, answers), f"BASE/{name}", name, lineterm="")]
        print(*(f"    {line[:200]}\n" for line in lines[:most]), sep="", end="", flush=True)

    def run(self, cases: Sequence[Case], most: int | None = LINES) -> tuple[int, str]:
        """Compile, compare, and print what differs, ``most`` lines of each of the first cases: how many differ, and a summary."""
        count, differing, broken = 0, 0, 0
        with ThreadPoolExecutor(WORKERS) as pool:
            try:
                for case, answers in zip(cases, pool.map(self, cases), strict=True):
                    if not answers:
                        continue
                    states = [answer["status"] for answer in answers]
                    names = self.differences(answers) if states[0] != DIED else []
                    is_broken = not {INTERNAL, DIED}.isdisjoint(states)
                    count, differing, broken = count + 1, differing + bool(names), broken + is_broken
                    if names or is_broken:
                        print(f"{case.name}: {' became '.join(dict.fromkeys(states))}; {len(names)} files differ: {', '.join(names[:4])}")
                    if differing <= EXCERPTS:
                        self.print_difference(names, answers, most)
            finally:
                pool.shutdown(cancel_futures=True)
                self.base.stop()
                self.tree.stop()
        state = f"{differing} of {count} cases differ" if differing else f"equal, {count} cases"
        return differing, f"replay: {state}" + f", {broken} with internal errors or over the time limit" * bool(broken)


def digest_of(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def output_of(*command: str) -> bytes:
    """What a command on the repository prints."""
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


def main() -> int:
    """The command."""
    begin = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base", nargs="?", default="HEAD", help="the commit that the working tree is compared with")
    parser.add_argument("--cases", default=SAMPLE, help="how many, or all")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no case is begun")
    parser.add_argument("--show", default="", metavar="REGEX", help="only cases whose name matches; whole differences")
    given = parser.parse_args()
    commit = output_of("git", "rev-parse", "--verify", f"{given.base}^{{commit}}").decode().strip()
    kept = KEPT / f"{commit}-{digest_of(WORKER.read_text())[:8]}"
    kept.mkdir(parents=True, exist_ok=True)
    os.utime(kept)
    for old in sorted(KEPT.iterdir(), key=lambda path: -path.stat().st_mtime)[BASES:]:
        shutil.rmtree(old)
    cases = [case for case in corpus.cases() if re.search(given.show, case.name)]
    with tempfile.TemporaryDirectory(prefix="deeploy-replay-") as scratch:
        base = Path(scratch) / "base"
        base.mkdir()
        subprocess.run(["tar", "-x"], cwd=base, input=output_of("git", "archive", commit), check=True)
        replay = Replay(base, ROOT, kept, Path(scratch), tomllib.loads(RENAMED.read_text())["words"], begin + 60 * given.minutes)
        differing, summary = replay.run(cases[: None if given.cases == "all" else int(given.cases)], None if given.show else LINES)
    minutes, seconds = divmod(round(time.monotonic() - begin), 60)
    print(f"{summary}, {minutes}m{seconds:02}")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
