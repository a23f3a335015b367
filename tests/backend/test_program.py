"""Programs of projects that are killed, stopped or hang: said so, in time, and nothing of them is left."""

from __future__ import annotations

import sys
import time

import pytest

from deeploy.errors import BuildError
from deeploy.runners.processes import run_program


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
