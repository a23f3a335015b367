"""Two nodes that become one call: a residual connection and the norm of its rows, where the target has a kernel of both.

What is between them is written as before, and the arithmetic is that of the two nodes (``deeploy.operators.fused_kernels``).
"""

from __future__ import annotations

from collections.abc import Sequence

from deeploy.ir.kernel import Kernel
from deeploy.ir.nodes import Node
from deeploy.operators.fused_kernels import fuse_nodes
from deeploy.planning.binding.kernels import list_mismatches


def fuse_sums_and_norms(nodes: Sequence[Node], kernels: Sequence[Kernel]) -> list[Node]:
    """The nodes, without those that a kernel computes behind the node in front of them, and at least as well as their own kernels.

    Args:
        kernels: that a plan may choose from.
    """
    able = [kernel for kernel in kernels if kernel.phases]
    first_ops, second_ops = ({kernel.phases[at].kernel.op for kernel in able} for at in (0, 1))
    sources = {t.name: node for node in nodes for t in node.outputs if node.op in first_ops}
    fused_nodes: dict[int, Node | None] = {}
    for node in nodes if able else ():
        x = node.inputs[0] if node.op in second_ops else None
        front = sources.get(x.name) if x is not None else None
        if front is None or id(front) in fused_nodes:
            continue
        pair = _own_kernel(kernels, front), _own_kernel(kernels, node)
        both = next((kernel for kernel in able if tuple(phase.kernel.name for phase in kernel.phases) == pair), None)
        if both is not None and not list_mismatches(both, fuse_nodes(both, front, node)):
            fused_nodes |= {id(front): fuse_nodes(both, front, node), id(node): None}
    return [made for node in nodes if (made := fused_nodes.get(id(node), node)) is not None]


def _own_kernel(kernels: Sequence[Kernel], node: Node) -> str:
    """The name of the first kernel that can run a node alone."""
    return next((kernel.name for kernel in kernels if kernel.op == node.op and not list_mismatches(kernel, node)), "")
