"""Windows of operands as C: where each axis begins, how many indices it has, what lies outside.

A range says which iterations of the nest are meant: per cut dimension a C expression for the first and for the number of them.
Everything else follows from the operand's map. What is constant is computed here; the rest becomes local C variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deeploy.backend.symbols import Size, variable
from deeploy.graph.nest import Affine, Atom, Dim, Quotient, Remainder
from deeploy.midend.tiling import Windows

Range = Mapping[str, tuple[str, str]]  # dimension -> (first, count), as C


@dataclass(frozen=True)
class AxisText:
    """One axis of a window: C text or ints; ``before`` counts indices that the map reads in front of the operand."""

    first: str | int
    count: Size | int
    before: str | int


@dataclass(frozen=True)
class WindowText:
    """The axes of a window in the order of the operand's map, and the C lines that declare their variables."""

    axes: tuple[AxisText, ...]
    lines: tuple[str, ...]

    def strides(self, order: tuple[int, ...]) -> tuple[Size | int, ...]:
        """Strides of the window packed in the given order of axes, in elements."""
        result: list[Size | int] = [1] * len(self.axes)
        step: Size | int = 1
        for axis in reversed(order):
            result[axis] = step
            step = step * self.axes[axis].count
        return tuple(result)


def window_text(windows: Windows, at: Range, prefix: str) -> WindowText:
    """The window of one operand; C variables are named after ``prefix`` and the axis."""
    axes: list[AxisText] = []
    lines: list[str] = []
    for axis in range(len(windows.shape)):
        result, more = _axis(windows, axis, at, f"{prefix}_{axis}")
        axes.append(result)
        lines += more
    return WindowText(tuple(axes), tuple(lines))


def _axis(windows: Windows, axis: int, at: Range, name: str) -> tuple[AxisText, list[str]]:
    size = windows.shape[axis]
    if not windows.is_mapped:
        return AxisText(0, size, 0), []
    expressions = [access.axes[axis] for access in windows.maps]
    moving = {d.name for e in expressions for d in e.dims()} & at.keys()
    broadcast = size == 1 and windows.dims[axis] is None and all(access.outside is None for access in windows.maps)
    if not moving or broadcast:
        first, last = (0, 0) if broadcast else windows.window(axis, {})
        low = 0 if broadcast else min(e.span(windows.geometry.box())[0] for e in expressions)
        return AxisText(first, max(0, last - first + 1), max(0, -low)), []
    bare = expressions[0].bare()
    if len(set(expressions)) == 1 and bare is not None and windows.geometry.extents[bare.name] <= size:
        return AxisText(at[bare.name][0], variable(at[bare.name][1]), 0), []
    return _clipped(windows, axis, expressions, at, name)


def _clipped(windows: Windows, axis: int, expressions: list[Affine], at: Range, name: str) -> tuple[AxisText, list[str]]:
    """A window that is computed, with its borders clipped where they may leave the operand."""
    box, size = windows.geometry.box(), windows.shape[axis]
    lows, highs = [], []
    for expression in dict.fromkeys(expressions):
        low, high = _hull(expression, at, windows)
        lows.append(low)
        highs.append(high)
    low = _nested("smaller", lows)
    high = _nested("larger", highs)
    least = min(e.span(box)[0] for e in expressions)
    most = max(e.span(box)[1] for e in expressions)
    lines = [f"const int32_t {name}_low = {low};", f"const int32_t {name}_high = {high};"]
    first, last = f"{name}_low", f"{name}_high"
    before: str | int = 0
    if least < 0:
        first, before = f"larger({name}_low, 0)", f"larger(-{name}_low, 0)"
    if most >= size:
        last = f"smaller({name}_high, {size - 1})"
    count = f"{last} - {name} + 1"
    lines.append(f"const int32_t {name} = {first};")
    lines.append(f"const int32_t {name}_n = {f'larger({count}, 0)' if least < 0 or most >= size else count};")
    return AxisText(name, variable(f"{name}_n"), before), lines


def _nested(function: str, values: list[str]) -> str:
    result = values[0]
    for value in values[1:]:
        result = f"{function}({result}, {value})"
    return result


def _hull(expression: Affine, at: Range, windows: Windows) -> tuple[str, str]:
    """Lowest and highest value of an expression over a range, as C."""
    low: list[str] = []
    high: list[str] = []
    constant_low = constant_high = expression.constant
    for atom, factor in expression.terms:
        least, most = _atom(atom, at, windows)
        if factor < 0:
            least, most = most, least
        for value, parts in ((least, low), (most, high)):
            if isinstance(value, str):
                parts.append(value if factor == 1 else f"{factor} * ({value})")
        constant_low += factor * least if isinstance(least, int) else 0
        constant_high += factor * most if isinstance(most, int) else 0
    return _sum(low, constant_low), _sum(high, constant_high)


def _sum(parts: list[str], constant: int) -> str:
    text = " + ".join(parts)
    if not text:
        return str(constant)
    return text if not constant else f"{text} {'-' if constant < 0 else '+'} {abs(constant)}"


def _atom(atom: Atom, at: Range, windows: Windows) -> tuple[str | int, str | int]:
    """Lowest and highest value of a dimension, a quotient or a remainder."""
    box = windows.geometry.box()
    if isinstance(atom, Dim):
        if atom.name not in at:
            return box[atom.name]
        first, count = at[atom.name]
        return first, f"{first} + {count} - 1"
    assert isinstance(atom, Quotient | Remainder)
    if not {d.name for d in atom.dims()} & at.keys():
        return atom.span(box)
    low, high = _hull(atom.inner, at, windows)
    if isinstance(atom, Quotient):
        return f"quotient({low}, {atom.divisor})", f"quotient({high}, {atom.divisor})"
    same = f"quotient({low}, {atom.divisor}) == quotient({high}, {atom.divisor})"
    shift = f"quotient({low}, {atom.divisor}) * {atom.divisor}"
    return f"({same} ? {low} - {shift} : 0)", f"({same} ? {high} - {shift} : {atom.divisor - 1})"
