"""What the user wants of a compilation: one set of options for one chip and for several, from Python and from the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from deeploy.backend.constants import Additions
from deeploy.backend.packages import Package
from deeploy.driver.prefixes import own_file, select_own
from deeploy.errors import UsageError, shorten
from deeploy.frontend.pins import Value
from deeploy.frontend.walk import MOST_UNROLLED
from deeploy.ir.target import Target
from deeploy.ir.types import PACKED, WHOLE, DType
from deeploy.planning.planner.machine import Options

Dialect = Literal["integer", "standard"]
Requantise = Literal["exact", "engine"]
Stage = Callable[[str], None]
FASTEST = 1_000_000  # megahertz: more is a mistake


@dataclass(frozen=True)
class Cut:
    """How a model is cut: over how many chips, by what, and how they are joined (None: as the target says).

    Attributes:
        collective: the algorithm that adds partial sums up and copies tensors; None: as the topology says.
        has_gathers: inputs may be put together, and rows divided, in place of partial sums.
    """

    chips: int | Literal["auto"]
    partition: str = "tensor"
    balance: str = "cycles"
    topology: Path | None = None
    collective: str | None = None
    has_gathers: bool = True


@dataclass(frozen=True)
class Request:
    """The options of a compilation.

    Attributes:
        inputs: npz with a sample, which decides undeclared input types of dialect graphs.
        input_types: element types of inputs by name, for dialect graphs.
        dims: values of symbolic dimensions; of one of several networks as ``PREFIX:NAME``.
        pins: values of inputs that become constants; of one of several networks as ``PREFIX:NAME``.
        unroll: nodes that loops may become, whose rounds stand one behind the other; loops of more stay loops.
        weight_bits: weights that fit into so many bits are stored in them where kernels read them so, whatever the model says.
        states: outputs by input that are one state, as ``past_k=present_k`` (docs/state.md); without it, those that are plain.
        context: rows that states hold at most, where the model leaves it open.
        quantised_io: make the integer tensors at the edges the network's inputs and outputs.
        requantise: how sums become 8-bit outputs: as the model says, or as an engine can itself, within one step (docs/requantise.md).
        save_after: name of a pass, and where to save the graph as ONNX after it; with several networks, ``FILE.PREFIX.onnx``.
        options: how much of the target may be used.
        fallback: take generated C for operators without a kernel (docs/fallback.md), on the engine of that name, or on the first one.
        on_stage: called with the name of each stage as it begins.
        additions: finds networks to which packages beside the compiler add functions.
        package: what the project is to be a package for, besides having its Makefile.
        budgets: bytes of ``flash``, ``ram`` and ``stack`` that the program may take on a microcontroller.
        certify: whether the C is compared with the graph (docs/trust.md).
        fix: what the plan must have, by ``NODE.engine``, ``NODE.kernel``, ``NODE.tile.DIM``, ``NODE.buffering``, ``NODE.after`` and
            ``TENSOR.memory`` (docs/planning.md); of one of several networks behind ``PREFIX:``.
        mhz: the clock that converts cycles to times, of one chip or of all; None: as a topology file says, else the target.
    """

    inputs: str | Path | None = None
    input_types: Mapping[str, DType | str] = field(default_factory=dict)
    dialect: Dialect | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    pins: Mapping[str, Value] = field(default_factory=dict)
    unroll: int = MOST_UNROLLED
    weight_bits: int | None = None
    states: Mapping[str, str] = field(default_factory=dict)
    context: int | None = None
    quantised_io: bool = False
    requantise: Requantise = "exact"
    save_after: tuple[str, Path] | None = None
    options: Options = field(default_factory=Options)
    fallback: bool | str = False
    on_stage: Stage | None = None
    additions: Additions | None = None
    package: Package | None = None
    budgets: Mapping[str, int] = field(default_factory=dict)
    mhz: float | None = None
    certify: bool = True
    fix: Mapping[str, str | int] = field(default_factory=dict)

    def check(self) -> None:
        """Raise UsageError unless the file of a sample, where one is named, is there, and element types and choices are known."""
        if self.requantise not in ("exact", "engine"):
            raise UsageError(f"--requantise {shorten(self.requantise)} is unknown", "Use --requantise exact or --requantise engine.")
        if not isinstance(self.fix, Mapping) or not all(isinstance(name, str) for name in self.fix):
            raise UsageError("what is fixed is a mapping from names to values", 'For example: fix={"conv1.engine": "npu"}')
        if self.inputs is not None and not Path(self.inputs).is_file():
            raise UsageError(f"there is no file {shorten(str(self.inputs))}", "Give the path of an npz file.")
        if self.weight_bits is not None and self.weight_bits not in {dtype.bits for dtype in PACKED}:
            raise UsageError(f"--weight-bits {self.weight_bits}: kernels read weights of 1 to 7 bits", "For example: --weight-bits 4")
        list(self.types)

    def clocked(self, target: Target, otherwise: float | None = None) -> Target:
        """The target at the clock that is asked for, or ``otherwise``.

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

    def machine_options(self, target: Target) -> Options:
        """The options of the machine: a budget of RAM also limits the memory of that name.

        Raises:
            UsageError: the target has no memory of that name.
        """
        if "ram" not in self.budgets:
            return self.options
        if "RAM" not in (memory.name for memory in target.memories):
            names = " and ".join(memory.name for memory in target.memories)
            raise UsageError(f"--ram: target {target.name} has no memory RAM, but {names}", "Limit them by --memory NAME=BYTES.")
        return replace(self.options, capacities={"ram": self.budgets["ram"], **self.options.capacities})

    def check_exact(self, option: str) -> None:
        """Raise UsageError where another requantisation is wanted of what ``option`` makes."""
        if self.requantise != "exact":
            raise UsageError(f"--requantise {self.requantise} with {option}: layers stay exact there", "Leave one of them out.")

    @property
    def types(self) -> dict[str, DType]:
        """Element types of inputs by name.

        Raises:
            UsageError: there is no such type.
        """
        return {name: given if isinstance(given, DType) else _parse_type(given) for name, given in self.input_types.items()}

    def of(self, prefix: str, models: Mapping[str, str | Path]) -> Request:
        """The request for one of several networks."""
        saved = self.save_after if len(models) == 1 or self.save_after is None else own_file(self.save_after, prefix)
        return replace(
            self,
            dims=select_own(self.dims, prefix, models),
            pins=select_own(self.pins, prefix, models),
            save_after=saved,
            fix=select_own(self.fix, prefix, models),
        )


def _parse_type(name: str) -> DType:
    for dtype in WHOLE:
        if name in (dtype.value, dtype.name.lower()):
            return dtype
    raise UsageError(f"{name} is no element type", f"Use one of {', '.join(t.name.lower() for t in WHOLE)}.")
