"""The operators of the integer form by name, and what their declarations say of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deeploy.ir.kernel import AxisIndices, Operator
from deeploy.ir.nodes import Attributes, Node
from deeploy.operators import (
    blocks,
    conv,
    coupling,
    dynamic,
    elementwise,
    integer,
    integer_recurrent,
    interpolate,
    link,
    matmul,
    movement,
    norms,
    pairs,
    pool,
    recurrent,
    reduce,
    residual,
    rotate,
    rows,
    scan,
    trees,
)
from deeploy.operators.views import VIEWS

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for module in (
        *(conv, matmul, pool, reduce, residual, elementwise, rows, norms, integer, pairs, rotate, movement, link),
        *(dynamic, recurrent, integer_recurrent, trees, blocks, coupling, scan, interpolate),
    )
    for operator in vars(module).values()
    if isinstance(operator, Operator)
}


def shared(node: Node, axes: Sequence[int | None], indices: AxisIndices) -> Attributes | None:
    """The attributes of ``node`` on a share of its operands; None where no attributes express that.

    Args:
        axes: per operand, inputs first, the axis that is divided.
        indices: the indices that are kept along it.
    """
    if node.op in VIEWS:
        of_view = VIEWS[node.op](node).share
        return dict(node.attrs) if of_view is None else of_view(axes, indices)
    share = OPERATORS[node.op].share if node.op in OPERATORS else None
    return dict(node.attrs) if share is None else share(node, axes, indices)
