"""Scales as integers: multipliers, shifts, rounding constants, and quantisation parameters found in a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.graph.rewrite import constant, producer

# Half a step, any zero point and the product of a 32-bit accumulator still fit 63 bits behind this shift.
_MOST_SHIFT = 53
_PRECISE = 1 << 15
_LARGEST_SUMMAND = 2.0**61


@dataclass(frozen=True)
class Quantised:
    """An integer tensor and what it stands for: scale * (q - zero_point), per tensor or along ``axis``."""

    tensor: gs.Tensor
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int

    @property
    def is_scalar(self) -> bool:
        return bool(self.scale.size == 1 and self.zero_point.size == 1)

    @property
    def s(self) -> float:
        """The scale of a tensor quantised as a whole."""
        return float(self.scale.ravel()[0])

    @property
    def z(self) -> int:
        """The zero point of a tensor quantised as a whole."""
        return int(self.zero_point.ravel()[0])

    @property
    def is_byte(self) -> bool:
        return np.dtype(self.tensor.dtype) in (np.int8, np.uint8)

    def reals(self) -> np.ndarray | None:
        """The float32 values of a constant."""
        values = constant(self.tensor)
        if values is None:
            return None
        shape = [1] * values.ndim
        if not self.is_scalar:
            shape[self.axis] = -1
        scale, zero = (a.reshape(shape) if not self.is_scalar else a.reshape(()) for a in (self.scale, self.zero_point))
        return np.asarray((values.astype(np.int64) - zero).astype(np.float32) * scale.astype(np.float32))


def _parameters(node: gs.Node, tensor: gs.Tensor) -> Quantised | None:
    scale = constant(node.inputs[1])
    zero = constant(node.inputs[2]) if len(node.inputs) > 2 and not node.inputs[2].is_empty() else np.zeros(1, np.int64)
    if scale is None or zero is None or node.attrs.get("block_size", 0):
        return None
    if np.dtype(tensor.dtype).kind not in "iu" or scale.dtype.kind != "f" or not scale.size or not np.all(np.isfinite(scale) & (scale > 0)):
        return None
    zero = zero.astype(np.int64)
    if scale.size != zero.size and zero.size == 1:
        zero = np.broadcast_to(zero.ravel(), scale.ravel().shape)
    return Quantised(tensor, scale.astype(np.float32), zero, node.attrs.get("axis", 1))


def dequantised(tensor: gs.Tensor) -> Quantised | None:
    """The integer tensor behind a float one that a DequantizeLinear computes."""
    node = producer(tensor, "DequantizeLinear")
    return None if node is None else _parameters(node, node.inputs[0])


def byte(tensor: gs.Tensor) -> Quantised | None:
    """As ``dequantised``, where the integers have 8 bits and one scale."""
    found = dequantised(tensor)
    return found if found is not None and found.is_scalar and found.is_byte else None


def quantised(node: gs.Node) -> Quantised | None:
    """The result of a QuantizeLinear."""
    return _parameters(node, node.outputs[0])


def multiplier(ratio: np.ndarray | float) -> tuple[np.ndarray, int]:
    """``mul`` (int32) and ``shift`` with mul / 2^shift = ratio: the largest shift for which every mul fits 31 bits."""
    ratios = np.atleast_1d(np.asarray(ratio, np.float64))
    largest = float(np.abs(ratios).max(initial=0.0))
    shift = _MOST_SHIFT
    if largest > 0:
        shift = min(_MOST_SHIFT, 30 - int(np.floor(np.log2(largest))))
        if np.rint(largest * 2.0**shift) >= 2**31:
            shift -= 1
    shift = max(0, shift)
    limit = 2**31 - 1
    return np.clip(np.rint(ratios * 2.0**shift), -limit, limit).astype(np.int32), shift


def requant_constants(ratio: np.ndarray | float, offset: np.ndarray | int, zero_point: int) -> tuple[np.ndarray, np.ndarray, int]:
    """``mul``, ``add`` and ``shift`` such that (acc*mul + add) >> shift = round((acc + offset) * ratio) + zero_point.

    Channels whose weights are next to nothing have a ``mul`` of few bits beside the others, and often a large offset in
    their tiny unit: there the summand comes from the ratio itself.
    """
    mul, shift = multiplier(ratio)
    offsets = np.atleast_1d(np.asarray(offset, np.int64))
    real = summand(offsets.astype(np.float64) * np.atleast_1d(np.asarray(ratio, np.float64)), shift)
    with np.errstate(over="ignore"):
        add = np.where(np.abs(mul) < _PRECISE, real, offsets * mul.astype(np.int64))
    return mul, narrow(add + (zero_point << shift) + half(shift)), shift


def repeated(parameters: np.ndarray, size: int, axis: int, shape: Sequence[int]) -> np.ndarray:
    """What blocks of ``size`` elements along an axis have one of, for each element of a tensor of this shape."""
    return np.repeat(parameters, min(size, shape[axis]), axis=axis).take(range(shape[axis]), axis)


def half(shift: int) -> int:
    """What rounds half up when it is added in front of a shift."""
    return (1 << (shift - 1)) if shift else 0


def summand(steps: np.ndarray, shift: int) -> np.ndarray:
    """Real numbers of steps in front of a shift, as int64; beyond what any 8-bit result can show they saturate."""
    return np.asarray(np.clip(np.rint(steps * 2.0**shift), -_LARGEST_SUMMAND, _LARGEST_SUMMAND).astype(np.int64))


def ties(mul: np.ndarray, shift: int, zero_point: int) -> dict[str, int]:
    """The attribute ``even`` where (acc*mul) >> shift can be an exact tie for a 32-bit accumulator, else nothing.

    A tie needs acc to be a multiple of 2^(shift - 1 - trailing zeros of mul); other multipliers round the same either way.
    """
    trailing = min((int(m & -m).bit_length() - 1 for m in np.abs(mul.astype(np.int64)).ravel() if m), default=0)
    return {"even": zero_point & 1} if 0 < shift - trailing <= 31 else {}


def narrow(add: np.ndarray) -> np.ndarray:
    """int32 where every value fits, else int64."""
    fits = add.size == 0 or (add.min() >= -(2**31) and add.max() < 2**31)
    return add.astype(np.int32 if fits else np.int64)


def limits(tensor: gs.Tensor) -> tuple[int, int]:
    """Smallest and largest value of an integer tensor's type."""
    info = np.iinfo(tensor.dtype)
    return int(info.min), int(info.max)


def centred(weights: Quantised) -> np.ndarray | None:
    """Constant weights minus their zero point, in int8 where that fits, else in int16."""
    values = constant(weights.tensor)
    if values is None:
        return None
    shape = [1] * values.ndim
    if weights.zero_point.size > 1:
        shape[weights.axis] = -1
    return subtracted(values, weights.zero_point.reshape(shape if weights.zero_point.size > 1 else ()))


def subtracted(values: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """``values`` minus a zero point that broadcasts over them, in int8 where that fits, else in int16."""
    wide = values.astype(np.int64) - zero_point
    return np.asarray(wide.astype(np.int8 if wide.size == 0 or (wide.min() >= -128 and wide.max() <= 127) else np.int16))


def quantise_values(real: np.ndarray, scale: np.ndarray | float, zero_point: np.ndarray | int, low: int, high: int) -> np.ndarray:
    """QuantizeLinear in float32: round half to even, saturate."""
    with np.errstate(all="ignore"):
        steps = np.rint(real.astype(np.float32) / np.float32(scale))
    return np.asarray(np.clip(np.nan_to_num(steps, nan=-(2.0**40)) + zero_point, low, high))
