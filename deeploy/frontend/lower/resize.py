"""Resize and Upsample: nearest neighbours are gathered, images interpolated between four, all else is a product with a matrix per axis.

Formulas of coordinates and of cubic coefficients: ONNX, operator Resize.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from deeploy.errors import ModelError, shorten
from deeploy.frontend.lower.quant import BYTES
from deeploy.ir.nodes import Tensor, compute, constant
from deeploy.ir.rewriting import Match, Pass, Result, need, require, standard
from deeploy.ir.types import DType
from deeploy.operators.interpolate import INTERPOLATE, axis_table

_ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda p: np.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: np.floor(p + 0.5),
}
_TAPS = {"linear": 2, "cubic": 4}


@standard("Resize", "Upsample", lowers=True)
def interpolate_image(
    m: Match, x: Tensor, *, mode: str = "nearest", coordinate_transformation_mode: str = "half_pixel", antialias: int = 0
) -> Result:
    """Between the four neighbours of every place, in the order and the precision of onnxruntime; channels last meanwhile."""
    require(mode == "linear", not antialias, x.dtype.is_float, x.rank == 4, x.shape[:2] == m.y.shape[:2])
    is_old = m.op == "Upsample" or len(m.node.inputs) == 2
    scales, tables = _axis_scales(m, is_old), []
    for size, out, scale in zip(x.shape[2:], m.y.shape[2:], scales[2:], strict=True):
        place = _locate_outputs("asymmetric" if is_old else coordinate_transformation_mode, size, out, np.float32(scale))
        tables.append(constant(axis_table(need(place), size)))
    shape = [x.shape[0], *m.y.shape[2:], x.shape[1]]
    return compute(INTERPOLATE.name, x.transpose([0, 2, 3, 1]), *tables, shape=shape, label="between").transpose([0, 3, 1, 2])


@standard("Resize", "Upsample")
def lower_resize(
    m: Match,
    x: Tensor,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    antialias: int = 0,
    exclude_outside: int = 0,
    cubic_coeff_a: float = -0.75,
) -> Result:
    """Resize in any of ONNX's coordinate transformations that need no region of interest."""
    is_old = m.op == "Upsample" or len(m.node.inputs) == 2
    transformation, rounding = ("asymmetric", "floor") if is_old else (coordinate_transformation_mode, nearest_mode)
    is_exact, scales = mode == "nearest" or x.dtype.is_float, _axis_scales(m, is_old)
    require(is_exact or x.dtype in BYTES)
    result, times = x if is_exact else x.cast(DType.FLOAT32), [1] * x.rank
    if not is_exact and mode == "linear":
        # between bytes, so that what is cut off is one
        return compute(m.op, result, *m.node.inputs[1:], shape=m.y.shape, dtype=result.dtype, **m.attrs).cast(m.y.dtype)
    for axis, (size, out, scale) in enumerate(zip(x.shape, m.y.shape, scales, strict=True)):
        place = need(_locate_outputs(transformation, size, out, scale))
        if mode == "nearest" and rounding in _ROUNDING:
            entries = np.clip(_ROUNDING[rounding](place), 0, size - 1)
            times[axis] = out // max(size, 1)
            if not np.array_equal(entries, np.repeat(np.arange(size), times[axis])):
                result, times[axis] = result.take(entries, axis), 1
        else:
            require(mode in _TAPS)
            shrink = min(scale, 1.0) if antialias else 1.0
            result = _multiply_axis(result, axis, interpolation_matrix(place, size, mode, shrink, exclude_outside, cubic_coeff_a))
    if is_exact:
        return result.repeat(times)
    low, high = m.y.dtype.range  # bytes are limited, then cut off, as onnxruntime does
    return result.apply("Clip", min=float(low), max=float(high)).cast(m.y.dtype)


def _locate_outputs(transformation: str, size: int, out: int, scale: float | np.float32) -> np.ndarray | None:
    """Where ``out`` elements of a result lie along an axis of ``size`` elements, as precise as ``scale``; None where that is not known."""
    i = np.arange(out, dtype=np.asarray(scale).dtype)
    half_pixel = (i + 0.5) / scale - 0.5
    match transformation:
        case "asymmetric":
            return i / scale
        case "half_pixel":
            return half_pixel
        case "half_pixel_symmetric":
            return np.asarray(half_pixel + size / 2 * (1 - out / (scale * size)))
        case "pytorch_half_pixel":
            return np.asarray(half_pixel * (out > 1))
        case "align_corners" if size * scale == out:  # else the length is that of the scale or the rounded one: two readings
            return i * (size - 1) / max(1, out - 1)
    return None


def _axis_scales(m: Match, is_old: bool) -> list[float]:
    """The scale of every axis: as given, else the ratio of the sizes; one for all axes where the ratio of sides stays."""
    ratios = [b / a if a else 1.0 for a, b in zip(m.x.shape, m.y.shape, strict=True)]
    axes, given = m.attrs.get("axes", range(m.x.rank)), m.input(1 if is_old else 2)
    scales = need(m.attrs.get("scales", ()) if given is None else given.data)
    choose = {"not_larger": min, "not_smaller": max}.get("" if is_old else m.attrs.get("keep_aspect_ratio_policy", ""))
    if choose is not None and not len(scales):
        sides = zip(need(m.value(3)).tolist(), (m.x.shape[axis] for axis in axes), strict=True)
        scales = [choose(size / side for size, side in sides)] * len(axes)
    if len(scales) not in (0, len(axes)):
        raise ModelError(f"node {shorten(m.node.name)} (Resize) has {len(scales)} scales for {len(axes)} axes", "Give one for each axis.")
    for axis, scale in zip(axes, scales, strict=False):
        ratios[axis] = float(scale)
    return ratios


def interpolation_matrix(place: np.ndarray, size: int, mode: str, shrink: float, exclude_outside: int, cubic: float) -> np.ndarray:
    """The matrix [outputs, size] that takes an axis to values at ``place`` [outputs].

    Args:
        shrink: by how much distances count less, so that more elements are seen where an image gets smaller (antialias).
        exclude_outside: elements beyond the borders count nothing; else they are those at the borders.
        cubic: the coefficient a of the cubic.
    """
    reach = math.ceil(_TAPS[mode] / 2 / shrink)
    near = np.floor(place)[:, None].astype(int) + np.arange(-reach, reach + 2)
    distance = np.abs(near - place[:, None]) * shrink
    weight = np.maximum(1 - distance, 0) if mode == "linear" else _cubic_weights(distance, cubic)
    if exclude_outside:
        weight[(near < 0) | (near >= size)] = 0
    if exclude_outside or shrink < 1:
        weight /= weight.sum(axis=1, keepdims=True)
    result = np.zeros((len(place), size))
    np.add.at(result, (np.arange(len(place))[:, None], np.clip(near, 0, size - 1)), weight)
    return result


def _cubic_weights(d: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0)))


def _multiply_axis(x: Tensor, axis: int, matrix: np.ndarray) -> Tensor:
    """The product with a matrix along an axis, unless that changes nothing: from the right for the last axis, from the left for others."""
    if np.array_equal(matrix, np.eye(len(matrix))):
        return x
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    outer, size, inner = math.prod(before), x.shape[axis], math.prod(after)
    product = x.reshape([outer, size]) @ matrix.T if inner == 1 else constant(matrix, x.dtype) @ x.reshape([outer, size, inner])
    return product.reshape([*before, len(matrix), *after])


PASS = Pass("resize", (interpolate_image, lower_resize))
