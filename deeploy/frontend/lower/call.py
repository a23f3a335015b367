"""An operator of ONNX as rules see it: operands and a result that carry a scale and a zero point, or none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.quant import Quantised, byte, half, multiplier, narrow, requant_constants, summand, ties
from deeploy.frontend.lower.rewriter import Rewriter
from deeploy.frontend.schemas import Attributes
from deeploy.graph.rewrite import constant

PLAIN: Attributes = {"a_zero_point": 0, "b_zero_point": 0}  # attributes of a product whose operands are no quantised tensors
Stage = tuple[list[gs.Tensor], Attributes]  # constants and attributes of a requantisation


class Call(Rewriter):
    """An operator, and the quantisation of its result where a QuantizeLinear follows it.

    Attributes:
        result: the quantised result; None where nothing is quantised.
        low: smallest value of a quantised result; a Relu or Clip between the operator and the quantisation is in the limits.
        high: its largest value.
    """

    def __init__(
        self, graph: gs.Graph, node: gs.Node, last: gs.Node | None = None, result: Quantised | None = None, low: int = 0, high: int = 0
    ) -> None:
        super().__init__(graph, node, build.DOMAIN, last)
        self.result, self.low, self.high = result, low, high

    def of(self, node: gs.Node) -> Call:
        """The same result, of another operator."""
        return Call(self.graph, node, self.last, self.result, self.low, self.high)

    @property
    def step(self) -> float:
        """The scale of the result."""
        return 1.0 if self.result is None else self.result.s

    @property
    def zero(self) -> int:
        """The zero point of the result."""
        return 0 if self.result is None else self.result.z

    def operand(self, position: int) -> Quantised | None:
        """An input. Where the result is quantised, only one that is quantised itself, as a whole and in 8 bits, else None."""
        tensor = self.node.inputs[position]
        return Quantised(tensor, np.ones(1, np.float32), np.zeros(1, np.int64), 0) if self.result is None else byte(tensor)

    def requantisation(self, ratio: np.ndarray | float, offset: np.ndarray | int = 0) -> Stage:
        """The stage behind an accumulator that makes the quantised result of it; none where the result is not quantised.

        Args:
            ratio: of a step of the accumulator to one of the result, one or one per channel.
            offset: what is added to the accumulator.
        """
        if self.result is None:
            return [], {}
        mul, add, shift = requant_constants(ratio, offset, self.zero)
        attributes = {"epilogue": ("requantise",), "shift": shift, "low": self.low, "high": self.high, **ties(mul, shift, self.zero)}
        return [self.constant(mul, label="mul"), self.constant(add, label="add")], attributes

    def scaling(self, x: Quantised, factor: np.ndarray, plus: np.ndarray, limits: tuple[int, int] | None = None) -> Stage:
        """Constants and attributes of the RequantShift of x*factor + plus: arrays (float64, of one shape) that broadcast over x."""
        mul, shift = multiplier((x.s * factor / self.step).ravel())
        mul = mul.reshape(factor.shape)
        add = summand(plus / self.step, shift) - x.z * mul.astype(np.int64) + (self.zero << shift) + half(shift)
        low, high = limits or (self.low, self.high)
        return [self.constant(mul, label="mul"), self.constant(narrow(add), label="add")], {"shift": shift, "low": low, "high": high}

    def image(self, x: gs.Tensor) -> gs.Tensor:
        """A channels-first tensor [N,C,W] or [N,C,H,W] as a channels-last image [N,H,W,C]."""
        rank = len(x.shape)
        moved = self.transpose(x, (0, *range(2, rank), 1))
        return self.reshape(moved, [x.shape[0], 1, *moved.shape[1:]]) if rank == 3 else moved

    def replace_image(self, op: str, *inputs: gs.Tensor, **attributes: object) -> bool:
        """As ``replace``, of an operator whose result is a channels-last image."""
        number, channels, *spatial = self.y.shape
        last = [number, *spatial, channels]
        image = self.create(
            op, *inputs, shape=[number, *[1] * (2 - len(spatial)), *last[1:]], dtype=self.y.dtype, label="channels last", **attributes
        )
        rank = len(last)
        return self.finish(self.transpose(self.reshape(image, last), (0, rank - 1, *range(1, rank - 1))))

    def axis_last(self, x: gs.Tensor) -> tuple[gs.Tensor, list[int]]:
        """``x`` with the axis of the operator behind all others, and the order in which its axes are then."""
        axis = self.attrs["axis"]
        perm = [*(i for i in range(len(x.shape)) if i != axis), axis]
        return self.transpose(x, perm), perm


def wide(bias: gs.Tensor) -> gs.Tensor:
    """A constant bias in the type of an accumulator, whatever smaller type holds its values."""
    values = constant(bias)
    return build.const(bias.name, values, np.int32) if values is not None and values.dtype.kind in "iu" else bias


def is_image(tensor: gs.Tensor) -> bool:
    """Whether a channels-first tensor has one or two spatial axes."""
    return len(tensor.shape) in (3, 4)


def filters(weights: np.ndarray) -> np.ndarray:
    """Convolution weights with two spatial axes."""
    return weights[:, :, None, :] if weights.ndim == 3 else weights


def spatial(values: Sequence[int], filler: int) -> tuple[int, int]:
    """Two spatial attributes from one or two."""
    return (filler, int(values[0])) if len(values) == 1 else (int(values[0]), int(values[1]))


def window(attributes: Attributes) -> Attributes:
    """Strides, dilations and pads (top, left, bottom, right) of a windowed operator as the integer form has them."""
    pads = [int(n) for n in attributes["pads"]]
    return {
        "strides": spatial(attributes["strides"], 1),
        "dilations": spatial(attributes["dilations"], 1),
        "pads": (0, pads[0], 0, pads[1]) if len(pads) == 2 else tuple(pads[:4]),
    }
