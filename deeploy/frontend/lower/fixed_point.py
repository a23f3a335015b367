"""What integer operators of TensorFlow Lite are made of (``deeploy.frontend.tflite``), in the integer form."""

from __future__ import annotations

from functools import partial

import numpy as np

from deeploy.errors import ModelError
from deeploy.frontend.lower.quant import requantisation_operands
from deeploy.frontend.lower.rule_call import spatial_pair, window_attributes
from deeploy.ir.nodes import Tensor, compute, constant
from deeploy.ir.rewriting import Match, Pass, Result, require, standard
from deeploy.ir.types import DType
from deeploy.operators.pool import FRACTION

_AWAY = 24  # bits of a factor that is 1 and one of these more: only ties are moved by it, away from zero
_integer = partial(standard, kind="iu", lowers=True)


@_integer("Requantise")
def lower_requantise(m: Match, x: Tensor, mul: np.ndarray, add: np.ndarray, *, shift: int, low: int, high: int) -> Tensor:
    """clip((x*mul + add) >> shift, low, high), constants of which broadcast over x."""
    if not m.y.dtype.holds(low, high) or low > high or np.abs(mul).max(initial=0) >= 2**31 or np.abs(add).max(initial=0) >= 2**62:
        raise ModelError(f"{m.node} has limits or factors beyond its type", "correct the model, or export it again")
    return m.replace("RequantShift", x, *requantisation_operands(mul, add.astype(np.int64)), shift=shift, low=low, high=high)


@_integer("LookUp")
def look_up(m: Match, x: Tensor, table: np.ndarray) -> Tensor:
    require(x.dtype.bytes == 1, table.size == 256)
    return m.replace("Lookup", x, constant(table, label="table"))


@_integer("QuantisedSoftmax")
def fixed_softmax(m: Match, x: Tensor, table: np.ndarray, *, low: int, high: int) -> Tensor:
    require(x.dtype.bytes == 1, table.size == 256, int(table.max()) < 2**31, x.shape[-1] < 4096)
    exponentials = constant(table.astype(np.uint32), label="exponentials")
    return m.replace("FixedSoftmax", x, exponentials, zero_point=low, low=low, high=high)


@_integer("L2Norm")
def l2_norm(m: Match, x: Tensor, *, zero_point: int) -> Tensor:
    require(x.dtype is DType.INT8, m.y.dtype is DType.INT8, x.shape[-1] < 8192, DType.INT8.holds(zero_point, zero_point))
    return m.replace("FixedL2Norm", x, zero_point=zero_point)


@_integer("MultiplyCentred")
def multiply_centred(m: Match, a: Tensor, kind: Tensor, b: Tensor) -> Tensor:
    return m.replace("Mul", a, b, **m.attrs)


@_integer("AddScaled")
def add_scaled(m: Match, a: Tensor, b: Tensor, constants: np.ndarray, *, shift: int, low: int, high: int) -> Tensor:
    """clip((a*constants[0] + b*constants[1] + constants[2]) >> shift, low, high)."""
    require(constants.size == 3, max(a.dtype.bytes, b.dtype.bytes) == 1, m.y.dtype.holds(low, high), low <= high)
    mul_a, mul_b, add = map(int, constants.ravel())
    require(max(abs(mul_a), abs(mul_b)) < 2**31, abs(add) < 2**61)
    return m.replace("ScaledAdd", a, b, mul_a=mul_a, mul_b=mul_b, add=add, shift=shift, low=low, high=high)


@_integer("Logistic", "HyperbolicTangent")
def fixed_function(m: Match, x: Tensor, kind: Tensor, *, whole: int) -> Tensor:
    require(x.dtype is DType.INT16, whole <= 6)
    return m.replace("IntegerFunction", x, function="logistic" if m.op == "Logistic" else "tanh", a=whole, b=0, c=0)


@_integer("DivideScaled")
def divide_scaled(m: Match, a: Tensor, b: Tensor, factor: np.ndarray, *, shift: int, low: int, high: int) -> Tensor:
    require(factor.size == 1, max(a.dtype.bytes, b.dtype.bytes) == 1, m.y.dtype.holds(low, high), low <= high)
    require(0 <= int(factor.item()) < 2**31, shift < 48)
    return m.replace("ScaledDiv", a, b, mul=int(factor.item()), **m.attrs)


@_integer("RoundedAveragePool")
def rounded_average(m: Match, x: Tensor) -> Result:
    """The mean of the elements inside the image, rounded half away from zero."""
    require(x.dtype.bytes == 1, len(m.attrs["kernel_shape"]) == 2)
    attrs = {**window_attributes({**m.attrs, "dilations": (1, 1)}), "kernel": spatial_pair(m.attrs["kernel_shape"], 1)}
    number, channels, *spatial = m.y.shape
    image = x.transpose((0, 2, 3, 1))
    means = compute(
        "AveragePool", image, shape=(number, *spatial, channels), dtype=DType.INT32, count_include_pad=False, zero_point=0, **attrs
    )
    shift = FRACTION + _AWAY
    operands = requantisation_operands(np.array([(1 << _AWAY) + 1]), np.array([1 << (shift - 1)]))
    limits = {"low": m.attrs["low"], "high": m.attrs["high"]}
    return compute("RequantShift", means, *operands, dtype=m.y.dtype, shift=shift, **limits).transpose((0, 3, 1, 2))


PASS = Pass(
    "fixed point",
    (lower_requantise, look_up, fixed_softmax, l2_norm, multiply_centred, add_scaled, divide_scaled, fixed_function, rounded_average),
)
