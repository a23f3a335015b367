"""The options of a compilation, stated once: the command line, ``deeploy.toml`` and its schema, the keywords of ``deeploy.compile`` and
the reference page are made of the fields of ``Options``."""

from __future__ import annotations

import ast
import numbers
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from inspect import Parameter
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from deeploy.errors import UsageError, shorten, suggest
from deeploy.ir.topology import Collective
from deeploy.options.texts import (
    MOST_CHIPS,
    MOST_EXTENT,
    PinnedValue,
    Size,
    check_seconds,
    parse_chips,
    parse_dims,
    parse_fixes,
    parse_pairs,
    parse_pins,
    parse_size,
    parse_stream,
    parse_whole,
)

if TYPE_CHECKING:  # which are slow to import, and no text says one
    from deeploy.ir.target import Target
    from deeploy.ir.types import DType

Dialect = Literal["integer", "standard"]
Requantise = Literal["exact", "engine"]
Exact = Literal["tflite", "onnx"]
Buffering = Literal["auto", "double", "single"]
Objective = Literal["cycles", "ram", "traffic", "energy", "edp"]
Package = Literal["cmake", "zephyr", "platformio", "arduino", "esp-idf", "makefile", "single", "cargo"]
Partition = Literal["tensor", "data", "pipeline"]
Balance = Literal["layers", "vendor", "profile", "parameters", "cycles"]
StreamMode = Literal["recording", "window"]
Stage: TypeAlias = Callable[[str], None]
Kind = Literal["pairs", "switch", "path", "int", "float", "text"]

DETERMINISTIC_SECONDS = 20.0  # of one problem
MOST_UNROLLED = 10_000  # nodes of the rounds of loops
FASTEST = 1_000_000  # megahertz: more is a mistake
_NUMBER = re.compile(r"-?[0-9.]+|N|VALUE|BYTES|FILE|NAME|ROWS|SIZE|TYPE")  # or what stands for one
_KINDS: Mapping[str, tuple[type, ...]] = {"switch": (bool,), "int": (numbers.Integral,), "float": (numbers.Real,)}


