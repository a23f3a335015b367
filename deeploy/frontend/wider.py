"""Element types that the generated code does not have, and wider ones that hold their values: what a file has in fewer bits is widened.

Floats of 16 bits are computed in 32. Integers of 2 and 4 bits that are dequantised become int8 and uint8.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from deeploy.frontend.structure import graphs

_FLOATS = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_KNOWN = dict(TensorProto.DataType.items())  # older versions of onnx lack types of 2 bits
_INTEGERS = {
    _KNOWN[name]: dtype
    for dtype, names in ((np.int8, ("INT4", "INT2")), (np.uint8, ("UINT4", "UINT2")))
    for name in names
    if name in _KNOWN
}
_TYPES = frozenset({"to", "dtype", "output_dtype", "stash_type", "softmax_precision"})  # attributes that are element types


def widen(model: onnx.ModelProto) -> None:
    """Replace narrow floats everywhere, and narrow integers of constants that are only dequantised."""
    if _FLOATS & set(_types(model.graph)):
        for value in (value for graph in graphs(model.graph) for value in (*graph.input, *graph.output, *graph.value_info)):
            tensor = value.type.tensor_type
            tensor.elem_type = TensorProto.FLOAT if tensor.elem_type in _FLOATS else tensor.elem_type
        for tensor in _tensors(model.graph):
            if tensor.data_type in _FLOATS:
                _store(tensor, numpy_helper.to_array(tensor).astype(np.float32))
        for attribute in (attribute for graph in graphs(model.graph) for node in graph.node for attribute in node.attribute):
            if attribute.name in _TYPES and attribute.i in _FLOATS:
                attribute.i = TensorProto.FLOAT
    reads: dict[str, list[bool]] = {}
    for node in (node for graph in graphs(model.graph) for node in graph.node):
        for position, name in enumerate(node.input):
            reads.setdefault(name, []).append(node.op_type == "DequantizeLinear" and position != 1)
    for tensor in (tensor for graph in graphs(model.graph) for tensor in graph.initializer):
        if tensor.data_type in _INTEGERS and all(reads.get(tensor.name, [])):
            _store(tensor, numpy_helper.to_array(tensor).astype(_INTEGERS[tensor.data_type]))


def _types(whole: onnx.GraphProto) -> Iterator[int]:
    yield from (tensor.data_type for tensor in _tensors(whole))
    for graph in graphs(whole):
        yield from (value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info))
        yield from (attribute.i for node in graph.node for attribute in node.attribute if attribute.name in _TYPES)


def _tensors(whole: onnx.GraphProto) -> Iterator[TensorProto]:
    """Every constant of a graph."""
    for graph in graphs(whole):
        yield from graph.initializer
        for node in graph.node:
            yield from (attribute.t for attribute in node.attribute if attribute.type == AttributeProto.TENSOR)


def _store(tensor: TensorProto, values: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
