"""The sweeps of kernels of floats with streaming registers, which examples/targets/snitch brings: see families.py."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gvsoc.elements import _floats, each, rows
from benchmarks.gvsoc.families import (
    FEW,
    IMAGES,
    LARGE_DEPTHWISE,
    LARGE_POINTWISE,
    MATMULS,
    VARYING,
    Family,
    _conv,
    _depthwise,
    _matmul,
    _varying,
    float_forms,
    floats,
)
from benchmarks.gvsoc.layer import Case


def even(forms: dict[str, list[Case]], operand: str, axis: int) -> dict[str, Sequence[Case]]:
    """The cases in which an operand has an even length along an axis."""
    return {form: [case for case in some if case.operands[operand].shape[axis] % 2 == 0] for form, some in forms.items()}


COLUMNS = ("m", "m n/32", "m n/32 k", "m n/8 k")
ROWS = ("m", "n/8", "m n/8", "m n/8 k")
FILTERS = ("oh", "oh ow k/32", "oh ow fh k/32", "oh ow fh fw c k/32", "oh ow fh fw c k/8")
BY_FOUR = ("oh", "k/4", "oh k/4", "oh ow/4 k/4", "oh ow k<4")
WIDE = ((30, 20, 8, 1), (6, 6, 128, 1), (20, 6, 48, 1))  # images of few channels, and small ones of many
ALL_AXES = ("d0", "d1", "d2", "d3")  # which cores divide in turn: within a run of elements, every part begins many
PAIRS = {"centred": True, "epsilon": 1e-5}

STREAMED = (
    Family("snitch_columns_constant", even(float_forms([*MATMULS, *FEW], _matmul), "b", 1), COLUMNS),
    Family("snitch_columns", even({"": floats(VARYING, _varying(False))}, "b", -1), ("rows", *COLUMNS)),
    Family("snitch_matmul", even(float_forms([*MATMULS, *FEW], _matmul), "a", 1), ROWS),
    Family("snitch_matmul_rows", even({"": floats(VARYING, _varying(True))}, "a", -1), ("rows", *ROWS)),
    Family("snitch_conv2d", even(float_forms([*IMAGES, *LARGE_POINTWISE], _conv), "w", 0), FILTERS),
    Family("snitch_depthwise", even(float_forms([*LARGE_DEPTHWISE, *WIDE], _depthwise), "w", 0), BY_FOUR, divided=("k", "oh")),
    Family("snitch_normalise", {"": rows("Normalise", "f32", "f32", PAIRS, scale=_floats, offset=_floats)}, ("rows",)),
    Family("snitch_softmax", {"": rows("Softmax", "f32", "f32", {})}, ("rows",)),
    *(
        Family(f"snitch_{op.lower()}", {"": each(op, ("f32", "f32"), "f32", {})}, ("runs",), divided=ALL_AXES)
        for op in ("Add", "Sub", "Mul")
    ),
    Family(
        "snitch_unary",
        {name: each("Unary", "f32", "f32", {"function": name, "alpha": 1.0, "beta": 0.0}) for name in ("gelu", "tanh", "exp", "affine")},
        ("runs",),
        divided=ALL_AXES,
    ),
    Family("snitch_clip", {"": each("Clip", "f32", "f32", {"low": 0.0, "high": 6.0})}, ("runs",), divided=ALL_AXES),
)
