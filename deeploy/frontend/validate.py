"""Whether what a model says can be meant: its texts, and the attributes and the number of inputs and outputs of its nodes.

Checked once, when a model comes in: against the definitions of the onnx package where it has the operator, against ``OWN`` for the integer
dialect and for other vendors' operators. Everything behind may rely on it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto
from onnx.defs import OpSchema

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.attributes import read_attributes
from deeploy.frontend.schemas import (
    DIALECT_OPS,
    MICROSOFT,
    MICROSOFT_OPS,
    ML,
    QONNX,
    QUANTISED,
    Attributes,
    canonical_domain,
    like_standard,
    signature,
)
from deeploy.frontend.structure import check_and_sort, describe, is_control, subgraphs

MOST_ELEMENTS = 2**31 - 1  # of a tensor: loops count with the type int
SMALLEST_SCALE = float(np.finfo(np.float32).smallest_subnormal)  # of quantisation
LARGEST_SCALE = float(np.finfo(np.float32).max)

_NOT_FINITE = frozenset({"Imputer", "LabelEncoder"})  # operators that look for values that are no numbers
_CORRECT = "correct the model, or export it again"
_BULK = frozenset({"raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"})

INT, FLOAT, INTS, FLOATS = AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.INTS, AttributeProto.FLOATS
STRING, STRINGS = AttributeProto.STRING, AttributeProto.STRINGS
# What an attribute has to be, as a message says it, the type of its values, and whether it is a list of these.
_KINDS: Mapping[int, tuple[str, type | tuple[type, ...], bool]] = {
    INT: ("a whole number", int, False),
    FLOAT: ("a finite number", (int, float), False),
    AttributeProto.STRING: ("a text", str, False),
    AttributeProto.TENSOR: ("a tensor", (np.ndarray, list, int, float), False),
    INTS: ("a list of whole numbers", int, True),
    FLOATS: ("a list of finite numbers", (int, float), True),
    AttributeProto.STRINGS: ("a list of texts", str, True),
}

# What attributes of kind string may say. One that is not here is a text that nothing is named after.
_AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_DIRECTIONS = ("forward", "reverse", "bidirectional")
_ACTIVATIONS = (
    *("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu"),
    *("ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"),
)
ROUNDING_MODES = ("ROUND", "HALF_EVEN", "CEIL", "FLOOR", "UP", "DOWN", "ROUND_TO_ZERO", "HALF_UP", "HALF_DOWN")
_REDUCTIONS = ("none", "mean", "sum", "add", "mul", "max", "min")
CHOICES: Mapping[tuple[str, str], Sequence[str]] = {
    **{(op, "auto_pad"): _AUTO_PAD for op in ("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool", "QLinearConv")},
    **{(op, "auto_pad"): _AUTO_PAD for op in ("FusedConv", "QLinearAveragePool")},
    **{(op, "direction"): _DIRECTIONS for op in ("DynamicQuantizeLSTM", "GRU", "LSTM", "RNN")},
    **{(op, "activations"): _ACTIVATIONS for op in ("DynamicQuantizeLSTM", "GRU", "LSTM", "RNN")},
    **{(op, "activation"): (*_ACTIVATIONS, "Clip", "HardSwish") for op in ("FusedConv", "FusedGemm")},
    **{(op, "round_mode"): ("up", "down", "nearest") for op in ("Cast", "CastLike")},
    **{(op, "mode"): ("DCR", "CRD") for op in ("DepthToSpace", "SpaceToDepth")},
    **{(op, "reduction"): _REDUCTIONS for op in ("ScatterElements", "ScatterND", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("CausalConvWithState", "activation"): ("none", "silu", "swish"),
    ("Gelu", "approximate"): ("none", "tanh"),
    ("GridSample", "mode"): ("bilinear", "nearest", "bicubic", "linear", "cubic"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("ImageDecoder", "pixel_format"): ("RGB", "BGR", "Grayscale"),
    ("LinearAttention", "update_rule"): ("linear", "gated", "delta", "gated_delta"),
    **{(op, "rounding_mode"): (*ROUNDING_MODES, *map(str.lower, ROUNDING_MODES)) for op in ("Quant", "IntQuant", "Trunc")},
    ("MultiThreshold", "data_layout"): ("NCHW", "NHWC"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple", ""),
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("Resize", "coordinate_transformation_mode"): (
        *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
        *("tf_crop_and_resize", "tf_half_pixel_for_nn"),
    ),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("StringNormalizer", "case_change_action"): ("LOWER", "UPPER", "NONE"),
    ("TensorScatter", "mode"): ("linear", "circular"),
    ("TfIdfVectorizer", "mode"): ("TF", "IDF", "TFIDF"),
    ("Upsample", "mode"): ("nearest", "linear", "bilinear"),
}


@dataclass(frozen=True)
class Own:
    """What an operator demands that the onnx package does not define.

    Attributes:
        inputs: how many at least and at most.
        attributes: those that must be there, with the smallest and the largest value.
        optional: those that may be there: their kinds; ``needed`` must be, of these and of those that the standard's operator has.
        rank: axes of the first input, at least.
    """

    inputs: tuple[int, int]
    attributes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    optional: Mapping[str, int] = field(default_factory=dict)
    rank: int = 0
    needed: tuple[str, ...] = ()


_ANY, _WIDE, _POWER, _LEVELS = (-(2**31), 2**31 - 1), (-(2**62), 2**62), (1, 2**62), (2, 2**16)
_QUANTISED = Own((4, 5))
_DIALECT: Mapping[str, Own] = {
    "RequantShift": Own((3, 3), {"div": _POWER, "n_levels": (2, 2**32)}, {"signed": INT}),
    "iSoftmax": Own((1, 1), {"n_levels": _LEVELS, "coeffA": _ANY, "coeffB": _ANY, "coeffC": _ANY, "log2": (1, 2**31 - 1)}, rank=1),
    "ITAMax": Own((1, 1), {"n_levels": _LEVELS}, rank=1),
    "ITAPartialMax": Own((1, 1), {"n_levels": _LEVELS, "group_width": (1, 2**31 - 1)}, rank=1),
    "iLayerNorm": Own((3, 3), {"D": _POWER}, {"n_levels": INT}, rank=1),
    "iRMSNorm": Own((2, 2), {"D": _POWER}, {"n_levels": INT}, rank=1),
    "iNoNorm": Own((3, 3), {"mul": _ANY, "D": _POWER}, {"n_levels": INT}),
    "iGELU": Own((1, 1), {"b": (-(2**31), -1), "one": _ANY}),
    "iHardswish": Own((1, 1), {"three": _ANY, "six": (0, 2**31 - 1), "one_over_six": _ANY}),
    "TrueIntegerDiv": Own((1, 1), dict.fromkeys(("Delta", "eps", "eta", "y"), _WIDE)),
    "IntegerDiv": Own((2, 2), dict.fromkeys(("Delta", "eps", "eta"), _WIDE)),
    "IntegerMean": Own((1, 2), optional={"axes": INTS}),
}
_HEADS = {"num_heads": (1, 2**15)}
_WINDOW = {"auto_pad": STRING, "dilations": INTS, "group": INT, "kernel_shape": INTS, "pads": INTS, "strides": INTS}
_ATTENTION = {"do_rotary": INT, "mask_filter_value": FLOAT, "past_present_share_buffer": INT, "scale": FLOAT, "unidirectional": INT}
_GROUPED = {"do_rotary": INT, "local_window_size": INT, "rotary_interleaved": INT, "scale": FLOAT, "smooth_softmax": INT, "softcap": FLOAT}
_BITS = {"K": (1, 2**31 - 1), "N": (1, 2**31 - 1), "bits": (2, 8), "block_size": (16, 2**16)}
_ALPHAS = {f"activation_{name}": FLOAT for name in ("alpha", "beta", "gamma")}
_MICROSOFT_EXPANDED: Mapping[str, Own] = {
    "Attention": Own((2, 7), _HEADS, {**_ATTENTION, "qkv_hidden_sizes": INTS, "rotary_embedding_dim": INT}, rank=3),
    "BiasGelu": Own((2, 2)),
    "DynamicQuantizeLSTM": Own(
        (1, 12),
        {"hidden_size": (1, 2**31 - 1)},
        {
            "activations": STRINGS,
            **dict.fromkeys(("activation_alpha", "activation_beta"), FLOATS),
            "clip": FLOAT,
            "direction": STRING,
            "input_forget": INT,
        },
        rank=3,
    ),
    "DynamicQuantizeMatMul": Own((3, 5), rank=2),
    "EmbedLayerNormalization": Own((1, 9), optional={"epsilon": FLOAT, "mask_index_type": INT}, rank=2),
    "FastGelu": Own((1, 2)),
    "FusedConv": Own((2, 4), optional={**_WINDOW, "activation": STRING, "activation_params": FLOATS}, rank=3),
    "FusedGemm": Own(
        (2, 3), optional={"activation": STRING, **_ALPHAS, "alpha": FLOAT, "beta": FLOAT, "transA": INT, "transB": INT}, rank=2
    ),
    "FusedMatMul": Own((2, 2), optional={"alpha": FLOAT, "transA": INT, "transB": INT, "transBatchA": INT, "transBatchB": INT}, rank=2),
    "GatherBlockQuantized": Own((3, 4), {}, dict.fromkeys(("bits", "block_size", "gather_axis", "quantize_axis"), INT), rank=1),
    "GroupQueryAttention": Own((1, 14), {**_HEADS, "kv_num_heads": (1, 2**15)}, _GROUPED, rank=3),
    "MatMulIntegerToFloat": Own((4, 7), rank=2),
    "MatMulNBits": Own((3, 6), _BITS, {"accuracy_level": INT}, rank=1),
    "MultiHeadAttention": Own((1, 10), _HEADS, {"mask_filter_value": FLOAT, "scale": FLOAT, "unidirectional": INT}, rank=3),
    "QAttention": Own((5, 9), _HEADS, _ATTENTION, rank=3),
    "RotaryEmbedding": Own(
        (4, 4),
        optional=dict.fromkeys(("interleaved", "is_packed_batching", "num_heads", "rotary_embedding_dim"), INT) | {"scale": FLOAT},
        rank=3,
    ),
    "SkipLayerNormalization": Own((3, 5), optional={"epsilon": FLOAT}, rank=1),
    "SkipSimplifiedLayerNormalization": Own((3, 4), optional={"epsilon": FLOAT}, rank=1),
}
_MICROSOFT: Mapping[str, Own] = {
    "QLinearAdd": Own((7, 8)),
    "QLinearMul": Own((7, 8)),
    "QGemm": Own((6, 9)),
    "QLinearConcat": Own((5, 2**31), needed=("axis",)),
    "QLinearSoftmax": Own((4, 5), optional={"opset": INT}, rank=1),
    "QLinearSigmoid": _QUANTISED,
    "QLinearLeakyRelu": _QUANTISED,
    "QLinearAveragePool": Own((4, 5), optional={"channels_last": INT}, rank=3, needed=("kernel_shape",)),
    "QLinearGlobalAveragePool": Own((4, 5), optional={"channels_last": INT}, rank=3),
    "QLinearReduceMean": Own((4, 5), optional={"axes": INTS}, needed=("axes", "keepdims")),
    "Gelu": Own((1, 1)),
    "QuickGelu": Own((1, 1), optional={"alpha": FLOAT}),
    **_MICROSOFT_EXPANDED,
}
OWN: Mapping[tuple[str, str], Own] = {
    **{("", op): own for op, own in _DIALECT.items()},
    **{(MICROSOFT, op): own for op, own in _MICROSOFT.items()},
    **dict.fromkeys(((QONNX, "Quant"), (QONNX, "IntQuant")), Own((4, 4), {"signed": (0, 1), "narrow": (0, 1)})),
    (QONNX, "BipolarQuant"): Own((2, 2)),
    (QONNX, "Trunc"): Own((5, 6), optional={"signed": INT, "narrow": INT, "rounding_mode": STRING}),
    (QONNX, "MultiThreshold"): Own(
        (2, 2), optional={"out_scale": FLOAT, "out_bias": FLOAT, "out_dtype": STRING, "data_layout": STRING}, rank=1
    ),
    ("", "SimplifiedLayerNormalization"): Own((2, 3), optional={"epsilon": FLOAT, "axis": INT}, rank=1),
}
assert set(_DIALECT) == DIALECT_OPS and set(_MICROSOFT) == MICROSOFT_OPS


def scales_of(op: str, inputs: int) -> tuple[int, ...]:
    """Positions of the inputs that are scales of a quantisation, which are finite and positive; each is followed by its zero point."""
    if op in ("QuantizeLinear", "DequantizeLinear"):
        return (1,)
    return QUANTISED[op].scales(inputs) if op in QUANTISED else ()


# Zero points without a scale: their input, that which they belong to, and the axis along which there may be several.
ZERO_POINTS: Mapping[tuple[str, str], tuple[tuple[int, int, int], ...]] = {
    ("", "ConvInteger"): ((2, 0, 1), (3, 1, 0)),
    ("", "MatMulInteger"): ((2, 0, -2), (3, 1, -1)),
}


def check_text(model: onnx.ModelProto) -> None:
    """Raise ModelError where a name or another text of the model is not UTF-8."""
    found = next(_not_unicode(model, "the model"), None)
    if found is not None:
        raise ModelError(f"{found} is not UTF-8 text", "give it another name, or export the model again")


def _not_unicode(root: Any, whole: str) -> Iterator[str]:
    """The fields of kind string whose bytes are no text: protobuf hands these out as bytes."""
    waiting: list[tuple[Any, str]] = [(root, whole)]
    while waiting:
        message, where = waiting.pop()
        for descriptor, value in message.ListFields():
            if descriptor.name in _BULK:
                continue
            values = value if descriptor.is_repeated else [value]
            if descriptor.type == descriptor.TYPE_STRING and any(isinstance(text, bytes) for text in values):
                bad = next(text for text in values if isinstance(text, bytes))
                yield f"{descriptor.name} '{shorten(bad.decode('utf-8', 'backslashreplace'), 60)}' of {where}"
            elif descriptor.type == descriptor.TYPE_MESSAGE:
                kind = descriptor.message_type.name.removesuffix("Proto").lower()
                waiting += [(inner, f"a {kind}") for inner in values]


def check_model(model: onnx.ModelProto, version: int) -> None:
    """Raise ModelError where the graph is not well formed, or a node is not one of its operator.

    Raises:
        UnsupportedError: sparse constants, values that are not tensors.
    """
    for node in _nodes(model.graph, ()):
        domain = canonical_domain(node.domain, node.op_type)
        inputs = max((position for position, name in enumerate(node.input, 1) if name), default=0)
        check_node(node, domain, read_attributes(node, domain), inputs, version)


def _nodes(graph: onnx.GraphProto, around: Iterable[str]) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of those in it, without those that hold these."""
    names = [*around, *(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)]
    names += [name for node in graph.node for name in node.output]
    for node in check_and_sort(graph, around):
        if not is_control(node):
            yield node
            continue
        for inner in subgraphs(node):
            yield from _nodes(inner, names)


