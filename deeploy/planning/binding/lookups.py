"""Tables of 8-bit results as stages of the calls that make these results.

A call of its own for a table moves every result of a requantisation twice more. As the last stage of that call's epilogue, the table is
applied in registers. It becomes one where nobody else reads the results, and every kernel that can run the node alone can run it with
the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from deeploy.ir.kernel import BYTES, Kernel
from deeploy.ir.nodes import Node
from deeploy.operators.table import OPERATORS
from deeploy.planning.binding.kernels import list_mismatches

STAGE = "lookup"


def with_lookups(nodes: Sequence[Node], outputs: Collection[str], kernels: Sequence[Kernel]) -> list[Node]:
    """The nodes, without those whose table became a stage of the node in front of them.

    Args:
        outputs: names of tensors that others than nodes read.
        kernels: that a plan may choose from.
    """
    readers = Counter(t.name for node in nodes for t in node.inputs if t is not None)
    sources = {t.name: node for node in nodes for t in node.outputs}
    merged: dict[int, Node | None] = {}
    for node in nodes:
        x = node.inputs[0] if node.op in OPERATORS and OPERATORS[node.op].is_table else None
        front = sources.get(x.name) if x is not None and readers[x.name] == 1 and x.name not in outputs else None
        both = _join_lookup(front, node) if front is not None else None
        if front is not None and both is not None and _is_as_able(kernels, front, both):
            merged |= {id(front): both, id(node): None}
    return [looked_up for node in nodes if (looked_up := merged.get(id(node), node)) is not None]


def _join_lookup(front: Node, lookup: Node) -> Node | None:
    """A node with the table of what reads its result as the last stage; None where they do not fit."""
    (x, table), y = lookup.inputs, lookup.outputs[0]
    if front.epilogue[-1:] != ("requantise",) or len(front.outputs) != 1 or x is None or table is None or table.data is None:
        return None
    if x.dtype not in BYTES or y.dtype not in BYTES or table.dtype is not y.dtype:
        return None
    low, high, least = front.attrs["low"], front.attrs["high"], x.dtype.range[0]
    values = table.data.ravel()[low - least : high - least + 1]
    if values.size != high - low + 1:
        return None
    stored = replace(table, name=f"{table.name} from {low} to {high}", shape=values.shape, data=values)
    attrs = {**front.attrs, "epilogue": (*front.epilogue, STAGE)}
    return replace(front, inputs=(*front.inputs, stored), outputs=(y,), attrs=attrs)


def _is_as_able(kernels: Sequence[Kernel], front: Node, both: Node) -> bool:
    """Whether the kernels that can run a node, one at least, can run it with the table, too."""
    own = [kernel for kernel in kernels if kernel.op == front.op and not list_mismatches(kernel, front)]
    return bool(own) and not any(list_mismatches(kernel, both) for kernel in own)
