"""Element types: what a tensor can have in the generated code, with the number of bits of an element.

Narrow types are of constants only, for kernels that read them: they hold some values of a type that the code computes with. Elements
of 1 to 7 bits are packed: rows along the last axis are whole bytes, which hold the bits of their elements one behind the other, from the
lowest bit of the first byte on. A signed element of one bit is 1 or -1, and its bit is the sign. Floats of 16 bits are the bits of
IEEE's binary16 and of bfloat16, which is the upper half of a float32.
"""

from __future__ import annotations

from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

Array = np.ndarray  # of any type and rank
Numeric = Any  # a number, or an array of numbers that are computed at once: one formula serves both


class DType(Enum):
    """An element type; the value is the short name used in kernel names and messages."""

    INT8 = "s8"
    UINT8 = "u8"
    INT16 = "s16"
    UINT16 = "u16"
    INT32 = "s32"
    UINT32 = "u32"
    INT64 = "s64"
    FLOAT32 = "f32"
    BOOL = "bool"
    INT1 = "s1"
    UINT1 = "u1"
    INT2 = "s2"
    UINT2 = "u2"
    INT3 = "s3"
    UINT3 = "u3"
    INT4 = "s4"
    UINT4 = "u4"
    INT5 = "s5"
    UINT5 = "u5"
    INT6 = "s6"
    UINT6 = "u6"
    INT7 = "s7"
    UINT7 = "u7"
    FLOAT16 = "f16"
    BFLOAT16 = "bf16"

    @cached_property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type with the same values; one that has more where there is none."""
        return np.dtype(_NUMPY[self])

    @property
    def c(self) -> str:
        """The C type's name: of narrow elements, that of the bytes or words that hold their bits."""
        return _C[self]

    @cached_property
    def bits(self) -> int:
        """Size of one element."""
        return _NARROW.get(self, 8 * self.numpy.itemsize)

    @property
    def is_packed(self) -> bool:
        """Whether a byte holds several elements."""
        return self in PACKED

    @property
    def is_narrow(self) -> bool:
        """Whether only constants have it."""
        return self in _NARROW

    @property
    def bytes(self) -> int:
        """Size of what elements are stored in: of one, or of the byte that holds several."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self is DType.FLOAT32 or self in HALVES

    @property
    def is_integer(self) -> bool:
        return not self.is_float and self is not DType.BOOL

    @cached_property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type (BOOL counts as 0..1)."""
        if self is DType.BOOL:
            return 0, 1
        if self.is_packed:
            low, high = (0, 2**self.bits - 1) if self in _UNSIGNED else (-(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1)
            return (low, 1) if self is DType.INT1 else (low, high)
        info = np.iinfo(_NUMPY[self])
        return int(info.min), int(info.max)

    def holds(self, low: int, high: int) -> bool:
        """Whether an integer type has every value from ``low`` to ``high``; a type of floats has none of them for sure."""
        if self is DType.INT1 and low <= 0 <= high:
            return False
        return not self.is_float and self.range[0] <= low and high <= self.range[1]

    def stores(self, values: Array) -> bool:
        """Whether a constant's elements, of 8 bits or float32, are elements of this narrow type; those of floats have to be finite."""
        if not self.is_float:
            is_byte = values.dtype.kind in "iu" and values.itemsize == 1 and values.size > 0
            if self is DType.INT1:
                return is_byte and bool((np.abs(values.astype(np.int16)) == 1).all())
            return is_byte and self.holds(int(values.min()), int(values.max()))
        if values.dtype != np.float32 or not np.isfinite(values).all():
            return False
        return np.array_equal(unpack_elements(pack_elements(values, self), self), values)

    @classmethod
    def of(cls, dtype: np.typing.DTypeLike) -> DType:
        """The element type of a NumPy type; KeyError where the generated code has none."""
        return _FROM_NUMPY[np.dtype(dtype).name]

    @classmethod
    def has(cls, dtype: np.typing.DTypeLike) -> bool:
        """Whether the generated code has the elements of a NumPy type; None is no type."""
        return dtype is not None and np.dtype(dtype).name in _FROM_NUMPY

    @classmethod
    def smallest(cls, low: int, high: int) -> DType:
        """The smallest of int8, uint8, int16, int32, int64 that holds ``low..high``."""
        for dtype in (cls.INT8, cls.UINT8, cls.INT16, cls.INT32, cls.INT64):
            if dtype.holds(low, high):
                return dtype
        raise OverflowError(f"{low}..{high} does not fit 64 bits")


_NUMPY = {
    DType.INT8: "int8",
    DType.UINT8: "uint8",
    DType.INT16: "int16",
    DType.UINT16: "uint16",
    DType.INT32: "int32",
    DType.UINT32: "uint32",
    DType.INT64: "int64",
    DType.FLOAT32: "float32",
    DType.BOOL: "bool",
    DType.FLOAT16: "float32",
    DType.BFLOAT16: "float32",
}
_SIGNED = (DType.INT1, DType.INT2, DType.INT3, DType.INT4, DType.INT5, DType.INT6, DType.INT7)
_UNSIGNED = (DType.UINT1, DType.UINT2, DType.UINT3, DType.UINT4, DType.UINT5, DType.UINT6, DType.UINT7)
_NUMPY |= dict.fromkeys(_SIGNED, "int8") | dict.fromkeys(_UNSIGNED, "uint8")
PACKED = tuple(t for pair in zip(_SIGNED, _UNSIGNED, strict=True) for t in pair)  # fewest bits first
HALVES = (DType.FLOAT16, DType.BFLOAT16)
NARROW = (*PACKED, *HALVES)
_NARROW = {t: int(t.value[1:]) for t in PACKED} | dict.fromkeys(HALVES, 16)
WHOLE = tuple(t for t in DType if t not in _NARROW)  # those of tensors that the code computes
_C = {
    **{t: f"{name}_t" for t, name in _NUMPY.items()},
    **{DType.FLOAT32: "float", DType.BOOL: "uint8_t"},
    **dict.fromkeys(PACKED, "uint8_t"),
    **dict.fromkeys(HALVES, "uint16_t"),
}
_FROM_NUMPY = {_NUMPY[dtype]: dtype for dtype in WHOLE}


def pack_elements(values: Array, dtype: DType, lanes: int = 1) -> Array:
    """Elements of a narrow type as they are stored.

    Integers: uint8, whose last axis has as many bytes as hold the elements along it, then zeros. Of several ``lanes``, element i and
    byte i belong to lane i modulo their number, which is a stream of bits of its own; the elements of each are whole bytes.
    Floats: uint16.
    """
    if dtype is DType.BFLOAT16:
        return np.asarray(values.astype(np.float32).view(np.uint32) >> 16, np.uint16)
    if dtype is DType.FLOAT16:
        with np.errstate(over="ignore"):
            return np.asarray(values.astype(np.float16).view(np.uint16))
    codes = (values < 0).astype(np.uint8) if dtype is DType.INT1 else values.astype(np.uint8)
    rows = codes.reshape(*values.shape[:-1], -1, lanes).swapaxes(-1, -2)
    bits = np.unpackbits(np.ascontiguousarray(rows)[..., None], axis=-1, count=dtype.bits, bitorder="little")
    stored = np.packbits(bits.reshape(*rows.shape[:-1], -1), axis=-1, bitorder="little")
    return np.ascontiguousarray(stored.swapaxes(-1, -2).reshape(*values.shape[:-1], -1))


def unpack_elements(stored: Array, dtype: DType, count: int | None = None) -> Array:
    """The elements, of integers ``count`` along the last axis, that a narrow type's bytes or words hold: int8, uint8 or float32."""
    if dtype is DType.BFLOAT16:
        return np.asarray((stored.astype(np.uint32) << 16).view(np.float32))
    if dtype is DType.FLOAT16:
        return np.asarray(stored.view(np.float16).astype(np.float32))
    count = stored.shape[-1] * 8 // dtype.bits if count is None else count
    bits = np.unpackbits(stored, axis=-1, count=count * dtype.bits, bitorder="little")
    codes = np.packbits(bits.reshape(*stored.shape[:-1], count, dtype.bits), axis=-1, bitorder="little")[..., 0].astype(np.int16)
    if dtype is DType.INT1:
        return (1 - 2 * codes).astype(np.int8)
    elements: Array = (codes - (codes > dtype.range[1]) * 2**dtype.bits).astype(dtype.numpy)
    return elements
