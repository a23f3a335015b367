"""Who follows whom, where a tensor is reordered between two kernels: the writer can, where the reader cannot.

A reordered tensor is read through strides, which is nothing to most kernels. Products want the elements of a row side by side, and no
strides express several heads as one row: that would be a copy. Their writer can put every head in its place in these rows instead. A
Concat of one part says so: containers lie densely, and their parts are written where they belong.
"""

from __future__ import annotations

import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.rewriter import Rewriter, lowered
from deeploy.graph.rewrite import Pass, only_consumer
from deeploy.operators.views import VIEWS, Access

_REORDERING = ("Reshape", "Transpose")


def _reordered(rw: Rewriter) -> list[gs.Node]:
    """What reorders the only result of a kernel into the first operand, first to last; nothing where others see that on the way."""
    chain: list[gs.Node] = []
    tensor = rw.x
    while (node := rw.source(tensor, *_REORDERING)) is not None:
        chain.insert(0, node)
        tensor = node.inputs[0]
        if only_consumer(rw.graph, tensor) is None:
            return []
    node = rw.source(tensor)
    return chain if node is not None and node.op not in VIEWS else []


def _along(chain: list[gs.Node]) -> Access | None:
    """Where the result of a chain lies when what it starts from lies densely; None where strides do not express it."""
    access: Access | None = Access.dense(tuple(int(n) for n in chain[0].inputs[0].shape))
    for node in chain:
        access = None if access is None else VIEWS[node.op](build.described(node)).parts[0][1](access)
    return access


def _against(chain: list[gs.Node]) -> Access | None:
    """Where what a chain starts from has to lie for its result to lie densely."""
    access: Access | None = Access.dense(tuple(int(n) for n in chain[-1].outputs[0].shape))
    for node in reversed(chain):
        inverse = VIEWS[node.op](build.described(node)).inverse
        access = None if access is None or inverse is None else inverse(access)
    return access


@lowered("MatMul")
def packed(rw: Rewriter) -> bool:
    """Rows of a product that strides cannot make of a reordered tensor are written as they are read."""
    chain = [] if rw.is_output(rw.x) or 0 in rw.x.shape else _reordered(rw)
    if not chain:
        return False
    read, written = _along(chain), _against(chain)
    if (read is not None and read.dense_axes()) or written is None or not written.dense_axes():
        return False
    readers = list(rw.x.outputs)
    rw.let_read(readers, rw.x, rw.create("Concat", rw.x, axis=0))
    return True


PASS = Pass("packing", (packed,))