def check_node(node: onnx.NodeProto, domain: str, attributes: Attributes, inputs: int, version: int) -> None:
    """Raise ModelError where a node has not the attributes, or not as many inputs and outputs, as its operator demands.

    Args:
        attributes: as ``read_attributes`` returns them.
        inputs: without absent ones at the end.
    """
    if not any(node.output):
        raise ModelError(f"{describe(node)} has no output", _CORRECT)
    for name, value in attributes.items():
        _check_choice(node, name, value)
    own = OWN.get((domain, node.op_type))
    if own is not None:
        _check_own(node, own, attributes, inputs)
        like = like_standard(domain, node.op_type, inputs)
        found = signature(like[0], version, frozenset(), len(like[1])) if like is not None else None
        _check_kinds(node, {**(found.attributes if found is not None else {}), **own.optional}, attributes)
        return
    known = domain in ("", ML)
    found = signature(node.op_type, version, frozenset(attributes), inputs, domain) if known else None
    if found is None:
        return
    unknown = next((name for name in attributes if name not in found.attributes), None)
    if unknown is not None:
        raise ModelError(f"{describe(node)} has the attribute '{shorten(unknown, 40)}', which the operator does not define", _CORRECT)
    _check_needed(node, sorted(found.required), attributes)
    _check_counts(node, found.schema, inputs)
    _check_kinds(node, found.attributes, attributes)


