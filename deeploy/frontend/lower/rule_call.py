"""An operator of ONNX as rules see it: operands and a result that carry a scale and a zero point, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deeploy.frontend.lower.quant import (
    Quantised,
    byte_tensor,
    fixed_point_multiplier,
    plain_tensor,
    requant_constants,
    requantisation_operands,
    rounded_summand,
    rounding_half,
    ties_attribute,
)
from deeploy.ir.nodes import INTEGER_FORM, Attributes, Node, Tensor, compute, constant
from deeploy.ir.rewriting import Match
from deeploy.ir.types import DType

PLAIN: Attributes = {"a_zero_point": 0, "b_zero_point": 0}  # attributes of a product whose operands are no quantised tensors
_DEFAULTS: Mapping[str, Attributes] = {"Mul": PLAIN, "MatMul": {**PLAIN, "trans_a": False, "trans_b": False}}


class RuleCall(Match):
    """An operator, and the quantisation of its result where a QuantizeLinear follows it.

    Attributes:
        result: the quantised result; None where nothing is quantised.
        low: smallest value of a quantised result; a Relu or Clip between the operator and the quantisation is in the limits.
        high: its largest value.
        step: the scale of the result, 1 where nothing is quantised.
        zero: its zero point.
    """

    def __init__(self, root: Match, node: Node | None = None, result: Quantised | None = None, low: int = 0, high: int = 0) -> None:
        super().__init__(root._sweep, node or root.node, INTEGER_FORM)
        self._root, self.y = root, root.y
        root.title = self.node.name
        self.result, self.low, self.high = result, low, high
        self.step, self.zero = (1.0, 0) if result is None else (result.s, result.z)

    def of(self, node: Node) -> RuleCall:
        """A rule's call of another operator that has the same result and quantisation."""
        return RuleCall(self._root, node, self.result, self.low, self.high)

    @property
    def limits(self) -> Attributes:
        """The least and the largest value of the quantised result, as attributes ``low`` and ``high``."""
        return {"low": self.low, "high": self.high}

    def operand(self, position: int) -> Quantised | None:
        """An input. Where the result is quantised, only one that is quantised itself, as a whole and in 8 bits, else None."""
        return plain_tensor(self.inputs[position]) if self.result is None else byte_tensor(self.inputs[position])

    def create(
        self, op: str, *inputs: Tensor | None, ratio: np.ndarray | float | None = None, offset: np.ndarray | int = 0, **given: Any
    ) -> Tensor:
        """The result of a new node; without zero points, those of products are 0.

        Args:
            ratio: of a step of an accumulator to one of the quantised result, one or one per channel: a requantisation follows.
            offset: what is added to the accumulator.
        """
        attributes = {**_DEFAULTS.get(op, {}), **given}
        if self.result is None or ratio is None:
            return compute(op, *inputs, **attributes)
        mul, add, shift = requant_constants(ratio, offset, self.zero)
        stage: Attributes = {"epilogue": ("requantise",), "shift": shift, **self.limits, **ties_attribute(mul, shift, self.zero)}
        return compute(op, *inputs, *requantisation_operands(mul, add), **attributes, **stage)

    def replace(self, op: str, *inputs: Tensor | None, **given: Any) -> Tensor:
        return self.create(op, *inputs, shape=self.y.shape, dtype=self.y.dtype, **given)

    def scale(self, x: Quantised, factor: np.ndarray, plus: np.ndarray, **limits: Any) -> Tensor:
        """x*factor + plus in the result's quantisation, within its limits or others: of arrays (float64, of one shape) that broadcast."""
        mul, shift = fixed_point_multiplier((x.s * factor / self.step).ravel())
        mul = mul.reshape(factor.shape)
        add = rounded_summand(plus / self.step, shift) - x.z * mul.astype(np.int64) + (self.zero << shift) + rounding_half(shift)
        return compute(
            "RequantShift", x.tensor, *requantisation_operands(mul, add), dtype=self.y.dtype, shift=shift, **(limits or self.limits)
        )

    def image(self, x: Tensor) -> Tensor:
        """A channels-first tensor [N,C,W] or [N,C,H,W] as a channels-last image [N,H,W,C]."""
        moved = x.transpose((0, *range(2, x.rank), 1))
        return moved.reshape([x.shape[0], 1, *moved.shape[1:]]) if x.rank == 3 else moved

    def create_image(self, op: str, *inputs: Tensor, **given: Any) -> Tensor:
        """Creates an operator like ``create``, whose result is that of the match as a channels-last image."""
        number, channels, *spatial = self.y.shape
        shape = [number, *[1] * (2 - len(spatial)), *spatial, channels]
        return self.create(op, *inputs, shape=shape, dtype=self.y.dtype, **given)

    def replace_image(self, op: str, *inputs: Tensor, **given: Any) -> Tensor:
        """Replaces the match like ``replace``, by an operator whose result is a channels-last image."""
        number, channels, *spatial = self.y.shape
        image = self.create_image(op, *inputs, label="channels last", **given).reshape([number, *spatial, channels])
        return image.transpose((0, image.rank - 1, *range(1, image.rank - 1)))

    def axis_last(self, x: Tensor) -> tuple[Tensor, list[int]]:
        """``x`` with the axis of the operator behind all others, and the order in which its axes are then."""
        axis = self.attrs["axis"]
        perm = [*(i for i in range(x.rank) if i != axis), axis]
        return x.transpose(perm), perm


def gather_indices(m: Match) -> Tensor:
    """The indices of a Gather in a type that the integer form has them in; constants in 32 bits."""
    given = m.inputs[1]
    if given.data is not None:
        return constant(given.data, DType.INT32, "indices")
    return given if given.dtype in (DType.INT32, DType.INT64) else given.cast(DType.INT32)


def widen_bias(bias: Tensor) -> Tensor:
    """A constant bias in the type of an accumulator, whatever smaller type holds its values."""
    return bias if bias.data is None or bias.dtype.is_float else constant(bias.data, DType.INT32, "bias")


def is_image(tensor: Tensor) -> bool:
    """Whether a channels-first tensor has one or two spatial axes."""
    return tensor.rank in (3, 4)


def two_dimensional_filters(weights: np.ndarray) -> np.ndarray:
    """Convolution weights with two spatial axes."""
    return weights[:, :, None, :] if weights.ndim == 3 else weights


def spatial_pair(values: Sequence[int], filler: int) -> tuple[int, int]:
    """Two spatial attributes from one or two."""
    first, second = ([filler] * 2 + [int(value) for value in values])[-2:]
    return first, second


def window_attributes(attributes: Attributes) -> Attributes:
    """Strides, dilations and pads (top, left, bottom, right) of a windowed operator as the integer form has them."""
    pads = attributes["pads"]
    half = len(pads) // 2
    return {
        "strides": spatial_pair(attributes["strides"], 1),
        "dilations": spatial_pair(attributes["dilations"], 1),
        "pads": (*spatial_pair(pads[:half], 0), *spatial_pair(pads[half:], 0)),
    }
