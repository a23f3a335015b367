"""The options that several commands have in common, as typer wants them declared, and what they mean."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_type_hints

import typer

from deeploy.errors import UsageError, make_printable, shorten

if TYPE_CHECKING:
    from deeploy.driver.request import Cut, Request
    from deeploy.ir.target import Target

MOST_EXTENT, MOST_CHIPS, MOST_SECONDS = 2**31 - 1, 1024, 366 * 24 * 3600


def complete_words(*choices: str) -> Any:
    """What a shell may complete an option with; these are not all the values that it takes."""
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def target_names(incomplete: str) -> list[str]:
    from deeploy.target import names

    return [name for name in names() if name.startswith(incomplete)]


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX file.", show_default=False)]
Project = Annotated[Path, typer.Argument(metavar="OUT", help="A folder that deeploy compile wrote.", show_default=False)]
DimOption = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=VALUE", help="Value of a symbolic dimension; NETWORK:NAME=VALUE for one network.")
]
PinOption = Annotated[
    list[str] | None,
    typer.Option("--pin", metavar="NAME=VALUE", help="Make an input a constant: one number, or all elements separated by commas."),
]
SequenceOption = Annotated[
    bool, typer.Option("--sequence", help="Samples are steps of one sequence: states carry over from one to the next.")
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


@dataclass(frozen=True)
class Choices:
    """The options of every command that compiles, as they are given."""

    target: Annotated[
        str,
        typer.Option(
            "--target",
            "-t",
            help="Name of a target (see: deeploy targets), or a folder with a target.py, which is executed.",
            autocompletion=target_names,
        ),
    ] = "generic"
    inputs: Annotated[Path | None, typer.Option("--inputs", help="npz file with one sample, or several stacked on a new first axis.")] = (
        None
    )
    input_type: Annotated[
        list[str] | None, typer.Option("--input-type", metavar="NAME=TYPE", help="Element type of an input of a dialect graph.")
    ] = None
    dialect: Annotated[
        str | None,
        typer.Option(
            "--dialect",
            metavar="integer|standard",
            help="Whether the graph has integer or standard operators, if they do not tell.",
            autocompletion=complete_words("integer", "standard"),
        ),
    ] = None
    dim: DimOption = None
    pin: PinOption = None
    unroll: Annotated[
        int | None,
        typer.Option("--unroll", metavar="NODES", min=0, help="Unroll loops of the model that become at most this many nodes."),
    ] = None
    weight_bits: Annotated[
        int | None, typer.Option("--weight-bits", metavar="1..7", help="Pack weights whose values fit into this many bits.")
    ] = None
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="PAST=PRESENT", help="An input and an output that form one state, such as a KV cache."),
    ] = None
    context: Annotated[
        int | None, typer.Option("--context", metavar="ROWS", help="The most rows that states can hold (the context length).")
    ] = None
    quantised_io: Annotated[
        bool, typer.Option("--quantised-io", help="Use integer inputs and outputs: skip the conversions from and to float at the edges.")
    ] = False
    requantise: Annotated[
        str,
        typer.Option(
            "--requantise",
            metavar="exact|engine",
            help="exact: bit-exact. engine: faster, at most one step away from exact (docs/requantise.md).",
            autocompletion=complete_words("exact", "engine"),
        ),
    ] = "exact"
    l1: Annotated[str | None, typer.Option("--l1", metavar="SIZE", help="Limit of memory L1: bytes, or a size such as 64k or 1M.")] = None
    l2: Annotated[str | None, typer.Option("--l2", metavar="SIZE", help="Limit of memory L2.")] = None
    memory: Annotated[
        list[str] | None, typer.Option("--memory", metavar="NAME=SIZE", help="Limit of any memory; 0 keeps constants out of it.")
    ] = None
    flash: Annotated[str | None, typer.Option("--flash", metavar="SIZE", help="Limit of flash: code and constants together.")] = None
    ram: Annotated[str | None, typer.Option("--ram", metavar="SIZE", help="Limit of RAM: arena, variables and stack together.")] = None
    stack: Annotated[str | None, typer.Option("--stack", metavar="SIZE", help="Limit of the stack, along the deepest chain of calls.")] = (
        None
    )
    cores: Annotated[int | None, typer.Option("--cores", help="Number of cores to use.")] = None
    engines: Annotated[str | None, typer.Option("--engines", metavar="NAME[,NAME]", help="Engines that may run layers; default: all.")] = (
        None
    )
    buffering: Annotated[
        str,
        typer.Option(
            "--buffering",
            metavar="auto|double|single",
            help="double: fetch the next tile while one is computed; single: do not; auto: per layer.",
            autocompletion=complete_words("auto", "double", "single"),
        ),
    ] = "auto"
    default_memory: Annotated[
        str | None,
        typer.Option(
            "--default-memory", metavar="L2|L3", help="The memory in which constants are stored.", autocompletion=complete_words("L2", "L3")
        ),
    ] = None
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            metavar="cycles|ram|traffic|energy|edp",
            help="Minimise cycles, memory (ram: targets with one memory), bytes moved (traffic: docs/fusion.md), "
            "energy, or its product with time (docs/timing.md).",
            autocompletion=complete_words("cycles", "ram", "traffic", "energy", "edp"),
        ),
    ] = "cycles"
    no_certify: Annotated[bool, typer.Option("--no-certify", help="Do not compare the C with the graph (docs/trust.md).")] = False
    no_chains: Annotated[bool, typer.Option("--no-chains", help="Do not interleave the tiles of several layers (docs/fusion.md).")] = False
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix",
            metavar="NODE.engine=npu",
            help="Fix the engine, kernel, tile.DIM, buffering or after of a node, or the memory of a tensor.",
        ),
    ] = None
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Limit of the solver per problem, in deterministic seconds: equal on every machine.")
    ] = None
    package: Annotated[
        str | None,
        typer.Option(
            "--package",
            metavar="cmake|zephyr|platformio|arduino|esp-idf|makefile|single|cargo",
            help="Make the project a package for that as well (docs/firmware.md).",
            autocompletion=complete_words("cmake", "zephyr", "platformio", "arduino", "esp-idf", "makefile", "single", "cargo"),
        ),
    ] = None
    chips: Annotated[str | None, typer.Option("--chips", metavar="N|auto", help="Distribute the model over several chips.")] = None
    partition: Annotated[
        str,
        typer.Option(
            "--partition",
            metavar="tensor|pipeline",
            help="tensor: every layer over all chips. pipeline: consecutive layers on each chip.",
            autocompletion=complete_words("tensor", "pipeline"),
        ),
    ] = "tensor"
    balance: Annotated[
        str,
        typer.Option(
            "--balance",
            metavar="layers|vendor|profile|parameters|cycles",
            help="What is balanced between the stages of a pipeline.",
            autocompletion=complete_words("layers", "vendor", "profile", "parameters", "cycles"),
        ),
    ] = "cycles"
    topology: Annotated[Path | None, typer.Option("--topology", help="TOML file with the links between the chips (docs/chips.md).")] = None
    collective: Annotated[
        str | None,
        typer.Option(
            "--collective",
            metavar="auto|hierarchical|flat|ring|doubling",
            help="How partial sums are added up over chips, and tensors copied; default: as the topology says, or what is fastest.",
            autocompletion=complete_words("auto", "hierarchical", "flat", "ring", "doubling"),
        ),
    ] = None
    no_gathers: Annotated[
        bool, typer.Option("--no-gathers", help="Add partial sums up, also where putting inputs together or dividing rows would be faster.")
    ] = False
    timing: Annotated[Path | None, typer.Option("--timing", help="TOML file with the cycles of a board, from deeploy calibrate.")] = None
    mhz: Annotated[
        float | None,
        typer.Option("--mhz", metavar="N", help="Clock that converts cycles to times, of one chip or of all; default: the target's."),
    ] = None
    fallback: Annotated[bool, typer.Option("--fallback", help="Generate C for operators that have no kernel (docs/fallback.md).")] = False
    fallback_engine: Annotated[
        str | None,
        typer.Option("--fallback-engine", metavar="NAME", help="Engine that runs generated C; default: the first. Implies --fallback."),
    ] = None

    def request(self, save_after: tuple[str, Path] | None = None, on_stage: Callable[[str], None] | None = None) -> Request:
        """What is asked of the compiler.

        Raises:
            UsageError: the text of an option is not what it has to be.
        """
        from deeploy.driver.request import Request
        from deeploy.generation.generate import find_generators
        from deeploy.planning.planner.machine import Options, bytes_of

        if self.dialect not in (None, "integer", "standard"):
            raise UsageError(f"--dialect {self.dialect} is unknown", "Use --dialect integer or --dialect standard.")
        given, budgets = {"l1": self.l1, "l2": self.l2}, {"flash": self.flash, "ram": self.ram, "stack": self.stack}
        named = {level: bytes_of(size, f"--{level} ") for level, size in given.items() if size is not None}
        seconds_of(self.seconds, "--seconds")
        engines = None if self.engines is None else tuple(self.engines.split(","))
        machine = {"cores": self.cores, "engines": engines, "buffering": self.buffering, "default_memory": self.default_memory}
        machine["objective"] = self.objective
        machine["chains"] = not self.no_chains
        options: Any = {name: value for name, value in {**machine, "seconds": self.seconds}.items() if value is not None}
        return Request(
            inputs=self.inputs,
            input_types=parse_pairs(self.input_type, "--input-type"),
            dialect=cast(Any, self.dialect),
            dims=dims_of(self.dim),
            pins=pins_of(self.pin),
            **({} if self.unroll is None else {"unroll": self.unroll}),
            weight_bits=self.weight_bits,
            states=parse_pairs(self.state, "--state"),
            context=context_of(self.context),
            quantised_io=self.quantised_io,
            requantise=cast(Any, self.requantise),
            save_after=save_after,
            options=Options(named | capacities_of(self.memory), **options),
            fallback=self.fallback if self.fallback_engine is None else self.fallback_engine,
            on_stage=on_stage,
            additions=find_generators,
            package=cast(Any, self.package),
            budgets={name: bytes_of(size, f"--{name} ") for name, size in budgets.items() if size is not None},
            mhz=self.mhz,
            certify=not self.no_certify,
            fix=_fixes_of(self.fix),
        )

    def machine(self) -> Target:
        """The target, with the cycles of a board where they are given.

        Raises:
            DeeployError: there is no such target or file, or the cycles are of another machine.
        """
        from deeploy.driver.compile import load_target
        from deeploy.ir.target import load_timing

        target = load_target(self.target)
        if self.timing is None:
            return target
        timing = load_timing(self.timing)
        lacking = {path.name for path in target.paths} - set(timing.paths) | {engine.name for engine in target.engines} - set(timing.fork)
        if lacking:
            what = f"--timing {shorten(str(self.timing))}: there are no cycles of {', '.join(sorted(lacking))}"
            raise UsageError(what, f"Give a file that deeploy calibrate wrote for {target.name}.")
        slow = {memory.name for memory in target.memories[1:]} if target.is_flat else set()
        unknown = set(timing.memories) - slow
        if unknown:
            what = f"--timing {shorten(str(self.timing))}: {target.name} keeps no constants in {shorten(', '.join(sorted(unknown)))}"
            raise UsageError(what, f"Name {', '.join(sorted(slow))}." if slow else "Leave [memory] out.")
        return replace(target, timing=timing)

    def over(self, recorded: Choices) -> Choices:
        """These options, where they are not the defaults, in place of those of a file."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return replace(recorded, **own)

    def cut(self) -> Cut | None:
        """How the model is to be cut; None where it is not.

        Raises:
            UsageError: there are no chips, and something is said of them.
        """
        from deeploy.driver.request import Cut

        if self.chips is not None:
            return Cut(chips_of(self.chips), self.partition, self.balance, self.topology, self.collective, not self.no_gathers)
        given = {"--topology": self.topology, "--collective": self.collective, "--no-gathers": self.no_gathers or None}
        if (option := next((name for name, value in given.items() if value is not None), None)) is not None:
            raise UsageError(f"{option} without --chips", "Say over how many chips the model is cut: --chips N.")
        return None


