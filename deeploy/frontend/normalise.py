"""One spelling for every operator, whatever opset it was written in (docs/normalised-graph.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import UnsupportedError, shorten

_WINDOWED = ("Conv", "ConvInteger", "ConvTranspose", "QLinearConv", "MaxPool", "AveragePool", "LpPool", "QLinearAveragePool", "FusedConv")
_RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def normalise(graph: gs.Graph, version: int) -> gs.Graph:
    """Rewrite every node into its canonical spelling, in place, and return the graph."""
    for node in list(graph.nodes):
        if node.op in _WINDOWED:
            _window(node)
        elif node.op.startswith("Reduce") or node.op == "IntegerMean":
            _reduction(node)
        elif node.op in _SPELLINGS:
            _SPELLINGS[node.op](node)
        elif node.op == "Softmax" and not node.domain and version < 13:
            _old_softmax(graph, node)
        if node.op in _RESHAPES:
            node.op, node.attrs = "Reshape", {}
            node.inputs = node.inputs[:1]
        _axis(node, version)
        _check_types(node)
    return graph.cleanup().toposort()


def _check_types(node: gs.Node) -> None:
    for tensor in (*node.inputs, *node.outputs):
        if not tensor.is_empty() and np.dtype(tensor.dtype).name not in _ELEMENTS:
            raise UnsupportedError(
                f"tensor '{shorten(tensor.name)}' at node '{shorten(node.name)}' ({shorten(node.op)})"
                f" has elements of type {np.dtype(tensor.dtype).name}",
                "Convert it to float32, int8, uint8, int16, int32 or int64.",
            )


_ELEMENTS = frozenset(["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32", "bool"])


def _value(node: gs.Node, position: int) -> np.ndarray | None:
    """A constant input; the importer has already refused run-time values in these places."""
    if len(node.inputs) <= position or node.inputs[position].is_empty():
        return None
    return np.asarray(node.inputs[position].values)


def _axis(node: gs.Node, version: int) -> None:
    defaults = {"Concat": None, "Gather": 0, "Split": 0, "QuantizeLinear": 1, "DequantizeLinear": 1, "QLinearConcat": None}
    if node.op == "Softmax" or node.op == "LogSoftmax":
        defaults[node.op] = -1 if version >= 13 or "axis" not in node.attrs else node.attrs["axis"]
    if node.op in defaults or "axis" in node.attrs:
        axis = node.attrs.get("axis", defaults.get(node.op))
        data = next((t for t in node.inputs if not t.is_empty() and t.shape is not None), None)
        rank = len(node.outputs[0].shape if node.op in ("Concat", "QLinearConcat") or data is None else data.shape)
        if isinstance(axis, int):
            node.attrs["axis"] = axis + rank if axis < 0 else axis


def _window(node: gs.Node) -> None:
    """Kernel shape, strides, dilations and pads as lists; ``auto_pad``, ``output_shape`` and ``ceil_mode`` resolved into pads."""
    x = node.inputs[0]
    weights = {"QLinearConv": 3}.get(node.op, 1) if "Conv" in node.op else None
    spatial = len(x.shape) - 2
    kernel = list(node.attrs.get("kernel_shape") or (node.inputs[weights].shape[2:] if weights is not None else ()))
    if spatial < 1 or len(kernel) != spatial:
        raise UnsupportedError(
            f"node '{shorten(node.name)}' ({node.op}) has {spatial} spatial axes and a kernel of {len(kernel)}",
            "Export the model with matching shapes.",
        )
    strides = list(node.attrs.get("strides") or [1] * spatial)
    dilations = list(node.attrs.get("dilations") or [1] * spatial)
    pads = list(node.attrs.get("pads") or [0] * 2 * spatial)
    auto = node.attrs.pop("auto_pad", "NOTSET")
    ceil = node.attrs.pop("ceil_mode", 0)
    wanted = node.outputs[0].shape[2:]
    extra = list(node.attrs.get("output_padding") or [0] * spatial)
    shaped = node.attrs.pop("output_shape", None)
    for i in range(spatial):
        reach = (kernel[i] - 1) * dilations[i] + 1
        if node.op == "ConvTranspose":
            total = strides[i] * (x.shape[2 + i] - 1) + extra[i] + reach - wanted[i]
            if shaped is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
                begin = total // 2 if auto == "SAME_UPPER" else total - total // 2
                pads[i], pads[i + spatial] = begin, total - begin
            continue
        total = max(0, (wanted[i] - 1) * strides[i] + reach - x.shape[2 + i])
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            begin = total // 2 if auto == "SAME_UPPER" else total - total // 2
            pads[i], pads[i + spatial] = begin, total - begin
        elif auto == "VALID":
            pads[i] = pads[i + spatial] = 0
        elif ceil:
            pads[i + spatial] = max(pads[i + spatial], total - pads[i])
    if ceil and node.op in ("AveragePool", "QLinearAveragePool") and node.attrs.get("count_include_pad"):
        node.attrs["ceil_pads"] = [pads[i + spatial] - (node.attrs.get("pads") or [0] * 2 * spatial)[i + spatial] for i in range(spatial)]
    node.attrs |= {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    if "Conv" in node.op:
        node.attrs["group"] = int(node.attrs.get("group", 1))
    if node.op == "ConvTranspose":
        node.attrs["output_padding"] = extra
    if "Average" in node.op:
        node.attrs["count_include_pad"] = int(node.attrs.get("count_include_pad", 0))


def _reduction(node: gs.Node) -> None:
    rank = len(node.inputs[0].shape)
    axes: Any = node.attrs.get("axes")
    if axes is None and (values := _value(node, 1)) is not None:
        axes = values.ravel().tolist()
    axes = [axes] if isinstance(axes, int) else list(axes or [])
    if not axes and node.attrs.pop("noop_with_empty_axes", 0):
        node.op, node.attrs, node.inputs = "Reshape", {}, node.inputs[:1]
        return
    node.attrs["axes"] = sorted({a % rank for a in axes}) if axes else list(range(rank))
    node.attrs["keepdims"] = int(node.attrs.get("keepdims", 1))
    node.inputs = node.inputs[:1]


def _clip(node: gs.Node) -> None:
    for position, name in ((1, "min"), (2, "max")):
        value = _value(node, position)
        if value is not None:
            node.attrs[name] = value.item()
        node.attrs.setdefault(name, None)
    node.inputs = node.inputs[:1]


def _pad(node: gs.Node) -> None:
    rank = len(node.inputs[0].shape)
    pads = _value(node, 1)
    amounts = node.attrs.get("pads", node.attrs.get("paddings")) if pads is None else pads.ravel().tolist()
    axes = _value(node, 3)
    if axes is not None:
        whole = [0] * 2 * rank
        for i, axis in enumerate(axes.ravel().tolist()):
            whole[axis % rank], whole[axis % rank + rank] = amounts[i], amounts[i + axes.size]
        amounts = whole
    value = _value(node, 2)
    node.attrs["pads"] = [int(a) for a in amounts]
    node.attrs["value"] = value.item() if value is not None else node.attrs.get("value", 0)
    node.attrs["mode"] = node.attrs.get("mode", "constant")
    node.inputs = node.inputs[:1]


def _slice(node: gs.Node) -> None:
    shape = node.inputs[0].shape
    rank = len(shape)
    parts: dict[str, list[int]] = {}
    for position, name in ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps")):
        value = _value(node, position)
        given = value.ravel().tolist() if value is not None else node.attrs.get(name)
        if given is not None:
            parts[name] = [given] if isinstance(given, int) else list(given)
    axes = parts.get("axes", list(range(len(parts["starts"]))))
    steps = parts.get("steps", [1] * len(axes))
    starts, ends, strides = [0] * rank, list(shape), [1] * rank
    for axis, start, end, step in zip(axes, parts["starts"], parts["ends"], steps, strict=True):
        first, last, stride = slice(start, end, step).indices(shape[axis % rank])
        starts[axis % rank], ends[axis % rank], strides[axis % rank] = first, last, stride
    node.attrs = {"starts": starts, "ends": ends, "steps": strides}
    node.inputs = node.inputs[:1]


def _split(node: gs.Node) -> None:
    axis = node.attrs.get("axis", 0)
    node.attrs = {"axis": axis, "split": [t.shape[axis] for t in node.outputs]}
    node.inputs = node.inputs[:1]


def _gemm(node: gs.Node) -> None:
    for name, default in (("alpha", 1.0), ("beta", 1.0)):
        node.attrs[name] = float(node.attrs.get(name, default))
    for name in ("transA", "transB"):
        node.attrs[name] = int(node.attrs.get(name, 0))


def _expand(node: gs.Node) -> None:
    node.inputs = node.inputs[:1]
    if math.prod(node.inputs[0].shape) == math.prod(node.outputs[0].shape):
        node.op, node.attrs = "Reshape", {}


def _transpose(node: gs.Node) -> None:
    rank = len(node.inputs[0].shape)
    node.attrs["perm"] = list(node.attrs.get("perm") or reversed(range(rank)))


_SPELLINGS: dict[str, Callable[[gs.Node], None]] = {
    "Clip": _clip,
    "Pad": _pad,
    "Slice": _slice,
    "Split": _split,
    "Gemm": _gemm,
    "QGemm": _gemm,
    "Expand": _expand,
    "Transpose": _transpose,
}


def _old_softmax(graph: gs.Graph, node: gs.Node) -> None:
    """Before opset 13 Softmax works on the tensor flattened to two axes at ``axis``."""
    axis = node.attrs.get("axis", 1) % len(node.inputs[0].shape)
    x, y = node.inputs[0], node.outputs[0]
    rows, columns = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    node.attrs["axis"] = axis
    if columns == x.shape[axis]:
        return
    flat = [gs.Variable(f"{y.name} ({kind})", x.dtype, [rows, columns]) for kind in ("flattened", "flat softmax")]
    graph.nodes.append(gs.Node("Reshape", f"{node.name} (flatten)", {}, [x], [flat[0]]))
    graph.nodes.append(gs.Node("Reshape", f"{node.name} (restore)", {}, [flat[1]], [y]))
    node.inputs, node.outputs, node.attrs["axis"] = [flat[0]], [flat[1]], 1
