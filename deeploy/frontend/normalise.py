"""One spelling for what ONNX lets files say in many ways: what a node of the normalised graph is (docs/normalised-graph.md).

Every operator has at most one rule.
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from deeploy.errors import UnsupportedError
from deeploy.frontend import integers, recurrent, regions, windows
from deeploy.frontend.rules import Draft, Rule, axis_of, broken_node, constant_operand, describe_node, integer_attribute, restate_node
from deeploy.frontend.schemas import MICROSOFT, WEIGHTS, default_attributes
from deeploy.frontend.vendors import DIALECT
from deeploy.ir.nodes import Tensor, compute
from deeploy.operators.recurrent import GATES

_INTEGER_FORMS = {"Div": "IntegerDiv", "HardSwish": "iHardswish"}
_OF_INTEGERS = {name for op in _INTEGER_FORMS.values() for name in DIALECT[op].attributes}
_UNBOUNDED = float(np.finfo(np.float32).max)


def normalise_node(node: Draft) -> Tensor | None:
    """Apply the rule of a node's operator: the tensor that stands for its output, or None for what the draft says now."""
    if node.domain == "" or node.domain == MICROSOFT:
        node.attrs = {**default_attributes(node.op, node.domain, node.version, frozenset(node.attrs), len(node.inputs)), **node.attrs}
    rule = RULES.get((node.domain, node.op))
    return None if rule is None else rule(node)


def normalise_gemm(node: Draft) -> Tensor | None:
    """Gemm, QGemm: ``alpha``, ``beta`` floats, ``transA``, ``transB`` ints."""
    for name in ("alpha", "beta"):
        if name == "alpha" or node.op != "QGemm":
            node.attrs[name] = float(node.attrs.get(name, 1.0))
    for name in ("transA", "transB"):
        node.attrs[name] = integer_attribute(node, name, 0)
    return None


def of_floats(node: Draft) -> Tensor | None:
    """Div, HardSwish: of floats, what is left of the operator on integers that it was means nothing."""
    left = node.attrs.keys() & _OF_INTEGERS
    if left and not node.x.dtype.is_float:
        raise broken_node(node, f"computes integers and has the attribute '{min(left)}', which {_INTEGER_FORMS[node.op]} has")
    node.attrs = {name: value for name, value in node.attrs.items() if name not in left}
    return None


def normalise_clip(node: Draft) -> Tensor | None:
    """Clip: ``min`` and ``max`` are floats, None where there is no bound; computed ones, and wide integers, are those of Max and Min."""
    given = [(op, tensor) for op, tensor in zip(("Max", "Min"), node.inputs[1:], strict=False) if tensor is not None]
    if given and (integers.is_wide(node.x) or any(tensor.data is None for _, tensor in given)):
        x = node.x
        for op, bound in given:
            x = x.apply(op, bound)
        return x
    bounds: dict[str, float | None] = {}
    for name, position, sign in (("min", 1, -1), ("max", 2, 1)):
        bound_value = constant_operand(node, position)
        if bound_value is not None and bound_value.size != 1:
            raise broken_node(node, f"has a bound '{name}' of {bound_value.size} elements")
        value = node.attrs.get(name) if bound_value is None else bound_value.reshape(-1)[0]
        if value is not None and np.isnan(value):
            raise broken_node(node, f"has a bound '{name}' that is not a number")
        bounds[name] = None if value is None or float(value) * sign >= _UNBOUNDED else float(value)
    restate_node(node, "Clip", **bounds)
    return node.x if bounds == {"min": None, "max": None} else None


def batch_normalisation(node: Draft) -> Tensor | None:
    """BatchNormalization for inference: only ``epsilon`` is left."""
    if integer_attribute(node, "training_mode", 0) or len(node.outputs) > 1:
        raise UnsupportedError(f"{describe_node(node)} is in training mode", "export the model for inference")
    if not integer_attribute(node, "spatial", 1):
        raise UnsupportedError(f"{describe_node(node)} normalises per element (spatial = 0)", "export the model with a newer opset")
    node.attrs = {"epsilon": float(node.attrs.get("epsilon", 1e-5))}
    return None


