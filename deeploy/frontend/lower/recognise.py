"""Functions and norms that files spell out in elementary operators.

Functions of one tensor are recognised by their values, so that the order in which an exporter multiplies does not matter; norms
by their structure. What is found becomes the ONNX operator of that meaning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.lookup import ARITHMETIC, elementwise, real_constant, tabulate
from deeploy.frontend.lower.quant import Quantised
from deeploy.frontend.lower.rewriter import Rewriter, inverse, is_float, standard
from deeploy.frontend.lower.rows import CENTRED
from deeploy.frontend.schemas import Attributes
from deeploy.graph.rewrite import Pass, producer
from deeploy.operators.elementwise import FUNCTIONS

_DEEPEST = 12  # operators between a function's result and its operand
_TRANSCENDENTAL = ("Erf", "Tanh", "Sigmoid", "Exp", "Softplus", "HardSigmoid", "Clip")
_GRID = np.linspace(-12, 12, 1201)
_CLOSE = 2e-5  # exact and tanh Gelu differ by 5e-4

# ONNX operators by the function of the integer form that they are; attributes that make it so.
_NAMED: tuple[tuple[str, float, str, Attributes], ...] = (
    ("gelu", 0, "Gelu", {"approximate": "none"}),
    ("gelu_tanh", 0, "Gelu", {"approximate": "tanh"}),
    ("silu", 1.0, "Swish", {"alpha": 1.0}),
    ("silu", 1.702, "QuickGelu", {"alpha": 1.702}),
    ("hard_swish", 0, "HardSwish", {}),
    ("mish", 0, "Mish", {}),
)
_VALUES = [FUNCTIONS[name](_GRID, alpha, 0) for name, alpha, _, _ in _NAMED]


def _source(tensor: gs.Tensor, *ops: str) -> gs.Node | None:
    """The node in ONNX spelling, with one of ``ops`` if any are given, that computes a float tensor."""
    node = producer(tensor)
    fits = node is not None and not build.lowered(node) and is_float(tensor) and (not ops or node.op in ops)
    return node if fits else None


def _ancestors(tensor: gs.Tensor) -> Iterator[gs.Tensor]:
    """Tensors of the shape of ``tensor`` that it is computed from by elementwise operators, the nearest first."""
    seen: set[int] = {id(tensor)}
    level = [tensor]
    for _ in range(_DEEPEST):
        following = []
        for node in (_source(t) for t in level):
            if node is None or (node.op not in ARITHMETIC and elementwise(node) is None):
                continue
            for source in node.inputs:
                if id(source) not in seen and list(source.shape) == list(tensor.shape) and not isinstance(source, gs.Constant):
                    seen.add(id(source))
                    following.append(source)
        yield from following
        level = following


def _on_grid(tensor: gs.Tensor, operand: gs.Tensor) -> np.ndarray | None:
    """The values of ``tensor`` where ``operand`` is the grid; None where it depends on anything else."""
    grid = Quantised(operand, np.ones(1), np.zeros(1), 0), _GRID
    found = tabulate(tensor, lambda t: grid if t is operand else None, depth=_DEEPEST)
    return None if found is None or found[0] is None else found[1]


@standard("Mul", "Div", "Add")
def by_value(rw: Rewriter) -> bool:
    """x * sigmoid(x), x/2 * (1 + erf(x / sqrt 2)), and other functions that have a name."""
    candidates = list(_ancestors(rw.y)) if is_float(rw.y) else []
    if all(_source(t, *_TRANSCENDENTAL) is None for t in candidates):
        return False
    for operand in candidates:
        values = _on_grid(rw.y, operand)
        for (_, _, op, attrs), wanted in zip(_NAMED, _VALUES, strict=True):
            if values is not None and np.allclose(values, wanted, rtol=1e-6, atol=_CLOSE):
                return rw.replace(op, operand, **attrs)
    return False


def _same(a: gs.Tensor, b: gs.Tensor, depth: int = 4) -> bool:
    """Whether two tensors are one, or computed alike from the same."""
    if a is b:
        return True
    first, second = real_constant(a), real_constant(b)
    if first is not None or second is not None:
        return first is not None and second is not None and np.array_equal(first, second)
    left, right = producer(a), producer(b)
    if left is None or right is None or not depth or left.op != right.op or left.attrs != right.attrs:
        return False
    return len(left.inputs) == len(right.inputs) and all(_same(s, t, depth - 1) for s, t in zip(left.inputs, right.inputs, strict=True))


def _number(tensor: gs.Tensor) -> float | None:
    value = real_constant(tensor)
    return float(value.ravel()[0]) if value is not None and value.size == 1 else None


def _power(tensor: gs.Tensor) -> tuple[gs.Tensor, float] | None:
    """Base and exponent of a tensor that is a power of another one."""
    node = _source(tensor, "Mul", "Pow", "Sqrt", "Reciprocal", "Div")
    if node is None:
        return None
    base, *others = node.inputs
    if node.op == "Mul":
        return (base, 2.0) if _same(base, others[0]) else None
    if node.op == "Pow":
        exponent = _number(others[0])
        return None if exponent is None else (base, exponent)
    if node.op == "Div":
        return (others[0], -1.0) if _number(base) == 1 else None
    return base, 0.5 if node.op == "Sqrt" else -1.0


def _mean(tensor: gs.Tensor) -> tuple[gs.Tensor, tuple[int, ...]] | None:
    """What a tensor is the mean of, and over which axes, which it keeps."""
    node = _source(tensor, "ReduceMean")
    return (node.inputs[0], tuple(node.attrs["axes"])) if node is not None and node.attrs.get("keepdims", 1) else None


def _deviation(tensor: gs.Tensor, exponent: float) -> tuple[gs.Tensor, tuple[int, ...], float] | None:
    """d, axes and epsilon of a tensor that is (mean(d^2) + epsilon)^exponent."""
    found = _power(tensor)
    if found is None:
        return None
    base, own = found
    if own != exponent:
        return _deviation(base, exponent / own) if own in (-1.0, 0.5) and abs(exponent / own) <= 1 else None
    node = _source(base, "Add")
    for mean, epsilon in () if node is None else (node.inputs, node.inputs[::-1]):
        squares, number = _mean(mean), _number(epsilon)
        square = None if squares is None else _power(squares[0])
        if squares is not None and square is not None and math.isclose(square[1], 2, rel_tol=1e-6) and number is not None and number >= 0:
            return square[0], squares[1], number
    return None


@standard("Div", "Mul", kind="f")
def norm(rw: Rewriter) -> bool:
    """d / sqrt(mean(d^2) + epsilon): a layer norm where d = x - mean(x), else a root-mean-square norm; over the last axes."""
    a, b = rw.node.inputs
    for d, divisor in [(a, b)] if rw.op == "Div" else [(a, b), (b, a)]:
        found = _deviation(divisor, 0.5 if rw.op == "Div" else -0.5)
        if found is None or not _same(d, found[0]) or list(d.shape) != list(rw.y.shape):
            continue
        _, axes, epsilon = found
        centre = _source(d, "Sub")
        x, mean = (centre.inputs[0], _mean(centre.inputs[1])) if centre is not None else (d, None)
        is_centred = mean is not None and mean[1] == axes and _same(mean[0], x)
        x, op = (x, "LayerNormalization") if is_centred else (d, "RMSNormalization")
        kept = [axis for axis in range(len(x.shape)) if axis not in axes]
        perm = [*kept, *axes]
        ones = rw.constant(np.ones([x.shape[axis] for axis in axes]))
        normal = rw.create(op, rw.transpose(x, perm), ones, axis=len(kept), epsilon=epsilon)
        return rw.finish(rw.transpose(normal, inverse(perm)))
    return False


@standard("Mul", "Add", kind="f")
def affine(rw: Rewriter) -> bool:
    """A constant factor or summand per element of a normalised row enters the norm."""
    a, b = rw.node.inputs
    for tensor, other in ((a, b), (b, a)):
        values, last = real_constant(other), rw.only_source(tensor)
        moved = last is not None and last.op == "Transpose"
        front = rw.only_source(last.inputs[0]) if last is not None and moved else last
        if values is None or last is None or front is None or front.op not in CENTRED or len(front.outputs) > 1:
            continue
        shape, axis = list(front.inputs[0].shape), _axis(front)
        row = _as_row(values, shape, axis, list(last.attrs["perm"]) if moved else None)
        parameters = None if row is None else _parameters(front, rw.op, row)
        if parameters is None or list(rw.y.shape) != list(tensor.shape):
            continue
        front.inputs = [front.inputs[0], *(rw.constant(p.reshape(shape[axis:]), np.float32) for p in parameters)]
        return rw.give(last)
    return False


def _axis(norm: gs.Node) -> int:
    return int(norm.attrs.get("axis", -1)) % len(norm.inputs[0].shape)


def _parameters(front: gs.Node, op: str, row: np.ndarray) -> list[np.ndarray] | None:
    """Scale and bias of a norm behind which comes a product with ``row`` or its addition."""
    found = [real_constant(t) for t in front.inputs[1:]]
    if any(values is None for values in found):
        return None
    rows = [np.broadcast_to(np.asarray(values).ravel(), row.shape) for values in found]
    if op == "Mul":
        return [values * row for values in rows]
    return [rows[0], row + rows[1] if len(rows) > 1 else row]


def _as_row(values: np.ndarray, shape: list[int], axis: int, perm: list[int] | None) -> np.ndarray | None:
    """Constants that broadcast over a norm's result (transposed by ``perm``) as one value per element of its row, if they are that."""
    rank, columns = len(shape), math.prod(shape[axis:])
    if values.size == 1:
        return np.broadcast_to(values.ravel(), (columns,))
    if values.ndim > rank:
        return None
    whole = values.reshape([1] * (rank - values.ndim) + list(values.shape))
    if perm is not None:
        whole = whole.transpose(inverse(perm))
    if any(n != 1 for n in whole.shape[:axis]):
        return None
    return np.broadcast_to(whole.reshape(whole.shape[axis:]), shape[axis:]).ravel()


PASS = Pass("recognise", (norm, affine, by_value))
