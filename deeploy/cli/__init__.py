"""The command line. Heavy packages are imported inside the commands, so that ``deeploy --help`` stays instant."""

from __future__ import annotations

import gc
import io
import signal
import sys
import warnings
from functools import cache
from typing import Annotated, Any

import typer

from deeploy.bringup import commands as bringup
from deeploy.cli import compiling, reducing, showing
from deeploy.cli import tools as beside
from deeploy.cli.options import print_text
from deeploy.errors import DeeployError, Stopped, shorten
from deeploy.version import VERSION

_STATUS = (
    "Exit status: 0 done, and equal where compared; 1 outputs differ; 2 wrong usage or a model that cannot be compiled; 3 it does not fit."
)

app = typer.Typer(
    help="Compile quantised ONNX networks to C for microcontrollers with scratchpad memories instead of caches.",
    epilog=_STATUS,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for commands in (compiling, showing, beside, reducing, bringup):
    app.add_typer(commands.app)


def _print_version(value: bool) -> None:
    if value:
        print_text(f"deeploy {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """``--debug`` is taken out of the arguments by ``main``, so that it works behind a command too."""


@cache
def build_command() -> Any:
    """All commands as typer reads them from the signatures of their functions, which takes as long as many a command does."""
    return typer.main.get_command(app)


def _stop_on_signal(number: int, _: object) -> None:
    raise Stopped(number)


def main() -> None:
    """Entry point: runs a command and turns errors into two lines on stderr and an exit status."""
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal's encoding does not have
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as a shell has it of what runs in the background
            signal.signal(number, _stop_on_signal)
    if "--debug" not in sys.argv:
        warnings.simplefilter("ignore")  # of Python: constants of a model may overflow; what users should know is a note
    gc.set_threshold(200_000)  # nearly all that a command makes lives until it ends
    try:
        build_command()(args=arguments, prog_name="deeploy")
    except DeeployError as error:
        if "--debug" in sys.argv:
            raise
        print_text(f"error: {error.what}\n{error.remedy}", to_errors=True)
        sys.exit(error.exit_status)
    except Stopped as error:
        print_text(f"stopped by {error.signal}", to_errors=True)
        raise
    except OSError as error:  # what the system refuses: a path that cannot be, a full disk, a program that cannot be started
        if "--debug" in sys.argv:
            raise
        path = f"{shorten(str(error.filename), 160)}: " if error.filename else ""
        remedy = "Check paths, permissions and disks; --debug shows what was attempted."
        print_text(f"error: {path}{error.strerror or error}\n{remedy}", to_errors=True)
        sys.exit(2)
