"""The command in this process: what a user runs, without the second in which a new interpreter imports the compiler.

What only a process of its own shows (signals, what is imported, recursion that ends it) starts one.
"""

from __future__ import annotations

import contextlib
import gc
import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from deeploy.cli import main


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """What the command sets for its whole process is as it was."""
    handlers, threshold = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}, gc.get_threshold()
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        gc.set_threshold(*threshold)


def deeploy_cli(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``deeploy ARGUMENTS``; what it raises beside SystemExit would be a traceback, and fails the test."""
    words = ["deeploy", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    folder = contextlib.nullcontext() if cwd is None else contextlib.chdir(cwd)
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    status: object = 0
    with _restored(), folder, patch.object(sys, "argv", words), streams[0], streams[1]:
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    assert isinstance(status, int), status
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())