@dataclass(frozen=True)
class Spelling:
    """How an option is given as text, on the command line and in ``deeploy.toml``.

    Attributes:
        help: what it means; the unit of a number is part of it.
        name: of the option where it is not the field's; the name of an option that switches something off begins with ``no``.
        metavar: what is shown for the value; that of a choice is its words.
        words: what a shell completes it with, of an option that takes other values as well.
        least: of a whole number.
    """

    help: str
    name: str = ""
    short: str = ""
    metavar: str = ""
    words: tuple[str, ...] = ()
    least: int | None = None


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a compilation, of one chip and of several.

    Everything that has a spelling is an option of ``deeploy compile`` as well. Names of one of several networks stand behind ``PREFIX:``.

    Attributes:
        target: name or folder of a target, or the target itself.
        example_inputs: what a PyTorch module is run with once, to export it.
        pins: values of inputs that become constants.
        states: outputs by input that are one state, as ``past_k=present_k`` (docs/state.md); without it, those that are plain.
        save_after: name of a pass, and where to save the graph as ONNX after it; with several networks, ``FILE.PREFIX.onnx``.
        fix: what the plan must have, by ``NODE.engine``, ``NODE.kernel``, ``NODE.tile.DIM``, ``NODE.buffering``, ``NODE.after`` and
            ``TENSOR.memory`` (docs/planning.md).
        seconds: deterministic time that the solver may spend on one problem (some work that takes about a second).
        on_stage: called with the name of each stage as it begins, to show progress.

    Raises:
        UsageError: a word or a number is none that the option takes.
    """

    target: Annotated[
        str | Path | Target,
        Spelling("Name of a target (see: deeploy targets), or a folder with a target.py, which is executed.", short="-t"),
    ] = field(default="generic", kw_only=False)
    example_inputs: Sequence[object] | None = None
    inputs: Annotated[str | Path | None, Spelling("npz file with one sample, or several stacked on a new first axis.")] = None
    input_types: Annotated[
        Mapping[str, DType | str], Spelling("Element type of an input of a dialect graph.", "input-type", metavar="NAME=TYPE")
    ] = field(default_factory=dict)
    dialect: Annotated[Dialect | None, Spelling("Whether the graph has integer or standard operators, if they do not tell.")] = None
    dims: Annotated[
        Mapping[str, int], Spelling("Value of a symbolic dimension; NETWORK:NAME=VALUE for one network.", "dim", metavar="NAME=VALUE")
    ] = field(default_factory=dict)
    pins: Annotated[
        Mapping[str, PinnedValue],
        Spelling("Make an input a constant: one number, or all elements separated by commas.", "pin", metavar="NAME=VALUE"),
    ] = field(default_factory=dict)
    unroll: Annotated[
        int, Spelling("Unroll loops of the model that become at most this many nodes; longer ones stay loops.", metavar="NODES", least=0)
    ] = MOST_UNROLLED
    weight_bits: Annotated[int | None, Spelling("Pack weights whose values fit into this many bits.", metavar="1..7")] = None
    states: Annotated[
        Mapping[str, str],
        Spelling("An input and an output that form one state, such as a KV cache.", "state", metavar="PAST=PRESENT"),
    ] = field(default_factory=dict)
    context: Annotated[int | None, Spelling("The most rows that states can hold (the context length).", metavar="ROWS")] = None
    stream: Annotated[
        str | None,
        Spelling("An endless axis, its new columns per inference, and per second (docs/streams.md).", metavar="INPUT.AXIS[=HOP][@RATE]"),
    ] = None
    stream_mode: Annotated[
        StreamMode, Spelling("recording: layers pad the ends of the recording. window: outputs are those of the sliding window.")
    ] = "recording"
    quantised_io: Annotated[bool, Spelling("Use integer inputs and outputs: skip the conversions from and to float at the edges.")] = False
    requantise: Annotated[
        Requantise, Spelling("exact: bit-exact. engine: faster, at most one step away from exact (docs/requantise.md).")
    ] = "exact"
    exact: Annotated[Exact, Spelling("Of TensorFlow Lite files: round as its reference kernels do, or once (docs/from-tflite.md).")] = (
        "tflite"
    )
    save_after: tuple[str, Path] | None = None
    l1: Annotated[Size | None, Spelling("Limit of memory L1: bytes, or a size such as 64k or 1M.", metavar="SIZE")] = None
    l2: Annotated[Size | None, Spelling("Limit of memory L2.", metavar="SIZE")] = None
    memory: Annotated[Mapping[str, Size], Spelling("Limit of any memory; 0 keeps constants out of it.", metavar="NAME=SIZE")] = field(
        default_factory=dict
    )
    flash: Annotated[Size | None, Spelling("Limit of flash: code and constants together.", metavar="SIZE")] = None
    ram: Annotated[Size | None, Spelling("Limit of RAM: arena, inputs and outputs, variables and stack together.", metavar="SIZE")] = None
    stack: Annotated[Size | None, Spelling("Limit of the stack, along the deepest chain of calls.", metavar="SIZE")] = None
    cores: Annotated[int | None, Spelling("Number of cores to use.")] = None
    engines: Annotated[tuple[str, ...] | None, Spelling("Engines that may run layers; default: all.", metavar="NAME[,NAME]")] = None
    buffering: Annotated[Buffering, Spelling("double: fetch the next tile while one is computed; single: do not; auto: per layer.")] = (
        "auto"
    )
    default_memory: Annotated[str | None, Spelling("The memory in which constants are stored.", metavar="L2|L3", words=("L2", "L3"))] = None
    objective: Annotated[
        Objective,
        Spelling(
            "Minimise cycles, memory (ram: targets with one memory), bytes moved (traffic: docs/fusion.md), "
            "energy, or its product with time (docs/timing.md)."
        ),
    ] = "cycles"
    certify: Annotated[bool, Spelling("Do not compare the C with the graph (docs/trust.md).", "no-certify")] = True
    acsl: Annotated[bool, Spelling("Put contracts in ACSL in front of layers, for Frama-C (docs/trust.md).")] = False
    fusion: Annotated[bool, Spelling("Do not interleave the tiles of several layers (docs/fusion.md).", "no-fusion")] = True
    fix: Annotated[
        Mapping[str, str | int],
        Spelling("Fix the engine, kernel, tile.DIM, buffering or after of a node, or the memory of a tensor.", metavar="NODE.engine=npu"),
    ] = field(default_factory=dict)
    seconds: Annotated[float, Spelling("Limit of the solver per problem, in deterministic seconds: equal on every machine.")] = (
        DETERMINISTIC_SECONDS
    )
    package: Annotated[Package | None, Spelling("Make the project a package for that as well (docs/firmware.md).")] = None
    self_test: Annotated[
        str | Path | None, Spelling("Compile a self-test into the C: an npz file with the samples that it runs (docs/firmware.md).")
    ] = None
    chips: Annotated[int | Literal["auto"] | None, Spelling("Distribute the model over several chips.", metavar="N|auto")] = None
    partition: Annotated[
        Partition,
        Spelling("tensor: every layer over all chips. data: samples of a batch on each chip. pipeline: consecutive layers on each chip."),
    ] = "tensor"
    balance: Annotated[Balance, Spelling("What is balanced between the stages of a pipeline.")] = "cycles"
    topology: Annotated[Path | None, Spelling("TOML file with the links between the chips (docs/chips.md).")] = None
    collective: Annotated[
        Collective | None,
        Spelling("How partial sums are added up over chips, and tensors copied; default: as the topology says, or what is fastest."),
    ] = None
    gathers: Annotated[
        bool,
        Spelling("Add partial sums up, also where putting inputs together or dividing rows would be faster.", "no-gathers"),
    ] = True
    timing: Annotated[Path | None, Spelling("TOML file with the cycles of a board, from deeploy calibrate.")] = None
    mhz: Annotated[
        float | None, Spelling("Clock that converts cycles to times, of one chip or of all; default: the target's.", metavar="N")
    ] = None
    fallback: Annotated[bool, Spelling("Generate C for operators that have no kernel (docs/fallback.md).")] = False
    fallback_engine: Annotated[
        str | None, Spelling("Engine that runs generated C; default: the first. Implies --fallback.", metavar="NAME")
    ] = None
    on_stage: Stage | None = None

    def __post_init__(self) -> None:
        changed: dict[str, object] = {one.field: {} for one in list_options() if one.kind == "pairs" and getattr(self, one.field) is None}
        if isinstance(self.engines, str):
            changed["engines"] = tuple(self.engines.split(","))
        for name, easier in changed.items():
            object.__setattr__(self, name, easier)
        for option in list_options():
            value, kinds = getattr(self, option.field), _KINDS.get(option.kind)
            if kinds is not None and value is not None and (not isinstance(value, kinds) or (type(value) is bool and bool not in kinds)):
                like = {"switch": "True or False", "int": "a whole number", "float": "a number"}[option.kind]
                raise UsageError(f"{option.flag}: {shorten(repr(value))} is not {like}", f"Pass {like}.")
        for option in (option for option in list_options() if option.choices):
            value = getattr(self, option.field)
            if value is not None and value not in option.choices:
                told = suggest(str(value), option.choices, f"{option.flag} ")
                listed = f"{told}Use {option.flag} {', '.join(option.choices[:-1])} or {option.choices[-1]}."
                raise UsageError(f"{option.flag} {shorten(str(value))} is unknown", listed)
        check_seconds(self.seconds, "--seconds")
        if self.weight_bits is not None and self.weight_bits not in range(1, 8):
            raise UsageError(f"--weight-bits {self.weight_bits}: kernels read weights of 1 to 7 bits", "For example: --weight-bits 4")
        if self.stream is not None:
            parse_stream(self.stream)
        if self.context is not None:
            parse_whole(str(self.context), "--context ", 2, MOST_EXTENT, "--context 256")
        if self.chips is not None and self.chips != "auto":
            parse_whole(str(self.chips), "--chips ", 1, MOST_CHIPS, "--chips 4, or --chips auto")
        if not isinstance(self.fix, Mapping) or not all(isinstance(name, str) for name in self.fix):
            raise UsageError("what is fixed is a mapping from names to values", 'For example: fix={"conv1.engine": "npu"}')

    def given(self) -> dict[str, Any]:
        """The options that are not the defaults, by their names: ``replace(others, **options.given())`` puts them in place of others."""
        values = {f.name: (getattr(self, f.name), f.default if f.default_factory is MISSING else f.default_factory()) for f in fields(self)}
        return {name: value for name, (value, default) in values.items() if value is not default and value != default}

    @property
    def capacities(self) -> dict[str, int]:
        """Bytes of the arenas of memories that are limited, by their names in small letters.

        Raises:
            UsageError: a text is no size.
        """
        sizes = {"l1": self.l1, "l2": self.l2}
        own = {name: parse_size(size, f"--{name} ") for name, size in sizes.items() if size is not None}
        return own | {name.lower(): parse_size(size, f"--memory {shorten(name, 60)}=") for name, size in self.memory.items()}

    @property
    def budgets(self) -> dict[str, int]:
        """Bytes of ``flash``, ``ram`` and ``stack`` that the program may take on a microcontroller.

        Raises:
            UsageError: a text is no size.
        """
        sizes = {"flash": self.flash, "ram": self.ram, "stack": self.stack}
        return {name: parse_size(size, f"--{name} ") for name, size in sizes.items() if size is not None}

    @property
    def generates_kernels(self) -> bool:
        """Whether C is generated for operators that have no kernel."""
        return self.fallback or self.fallback_engine is not None

    def with_memory(self, sizes: Mapping[str, int]) -> Options:
        """The options with these limits of memories alone, in bytes by the memories' names."""
        return replace(self, l1=None, l2=None, memory=sizes)

    def set_clock(self, target: Target, otherwise: float | None = None) -> Target:
        """The target at the clock that is asked for, or ``otherwise``, in megahertz.

        Raises:
            UsageError: it is no clock, or the target has no cycles.
        """
        if self.mhz is None:
            return target.at(otherwise)
        if not 0 < self.mhz <= FASTEST:
            raise UsageError(f"--mhz {self.mhz:g} is no clock", f"Give megahertz, more than 0 and at most {FASTEST:g}: --mhz 500.")
        if target.timing is None:
            raise UsageError(
                f"--mhz {self.mhz:g}: target {target.name} has no cycles to convert", "Leave it out, or give cycles: --timing FILE."
            )
        return target.at(self.mhz)

    def limit_ram(self, target: Target, io: int = 0) -> Options:
        """The options with a budget of RAM that also limits the memory of that name.

        Args:
            io: bytes of it that the caller's inputs and outputs take.

        Raises:
            UsageError: the target has no memory of that name, or not as much.
        """
        if "ram" not in self.budgets:
            return self
        if "RAM" not in (memory.name for memory in target.memories):
            names = " and ".join(memory.name for memory in target.memories)
            raise UsageError(f"--ram: target {target.name} has no memory RAM, but {names}", "Limit them by --memory NAME=BYTES.")
        budget, memory = self.budgets["ram"], target.memory("RAM")
        if memory.capacity is not None and budget > memory.capacity:
            raise UsageError(
                f"--ram {budget}: RAM of target {target.name} has {memory.capacity} bytes",
                f"Give at most {memory.capacity}, or a target with more: deeploy targets.",
            )
        room = budget if memory.capacity is None else min(budget, memory.capacity - memory.reserved)
        return self.with_memory({"ram": max(1, room - io), **self.capacities})

    def check_exact(self, option: str) -> None:
        """Raise UsageError where another requantisation is wanted of what ``option`` makes."""
        if self.requantise != "exact":
            raise UsageError(f"--requantise {self.requantise} with {option}: layers stay exact there", "Leave one of them out.")

    def check_one_chip(self) -> None:
        """Raise UsageError where something is said of several chips, and the model is for one."""
        given = {"--topology": self.topology, "--collective": self.collective, "--no-gathers": None if self.gathers else True}
        if self.chips is None and (option := next((name for name, value in given.items() if value is not None), None)) is not None:
            raise UsageError(f"{option} without --chips", "Say over how many chips the model is cut: --chips N.")


