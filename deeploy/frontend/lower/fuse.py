"""Epilogues: bias, requantisation and clamping move into the operator in front of them."""

from __future__ import annotations

import numpy as np

from deeploy.frontend.lower.quant import narrow
from deeploy.graph.nodes import Node, Tensor, compute, constant
from deeploy.graph.rewriting import Match, Pass, Result, lowered
from deeploy.graph.types import DType

BYTES = (DType.INT8, DType.UINT8)
_SUMS = ("Add", "Sub", "Mul", "RequantAdd")
ACCUMULATING = ("Conv", "ConvTranspose", "MatMul", "BlockMatMul", "AveragePool", "ReduceSum", "ReduceMean", "IntegerMean", *_SUMS)
_MOVING = ("Reshape", "Transpose")
_SIGNED = (DType.INT8, DType.INT16, DType.INT32, DType.INT64)


def _accumulator(m: Match, tensor: Tensor) -> Node | None:
    """The accumulating operator, with nothing but a bias behind it, whose only reader this is."""
    node = m.only_source(tensor, *ACCUMULATING)
    return node if node is not None and node.epilogue in ((), ("bias",)) else None


def row(tensor: Tensor, result: Tensor) -> np.ndarray | None:
    """One value, or one per element of the result's last axis, as a flat array; None for other shapes and what is not constant."""
    values = tensor.data
    if values is not None and (values.size == 1 or values.shape[-1:] == result.shape[-1:] == (values.size,)):
        return values.ravel()
    return None


def scalars(node: Node) -> tuple[int, int, int, int, int, int] | None:
    """mul, add, shift, low, high and the parity of ties of a requantisation behind a body, where one value serves all."""
    (mul, add), attrs = (tensor.number for tensor in node.operands[-2:]), node.attrs
    if node.epilogue != ("requantise",) or mul is None or add is None:
        return None
    return int(mul), int(add), attrs["shift"], attrs["low"], attrs["high"], attrs.get("even", -1)


@lowered("Add")
def bias(m: Match) -> Result:
    """A constant row added to an accumulator."""
    for summed, other in () if m.node.epilogue else (m.inputs, m.inputs[::-1]):
        front, values = _accumulator(m, summed), row(other, m.y)
        if front is None or values is None or values.dtype.kind not in "iuf" or front.op in _SUMS or front.epilogue:
            continue
        if summed.shape == m.y.shape:
            return m.fuse(front, constant(values, DType.INT32 if values.dtype.kind in "iu" else DType.FLOAT32, "bias"), epilogue=("bias",))
    return None


@lowered("RequantShift")
def requantise(m: Match) -> Result:
    """A requantisation per tensor or per channel; a constant bias in front of it enters its summand."""
    front, mul, add = _accumulator(m, m.x), row(m.inputs[1], m.y), row(m.inputs[2], m.y)
    if (
        front is None
        or mul is None
        or add is None
        or m.y.dtype.bytes != 1
        or m.x.dtype not in (DType.INT8, DType.INT16, DType.INT32, DType.INT64)
    ):
        return None
    factor, summand = mul.astype(np.int64), add.astype(np.int64)
    if front.epilogue:
        values = front.operands[-1].data
        if values is None:
            return None
        summand = summand + values.astype(np.int64) * factor
    constants = constant(factor, DType.INT32, "mul"), constant(narrow(summand), label="add")
    stage = {name: m.attrs[name] for name in ("shift", "low", "high")}
    return m.fuse(front, *constants, kept=-1 if front.epilogue else None, epilogue=("requantise",), **stage)


@lowered("RequantShift", "Clip", "Lookup")
def before_views(m: Match) -> Result:
    """A requantisation with one multiplier moves in front of what only reorders an accumulator, limits and tables of what is reshaped."""
    is_requantised = m.op == "RequantShift"
    moving = _MOVING if is_requantised else ("Reshape",)
    view, tensor = m.source(m.x, *moving), m.x
    while (source := m.only_source(tensor, *moving)) is not None:
        tensor = source.operands[0]
    front = _accumulator(m, tensor) if m.op != "Lookup" else m.only_source(tensor, *ACCUMULATING)
    if view is None or front is None or (m.op == "Clip" and not m.y.dtype.is_float):
        return None
    if is_requantised and any(tensor.elements != 1 for tensor in m.inputs[1:]):
        return None
    return m.replace(view.op, compute(m.op, view.operands[0], *m.inputs[1:], dtype=m.y.dtype, **m.attrs), **view.attrs)


def _scale(m: Match, tensor: Tensor) -> tuple[Tensor, tuple[int, ...]] | None:
    """What a requantised summand is the requantisation of, and how: multiplier, summand, shift, limits."""
    node = m.only_source(tensor, "RequantShift")
    if node is None:
        return None
    x, mul, add = node.operands
    if x.dtype.bytes > 2 or x.shape != tensor.shape or mul.number is None or add.number is None:
        return None
    return x, (int(mul.number), int(add.number), *(node.attrs[name] for name in ("shift", "low", "high")))


@lowered("Add")
def requantised_sum(m: Match) -> Result:
    """A sum whose summands are requantised one by one, as residual connections have them."""
    found = [_scale(m, tensor) for tensor in m.inputs]
    if m.node.epilogue or m.y.dtype is not DType.INT32 or not any(found):
        return None
    if any(not tensor.dtype.is_integer or tensor.dtype.bytes > 4 for tensor in m.inputs):
        return None
    inputs: list[Tensor] = []
    attrs: dict[str, int] = {}
    for name, tensor, scale in zip("ab", m.inputs, found, strict=True):
        x, values = scale if scale is not None else (tensor, (1, 0, 0, *tensor.dtype.range))
        inputs.append(x)
        attrs |= {f"{field}_{name}": value for field, value in zip(("mul", "add", "shift", "low", "high"), values, strict=True)}
    return m.replace("RequantAdd", *inputs, **attrs)


@lowered("Clip")
def clamp(m: Match) -> Result:
    """A float Relu or Clip behind an accumulator."""
    front = _accumulator(m, m.x)
    if front is None or not m.y.dtype.is_float:
        return None
    return m.fuse(front, epilogue=(*front.epilogue, "clamp"), low=m.attrs["low"], high=m.attrs["high"])


@lowered("Mul")
def scaled(m: Match) -> Result:
    """Products of integers, converted to floats and scaled, are dequantised; what is subtracted of them is a zero point."""
    for x, scale in (m.inputs, m.inputs[::-1]) if not m.node.epilogue and all(t.dtype.is_float for t in m.inputs) else ():
        cast = m.only_source(x, "Cast")
        view = None if cast is None else m.only_source(cast.operands[0], "Reshape")
        summed = None if cast is None else (view or cast).operands[0]
        source = None if summed is None else m.only_source(summed, "Sub")
        if source is None or source.epilogue or source.outputs[0].dtype is not DType.INT32:
            continue
        total, correction = source.operands
        same = total.shape == source.outputs[0].shape and total.elements == m.y.elements
        fits = scale.elements == 1 if view is not None else len(scale.shape) <= len(m.y.shape)
        if same and fits and correction.maker is not None:
            step = scale.reshape([1]) if scale.elements == 1 else scale
            return compute("Dequantize", total, step, correction, dtype=DType.FLOAT32)
    return None


DYNAMIC = Pass("dynamic scales", (scaled,))
PASS = Pass("fuse", (bias, before_views, requantise, requantised_sum, clamp))
