"""Element types: what a tensor can have in the generated code, with the number of bits of an element.

Elements of 2 and 4 bits are packed: rows along the last axis are whole bytes, the first element of a byte in its lowest bits. Only
constants are stored so, for kernels that read them.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

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
    INT4 = "s4"
    UINT4 = "u4"
    INT2 = "s2"
    UINT2 = "u2"

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type with the same values; one that has more where there is none."""
        return np.dtype(_NUMPY[self])

    @property
    def c(self) -> str:
        """The C type's name: of packed elements, that of their bytes."""
        return _C[self]

    @property
    def bits(self) -> int:
        """Size of one element."""
        return _PACKED.get(self, 8 * self.numpy.itemsize)

    @property
    def is_packed(self) -> bool:
        """Whether a byte holds several elements."""
        return self in _PACKED

    @property
    def bytes(self) -> int:
        """Size of what elements are stored in: of one, or of the byte that holds several."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self is DType.FLOAT32

    @property
    def is_integer(self) -> bool:
        return self not in (DType.FLOAT32, DType.BOOL)

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type (BOOL counts as 0..1)."""
        if self is DType.BOOL:
            return 0, 1
        if self.is_packed:
            return (0, 2**self.bits - 1) if self in (DType.UINT4, DType.UINT2) else (-(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1)
        info = np.iinfo(_NUMPY[self])
        return int(info.min), int(info.max)

    def holds(self, low: int, high: int) -> bool:
        """Whether an integer type has every value from ``low`` to ``high``; a type of floats has none of them for sure."""
        return not self.is_float and self.range[0] <= low and high <= self.range[1]

    @classmethod
    def of(cls, dtype: np.typing.DTypeLike) -> DType:
        """The element type of a NumPy type; KeyError where the generated code has none."""
        return _FROM_NUMPY[np.dtype(dtype).name]

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
    DType.INT4: "int8",
    DType.UINT4: "uint8",
    DType.INT2: "int8",
    DType.UINT2: "uint8",
}
_PACKED = {DType.INT2: 2, DType.UINT2: 2, DType.INT4: 4, DType.UINT4: 4}
PACKED = tuple(_PACKED)  # fewest bits first
WHOLE = tuple(t for t in DType if t not in _PACKED)  # those of tensors that the code computes
_C = {t: "float" if t is DType.FLOAT32 else "uint8_t" if t is DType.BOOL or t in _PACKED else f"{n}_t" for t, n in _NUMPY.items()}
_FROM_NUMPY = {_NUMPY[dtype]: dtype for dtype in WHOLE}


def pack(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Integers of a packed type as they are stored: uint8, whose last axis has as many bytes as hold the elements along it, then zeros."""
    per = 8 // dtype.bits
    rows = values.reshape(*values.shape[:-1], -1).astype(np.uint8) & (2**dtype.bits - 1)
    filled = np.pad(rows, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % per)])
    parts = filled.reshape(*values.shape[:-1], -1, per) << np.arange(0, 8, dtype.bits, dtype=np.uint8)
    packed: np.ndarray = np.bitwise_or.reduce(parts, axis=-1)
    return packed


def unpack(stored: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """The ``count`` elements along the last axis that bytes of a packed type hold: int8 or uint8."""
    parts = stored[..., None] >> np.arange(0, 8, dtype.bits, dtype=np.uint8) & (2**dtype.bits - 1)
    values = parts.reshape(*stored.shape[:-1], -1)[..., :count].astype(np.int16)
    elements: np.ndarray = (values - (values > dtype.range[1]) * 2**dtype.bits).astype(dtype.numpy)
    return elements
