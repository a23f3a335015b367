"""Epilogues: bias, requantisation and clamping move into the operator in front of them."""

from __future__ import annotations

import numpy as np

from deeploy.frontend.lower.quant import requantisation_operands
from deeploy.ir.nodes import Node, Tensor, compute, constant
from deeploy.ir.rewriting import Match, Pass, Result, lowered, need, require
from deeploy.ir.types import DType
from deeploy.operators.table import OPERATORS

ACCUMULATING = {op: operator.usual["epilogues"] for op, operator in OPERATORS.items() if len(operator.usual.get("epilogues", ())) > 1}
_STAGE = ("shift", "low", "high")  # attributes of a requantisation
_SIGNED = (DType.INT8, DType.INT16, DType.INT32, DType.INT64)


def _find_accumulator(m: Match, tensor: Tensor) -> Node | None:
    """The accumulating operator, with nothing but a bias behind it, whose only reader this is."""
    node = m.only_source(tensor, *ACCUMULATING)
    return node if node and node.epilogue in ((), ("bias",)) else None


def find_row(tensor: Tensor, result: Tensor) -> np.ndarray | None:
    """One value, or one per element of the result's last axis, as a flat array; None for other shapes and what is not constant."""
    values = tensor.data
    if values is not None and (values.size == 1 or values.shape[-1:] == result.shape[-1:] == (values.size,)):
        return values.ravel()
    return None


def requantisation_scalars(node: Node) -> tuple[int, int, int, int, int, int]:
    """mul, add, shift, low, high and the parity of ties of a requantisation behind a body, where one value serves all."""
    (mul, add), attrs = (tensor.number for tensor in node.operands[-2:]), node.attrs
    require(node.epilogue == ("requantise",))
    return int(need(mul)), int(need(add)), attrs["shift"], attrs["low"], attrs["high"], attrs.get("even", -1)


@lowered("Add", commutes=True)
def fuse_bias(m: Match, summed: Tensor, other: Tensor) -> Result:
    """A constant row added to an accumulator."""
    front, values = need(_find_accumulator(m, summed)), need(find_row(other, m.y))
    require(not m.node.epilogue, ("bias",) in ACCUMULATING[front.op])
    require(summed.shape == m.y.shape, values.dtype.kind in "iuf")
    dtype = DType.INT32 if values.dtype.kind in "iu" else DType.FLOAT32
    if front.epilogue:  # a second one, which enters that of an integer
        require(dtype is DType.INT32)
        values = need(front.operands[-1].data).astype(np.int64) + values
        require(dtype.holds(values.min(), values.max()))
    return m.fuse(front, constant(values, dtype, "bias"), leading=-1 if front.epilogue else None, epilogue=("bias",))


@lowered("RequantShift")
def fuse_requantisation(m: Match) -> Result:
    """A requantisation per tensor or per channel; a constant bias in front of it enters its summand."""
    front, (mul, add) = need(_find_accumulator(m, m.x)), (need(find_row(tensor, m.y)).astype(np.int64) for tensor in m.inputs[1:])
    require(m.y.dtype.bytes == 1, m.x.dtype in _SIGNED)
    if front.epilogue:
        add = add + need(front.operands[-1].data).astype(np.int64) * mul
    stage = {name: m.attrs[name] for name in _STAGE}
    return m.fuse(front, *requantisation_operands(mul, add), leading=-1 if front.epilogue else None, epilogue=("requantise",), **stage)


@lowered("RequantShift", "Clip", "Lookup")
def before_views(m: Match) -> Result:
    """A requantisation with one multiplier moves in front of what only reorders an accumulator, limits and tables of what is reshaped."""
    views, tensor = m.views(m.x)
    view, is_requantised = need(m.source(m.x, "Reshape", "Transpose")), m.op == "RequantShift"
    need(m.only_source(tensor, *ACCUMULATING) if m.op == "Lookup" else _find_accumulator(m, tensor))
    require(m.op != "Clip" or m.y.dtype.is_float, is_requantised or all(node.op == "Reshape" for node in views))
    require(not is_requantised or all(tensor.elements == 1 for tensor in m.inputs[1:]))
    return m.replace(view.op, compute(m.op, view.operands[0], *m.inputs[1:], dtype=m.y.dtype, **m.attrs), **view.attrs)


def _find_scale(m: Match, tensor: Tensor) -> tuple[Tensor, tuple[int, ...]] | None:
    """What a requantised summand is the requantisation of, and how: multiplier, summand, shift, limits."""
    node = m.only_source(tensor, "RequantShift")
    x, *constants = (tensor,) if node is None else node.operands
    numbers = [int(one.number) for one in constants if one.number is not None]
    if node is None or len(numbers) < 2 or x.dtype.bytes > 2 or x.shape != tensor.shape:
        return None
    return x, (*numbers, *(node.attrs[name] for name in _STAGE))


@lowered("Add")
def requantised_sum(m: Match) -> Result:
    """A sum whose summands are requantised one by one, as residual connections have them."""
    parts, inputs, attrs = [_find_scale(m, tensor) for tensor in m.inputs], list[Tensor](), dict[str, int]()
    require(not m.node.epilogue, m.y.dtype is DType.INT32, any(parts))
    require(all(tensor.dtype.is_integer and tensor.dtype.bytes < 5 for tensor in m.inputs))
    for name, tensor, part in zip("ab", m.inputs, parts, strict=True):
        x, values = part or (tensor, (1, 0, 0, *tensor.dtype.range))
        inputs.append(x)
        attrs |= {f"{field}_{name}": value for field, value in zip(("mul", "add", *_STAGE), values, strict=True)}
    return m.replace("RequantAdd", *inputs, **attrs)


@lowered("Clip")
def fuse_limits(m: Match) -> Result:
    """A float Relu or Clip behind an accumulator."""
    front = need(_find_accumulator(m, m.x))
    require(m.y.dtype.is_float)
    return m.fuse(front, epilogue=(*front.epilogue, "clamp"), low=m.attrs["low"], high=m.attrs["high"])


@lowered("Mul", kind="f", commutes=True)
def fuse_scale(m: Match, x: Tensor, scale: Tensor) -> Result:
    """Products of integers, converted to floats and scaled, are dequantised; what is subtracted of them is a zero point."""
    cast = need(m.only_source(x, "Cast"))
    view = m.only_source(cast.operands[0], "Reshape")
    source = need(m.only_source((view or cast).operands[0], "Sub"))
    (total, correction, *_), difference = source.operands, source.outputs[0]
    require(not m.node.epilogue, not source.epilogue, difference.dtype is DType.INT32, correction.maker)
    require(total.shape == difference.shape, total.elements == m.y.elements)
    require(scale.elements == 1 if view else scale.rank <= m.y.rank)
    return compute("Dequantize", total, scale.reshape([1]) if scale.elements == 1 else scale, correction, dtype=DType.FLOAT32)


DYNAMIC = Pass("dynamic scales", (fuse_scale,))
PASS = Pass("fuse", (fuse_bias, before_views, fuse_requantisation, requantised_sum, fuse_limits))
