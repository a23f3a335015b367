"""The dialect's softmaxes, norms and functions (DIALECT semantics) as operators of the integer form.

A function of one 8-bit tensor becomes a table, and so does its requantisation. What the dialect states as scalar attributes
becomes constants here: tables, products, shifts.
"""

from __future__ import annotations

import numpy as np

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.lower.call import PLAIN
from deeploy.frontend.lower.quant import limits, narrow
from deeploy.frontend.lower.rewriter import Rewriter, lowered, standard
from deeploy.frontend.lower.tables import applied
from deeploy.frontend.schemas import Attributes
from deeploy.graph.rewrite import constant
from deeploy.operators import integer

INT32 = (-(2**31), 2**31 - 1)


def exponentials(a: int, b: int, c: int, log2: int) -> np.ndarray:
    """iSoftmax's exponential of minus 0 to 255 steps: with z = clip(d // log2, 0, 31), (a*(z*log2 - d + b)^2 + c) >> z as uint32."""
    z = [min(d // log2, 31) for d in range(256)]
    return np.array([((a * (z[d] * log2 - d + b) ** 2 + c) >> z[d]) % 2**32 for d in range(256)], np.uint32)


def _attributes(rw: Rewriter, *names: str) -> list[int]:
    """Whole numbers that a dialect operator states; their ranges were checked (``deeploy.frontend.validate``)."""
    return [int(rw.attrs[name]) for name in names]


def _refused(rw: Rewriter, what: str, remedy: str) -> UnsupportedError:
    return UnsupportedError(f"node {shorten(rw.node.name)} ({rw.op}) {what}", remedy)


def _shift(rw: Rewriter) -> int:
    """log2 of the divisor D, which must be a power of two."""
    (value,) = _attributes(rw, "D")
    if value & (value - 1):
        raise _refused(rw, f"divides by D = {value}", "It must be a power of two up to 2^62.")
    return value.bit_length() - 1


@standard("iSoftmax", kind="iu", lowers=True)
def softmax(rw: Rewriter) -> bool:
    levels, a, b, c, log2 = _attributes(rw, "n_levels", "coeffA", "coeffB", "coeffC", "log2")
    attrs: Attributes = {"levels": levels - 1, "zero_point": 0, "low": 0, "high": levels - 1, "rounded": False}
    return rw.replace("Softmax", rw.x, rw.constant(exponentials(a, b, c, log2), label="exponentials"), **attrs)


@standard("ITAMax", "ITAPartialMax", kind="iu", lowers=True)
def shift_softmax(rw: Rewriter) -> bool:
    (levels,), row = _attributes(rw, "n_levels"), int(rw.x.shape[-1])
    if rw.op == "ITAMax":
        return rw.replace("ShiftSoftmax", rw.x, group=max(1, row), numerator=(levels - 1) * 256)
    (group,) = _attributes(rw, "group_width")
    if group > row:
        raise _refused(rw, f"takes groups of {group} from rows of {row}", "A row must hold one complete group.")
    return rw.replace("ShiftSoftmax", rw.x, group=group, numerator=(levels // 2 - 1) * 256)


@standard("iLayerNorm", "iRMSNorm", kind="iu", lowers=True)
def norm(rw: Rewriter) -> bool:
    n, rows = int(rw.x.shape[-1]), rw.node.inputs[1:]
    for position, values in enumerate(map(constant, rows)):
        if values is not None and values.size not in (1, n):
            raise ModelError(
                f"node {shorten(rw.node.name)} ({rw.op}) has {values.size} weights for rows of {n}", "Give one per element of a row."
            )
        if values is not None:
            rows[position] = rw.constant(np.broadcast_to(values.ravel(), (n,)), np.int32)
    return rw.replace(rw.op.replace("i", "Integer", 1), rw.x, *rows, shift=_shift(rw))


@standard("iNoNorm", kind="iu", lowers=True)
def no_norm(rw: Rewriter) -> bool:
    """((x*weight + bias)*mul) >> shift, without rounding or limits."""
    x, weight, bias = rw.node.inputs
    (factor,), w, b = _attributes(rw, "mul"), constant(weight), constant(bias)
    ends: Attributes = {"shift": _shift(rw), "low": INT32[0], "high": INT32[1]}
    product = None if w is None else w.astype(np.int64) * factor
    if product is not None and b is not None and (not product.size or np.abs(product).max() < 2**31):
        return rw.replace("RequantShift", x, rw.constant(product, np.int32), rw.constant(narrow(b.astype(np.int64) * factor)), **ends)
    scaled = rw.create("Mul", x, weight, shape=rw.y.shape, dtype=np.int32, **PLAIN)
    moved = rw.create("Add", scaled, bias, shape=rw.y.shape)
    return rw.replace("RequantShift", moved, rw.constant([factor], np.int32), rw.constant([0], np.int32), **ends)


@standard("iGELU", "iHardswish", kind="iu", lowers=True)
def function(rw: Rewriter) -> bool:
    """A table for 8-bit operands."""
    is_gelu = rw.op == "iGELU"
    a, b, c = (*_attributes(rw, "b", "one"), 0) if is_gelu else _attributes(rw, "three", "six", "one_over_six")
    if np.dtype(rw.x.dtype).itemsize > 1:
        return rw.replace("IntegerFunction", rw.x, function="gelu" if is_gelu else "hard_swish", a=a, b=b, c=c)
    first, last = limits(rw.x)
    values = np.arange(first, last + 1)
    table = integer.gelu(values, a, b) if is_gelu else integer.hard_swish(values, a, b, c)
    return rw.replace("Lookup", rw.x, rw.constant(table, np.int32, "table"))


@standard("TrueIntegerDiv", kind="iu", lowers=True)
def true_division(rw: Rewriter) -> bool:
    """x * ((Delta*eta) // (y*eta + eps)): a product with a constant."""
    delta, eta, divisor, epsilon = _attributes(rw, "Delta", "eta", "y", "eps")
    if divisor * eta + epsilon == 0:
        raise ModelError(f"node {shorten(rw.node.name)} ({rw.op}) divides by zero", "y*eta + eps must not be 0.")
    factor = (delta * eta) // (divisor * eta + epsilon)
    if not INT32[0] <= factor <= INT32[1]:
        raise _refused(rw, f"multiplies by {factor}", "The factor must fit 32 bits.")
    return rw.replace("Mul", rw.x, rw.constant([factor], np.int32), **PLAIN)


@standard("IntegerDiv", kind="iu", lowers=True)
def division(rw: Rewriter) -> bool:
    delta, eta, epsilon = _attributes(rw, "Delta", "eta", "eps")
    a, b = rw.node.inputs
    sizes = [max(abs(end) for end in limits(t)) for t in (a, b)]
    if sizes[0] * abs(delta * eta) >= 2**61 or sizes[1] * abs(eta) + abs(epsilon) >= 2**61:
        remedy = "Dividend and divisor must fit 62 bits; requantise the operands, or lower Delta and eta."
        raise _refused(rw, f"multiplies {np.dtype(a.dtype).name} by Delta*eta = {delta * eta}", remedy)
    return rw.replace("IntegerDiv", a, b, factor=delta * eta, scale=eta, offset=epsilon)


@lowered("RequantShift")
def requantised_function(rw: Rewriter) -> bool:
    """The requantisation of a table is another table, that of a product with a number another requantisation."""
    source = rw.only_source(rw.x, "Lookup", "Mul")
    values = None if source is None else constant(source.inputs[1])
    if source is None or values is None:
        return False
    x = source.inputs[0]
    if source.op == "Lookup":
        results = applied(rw.node, values)
        return results is not None and rw.replace("Lookup", x, rw.constant(results, label="table"))
    mul, add = rw.value(1), rw.value(2)
    if mul is None or add is None or mul.size != 1 or add.size != 1 or values.size != 1 or len(x.shape) != len(rw.y.shape):
        return False
    factor = int(mul.item()) * int(values.item())
    if abs(factor) >= 2**31 or any(source.attrs[f"{name}_zero_point"] for name in "ab"):
        return False
    return rw.replace("RequantShift", x, rw.constant([factor], np.int32), rw.node.inputs[2], **rw.attrs)


RULES = (softmax, shift_softmax, norm, no_norm, function, true_division, division, requantised_function)
