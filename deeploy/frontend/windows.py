"""Normalisation of operators with a sliding window: convolutions and pools.

Padding is written out: ``auto_pad`` (ONNX, operator Conv: SAME_UPPER puts the odd element at the end, SAME_LOWER at the
beginning) and ``ceil_mode`` become explicit ``pads``. Output shapes are those that the onnx package infers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deeploy.errors import ModelError, UnsupportedError
from deeploy.frontend.rules import Draft, broken_node, constant_operand, describe_node, integer_attribute, integer_list
from deeploy.frontend.schemas import WEIGHTS
from deeploy.ir.nodes import Tensor, compute

_COUNTING = ("AveragePool", "QLinearAveragePool")


@dataclass(frozen=True)
class _WindowSettings:
    """Per spatial axis: extents of input and output, and the window; ``reach`` is the extent of the dilated kernel."""

    sizes: list[int]
    outputs: list[int]
    kernel: list[int]
    strides: list[int]
    dilations: list[int]

    @property
    def reach(self) -> list[int]:
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    def spans(self, pads: list[int]) -> list[int]:
        """How far the window can move in the padded input."""
        begins, ends = np.split(np.array(pads), 2)
        spans: list[int] = (self.sizes + begins + ends - self.reach).tolist()
        return spans


def _read_window(node: Draft, weight: Tensor | None) -> _WindowSettings:
    shape, outputs = list(node.x.shape), list(node.y.shape)
    rank = len(shape) - 2
    if rank < 1:
        raise broken_node(node, f"has an input of shape {shape}, which has no spatial axis")
    kernel = integer_list(node, "kernel_shape", rank, list(weight.shape[2:]) if weight is not None else [])
    if len(kernel) != rank:
        raise broken_node(node, "lacks a kernel_shape for each spatial axis")
    if weight is not None and kernel != list(weight.shape[2:]):
        raise broken_node(node, f"has kernel_shape {kernel}, but its weight has the shape {list(weight.shape)}")
    ones = [1] * rank
    window = _WindowSettings(
        shape[2:], outputs[2:], kernel, integer_list(node, "strides", rank, ones), integer_list(node, "dilations", rank, ones)
    )
    if min(window.kernel + window.strides + window.dilations) < 1:
        raise broken_node(node, "has a kernel, stride or dilation below 1")
    return window


def _explicit_pads(node: Draft, window: _WindowSettings) -> list[int]:
    """All begins, then all ends, from ``pads`` and ``auto_pad``."""
    rank = len(window.sizes)
    mode = node.attrs.pop("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = integer_list(node, "pads", 2 * rank, [0] * (2 * rank))
        if min(pads) < 0:
            raise UnsupportedError(f"{describe_node(node)} has negative pads {pads}", "crop its input with a Slice instead")
        return pads
    if mode == "VALID":
        return [0] * (2 * rank)
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise broken_node(node, f"has an unknown auto_pad '{mode[:40]}'")
    totals = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(window.sizes, window.strides, window.reach, strict=True)]
    return _share_padding(totals, upper=mode == "SAME_UPPER")


def _share_padding(totals: list[int], upper: bool) -> list[int]:
    """Halve the padding of every axis; the odd element goes to the end when ``upper``, else to the beginning."""
    begins = [t // 2 if upper else t - t // 2 for t in totals]
    return begins + [t - b for t, b in zip(totals, begins, strict=True)]


def _count_groups(node: Draft, weight: Tensor) -> int:
    """The number of groups, with which the channels of the input and the shape of the weight agree."""
    groups, channels, shape = integer_attribute(node, "group", 1), node.x.shape[1], list(weight.shape)
    fits = groups > 0 and shape[0] % groups == 0 and channels == (shape[0] if node.op == "ConvTranspose" else shape[1] * groups)
    if not fits:
        raise broken_node(node, f"has {channels} input channels in {groups} groups, which its weight of shape {shape} does not fit")
    return groups


def normalise_convolution(node: Draft) -> Tensor | None:
    """Conv, QLinearConv, ConvInteger: every attribute present, padding explicit."""
    weight = node.needed(WEIGHTS[node.op])
    window = _read_window(node, weight)
    groups = _count_groups(node, weight)
    pads = _explicit_pads(node, window)
    spans = window.spans(pads)
    if min(spans) < 0 or [span // s + 1 for span, s in zip(spans, window.strides, strict=True)] != window.outputs:
        raise _impossible_window(node, window)
    _store_window(node, window, pads, group=groups)
    return None


def _impossible_window(node: Draft, window: _WindowSettings) -> ModelError:
    return broken_node(node, f"has an output of {window.outputs} elements, which its window cannot produce")


def transposed_convolution(node: Draft) -> Tensor | None:
    """ConvTranspose: ``output_shape`` and ``auto_pad`` become pads (ONNX, operator ConvTranspose).

    Total padding is what the unpadded output exceeds the wanted one by; where it falls short, ``output_padding`` grows.
    With ``output_shape`` and no auto_pad the odd element goes to the beginning, as in onnxruntime.
    """
    window = _read_window(node, node.needed(1))
    rank = len(window.sizes)
    mode = node.attrs.get("auto_pad", "NOTSET")
    extra = integer_list(node, "output_padding", rank, [0] * rank)
    fixed = node.attrs.pop("output_shape", None)
    if mode in ("SAME_UPPER", "SAME_LOWER") and any(extra) and not fixed:
        raise UnsupportedError(
            f"{describe_node(node)} has both auto_pad '{mode}' and output_padding, of which runtimes make outputs of different sizes",
            "state its pads, or its output_shape",
        )
    if mode in ("SAME_UPPER", "SAME_LOWER") or fixed:
        full = [s * (n - 1) + r for n, s, r in zip(window.sizes, window.strides, window.reach, strict=True)]
        excess = [f + e - o for f, e, o in zip(full, extra, window.outputs, strict=True)]
        pads = _share_padding([max(e, 0) for e in excess], upper=mode == "SAME_UPPER")
        extra = [e + max(-x, 0) for e, x in zip(extra, excess, strict=True)]
        node.attrs.pop("auto_pad", None)
    else:
        pads = _explicit_pads(node, window)
    _store_window(node, window, pads, group=_count_groups(node, node.needed(1)), output_padding=extra)
    return None


def normalise_pool(node: Draft) -> Tensor | None:
    """MaxPool, AveragePool, LpPool, QLinearAveragePool: ``ceil_mode`` becomes larger pads at the end.

    The padding that ``ceil_mode`` adds never counts in an average, while ``count_include_pad`` demands that the other one
    does. Where a node wants both, its own padding becomes a Pad before it.
    """
    if integer_attribute(node, "channels_last", 0):
        raise UnsupportedError(f"{describe_node(node)} has channels_last", "export the model with channels on axis 1")
    window = _read_window(node, None)
    mode = node.attrs.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER") and any(dilation != 1 for dilation in window.dilations):
        raise UnsupportedError(
            f"{describe_node(node)} has both auto_pad '{mode}' and dilations, of which runtimes make outputs of different sizes",
            "state its pads",
        )
    pads = _explicit_pads(node, window)
    rank = len(window.sizes)
    ends = [_end_padding(window, axis, pads[axis], pads[rank + axis]) for axis in range(rank)]
    # The standard's output of a window that is wider by a stride or more has no elements.
    is_wider = any(n > 0 and span <= -s for n, span, s in zip(window.outputs, window.spans(pads), window.strides, strict=True))
    if is_wider or (ends != pads[rank:] and not integer_attribute(node, "ceil_mode", 0)):
        raise _impossible_window(node, window)
    counts = integer_attribute(node, "count_include_pad", 0)
    if counts and node.op in _COUNTING and any(want > end for want, end in zip(ends, pads[rank:], strict=True)):
        _pad_input(node, pads)
        ends = [max(want - end, 0) for want, end in zip(ends, pads[rank:], strict=True)]
        pads, counts = [0] * (2 * rank), 0
    if any(end < 0 for end in ends):
        raise _impossible_window(node, window)
    _store_window(node, window, pads[:rank] + ends)
    for name in ("ceil_mode", "channels_last", "count_include_pad"):
        node.attrs.pop(name, None)
    if node.op in _COUNTING:
        node.attrs["count_include_pad"] = counts
    if len(node.outputs) == 1:
        node.attrs.pop("storage_order", None)
    return None


def _end_padding(window: _WindowSettings, axis: int, begin: int, end: int) -> int:
    """The pad at the end of an axis with which the window fits exactly as often as the output is long."""
    size, reach, stride, output = window.sizes[axis], window.reach[axis], window.strides[axis], window.outputs[axis]
    if (size + begin + end - reach) // stride + 1 == output:
        return end
    return (output - 1) * stride + reach - size - begin


def _pad_input(node: Draft, pads: list[int]) -> None:
    """Pad the input of ``node`` with its zero."""
    value: float = 0.0 if node.x.dtype.is_float else 0
    if node.op == "QLinearAveragePool" and (zero := constant_operand(node, 2)) is not None:
        value = int(zero.reshape(-1)[0])
    rank = len(pads) // 2
    node.inputs[0] = compute("Pad", node.x, pads=[0, 0, *pads[:rank], 0, 0, *pads[rank:]], mode="constant", value=value)


def _store_window(node: Draft, window: _WindowSettings, pads: list[int], **more: int | list[int]) -> None:
    node.attrs.update(kernel_shape=window.kernel, strides=window.strides, dilations=window.dilations, pads=pads, **more)
