"""Tasks for the workers of ``deeploy.jobs``, which import them from here."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from deeploy.errors import UsageError


def square(number: int) -> int:
    """The square, after a time that is longer for smaller numbers."""
    time.sleep(0.02 * (number < 2))
    return number * number


def refuse_odd(number: int) -> int:
    """The number; odd ones are an error."""
    if number % 2:
        raise UsageError(f"{number} is odd", "Give another.")
    return number


def fill(number: int) -> int:
    """How many bytes were allocated."""
    return len(bytes(number))


def die(task: tuple[Path, int, int]) -> int:
    """A number, after as many deaths of the worker as the folder has not seen yet; every run leaves a file there."""
    folder, number, deaths = task
    runs = len(list(folder.glob(f"{number}.*")))
    (folder / f"{number}.{runs}").touch()
    if runs < deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def process(_: int) -> tuple[int, str]:
    """The process that runs the task, and how many threads it may have."""
    time.sleep(0.2)
    return os.getpid(), os.environ.get("OMP_NUM_THREADS", "")
