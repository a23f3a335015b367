"""Which transfers the boxes of a schedule are: cut as ``deeploy_box.c`` cuts them, by the limits of their path.

The equality with what the host machine model counts is tested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deeploy.ir.target import DmaPath
from deeploy.schedule.ir import Box
from deeploy.schedule.unroll import Table


@dataclass(frozen=True)
class Batch:
    """``count`` equal transfers of ``rows`` rows of ``bytes`` bytes."""

    count: int
    bytes: int
    rows: int


@dataclass(frozen=True)
class BoxAxis:
    """An outer axis of a box: ``count`` runs that are ``pitch`` bytes apart on the far side."""

    count: int
    pitch: int


def box_transfers(path: DmaPath, run: int, axes: Sequence[BoxAxis]) -> tuple[Batch, ...]:
    """The transfers that move a box of ``run`` bytes along ``axes`` (outermost first) over a path."""
    outer = list(axes)
    if not run or not all(axis.count for axis in outer):
        return ()
    while outer and (outer[-1].count == 1 or outer[-1].pitch == run):
        run *= outer.pop().count
    last = outer.pop() if outer else BoxAxis(1, run)
    rows, pitch = last.count, last.pitch
    times = math.prod(axis.count for axis in outer)
    longest = min(path.max_bytes, path.max_total)
    if rows > 1 and run <= longest and path.max_rows > 1 and pitch <= path.max_pitch:
        most = min(path.max_rows, path.max_total // run)
        parts = [Batch(times * (rows // most), run, most), Batch(times * (rows > rows // most * most), run, rows % most)]
    else:
        parts = [Batch(times * rows * (run // longest), longest, 1), Batch(times * rows * (run % longest > 0), run % longest, 1)]
    return tuple(part for part in parts if part.count)


def box_batches(path: DmaPath, box: Box, table: Table) -> tuple[tuple[Batch, ...], ...]:
    """The transfers that move a box, for every tile."""
    values = [box.run, *(value for axis in box.axes for value in (axis.count, axis.pitch))]
    rows, which = np.unique(table.rows(values), axis=0, return_inverse=True)
    cut = [box_transfers(path, row[0], [BoxAxis(*pair) for pair in zip(row[1::2], row[2::2], strict=True)]) for row in rows.tolist()]
    return tuple(cut[number] for number in which.ravel())
