"""What the call of a layer has to do, from the declarations of its operator and kernel: elements, argument and function.

How a layer is divided is claimed by whoever printed it (``Claim``) and never trusted: here a claim becomes the argument that the kernel
needs for it, and the elements that it then reads and writes, and these are what the printed C is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypedDict

from deeploy.certify.c_text import TranslationUnit, split_tokens
from deeploy.ir import interface
from deeploy.ir.expr import Named, Value, Variable, maximum, minimum, name_value, quotient
from deeploy.ir.interface import Bound, CalledPart, PrintedOperand
from deeploy.ir.kernel import SUMS
from deeploy.ir.mentions import mentions
from deeploy.ir.nest import Window
from deeploy.ir.templates import TemplateLookup
from deeploy.ir.types import DType

UNKNOWN = 1 << 80  # addresses that only the printed C knows are multiples of this, until it says them


class ClaimedOperand(TypedDict):
    """``window``: per axis the first element, their number, and how many are in front of the border; ``strides`` in elements."""

    window: Sequence[Sequence[str]]
    strides: Sequence[str]


class Claim(TypedDict):
    """How a layer is divided: expressions over the tile ``t``, the core ``rt_core()`` and the rows of states.

    ``inside`` is the layer whose function calls the kernel, where no function of its own does; ``sizes`` are those of the largest tile
    by dimension, ``names`` parts of expressions, ``box`` the first iteration and the number of them of every dimension that is not whole.
    """

    inside: str
    tiles: int
    cores: int
    sizes: Mapping[str, int]
    rows: Mapping[str, Sequence[int]]
    names: Mapping[str, str]
    box: Mapping[str, Sequence[str]]
    operands: Mapping[str, ClaimedOperand]
    columns: str


@dataclass(frozen=True)
class Seen:
    """What a kernel reads or writes of an operand: the operand's name in the call, its address, window and strides in elements."""

    operand: str
    address: int
    first: Sequence[int]
    count: Sequence[int]
    strides: Sequence[int]


@dataclass(frozen=True)
class Step:
    """One kernel of a tile: the functions that are called with their arguments, and what these read and write."""

    calls: Sequence[tuple[str, Sequence[Any]]]
    seen: Sequence[Seen]
    scratch: Mapping[str, tuple[int, int, bool]]  # by name: address, bytes, and whether every core has so many, one behind the other
    box: Mapping[str, tuple[int, int]]  # the iterations of dimensions that are not whole
    needed: Mapping[str, Sequence[Sequence[int]]]  # of each operand: the window that these need, and the one that is claimed


