"""Resize and Upsample: nearest neighbours are gathered, linear and cubic interpolation is a product with a matrix for every axis.

Formulas of coordinates and of cubic coefficients: ONNX, operator Resize.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import ModelError, shorten
from deeploy.frontend.lower import build
from deeploy.graph.rewrite import Pass, constant, rule

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


@rule("Resize", "Upsample")
def resize(graph: gs.Graph, node: gs.Node) -> bool:
    """In any of ONNX's coordinate transformations that need no region of interest."""
    mode = str(node.attrs.get("mode", "nearest"))
    old = node.op == "Upsample" or len(node.inputs) == 2
    transformation = "asymmetric" if old else node.attrs.get("coordinate_transformation_mode", "half_pixel")
    scales = _scales(node, old)
    if scales is None:
        return False
    sizes = list(zip(node.inputs[0].shape, node.outputs[0].shape, scales, strict=True))
    if transformation == "align_corners" and any(size * scale != out for size, out, scale in sizes):
        return False  # whether the length is that of the scale or the rounded one is understood in two ways
    known = transformation in _COORDINATES and node.attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    if not known or mode not in ("nearest", *_TAPS):
        return False
    x = node.inputs[0]
    places = [_COORDINATES[transformation](np.arange(out, dtype=np.float64), scale, size, out) for size, out, scale in sizes]
    if mode == "nearest":
        rounding = "floor" if old else node.attrs.get("nearest_mode", "round_prefer_floor")
        return rounding in _ROUNDING and _nearest(graph, node, [_ROUNDING[rounding](place) for place in places])
    kind = np.dtype(x.dtype)
    if kind.kind != "f" and kind not in (np.int8, np.uint8):
        return False
    smooth = bool(node.attrs.get("antialias", 0))
    outside = bool(node.attrs.get("exclude_outside", 0))
    cubic = float(node.attrs.get("cubic_coeff_a", -0.75))
    matrices = [
        interpolation(place, size, mode, min(scale, 1.0) if smooth else 1.0, outside, cubic)
        for place, (size, _, scale) in zip(places, sizes, strict=True)
    ]
    _products(graph, node, matrices)
    return True


def _scales(node: gs.Node, old: bool) -> list[float] | None:
    """The scale of every axis: as given, else the ratio of the sizes."""
    x, y = node.inputs[0], node.outputs[0]
    ratios = [b / a if a else 1.0 for a, b in zip(x.shape, y.shape, strict=True)]
    given = node.attrs.get("scales")
    position = 1 if old else 2
    if given is None and len(node.inputs) > position and not node.inputs[position].is_empty():
        value = constant(node.inputs[position])
        if value is None:
            return None
        given = value.ravel().tolist()
    if not given:
        return ratios
    axes = list(node.attrs.get("axes", range(len(ratios))))
    if len(axes) != len(given):
        raise ModelError(f"node {shorten(node.name)} (Resize) has {len(given)} scales for {len(axes)} axes", "Give one for each axis.")
    for axis, scale in zip(axes, given, strict=True):
        ratios[axis] = float(scale)
    return ratios


def _nearest(graph: gs.Graph, node: gs.Node, places: Sequence[np.ndarray]) -> bool:
    sizes = node.inputs[0].shape
    indices = [np.clip(place, 0, size - 1).astype(np.int64) for place, size in zip(places, sizes, strict=True)]
    build.take(graph, node, [None if np.array_equal(i, np.arange(size)) else i for i, size in zip(indices, sizes, strict=True)])
    return True


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


def _real(graph: gs.Graph, x: gs.Tensor, y: gs.Variable) -> tuple[gs.Tensor, gs.Variable]:
    """Bytes as real numbers, and back: limited, then cut off, as onnxruntime does."""
    real = build.variable(f"{y.name} (of bytes)", np.float32, x.shape)
    result = build.variable(f"{y.name} (interpolated)", np.float32, y.shape)
    limits = np.iinfo(y.dtype)
    build.spell(graph, "Cast", [x], real)
    within = build.variable(f"{y.name} (within limits)", np.float32, y.shape)
    build.spell(graph, "Clip", [result], within, min=float(limits.min), max=float(limits.max))
    build.spell(graph, "Cast", [within], y)
    return real, result


def _products(graph: gs.Graph, node: gs.Node, matrices: Sequence[np.ndarray]) -> None:
    """One product per axis that changes: from the right for the last axis, from the left for others."""
    x, y = node.inputs[0], build.take_over(node)
    if np.dtype(x.dtype).kind != "f":
        x, y = _real(graph, x, y)
    wanted = [axis for axis, m in enumerate(matrices) if m.shape[0] != m.shape[1] or not np.array_equal(m, np.eye(len(m)))]
    shape = list(x.shape)
    for axis in wanted:
        matrix = matrices[axis].astype(np.float32)
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        is_last = inner == 1
        rows = [outer, shape[axis]] if is_last else [outer, shape[axis], inner]
        shape[axis] = len(matrix)
        name = f"{y.name} (axis {axis})"
        flat = build.spell(graph, "Reshape", [x], build.variable(f"{name} before", x.dtype, rows))
        stored = build.const(f"{name} matrix", matrix.T if is_last else matrix)
        product = build.variable(f"{name} product", x.dtype, [outer, len(matrix)] if is_last else [outer, len(matrix), inner])
        build.spell(graph, "MatMul", [flat, stored] if is_last else [stored, flat], product, f"{node.name} ({axis})")
        x = build.spell(graph, "Reshape", [product], y if axis == wanted[-1] else build.variable(name, x.dtype, shape))
    if not wanted:
        build.spell(graph, "Reshape", [x], y, node.name)


PASS = Pass("resize", (resize,))
