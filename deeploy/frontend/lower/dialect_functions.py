"""The dialect's softmaxes, norms and functions (DIALECT semantics) as operators of the integer form.

A function of one 8-bit tensor becomes a table, and so does its requantisation. What the dialect states as scalar attributes
becomes constants here: tables, products, shifts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.lower import build
from deeploy.frontend.lower.quant import limits, narrow
from deeploy.graph.epilogue import requantise
from deeploy.graph.rewrite import constant, only_consumer, producer, rule
from deeploy.operators import integer

INT32 = (-(2**31), 2**31 - 1)


def attribute(node: gs.Node, name: str) -> int:
    """A whole number that a dialect operator states; its range was checked (``deeploy.frontend.validate``)."""
    return int(node.attrs[name])


def exponent(node: gs.Node, name: str) -> int:
    """log2 of an attribute that must be a power of two."""
    value = attribute(node, name)
    if value & (value - 1):
        raise UnsupportedError(
            f"node {shorten(node.name)} ({node.op}) divides by {name} = {value}", "It must be a power of two up to 2^62."
        )
    return value.bit_length() - 1


def _replace(graph: gs.Graph, node: gs.Node, op: str, inputs: list[gs.Tensor], **attrs: object) -> bool:
    y = node.outputs[0]
    node.outputs.clear()
    build.add(graph, op, inputs, y, node.name, **attrs)
    return True


def exponentials(a: int, b: int, c: int, log2: int) -> np.ndarray:
    """iSoftmax's exponential of minus 0 to 255 steps: with z = clip(d // log2, 0, 31), (a*(z*log2 - d + b)^2 + c) >> z as uint32."""
    z = [min(d // log2, 31) for d in range(256)]
    return np.array([((a * (z[d] * log2 - d + b) ** 2 + c) >> z[d]) % 2**32 for d in range(256)], np.uint32)


def _softmax(graph: gs.Graph, node: gs.Node) -> bool:
    levels = attribute(node, "n_levels")
    a, b, c = (attribute(node, f"coeff{letter}") for letter in "ABC")
    table = build.const(f"{node.outputs[0].name} (exponentials)", exponentials(a, b, c, attribute(node, "log2")))
    attrs = {"levels": levels - 1, "zero_point": 0, "low": 0, "high": levels - 1, "rounded": False}
    return _replace(graph, node, "Softmax", [node.inputs[0], table], **attrs)


def _shift_softmax(graph: gs.Graph, node: gs.Node) -> bool:
    levels, row = attribute(node, "n_levels"), int(node.inputs[0].shape[-1])
    if node.op == "ITAMax":
        return _replace(graph, node, "ShiftSoftmax", [node.inputs[0]], group=max(1, row), numerator=(levels - 1) * 256)
    group = attribute(node, "group_width")
    if group > row:
        raise UnsupportedError(
            f"node {shorten(node.name)} ({node.op}) takes groups of {group} from rows of {row}", "A row must hold one complete group."
        )
    return _replace(graph, node, "ShiftSoftmax", [node.inputs[0]], group=group, numerator=(levels // 2 - 1) * 256)


def _norm(graph: gs.Graph, node: gs.Node) -> bool:
    op = {"iLayerNorm": "IntegerLayerNorm", "iRMSNorm": "IntegerRMSNorm"}[node.op]
    n = int(node.inputs[0].shape[-1])
    rows: list[gs.Tensor] = []
    for tensor in node.inputs[1:]:
        values = constant(tensor)
        if values is None:
            rows.append(tensor)
        elif values.size in (1, n):
            rows.append(build.const(f"{tensor.name} (row)", np.broadcast_to(values.ravel(), (n,)), np.int32))
        else:
            raise ModelError(
                f"node {shorten(node.name)} ({node.op}) has {values.size} weights for rows of {n}", "Give one per element of a row."
            )
    return _replace(graph, node, op, [node.inputs[0], *rows], shift=exponent(node, "D"))


def _no_norm(graph: gs.Graph, node: gs.Node) -> bool:
    """((x*weight + bias)*mul) >> shift, without rounding or limits."""
    x, weight, bias = node.inputs
    factor, y, shift = attribute(node, "mul"), node.outputs[0], exponent(node, "D")
    w, b = constant(weight), constant(bias)
    product = None if w is None else w.astype(np.int64) * factor
    ends = {"shift": shift, "low": INT32[0], "high": INT32[1]}
    if product is not None and b is not None and (not product.size or np.abs(product).max() < 2**31):
        parts = [build.const(f"{y.name} (mul)", product, np.int32), build.const(f"{y.name} (add)", narrow(b.astype(np.int64) * factor))]
        return _replace(graph, node, "RequantShift", [x, *parts], **ends)
    scaled, moved = (build.variable(f"{y.name} ({label})", np.int32, y.shape) for label in ("scaled", "moved"))
    build.add(graph, "Mul", [x, weight], scaled, a_zero_point=0, b_zero_point=0)
    build.add(graph, "Add", [scaled, bias], moved)
    parts = [build.const(f"{y.name} (mul)", [factor], np.int32), build.const(f"{y.name} (add)", [0], np.int32)]
    return _replace(graph, node, "RequantShift", [moved, *parts], **ends)


def _function(graph: gs.Graph, node: gs.Node) -> bool:
    """iGELU, iHardswish: a table for 8-bit operands."""
    x, y = node.inputs[0], node.outputs[0]
    if node.op == "iGELU":
        a, b, c, name = attribute(node, "b"), attribute(node, "one"), 0, "gelu"
    else:
        a, b, c, name = attribute(node, "three"), attribute(node, "six"), attribute(node, "one_over_six"), "hard_swish"
    if np.dtype(x.dtype).itemsize > 1:
        return _replace(graph, node, "IntegerFunction", [x], function=name, a=a, b=b, c=c)
    first, last = limits(x)
    values = np.arange(first, last + 1)
    table = integer.gelu(values, a, b) if name == "gelu" else integer.hard_swish(values, a, b, c)
    return _replace(graph, node, "Lookup", [x, build.const(f"{y.name} (table)", table, np.int32)])


def _true_div(graph: gs.Graph, node: gs.Node) -> bool:
    """x * ((Delta*eta) // (y*eta + eps)): a product with a constant."""
    delta, eta, divisor, epsilon = (attribute(node, name) for name in ("Delta", "eta", "y", "eps"))
    if divisor * eta + epsilon == 0:
        raise ModelError(f"node {shorten(node.name)} ({node.op}) divides by zero", "y*eta + eps must not be 0.")
    factor = (delta * eta) // (divisor * eta + epsilon)
    if not INT32[0] <= factor <= INT32[1]:
        raise UnsupportedError(f"node {shorten(node.name)} ({node.op}) multiplies by {factor}", "The factor must fit 32 bits.")
    number = build.const(f"{node.outputs[0].name} (factor)", [factor], np.int32)
    return _replace(graph, node, "Mul", [node.inputs[0], number], a_zero_point=0, b_zero_point=0)


def _div(graph: gs.Graph, node: gs.Node) -> bool:
    delta, eta, epsilon = (attribute(node, name) for name in ("Delta", "eta", "eps"))
    a, b = node.inputs
    sizes = [max(abs(end) for end in limits(t)) for t in (a, b)]
    if sizes[0] * abs(delta * eta) >= 2**61 or sizes[1] * abs(eta) + abs(epsilon) >= 2**61:
        raise UnsupportedError(
            f"node {shorten(node.name)} ({node.op}) multiplies {np.dtype(a.dtype).name} by Delta*eta = {delta * eta}",
            "Dividend and divisor must fit 62 bits; requantise the operands, or lower Delta and eta.",
        )
    return _replace(graph, node, "IntegerDiv", [a, b], factor=delta * eta, scale=eta, offset=epsilon)


_LOWERINGS: dict[str, Callable[[gs.Graph, gs.Node], bool]] = {
    "iSoftmax": _softmax,
    **dict.fromkeys(("ITAMax", "ITAPartialMax"), _shift_softmax),
    **dict.fromkeys(("iLayerNorm", "iRMSNorm"), _norm),
    "iNoNorm": _no_norm,
    **dict.fromkeys(("iGELU", "iHardswish"), _function),
    "TrueIntegerDiv": _true_div,
    "IntegerDiv": _div,
}


@rule(*_LOWERINGS)
def functions(graph: gs.Graph, node: gs.Node) -> bool:
    """Every operator by its own lowering."""
    return not build.lowered(node) and _LOWERINGS[node.op](graph, node)


def _scalars(node: gs.Node) -> tuple[int, int] | None:
    """Multiplier and summand of a requantisation with one of each."""
    mul, add = (constant(t) for t in node.inputs[1:3])
    if mul is None or add is None or mul.size != 1 or add.size != 1:
        return None
    return int(mul.item()), int(add.item())


@rule("RequantShift")
def requantised_function(graph: gs.Graph, node: gs.Node) -> bool:
    """The requantisation of a table is another table, that of a product with a number another requantisation."""
    found = _scalars(node) if build.lowered(node) else None
    source = producer(node.inputs[0])
    if found is None or source is None or not build.lowered(source) or only_consumer(graph, node.inputs[0]) is None:
        return False
    y, (mul, add) = node.outputs[0], found
    shift, low, high = node.attrs["shift"], node.attrs["low"], node.attrs["high"]
    values = constant(source.inputs[1]) if source.op in ("Lookup", "Mul") else None
    if values is None:
        return False
    if source.op == "Lookup":
        table = requantise(values, np.asarray(mul), np.asarray(add), shift, low, high).astype(y.dtype)
        return _replace(graph, node, "Lookup", [source.inputs[0], build.const(f"{y.name} (table)", table)])
    if values.size > 1 or abs(mul * int(values.ravel()[0])) >= 2**31 or any(source.attrs[f"{name}_zero_point"] for name in "ab"):
        return False
    x = source.inputs[0]
    if len(x.shape) != len(y.shape):
        return False
    factor = build.const(f"{y.name} (factor)", [mul * int(values.ravel()[0])], np.int32)
    return _replace(graph, node, "RequantShift", [x, factor, node.inputs[2]], **node.attrs)
