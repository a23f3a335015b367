"""Texts that never are data: labels of classes become their places in a list, and dictionaries of scores the scores.

Classifiers of ai.onnx.ml may return texts, and ``ZipMap`` pairs every score with a label. C has neither: an output of texts becomes one of
int64, of which the project states the labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deeploy.frontend.attributes import decode_text
from deeploy.frontend.schemas import ML

Labels = dict[str, tuple[str, ...]]
_MOVES = frozenset({"ArrayFeatureExtractor", "Flatten", "Gather", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_LISTS = {  # attributes that are texts, and those of numbers in their place
    "classlabels_strings": {"LinearClassifier": "classlabels_ints", "SVMClassifier": "classlabels_ints", "": "classlabels_int64s"},
    "values_strings": {"": "values_int64s"},
}


def without_dictionaries(model: onnx.ModelProto) -> None:
    """Put the scores in the place of what ``ZipMap`` makes of them."""
    for node in model.graph.node:
        if node.op_type == "ZipMap" and node.domain == ML and node.input and node.output:
            made = helper.make_node("Identity", node.input[:1], node.output[:1], node.name)
            for value in (*model.graph.output, *model.graph.value_info):
                if value.name == node.output[0]:
                    value.ClearField("type")
            node.CopyFrom(made)


def number_labels(model: onnx.ModelProto) -> Labels:
    """Replace constant texts by their places in their list; returns the lists by the names of the outputs that hold places."""
    numbers: Labels = {}
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.STRING:
            numbers[tensor.name] = _decode_texts(tensor.string_data)
            places = np.arange(len(tensor.string_data), dtype=np.int64).reshape(tuple(tensor.dims))
            tensor.CopyFrom(numpy_helper.from_array(places, tensor.name))
    for node in model.graph.node:
        if node.domain == ML and (named := next(_numbered_texts(node), None)) is not None:
            numbers[node.output[0]] = named
        elif node.op_type == "Cast" and node.input and node.input[0] in numbers and [a.i for a in node.attribute] == [TensorProto.STRING]:
            node.attribute[0].i = TensorProto.INT64
            numbers[node.output[0]] = numbers[node.input[0]]
        elif node.op_type in _MOVES and node.input and node.input[0] in numbers:
            numbers[node.output[0]] = numbers[node.input[0]]
    for value in (*model.graph.output, *model.graph.value_info):
        if value.name in numbers:
            value.type.tensor_type.elem_type = TensorProto.INT64
    return {value.name: numbers[value.name] for value in model.graph.output if value.name in numbers}


def _decode_texts(values: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(map(decode_text, values))


def _numbered_texts(node: onnx.NodeProto) -> Iterator[tuple[str, ...]]:
    """The texts that a node returns, of which it returns the places from now on."""
    for attribute in node.attribute:
        names = _LISTS.get(attribute.name)
        if names is None or not attribute.strings or any(other.name == "keys_strings" for other in node.attribute):
            continue
        texts = _decode_texts(attribute.strings)
        distinct = tuple(dict.fromkeys(texts)) if attribute.name == "values_strings" else texts
        attribute.CopyFrom(helper.make_attribute(names.get(node.op_type, names[""]), [distinct.index(text) for text in texts]))
        yield distinct
