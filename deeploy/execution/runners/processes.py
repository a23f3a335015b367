"""Programs that are started on this machine: the tools that they need, how they are built, what they print, and how they end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from deeploy.errors import BuildError, DeeployError
from deeploy.execution.runners.objects import keep_objects

SECONDS = 3600.0  # after which a program of a project is taken for hanging, unless told otherwise
REPORT = "Report this with the model; the emitted C is the compiler's duty."
MORE_TIME = "Give it more with --time-limit, or fewer samples."
_TAIL = 12  # lines of what a program printed that are shown
_PAUSE = 0.05  # seconds that other programs have to end when one has failed


def require(*tools: tuple[str, str], more: str = "") -> None:
    """Raise BuildError unless every tool is installed; each comes with the Debian packages that bring it."""
    for tool, packages in tools:
        if shutil.which(tool) is None:
            raise BuildError(f"{tool} is not installed", f"Install it (on Debian: apt-get install {packages}){more}.")


def run_make(project: Path, options: Sequence[str], failure: Callable[[str, list[str]], DeeployError]) -> None:
    """Run make in a project, with objects of earlier builds.

    ``failure`` turns what make printed, and the command, into the error that is raised.
    """
    command = ["make", "-s", "-j2", "-C", str(project), *options]
    with keep_objects(project, options):
        done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8", errors="replace")
    if done.returncode:
        raise failure(done.stdout + done.stderr, command)


def last_lines(text: str) -> str:
    """The last lines of what a program printed."""
    return "\n".join(text.strip().splitlines()[-_TAIL:])


def first_lines(text: str) -> str:
    """The first lines of what a program printed."""
    return "\n".join(text.strip().splitlines()[:_TAIL])


@dataclass(frozen=True)
class Ended:
    """How a program ended; ``returncode`` is None where it was ended by us, ``is_stopped`` if it then waited to be continued."""

    returncode: int | None
    stdout: str
    stderr: str
    is_stopped: bool = False


def run_together(
    commands: Sequence[Sequence[str]],
    seconds: float,
    folders: Sequence[Path] | None = None,
    on_line: Callable[[str], None] | None = None,
    is_merged: bool = True,
) -> list[Ended]:
    """Run programs at the same time until all have ended, one has failed, or ``seconds`` are over; nothing that they started is left.

    Args:
        folders: the working directory of each.
        on_line: called with every line that one of them prints.
        is_merged: whether errors are part of ``stdout``.

    Raises:
        OSError: a program cannot be started.
    """
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(len(commands)))
        running: list[subprocess.Popen[str]] = []
        stack.callback(_end_processes, running)
        errors = [stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")) for _ in commands]
        for command, folder, error in zip(commands, folders or [Path()] * len(commands), errors, strict=True):
            running.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT if is_merged else error,
                    encoding="utf-8",
                    errors="replace",
                    start_new_session=True,
                )
            )
        readers = {pool.submit(_read_output, process, on_line): process for process in running}
        waiting, end = set(readers), time.monotonic() + seconds
        while waiting and (left := end - time.monotonic()) > 0:
            done, waiting = wait(waiting, left, FIRST_COMPLETED)
            if any(readers[reader].returncode for reader in done):
                _, waiting = wait(waiting, _PAUSE)
                break
        late = {readers[reader].pid: _is_stopped(readers[reader].pid) for reader in waiting}
        _end_processes(running)
        result = []
        for (reader, process), error in zip(readers.items(), errors, strict=True):
            text = reader.result()
            error.seek(0)
            status = None if process.pid in late else process.returncode
            result.append(Ended(status, text, error.read(), late.get(process.pid, False)))
        return result


def _read_output(process: subprocess.Popen[str], on_line: Callable[[str], None] | None) -> str:
    """What a process prints until it ends."""
    assert process.stdout is not None
    lines = []
    with process.stdout:
        for line in process.stdout:
            lines.append(line)
            if on_line is not None:
                on_line(line.rstrip())
    process.wait()
    return "".join(lines)


def _end_processes(running: Sequence[subprocess.Popen[str]]) -> None:
    """End what still runs or prints, with all that it started."""
    for process in running:
        if process.poll() is None or (process.stdout is not None and not process.stdout.closed):
            with contextlib.suppress(ProcessLookupError, PermissionError):  # as macOS says of processes that have ended
                os.killpg(process.pid, signal.SIGKILL)


def run_program(command: Sequence[str], seconds: float = SECONDS) -> Ended:
    """Run a program of a project to its end; what it started ends with it.

    Raises:
        BuildError: it does not end in time, since it was stopped or for another reason, or a signal ended it.
    """
    (done,) = run_together([command], seconds, is_merged=False)
    if done.returncode is None:
        stopped = "; it was stopped by a signal" if done.is_stopped else ""
        raise BuildError(f"the program did not end within {seconds:g} seconds{stopped}", MORE_TIME)
    if done.returncode < 0:
        number = -done.returncode
        name = signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"
        told = f"\n{first_lines(done.stderr)}" if done.stderr.strip() else ""
        remedy = REPORT if number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT) else "Run it again."
        raise BuildError(f"the program was killed by {name}{told}", remedy)
    return done


def _is_stopped(process: int) -> bool:
    """Whether a process waits to be continued, as far as the system says."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "tT"