def _check_needed(node: onnx.NodeProto, names: Iterable[str], attributes: Attributes) -> None:
    missing = next((name for name in names if name not in attributes), None)
    if missing is not None:
        raise ModelError(f"{describe(node)} lacks the attribute '{missing}'", _CORRECT)


def _check_counts(node: onnx.NodeProto, schema: OpSchema, inputs: int) -> None:
    if not schema.min_input <= inputs <= schema.max_input:
        raise ModelError(f"{describe(node)} has {inputs} inputs, {_between(schema.min_input, schema.max_input)} are needed", _CORRECT)
    if len(node.output) > schema.max_output:
        raise ModelError(f"{describe(node)} has {len(node.output)} outputs, at most {schema.max_output} are defined", _CORRECT)
    for position, parameter in enumerate(schema.inputs):
        later = slice(position, None if parameter.option == OpSchema.FormalParameterOption.Variadic else position + 1)
        if position < inputs and parameter.option != OpSchema.FormalParameterOption.Optional and not all(node.input[later]):
            raise ModelError(f"{describe(node)} lacks its input {position} ({parameter.name})", _CORRECT)
    if not node.output[0] and schema.outputs and schema.outputs[0].option == OpSchema.FormalParameterOption.Single:
        raise ModelError(f"{describe(node)} lacks its output 0 ({schema.outputs[0].name})", _CORRECT)


