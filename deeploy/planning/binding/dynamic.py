"""Which axes of which tensors only have as many rows as exist when the code runs.

It begins at the axes along which states grow and constants slide, and spreads over the graph in both directions: through views by position,
through kernels by the dimensions of their loop nests. What cannot follow is an error that names the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deeploy.errors import UnsupportedError, shorten
from deeploy.ir.nest import Nest
from deeploy.ir.nodes import Node, Tensor
from deeploy.operators.views import APPEND, SLIDE, VIEWS

DynamicAxes = dict[str, frozenset[int]]
Declare = Callable[[Node], tuple[tuple[str, ...], Nest] | None]  # operand names of inputs then outputs, and the nest

_REMEDY = "Only operators that treat rows one by one, or reduce over all of them, can follow a cache that grows."


def spread_axes(nodes: Sequence[Node], declare: Declare) -> DynamicAxes:
    """The dynamic axes of every tensor.

    Raises:
        UnsupportedError: an operator that needs the number of rows to be known.
    """
    dynamic: DynamicAxes = {}
    for node in nodes:
        if node.op in (APPEND, SLIDE):
            dynamic[node.outputs[0].name] = frozenset({node.attrs["axis"]})
    changed = bool(dynamic)
    while changed:
        changed = False
        for node in nodes:
            changed |= _spread_view(node, dynamic) if node.op in VIEWS else _spread_kernel(node, declare(node), dynamic)
    return dynamic


def dynamic_dims(
    names: Sequence[str], tensors: Sequence[Tensor | None], nest: Nest, dynamic: Mapping[str, frozenset[int]]
) -> frozenset[str]:
    """The dimensions of a nest that run over dynamic axes of its operands."""
    maps = {name: access for phase in (nest, *nest.phases) for name, access in phase.maps().items()}
    dynamic_names = set()
    for name, tensor in zip(names, tensors, strict=True):
        if tensor is not None and name in maps and tensor.data is None:
            bare = (maps[name].axes[axis].bare() for axis in dynamic.get(tensor.name, ()))
            dynamic_names |= {dim.name for dim in bare if dim is not None}
    pairs = [{dim.name, dim.whole} for phase in (nest, *nest.phases) for dim in phase.dims().values() if dim.whole is not None]
    return frozenset(dynamic_names.union(*(pair for pair in pairs if pair & dynamic_names)))


def _add_axes(dynamic: DynamicAxes, tensor: Tensor, axes: set[int]) -> bool:
    known = dynamic.get(tensor.name, frozenset())
    if axes <= known or tensor.data is not None:
        return False
    dynamic[tensor.name] = known | axes
    return True


def _unknown_axis(node: Node, tensor: Tensor) -> UnsupportedError:
    return UnsupportedError(
        f"node {shorten(node.name)} ({shorten(node.op)}) cannot follow the rows of {shorten(tensor.name)}, whose number changes", _REMEDY
    )


def _spread_kernel(node: Node, declared: tuple[tuple[str, ...], Nest] | None, dynamic: DynamicAxes) -> bool:
    tensors = (*node.inputs, *node.outputs)
    if declared is None or not any(t is not None and t.name in dynamic for t in tensors):
        return False
    names, nest = declared
    maps = {name: access for phase in (nest, *nest.phases) for name, access in phase.maps().items()}
    names_of_dims = dynamic_dims(names, tensors, nest, dynamic)
    changed, sizes = False, dict[str, int]()
    for name, tensor in zip(names, tensors, strict=True):
        if tensor is None:
            continue
        is_read = name not in nest.writes
        axes = set()
        for axis, size in enumerate(tensor.shape):
            bare = maps[name].axes[axis].bare() if name in maps else None
            if axis in dynamic.get(tensor.name, ()) and is_read and (bare is None or name in nest.indirect):
                raise _unknown_axis(node, tensor)
            if size > 1 and bare is not None and bare.name in names_of_dims:
                if sizes.setdefault(bare.name, size) != size:  # as where something is put behind the last row
                    raise _unknown_axis(node, tensor)
                axes.add(axis)
        changed |= _add_axes(dynamic, tensor, axes)
    return changed


def _spread_view(node: Node, dynamic: DynamicAxes) -> bool:
    if node.op in (APPEND, SLIDE):
        return False
    view, changed = VIEWS[node.op](node), False
    for source in node.inputs:
        for result in node.outputs:
            if source is None:
                continue
            pairs = view.axes(source, result)
            for axis in dynamic.get(source.name, ()):
                if axis not in dict(pairs):
                    raise _unknown_axis(node, source)
            changed |= _add_axes(dynamic, result, {b for a, b in pairs if a in dynamic.get(source.name, ())})
            changed |= _add_axes(dynamic, source, {a for a, b in pairs if b in dynamic.get(result.name, ())})
    return changed
