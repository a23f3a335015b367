"""Who follows whom, where a tensor is reordered between two kernels: the writer can, where the reader cannot.

A reordered tensor is read through strides, which is nothing to most kernels. Products want the elements of a row side by side, and no
strides express several heads as one row: that would be a copy. Their writer can put every head in its place in these rows instead. A
Concat of one part says so: containers lie densely, and their parts are written where they belong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from deeploy.graph.nodes import compute
from deeploy.graph.rewriting import Match, Pass, Reading, Result, lowered, need, require
from deeploy.operators.views import VIEWS, Access


def _follow(shape: tuple[int, ...], steps: Iterable[Callable[[Access], Access | None] | None]) -> Access | None:
    """Where a tensor lies that views make of one that lies densely; None where strides do not express it."""
    access: Access | None = Access.dense(shape)
    for step in steps:
        access = None if access is None or step is None else step(access)
    return access


@lowered("MatMul")
def packed(m: Match) -> Result:
    """Rows of a product that strides cannot make of a reordered tensor are written as they are read."""
    chain, source = m.views(m.x, is_shared=True)
    require(chain, not m.is_output(m.x), 0 not in m.x.shape, need(m.source(source)).op not in VIEWS)
    require(all(m.only_source(node.operands[0]) for node in chain))  # else others see the source on the way
    views = [VIEWS[node.op](node) for node in chain]
    read = _follow(source.shape, (view.parts[0][1] for view in views))
    written = need(_follow(m.x.shape, (view.inverse for view in reversed(views))))  # where the source has to lie
    require(read is None or not read.dense_axes(), written.dense_axes())
    return Reading(m.readers(m.x), m.x, compute("Concat", m.x, axis=0))


PASS = Pass("packing", (packed,))
