"""Transposed convolutions as convolutions: outputs of one phase, those whose places have one remainder by the stride, gather the same taps.

An output at t = stride*q + p of the image with its borders sums the inputs q - j times the taps p + stride*j: for every phase p, a
convolution that moves by 1. One convolution with the filters of all phases computes them side by side, and their outputs are interleaved.
Taps that a phase does not have are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deeploy.frontend.lower.rule_call import RuleCall, spatial_pair, window_attributes
from deeploy.frontend.schemas import Attributes
from deeploy.ir.nodes import Tensor
from deeploy.ir.rewriting import require

MOST_AXES = 6  # of what kernels copy


@dataclass(frozen=True)
class PhaseAxis:
    """One axis of a transposed convolution: phases, taps of each, what lies around x, outputs of the convolution, and those to cut off."""

    phases: int
    taps: int
    before: int
    after: int
    outputs: int
    cut: int

    @staticmethod
    def of(size: int, out: int, taps: int, stride: int, dilation: int, pad: int) -> PhaseAxis:
        """From an axis of ``size`` inputs and ``out`` outputs, and the attributes of the operator along it."""
        require(stride == 1 or dilation == 1, min(size, out) > 0)
        reach = (-(-taps // stride) - 1) * dilation
        first = min(pad // stride, reach)
        before = reach - first
        outputs = max((pad + out - 1) // stride - first + 1, size + before - reach)
        return PhaseAxis(stride, -(-taps // stride), before, outputs + reach - size - before, outputs, pad - first * stride)


@dataclass(frozen=True)
class Phases:
    """A transposed convolution whose filters [C,K/g,FH,FW] are those of all phases of a convolution."""

    groups: int
    rows: PhaseAxis
    columns: PhaseAxis
    dilations: tuple[int, int]

    @staticmethod
    def of(call: RuleCall, size: tuple[int, int]) -> Phases:
        """The phases of a ``ConvTranspose`` with filters of this size."""
        window = window_attributes(call.attrs)
        (strides, dilations, pads), places = (
            (window[name] for name in ("strides", "dilations", "pads")),
            zip(spatial_pair(call.x.shape[2:], 1), spatial_pair(call.y.shape[2:], 1), size, strict=True),
        )
        rows, columns = (
            PhaseAxis.of(*place, *each) for place, each in zip(places, zip(strides, dilations, pads[:2], strict=True), strict=True)
        )
        return Phases(int(call.attrs["group"]), rows, columns, dilations)

    @property
    def attributes(self) -> Attributes:
        """The attributes of the convolution that computes all phases."""
        pads = (self.rows.before, self.columns.before, self.rows.after, self.columns.after)
        return {"strides": (1, 1), "dilations": self.dilations, "pads": pads, "group": self.groups}

    def filters(self, weights: Tensor) -> Tensor:
        """[g*phases*K/g, C/g, taps, taps] from [C,K/g,FH,FW]: of each group the filters of one phase behind those of another."""
        channels, each, height, width = weights.shape
        (p, j), (q, i) = ((axis.phases, axis.taps) for axis in (self.rows, self.columns))
        filled = weights.pad([0] * 4, [0, 0, p * j - height, q * i - width])
        extents, order = (self.groups, channels // self.groups, each, j, p, i, q), (0, 4, 6, 2, 1, 3, 5)
        many = [axis for axis, extent in enumerate(extents) if extent > 1]
        apart = filled.reshape([extents[axis] for axis in many])
        for axis in (axis for axis in (3, 5) if axis in many):
            apart = apart.take(np.arange(extents[axis])[::-1], many.index(axis))
        turned = apart.transpose([many.index(axis) for axis in order if axis in many])
        return turned.reshape([-1, channels // self.groups, j, i])

    def of_all(self, values: np.ndarray) -> np.ndarray:
        """What there is one of for each output channel, for each filter of the convolution; one for all as it is."""
        if values.size == 1:
            return values
        count = self.rows.phases * self.columns.phases
        return np.repeat(values.reshape(self.groups, 1, -1), count, axis=1).ravel()

    def biases(self, bias: Tensor) -> Tensor:
        """A bias for each filter of the convolution."""
        count = self.rows.phases * self.columns.phases
        return bias.reshape([self.groups, 1, -1]).repeat([1, count, 1]).reshape([-1])

    def interleave(self, call: RuleCall, phases: Tensor) -> Tensor:
        """The result of the operator from that of the convolution, a channels-last image."""
        number, channels, *size = call.y.shape
        p, q = self.rows.phases, self.columns.phases
        extents = [number, self.rows.outputs, self.columns.outputs, self.groups, p, q, channels // self.groups]
        order = [axis for axis in (0, 1, 4, 2, 5, 3, 6) if extents[axis] > 1]
        require(len(order) <= MOST_AXES)
        apart = phases.reshape([extents[axis] for axis in sorted(order)]).transpose([sorted(order).index(axis) for axis in order])
        image = apart.reshape([number, self.rows.outputs * p, self.columns.outputs * q, channels])
        for axis, (one, out) in enumerate(zip((self.rows, self.columns), spatial_pair(size, 1), strict=True), 1):
            image = image.cut(axis, one.cut, one.cut + out)
        image = image.reshape([number, *size, channels])
        return image.transpose((0, image.rank - 1, *range(1, image.rank - 1)))

    def shape(self, call: RuleCall) -> list[int]:
        """The shape of that convolution's result, whose channels are those of all phases."""
        phases = self.rows.phases * self.columns.phases
        return [call.y.shape[0], self.rows.outputs, self.columns.outputs, phases * call.y.shape[1]]
