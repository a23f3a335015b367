"""Operators that become others while a model is walked over, where shapes and constants are known: a table of expansions.

An expansion gets a ``Builder`` and returns the results of its node, or None where it has nothing for this one, which then stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx

from deeploy.errors import ModelError
from deeploy.frontend.expand.attention import ATTENTION
from deeploy.frontend.expand.builder import Builder, Operand
from deeploy.frontend.expand.classic import CLASSIC
from deeploy.frontend.expand.images import IMAGES
from deeploy.frontend.expand.places import PLACES
from deeploy.frontend.expand.products import PRODUCTS, einsum, quantised_matmul
from deeploy.frontend.expand.recurrent import RECURRENT, dynamic
from deeploy.frontend.expand.trees import TREE_OPERATORS
from deeploy.frontend.schemas import MICROSOFT, ML, Attributes
from deeploy.frontend.structure import describe
from deeploy.frontend.walk import Walk

Expansion = Callable[[Builder], "Operand | Sequence[Operand | None] | None"]

EXPANSIONS: Mapping[tuple[str, str], Expansion] = {
    **{("", op): expansion for op, expansion in {**IMAGES, **PLACES, **RECURRENT}.items()},
    **{(ML, op): expansion for op, expansion in {**CLASSIC, **TREE_OPERATORS}.items()},
    **{(MICROSOFT, op): expansion for op, expansion in {**ATTENTION, **PRODUCTS}.items()},
    (MICROSOFT, "DynamicQuantizeLSTM"): dynamic,
    ("", "Einsum"): einsum,
    ("", "QLinearMatMul"): quantised_matmul,
}


def expand(walk: Walk, node: onnx.NodeProto, domain: str, attributes: Attributes, shapes: Sequence[tuple[int, ...] | None]) -> bool:
    """Put what a node is made of in its place; False where it stays.

    Args:
        shapes: of its outputs, where they are known.

    Raises:
        ModelError: the node does not fit its inputs.
        UnsupportedError: something of the operator is not supported.
    """
    expansion = EXPANSIONS.get((domain, node.op_type))
    if expansion is None:
        return False
    builder = Builder(walk, node, attributes, shapes)
    try:
        found = expansion(builder)
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError) as error:  # of operands that no valid model has
        raise ModelError(f"{describe(node)} does not fit its inputs", "correct the model, or export it again") from error
    if found is None:
        return False
    builder.finish([found] if isinstance(found, Operand) else found)
    return True
