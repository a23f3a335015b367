"""A float network as it would be in int8: the graph that ``deeploy quantize`` would make of it, with scales that nobody calibrated.

Kernels, bytes and cycles of an integer network depend on its types and shapes, and hardly on the values of its scales. Such a graph is
never emitted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deeploy.ir.nodes import Tensor, compute, constant
from deeploy.ir.types import DType
from deeploy.ir.values import Graph, substitute_tensors

SCALE = 0.05  # of all activations
FOLDED = frozenset({"Relu", "Clip", "BatchNormalization"})  # what integer layers do on their way: nothing is rounded before it
_LARGEST = 127


def in_int8(graph: Graph) -> Graph:
    """An imported graph in which float activations, and float constants of two axes and more, are int8."""
    known: dict[Tensor, Tensor] = {}
    folded = {tensor.name for tensor, nodes in graph.readers.items() if tensor.maker and len(nodes) == 1 and nodes[0].op in FOLDED}

    def quantised(tensor: Tensor) -> Tensor:
        if tensor.dtype is not DType.FLOAT32 or (tensor.name in folded if tensor.data is None else tensor.rank < 2):
            return tensor
        return known.setdefault(tensor, _dequantise_int8(tensor, len(known)))

    return substitute_tensors(graph, quantised)


def _dequantise_int8(tensor: Tensor, number: int) -> Tensor:
    """A tensor behind its quantisation to int8."""
    name, zero = f"{tensor.name} (int8 {number})", constant(np.int8(0))
    if tensor.data is not None:
        step = np.float32(max(float(np.abs(tensor.data).max(initial=0)), 1e-6) / _LARGEST)
        source, scale = replace(constant(np.rint(tensor.data / step).astype(np.int8)), name=name), constant(step)
    else:
        scale = constant(np.float32(SCALE))
        source = compute("QuantizeLinear", tensor, scale, zero, dtype=DType.INT8, name=name, called=f"quantise {number}", axis=1)
    return compute("DequantizeLinear", source, scale, zero, name=f"{name} in float", called=f"dequantise {number}", axis=1)
