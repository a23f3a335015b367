"""A certificate that the printed C does what the graph says, whatever the inputs are; by a reader that shares nothing with who printed it.

The C is run with the numbers of elements in place of their values: every transfer moves them, every call of a kernel has to find those
that its operator's declaration reads where its argument says, and leaves those that it writes. At the end, every output has to hold its
elements. Kernels' arguments are compared with those that their templates make of what is claimed of a layer (``Claim``); claims are
witnesses, and what is wrong in one does not pass.

It assumes that kernels and their templates do what they declare, which is tested for itself, and reads nothing of how it was planned.
"""

from __future__ import annotations

from deeploy.certify.arithmetic import LayerArithmetic, bound_arithmetic, bound_network
from deeploy.certify.layers import Claim, ClaimedOperand
from deeploy.certify.memory import CertificateError
from deeploy.certify.messages import exchange_messages
from deeploy.certify.proof import NetworkProof, ProofCounts
from deeploy.certify.run import Printed, certify_network

__all__ = [
    "CertificateError",
    "Claim",
    "ClaimedOperand",
    "LayerArithmetic",
    "NetworkProof",
    "Printed",
    "ProofCounts",
    "bound_arithmetic",
    "bound_network",
    "certify_network",
    "exchange_messages",
]
