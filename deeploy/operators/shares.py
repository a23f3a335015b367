"""What the attributes of an operator become where it computes a share of its outputs: some indices along one axis of its operands.

Most attributes do not depend on extents. Those that do are listed here, so that nothing that divides graphs has to know operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deeploy.graph.nodes import Node

Kept = Sequence[np.ndarray | None]  # per operand, inputs first: the indices that are kept along its axis, None for all
Share = Callable[[Node, Sequence[int | None], Kept], Mapping[str, Any] | None]


def shared(node: Node, axes: Sequence[int | None], kept: Kept) -> Mapping[str, Any] | None:
    """The attributes of ``node`` on a share of its operands; None where no attributes express that.

    Args:
        axes: per operand, inputs first, the axis that is divided.
        kept: the indices that are kept along it.
    """
    rule = _RULES.get(node.op)
    return dict(node.attrs) if rule is None else rule(node, axes, kept)


def _slice(node: Node, axes: Sequence[int | None], kept: Kept) -> Mapping[str, Any] | None:
    axis, before, after = axes[0], kept[0], kept[1]
    if axis is None or before is None or after is None:
        return dict(node.attrs)
    start, step = node.attrs["starts"][axis], node.attrs["steps"][axis]
    wanted = start + step * after
    places = np.searchsorted(before, wanted)
    if not len(places) or places[-1] >= len(before) or not np.array_equal(before[places], wanted):
        return None
    steps = np.diff(places)
    if len(steps) and (steps != steps[0]).any():
        return None
    own = int(steps[0]) if len(steps) else 1
    changed = {"starts": int(places[0]), "ends": int(places[-1]) + 1, "steps": own}
    return {**node.attrs, **{name: _replaced(node.attrs[name], axis, value) for name, value in changed.items()}}


def _replaced(values: Sequence[int], axis: int, value: int) -> tuple[int, ...]:
    return tuple(value if i == axis else int(v) for i, v in enumerate(values))


def _split(node: Node, axes: Sequence[int | None], kept: Kept) -> Mapping[str, Any] | None:
    if axes[0] != node.attrs["axis"]:
        return dict(node.attrs)
    sizes = tuple(len(k) for k in kept[1:] if k is not None)
    return {**node.attrs, "sizes": sizes} if len(sizes) == len(node.outputs) else None


def _convolution(node: Node, axes: Sequence[int | None], kept: Kept) -> Mapping[str, Any] | None:
    """Groups are divided with the channels of the image; a dense convolution has one, whatever is divided."""
    groups, channels = int(node.attrs["group"]), kept[0]
    x = node.inputs[0]
    assert x is not None
    if groups == 1 or channels is None:
        return dict(node.attrs) if groups == 1 else None
    own = groups * len(channels)
    return {**node.attrs, "group": own // x.shape[-1]} if own % x.shape[-1] == 0 else None


_RULES: Mapping[str, Share] = {"Slice": _slice, "Split": _split, "Conv": _convolution, "ConvTranspose": _convolution}
