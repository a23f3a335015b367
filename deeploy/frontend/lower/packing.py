"""Who follows whom, where a tensor is reordered between two kernels: the writer can, where the reader cannot.

A reordered tensor is read through strides, which is nothing to most kernels. Products want the elements of a row side by side, and no
strides express several heads as one row: that would be a copy. Their writer can put every head in its place in these rows instead. A
Concat of one part says so: containers lie densely, and their parts are written where they belong.
"""

from __future__ import annotations

from deeploy.graph.nodes import Node, compute
from deeploy.graph.rewriting import Match, Pass, Reading, Result, lowered
from deeploy.operators.views import VIEWS, Access


def _reordering(m: Match) -> list[Node]:
    """What reorders the only result of a kernel into the first operand, first to last; nothing where others see that on the way."""
    chain: list[Node] = []
    tensor = m.x
    while (node := m.source(tensor, "Reshape", "Transpose")) is not None:
        chain.insert(0, node)
        tensor = node.operands[0]
        if m.only_source(tensor) is None:
            return []
    node = m.source(tensor)
    return chain if node is not None and node.op not in VIEWS else []


def _along(chain: list[Node]) -> Access | None:
    """Where the result of a chain lies when what it starts from lies densely; None where strides do not express it."""
    access: Access | None = Access.dense(chain[0].operands[0].shape)
    for node in chain:
        access = None if access is None else VIEWS[node.op](node).parts[0][1](access)
    return access


def _against(chain: list[Node]) -> Access | None:
    """Where what a chain starts from has to lie for its result to lie densely."""
    access: Access | None = Access.dense(chain[-1].outputs[0].shape)
    for node in reversed(chain):
        inverse = VIEWS[node.op](node).inverse
        access = None if access is None or inverse is None else inverse(access)
    return access


@lowered("MatMul")
def packed(m: Match) -> Result:
    """Rows of a product that strides cannot make of a reordered tensor are written as they are read."""
    chain = [] if m.is_output(m.x) or 0 in m.x.shape else _reordering(m)
    if not chain:
        return None
    read, written = _along(chain), _against(chain)
    if (read is not None and read.dense_axes()) or written is None or not written.dense_axes():
        return None
    return Reading(m.readers(m.x), m.x, compute("Concat", m.x, axis=0))


PASS = Pass("packing", (packed,))
