"""Random nodes of operators, for the test of kernels alone: shapes, attributes and constants drawn from what a declaration allows.

Extents are 1, 2, odd and larger ones, axes broadcast, borders lie on every side. Whether a kernel accepts a node is not decided here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from deeploy.ir.kernel import Draw, Sample
from deeploy.ir.nodes import Attributes
from deeploy.ir.types import Array

EXTENTS = (1, 1, 2, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17)
WIDE = (*EXTENTS, 33)
LONG = (33, 64, 70, 129)  # extents of one axis now and then
ELEMENTS = 700  # of an operand, at most
MOST_AXES = 6
OUTPUTS = (1, 1, 2, 3, 5, 8, 9, 11)  # rows and columns of an image
FLAG = (False, True)
ZERO_POINTS = (0, 0, 3, 127, -5, -128)
LIMITS = ((-128, 127), (0, 127), (-100, 90), (-128, 0), (0, 255), (3, 11))
Values = Callable[[Random, tuple[int, ...]], Array]  # of a constant of a shape


def sample(operands: str, *linked: Callable[[Random], Attributes], extents: Any = None, **given: Any) -> Draw:
    """Draws nodes of an operator.

    Args:
        operands: names and axes, such as ``x[*s,c] b?[~s,c] w[c,3]``: ``*s`` stands for any axes, ``~s`` for axes that broadcast to
            these, ``%s`` for one element, one for each of the last axis, or such axes; ``?`` marks an operand that may be absent.
        linked: attributes that depend on each other.
        extents: what the extent of an axis is one of, by the names of those that have not any.
        given: what an attribute is one of; the values of an operand that cannot be any.
    """

    def draw(rng: Random) -> Sample:
        axes: dict[str, tuple[int, ...]] = {name: (rng.choice(choices),) for name, choices in (extents or {}).items()}
        present = re.findall(r"(\w+)(\??)\[(.*?)\]", operands)
        shapes = {name: _extents(rng, text.split(","), axes) for name, option, text in present if not option or rng.random() < 0.5}
        arrays = {name: values(rng, shapes.pop(name)) for name, values in given.items() if name in shapes}
        attributes = {name: rng.choice(values) for name, values in given.items() if not callable(values)}
        return Sample(shapes, attributes | {name: value for draw_linked in linked for name, value in draw_linked(rng).items()}, arrays)

    return draw


def _extents(rng: Random, names: Sequence[str], axes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    chosen_extents: tuple[int, ...] = ()
    for place, name in enumerate(names, 1):
        kind, rest = (name[0], names[place:]) if name[:1] in ("*", "~", "%") else ("", [])
        key = name.removeprefix(kind)
        if kind and key not in axes:
            whole = draw_shape(rng, max(1, len(rest)))
            axes |= {key: whole[: len(whole) - len(rest)], **{own: (n,) for own, n in zip(rest[::-1], whole[::-1], strict=False)}} | axes
        full = (int(key),) if key.isdigit() else axes.setdefault(key, (draw_extent(rng),)) if key else ()
        chosen_extents += (
            full if kind in ("", "*") else broadcast(rng, full) if kind == "~" else rng.choice(((1,), full[-1:], broadcast(rng, full)))
        )
    return chosen_extents


def draw_extent(rng: Random) -> int:
    return rng.choice(EXTENTS)


def draw_shape(rng: Random, least: int = 1, most: int = MOST_AXES) -> tuple[int, ...]:
    """Extents of ``least`` to ``most`` axes."""
    while True:
        shape = [draw_extent(rng) for _ in range(rng.randint(least, most))]
        if rng.random() < 0.25:
            shape[rng.randrange(len(shape))] = rng.choice(LONG)
        if rng.random() < 0.25:  # of rows of one element kernels assume most
            shape[-1] = 1
        if math.prod(shape) <= ELEMENTS:
            return tuple(shape)


def broadcast(rng: Random, full: tuple[int, ...]) -> tuple[int, ...]:
    """Extents that NumPy broadcasts to ``full``: some axes of extent 1, some outer ones left out."""
    if rng.random() < 0.4:
        return full
    return tuple(1 if rng.random() < 0.3 else n for n in full)[rng.randrange(len(full) or 1) if rng.random() < 0.25 else 0 :]


def integers(low: int, high: int, *dtypes: type) -> Values:
    """Values of both ends and between, all equal now and then; int32 where no types are given."""

    def draw(rng: Random, shape: tuple[int, ...]) -> Array:
        values = np.random.default_rng(rng.getrandbits(32)).integers(low, high, shape, endpoint=True)
        return np.asarray(values if rng.random() < 0.7 else np.full(shape, rng.randint(low, high)), rng.choice(dtypes or (np.int32,)))

    return draw


def floats(low: float, high: float) -> Values:
    return lambda rng, shape: np.random.default_rng(rng.getrandbits(32)).uniform(low, high, shape).astype(np.float32)


def limits(rng: Random) -> Attributes:
    """Attributes ``low`` and ``high`` of a random limit of results."""
    return dict(zip(("low", "high"), rng.choice(LIMITS), strict=True))


def parity(rng: Random, name: str = "even") -> Attributes:
    """Now and then, the multiple of a scale that a tie goes to."""
    return {name: rng.randrange(2)} if rng.random() < 0.3 else {}


def requantisation(rng: Random, *shifts: int) -> dict[str, int]:
    """Constants that keep the order of magnitude; half a step and a zero point are in the summand."""
    shift = rng.choice(shifts)
    mul, offset = int(rng.choice((0.3, 0.7, 1, 1.9)) * 2**shift), rng.randint(-20, 20)
    return {"mul": max(1, mul), "add": (1 << shift >> 1) + (offset << shift), "shift": shift, **limits(rng)}


def factors(shift: int) -> dict[str, Values]:
    """Distributions of ``mul`` and ``add`` for a shift, from which many elements are drawn."""
    size = min(2**shift, 2**31 - 1)
    wide = (np.int64,) if shift > 20 else (np.int32, np.int64)
    return {"mul": integers(max(1, size // 3), size), "add": integers(-(20 << shift), 20 << shift, *wide)}


def sliding(rng: Random, outputs: Sequence[int] = OUTPUTS, beyond: int = 0) -> tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]:
    """Attributes of a sliding window, its extents, and those of an image of which it has so many ``outputs``.

    Padding is up to ``beyond`` indices wider than what keeps a tap of every window inside of a large image.
    """
    size, strides, dilations, counts = (tuple(rng.choices(drawn, k=2)) for drawn in ((1, 2, 3, 4, 5), (1, 1, 2, 3), (1, 1, 2, 3), outputs))
    size, dilations = rng.choice((size, (1, 1), (3, 3))), dilations if rng.random() < 0.3 else (1, 1)
    reach = [d * (n - 1) + 1 for d, n in zip(dilations, size, strict=True)]
    pads = rng.choice(([0] * 4, [n // 2 for n in reach] * 2, [rng.randint(0, n - 1 + beyond) for n in reach * 2]))
    extents = [(n - 1) * step + taps + rng.randrange(step) for n, step, taps in zip(counts, strides, reach, strict=True)]
    image = tuple(max(1, n - before - after) for n, before, after in zip(extents, pads, pads[2:], strict=False))
    return {"strides": strides, "dilations": dilations, "pads": tuple(pads)}, size, image
