"""Two kernels as one: elements that are computed from two tensors, a residual connection, and what is made of rows of them, a norm.

Both are written, since the next residual connection reads the elements. The arithmetic is that of the two operators, in C as in NumPy:
one call runs both functions one after the other, which saves what a call costs, and moving the elements where they do not stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from deeploy.ir import epilogue
from deeploy.ir.kernel import Kernel, Layout, Operator, Phase, Tiling
from deeploy.ir.nest import Nest
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.norms import MOST_COLUMNS

_X = "x"  # the elements: the result of the first kernel, of which the second one reads rows
_PREFIX = "first_"  # of the first kernel's attributes, and of the operands of its epilogue
_STAGED = ("mul", "add")
_KNOWN = 256  # nodes of which a phase is remembered


@dataclass(frozen=True, eq=False)
class _KernelPair:
    """Two kernels, and how the nodes of each are made of a node of both."""

    first: Kernel
    second: Kernel
    others: tuple[str, ...]  # inputs of the second one besides x
    first_node: Callable[[Node], Node]
    second_node: Callable[[Node], Node]

    def nest(self, node: Node) -> Nest:
        second_nest = self.second.nest(self.second_node(node))
        y, x = second_nest.writes["y"], second_nest.reads[_X]
        reads = {**dict.fromkeys(self.first.inputs, y), **{name: access for name, access in second_nest.reads.items() if name != _X}}
        columns = {dim.name: node.outputs[1].shape[-1] for dim in x.axes[-1].dims()}
        return Nest(reads, {"y": y, _X: y}, extents={**second_nest.extents, **columns})

    def reference(self, node: Node, a: Array, b: Array, *rest: Array) -> tuple[Array, Array]:
        ahead, count = self.first_node(node), len(self.others)
        staged = dict(zip(_STAGED, rest[count:], strict=False))
        x = epilogue.apply_stages(ahead, self.first.reference(ahead, a, b), staged).astype(node.outputs[1].dtype.numpy)
        return self.second.reference(self.second_node(node), x, *rest[:count]), x

    def state_requirement(self, node: Node) -> str | None:
        a, b, *_ = node.inputs
        if a is None or b is None or not a.shape == b.shape == node.outputs[1].shape:
            return "a and b of one shape"
        stages = self.first_node(node).epilogue
        if stages not in ((), ("requantise",)) or stages not in self.first.epilogues:
            return "a first epilogue that requantises by constants in the call"
        reasons = (one.requires(made(node)) for one, made in self.both if one.requires is not None)
        return next((reason for reason in reasons if reason is not None), None)

    def macros(self, node: Node) -> dict[str, str]:
        ahead, after = (one.macros(made(node)) if one.macros is not None else {} for one, made in self.both)
        return {**{f"FIRST_{name}": text for name, text in ahead.items()}, **after}

    def stored(self, layout: Layout) -> Layout:
        return replace(layout, encode=lambda array, node: layout.encode(array, self.second_node(node)))

    @property
    def both(self) -> tuple[tuple[Kernel, Callable[[Node], Node]], ...]:
        return (self.first, self.first_node), (self.second, self.second_node)


def fuse_kernels(first: Kernel, second: Kernel) -> Kernel:
    """The kernel of both: y is the second one's result, x the first one's.

    Args:
        first: of two operands, a and b, element by element; constants of its epilogue are in the call.
        second: along rows of x.
    """
    others = tuple(name for name in second.inputs if name != _X)
    pair = _KernelPair(first, second, others, _make_first_node(first, len(others)), _make_second_node(second, len(others)))
    inputs = (*first.inputs, *others, *(f"{_PREFIX}{name}?" for name in _STAGED))
    own = {name.rstrip("?"): name.rstrip("?") for name in (_X, *others, "y", *epilogue.ROWS, "table")}
    layouts = {name: pair.stored(layout) for name, layout in second.layouts.items()}
    return replace(
        second,
        name=f"{first.name}_{second.name}",
        operator=Operator(first.op + second.op, inputs, pair.nest, pair.reference),
        inputs=inputs,
        outputs=("y", _X),
        types={**second.types, **first.types, "y": second.types["y"], _X: first.types["y"] & second.types[_X]},
        nest=pair.nest,
        reference=pair.reference,
        requires=pair.state_requirement,
        constants=(*second.constants, *others),
        layouts={**layouts, **{f"{_PREFIX}{name}": Layout(lambda array, node: None) for name in _STAGED}},
        overwrites=tuple((_X, name) for name in first.inputs),
        strided={"y": second.strided["y"], _X: second.strided[_X], **{name: first.strided[name] for name in first.inputs}},
        macros=pair.macros,
        settings=None,
        tiling=Tiling(multiple={"k": MOST_COLUMNS}),  # rows are not cut, but columns of few rows divided over cores
        phases=(
            Phase(first, pair.first_node, {**{name: name for name in first.inputs}, _X: "y"}),
            Phase(second, pair.second_node, own, whole=(_X,)),
        ),
    )


def _make_first_node(first: Kernel, others: int) -> Callable[[Node], Node]:
    """What the first kernel computes of a node; the second one has so many inputs besides x."""

    @lru_cache(maxsize=_KNOWN)
    def made(node: Node) -> Node:
        attrs = {name.removeprefix(_PREFIX): value for name, value in node.attrs.items() if name.startswith(_PREFIX)}
        begin = 2 + others
        staged = node.inputs[begin : begin + len(epilogue.stage_operands(attrs.get("epilogue", ())))]
        return Node(node.name, first.op, (*node.inputs[:2], *staged), node.outputs[1:], attrs)

    return made


def _make_second_node(second: Kernel, others: int) -> Callable[[Node], Node]:
    """What the second kernel computes of a node."""

    @lru_cache(maxsize=_KNOWN)
    def made(node: Node) -> Node:
        attrs = {name: value for name, value in node.attrs.items() if not name.startswith(_PREFIX)}
        end = len(node.inputs) - len(epilogue.stage_operands(node.epilogue))
        return Node(node.name, second.op, (node.outputs[1], *node.inputs[2 : 2 + others], *node.inputs[end:]), node.outputs[:1], attrs)

    return made


def fuse_nodes(kernel: Kernel, first: Node, second: Node) -> Node:
    """The node of a fused kernel, of which it runs both."""
    end = len(second.inputs) - len(epilogue.stage_operands(second.epilogue))
    inputs = (*first.inputs[:2], *second.inputs[1:end], *first.inputs[2:], *second.inputs[end:])
    attrs = {**{_PREFIX + name: value for name, value in first.attrs.items()}, **second.attrs}
    return Node(second.name, kernel.op, inputs, (*second.outputs, *first.outputs), attrs)
