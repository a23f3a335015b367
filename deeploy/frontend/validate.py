"""Whether what a model says can be meant: its texts, and the attributes and the number of inputs and outputs of its nodes.

Checked once, when a model comes in: against the definitions of the onnx package where it has the operator, and against its record
(``records``). Everything behind may rely on it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto
from onnx.defs import OpSchema

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.attributes import read_attributes
from deeploy.frontend.predicates import Inputs, type_of, value_of
from deeploy.frontend.records import Attribute, Record
from deeploy.frontend.schemas import ML, QUANTISED, RECORDS, Attributes, canonical_domain, find_record, find_signature, like_standard
from deeploy.frontend.structure import check_and_sort, count_inputs, describe_node, is_control, node_graphs

MOST_ELEMENTS = 2**31 - 1  # of a tensor: loops count with the type int
SMALLEST_SCALE = float(np.finfo(np.float32).smallest_subnormal)  # of quantisation
LARGEST_SCALE = float(np.finfo(np.float32).max)

_NOT_FINITE = frozenset({"Imputer", "LabelEncoder"})  # operators that look for values that are no numbers
_CORRECT = "correct the model, or export it again"
_BULK = frozenset({"raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"})

# What an attribute has to be, as a message says it, the type of its values, and whether it is a list of these.
_KINDS: Mapping[int, tuple[str, type | tuple[type, ...], bool]] = {
    AttributeProto.INT: ("a whole number", int, False),
    AttributeProto.FLOAT: ("a finite number", (int, float), False),
    AttributeProto.STRING: ("a text", str, False),
    AttributeProto.TENSOR: ("a tensor", (np.ndarray, list, int, float), False),
    AttributeProto.INTS: ("a list of whole numbers", int, True),
    AttributeProto.FLOATS: ("a list of finite numbers", (int, float), True),
    AttributeProto.STRINGS: ("a list of texts", str, True),
}


def scales_of(op: str, inputs: int) -> tuple[int, ...]:
    """Positions of the inputs that are scales of a quantisation, which are finite and positive; each is followed by its zero point."""
    if op in ("QuantizeLinear", "DequantizeLinear"):
        return (1,)
    return QUANTISED[op].scales(inputs) if op in QUANTISED else ()


def check_text(model: onnx.ModelProto) -> None:
    """Raise ModelError where a name or another text of the model is not UTF-8."""
    wrong_text = next(_not_unicode(model, "the model"), None)
    if wrong_text is not None:
        raise ModelError(f"{wrong_text} is not UTF-8 text", "give it another name, or export the model again")


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
    for node in _all_nodes(model.graph, ()):
        domain = canonical_domain(node.domain, node.op_type)
        check_node(node, domain, read_attributes(node, domain), count_inputs(node), version)


def _all_nodes(graph: onnx.GraphProto, around: Iterable[str]) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of those in it, without those that hold these."""
    names = [*around, *(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)]
    names += [name for node in graph.node for name in node.output]
    for node in check_and_sort(graph, around):
        if not is_control(node):
            yield node
            continue
        for inner in node_graphs(node):
            yield from _all_nodes(inner, names)


def check_node(node: onnx.NodeProto, domain: str, attributes: Attributes, inputs: int, version: int) -> None:
    """Raise ModelError where a node has not the attributes, or not as many inputs and outputs, as its operator demands.

    Args:
        attributes: as ``read_attributes`` returns them.
        inputs: without absent ones at the end.
    """
    wrong = next(_node_problems(node, domain, attributes, inputs, version), None)
    if wrong is not None:
        raise ModelError(f"{describe_node(node)} {wrong}", _CORRECT)


def _node_problems(node: onnx.NodeProto, domain: str, attributes: Attributes, inputs: int, version: int) -> Iterator[str]:
    op = node.op_type
    if not any(node.output):
        yield "has no output"
    yield from _unlisted_values(find_record(domain, op).attributes, attributes)
    record = RECORDS.get((domain, op), Record())
    if record.inputs is not None:
        yield from _unlike_own(node, record, attributes, inputs)
        like = like_standard(domain, op, inputs)
        signature = find_signature(like[0], version, frozenset(), len(like[1])) if like is not None else None
        kinds = signature.attributes if signature is not None else {}
        yield from _unlike_kinds(
            op, {**kinds, **{n: known.kind for n, known in record.attributes.items() if known.kind is not None}}, attributes
        )
        return
    signature = find_signature(op, version, frozenset(attributes), inputs, domain) if domain in ("", ML) else None
    if signature is None:
        return
    unknown = (name for name in attributes if name not in signature.attributes and name not in record.attributes)
    yield from (f"has the attribute '{shorten(name, 40)}', which the operator does not define" for name in unknown)
    yield from (f"lacks the attribute '{name}'" for name in sorted(signature.required) if name not in attributes)
    yield from _count_problems(node, signature.schema, inputs)
    yield from _unlike_kinds(op, signature.attributes, attributes)


def _count_problems(node: onnx.NodeProto, schema: OpSchema, inputs: int) -> Iterator[str]:
    if not schema.min_input <= inputs <= schema.max_input:
        yield f"has {inputs} inputs, {_describe_range(schema.min_input, schema.max_input)} are needed"
    if len(node.output) > schema.max_output:
        yield f"has {len(node.output)} outputs, at most {schema.max_output} are defined"
    option = OpSchema.FormalParameterOption
    for position, parameter in enumerate(schema.inputs[:inputs]):
        later = slice(position, None if parameter.option == option.Variadic else position + 1)
        if parameter.option != option.Optional and not all(node.input[later]):
            yield f"lacks its input {position} ({parameter.name})"
    if not node.output[0] and schema.outputs and schema.outputs[0].option == option.Single:
        yield f"lacks its output 0 ({schema.outputs[0].name})"


