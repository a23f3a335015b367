"""Scales as integers: multipliers, shifts, rounding constants, and quantisation parameters found in a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deeploy.ir.nodes import Node, Tensor, constant
from deeploy.ir.types import DType

# Half a step, any zero point and the product of a 32-bit accumulator still fit 63 bits behind this shift.
_MOST_SHIFT = 53
BYTES = (DType.INT8, DType.UINT8)
_PRECISE = 1 << 15
_LARGEST_SUMMAND = 2.0**61


@dataclass(frozen=True)
class Quantised:
    """An integer tensor and what it stands for: scale * (q - zero_point), per tensor or along ``axis``."""

    tensor: Tensor
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
        return self.tensor.dtype in BYTES

    def _along(self, parameters: np.ndarray) -> np.ndarray:
        """Scales or zero points, one or some along the axis or as many axes as there are, as they broadcast over the tensor."""
        if parameters.ndim == self.tensor.rank:
            return parameters
        return parameters.reshape([] if self.is_scalar else [-1 if at == self.axis else 1 for at in range(self.tensor.rank)])

    def steps(self, values: np.ndarray) -> np.ndarray:
        """Integers without their zero points, in 64 bits."""
        return np.asarray(values.astype(np.int64) - self._along(self.zero_point))

    def real(self, values: np.ndarray) -> np.ndarray:
        """The float32 values that integers stand for."""
        return np.asarray(self.steps(values).astype(np.float32) * self._along(self.scale.astype(np.float32)))

    def quantise(self, real: npt.ArrayLike) -> np.ndarray:
        """The integers of a tensor quantised as a whole that stand for real values."""
        return quantise_values(np.asarray(real), self.s, self.z, *self.tensor.dtype.range).astype(self.tensor.dtype.numpy)

    @property
    def every(self) -> np.ndarray:
        """The real values of all that an element of 8 bits can be."""
        return self.real(every_value(self.tensor))


def plain_tensor(tensor: Tensor) -> Quantised:
    """A quantised tensor with scale 1 and zero point 0: its elements stand for themselves."""
    return Quantised(tensor, np.ones(1, np.float32), np.zeros(1, np.int64), 0)


def every_value(tensor: Tensor) -> np.ndarray:
    """All values of the type of an 8-bit tensor."""
    low, high = tensor.dtype.range
    return np.arange(low, high + 1).astype(tensor.dtype.numpy)


def _read_parameters(node: Node, tensor: Tensor) -> Quantised | None:
    scale, zero = node.operands[1].data, node.operands[2].data if len(node.operands) > 2 else np.zeros(1, np.int64)
    if scale is None or zero is None or node.attrs.get("block_size", 0) or not tensor.dtype.is_integer or scale.dtype.kind != "f":
        return None
    if not scale.size or not 0 < scale.min() <= scale.max() < np.inf:
        return None
    zero = zero.astype(np.int64)
    if scale.size != zero.size and zero.size == 1:
        zero = np.broadcast_to(zero.ravel(), scale.ravel().shape)
    return Quantised(tensor, scale.astype(np.float32), zero, node.attrs.get("axis", 1))


def behind_dequantisation(tensor: Tensor) -> Quantised | None:
    """The integer tensor behind a float one that a DequantizeLinear computes."""
    node = tensor.made_by("DequantizeLinear")
    return _read_parameters(node, node.operands[0]) if node else None


def quantised_result(node: Node) -> Quantised | None:
    """The result of a QuantizeLinear; None of another node."""
    return _read_parameters(node, node.outputs[0]) if node.op == "QuantizeLinear" else None


def byte_tensor(x: Tensor | Quantised | None) -> Quantised | None:
    """The integers of a tensor, or those in front of its dequantisation, where they have 8 bits and one scale."""
    q = behind_dequantisation(x) if isinstance(x, Tensor) else x
    return q if q and q.is_scalar and q.is_byte else None


def fixed_point_multiplier(ratio: np.ndarray | float) -> tuple[np.ndarray, int]:
    """``mul`` (int32) and ``shift`` with mul / 2^shift = ratio: the largest shift for which every mul fits 31 bits."""
    ratios, limit = np.atleast_1d(np.asarray(ratio, np.float64)), 2**31 - 1
    largest = float(np.abs(ratios).max(initial=0.0))
    shift = min(31 - math.frexp(largest)[1], _MOST_SHIFT) if largest else _MOST_SHIFT
    shift = max(0, shift - bool(np.rint(largest * 2.0**shift) > limit))
    return np.clip(np.rint(ratios * 2.0**shift), -limit, limit).astype(np.int32), shift


def requant_constants(ratio: np.ndarray | float, offset: np.ndarray | int, zero_point: int) -> tuple[np.ndarray, np.ndarray, int]:
    """``mul``, ``add`` and ``shift`` such that (acc*mul + add) >> shift = round((acc + offset) * ratio) + zero_point.

    Channels whose weights are next to nothing have a ``mul`` of few bits beside the others, and often a large offset in
    their tiny unit: there the summand comes from the ratio itself.
    """
    mul, shift = fixed_point_multiplier(ratio)
    offsets = np.atleast_1d(np.asarray(offset, np.int64))
    real = rounded_summand(offsets.astype(np.float64) * np.atleast_1d(np.asarray(ratio, np.float64)), shift)
    with np.errstate(over="ignore"):
        add = np.where(np.abs(mul) < _PRECISE, real, offsets * mul.astype(np.int64))
    return mul, narrow_values(add + (zero_point << shift) + rounding_half(shift)), shift


def requantisation_operands(mul: npt.ArrayLike, add: np.ndarray) -> tuple[Tensor, Tensor]:
    """Multipliers (int32) and summands of a requantisation as constant tensors."""
    return constant(np.asarray(mul), DType.INT32, "mul"), constant(narrow_values(add), label="add")


def repeat_parameters(parameters: np.ndarray, size: int, axis: int, shape: Sequence[int]) -> np.ndarray:
    """What blocks of ``size`` elements along an axis have one of, for each element of a tensor of this shape."""
    return np.repeat(parameters, min(size, shape[axis]), axis=axis).take(range(shape[axis]), axis)


def rounding_half(shift: int) -> int:
    """What rounds half up when it is added in front of a shift."""
    return (1 << (shift - 1)) if shift else 0


def rounded_summand(steps: np.ndarray, shift: int) -> np.ndarray:
    """Real numbers of steps in front of a shift, as int64; beyond what any 8-bit result can show they saturate."""
    return np.asarray(np.clip(np.rint(steps * 2.0**shift), -_LARGEST_SUMMAND, _LARGEST_SUMMAND).astype(np.int64))


def ties_attribute(mul: np.ndarray, shift: int, zero_point: int) -> dict[str, int]:
    """The attribute ``even`` where (acc*mul) >> shift can be an exact tie for a 32-bit accumulator, else nothing.

    A tie needs acc to be a multiple of 2^(shift - 1 - trailing zeros of mul); other multipliers round the same either way.
    """
    bits = int(np.bitwise_or.reduce(mul.astype(np.int64).ravel()))
    trailing = max(0, (bits & -bits).bit_length() - 1)
    return {"even": zero_point & 1} if 0 < shift - trailing <= 31 else {}


def narrow_values(values: np.ndarray, small: type[np.integer[Any]] = np.int32, large: type[np.integer[Any]] = np.int64) -> np.ndarray:
    """The smaller type where every value fits, else the larger one."""
    ends = np.iinfo(small)
    fits = ends.min <= values.min(initial=0) and values.max(initial=0) <= ends.max
    return values.astype(small if fits else large)


def centre_weights(weights: Quantised) -> np.ndarray | None:
    """Constant weights minus their zero point, in int8 where that fits, else in int16."""
    values = weights.tensor.data
    return None if values is None else narrow_values(weights.steps(values), np.int8, np.int16)


def quantise_values(real: np.ndarray, scale: np.ndarray | float, zero_point: np.ndarray | int, low: int, high: int) -> np.ndarray:
    """QuantizeLinear in float32: round half to even, saturate."""
    with np.errstate(all="ignore"):
        steps = np.rint(real.astype(np.float32) / np.float32(scale))
    return np.asarray(np.clip(np.nan_to_num(steps, nan=-(2.0**40)) + zero_point, low, high))