def _between(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} or more" if high >= 2**31 - 1 else f"{low} to {high}"


def _check_own(node: onnx.NodeProto, own: Own, attributes: Attributes, inputs: int) -> None:
    low, high = own.inputs
    if not low <= inputs <= high or (node.op_type == "QLinearConcat" and inputs % 3 != 2):
        raise ModelError(f"{describe(node)} has {inputs} inputs, {_between(low, high)} are needed", _CORRECT)
    scales = scales_of(node.op_type, inputs)
    for position in range(inputs if node.op_type == "QLinearConcat" else low):
        if not node.input[position] and position - 1 not in scales:  # a zero point is 0 where it is absent
            raise ModelError(f"{describe(node)} lacks its input {position}", _CORRECT)
    _check_needed(node, own.needed, attributes)
    for name, (least, most) in own.attributes.items():
        value = attributes.get(name)
        if not isinstance(value, int) or not least <= value <= most:
            told = f"has no {name}" if value is None else f"has {name} = {shorten(str(value), 40)}"
            raise ModelError(f"{describe(node)} {told}, a whole number from {least} to {most} is needed", _CORRECT)


def _check_choice(node: onnx.NodeProto, name: str, value: Any) -> None:
    known = CHOICES.get((node.op_type, name))
    for text in value if isinstance(value, list) else [value]:
        if known is not None and isinstance(text, str) and text not in known:
            choices = ", ".join(choice for choice in known if choice)
            raise ModelError(f"{describe(node)} has {name} = '{shorten(text, 40)}', not one of {choices}", _CORRECT)


