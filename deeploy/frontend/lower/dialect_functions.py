"""The dialect's softmaxes, norms and functions (DIALECT semantics) as operators of the integer form.

A function of one 8-bit tensor becomes a table, and so does its requantisation. What the dialect states as scalar attributes
becomes constants here: tables, products, shifts. The ranges of these attributes were checked (``deeploy.frontend.validate``).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from deeploy.errors import ModelError, UnsupportedError
from deeploy.frontend.lower.quant import every_value, narrow_values
from deeploy.frontend.lower.rule_call import PLAIN
from deeploy.frontend.lower.tables import apply_operator
from deeploy.ir.nodes import Tensor, compute, constant
from deeploy.ir.rewriting import Match, Result, lowered, need, require, standard
from deeploy.ir.types import DType

_LEAST, _MOST = DType.INT32.range
# The function of the integer form, and which attributes are its constants a, b and c.
_FUNCTIONS = {"iGELU": ("gelu", "b", "one", ""), "iHardswish": ("hard_swish", "three", "six", "one_over_six")}
_integer = partial(standard, kind="iu", lowers=True)


def integer_exponentials(a: int, b: int, c: int, log2: int) -> np.ndarray:
    """iSoftmax's exponential of minus 0 to 255 steps: with z = clip(d // log2, 0, 31), (a*(z*log2 - d + b)^2 + c) >> z as uint32."""
    z = [min(d // log2, 31) for d in range(256)]
    return np.array([((a * (z[d] * log2 - d + b) ** 2 + c) >> z[d]) % 2**32 for d in range(256)], np.uint32)


def _find_shift(m: Match, divisor: int) -> int:
    """log2 of the divisor D, which must be a power of two."""
    if divisor & (divisor - 1):
        raise UnsupportedError(f"{m.node} divides by D = {divisor}", "It must be a power of two up to 2^62.")
    return divisor.bit_length() - 1


@_integer("iSoftmax")
def lower_softmax(m: Match, x: Tensor, *, n_levels: int, coeffA: int, coeffB: int, coeffC: int, log2: int) -> Tensor:
    table = constant(integer_exponentials(coeffA, coeffB, coeffC, log2), label="exponentials")
    return m.replace("Softmax", x, table, levels=n_levels - 1, zero_point=0, low=0, high=n_levels - 1, rounded=False)


@_integer("ITAMax", "ITAPartialMax")
def shift_softmax(m: Match, x: Tensor, *, n_levels: int, group_width: int = 0) -> Tensor:
    row = x.shape[-1]
    if m.op == "ITAMax":
        return m.replace("ShiftSoftmax", x, group=max(1, row), numerator=(n_levels - 1) * 256)
    if group_width > row:
        raise UnsupportedError(f"{m.node} takes groups of {group_width} from rows of {row}", "A row must hold one complete group.")
    return m.replace("ShiftSoftmax", x, group=group_width, numerator=(n_levels // 2 - 1) * 256)


@_integer("iLayerNorm", "iRMSNorm")
def lower_norm(m: Match, x: Tensor, *rows: Tensor, D: int) -> Tensor:
    n = x.shape[-1]
    for row in rows:
        if row.data is not None and row.elements not in (1, n):
            raise ModelError(f"{m.node} has {row.elements} weights for rows of {n}", "Give one per element of a row.")
    wide = (row if row.data is None else constant(np.broadcast_to(row.data.ravel(), n), DType.INT32) for row in rows)
    return m.replace(m.op.replace("i", "Integer", 1), x, *wide, shift=_find_shift(m, D))


@_integer("iNoNorm")
def no_norm(m: Match, x: Tensor, weight: Tensor, bias: Tensor, *, mul: int, D: int) -> Tensor:
    """((x*weight + bias)*mul) >> shift, without rounding or limits."""
    factor, summand = (tensor.data if tensor.data is None else tensor.data.astype(np.int64) * mul for tensor in (weight, bias))
    if factor is None or summand is None or np.abs(factor).max(initial=0) > _MOST:
        x = compute("Add", compute("Mul", x, weight, shape=m.y.shape, dtype=DType.INT32, **PLAIN), bias, shape=m.y.shape)
        factor, summand = np.array([mul]), np.zeros(1, np.int64)
    constants = constant(factor, DType.INT32), constant(narrow_values(summand))
    return m.replace("RequantShift", x, *constants, shift=_find_shift(m, D), low=_LEAST, high=_MOST)


@_integer(*_FUNCTIONS)
def lower_function(m: Match, x: Tensor) -> Tensor:
    """An integer function of the dialect; for 8-bit operands the table of its 256 results."""
    name, *constants = _FUNCTIONS[m.op]
    numbers = {key: m.attrs.get(attribute, 0) for key, attribute in zip("abc", constants, strict=True)}
    y = m.replace("IntegerFunction", x, function=name, **numbers)
    results = apply_operator(y.maker, every_value(x)) if y.maker is not None and x.dtype.bytes == 1 else None
    return y if results is None else m.replace("Lookup", x, constant(results, label="table"))


@_integer("TrueIntegerDiv")
def true_division(m: Match, x: Tensor, *, Delta: int, eta: int, y: int, eps: int) -> Tensor:
    """x * ((Delta*eta) // (y*eta + eps)): a product with a constant."""
    divisor = y * eta + eps
    if divisor == 0:
        raise ModelError(f"{m.node} divides by zero", "y*eta + eps must not be 0.")
    factor = Delta * eta // divisor
    if not DType.INT32.holds(factor, factor):
        raise UnsupportedError(f"{m.node} multiplies by {factor}", "The factor must fit 32 bits.")
    return m.replace("Mul", x, constant([factor], DType.INT32), **PLAIN)


@_integer("IntegerDiv")
def lower_division(m: Match, a: Tensor, b: Tensor, *, Delta: int, eta: int, eps: int) -> Tensor:
    factor, (dividend, divisor) = Delta * eta, (max(map(abs, tensor.dtype.range)) for tensor in (a, b))
    if max(dividend * abs(factor), divisor * abs(eta) + abs(eps)) >= 2**61:
        remedy = "Dividend and divisor must fit 62 bits; requantise the operands, or lower Delta and eta."
        raise UnsupportedError(f"{m.node} multiplies {a.dtype.name.lower()} by Delta*eta = {factor}", remedy)
    return m.replace("IntegerDiv", a, b, factor=factor, scale=eta, offset=eps)


@lowered("RequantShift")
def requantised_function(m: Match, x: Tensor, mul: Tensor, add: Tensor) -> Result:
    """The requantisation of a table is another table, that of a product with a number another requantisation."""
    source = need(m.only_source(x, "Lookup", "Mul"))
    x, factor, *_ = source.operands
    if source.op == "Lookup":
        return m.replace("Lookup", x, constant(need(apply_operator(m.node, need(factor.data))), label="table"))
    product = int(need(mul.number)) * int(need(factor.number))
    require(add.number is not None, x.rank == m.y.rank, not any(source.attrs[zero] for zero in PLAIN), abs(product) <= _MOST)
    return m.replace("RequantShift", x, constant([product], DType.INT32), add, **m.attrs)


RULES = (lower_softmax, shift_softmax, lower_norm, no_norm, lower_function, true_division, lower_division, requantised_function)
