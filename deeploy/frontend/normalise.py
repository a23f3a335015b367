"""One spelling for what ONNX lets files say in many ways: from traced nodes to the normalised graph (docs/normalised-graph.md).

Every operator has at most one rule. Nodes come in topological order, so that a rule which replaces a tensor is done
before the tensor's readers are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from deeploy.errors import UnsupportedError
from deeploy.frontend import integers, recurrent, regions, windows
from deeploy.frontend.rules import Context, Result, Rule, axis_of, broken, describe, integer, operand, restate
from deeploy.frontend.schemas import MICROSOFT, defaults

_UNBOUNDED = float(np.finfo(np.float32).max)


def normalise(nodes: Iterable[gs.Node], outputs: Sequence[gs.Tensor], context: Context) -> tuple[list[gs.Node], list[gs.Tensor]]:
    """Apply the rules; returns the nodes that ``outputs`` depend on, and what ``outputs`` are now."""
    replaced: dict[int, gs.Tensor] = {}
    result: list[gs.Node] = []
    for node in nodes:
        for position, tensor in enumerate(node.inputs):
            if id(tensor) in replaced:
                node.inputs[position] = replaced[id(tensor)]
        made = _apply(node, context)
        if isinstance(made, gs.Tensor):
            replaced[id(node.outputs[0])] = made
            node.inputs.clear()  # or the node would still count as a reader
        elif made is None:
            result.append(node)
        else:
            result += made
            if all(other is not node for other in made):
                node.inputs.clear()
                node.outputs.clear()
    final = [replaced.get(id(tensor), tensor) for tensor in outputs]
    return _live(result, final), final


def _apply(node: gs.Node, context: Context) -> Result:
    rule = RULES.get((node.domain, node.op))
    if node.domain == "" or node.domain == MICROSOFT:
        for name, value in defaults(node.op, node.domain, context.version, frozenset(node.attrs), len(node.inputs)).items():
            node.attrs.setdefault(name, value)
    return None if rule is None else rule(node, context)


def _live(nodes: list[gs.Node], outputs: Sequence[gs.Tensor]) -> list[gs.Node]:
    needed = {id(tensor) for tensor in outputs}
    kept = []
    for node in reversed(nodes):
        if any(id(tensor) in needed for tensor in node.outputs):
            needed.update(id(tensor) for tensor in node.inputs)
            kept.append(node)
        else:
            node.inputs.clear()
    return kept[::-1]


def gemm(node: gs.Node, context: Context) -> Result:
    """Gemm, QGemm: ``alpha``, ``beta`` floats, ``transA``, ``transB`` ints."""
    for name in ("alpha", "beta"):
        if name == "alpha" or node.op != "QGemm":
            node.attrs[name] = float(node.attrs.get(name, 1.0))
    for name in ("transA", "transB"):
        node.attrs[name] = integer(node, name, 0)
    return None


def clip(node: gs.Node, context: Context) -> Result:
    """Clip: ``min`` and ``max`` are floats, None where there is no bound; computed ones, and wide integers, are those of Max and Min."""
    is_computed = any(isinstance(tensor, gs.Variable) and not tensor.is_empty() for tensor in node.inputs[1:])
    if is_computed or (integers.is_wide(node.inputs[0]) and any(not tensor.is_empty() for tensor in node.inputs[1:])):
        return _computed_clip(node, context)
    bounds: dict[str, float | None] = {}
    for name, position, sign in (("min", 1, -1), ("max", 2, 1)):
        found = operand(node, position)
        if found is not None and found.size != 1:
            raise broken(node, f"has a bound '{name}' of {found.size} elements")
        value = node.attrs.get(name) if found is None else found.reshape(-1)[0]
        if value is not None and np.isnan(value):
            raise broken(node, f"has a bound '{name}' that is not a number")
        bounds[name] = None if value is None or float(value) * sign >= _UNBOUNDED else float(value)
    restate(node, "Clip", **bounds)
    return node.inputs[0] if bounds == {"min": None, "max": None} else None


def _computed_clip(node: gs.Node, context: Context) -> list[gs.Node]:
    x, y = node.inputs[0], node.outputs[0]
    given = [(op, tensor) for op, tensor in zip(("Max", "Min"), node.inputs[1:], strict=False) if not tensor.is_empty()]
    made = []
    for number, (op, bound) in enumerate(given, 1):
        result = y if number == len(given) else context.like(y, op.lower(), list(y.shape))
        made.append(context.node(op, node, {}, [x, bound], result))
        x = result
    return made


def batch_normalisation(node: gs.Node, context: Context) -> Result:
    """BatchNormalization for inference: only ``epsilon`` is left."""
    if integer(node, "training_mode", 0) or len(node.outputs) > 1:
        raise UnsupportedError(f"{describe(node)} is in training mode", "export the model for inference")
    if not integer(node, "spatial", 1):
        raise UnsupportedError(f"{describe(node)} normalises per element (spatial = 0)", "export the model with a newer opset")
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    node.attrs.clear()
    node.attrs["epsilon"] = epsilon
    return None


def cast_like(node: gs.Node, context: Context) -> Result:
    """CastLike: a Cast to the type of the second input."""
    target = np.dtype(node.inputs[1].dtype)
    restate(node, "Cast", to=int(onnx.helper.np_dtype_to_tensor_dtype(target)))
    return node.inputs[0] if target == node.inputs[0].dtype else None


def cast(node: gs.Node, context: Context) -> Result:
    """Cast: none where the types are one, as those of floats of 32 and 64 bits are."""
    return node.inputs[0] if node.inputs[0].dtype == node.outputs[0].dtype else None


def softmax(node: gs.Node, context: Context) -> Result:
    """Softmax, LogSoftmax, Hardmax as in opset 13: along one axis.

    Before, everything from ``axis`` on was one axis, which takes a Reshape before and after where it is really several.
    QLinearSoftmax says by an attribute of its own which of the two it means.
    """
    x = node.inputs[0]
    rank = len(x.shape)
    version = integer(node, "opset", context.version) if node.op == "QLinearSoftmax" else context.version
    if "opset" in node.attrs:
        node.attrs["opset"] = max(version, 13)
    if version >= 13:
        node.attrs["axis"] = axis_of(node, integer(node, "axis", -1), rank)
        return None
    axis = axis_of(node, integer(node, "axis", 1), rank, limit=rank + 1)
    long = [i for i in range(axis, rank) if x.shape[i] != 1]
    if len(long) <= 1 and axis < rank:
        node.attrs["axis"] = long[0] if long else rank - 1
        return None
    return _flattened_softmax(node, context, axis)


def _flattened_softmax(node: gs.Node, context: Context, axis: int) -> list[gs.Node]:
    x, y = node.inputs[0], node.outputs[0]
    flat = [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])]
    before, after = context.like(x, "flat", flat), context.like(y, "flat", flat)
    first = context.node("Reshape", node, {}, [x], before)
    node.inputs[0] = before
    node.outputs = [after]
    node.attrs["axis"] = 1
    return [first, node, context.node("Reshape", node, {}, [after], y)]


_STANDARD: dict[str, Rule] = {
    **dict.fromkeys(("Conv", "QLinearConv", "ConvInteger"), windows.convolution),
    "ConvTranspose": windows.transposed_convolution,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), windows.pool),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"), regions.reshape),
    **{f"Reduce{kind}": regions.reduction for kind in ("L2", "LogSum", "LogSumExp", "Max", "Min", "Prod", "Sum")},
    **dict.fromkeys(("ReduceL1", "ReduceSumSquare"), integers.of_squares),
    "ReduceMean": integers.mean,
    "IntegerMean": regions.reduction,
    "Split": regions.split,
    "Slice": regions.slice_,
    "Pad": regions.pad,
    "Transpose": regions.transpose,
    **dict.fromkeys(("Gather", "GatherElements"), regions.gather),
    **dict.fromkeys(("ScatterElements", "ArgMax", "ArgMin", "TopK"), regions.with_axis),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "LpNormalization"), regions.with_axis),
    "Concat": regions.concat,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), regions.quantisation),
    "Gemm": gemm,
    "Clip": clip,
    "Relu": integers.relu,
    "Sign": integers.sign,
    "Abs": integers.absolute,
    "PRelu": integers.leaky,
    "Pow": integers.power,
    "BatchNormalization": batch_normalisation,
    "Cast": cast,
    "CastLike": cast_like,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), recurrent.recurrent),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), softmax),
}
_MICROSOFT: dict[str, Rule] = {
    "QLinearAveragePool": windows.pool,
    "QLinearReduceMean": regions.reduction,
    "QLinearConcat": regions.concat,
    "QLinearSoftmax": softmax,
    "QGemm": gemm,
}
RULES: dict[tuple[str, str], Rule] = {
    **{("", op): rule for op, rule in _STANDARD.items()},
    **{(MICROSOFT, op): rule for op, rule in _MICROSOFT.items()},
}
