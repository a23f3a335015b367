"""Families of kernels on images of floats: pools that do not divide for every mean, and interpolation."""

from __future__ import annotations

import numpy as np

from benchmarks.gvsoc.elements import POOLS, PORTABLE_POOLING, _simple, pools
from benchmarks.gvsoc.families import Family, draw
from benchmarks.gvsoc.layer import Case
from deeploy.operators.interpolate import axis_table

SHAPES = ((8, 8, 16, 2), (12, 6, 32, 2), (5, 9, 24, 3), (10, 10, 4, 2), (6, 6, 37, 2), (16, 4, 1, 3))  # height, width, channels, times


def _interpolations() -> list[Case]:
    result = []
    for height, width, channels, times in SHAPES:
        tables = [axis_table((np.arange(size * times, dtype=np.float32) + 0.5) / times - 0.5, size) for size in (height, width)]
        result.append(_simple("Interpolate", "f32", {}, x=draw("f32", 1, height, width, channels), rows=tables[0], columns=tables[1]))
    return result


IMAGES = (
    Family("pulp_maxpool2d_floats", {"": pools("MaxPool", "f32", shapes=[each for each in POOLS if each[3] > 2])}, PORTABLE_POOLING),
    Family("pulp_average_floats", {"": pools("AveragePool", "f32")}, PORTABLE_POOLING),
    Family("interpolate", {"": _interpolations()}, ("n oh ow",)),
)
