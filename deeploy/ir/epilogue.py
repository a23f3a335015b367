"""Epilogues: what may be fused behind a kernel's body, defined once for all kernels.

A body leaves an accumulator (int32 or float32). The stages of ``node.epilogue`` then apply in order; each brings its own
operands, most of them indexed by the *last* axis of the output (an extent of 1 broadcasts):

``bias``
    operand ``bias``: accumulator + bias.
``requantise``
    operands ``mul`` (int32) and ``add`` (int32 or int64); attributes ``shift`` (0..62), ``low``, ``high``:
    ``clip((accumulator * mul + add) >> shift, low, high)``, in 64 bits, arithmetic shift. Rounding (half up: 2^(shift-1))
    and the output's zero point (zero_point << shift) are part of ``add``. With attribute ``even`` (the parity of the zero
    point) exact ties go to the even multiple of the output's scale instead of up, as onnxruntime rounds.
``lookup``
    behind ``requantise``; operand ``table``, of 8 bits: the outputs for results from ``low`` to ``high``, ``table[result - low]``.
``clamp``
    attributes ``low``, ``high``: clip(accumulator, low, high).
"""

from __future__ import annotations

import numpy as np

from deeploy.ir.expr import Affine
from deeploy.ir.nest import Map
from deeploy.ir.nodes import Attributes, Node
from deeploy.ir.types import DType

OPERANDS: dict[str, tuple[str, ...]] = {"bias": ("bias",), "requantise": ("mul", "add"), "lookup": ("table",), "clamp": ()}
ROWS = ("bias", "mul", "add")  # operands that have a value per channel, or one for all

ATTRIBUTES = ("epilogue", "shift", "low", "high", "even")  # of a node, that its stages bring

TYPES: dict[str, frozenset[DType]] = {
    "bias": frozenset({DType.INT32, DType.FLOAT32}),
    "mul": frozenset({DType.INT32}),
    "add": frozenset({DType.INT32, DType.INT64}),
    "table": frozenset({DType.INT8, DType.UINT8}),
}


def stage_operands(stages: tuple[str, ...]) -> tuple[str, ...]:
    """The operand names that the stages add, in node order."""
    return tuple(name for stage in stages for name in OPERANDS[stage])


def stage_maps(stages: tuple[str, ...], output: Map) -> dict[str, Map]:
    """Access maps of the stages' operands: the last axis of the output's map; a table is read whole."""
    last = output.axes[-1] if output.axes else Affine((), 0)
    return {name: Map(last) for name in stage_operands(stages) if name in ROWS}


def shift_right(wide: np.ndarray, shift: int, even: int | None) -> np.ndarray:
    """``wide >> shift``; where that is exact (a tie, since half is in ``wide``) and of the wrong parity, one less."""
    result = np.asarray(wide >> shift)
    if even is None:
        return result
    return np.asarray(result - ((result << shift == wide) & ((result - even) & 1 == 1)))


def constants_of(attrs: Attributes, suffix: str = "") -> tuple[int, int, int, int | None]:
    """The shift of a requantisation, both limits, and the parity that ties go to, by the attributes of these names and ``suffix``."""
    shift, low, high = (attrs[f"{name}{suffix}"] for name in ("shift", "low", "high"))
    return shift, low, high, attrs.get(f"even{suffix}")


def clip_shifted(attrs: Attributes, wide: np.ndarray, suffix: str = "") -> np.ndarray:
    """``clip(wide >> shift, low, high)`` in 64 bits by the attributes of these names and a ``suffix``; ``even`` may be absent."""
    shift, low, high, even = constants_of(attrs, suffix)
    return np.asarray(np.clip(shift_right(wide, shift, even), low, high))


def apply_stages(node: Node, accumulator: np.ndarray, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Apply the stages of ``node.epilogue`` to a body's result; the caller casts to the output type."""
    value = accumulator
    for stage in node.epilogue:
        if stage == "bias":
            value = value + arrays["bias"].astype(value.dtype)
        elif stage == "requantise":
            value = clip_shifted(node.attrs, value.astype(np.int64) * arrays["mul"].astype(np.int64) + arrays["add"].astype(np.int64))
        elif stage == "lookup":
            value = arrays["table"][value - node.attrs["low"]]
        else:
            low, high = (None if node.attrs[name] is None else np.asarray(node.attrs[name], value.dtype) for name in ("low", "high"))
            value = value if low is None and high is None else np.clip(value, low, high)
    return value.reshape(accumulator.shape)  # operands of one element do not give a scalar an axis
