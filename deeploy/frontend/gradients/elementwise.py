"""Gradients of functions of single elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from deeploy.frontend.gradients.rules import Backward, Gradients, differentiates, keep_where, reciprocal, square
from deeploy.ir.nodes import Attributes, Tensor, constant, where

DERIVATIVES: Mapping[str, Callable[[Tensor, Tensor, Attributes], Tensor]] = {  # of the input x and the result y
    "Abs": lambda x, y, attrs: x.apply("Sign"),
    "LeakyRelu": lambda x, y, attrs: where(x.apply("Greater", 0.0), 1.0, float(attrs.get("alpha", 0.01))),
    "Elu": lambda x, y, attrs: where(y.apply("Greater", 0.0), 1.0, y + float(attrs.get("alpha", 1.0))),
    "Sigmoid": lambda x, y, attrs: y * (y.apply("Neg") + 1.0),
    "Tanh": lambda x, y, attrs: square(y).apply("Neg") + 1.0,
    "Softplus": lambda x, y, attrs: x.apply("Sigmoid"),
    "HardSigmoid": lambda x, y, attrs: _is_inside(y, 0.0, 1.0) * float(attrs.get("alpha", 0.2)),
    "HardSwish": lambda x, y, attrs: where(x.apply("Greater", 3.0), 1.0, keep_where(x.apply("Greater", -3.0), x * (1 / 3) + 0.5)),
    "Exp": lambda x, y, attrs: y,
    "Log": lambda x, y, attrs: reciprocal(x),
    "Sqrt": lambda x, y, attrs: reciprocal(y) * 0.5,
    "Reciprocal": lambda x, y, attrs: square(y).apply("Neg"),
    "Sin": lambda x, y, attrs: x.apply("Cos"),
    "Cos": lambda x, y, attrs: x.apply("Sin").apply("Neg"),
    "Erf": lambda x, y, attrs: square(x).apply("Neg").apply("Exp") * (2 / math.sqrt(math.pi)),
    "Gelu": lambda x, y, attrs: _of_gelu(x, attrs.get("approximate", "none") == "tanh"),
}


def _is_inside(y: Tensor, low: float, high: float) -> Tensor:
    return keep_where(y.apply("Greater", low), where(y.apply("Less", high), 1.0, constant(0.0, y.dtype)))


def _of_gelu(x: Tensor, is_tanh: bool) -> Tensor:
    """The derivative of x F(x): F(x) + x F'(x); F is the normal distribution, or what approximates it by tanh."""
    if not is_tanh:
        below = ((x * math.sqrt(0.5)).apply("Erf") + 1.0) * 0.5
        return below + x * (square(x) * -0.5).apply("Exp") * (1 / math.sqrt(2 * math.pi))
    slope = math.sqrt(2 / math.pi)
    t = ((square(x) * 0.044715 + 1.0) * x * slope).apply("Tanh")
    inner = square(x) * (3 * 0.044715 * slope) + slope
    return (t + 1.0) * 0.5 + x * (square(t).apply("Neg") + 1.0) * inner * 0.5


@differentiates(*DERIVATIVES)
def _differentiate_function(g: Backward, x: Tensor, *_: Tensor) -> Tensor:
    return g.dy * DERIVATIVES[g.node.op](x, g.y, g.attrs)


@differentiates("Relu")
def _differentiate_relu(g: Backward, x: Tensor) -> Tensor:
    """By the result, so that the argument need not be there any more."""
    return keep_where(g.y.apply("Greater", 0.0), g.dy)


@differentiates("Clip")
def _differentiate_clip(g: Backward, x: Tensor) -> Tensor:
    """By the result, which is between both bounds or at one of them."""
    low, high = g.attrs.get("min"), g.attrs.get("max")
    dy = g.dy if low is None else keep_where(g.y.apply("Greater", low), g.dy)
    return dy if high is None else keep_where(g.y.apply("Less", high), dy)


@differentiates("Neg")
def _differentiate_negative(g: Backward, x: Tensor) -> Tensor:
    return g.dy.apply("Neg")


@differentiates("Add", biases=(0, 1))
def _differentiate_add(g: Backward, *_: Tensor) -> Gradients:
    return g.dy, g.dy


@differentiates("Sub")
def _differentiate_subtract(g: Backward, *_: Tensor) -> Gradients:
    return g.dy, g.dy.apply("Neg")


@differentiates("Mul", weights=(0, 1))
def _differentiate_multiply(g: Backward, a: Tensor, b: Tensor) -> Gradients:
    return g.dy * b, g.dy * a


@differentiates("Div")
def _differentiate_divide(g: Backward, a: Tensor, b: Tensor) -> Gradients:
    return g.dy / b, (g.dy * g.y / b).apply("Neg")


@differentiates("Pow")
def _differentiate_power(g: Backward, x: Tensor, exponent: Tensor) -> Gradients:
    """The gradient of the base; exponents are constants."""
    power = exponent.number
    if power == 2:
        return g.dy * x * 2.0, None
    return g.dy * exponent * x.apply("Pow", exponent - 1.0), None


@differentiates("Max", "Min")
def _differentiate_extreme(g: Backward, *operands: Tensor) -> Gradients:
    """The first of equal operands gets it, as when they were compared one after the other."""
    left, gradients = g.dy, list[Tensor]()
    for x in operands:
        is_it = g.y.apply("Equal", x)
        gradients.append(keep_where(is_it, left))
        left = where(is_it, constant(0.0, left.dtype), left)
    return gradients


@differentiates("PRelu", weights=(1,))
def _parametric_relu(g: Backward, x: Tensor, slope: Tensor) -> Gradients:
    is_positive = x.apply("Greater", 0.0)
    return where(is_positive, g.dy, g.dy * slope), where(is_positive, constant(0.0, x.dtype), g.dy * x)


@differentiates("Where")
def _differentiate_choose(g: Backward, condition: Tensor, *_: Tensor) -> Gradients:
    return None, keep_where(condition, g.dy), where(condition, constant(0.0, g.dy.dtype), g.dy)


@differentiates("Cast", "Identity")
def _differentiate_same(g: Backward, x: Tensor) -> Gradients:
    return [g.dy.cast(x.dtype)] if x.dtype.is_float else [None]
