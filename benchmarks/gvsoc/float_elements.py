"""What calibration fits the cycles of kernels on single floats to: see families.py."""

from __future__ import annotations

from benchmarks.gvsoc.elements import CLAMPED, ZEROS, each
from benchmarks.gvsoc.families import Family

FUNCTIONS = ("exp", "erf", "gelu", "gelu_tanh", "tanh", "sigmoid", "silu", "sqrt", "neg", "abs")
FLOAT_ELEMENTS = (
    *(
        Family(kernel, {name: each("Unary", "f32", "f32", {"function": name, "alpha": 0.5, "beta": 0.5}) for name in FUNCTIONS})
        for kernel in ("unary", "pulp_unary_floats")
    ),
    *(
        Family(
            f"pulp_{name.lower()}_floats",
            {form: each(name, ("f32", "f32"), "f32", attrs | (ZEROS if name == "Mul" else {})) for form, attrs in forms},
            ("rows",),
        )
        for forms in ((("", {}), ("clamp", CLAMPED)),)
        for name in ("Add", "Sub", "Mul")
    ),
)
