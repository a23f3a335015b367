"""Resize and Upsample: nearest neighbours are gathered, linear and cubic interpolation is a product with a matrix for every axis.

Formulas of coordinates and of cubic coefficients: ONNX, operator Resize.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import ModelError, shorten
from deeploy.frontend.lower.decompose import take
from deeploy.frontend.lower.rewriter import Rewriter, standard
from deeploy.graph.rewrite import Pass

_COORDINATES: dict[str, Callable[[np.ndarray, float, int, int], np.ndarray]] = {
    "asymmetric": lambda i, scale, size, out: i / scale,
    "half_pixel": lambda i, scale, size, out: (i + 0.5) / scale - 0.5,
    "half_pixel_symmetric": lambda i, scale, size, out: (i + 0.5) / scale - 0.5 + size / 2 * (1 - out / (scale * size)),
    "pytorch_half_pixel": lambda i, scale, size, out: (i + 0.5) / scale - 0.5 if out > 1 else 0 * i,
    "align_corners": lambda i, scale, size, out: i * (size - 1) / (out - 1) if out > 1 else 0 * i,
}
_ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda p: np.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: np.floor(p + 0.5),
}
_TAPS = {"linear": 2, "cubic": 4}


@standard("Resize", "Upsample")
def resize(rw: Rewriter) -> bool:
    """In any of ONNX's coordinate transformations that need no region of interest."""
    attrs = rw.attrs
    mode = str(attrs.get("mode", "nearest"))
    old = rw.op == "Upsample" or len(rw.node.inputs) == 2
    transformation = "asymmetric" if old else attrs.get("coordinate_transformation_mode", "half_pixel")
    scales = _scales(rw, old)
    if scales is None:
        return False
    sizes = list(zip(rw.x.shape, rw.y.shape, scales, strict=True))
    if transformation == "align_corners" and any(size * scale != out for size, out, scale in sizes):
        return False  # whether the length is that of the scale or the rounded one is understood in two ways
    if transformation not in _COORDINATES or mode not in ("nearest", *_TAPS):
        return False
    places = [_COORDINATES[transformation](np.arange(out, dtype=np.float64), scale, size, out) for size, out, scale in sizes]
    if mode == "nearest":
        rounding = _ROUNDING.get("floor" if old else attrs.get("nearest_mode", "round_prefer_floor"))
        return rounding is not None and take(rw, [np.clip(rounding(at), 0, n - 1) for at, n in zip(places, rw.x.shape, strict=True)])
    if not rw.is_float and np.dtype(rw.x.dtype) not in (np.int8, np.uint8):
        return False
    smooth, outside = bool(attrs.get("antialias", 0)), bool(attrs.get("exclude_outside", 0))
    cubic = float(attrs.get("cubic_coeff_a", -0.75))
    matrices = [
        interpolation(place, size, mode, min(scale, 1.0) if smooth else 1.0, outside, cubic)
        for place, (size, _, scale) in zip(places, sizes, strict=True)
    ]
    if rw.is_float:
        return rw.finish(_product(rw, rw.x, matrices))
    # Bytes as real numbers, and back: limited, then cut off, as onnxruntime does.
    limits = np.iinfo(rw.y.dtype)
    real = _product(rw, rw.create("Cast", rw.x, dtype=np.float32), matrices)
    return rw.replace("Cast", rw.create("Clip", real, min=float(limits.min), max=float(limits.max)))


def _scales(rw: Rewriter, old: bool) -> list[float] | None:
    """The scale of every axis: as given, else the ratio of the sizes; one for all axes where the ratio of sides stays."""
    ratios = [b / a if a else 1.0 for a, b in zip(rw.x.shape, rw.y.shape, strict=True)]
    given, position = rw.attrs.get("scales"), 1 if old else 2
    if given is None and rw.input(position) is not None:
        value = rw.value(position)
        if value is None:
            return None
        given = value.ravel().tolist()
    axes = list(rw.attrs.get("axes", range(len(ratios))))
    policy = rw.attrs.get("keep_aspect_ratio_policy", "stretch")
    if not given and policy != "stretch" and not old:
        sizes = rw.value(3)
        if sizes is None or len(axes) != sizes.size:
            return None
        choose = min if policy == "not_larger" else max
        given = [choose(int(size) / rw.x.shape[axis] for size, axis in zip(sizes.ravel(), axes, strict=True))] * len(axes)
    if not given:
        return ratios
    if len(axes) != len(given):
        raise ModelError(f"node {shorten(rw.node.name)} (Resize) has {len(given)} scales for {len(axes)} axes", "Give one for each axis.")
    for axis, scale in zip(axes, given, strict=True):
        ratios[axis] = float(scale)
    return ratios


def interpolation(place: np.ndarray, size: int, mode: str, shrink: float, exclude_outside: bool, cubic: float) -> np.ndarray:
    """The matrix [outputs, size] that takes an axis to values at ``place`` [outputs].

    Args:
        shrink: by how much distances count less, so that more elements are seen where an image gets smaller (antialias).
        exclude_outside: elements beyond the borders count nothing; else they are those at the borders.
        cubic: the coefficient a of the cubic.
    """
    reach = math.ceil(_TAPS[mode] / 2 / shrink)
    result = np.zeros((len(place), size))
    for row, at in enumerate(place):
        near = np.arange(math.floor(at) - reach, math.floor(at) + reach + 2)
        distance = np.abs(near - at) * shrink
        weight = np.maximum(1 - distance, 0) if mode == "linear" else _cubic(distance, cubic)
        if exclude_outside:
            weight[(near < 0) | (near >= size)] = 0
        if exclude_outside or shrink < 1:
            weight /= weight.sum()
        np.add.at(result[row], np.clip(near, 0, size - 1), weight)
    return result


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0)))


def _product(rw: Rewriter, x: gs.Tensor, matrices: Sequence[np.ndarray]) -> gs.Tensor:
    """One product per axis that changes: from the right for the last axis, from the left for others."""
    shape = list(x.shape)
    for axis, matrix in enumerate(matrices):
        if np.array_equal(matrix, np.eye(*matrix.shape)) and matrix.shape[0] == matrix.shape[1]:
            continue
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        if inner == 1:
            product = rw.create("MatMul", rw.reshape(x, [outer, shape[axis]]), rw.constant(matrix.T.astype(np.float32)))
        else:
            product = rw.create("MatMul", rw.constant(matrix.astype(np.float32)), rw.reshape(x, [outer, shape[axis], inner]))
        shape[axis] = len(matrix)
        x = rw.reshape(product, shape)
    return x


PASS = Pass("resize", (resize,))
