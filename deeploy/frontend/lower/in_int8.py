"""A float network as it would be in int8: the graph that ``deeploy quantize`` would make of it, with scales that nobody calibrated.

Kernels, bytes and cycles of an integer network depend on its types and shapes, and hardly on the values of its scales. Such a graph is
never emitted.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.graph.surgeon import const

SCALE = 0.05  # of all activations
FOLDED = frozenset({"Relu", "Clip", "BatchNormalization"})  # what integer layers do on their way: nothing is rounded before it
_LARGEST = 127


def in_int8(graph: gs.Graph) -> gs.Graph:
    """A copy of an imported graph in which float activations, and float constants of two axes and more, are int8."""
    graph = graph.copy()
    known: dict[int, gs.Variable] = {}
    for node in list(graph.nodes):
        for place, tensor in enumerate(node.inputs):
            if tensor.dtype != np.float32 or (isinstance(tensor, gs.Variable) and _is_folded(tensor)):
                continue
            if isinstance(tensor, gs.Constant) and tensor.values.ndim < 2:
                continue
            if id(tensor) not in known:
                known[id(tensor)] = _dequantised(graph, tensor, len(known))
            node.inputs[place] = known[id(tensor)]
    for place, tensor in enumerate(graph.outputs):
        if tensor.dtype == np.float32:
            graph.outputs[place] = known.get(id(tensor)) or _dequantised(graph, tensor, len(known) + place)
    return graph.cleanup().toposort()


def _is_folded(tensor: gs.Variable) -> bool:
    """Whether the only reader of an activation is computed together with what writes it."""
    return bool(tensor.inputs) and len(tensor.outputs) == 1 and tensor.outputs[0].op in FOLDED


def _dequantised(graph: gs.Graph, tensor: gs.Tensor, number: int) -> gs.Variable:
    """A tensor behind its quantisation to int8."""
    name, zero = f"{tensor.name} (int8 {number})", const(f"zero {number}", np.int8(0), np.int8)
    if isinstance(tensor, gs.Constant):
        step = np.float32(max(float(np.abs(tensor.values).max(initial=0)), 1e-6) / _LARGEST)
        source, scale = const(name, np.rint(tensor.values / step), np.int8), const(f"scale {number}", step, np.float32)
    else:
        scale = const(f"scale {number}", np.float32(SCALE), np.float32)
        source = gs.Variable(name, np.int8, tensor.shape)
        graph.nodes.append(gs.Node("QuantizeLinear", f"quantise {number}", {"axis": 1}, [tensor, scale, zero], [source]))
    result = gs.Variable(f"{name} in float", np.float32, tensor.shape)
    graph.nodes.append(gs.Node("DequantizeLinear", f"dequantise {number}", {"axis": 1}, [source, scale, zero], [result]))
    return result