# ---- their types, as texts have them

_Pairs: TypeAlias = Callable[[list[str] | None, str], Mapping[str, object]]
_PAIRS: Mapping[str, _Pairs] = {"dims": parse_dims, "pins": parse_pins, "fix": parse_fixes}


@dataclass(frozen=True)
class OptionField:
    """A field of ``Options`` that has a spelling.

    Attributes:
        kind: ``pairs`` (NAME=VALUE, repeated), ``switch`` (on or off), ``path``, ``int``, ``float``, or ``text``.
        choices: the words that it takes; none of other options.
    """

    field: str
    kind: Kind
    choices: tuple[str, ...]
    spelling: Spelling
    default: Any

    @property
    def flag(self) -> str:
        """The option of the command line."""
        return f"--{self.spelling.name or self.field.replace('_', '-')}"

    @property
    def key(self) -> str:
        """The name of the option in ``deeploy.toml``."""
        return self.flag[2:].replace("-", "_")

    def describe_argument(self) -> str:
        """The help of the option as that of Python's argument, which switches on what an option of the command line switches off."""
        told = name_arguments(self.spelling.help)
        return f"False: {told[0].lower()}{told[1:]}" if self.default is True else told

    def parse(self, text: Any) -> Any:
        """The value of the field that a text says, or a list of them for pairs.

        Raises:
            UsageError: it says none.
        """
        if self.kind == "pairs":
            return _PAIRS.get(self.field, parse_pairs)(text, self.flag)
        if self.kind == "switch":
            return text != self.default
        if text is None:
            return self.default
        if self.field == "engines":
            return tuple(text.split(","))
        return parse_chips(text) if self.field == "chips" else text

    def spell(self, value: Any) -> Any:
        """The texts that ``parse`` reads as this value."""
        if self.kind == "pairs":
            return [f"{name}={','.join(map(str, given)) if isinstance(given, list) else given}" for name, given in value.items()]
        if self.kind == "switch":
            return True
        return ",".join(value) if isinstance(value, tuple) else str(value) if self.kind == "text" else value

    def name_argument(self, value: str, rest: str) -> str:
        """The argument of Python with a value, where the word behind the option is one; ``rest`` is the message from that word on."""
        name, equals, given = value.rpartition("=")
        if self.kind == "switch":
            return f"{self.field}={not self.default}" + (f" {value}" if value else "")
        if self.kind == "pairs":
            is_number = _NUMBER.fullmatch(given) is not None
            shown = given if is_number else f'"{given}"'
            return f'{self.field}={{"{name}": {shown}}}' if equals else f"{self.field} {value}".rstrip()
        if _NUMBER.fullmatch(value):
            return f"{self.field}={value}"
        is_value = (
            value in self.choices or re.fullmatch("[0-9]+[kKmM]|L[0-9]", value) or rest.startswith((f"{value}:", f"{value} is unknown"))
        )
        return f'{self.field}="{value}"' if value and is_value else f"{self.field} {value}".rstrip()


