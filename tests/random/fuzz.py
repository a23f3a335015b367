"""Random graphs, memories, nodes and damaged files for as long as one wants: ``python -m tests.random.fuzz KIND --seeds FIRST:END``.

Every seed is one case. What became of it is a line of a log: a range that was interrupted goes on where it stopped, and ranges add up.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from deeploy.jobs import in_order, workers
from tests.random.pool import SECONDS, attempt, worker_of

ATTEMPTS = 120  # to make a failing case smaller


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("graphs", "quick", "windows", "machines", "memories", "files", "nodes", "fallback"))
    parser.add_argument("--seeds", default="0:1000", help="FIRST:END of the range; END itself is not in it")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so many")
    parser.add_argument("--output", type=Path, default=Path("build/fuzz"), help="folder of logs and failures")
    parser.add_argument("--again", action="store_true", help="also what the log has already")
    parser.add_argument("--failed", action="store_true", help="only what failed before")
    parser.add_argument("--jobs", type=int, default=None, help="cases at once; default: one for each core")
    given = parser.parse_args()
    first, _, end = given.seeds.partition(":")
    seeds = range(int(first), int(end))
    log = Log(given.output / f"{given.kind}.jsonl")
    waiting = [s for s in seeds if given.again or s not in log.entries]
    if given.failed:
        waiting = [s for s in seeds if log.entries.get(s, {}).get("kind") == "failed"]
    with workers(given.jobs):
        run(given.kind, waiting, log, given.output, given.minutes)
    print(summary(given.kind, seeds, log.entries))
    return int(any(log.entries[s]["kind"] == "failed" for s in seeds if s in log.entries))


class Log:
    """Results by seed, in a file with one line for each; of several lines the last one counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[int, dict[str, Any]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self.entries[entry["seed"]] = entry

    def add(self, entry: dict[str, Any]) -> None:
        self.entries[entry["seed"]] = entry
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def run(kind: str, seeds: Iterable[int], log: Log, output: Path, minutes: float | None) -> None:
    """Run seeds, each a task of ``deeploy.jobs``, and log them in their order; the first failure of each sort is made smaller and saved."""
    waiting = list(seeds)
    known = {entry["reason"] for entry in log.entries.values() if entry["kind"] == "failed"}
    stop = None if minutes is None else time.monotonic() + 60 * minutes
    saver = worker_of(kind)
    with closing(in_order(attempt, [(kind, seed) for seed in waiting], bounded=False)) as results:
        for seed in waiting:
            if stop is not None and time.monotonic() > stop:
                break
            entry = next(results)
            log.add(entry)
            if entry["kind"] == "failed":
                place = output / kind / str(seed)
                print(f"{kind} seed {seed}: {entry['reason']}\n  saved in {place}", flush=True)
                died = entry["detail"] == entry["reason"]
                attempts = 0 if died or entry["reason"] in known else ATTEMPTS
                saver({"seed": seed, "save": str(place), "attempts": attempts, "reason": entry["reason"]}, SECONDS * 5)
                known.add(entry["reason"])
    saver.stop()


def summary(kind: str, seeds: range, entries: dict[int, dict[str, Any]]) -> str:
    """What became of the seeds of a range, and why what was refused was refused."""
    found = [entries[s] for s in seeds if s in entries]
    counts = Counter(entry["kind"] for entry in found)
    lines = [
        f"{kind}, seeds {seeds.start}:{seeds.stop}: {len(found)} of {len(seeds)} run; "
        + ", ".join(f"{n} {k}" for k, n in counts.most_common())
    ]
    compared = Counter(name for entry in found for name in entry.get("compared", ()))
    if compared:
        lines.append("compared with: " + ", ".join(f"{name} {n}" for name, n in compared.most_common()))
    for label, kinds in (("refused", ("refused", "partly")), ("failed", ("failed",))):
        reasons = Counter(r for entry in found if entry["kind"] in kinds for r in entry.get("reasons") or [entry["reason"]])
        lines += [f"{label}, by reason:"] * bool(reasons) + [f"  {n:5d}  {reason}" for reason, n in reasons.most_common(60)]
    failed = [str(entry["seed"]) for entry in found if entry["kind"] == "failed"]
    return "\n".join(lines + ([f"failed seeds: {' '.join(failed)}"] if failed else []))


if __name__ == "__main__":
    sys.exit(main())