class CertifiedLayer:
    """The layer of a call; ``stored`` are the types of its operands as they are stored, ``message`` the number of what it sends."""

    def __init__(
        self,
        call: Bound,
        claim: Claim,
        stored: Mapping[str, DType],
        unit: TranslationUnit,
        lookup: TemplateLookup,
        project: str,
        message: int | None,
        capture: Callable[[Callable[[], object]], list[tuple[str, Sequence[Any]]]],
    ) -> None:
        self.call, self.claim, self.stored, self.unit, self.lookup = call, claim, stored, unit, lookup
        self.project, self.message, self.capture = project, message, capture
        self.values = _claim_values(claim)
        self.box = {dim: (self.value(first), self.value(count)) for dim, (first, count) in claim["box"].items()}

    def value(self, text: str) -> Value:
        """The value of an expression of the printer's claim, for the current tile and core."""
        return _evaluate_text(text, self.values)

    @cached_property
    def windows(self) -> Mapping[str, tuple[Window, ...]]:
        """What is claimed of the windows of operands."""
        return {
            name: tuple(Window(self.value(first), self.value(count), self.value(before), 0) for first, count, before in claimed["window"])
            for name, claimed in self.claim["operands"].items()
        }

    @cached_property
    def strides(self) -> Mapping[str, tuple[Value, ...]]:
        return {name: tuple(map(self.value, claimed["strides"])) for name, claimed in self.claim["operands"].items()}

    def needed(self, name: str) -> tuple[Window, ...]:
        """What the part of the iterations that is computed needs of an operand."""
        shape, geometry = self.call.geometry.shapes[name], self.call.geometry
        is_mapped = name not in geometry.nest.indirect and any(name in nest.maps() for nest in (geometry.nest, *geometry.nest.phases))
        if not is_mapped:
            return tuple(Window(0, size, 0, 0) for size in shape)
        return tuple(geometry.window(name, axis, size, self.box, f"needed_{name}_{axis}") for axis, size in enumerate(shape))

    @cached_property
    def parts(self) -> tuple[CalledPart, ...]:
        views: dict[str, PrintedOperand | None] = {name.rstrip("?"): None for name in self.call.kernel.inputs}
        views |= {
            name: interface.make_view(self.call, name, self.stored[name], self.windows[name], self.strides[name])
            for name in self.call.operands
        }
        if SUMS in self.windows:
            views[SUMS] = interface.accumulated_sums(self.call, self.windows[SUMS], self.strides[SUMS])
        return interface.call_parts(self.call, views, self.stored)

    @cached_property
    def _parts_steps(self) -> list[Callable[[int, Sequence[int]], list[Step]]]:
        return [self._steps(part) for part in self.parts]

    def steps(self, number: int, tile: int, rows: Sequence[int]) -> list[Step]:
        """What the kernels of a part do in a tile, on the core that runs."""
        return self._parts_steps[number](tile, rows)

    def _steps(self, part: CalledPart) -> Callable[[int, Sequence[int]], list[Step]]:
        claim, call = self.claim, self.call
        bases = {name: Variable(f"scratch_{name}", 0, 0) for name in part.call.kernel.scratch}
        pieces = interface.scratch_pieces(part.call, claim["sizes"], bases)
        extent: dict[str, Value] = {**call.geometry.extents}
        extent |= {dim: self.box[dim][1] for dim in call.geometry.dynamic if dim in self.box}
        names = [*dict.fromkeys([*part.views, *call.operands, SUMS, *(base.name for base in bases.values())])]
        pointers = {name: (index + 1) * UNKNOWN for index, name in enumerate(names)}
        sizes = {name: dtype.bytes for name, dtype in part.stored.items()} | {SUMS: 4}
        parameters = [("t", 0), *((name, sizes.get(name, 1)) for name in pointers), *((row, 0) for row in claim["rows"])]
        outer = [{own: name for name, own in phase.operands.items()} for phase in call.kernel.phases] or [{}]
        operands = [name for name in part.call.operands if name in call.operands]
        computes, seen = [], []
        with mentions() as noted:
            facts = [_list_values(map(_list_values, self.box.values())), _list_values(self._needed(name) for name in operands)]
            for phase, outside in zip(interface.part_phases(part, self.value(claim["columns"])), outer, strict=True):
                computes.append(self._compile("computes", parameters, self._text(phase, pieces, extent)))
                views = {name: view for name, view in phase.views.items() if view is not None}
                seen.append([outside.get(name, name) for name in views])
                facts += [_list_values([v.ptr, *map(_list_values, (v.first, v.extent, v.stride))]) for v in views.values()]
        states = self._compile("states", parameters, f"{_print_declarations(noted.parts())} return {_list_values(facts)};")

        def steps(tile: int, rows: Sequence[int]) -> list[Step]:
            values = [tile, *pointers.values(), *rows]
            box, needed, *views = states(*values)
            scratch = {name: (pointers[bases[name].name], piece.bytes, piece.cores > 1) for name, piece in pieces.items()}
            boxed = dict(zip(self.box, map(tuple, box), strict=True))
            result = []
            for compute, names in zip(computes, seen, strict=True):
                calls = self.capture(partial(compute, *values))
                seen_steps = [Seen(name, *views.pop(0)) for name in names]
                result.append(Step(calls, seen_steps, scratch, boxed, dict(zip(operands, needed, strict=True))))
            return result

        return steps

    def _needed(self, name: str) -> str:
        """The window of an operand that the iterations need, and the one that is claimed: first elements, numbers, how many are missing."""
        windows = self.needed(name), self.windows[name]
        return _list_values(
            _list_values(getattr(axis, what) for axis in window) for window in windows for what in ("first", "count", "before")
        )

    def _text(self, phase: CalledPart, pieces: Mapping[str, interface.Piece], extent: Mapping[str, Value]) -> str:
        """The C that calls a kernel."""
        kernel = "" if phase.call.kernel.link is not None else interface.make_instance(phase.call, phase.stored, self.project).name
        with mentions() as noted:
            text = interface.render_call(phase.call, kernel, phase.views, pieces, extent, self.lookup, self.message, self.claim["cores"])
        return _print_declarations(noted.parts()) + text

    def _compile(self, name: str, parameters: list[tuple[str, int]], text: str) -> Callable[..., Any]:
        return self.unit.compile(name, parameters, split_tokens(text))


def _list_values(values: Iterable[Value | str]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def _print_declarations(parts: Sequence[Named]) -> str:
    return "".join(f"const int32_t {part.name} = {part.value};\n" for part in parts)


def _claim_values(claim: Claim) -> dict[str, object]:
    """What the expressions of a claim may mention."""
    values: dict[str, object] = {"smaller": minimum, "larger": maximum, "quotient": quotient}
    values["t"] = Variable("t", 0, claim["tiles"] - 1) if claim["tiles"] > 1 else 0
    values["core"] = Variable("rt_core()", 0, claim["cores"] - 1) if claim["cores"] > 1 else 0
    values |= {name: Variable(name, low, high) for name, (low, high) in claim["rows"].items()}
    for name, text in claim["names"].items():
        values[name] = name_value(name, _evaluate_text(text, values))
    return values


def _evaluate_text(text: str, values: dict[str, object]) -> Value:
    """An expression of a claim, of these values."""
    if text.isdigit():
        return int(text)
    value: Value = eval(text.replace("/", "//").replace("rt_core()", "core"), {"__builtins__": {}}, values)
    return value