def _check_kinds(node: onnx.NodeProto, kinds: Mapping[str, int], attributes: Attributes) -> None:
    for name, value in attributes.items():
        text, kind, is_list = _KINDS.get(kinds.get(name, -1), ("", object, False))
        values = value if is_list else [value]
        fits = isinstance(values, list) and all(isinstance(one, kind) for one in values)
        numbers = [one for one in values if isinstance(one, float)] if fits and text else []
        if not fits or any(
            not math.isfinite(one)
            for one in numbers
            if node.op_type not in _NOT_FINITE and not (node.op_type == "Clip" and math.isinf(one))
        ):
            raise ModelError(f"{describe(node)} has {name} = {shorten(str(value), 40)}, {text} is needed", _CORRECT)


def check_size(name: str, shape: Sequence[int]) -> None:
    """Raise UnsupportedError where a tensor has more elements than generated code counts."""
    if math.prod(shape) > MOST_ELEMENTS:
        raise UnsupportedError(
            f"tensor '{shorten(name)}' has {math.prod(shape)} elements, the generated code counts to {MOST_ELEMENTS}",
            "check the shapes, or pin smaller dimensions: --dim NAME=VALUE",
        )


_OF_ELEMENTS = re.compile("ReduceM(ean|ax|in)|IntegerMean|Arg(Max|Min)|(Global)?(Average|Max|Lp)Pool")


