"""Who follows whom, where a tensor is reordered between two kernels: the writer can, where the reader cannot.

A reordered tensor is read through strides, which is nothing to most kernels. Products want the elements of a row side by side, and no
strides express several heads as one row: that would be a copy. Their writer can put every head in its place in these rows instead. A
Concat of one part says so: containers lie densely, and their parts are written where they belong.
"""

from __future__ import annotations

import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.graph.rewrite import Pass, only_consumer, producer, rule
from deeploy.operators.views import VIEWS, Access

_REORDERING = ("Reshape", "Transpose")


def _reordered(graph: gs.Graph, tensor: gs.Tensor) -> list[gs.Node]:
    """What reorders the only result of a kernel into ``tensor``, first to last; nothing where others see that on the way."""
    chain: list[gs.Node] = []
    while (node := producer(tensor)) is not None and build.lowered(node) and node.op in _REORDERING:
        chain.insert(0, node)
        tensor = node.inputs[0]
        if only_consumer(graph, tensor) is None:
            return []
    return chain if node is not None and build.lowered(node) and node.op not in VIEWS else []


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


@rule("MatMul")
def packed(graph: gs.Graph, node: gs.Node) -> bool:
    """Rows of a product that strides cannot make of a reordered tensor are written as they are read."""
    x = node.inputs[0]
    chain = _reordered(graph, x) if build.lowered(node) and not any(x is out for out in graph.outputs) else []
    if not chain or 0 in x.shape:
        return False
    read, written = _along(chain), _against(chain)
    if (read is not None and read.dense_axes()) or written is None or not written.dense_axes():
        return False
    rows = build.variable(f"{x.name} (rows)", x.dtype, x.shape)
    for reader in list(x.outputs):
        reader.inputs = [rows if t is x else t for t in reader.inputs]
    build.add(graph, "Concat", [x], rows, axis=0)
    return True


PASS = Pass("packing", (packed,))
