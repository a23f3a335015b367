"""Element types that the generated code does not have, and those that it has in their place: what a file has in fewer bits is widened.

Floats of 16 bits are computed in 32, and so are those of 64: what follows from constants alone is computed in 64 bits before. Integers of
2 and 4 bits that are dequantised become int8 and uint8. Which narrow types a model has its weights in is found before that, and noted at
the nodes of the integer form, whose kernels may read them so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from deeploy.frontend.structure import all_graphs
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import NARROW as NARROW_TYPES
from deeploy.ir.types import PACKED, DType
from deeploy.ir.values import Graph, change_nodes, read_other_tensors

MOST_BITS = 7  # of what is stored packed
_FLOATS: dict[int, DType] = {TensorProto.FLOAT16: DType.FLOAT16, TensorProto.BFLOAT16: DType.BFLOAT16}
_KNOWN = dict(TensorProto.DataType.items())  # older versions of onnx lack types of 2 bits
_BITS = {_KNOWN[f"{sign}INT{bits}"]: bits for sign in ("", "U") for bits in (2, 4) if f"{sign}INT{bits}" in _KNOWN}
_INTEGERS = {
    _KNOWN[name]: dtype
    for dtype, names in ((np.int8, ("INT4", "INT2")), (np.uint8, ("UINT4", "UINT2")))
    for name in names
    if name in _KNOWN
}
_TABLE = "GatherBlockQuantized"  # packs its table where that has bytes without a sign
_DEQUANTISED = {"DequantizeLinear": (0, 2), _TABLE: (0, 3)}  # positions of inputs of few bits
TYPES = frozenset({"to", "dtype", "output_dtype", "stash_type", "softmax_precision"})  # attributes that are element types


def has_halves(model: onnx.ModelProto) -> bool:
    """Whether a model has floats of 16 bits."""
    return not _FLOATS.keys().isdisjoint(_element_types(model.graph))


def double_ports(model: onnx.ModelProto) -> list[str]:
    """The inputs and outputs of a model that are floats of 64 bits."""
    return [v.name for v in (*model.graph.input, *model.graph.output) if v.type.tensor_type.elem_type == TensorProto.DOUBLE]


def widen_types(model: onnx.ModelProto) -> list[str]:
    """Replace narrow floats everywhere, and narrow integers of constants that are only dequantised.

    Returns:
        The inputs and outputs of narrow floats.
    """
    ports = [v.name for v in (*model.graph.input, *model.graph.output) if v.type.tensor_type.elem_type in _FLOATS]
    if has_halves(model):
        for value in (value for graph in all_graphs(model.graph) for value in (*graph.input, *graph.output, *graph.value_info)):
            tensor = value.type.tensor_type
            tensor.elem_type = TensorProto.FLOAT if tensor.elem_type in _FLOATS else tensor.elem_type
        for tensor in _constant_tensors(model.graph):
            if tensor.data_type in _FLOATS:
                _store_values(tensor, numpy_helper.to_array(tensor).astype(np.float32))
        for attribute in (attribute for graph in all_graphs(model.graph) for node in graph.node for attribute in node.attribute):
            if attribute.name in TYPES and attribute.i in _FLOATS:
                attribute.i = TensorProto.FLOAT
    reads: dict[str, list[str]] = {}
    for node in (node for graph in all_graphs(model.graph) for node in graph.node):
        for position, name in enumerate(node.input):
            reads.setdefault(name, []).append(node.op_type if position in _DEQUANTISED.get(node.op_type, ()) else "")
    for tensor in (tensor for graph in all_graphs(model.graph) for tensor in graph.initializer):
        readers = reads.get(tensor.name, [])
        if tensor.data_type in _INTEGERS and all(readers):
            dtype = np.int8 if _TABLE in readers else _INTEGERS[tensor.data_type]
            _store_values(tensor, numpy_helper.to_array(tensor).astype(dtype))
    return ports


def narrow_types(model: onnx.ModelProto) -> frozenset[DType]:
    """The narrow types that a model says some of its weights have; those of integers up to the most bits of any of them.

    Types of ONNX say so; of integers up to ``MOST_BITS`` also the bit widths of QONNX, those of onnxruntime's products and tables in
    blocks, and what bytes are clipped to before they are dequantised.
    """
    values: dict[str, TensorProto] = {}
    for graph in all_graphs(model.graph):
        values |= {tensor.name: tensor for tensor in graph.initializer}
        values |= {node.output[0]: attribute.t for node in graph.node for attribute in node.attribute if attribute.name == "value"}
    widths = {_BITS[tensor.data_type] for tensor in values.values() if tensor.data_type in _BITS}
    packed = (node for graph in all_graphs(model.graph) for node in graph.node if node.op_type in (_TABLE, "MatMulNBits"))
    widths |= {a.i for node in packed for a in node.attribute if a.name == "bits" and a.i <= MOST_BITS}
    for node in (node for graph in all_graphs(model.graph) for node in graph.node if node.input and node.input[0] in values):
        limits = [values[name] for name in node.input[1:] if name in values]
        if node.op_type == "BipolarQuant":
            widths.add(1)
        elif node.op_type in ("Quant", "IntQuant") and len(limits) == 3:
            widths |= {int(bits) for bits in numpy_helper.to_array(limits[-1]).ravel() if 0 < bits <= MOST_BITS}
        elif node.op_type == "Clip" and len(limits) == 2 and limits[0].data_type in (TensorProto.INT8, TensorProto.UINT8):
            low, high = (int(numpy_helper.to_array(limit).item()) for limit in limits)
            widths |= {t.bits for t in PACKED if t.holds(low, high)}
    return packed_types(max(widths, default=0)) | {_FLOATS[tensor.data_type] for tensor in values.values() if tensor.data_type in _FLOATS}


def packed_types(most: int) -> frozenset[DType]:
    """The packed element types of integers with at most so many bits."""
    return frozenset(t for t in PACKED if t.bits <= most)


def note_narrow(graph: Graph, types: Collection[DType]) -> Graph:
    """A graph whose constants that nodes of the integer form read have the narrow types that hold them, where they have some of ``types``.

    So have matrices of two values, which no model says. Packed types of more bits count as well, for all constants of a node: kernels may
    be faster at reading those.
    """
    noted = cache(lambda tensor, narrow: replace(tensor, narrow=narrow))  # one tensor for all that read it

    def change(node: Node) -> Node:
        stored = [t.data for t in node.operands if t.data is not None]
        weights = [values for values in stored if _has_two(values) or any(each.stores(values) for each in types)]
        narrow_types = [t for t in NARROW_TYPES if (t in types or t in PACKED) and any(t.stores(values) for values in weights)]

        def instead(tensor: Tensor) -> Tensor:
            narrow = tuple(t for t in narrow_types if tensor.data is not None and t.stores(tensor.data))
            return noted(tensor, narrow) if narrow else tensor

        return read_other_tensors(node, instead) if node.is_lowered else node

    return change_nodes(graph, change)


def _has_two(values: np.ndarray) -> bool:
    """Whether a matrix has the elements -1 and 1, or 0 and 1, and no others: one bit holds each."""
    return values.ndim > 1 and any(t.stores(values) for t in packed_types(1)) and bool(values.min() < values.max())


def _element_types(whole: onnx.GraphProto) -> Iterator[int]:
    yield from (tensor.data_type for tensor in _constant_tensors(whole))
    for graph in all_graphs(whole):
        yield from (value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info))
        yield from (attribute.i for node in graph.node for attribute in node.attribute if attribute.name in TYPES)


def _constant_tensors(whole: onnx.GraphProto) -> Iterator[TensorProto]:
    """Every constant of a graph."""
    for graph in all_graphs(whole):
        yield from graph.initializer
        for node in graph.node:
            yield from (attribute.t for attribute in node.attribute if attribute.type == AttributeProto.TENSOR)


def _store_values(tensor: TensorProto, values: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