class _Other:
    """Stands for types that are slow to import."""

    ndarray: TypeAlias = float


@cache
def list_options() -> tuple[OptionField, ...]:
    """The options that have a spelling, in their order."""
    others, result = dict.fromkeys(("Target", "DType", "np"), _Other), list[OptionField]()
    hints = get_type_hints(Options, None, others, include_extras=True)
    for f in fields(Options):
        if get_origin(hints[f.name]) is Annotated:
            hint, spelling = get_args(hints[f.name])
            kinds = [kind for kind in (get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)) if kind is not NoneType]
            choices = get_args(kinds[0]) if get_origin(kinds[0]) is Literal else ()
            default = f.default if f.default_factory is MISSING else f.default_factory()
            result.append(OptionField(f.name, _kind_of(kinds), choices, spelling, default))
    return tuple(result)


def _kind_of(kinds: Sequence[Any]) -> Kind:
    """What the texts of an option are, by the types of its field."""
    if get_origin(kinds[0]) is Mapping:
        return "pairs"
    if Path in kinds and _Other not in kinds:
        return "path"
    known: Mapping[Any, Kind] = {bool: "switch", int: "int", float: "float"}
    return known.get(kinds[0], "text") if len(kinds) == 1 else "text"


def name_arguments(text: str, arguments: Collection[str] = ()) -> str:
    """A message about options of the command line with the names of Python's arguments.

    Args:
        arguments: further names of arguments, which are options of the same name on a command line.
    """
    known = {option.flag[2:]: option for option in list_options()}

    def name(match: re.Match[str]) -> str:
        flag, value, end = match[1], (match[2] or "").strip("'"), match[3] or ""
        if flag in known:
            return known[flag].name_argument(value, f"{value}{end}{text[match.end() :]}") + end
        own = flag.replace("-", "_")
        return f"{own}{f'={value}' if value else ''}{end}" if own in arguments else match[0]

    told = re.sub(r"--([a-z][a-z0-9-]*)(?:[ =]('[^']*'|[^\s,;:?)]*[^\s,;:.?)]))?([,;:.?)](?=[\s,.]|$))?", name, text)
    while (joined := re.sub(r"(\w+)=\{([^{}]*)\} \1=\{", r"\1={\2, ", told)) != told:  # one dictionary of several pairs
        told = joined
    return told


def option_parameter(parameter: Parameter) -> Parameter:
    """A parameter of ``Options`` as a reader wants to see it: its type without the spelling, and what is empty as ``{}``."""
    text = parameter.annotation
    if isinstance(text, str) and text.startswith("Annotated["):
        text = ast.unparse(ast.parse(text, mode="eval").body.slice.elts[0])  # type: ignore[attr-defined]
    is_empty = repr(parameter.default) == "<factory>"
    return parameter.replace(annotation=text, default={} if is_empty else parameter.default)
