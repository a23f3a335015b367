"""The options that several commands have in common, as typer wants them declared."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from deeploy.documents import Document
from deeploy.errors import UsageError, make_printable
from deeploy.options import OptionField, Options, list_options


def complete_words(*choices: str) -> Any:
    """What a shell may complete an option with; these are not all the values that it takes."""
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def target_names(incomplete: str) -> list[str]:
    from deeploy.target import names

    return [name for name in names() if name.startswith(incomplete)]


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX, TFLite or .pt2 file.", show_default=False)]
Project = Annotated[Path, typer.Argument(metavar="OUT", help="A folder that deeploy compile wrote.", show_default=False)]


def _spell_option(option: OptionField) -> Any:
    """How typer shows and completes an option of a compilation."""
    spelling, words = option.spelling, option.choices or option.spelling.words
    return typer.Option(
        *(flag for flag in (option.flag, spelling.short) if flag),
        metavar=spelling.metavar or "|".join(option.choices) or None,
        help=spelling.help,
        min=spelling.least,
        autocompletion=target_names if option.field == "target" else complete_words(*words) if words else None,
    )


_SPELLED = {option.field: _spell_option(option) for option in list_options()}
DimOption = Annotated[list[str] | None, _SPELLED["dims"]]
PinOption = Annotated[list[str] | None, _SPELLED["pins"]]
SequenceOption = Annotated[
    bool, typer.Option("--sequence", help="Samples are steps of one sequence: states carry over from one to the next.")
]
SoundOption = Annotated[
    Path | None,
    typer.Option("--stream", metavar="FILE.wav", help="Run a project that streams on a recording, and draw its scores over time."),
]
HostfileOption = Annotated[Path | None, typer.Option("--hostfile", help="File of machines for --on mpi, in mpirun's format.")]
TimeOption = Annotated[
    float | None,
    typer.Option("--time-limit", help="Seconds after which a simulation is stopped, or a chip that does not answer counts as failed."),
]
InputsOption = Annotated[
    Path | None, typer.Option("--inputs", help="npz file with the inputs of one sample, or of several stacked on a new first axis.")
]
ExpectOption = Annotated[Path | None, typer.Option("--expect", help="npz file with the expected outputs.")]
ToleranceOption = Annotated[
    float | None,
    typer.Option("--tolerance", help="Largest absolute difference that counts as equal; default: depends on each output's type."),
]
SanitizeOption = Annotated[bool, typer.Option("--sanitize", help="Build with the address and undefined-behaviour sanitizers.")]
BoardOption = Annotated[
    str | None,
    typer.Option("--board", metavar="NAME|FOLDER", help="Board for --on board: one that comes with projects, or a folder with a board.mk."),
]
PortOption = Annotated[str | None, typer.Option("--port", help="Serial line of the board; found where only one board is plugged in.")]
NetworkOption = Annotated[str | None, typer.Option("--network", help="Network of the project to use; chipK selects a chip.")]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", metavar="N", help="Processes that work at the same time; default: one for each core.")
]
SchedulerOption = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Workers of a cluster instead: tcp://HOST:PORT of Dask, ray://HOST:PORT of Ray."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def _declare_option(option: OptionField) -> inspect.Parameter:
    """An option of a compilation as a parameter of a command."""
    kinds: dict[str, object] = {"pairs": list[str] | None, "switch": bool, "path": Path | None, "int": int | None, "float": float | None}
    kind = kinds.get(option.kind, str | None)
    default = None if option.kind == "pairs" else False if option.kind == "switch" else option.default
    annotation = Annotated[kind, _SPELLED[option.field]]  # type: ignore[valid-type]
    return inspect.Parameter(option.field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter ``options`` is spelled as the fields of ``Options``: typer reads them from the signature."""
    own = [_declare_option(option) for option in list_options()]
    given = inspect.signature(command, eval_str=True).parameters

    def called(**values: Any) -> None:
        command(options=Options(**{one.field: one.parse(values.pop(one.field)) for one in list_options()}), **values)

    spelled = [p.replace(kind=p.KEYWORD_ONLY) for name, p in given.items() if name != "options"]
    place = list(given).index("options")
    called.__signature__ = inspect.Signature([*spelled[:place], *own, *spelled[place:]])  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in (*spelled, *own)}
    called.__name__, called.__doc__ = command.__name__, command.__doc__
    return called


def check_tolerance(value: float | None) -> None:
    """Refuse a tolerance that is no number, or below 0."""
    if value is not None and not value >= 0:
        raise UsageError(f"--tolerance {value:g} is not a number from 0 on", "For example: --tolerance 0.001")


def print_text(text: str, *, to_errors: bool = False) -> None:
    """Print what may hold names and other texts of files."""
    print(make_printable(text), file=sys.stderr if to_errors else sys.stdout)


def print_result(contents: object, as_json: bool, text: str, indent: int | None = 1) -> None:
    """Print what a command found: JSON for scripts, or a text for people."""
    print_text(json.dumps(contents, indent=indent) if as_json else text)


def print_self_test(log: str, entry: Document, as_json: bool, unit: str = "cycles") -> None:
    """Print what a self-test said, beside the project's entry of the network, and leave with status 1 where something differs."""
    from deeploy.report.self_test import describe_log, read_log

    told = read_log(log, entry, unit)
    print_result(told, as_json, describe_log(told))
    if not told["passed"]:
        raise typer.Exit(1)
