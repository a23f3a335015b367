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
from deeploy.frontend.lower.lookup import ARITHMETIC, elementwise, real_constant
from deeploy.frontend.lower.rows import CENTRED
from deeploy.graph.rewrite import Pass, only_consumer, producer, replace_node, rule
from deeploy.operators.elementwise import FUNCTIONS

_DEEPEST = 12  # operators between a function's result and its operand
_TRANSCENDENTAL = ("Erf", "Tanh", "Sigmoid", "Exp", "Softplus", "HardSigmoid", "Clip")
_GRID = np.linspace(-12, 12, 1201)
_CLOSE = 2e-5  # exact and tanh Gelu differ by 5e-4

# ONNX operators by the function of the integer form that they are; attributes that make it so.
_NAMED: tuple[tuple[str, float, str, dict[str, object]], ...] = (
    ("gelu", 0, "Gelu", {"approximate": "none"}),
    ("gelu_tanh", 0, "Gelu", {"approximate": "tanh"}),
    ("silu", 1.0, "Swish", {"alpha": 1.0}),
    ("silu", 1.702, "QuickGelu", {"alpha": 1.702}),
    ("hard_swish", 0, "HardSwish", {}),
    ("mish", 0, "Mish", {}),
)
_VALUES = [FUNCTIONS[name](_GRID, alpha, 0) for name, alpha, _, _ in _NAMED]


def _is_open(tensor: gs.Tensor) -> gs.Node | None:
    """The node in ONNX spelling that computes a float tensor."""
    node = producer(tensor)
    return node if node is not None and not build.lowered(node) and np.dtype(tensor.dtype).kind == "f" else None


def _ancestors(tensor: gs.Tensor) -> Iterator[gs.Tensor]:
    """Tensors of the shape of ``tensor`` that it is computed from by elementwise operators, the nearest first."""
    seen: set[int] = {id(tensor)}
    level = [tensor]
    for _ in range(_DEEPEST):
        following = []
        for node in (_is_open(t) for t in level):
            if node is None or (node.op not in ARITHMETIC and elementwise(node) is None):
                continue
            for source in node.inputs:
                if id(source) not in seen and list(source.shape) == list(tensor.shape) and not isinstance(source, gs.Constant):
                    seen.add(id(source))
                    following.append(source)
        yield from following
        level = following


_Known = dict[tuple[int, int], np.ndarray | None]  # values by tensor and depth


def _evaluate(tensor: gs.Tensor, operand: gs.Tensor, known: _Known, depth: int = 0) -> np.ndarray | None:
    """The values of ``tensor`` where ``operand`` is the grid; None where it depends on anything else."""
    key = (id(tensor), depth)
    if key not in known:
        known[key] = _GRID if tensor is operand else _computed(tensor, operand, known, depth)
    return known[key]


def _computed(tensor: gs.Tensor, operand: gs.Tensor, known: _Known, depth: int) -> np.ndarray | None:
    number = real_constant(tensor)
    if number is not None:
        return number.reshape(()).astype(np.float64) if number.size == 1 else None
    node = _is_open(tensor)
    if node is None or depth > _DEEPEST:
        return None
    if node.op in ARITHMETIC and len(node.inputs) == 2:
        values = [_evaluate(t, operand, known, depth + 1) for t in node.inputs]
        if values[0] is None or values[1] is None:
            return None
        return ARITHMETIC[node.op](values[0], values[1])
    apply = elementwise(node)
    value = _evaluate(node.inputs[0], operand, known, depth + 1) if apply is not None else None
    return None if value is None or apply is None else apply(value)


@rule("Mul", "Div", "Add")
def by_value(graph: gs.Graph, node: gs.Node) -> bool:
    """x * sigmoid(x), x/2 * (1 + erf(x / sqrt 2)), and other functions that have a name."""
    y = node.outputs[0]
    candidates = list(_ancestors(y)) if _is_open(y) is not None else []
    if not any(n is not None and n.op in _TRANSCENDENTAL for n in map(_is_open, candidates)):
        return False
    for operand in candidates:
        with np.errstate(all="ignore"):
            values = _evaluate(y, operand, {})
        if values is None or values.shape != _GRID.shape:
            continue
        for (_, _, op, attrs), wanted in zip(_NAMED, _VALUES, strict=True):
            if np.allclose(values, wanted, rtol=1e-6, atol=_CLOSE):
                replace_node(graph, node, gs.Node(op, node.name, dict(attrs), [operand], [y]))
                return True
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
    node = _is_open(tensor)
    if node is None:
        return None
    if node.op == "Mul" and _same(node.inputs[0], node.inputs[1]):
        return node.inputs[0], 2.0
    if node.op == "Pow":
        exponent = _number(node.inputs[1])
        return None if exponent is None else (node.inputs[0], exponent)
    if node.op in ("Sqrt", "Reciprocal"):
        return node.inputs[0], 0.5 if node.op == "Sqrt" else -1.0
    if node.op == "Div" and _number(node.inputs[0]) == 1:
        return node.inputs[1], -1.0
    return None


