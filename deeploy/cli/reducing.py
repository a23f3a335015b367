"""The command ``reduce``: a small model that fails as a large one does."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated

import typer

from deeploy.cli.options import JsonOption, Model, print_result
from deeploy.errors import UsageError, shorten
from deeploy.report.progress import Progress

app = typer.Typer()


@app.command(no_args_is_help=True)
def reduce(
    model: Model,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND ...", help="A command that fails; {} is the model's path.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The small ONNX file to write.", show_default=False)],
    status: Annotated[int | None, typer.Option("--status", metavar="N", help="Look for any failure with this exit status.")] = None,
    match: Annotated[
        str | None, typer.Option("--match", metavar="REGEX", help="Look for any failure whose standard error matches.")
    ] = None,
    tries: Annotated[int, typer.Option("--tries", metavar="N", min=1, help="Models to try at most.")] = 1000,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="N", help="Stop after so long; default: when nothing more goes.")
    ] = None,
    limit: Annotated[float, typer.Option("--time-limit", metavar="SECONDS", help="A command that takes longer hangs.")] = 300,
    as_json: JsonOption = False,
) -> None:
    """Shrink a model that makes a command fail, without its weights and names where they do not matter, to report it.

    By default the failure is the same when the exit status is, and the last error but for names and numbers. Ctrl-C keeps the best so far.
    """
    from deeploy.execution.verification.reduce import command_of
    from deeploy.execution.verification.reduce import reduce_model as run

    for option, value in {"--minutes": minutes, "--time-limit": limit}.items():
        if value is not None and not (0 < value < math.inf):
            raise UsageError(f"{option} {value:g} is not a positive number", f"For example: {option} 10")
    try:
        re.compile(match or "")
    except re.error as error:
        raise UsageError(f"--match {shorten(match or '')}: {error}", "Give a regular expression of Python.") from error
    with Progress() as progress:
        reduction = run(
            model, output, command_of(command, model, limit), status=status, match=match, tries=tries, minutes=minutes, say=progress
        )
    sizes = {"nodes": reduction.nodes, "bytes": reduction.bytes, "tries": reduction.tries}
    contents = {"output": str(output), **sizes, "status": reduction.failure.status, "error": reduction.failure.signature}
    told = (
        f"{reduction.nodes[0]} nodes and {reduction.bytes[0]} bytes became {reduction.nodes[1]} and {reduction.bytes[1]} "
        f"in {reduction.tries} tries\nwrote {output}"
    )
    print_result(contents, as_json, told, indent=None)