def cast_like(node: Draft) -> Tensor | None:
    """CastLike: a Cast to the type of the second input."""
    target = node.needed(1).dtype
    restate_node(node, "Cast", to=int(onnx.helper.np_dtype_to_tensor_dtype(target.numpy)))
    return node.x if target is node.x.dtype else None


def normalise_cast(node: Draft) -> Tensor | None:
    """Cast: none where the types are one, as those of floats of 32 and 64 bits are."""
    return node.x if node.x.dtype is node.y.dtype else None


def normalise_softmax(node: Draft) -> Tensor | None:
    """Softmax, LogSoftmax, Hardmax as in opset 13: along one axis.

    Before, everything from ``axis`` on was one axis, which takes a Reshape before and after where it is really several.
    QLinearSoftmax says by an attribute of its own which of the two it means.
    """
    x = node.x
    rank = x.rank
    version = integer_attribute(node, "opset", node.version) if node.op == "QLinearSoftmax" else node.version
    if "opset" in node.attrs:
        node.attrs["opset"] = max(version, 13)
    if version >= 13:
        node.attrs["axis"] = axis_of(node, integer_attribute(node, "axis", -1), rank)
        return None
    axis = axis_of(node, integer_attribute(node, "axis", 1), rank, limit=rank + 1)
    long = [i for i in range(axis, rank) if x.shape[i] != 1]
    if len(long) <= 1 and axis < rank:
        node.attrs["axis"] = long[0] if long else rank - 1
        return None
    flat = x.reshape([math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])
    node.attrs["axis"] = 1
    return compute(node.op, flat, *node.inputs[1:], dtype=node.y.dtype, domain=node.domain, **node.attrs).reshape(node.y.shape)


_STANDARD: dict[str, Rule] = {
    **dict.fromkeys(WEIGHTS, windows.normalise_convolution),
    "ConvTranspose": windows.transposed_convolution,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), windows.normalise_pool),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"), regions.normalise_reshape),
    **{f"Reduce{kind}": regions.normalise_reduction for kind in ("L2", "LogSum", "LogSumExp", "Max", "Min", "Prod", "Sum")},
    **dict.fromkeys(("ReduceL1", "ReduceSumSquare"), integers.of_squares),
    "ReduceMean": integers.lower_mean,
    "IntegerMean": regions.normalise_reduction,
    "Split": regions.normalise_split,
    "Slice": regions.normalise_slice,
    "Pad": regions.normalise_pad,
    "Transpose": regions.normalise_transpose,
    **dict.fromkeys(("Gather", "GatherElements"), regions.normalise_gather),
    **dict.fromkeys(("ScatterElements", "ArgMax", "ArgMin", "TopK"), regions.with_axis),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "LpNormalization"), regions.with_axis),
    "Concat": regions.normalise_concat,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), regions.normalise_quantisation),
    "Gemm": normalise_gemm,
    "Clip": normalise_clip,
    **dict.fromkeys(_INTEGER_FORMS, of_floats),
    "Relu": integers.lower_relu,
    "Sign": integers.lower_sign,
    "Abs": integers.lower_absolute,
    "PRelu": integers.lower_leaky,
    "Pow": integers.lower_power,
    "BatchNormalization": batch_normalisation,
    "Cast": normalise_cast,
    "CastLike": cast_like,
    **dict.fromkeys(GATES, recurrent.normalise_recurrent),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), normalise_softmax),
}
_MICROSOFT: dict[str, Rule] = {
    "QLinearAveragePool": windows.normalise_pool,
    "QLinearReduceMean": regions.normalise_reduction,
    "QLinearConcat": regions.normalise_concat,
    "QLinearSoftmax": normalise_softmax,
    "QGemm": normalise_gemm,
}
RULES: dict[tuple[str, str], Rule] = {
    **{("", op): rule for op, rule in _STANDARD.items()},
    **{(MICROSOFT, op): rule for op, rule in _MICROSOFT.items()},
}
