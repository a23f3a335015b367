"""Gradients: of every operator of the normalised graph, what the gradient of its result gives those of its inputs.

A rule takes a ``Backward`` (the node, its result and the gradient of that) and the node's inputs, and returns a gradient for each of
them; None where there is none. Rules are written with operators of ONNX. What nobody asks for is not in any graph and costs nothing.
An input that was repeated to the shape of the result gets the sum of what its copies would get.
"""

from __future__ import annotations

from deeploy.frontend.gradients import elementwise, movement, rows, windows
from deeploy.frontend.gradients.elementwise import DERIVATIVES
from deeploy.frontend.gradients.movement import one_hot
from deeploy.frontend.gradients.rules import GRADIENTS, add_gradients, differentiate_node

CHEAP = {
    *DERIVATIVES,
    "Relu",
    "Clip",
    "Add",
    "Sub",
    "Mul",
    "Neg",
    "LayerNormalization",
    "BatchNormalization",
}  # about one operation an element
COMPARING = {"MaxPool", "Max", "Min"}  # whose rules look for the operand that is equal to the result

__all__ = [
    "CHEAP",
    "COMPARING",
    "GRADIENTS",
    "add_gradients",
    "differentiate_node",
    "elementwise",
    "movement",
    "one_hot",
    "rows",
    "windows",
]
