"""Quantisation of LSTM, GRU and RNN, which onnxruntime's static quantiser leaves in floats.

Weights get 8 bits, with one scale per row where weights have one per channel; inputs and the sequence of outputs are activations like any
other. States before the first step have 16 bits, 15 of them fractional, and biases stay in float. So do the last states and cells, and
what only moves them to outputs of the network: a stream carries them from one inference to the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import onnx

from deeploy.frontend.lower import recurrent as lookups
from deeploy.frontend.recurrent import ACTIVATIONS
from deeploy.quantization.parts import MOVES

_BOUNDED = frozenset({"sigmoid", "tanh", "softsign", "hardsigmoid"})  # functions between -1 and 1
_STATE, _CELLS = 5, 6  # positions among inputs of what is there before the first step
_ROWS = 1  # axis of weights


def _is_quantised(node: onnx.NodeProto) -> bool:
    """Whether a node is a layer whose states lie between -1 and 1."""
    functions = [function for attribute in node.attribute if attribute.name == "activations" for function in attribute.strings]
    return node.op_type in ACTIVATIONS and all(function.decode().lower() in _BOUNDED for function in functions)


@contextlib.contextmanager
def layers_are_quantised(per_channel: bool) -> Iterator[None]:
    """Inside, onnxruntime's static quantiser knows recurrent layers."""
    from onnxruntime.quantization import registry
    from onnxruntime.quantization.operators.qdq_base_operator import QDQOperatorBase

    class RecurrentLayer(QDQOperatorBase):  # type: ignore[misc]
        """Marks the tensors of a layer."""

        def quantize(self) -> None:
            node, quantizer = self.node, self.quantizer
            weights = node.input[1:3]
            if not _is_quantised(node) or not all(quantizer.is_input_a_initializer(name) for name in weights):
                return
            quantizer.quantize_activation_tensor(node.input[0])
            for name in weights:
                if per_channel:
                    quantizer.quantize_weight_tensor_per_channel(name, _ROWS)
                else:
                    quantizer.quantize_weight_tensor(name)
            if len(node.input) > _STATE and node.input[_STATE] and not quantizer.is_input_a_initializer(node.input[_STATE]):
                quantizer.quantize_activation_tensor(node.input[_STATE])
            if node.output[0]:
                quantizer.quantize_activation_tensor(node.output[0])

    known = dict(registry.QDQRegistry)
    registry.QDQRegistry.update(dict.fromkeys(ACTIVATIONS, RecurrentLayer))
    try:
        yield
    finally:
        registry.QDQRegistry.clear()
        registry.QDQRegistry.update(known)


def table_bytes(graph: onnx.GraphProto) -> int:
    """The bytes of the tables that layers with quantised weights get for their functions."""
    quantised = {name for node in graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    layers = [node for node in graph.node if _is_quantised(node) and node.input[1] in quantised]
    turns = [next((a.s for a in node.attribute if a.name == "direction"), b"forward") for node in layers]
    return sum(lookups.table_bytes(node.op_type, 1 + (turn == b"bidirectional")) for node, turn in zip(layers, turns, strict=True))


def state_parameters(quantizer: ModuleType, graph: onnx.GraphProto) -> dict[str, list[dict[str, object]]]:
    """The parameters of all states before the first step, as onnxruntime takes them."""
    constants = {tensor.name for tensor in graph.initializer}
    layers = [node for node in graph.node if _is_quantised(node) and len(node.input) > _STATE]
    cells = {node.input[_CELLS] for node in layers if len(node.input) > _CELLS}
    names = {node.input[_STATE] for node in layers} - constants - cells - {""}
    unit = {"quant_type": quantizer.QuantType.QInt16, "scale": np.array(2.0**-15, np.float32), "zero_point": np.array(0, np.int16)}
    return {name: [unit] for name in sorted(names)}


def state_carriers(graph: onnx.GraphProto) -> list[str]:
    """Names of the nodes that only move the last states and cells, in the order of the graph."""
    carried, carriers = set[str](), list[str]()
    for node in graph.node:
        if _is_quantised(node):
            carried |= {name for name in node.output[1:] if name}
        elif node.op_type in MOVES and _moved_operands(node) <= carried:
            carried |= set(node.output)
            carriers.append(node.name)
    return carriers


def _moved_operands(node: onnx.NodeProto) -> set[str]:
    """What a node moves: all inputs of a Concat, else the first."""
    return set(node.input if node.op_type == "Concat" else node.input[:1])