def _describe_range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} or more" if high >= 2**31 - 1 else f"{low} to {high}"


def _unlike_own(node: onnx.NodeProto, record: Record, attributes: Attributes, inputs: int) -> Iterator[str]:
    (low, high), is_variadic = record.inputs or (0, 0), record.form is not None and record.form.count is None
    if not low <= inputs <= high or (is_variadic and inputs % 3 != 2):
        yield f"has {inputs} inputs, {_describe_range(low, high)} are needed"
    scales = scales_of(node.op_type, inputs)
    for position in range(inputs if is_variadic else low):
        if not node.input[position] and position - 1 not in scales:  # a zero point is 0 where it is absent
            yield f"lacks its input {position}"
    yield from (f"lacks the attribute '{name}'" for name, known in record.attributes.items() if known.is_needed and name not in attributes)
    for name, known in record.attributes.items():
        value = attributes.get(name)
        if value is not None and known.ends and (not isinstance(value, int) or not known.ends[0] <= value <= known.ends[1]):
            yield f"has {name} = {shorten(str(value), 40)}, a whole number from {known.ends[0]} to {known.ends[1]} is needed"


def _unlisted_values(known: Mapping[str, Attribute], attributes: Attributes) -> Iterator[str]:
    """Texts that are none of those that an attribute may be."""
    for name, value in attributes.items():
        texts = known[name].texts if name in known else ()
        for text in value if isinstance(value, list) else [value]:
            if texts and isinstance(text, str) and text not in texts:
                yield f"has {name} = '{shorten(text, 40)}', not one of {', '.join(filter(None, texts))}"


def _unlike_kinds(op: str, kinds: Mapping[str, int], attributes: Attributes) -> Iterator[str]:
    for name, value in attributes.items():
        text, kind, is_list = _KINDS.get(kinds.get(name, -1), ("", object, False))
        values = value if is_list else [value]
        fits = isinstance(values, list) and all(isinstance(one, kind) for one in values)
        numbers = [one for one in values if isinstance(one, float)] if fits and text and op not in _NOT_FINITE else []
        if not fits or not all(math.isfinite(one) or (op in ("Clip", "Pad") and math.isinf(one)) for one in numbers):
            yield f"has {name} = {shorten(str(value), 40)}, {text} is needed"


def check_size(name: str, shape: Sequence[int]) -> None:
    """Raise UnsupportedError where a tensor has more elements than generated code counts."""
    if math.prod(shape) > MOST_ELEMENTS:
        raise UnsupportedError(
            f"tensor '{shorten(name)}' has {math.prod(shape)} elements, the generated code counts to {MOST_ELEMENTS}",
            "check the shapes, or pin smaller dimensions: --dim NAME=VALUE",
        )


_OF_ELEMENTS = re.compile("ReduceM(ean|ax|in)|IntegerMean|Arg(Max|Min)|(Global)?(Average|Max|Lp)Pool")


def check_result(node: onnx.NodeProto, inputs: Inputs, shape: Sequence[int]) -> None:
    """Raise UnsupportedError where the mean or the extreme of no elements is computed: nothing is."""
    first = inputs[0] if inputs else None
    is_empty = first is not None and 0 in first.shape
    if is_empty and 0 not in shape and _OF_ELEMENTS.fullmatch(node.op_type.removeprefix("QLinear")):
        raise UnsupportedError(
            f"{describe_node(node)} computes a tensor of shape {list(shape)} from one without elements",
            "check the shapes, or pin other dimensions: --dim NAME=VALUE",
        )


def check_operands(node: onnx.NodeProto, domain: str, inputs: Inputs) -> None:
    """Raise where a node reads what its operator cannot: texts, too few axes, or a quantisation without a usable scale."""
    for name, tensor in zip(node.input, inputs, strict=False):
        if tensor is not None and type_of(tensor).kind in "OSU":
            raise UnsupportedError(
                f"tensor '{shorten(name)}' of {describe_node(node)} has elements of type string, which the generated code does not have",
                "replace the operators that read texts",
            )
    given, record = dict(enumerate(inputs)), RECORDS.get((domain, node.op_type), Record())
    first = given.get(0)
    rank = len(first.shape) if first is not None else 0
    if rank < record.rank:
        raise ModelError(f"{describe_node(node)} reads a tensor of {rank} axes, at least {record.rank} are needed", _CORRECT)
    for position in scales_of(node.op_type, len(inputs)):
        scale, zero = given.get(position), given.get(position + 1)
        if (value := value_of(scale)) is not None:
            _check_scale(node, node.input[position], value)
        if scale is not None and zero is not None and math.prod(zero.shape) not in (1, math.prod(scale.shape)):
            told = f"scales of shape {list(scale.shape)} and zero points of shape {list(zero.shape)}"
            raise ModelError(f"{describe_node(node)} has {told}", "give as many zero points as scales")
    for position, operand, axis in record.zero_points:
        zero, tensor = given.get(position), given.get(operand)
        if zero is not None and tensor is not None and not _zero_point_fits(zero.shape, tensor.shape, axis):
            name = shorten(node.input[position], 60)
            raise ModelError(
                f"{describe_node(node)} has zero points '{name}' of shape {list(zero.shape)} for {list(tensor.shape)}", _CORRECT
            )


def _zero_point_fits(zero: Sequence[int], shape: Sequence[int], axis: int) -> bool:
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
        raise ModelError(f"{describe_node(node)} has the scale '{shorten(name, 60)}', which {told}", limits)
