"""Kernels that work element by element, and those that move data."""

from __future__ import annotations

from collections.abc import Mapping

from deeploy.operators import coupling, dynamic, movement, scaled, trees
from deeploy.operators import elementwise as ew
from deeploy.target import BYTES, FEW, FLOAT, Kernel, Node, Operator, packed, types, variant

# What functions.h calls the functions whose own names mean something else in C.
_C_FUNCTIONS = {
    "tanh": "hyperbolic_tangent",
    "exp": "natural_exponential",
    "log": "natural_logarithm",
    "sqrt": "square_root",
    "erf": "error_function",
    "abs": "absolute",
    "neg": "negative",
    "reciprocal": "inverse",
    "pow": "power",
    "floor": "downwards",
    "ceil": "upwards",
    "round": "half_even",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tangent",
    "asin": "arc_sine",
    "acos": "arc_cosine",
    "atan": "arc_tangent",
    "sinh": "hyperbolic_sine",
    "cosh": "hyperbolic_cosine",
    "asinh": "area_sine",
    "acosh": "area_cosine",
    "atanh": "area_tangent",
    "sign": "sign_of",
}


def c_function(name: str) -> str:
    """What functions.h calls a function."""
    return _C_FUNCTIONS.get(name, name)


def _declare_function(node: Node) -> Mapping[str, str]:
    return {"FUNCTION": c_function(node.attrs["function"])}


def _declare_floats(kernel: Kernel) -> Kernel:
    return kernel.variant(kernel.name, types=dict.fromkeys(("a", "b", "y"), FLOAT), epilogues=((), ("clamp",)))


def _declare_binary(operator: Operator) -> Kernel:
    name = operator.name.lower()
    return operator.kernel(name, "portable/binary.c", settings=lambda node: {"operation": f"BINARY_{name.upper()}"})


def _sum_form(node: Node) -> dict[str, str]:
    """The macro of ``scaled_sum.c``."""
    form = scaled.of_node(node)
    assert form is not None
    return {"SUM_NARROW": variant("narrow", form.form == "narrow"), "SUM_HALVES": variant("halves", form.form == "halves")}


_BINARY = tuple(map(_declare_binary, (ew.ADD, ew.SUB, ew.MUL, ew.DIV)))

KERNELS: tuple[Kernel, ...] = (
    *_BINARY[:3],
    *map(_declare_floats, _BINARY),
    ew.SCALED_ADD.kernel(
        "scaled_sum",
        "portable/scaled_sum.c",
        (lambda node: scaled.of_node(node) is not None, "a sum that has a form in 32 bits"),
        macros=_sum_form,
    ),
    ew.SCALED_ADD.kernel("scaled_add", "portable/scaled_add.c"),
    ew.SCALED_DIV.kernel("scaled_div", "portable/scaled_div.c"),
    ew.REQUANT_SHIFT.kernel("requant_shift", "portable/requant_shift.c"),
    ew.LOOKUP.kernel("lookup", "portable/lookup.c"),
    ew.QUANTIZE.kernel("quantize", "portable/quantize.c"),
    ew.DEQUANTIZE.kernel("dequantize", "portable/dequantize.c"),
    dynamic.SCALE.kernel("dynamic_scale", "portable/dynamic_scale.c"),
    ew.CLIP.kernel("clip", "portable/clip.c"),
    ew.UNARY.kernel("unary", "portable/unary.c", macros=_declare_function),
    ew.COPY.kernel("copy", "portable/copy.c"),
    ew.CAST.kernel("cast", "portable/copy.c"),
    movement.PAD.kernel("pad", "portable/pad.c"),
    movement.GATHER.kernel(
        "gather_packed",
        "portable/gather.c",
        (movement.has_rows, "a constant table of rows"),
        types={"x": FEW, "indices": types("s32", "s64"), "y": BYTES},
        nest=packed(movement.gather_nest, "x"),
        constants=("x",),
    ),
    movement.GATHER.kernel("gather", "portable/gather.c"),
    trees.TREES.kernel("decision_trees", "portable/decision_trees.c"),
    coupling.COUPLING.kernel("pairwise_coupling", "portable/pairwise_coupling.c"),
)