def takes_choices(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter ``choices`` is spelled as the options of ``Choices``: typer reads them from the signature."""
    hints = get_type_hints(Choices, include_extras=True)
    own = [inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name]) for f in fields(Choices)]
    given = inspect.signature(command, eval_str=True).parameters

    def called(**values: Any) -> None:
        command(choices=Choices(**{p.name: values.pop(p.name) for p in own}), **values)

    spelled = [p.replace(kind=p.KEYWORD_ONLY) for name, p in given.items() if name != "choices"]
    place = list(given).index("choices")
    called.__signature__ = inspect.Signature([*spelled[:place], *own, *spelled[place:]])  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in (*spelled, *own)}
    called.__name__, called.__doc__ = command.__name__, command.__doc__
    return called


def parse_pairs(texts: list[str] | None, option: str, example: str = "input=VALUE") -> dict[str, str]:
    """Parse repeated NAME=VALUE options; the name may itself hold an equals sign."""
    result = {}
    for text in texts or []:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option} {shorten(text, 60)} is not of the form NAME=VALUE", f"For example: {option} {example}")
        result[name] = value
    return result


def _fixes_of(texts: list[str] | None) -> dict[str, str]:
    """What is fixed, by what it is about; nothing is fixed twice."""
    fixed_pairs = parse_pairs(texts, "--fix", "conv1.engine=cluster")
    for first, second in itertools.combinations(dict.fromkeys(texts or []), 2):
        if first.rpartition("=")[0] == second.rpartition("=")[0]:
            raise UsageError(f"--fix {shorten(first, 60)} and --fix {shorten(second, 60)} contradict each other", "Leave one of them out.")
    return fixed_pairs


def parse_whole(text: str, option: str, least: int, most: int, example: str) -> int:
    """A whole number from ``least`` to ``most`` that an option gives.

    Raises:
        UsageError: it is something else.
    """
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    if not is_number or not least <= int(text) <= most:
        raise UsageError(f"{option}{shorten(text, 60)}: that is not a whole number from {least} to {most}", f"For example: {example}")
    return int(text)


def dims_of(texts: list[str] | None) -> dict[str, int]:
    dim_pairs = parse_pairs(texts, "--dim")
    return {name: parse_whole(value, f"--dim {shorten(name, 60)}=", 1, MOST_EXTENT, "--dim batch=1") for name, value in dim_pairs.items()}


def pins_of(texts: list[str] | None) -> dict[str, list[float]]:
    """The values of inputs that are pinned, by name."""
    pins = {}
    for name, text in parse_pairs(texts, "--pin").items():
        try:
            pins[name] = [_parse_number(part.strip().lower()) for part in text.split(",")]
        except ValueError as error:
            told = f"--pin {shorten(name, 60)}={shorten(text, 60)}"
            raise UsageError(f"{told}: that is neither a number nor numbers with commas between", "For example: --pin sr=16000") from error
    return pins


def _parse_number(text: str) -> float:
    return {"true": 1, "false": 0}[text] if text in ("true", "false") else int(text) if text.lstrip("+-").isdigit() else float(text)


def capacities_of(memory: list[str] | None) -> dict[str, int]:
    from deeploy.planning.planner.machine import bytes_of

    memory_pairs = parse_pairs(memory, "--memory")
    return {name.lower(): bytes_of(value, f"--memory {shorten(name, 60)}=") for name, value in memory_pairs.items()}


def chips_of(text: str) -> int | Literal["auto"]:
    """The number of chips, or ``auto``."""
    return "auto" if text == "auto" else parse_whole(text, "--chips ", 1, MOST_CHIPS, "--chips 4, or --chips auto")


def context_of(rows: int | None) -> int | None:
    return None if rows is None else parse_whole(str(rows), "--context ", 2, MOST_EXTENT, "--context 256")


def seconds_of(value: float | None, option: str) -> None:
    """Refuse what is no time: no number, infinite, not above 0 or longer than a year."""
    if value is not None and not 0 < value <= MOST_SECONDS:
        raise UsageError(f"{option} {value:g} is not a number above 0, up to {MOST_SECONDS}", f"For example: {option} 10")


def tolerance_of(value: float | None) -> None:
    """Refuse a tolerance that is no number, or below 0."""
    if value is not None and not value >= 0:
        raise UsageError(f"--tolerance {value:g} is not a number from 0 on", "For example: --tolerance 0.001")


def print_text(text: str, *, to_errors: bool = False) -> None:
    """Print what may hold names and other texts of files."""
    print(make_printable(text), file=sys.stderr if to_errors else sys.stdout)
