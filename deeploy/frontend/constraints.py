"""What the standard says of shapes, axes, constants and element types that a node reads, and that onnx's inference does not look at."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import onnx

from deeploy.errors import ModelError, shorten
from deeploy.frontend.predicates import Inputs, Operands, UnknownOperand, type_of
from deeploy.frontend.schemas import Attributes, canonical_domain, find_record, operator_history
from deeploy.frontend.structure import describe_node


def check_constraints(node: onnx.NodeProto, attributes: Attributes, inputs: Inputs) -> None:
    """Raise ModelError where the operands of a standard operator, in shape or value, are not what it demands."""
    operands = Operands(attributes, inputs)
    for check in find_record(canonical_domain(node.domain, node.op_type), node.op_type).constraints:
        with suppress(UnknownOperand):
            if (wrong := check(operands)) is not None:
                raise ModelError(f"{describe_node(node)} {wrong}", "correct the model, or export it again")


def check_types(node: onnx.NodeProto, inputs: Inputs) -> None:
    """Raise ModelError where a standard operator reads floats that no version of it takes: as indices, counts, conditions.

    Not for graphs of the integer dialect, whose files call everything float32. Other types that differ are taken (``shapes``).
    """
    for position, (name, tensor) in enumerate(zip(node.input, inputs, strict=False)):
        if tensor is not None and type_of(tensor).kind == "f" and not _takes_floats(node.op_type, position):
            told = f"has the input '{shorten(name, 60)}' of type {type_of(tensor)}, where whole numbers or truth values are needed"
            raise ModelError(f"{describe_node(node)} {told}", "convert it with a Cast")


@cache
def _takes_floats(op: str, position: int) -> bool:
    """Whether any version of an operator reads floats there; also where it has no such input."""
    types: set[str] = set()
    for known in operator_history(op, ""):
        if position < known.schema.max_input:
            kind = known.inputs[min(position, len(known.inputs) - 1)]
            types |= known.allowed.get(kind, frozenset({kind}))
    return not types or "tensor(float)" in types
