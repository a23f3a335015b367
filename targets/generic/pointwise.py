"""Kernels that work element by element, and those that move data."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deeploy.operators import elementwise as ew
from deeploy.operators import movement, rows
from deeploy.target import DType, Kernel, Node, types

BYTES = types("s8", "u8")
INTEGERS = types("s8", "u8", "s16", "u16", "s32")
ANY = frozenset(DType)
FLOAT = types("f32")
ROW = 1  # the last axis is dense
STRIDED = 0  # any stride on any axis


def _elementwise(
    name: str,
    op: str,
    inputs: tuple[str, ...],
    accepted: Mapping[str, frozenset[DType]],
    reference: Callable[..., object],
    *,
    source: str | None = None,
    overwrites: tuple[str, ...] = (),
    epilogues: tuple[tuple[str, ...], ...] = ((),),
    strided: int = STRIDED,
    macros: Callable[[Node], Mapping[str, str]] | None = None,
    constants: tuple[str, ...] = (),
    accepts: Callable[[Node], str | None] = ew.fits_loops,
) -> Kernel:
    """A kernel whose operands all follow the output's axes; ``overwrites`` names inputs that the output may replace."""
    mapped = tuple(operand for operand in inputs if operand != "table")
    return Kernel(
        name=name,
        op=op,
        inputs=inputs,
        types=accepted,
        nest=ew.nest(*mapped),
        accepts=accepts,
        epilogues=epilogues,
        strided={**dict.fromkeys(mapped, STRIDED), "y": strided},
        overwrites=tuple(("y", operand) for operand in overwrites),
        constants=constants,
        macros=macros,
        source=f"portable/{source or name}.c",
        template=f"{source or name}.mako",
        reference=reference,
    )


def _binary(op: str, reference: Callable[..., object]) -> tuple[Kernel, ...]:
    stages: tuple[tuple[str, ...], ...] = ((), ("requantise",), ("clamp",))
    integer = _elementwise(
        f"{op.lower()}",
        op,
        ("a", "b"),
        {"a": INTEGERS, "b": INTEGERS, "y": types("s8", "u8", "s32")},
        reference,
        source="binary",
        overwrites=("a", "b"),
        epilogues=stages,
        strided=ROW,
    )
    floating = _elementwise(
        f"{op.lower()}",
        op,
        ("a", "b"),
        {"a": FLOAT, "b": FLOAT, "y": FLOAT},
        reference,
        source="binary",
        overwrites=("a", "b"),
        epilogues=((), ("clamp",)),
        strided=ROW,
    )
    return (floating,) if op == "Div" else (integer, floating)


def _function(node: Node) -> Mapping[str, str]:
    return {"FUNCTION": _C_FUNCTIONS.get(node.attrs["function"], node.attrs["function"])}


# What unary.c calls the functions whose own names mean something else in C.
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


_PARAMETERS = {"scale": FLOAT, "zero_point": types("s32")}
_BYTES_OUT = {"a": BYTES, "b": BYTES, "y": BYTES}


def _converts(node: Node) -> str | None:
    """Types between which C converts as ONNX does: to bool, it keeps the low bits."""
    x, y = node.inputs[0], node.outputs[0]
    if x is not None and y.dtype is DType.BOOL and x.dtype is not DType.BOOL:
        return "y of another type than bool, or x of type bool"
    return ew.fits_loops(node)


def _keeps_type(node: Node) -> str | None:
    x = node.inputs[0]
    return None if x is not None and x.dtype is node.outputs[0].dtype else "y of the type of x"


def _same_type(op: str, name: str, accepted: frozenset[DType], reference: Callable[..., object]) -> tuple[Kernel, ...]:
    """One declaration per element type, since input and output have the same one."""
    return tuple(
        _elementwise(name, op, ("x",), {"x": frozenset({t}), "y": frozenset({t})}, reference, overwrites=("x",))
        for t in sorted(accepted, key=lambda t: t.value)
    )


KERNELS = (
    *_binary("Add", ew.add_reference),
    *_binary("Sub", ew.sub_reference),
    *_binary("Mul", ew.mul_reference),
    *_binary("Div", ew.div_reference),
    _elementwise("scaled_add", "ScaledAdd", ("a", "b"), _BYTES_OUT, ew.scaled_add_reference, overwrites=("a", "b")),
    _elementwise("scaled_div", "ScaledDiv", ("a", "b"), _BYTES_OUT, ew.scaled_div_reference, overwrites=("a", "b")),
    _elementwise(
        "requant_shift",
        "RequantShift",
        ("x", "mul", "add"),
        {"x": INTEGERS, "mul": types("s32"), "add": types("s32", "s64"), "y": INTEGERS},
        ew.requant_reference,
        overwrites=("x",),
    ),
    _elementwise("lookup", "Lookup", ("x", "table"), {"x": BYTES, "y": ANY}, ew.lookup_reference, overwrites=("x",), constants=("table",)),
    _elementwise("quantize", "Quantize", ("x", "scale", "zero_point"), {"x": FLOAT, **_PARAMETERS, "y": INTEGERS}, ew.quantize_reference),
    _elementwise(
        "dequantize", "Dequantize", ("x", "scale", "zero_point"), {"x": INTEGERS, **_PARAMETERS, "y": FLOAT}, ew.dequantize_reference
    ),
    *_same_type("Clip", "clip", INTEGERS | FLOAT, ew.clip_reference),
    _elementwise("unary", "Unary", ("x",), {"x": FLOAT, "y": FLOAT}, ew.unary_reference, overwrites=("x",), macros=_function),
    _elementwise("copy", "Copy", ("x",), {"x": ANY, "y": ANY}, ew.cast_reference, accepts=_converts),
    _elementwise("cast", "Cast", ("x",), {"x": ANY, "y": ANY}, ew.cast_reference, source="copy", accepts=_converts),
    Kernel(
        name="softmax",
        op="Softmax",
        inputs=("x",),
        types={"x": FLOAT, "y": FLOAT},
        nest=rows.nest(),
        accepts=ew.fits_loops,
        strided={"x": ROW, "y": ROW},
        overwrites=(("y", "x"),),
        source="portable/softmax.c",
        template="softmax.mako",
        reference=rows.softmax_reference,
    ),
    Kernel(
        name="pad",
        op="Pad",
        inputs=("x",),
        types={"x": ANY, "y": ANY},
        nest=movement.pad_nest,
        accepts=lambda node: _keeps_type(node) or ew.fits_loops(node),
        strided={"x": STRIDED, "y": STRIDED},
        source="portable/pad.c",
        template="pad.mako",
        reference=movement.pad_reference,
    ),
    Kernel(
        name="gather",
        op="Gather",
        inputs=("x", "indices"),
        types={"x": ANY, "indices": types("s32", "s64"), "y": ANY},
        nest=movement.gather_nest,
        accepts=_keeps_type,
        source="portable/gather.c",
        template="gather.mako",
        reference=movement.gather_reference,
    ),
)
