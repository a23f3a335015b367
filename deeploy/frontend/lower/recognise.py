"""Functions and norms that files spell out in elementary operators.

Functions of one tensor are recognised by their values, so that the order in which an exporter multiplies does not matter; norms
by their structure. What is found becomes the ONNX operator of that meaning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from deeploy.frontend.lower.lookup import OF_TWO, UNARY, elementwise_function, real_constant, real_number, tabulate_values
from deeploy.frontend.lower.quant import Quantised, plain_tensor
from deeploy.frontend.lower.rows import CENTRED
from deeploy.ir.nodes import Attributes, Node, Tensor, constant, inverse_order
from deeploy.ir.rewriting import Match, Pass, Result, need, require, standard
from deeploy.operators.elementwise import FUNCTIONS

_DEEPEST = 12  # operators between a function's result and its operand
_GRID = np.linspace(-12, 12, 1201)
_CLOSE = 2e-5  # exact and tanh Gelu differ by 5e-4

# ONNX operators, attributes that make them a function of the integer form, and that function.
_NAMED: tuple[tuple[str, Attributes, str], ...] = (
    ("Gelu", {"approximate": "none"}, "gelu"),
    ("Gelu", {"approximate": "tanh"}, "gelu_tanh"),
    ("Swish", {"alpha": 1.0}, "silu"),
    ("QuickGelu", {"alpha": 1.702}, "silu"),
    ("HardSwish", {}, "hard_swish"),
    ("Mish", {}, "mish"),
)
_VALUES = [FUNCTIONS[function](_GRID, attributes.get("alpha", 0), 0) for _, attributes, function in _NAMED]


def _find_ancestors(m: Match) -> Iterator[Tensor]:
    """Tensors of the shape of the result that it is computed from by elementwise operators, the nearest first."""
    level, seen = [m.y], {m.y}
    for _ in range(_DEEPEST):
        makers = [node for tensor in level if (node := m.source(tensor)) is not None]
        sources = [source for node in makers if node.op in OF_TWO or elementwise_function(node) is not None for source in node.variables]
        level = [source for source in dict.fromkeys(sources) if source.shape == m.y.shape and source not in seen]
        seen.update(level)
        yield from level


@standard("Mul", "Div", "Add", kind="f")
def by_value(m: Match) -> Result:
    """x * sigmoid(x), x/2 * (1 + erf(x / sqrt 2)), and other functions that have a name."""
    candidates = list(_find_ancestors(m))
    require(any(m.source(tensor, "Clip", *UNARY) for tensor in candidates))
    for operand in candidates:
        grid = plain_tensor(operand), _GRID
        match tabulate_values(m.y, {operand: grid}.get, depth=_DEEPEST):
            case (Quantised(), values):
                for (op, attributes, _), wanted in zip(_NAMED, _VALUES, strict=True):
                    if np.allclose(values, wanted, rtol=1e-6, atol=_CLOSE):
                        return operand.apply(op, **attributes)
    return None


def _is_same(a: Tensor | None, b: Tensor | None, depth: int = 4) -> bool:
    """Whether two tensors are one, or computed alike from the same."""
    if a is b or a is None or b is None:
        return a is b
    first, second, left, right = real_constant(a), real_constant(b), a.maker, b.maker
    if first is not None or second is not None:
        return first is not None and second is not None and np.array_equal(first, second)
    if left is None or right is None or not depth or len(left.inputs) != len(right.inputs):
        return False
    are_alike = (left.op, left.attrs, left.outputs.index(a)) == (right.op, right.attrs, right.outputs.index(b))
    return are_alike and all(map(partial(_is_same, depth=depth - 1), left.inputs, right.inputs))


def _read_power(m: Match, tensor: Tensor) -> tuple[Tensor, float]:
    """Base and exponent of a tensor that is a power of another one; of any other, itself and 1."""
    match m.source(tensor):
        case Node(op="Mul", operands=(base, other)) if _is_same(base, other):
            return base, 2.0
        case Node(op="Pow", operands=(base, other)) if (exponent := real_number(other)) is not None:
            return base, exponent
        case Node(op="Sqrt", operands=(base,)):
            return base, 0.5
        case Node(op="Reciprocal", operands=(base,)):
            return base, -1.0
        case Node(op="Div", operands=(one, base)) if real_number(one) == 1:
            return base, -1.0
    return tensor, 1.0


def _read_mean(m: Match, tensor: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """What a tensor is the mean of, and over which axes, which it keeps; of any other, itself and none."""
    node = m.source(tensor, "ReduceMean")
    return (node.operands[0], tuple(node.attrs["axes"])) if node is not None and node.attrs.get("keepdims", 1) else (tensor, ())


def _read_deviation(m: Match, tensor: Tensor, exponent: float) -> tuple[Tensor, tuple[int, ...], float]:
    """d, axes and epsilon of a tensor that is (mean(d^2) + epsilon)^exponent."""
    base, own = _read_power(m, tensor)
    if own != exponent:
        require(own in (-1.0, 0.5), abs(exponent / own) <= 1)
        return _read_deviation(m, base, exponent / own)
    node = need(m.source(base, "Add"))
    for mean, epsilon in (node.operands, node.operands[::-1]):
        squares, axes = _read_mean(m, mean)
        (d, power), number = _read_power(m, squares), real_number(epsilon)
        if axes and math.isclose(power, 2, rel_tol=1e-6) and number is not None and number >= 0:
            return d, axes, number
    return need(None)


@standard("Div", "Mul", kind="f", commutes=True)
def recognise_norm(m: Match, x: Tensor, divisor: Tensor) -> Result:
    """d / sqrt(mean(d^2) + epsilon): a layer norm where d = x - mean(x), else a root-mean-square norm; over the last axes."""
    require(m.op == "Mul" or x is m.x)
    (d, axes, epsilon), op = _read_deviation(m, divisor, 0.5 if m.op == "Div" else -0.5), "RMSNormalization"
    require(_is_same(x, d), x.shape == m.y.shape)
    match m.source(x):
        case Node(op="Sub", operands=(whole, centre)) if (mean := _read_mean(m, centre))[1] == axes and _is_same(mean[0], whole):
            x, op = whole, "LayerNormalization"
    kept = [axis for axis in range(x.rank) if axis not in axes]
    perm, ones = [*kept, *axes], np.ones([x.shape[axis] for axis in axes])
    return x.transpose(perm).apply(op, ones, axis=len(kept), epsilon=epsilon).transpose(inverse_order(perm))


@standard("Mul", "Add", kind="f", commutes=True)
def fuse_affine(m: Match, tensor: Tensor, other: Tensor) -> Result:
    """A constant factor or summand per element of a normalised row enters the norm."""
    values, moved = need(real_constant(other)), m.only_source(tensor, "Transpose")
    front = need(m.only_source(tensor if moved is None else moved.operands[0], *CENTRED))
    require(len(front.outputs) == 1, m.y.shape == tensor.shape)
    x, perm = front.operands[0], range(tensor.rank) if moved is None else moved.attrs["perm"]
    whole = np.array(values, ndmin=x.rank).transpose(inverse_order(perm))
    axis = front.attrs.get("axis", -1) % x.rank
    require(math.prod(whole.shape[:axis]) == 1)
    row = np.broadcast_to(whole.reshape(whole.shape[axis:]), x.shape[axis:])
    scale, *bias = (np.broadcast_to(need(real_constant(one)).ravel(), row.size).reshape(row.shape) for one in front.operands[1:])
    fused = [scale * row, *(summand * row for summand in bias)] if m.op == "Mul" else [scale, sum(bias, row)]
    return front.another(inputs=(x, *map(constant, fused))).outputs[0].transpose(perm)


PASS = Pass("recognise", (recognise_norm, fuse_affine, by_value))