def _mean(tensor: gs.Tensor) -> tuple[gs.Tensor, tuple[int, ...]] | None:
    """What a tensor is the mean of, and over which axes, which it keeps."""
    node = _is_open(tensor)
    if node is None or node.op != "ReduceMean" or not node.attrs.get("keepdims", 1):
        return None
    return node.inputs[0], tuple(node.attrs["axes"])


def _deviation(tensor: gs.Tensor, exponent: float) -> tuple[gs.Tensor, tuple[int, ...], float] | None:
    """d, axes and epsilon of a tensor that is (mean(d^2) + epsilon)^exponent."""
    found = _power(tensor)
    if found is None:
        return None
    base, own = found
    if own != exponent:
        return _deviation(base, exponent / own) if own in (-1.0, 0.5) and abs(exponent / own) <= 1 else None
    node = _is_open(base)
    if node is None or node.op != "Add":
        return None
    for mean, epsilon in (node.inputs, node.inputs[::-1]):
        squares, number = _mean(mean), _number(epsilon)
        square = None if squares is None else _power(squares[0])
        if squares is not None and square is not None and math.isclose(square[1], 2, rel_tol=1e-6) and number is not None and number >= 0:
            return square[0], squares[1], number
    return None


@rule("Div", "Mul")
def norm(graph: gs.Graph, node: gs.Node) -> bool:
    """d / sqrt(mean(d^2) + epsilon): a layer norm where d = x - mean(x), else a root-mean-square norm."""
    y = node.outputs[0]
    if _is_open(y) is None:
        return False
    pairs = [tuple(node.inputs)] if node.op == "Div" else [tuple(node.inputs), tuple(node.inputs[::-1])]
    for d, divisor in pairs:
        found = _deviation(divisor, 0.5 if node.op == "Div" else -0.5)
        if found is None or not _same(d, found[0]) or list(d.shape) != list(y.shape):
            continue
        _, axes, epsilon = found
        centre = _is_open(d)
        mean = _mean(centre.inputs[1]) if centre is not None and centre.op == "Sub" else None
        centred = centre is not None and mean is not None and mean[1] == axes and _same(mean[0], centre.inputs[0])
        x = centre.inputs[0] if centred and centre is not None else d
        return _normalise(graph, node, x, "LayerNormalization" if centred else "RMSNormalization", axes, epsilon)
    return False


def _normalise(graph: gs.Graph, node: gs.Node, x: gs.Tensor, op: str, axes: tuple[int, ...], epsilon: float) -> bool:
    """Put the norm in the place of ``node``; axes that are not the last ones are moved there."""
    y, rank = node.outputs[0], len(x.shape)
    kept = [axis for axis in range(rank) if axis not in axes]
    perm = [*kept, *axes]
    columns = [x.shape[axis] for axis in axes]
    ones = build.const(f"{y.name} (scale)", np.ones(columns, np.float32))
    attrs = {"axis": len(kept), "epsilon": epsilon}
    if perm == list(range(rank)):
        replace_node(graph, node, gs.Node(op, node.name, attrs, [x, ones], [y]))
        return True
    shape = [x.shape[axis] for axis in perm]
    before, after = (build.variable(f"{y.name} ({label})", x.dtype, shape) for label in ("axes last", "normalised"))
    graph.nodes.append(gs.Node("Transpose", before.name, {"perm": perm}, [x], [before]))
    graph.nodes.append(gs.Node(op, after.name, attrs, [before, ones], [after]))
    inverse = [perm.index(axis) for axis in range(rank)]
    replace_node(graph, node, gs.Node("Transpose", node.name, {"perm": inverse}, [after], [y]))
    return True


@rule("Mul", "Add")
def affine(graph: gs.Graph, node: gs.Node) -> bool:
    """A constant factor or summand per element of a normalised row enters the norm."""
    y = node.outputs[0]
    for position in (0, 1):
        source, values = _is_open(node.inputs[position]), real_constant(node.inputs[1 - position])
        moved = source if source is not None and source.op == "Transpose" else None
        front = _is_open(moved.inputs[0]) if moved is not None else source
        if values is None or front is None or front.op not in CENTRED or _is_open(y) is None:
            continue
        last = moved if moved is not None else front
        alone = all(only_consumer(graph, link.outputs[0]) is not None for link in (front, last))
        perm = None if moved is None else list(moved.attrs["perm"])
        row = _as_row(values, list(front.inputs[0].shape), _axis(front), perm)
        parameters = None if row is None else _parameters(front, node.op, row)
        if not alone or parameters is None or len(front.outputs) > 1 or list(y.shape) != list(last.outputs[0].shape):
            continue
        columns = front.inputs[0].shape[_axis(front) :]
        constants = [build.const(f"{y.name} ({i})", p.reshape(columns), np.float32) for i, p in enumerate(parameters)]
        front.inputs = [front.inputs[0], *constants]
        node.outputs.clear()
        node.inputs.clear()
        last.outputs = [y]
        return True
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
        whole = whole.transpose([perm.index(i) for i in range(rank)])
    if any(n != 1 for n in whole.shape[:axis]):
        return None
    return np.broadcast_to(whole.reshape(whole.shape[axis:]), shape[axis:]).ravel()


PASS = Pass("recognise", (norm, affine, by_value))
