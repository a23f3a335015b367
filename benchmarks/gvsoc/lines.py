"""Depthwise convolutions of any window: shapes that their kernels are calibrated with, and what cycles are counted by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.gvsoc import cases
from benchmarks.gvsoc.layer import Case

# Height, width, channels, taps, stride, dilation.
SHAPES = (
    *((14, 14, 16, (5, 5), 1, 1), (8, 8, 64, (5, 5), 1, 1), (4, 4, 64, (5, 5), 1, 1), (16, 16, 32, (7, 7), 1, 1)),
    *((1, 128, 32, (1, 11), 1, 1), (1, 64, 40, (1, 17), 1, 1), (1, 96, 24, (1, 5), 2, 1), (1, 64, 64, (1, 3), 1, 1)),
    *((30, 9, 8, (1, 7), 1, 1), (16, 16, 24, (5, 5), 2, 1), (9, 9, 48, (9, 9), 1, 1), (12, 12, 128, (3, 3), 1, 1)),
    *((12, 8, 37, (2, 2), 2, 1), (9, 9, 32, (1, 1), 1, 1), (24, 24, 4, (3, 5), 1, 1), (8, 8, 256, (3, 3), 2, 1)),
    *((1, 100, 16, (1, 9), 1, 2), (25, 25, 8, (11, 11), 1, 1), (20, 20, 16, (3, 3), 1, 2), (40, 16, 8, (5, 7), 2, 2)),
)
# Columns, channels, taps, stride, dilation.
LINES = (
    *((18, 64, 13, 1, 1), (20, 64, 15, 1, 1), (12, 128, 3, 1, 1), (9, 32, 9, 1, 1), (30, 16, 3, 2, 1), (34, 64, 29, 1, 1)),
    *((64, 40, 17, 1, 1), (17, 48, 9, 2, 1), (33, 64, 5, 1, 2), (40, 32, 3, 1, 4), (5, 256, 5, 1, 1), (100, 24, 5, 3, 1)),
)
# Columns, channels, filters, taps, stride.
DENSE = (
    *((10, 40, 16, 3, 1), (15, 16, 24, 9, 2), (12, 24, 24, 9, 1), (11, 24, 32, 9, 2), (10, 32, 32, 9, 1), (9, 32, 48, 9, 2)),
    *((9, 48, 48, 9, 1), (21, 64, 64, 11, 2), (30, 64, 128, 5, 1), (64, 32, 64, 3, 1), (24, 128, 32, 3, 1), (33, 12, 20, 5, 2)),
    *((8, 64, 256, 3, 1), (3, 128, 128, 3, 1), (4, 64, 12, 1, 1), (7, 16, 32, 1, 2)),
)
RUNS = ("ow/4 k/4 fw c", "ow/2 k/4 fw c", "ow/2 k/4", "k/4", "ow k<4 fw c", "ow k<4")
TURNED = ("k", "k/4", "ow k/4", "ow/4 k", "ow/4 k fw/4", "ow<4 k", "ow<4 k fw/4", "fw k/4")
ROWS = (
    *("oh k/4", "k", "oh ow/4 k", "oh ow/4 k fh", "oh ow/4 k fh fw/4"),
    *("fh ow/4 k/4", "oh k<4", "oh ow k<4", "fh fw k<4"),
)
DIVIDED = ("oh", "ow", "k")
_EXCHANGED = {"oh": "ow", "ow": "oh", "fh": "fw", "fw": "fh"}
COLUMNS = tuple(" ".join(_EXCHANGED.get(factor[:2], factor[:2]) + factor[2:] for factor in term.split()) for term in ROWS)


def in_rows(sizes: Mapping[str, int]) -> bool:
    """Whether four outputs of a row are computed together: in narrow images four of a column are, which is cheaper than the terms say."""
    return sizes["ow"] >= 4 or sizes["oh"] < 4


def in_columns(sizes: Mapping[str, int]) -> bool:
    """The same of a column."""
    return sizes["oh"] >= 4 or sizes["ow"] < 4


def make(is_down: bool) -> Callable[[Any, cases.Form], Case]:
    """Depthwise convolutions of any window; images and windows turned where words hold the taps of a column."""

    def case(shape: Any, form: cases.Form) -> Case:
        *size, channels, taps, stride, dilation = shape
        (height, width), window = (size[::-1], taps[::-1]) if is_down else (size, taps)
        found = cases.conv((height, width, channels), channels, window, stride, 0, form, "u8", channels)
        pads = [(each - 1) * dilation // 2 for each in window]
        attrs = {**found.attrs, "dilations": (dilation,) * 2, "pads": (*pads, *pads)}
        return replace(found, name=f"{found.name} by {dilation}", attrs=attrs)

    return case


def make_line(shape: tuple[int, int, int, int, int], form: cases.Form) -> Case:
    """Depthwise convolutions of a line, that read nothing outside of it."""
    columns, channels, taps, stride, dilation = shape
    found = cases.conv((1, columns, channels), channels, (1, taps), stride, 0, form, "s8", channels)
    return replace(found, name=f"{found.name} by {dilation}", attrs={**found.attrs, "dilations": (1, dilation)})


def make_dense(shape: tuple[int, int, int, int, int], form: cases.Form) -> Case:
    """Dense convolutions of a line, that read nothing outside of it."""
    columns, channels, filters, taps, stride = shape
    return cases.conv((1, columns, channels), filters, (1, taps), stride, 0, form, "s8")
