"""Programs that are started on this machine: what they print as text, and how they end, in time or not."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deeploy.errors import BuildError

SECONDS = 3600.0  # after which a program of a project is taken for hanging, unless told otherwise
_BROKEN = "Report this with the model; the emitted C is the compiler's duty."


def run_program(command: Sequence[str], seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a program of a project to its end; what it started ends with it.

    Raises:
        BuildError: it does not end in time, since it was stopped or for another reason, or a signal ended it.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            stopped = "; it was stopped by a signal" if _is_stopped(process.pid) else ""
            raise BuildError(
                f"the program did not end within {seconds:g} seconds{stopped}", "Give it more with --time-limit, or fewer samples."
            ) from error
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode < 0:
        number = -process.returncode
        name = signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"
        told = "\n".join(["", *err.strip().splitlines()[:12]]) if err.strip() else ""
        remedy = _BROKEN if number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT) else "Run it again."
        raise BuildError(f"the program was killed by {name}{told}", remedy)
    return subprocess.CompletedProcess(list(command), process.returncode, out, err)


def _is_stopped(process: int) -> bool:
    """Whether a process waits to be continued, as far as the system says."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "tT"
