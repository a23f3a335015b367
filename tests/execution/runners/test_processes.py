"""Programs of projects that are killed, stopped or hang: said so, in time, and nothing of them is left."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from deeploy.errors import BuildError
from deeploy.execution.runners.processes import require, run_program, run_together


def python(text: str) -> list[str]:
    return [sys.executable, "-c", f"import os, signal, sys, time\n{text}"]


@pytest.mark.parametrize(("name", "remedy"), [("SIGKILL", "Run it again"), ("SIGSEGV", "Report this"), ("SIGABRT", "Report this")])
def test_a_program_that_is_killed(name: str, remedy: str) -> None:
    with pytest.raises(BuildError, match=f"the program was killed by {name}\nlast words") as raised:
        run_program(python(f"print('last words', file=sys.stderr, flush=True); os.kill(os.getpid(), signal.{name})"))
    assert raised.value.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("text", "told"), [("time.sleep(60)", "within 1 seconds"), ("os.kill(os.getpid(), signal.SIGSTOP)", "stopped by a signal")]
)
def test_a_program_that_does_not_end(text: str, told: str) -> None:
    begin = time.monotonic()
    with pytest.raises(BuildError, match="did not end within") as raised:
        run_program(python(text), 1)
    assert time.monotonic() - begin < 30
    assert raised.value.what.endswith(told)


def test_what_a_program_prints_and_how_it_ends() -> None:
    done = run_program(python("print('out'); print('err', file=sys.stderr); sys.exit(3)"))
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_programs_that_run_together_end_together() -> None:
    """All that they print is kept; when one fails, the others are ended, and have no status."""
    first, second = run_together([python("print('a')"), python("print('b'); print('c', file=sys.stderr)")], 60)
    assert (first.returncode, first.stdout) == (0, "a\n")
    assert second.returncode == 0 and sorted(second.stdout) == sorted("b\nc\n")
    begin = time.monotonic()
    failed, ended = run_together([python("time.sleep(0.5); sys.exit(7)"), python("print('waits', flush=True); time.sleep(60)")], 60)
    assert time.monotonic() - begin < 30
    assert (failed.returncode, ended.returncode, ended.stdout) == (7, None, "waits\n")


def test_lines_are_told_as_they_are_printed_in_a_folder_of_ones_own(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "here").mkdir()
    (done,) = run_together([python("print(os.path.basename(os.getcwd())); print('end')")], 60, [tmp_path / "here"], told.append)
    assert told == ["here", "end"] and done.stdout == "here\nend\n"


def test_what_is_missing_is_named_with_its_package() -> None:
    require(("sh", "dash"))
    with pytest.raises(BuildError, match="no-such-tool is not installed") as raised:
        require(("sh", "dash"), ("no-such-tool", "its-package"), more=", or leave it")
    assert raised.value.remedy == "Install it (on Debian: apt-get install its-package), or leave it."
