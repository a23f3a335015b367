"""Short inputs of the network that many operators read: copied once, so that the copy may lie where the engines work.

The caller's arrays lie in the memory around the engines' own and stay there: every operator that reads one fetches it. A mask, or the
turns of positions, are read in every layer of a decoder.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.rewriter import Rewriter, lowered
from deeploy.graph.rewrite import Pass
from deeploy.operators.views import MATERIALISE, VIEWS

READERS = 3  # from so many on, one copy costs less than their fetches
LARGEST = 4096  # bytes


def _is_short(tensor: gs.Tensor) -> bool:
    return 0 < math.prod(int(n) for n in tensor.shape) * int(np.dtype(tensor.dtype).itemsize) <= LARGEST


@lowered("MatMul", "Add", "Sub", "Mul", "RequantAdd", "ScaledAdd", "Binary", "Where", "Rotate")
def staged(rw: Rewriter) -> bool:
    """A copy of an input, for all operators that compute with it as it is."""
    for tensor in rw.node.inputs:
        if not any(tensor is source for source in rw.graph.inputs) or not _is_short(tensor):
            continue
        readers = [reader for reader in tensor.outputs if build.lowered(reader) and reader.op not in VIEWS]
        if len(readers) >= READERS:
            rw.let_read(readers, tensor, rw.create(MATERIALISE, tensor, label="staged"))
            return True
    return False


PASS = Pass("staging", (staged,))
