"""Short inputs of the network that many operators read: copied once, so that the copy may lie where the engines work.

The caller's arrays lie in the memory around the engines' own and stay there: every operator that reads one fetches it. A mask, or the
turns of positions, are read in every layer of a decoder.
"""

from __future__ import annotations

from deeploy.graph.nodes import compute
from deeploy.graph.rewriting import Match, Pass, Reading, Result, lowered
from deeploy.operators.views import MATERIALISE, VIEWS

READERS = 3  # from so many on, one copy costs less than their fetches
LARGEST = 4096  # bytes


@lowered("MatMul", "Add", "Sub", "Mul", "RequantAdd", "ScaledAdd", "Binary", "Where", "Rotate")
def staged(m: Match) -> Result:
    """A copy of an input, for all operators that compute with it as it is."""
    for tensor in m.inputs:
        if m.is_input(tensor) and 0 < tensor.elements * tensor.dtype.bytes <= LARGEST:
            readers = [reader for reader in m.readers(tensor) if reader.is_lowered and reader.op not in VIEWS]
            if len(readers) >= READERS:
                return Reading(readers, tensor, compute(MATERIALISE, tensor, label="staged"))
    return None


PASS = Pass("staging", (staged,))
