"""Weights with a scale per block (``DequantizeLinear`` with ``block_size``): spelled by nodes that have none.

A product of a quantised tensor with such a weight is the sum of the integer products of the blocks, each times its scales. Any other
reader gets the numbers that the weight stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deeploy.frontend.structure import graphs

_SPLIT = 13  # the opset from which Split has the lengths of its parts as an input
_BYTES = (TensorProto.INT8, TensorProto.UINT8)


def split_blocks(model: onnx.ModelProto, version: int) -> None:
    """Replace every constant with a scale per block; ``version`` is the opset of the standard operators."""
    for graph in graphs(model.graph):
        constants = {tensor.name: tensor for tensor in graph.initializer}
        for node in [n for n in graph.node if n.op_type == "DequantizeLinear" and any(a.name == "block_size" and a.i for a in n.attribute)]:
            if {*filter(None, node.input)} <= constants.keys():
                blocks = _Blocks(node, constants)
                for reader in [n for n in graph.node if blocks.name in n.input] if version >= _SPLIT else []:
                    _multiply(graph, reader, blocks, constants)
                if any(blocks.name in n.input for n in graph.node) or any(output.name == blocks.name for output in graph.output):
                    graph.initializer.append(numpy_helper.from_array(blocks.values, blocks.name))
                graph.node.remove(node)


class _Blocks:
    """The blocks of a constant along an axis; ``name`` is that of what is dequantised."""

    def __init__(self, node: onnx.NodeProto, constants: Mapping[str, TensorProto]) -> None:
        attrs = {a.name: a.i for a in node.attribute}
        given = [numpy_helper.to_array(constants[name]) for name in node.input if name]
        self.name, self.size = node.output[0], int(attrs["block_size"])
        self.steps, self.scales = given[0].astype(np.int32), given[1].astype(np.float32)
        self.zeros = given[2].astype(np.int32) if len(given) > 2 else np.zeros(self.scales.shape, np.int32)
        self.axis = attrs.get("axis", 1) % self.steps.ndim

    @property
    def lengths(self) -> list[int]:
        extent = self.steps.shape[self.axis]
        return [min(self.size, extent - begin) for begin in range(0, extent, self.size)]

    @property
    def centred(self) -> np.ndarray:
        """The integers without their zero points."""
        result: np.ndarray = self.steps - self._spread(self.zeros)
        return result

    @property
    def values(self) -> np.ndarray:
        """The numbers that the constant stands for."""
        numbers: np.ndarray = self.centred.astype(np.float32) * self._spread(self.scales)
        return numbers

    def _spread(self, array: np.ndarray) -> np.ndarray:
        """What every block has one of, for each of its elements."""
        return np.repeat(array, self.size, axis=self.axis).take(range(self.steps.shape[self.axis]), self.axis)


def _multiply(graph: onnx.GraphProto, reader: onnx.NodeProto, blocks: _Blocks, constants: Mapping[str, TensorProto]) -> None:
    """Spell a product with a quantised first operand by integer products; leave it where it is something else."""
    attrs = {a.name: helper.get_attribute_value(a) for a in reader.attribute}
    front = next((n for n in graph.node if n.op_type == "DequantizeLinear" and n.output[0] == reader.input[0]), None)
    is_product = reader.op_type in ("MatMul", "Gemm") and list(reader.input).index(blocks.name) == 1 and blocks.steps.ndim == 2
    is_plain = not attrs.get("transA", 0) and attrs.get("alpha", 1.0) == attrs.get("beta", 1.0) == 1.0
    if front is None or not is_product or not is_plain or blocks.axis != int(attrs.get("transB", 0)):
        return
    zero = front.input[2] if len(front.input) > 2 else ""
    scale = numpy_helper.to_array(constants[front.input[1]]) if front.input[1] in constants else np.zeros(0)
    weights = blocks.centred.T if blocks.axis else blocks.centred
    if scale.size != 1 or zero not in constants or constants[zero].data_type not in _BYTES or np.abs(weights).max(initial=0) > 127:
        return
    factors = (blocks.scales.T if blocks.axis else blocks.scales) * scale.astype(np.float32).reshape(1, 1)
    at = list(graph.node).index(reader)
    for number, part in enumerate(_terms(graph, reader, (front.input[0], zero), weights, factors, blocks.lengths)):
        graph.node.insert(at + number, part)
    graph.node.remove(reader)


def _terms(
    graph: onnx.GraphProto, node: onnx.NodeProto, x: tuple[str, str], weights: np.ndarray, factors: np.ndarray, lengths: Sequence[int]
) -> Iterator[onnx.NodeProto]:
    """The nodes that add up the products of blocks, and the bias of a Gemm.

    Args:
        x: the quantised operand and its zero point.
        weights: [depth, columns], of 8 bits.
        factors: [blocks, columns], what the sums of the blocks are multiplied by.
    """
    name, parts = node.name or node.output[0], [x[0]]

    def stored(values: np.ndarray, label: str) -> str:
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(values), f"{name} ({label})"))
        return f"{name} ({label})"

    if len(lengths) > 1:
        parts = [f"{name} (part {number})" for number in range(len(lengths))]
        yield helper.make_node("Split", [x[0], stored(np.array(lengths, np.int64), "lengths")], parts, f"{name} (parts)", axis=-1)
    total = ""
    for number, (part, begin) in enumerate(zip(parts, np.cumsum([0, *lengths]), strict=False)):
        label = f"block {number}"
        own = stored(weights[begin : begin + lengths[number]].astype(np.int8), label)
        sums, floats, term = (f"{name} ({label}, {what})" for what in ("sums", "floats", "product"))
        yield helper.make_node("MatMulInteger", [part, own, x[1]], [sums], sums)
        yield helper.make_node("Cast", [sums], [floats], floats, to=TensorProto.FLOAT)
        yield helper.make_node("Mul", [floats, stored(factors[number], f"{label}, scales")], [term], term)
        if total:
            yield helper.make_node("Add", [total, term], [f"{term}, added"], f"{term}, added")
        total = f"{term}, added" if total else term
    bias = node.input[2:3]
    yield helper.make_node("Add" if bias else "Identity", [total, *bias], [node.output[0]], name)
