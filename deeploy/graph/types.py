"""Element types: one value per C type that a tensor can have in the generated code."""

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

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type with the same values."""
        return np.dtype(_NUMPY[self])

    @property
    def c(self) -> str:
        """The C type's name."""
        return _C[self]

    @property
    def bytes(self) -> int:
        """Size of one element, in bytes."""
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
}
_C = {t: "float" if t is DType.FLOAT32 else "uint8_t" if t is DType.BOOL else f"{n}_t" for t, n in _NUMPY.items()}
_FROM_NUMPY = {name: dtype for dtype, name in _NUMPY.items()}