def check_result(node: onnx.NodeProto, inputs: Sequence[gs.Tensor | None], shape: Sequence[int]) -> None:
    """Raise UnsupportedError where the mean or the extreme of no elements is computed: nothing is."""
    first = inputs[0] if inputs else None
    is_empty = first is not None and 0 in first.shape
    if is_empty and 0 not in shape and _OF_ELEMENTS.fullmatch(node.op_type.removeprefix("QLinear")):
        raise UnsupportedError(
            f"{describe(node)} computes a tensor of shape {list(shape)} from one without elements",
            "check the shapes, or pin other dimensions: --dim NAME=VALUE",
        )


def check_operands(node: onnx.NodeProto, domain: str, inputs: Sequence[gs.Tensor | None]) -> None:
    """Raise where a node reads what its operator cannot: texts, too few axes, or a quantisation without a usable scale."""
    for name, tensor in zip(node.input, inputs, strict=False):
        if tensor is not None and np.dtype(tensor.dtype).kind in "OSU":
            raise UnsupportedError(
                f"tensor '{shorten(name)}' of {describe(node)} has elements of type string, which the generated code does not have",
                "replace the operators that read texts",
            )
    own = OWN.get((domain, node.op_type))
    rank = len(inputs[0].shape) if inputs and inputs[0] is not None else 0
    if own is not None and rank < own.rank:
        raise ModelError(f"{describe(node)} reads a tensor of {rank} axes, at least {own.rank} are needed", _CORRECT)
    for position in scales_of(node.op_type, len(inputs)):
        scale, zero = ((inputs[p] if p < len(inputs) else None) for p in (position, position + 1))
        if isinstance(scale, gs.Constant):
            _check_scale(node, node.input[position], np.asarray(scale.values))
        if scale is not None and zero is not None and math.prod(zero.shape) not in (1, math.prod(scale.shape)):
            told = f"scales of shape {list(scale.shape)} and zero points of shape {list(zero.shape)}"
            raise ModelError(f"{describe(node)} has {told}", "give as many zero points as scales")
    for position, operand, axis in ZERO_POINTS.get((domain, node.op_type), ()):
        zero, tensor = ((inputs[p] if p < len(inputs) else None) for p in (position, operand))
        if zero is not None and tensor is not None and not _fits(zero.shape, tensor.shape, axis):
            name = shorten(node.input[position], 60)
            raise ModelError(f"{describe(node)} has zero points '{name}' of shape {list(zero.shape)} for {list(tensor.shape)}", _CORRECT)


def _fits(zero: Sequence[int], shape: Sequence[int], axis: int) -> bool:
    """Whether there is one zero point, one per entry along an axis, or, of a stack of matrices, one per row or column of each."""
    summed = {-1: -2, -2: -1}.get(axis)
    own = [1 if at - len(shape) == summed else n for at, n in enumerate(shape)]
    stacked = summed is not None and len(zero) == len(shape) and all(n in (1, most) for n, most in zip(zero, own, strict=True))
    return math.prod(zero) in (1, *shape[axis : axis + 1 or None]) or stacked


def _check_scale(node: onnx.NodeProto, name: str, value: np.ndarray) -> None:
    scale = np.atleast_1d(value)
    is_float = scale.dtype.kind == "f"
    real = scale.astype(np.float64).ravel() if is_float else np.zeros(0)
    bad = real[~((real >= SMALLEST_SCALE) & (real <= LARGEST_SCALE))]
    if not scale.size or not is_float or bad.size:
        told = f"is {bad[0]:g}" if bad.size else f"holds {scale.dtype}{list(scale.shape)}"
        limits = f"scales are from {SMALLEST_SCALE:.3g} to {LARGEST_SCALE:g}"
        if bad.size and bad[0] > LARGEST_SCALE:
            limits = "a mask of minus infinity leads to it: quantise the float model with deeploy quantize, which bounds masks"
        raise ModelError(f"{describe(node)} has the scale '{shorten(name, 60)}', which {told}", limits)
