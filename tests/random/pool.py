"""One worker process that runs cases, started anew when a case kills it or takes too long."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SECONDS = 60  # that a case may take of a processor, or where that is not known, by the clock
PATIENCE = 10  # times as long by the clock, on a machine that does other things as well
MEMORY = 6 * 2**30  # bytes that a worker may have


class Worker:
    """Calls ``task`` with one argument after the other in a process of its own."""

    def __init__(self, task: Callable[[Any], Any], seconds: float = SECONDS, memory: int | None = None) -> None:
        self.task, self.seconds, self.memory = task, seconds, memory
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None
        self._spent = 0.0  # before the case that runs

    def __call__(self, argument: Any, seconds: float | None = None) -> Any:
        """The task's result; a string says what became of the process where there is none."""
        if self._process is None or self._pipe is None:
            self._start()
        assert self._pipe is not None and self._process is not None
        self._spent = _processor_seconds(self._process.pid) or 0.0
        self._pipe.send(argument)
        limit = self.seconds if seconds is None else seconds
        try:
            start = time.monotonic()
            while (used := time.monotonic() - start) < limit * PATIENCE:
                if self._pipe.poll(min(1.0, limit)):
                    return self._pipe.recv()
                spent = _processor_seconds(self._process.pid)
                if (used if spent is None else spent - self._spent) > limit:
                    break
            found = f"more than {limit:g} s"
        except EOFError:
            self._process.join(5)
            found = f"the process died with status {self._process.exitcode}"
        self.stop()
        return found

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_work, args=(self.task, other, self.memory), daemon=True)
        self._process.start()
        other.close()

    def stop(self) -> None:
        """End the process and what it has started; both are in a group of their own."""
        if self._process is not None and self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


def attempt(task: tuple[str, int]) -> dict[str, Any]:
    """What becomes of a seed of a kind."""
    kind, seed = task
    start = time.monotonic()
    found = worker_of(kind)({"seed": seed})
    entry = {"seed": seed, "kind": "failed", "reason": found, "detail": found} if isinstance(found, str) else found
    return {**entry, "seconds": round(time.monotonic() - start, 2)}


@cache
def worker_of(kind: str) -> Worker:
    """The process of this one in which cases of a kind run, so that one that kills it or takes too long is a result."""
    from tests.random import tasks

    return Worker(tasks.TASKS[kind], memory=MEMORY if kind in ("files", "nodes", "fallback") else None)  # sanitizers reserve more


def _processor_seconds(pid: int | None) -> float | None:
    """What a process and the children that it has waited for took of processors, where the system says so."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def _work(task: Callable[[Any], Any], pipe: Connection, memory: int | None) -> None:
    os.setpgid(0, 0)
    threading.Thread(target=_follow_parent, daemon=True).start()
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            argument = pipe.recv()
        except EOFError:
            return
        pipe.send(task(argument))


def _follow_parent() -> None:
    """End this process and what it has started when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)
