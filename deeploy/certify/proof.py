"""What a certificate says of a network beside that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deeploy.certify.messages import CheckedMessage


@dataclass
class ProofCounts:
    """How much was checked, in the initialisation and all inferences that were run.

    Attributes:
        layers: of the network.
        calls: of kernels, with transfers those that the C makes.
        elements: of outputs that hold what the graph says.
        positions: of states at which an inference was run; 1 where there are none.
    """

    layers: int
    calls: int = 0
    transfers: int = 0
    elements: int = 0
    positions: int = 0


@dataclass(frozen=True)
class NetworkProof:
    """That the C of a network does what its graph says: what was counted, and the messages of an inference."""

    counts: ProofCounts
    messages: Sequence[CheckedMessage]
