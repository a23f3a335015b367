"""Short inputs of the network that many operators read: copied once, so that the copy may lie where the engines work.

The caller's arrays lie in the memory around the engines' own and stay there: every operator that reads one fetches it. A mask, or the
turns of positions, are read in every layer of a decoder.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.graph.rewrite import Pass, rule
from deeploy.operators.views import MATERIALISE, VIEWS

READERS = 3  # from so many on, one copy costs less than their fetches
LARGEST = 4096  # bytes


def _is_short(tensor: gs.Tensor) -> bool:
    return 0 < math.prod(int(n) for n in tensor.shape) * int(np.dtype(tensor.dtype).itemsize) <= LARGEST


@rule("MatMul", "Add", "Sub", "Mul", "RequantAdd", "ScaledAdd", "Binary", "Where", "Rotate")
def staged(graph: gs.Graph, node: gs.Node) -> bool:
    """A copy of an input, for all operators that compute with it as it is."""
    for tensor in list(node.inputs):
        if not any(tensor is source for source in graph.inputs) or not _is_short(tensor):
            continue
        readers = [reader for reader in tensor.outputs if build.lowered(reader) and reader.op not in VIEWS]
        if len(readers) < READERS:
            continue
        copy = build.variable(f"{tensor.name} (staged)", tensor.dtype, tensor.shape)
        for reader in readers:
            reader.inputs = [copy if t is tensor else t for t in reader.inputs]
        build.add(graph, MATERIALISE, [tensor], copy, f"{tensor.name} (copy)")
        return True
    return False


PASS = Pass("staging", (staged,))
