"""Rotary embedding: x * cos + concat(-second half, first half) * sin as one operator, in floats and in integers.

Pairs may also lie side by side: then the turned tensor is stack(-odd elements, even elements), along a new axis that is flattened.

Files spell it out in slices, a negation, a concatenation, two products and a sum, each of which a quantised graph requantises. Nothing
of that has to exist in memory: ``Rotate`` does the same steps for one pair of elements after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.graph.epilogue import requantise
from deeploy.graph.rewrite import Pass, constant, only_consumer, producer, rule

_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
_LONGEST = 8  # functions between a half and the concatenation


@dataclass(frozen=True)
class _Product:
    """A product of a variable and cosines or sines; ``constants`` as ``deeploy.operators.rotate.product`` has them."""

    x: gs.Tensor
    factor: gs.Tensor
    constants: tuple[int, ...]


def _lowered(tensor: gs.Tensor, op: str) -> gs.Node | None:
    node = producer(tensor, op)
    return node if node is not None and build.lowered(node) else None


def _scalars(node: gs.Node) -> tuple[int, int, int, int, int, int] | None:
    """mul, add, shift, low, high and the parity of ties of a requantisation behind a body, where one value serves all."""
    if tuple(node.attrs.get("epilogue", ())) != ("requantise",):
        return None
    mul, add = (constant(t) for t in node.inputs[-2:])
    if mul is None or add is None or mul.size != 1 or add.size != 1:
        return None
    attrs = node.attrs
    return int(mul.ravel()[0]), int(add.ravel()[0]), attrs["shift"], attrs["low"], attrs["high"], attrs.get("even", -1)


def _products(graph: gs.Graph, tensor: gs.Tensor) -> list[_Product]:
    """What ``tensor`` is the product of, with either operand as the variable."""
    node = _lowered(tensor, "Mul")
    if node is None or only_consumer(graph, tensor) is None:
        return []
    a, b = node.inputs[:2]
    if np.dtype(tensor.dtype).kind == "f":
        return [_Product(a, b, ()), _Product(b, a, ())] if not node.attrs.get("epilogue") else []
    found = _scalars(node)
    if found is None or any(np.dtype(t.dtype) not in _BYTES for t in (a, b, tensor)):
        return []
    zeros = int(node.attrs["a_zero_point"]), int(node.attrs["b_zero_point"])
    return [_Product(a, b, (*zeros, *found)), _Product(b, a, (*zeros[::-1], *found))]


def _sum(node: gs.Node) -> tuple[int, ...] | None:
    """mul_a, mul_b, add, shift, low, high and the parity of ties of a sum; nothing for floats."""
    attrs = node.attrs
    if node.op == "ScaledAdd":
        return (*(int(attrs[name]) for name in ("mul_a", "mul_b", "add", "shift", "low", "high")), int(attrs.get("even", -1)))
    if np.dtype(node.outputs[0].dtype).kind == "f":
        return () if not attrs.get("epilogue") else None
    found = _scalars(node)
    return None if found is None or np.dtype(node.outputs[0].dtype) not in _BYTES else (found[0], *found)


def _half(graph: gs.Graph, tensor: gs.Tensor, x: gs.Tensor, second: bool, interleaved: bool) -> np.ndarray | None:
    """What a part of the turned tensor is for every value of the half of ``x`` that it comes from; the sign alone for floats."""
    chain: list[gs.Node] = []
    while (node := producer(tensor)) is not None and node.op != "Slice" and len(chain) < _LONGEST:
        if only_consumer(graph, tensor) is None:
            return None
        if interleaved and node.op == "Reshape" and list(node.outputs[0].shape) == [*node.inputs[0].shape, 1]:
            tensor = node.inputs[0]
            continue
        if not build.lowered(node):
            return None
        chain.insert(0, node)
        variables = [t for t in node.inputs if not isinstance(t, gs.Constant)]
        if len(variables) != 1:
            return None
        tensor = variables[0]
    cut = _lowered(tensor, "Slice")
    if cut is None or cut.inputs[0] is not x or not _is_half(cut, second, interleaved):
        return None
    if np.dtype(x.dtype).kind == "f":
        return np.array([(-1) ** len(chain)]) if all(n.op == "Unary" and n.attrs["function"] == "neg" for n in chain) else None
    info = np.iinfo(x.dtype)
    values: np.ndarray | None = np.arange(info.min, info.max + 1)
    dtype = np.dtype(x.dtype)
    for node in chain:
        values, dtype = (None if values is None else _applied(node, values, dtype)), np.dtype(node.outputs[0].dtype)
    return None if values is None or dtype not in _BYTES else values.astype(dtype)


def _is_half(cut: gs.Node, second: bool, interleaved: bool) -> bool:
    """Whether a Slice takes one of the halves of rows, or every other element from the first or the second on."""
    shape = [int(n) for n in cut.inputs[0].shape]
    step, last = 2 if interleaved else 1, len(shape) - 1
    begin = int(second) if interleaved else second * shape[-1] // 2
    wanted = range(shape[-1])[begin::2] if interleaved else range(begin, begin + shape[-1] // 2)
    starts, ends, steps = (list(cut.attrs[name]) for name in ("starts", "ends", "steps"))
    is_whole = starts[:last] == [0] * last and ends[:last] == shape[:last] and set(steps[:last]) <= {1}
    return is_whole and steps[last] == step and range(starts[last], ends[last], step) == wanted


def _applied(node: gs.Node, values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray | None:
    """The results of an elementwise function of integers with constants of one value each, for every value of type ``dtype``."""
    constants = [constant(t) for t in node.inputs]
    if node.op == "Lookup" and constants[1] is not None and dtype in _BYTES:
        return np.asarray(constants[1].astype(np.int64)[values - np.iinfo(dtype).min])
    if any(c is not None and c.size != 1 for c in constants):
        return None
    numbers = [None if c is None else c.astype(np.int64).reshape(()) for c in constants]
    attrs = node.attrs
    if node.op == "RequantShift" and numbers[1] is not None and numbers[2] is not None:
        return requantise(values, numbers[1], numbers[2], attrs["shift"], attrs["low"], attrs["high"])
    scale = _scalars(node)
    if node.op != "Mul" or scale is None:
        return None
    a, b = (values if n is None else n for n in numbers[:2])
    mul, add, shift, low, high, even = scale
    product = (a - attrs["a_zero_point"]) * (b - attrs["b_zero_point"])
    return requantise(product, np.asarray(mul), np.asarray(add), shift, low, high, None if even < 0 else even)


def _turned(graph: gs.Graph, tensor: gs.Tensor, x: gs.Tensor) -> tuple[np.ndarray, bool] | None:
    """How ``tensor`` is turned from ``x``, and whether pairs lie side by side.

    Row 0: what it has for every value of the second half of ``x`` in its first half; row 1: the other way round.
    """
    if x.shape[-1] % 2 or list(tensor.shape) != list(x.shape) or only_consumer(graph, tensor) is None:
        return None
    flat = producer(tensor, "Reshape")
    joined = _lowered(tensor if flat is None else flat.inputs[0], "Concat")
    last = len(x.shape) - 1
    if joined is None or only_consumer(graph, joined.outputs[0]) is None or len(joined.inputs) != 2:
        return None
    if joined.attrs["axis"] != last + (flat is not None) or (flat is not None and len(joined.outputs[0].shape) != last + 2):
        return None
    parts = [_half(graph, part, x, second, flat is not None) for part, second in zip(joined.inputs, (True, False), strict=True)]
    return None if parts[0] is None or parts[1] is None else (np.stack([parts[0], parts[1]]), flat is not None)


@rule("ScaledAdd", "Add")
def rotary(graph: gs.Graph, node: gs.Node) -> bool:
    """The sum of a tensor times cosines and of its halves, exchanged and one of them negated, times sines."""
    y, total = node.outputs[0], _sum(node) if build.lowered(node) else None
    if total is None:
        return False
    for straight, crossed in ((0, 1), (1, 0)):
        for c in _products(graph, node.inputs[straight]):
            for s in _products(graph, node.inputs[crossed]):
                turned = _turned(graph, s.x, c.x) if list(c.x.shape) == list(y.shape) else None
                if turned is None or (not total and turned[0].ravel().tolist() != [-1, 1]):
                    continue
                factors = total if straight == 0 or not total else (total[1], total[0], *total[2:])
                _replace(graph, node, (c, s), turned, factors)
                return True
    return False


def _replace(
    graph: gs.Graph, node: gs.Node, products: tuple[_Product, _Product], turned: tuple[np.ndarray, bool], total: tuple[int, ...]
) -> None:
    y, (c, s), (table, interleaved) = node.outputs[0], products, turned
    node.outputs.clear()
    tables, attrs = list[gs.Tensor](), dict[str, tuple[int, ...] | bool]({"interleaved": True} if interleaved else {})
    if total:
        tables = [build.const(f"{y.name} (turned)", table)]
        attrs |= {"cosine": c.constants, "sine": s.constants, "sum": total}
    build.add(graph, "Rotate", [c.x, c.factor, s.factor, *tables], y, node.name, **attrs)


PASS = Pass("rotations", (rotary,))
