"""Which indices of which tensors belong together: what has to be on one chip when a dimension is cut across chips.

Every index of every axis of every tensor, and every iteration of every dimension of every loop nest, is a vertex. A nest joins an
iteration with the indices that it touches, a view the indices of a container with those of its parts, and a dimension of which every
output needs all joins all of its iterations. What is connected depends on each other and is an *atom*: one head, one column of a matrix.
Atoms that meet on an axis are a *dependence class*: heads, the inner width of a feed-forward layer, the channels of an image. A class of
one atom cannot be cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeploy.ir import epilogue
from deeploy.ir.dimensions import SUM, Kind
from deeploy.ir.expr import Affine, Dim
from deeploy.ir.kernel import Layout
from deeploy.ir.nest import Geometry, Nest
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.values import Graph
from deeploy.operators.reduce import REDUCE_SUM
from deeploy.operators.views import VIEWS, Access

# What a kernel declares of a node: names of its operands, inputs first, the nest of its body, how it stores constants.
Declared = tuple[tuple[str, ...], Nest, Mapping[str, Layout]]
Declare = Callable[[Node], Iterable[Declared]]  # in order of preference


@dataclass(frozen=True)
class NestDimension:
    """A dimension of a node's nest.

    Attributes:
        group: its class, -1 where it cannot be cut.
        is_sum: partial sums are left where it is cut.
        output: the axis of the node's first output that it runs along.
    """

    name: str
    group: int
    is_sum: bool
    output: int | None


@dataclass(frozen=True, eq=False)
class Dependence:
    """Atoms and classes of a graph.

    Attributes:
        vertices: those of every axis, by tensor.
        atom: per vertex the number of its atom, ``group`` per atom the number of its class.
        loops: the dimensions of every node's nest; views have none.
        mapped: positions of the inputs of a node that its nest maps; the others are tables, which are read whole.
        factors: nodes that sum products of two operands.
        detached: nodes whose outputs are made whole at once: their dimensions end there.
    """

    vertices: Mapping[Tensor, tuple[np.ndarray, ...]]
    index_class: np.ndarray
    group: np.ndarray
    loops: Mapping[Node, tuple[NestDimension, ...]]
    mapped: Mapping[Node, frozenset[int]]
    factors: frozenset[Node]
    replicated: frozenset[Node]

    def index_classes(self, tensor: Tensor, axis: int) -> np.ndarray:
        """The atom of every index of an axis."""
        return np.asarray(self.index_class[self.vertices[tensor][axis]])

    def classes(self, tensor: Tensor) -> tuple[int, ...]:
        """Per axis its class, -1 where all of it is one atom."""
        return tuple(self._class(self.index_classes(tensor, axis)) for axis in range(tensor.rank))

    def axis(self, tensor: Tensor, group: int | None) -> int | None:
        """The only axis that belongs to a class; None where there is none, or more than one."""
        axes = [axis for axis, equal_axes in enumerate(self.classes(tensor)) if equal_axes == group]
        return axes[0] if len(axes) == 1 else None

    def _class(self, index_classes: np.ndarray) -> int:
        return int(self.group[index_classes[0]]) if len(index_classes) > 1 and (index_classes != index_classes[0]).any() else -1


def read_dependence(
    graph: Graph, declare: Declare, replicated: frozenset[Node] = frozenset(), nodes: Sequence[Node] | None = None
) -> Dependence:
    """Read the nests and views of a lowered graph, or of some of its nodes alone."""
    collector = _Collector(graph, replicated)
    if nodes is None:
        for tensor in (*graph.inputs, *graph.outputs):
            collector.vertices(tensor)
    for node in graph.nodes if nodes is None else nodes:
        if node.op in VIEWS:
            collector.view(node)
        else:
            collector.kernel(node, declare)
    return collector.finish()


class _Collector:
    """Hands out vertices and collects the edges between them."""

    def __init__(self, graph: Graph, replicated: frozenset[Node]) -> None:
        self.graph = graph
        self.replicated = replicated
        self.count = 0
        self.known: dict[Tensor, tuple[np.ndarray, ...]] = {}
        self.runs: list[np.ndarray] = []  # the vertices of every axis and dimension
        self.edges: list[np.ndarray] = []
        self.loops: dict[Node, list[tuple[NestDimension, np.ndarray]]] = {}
        self.mapped: dict[Node, frozenset[int]] = {}
        self.factors: set[Node] = set()

    def run(self, length: int) -> np.ndarray:
        """Adds ``length`` vertices to the graph of dependences; returns their numbers."""
        self.runs.append(np.arange(self.count, self.count + length))
        self.count += length
        return self.runs[-1]

    def vertices(self, tensor: Tensor) -> tuple[np.ndarray, ...]:
        if tensor not in self.known:
            self.known[tensor] = tuple(map(self.run, tensor.shape))
        return self.known[tensor]

    def join(self, a: np.ndarray, b: np.ndarray) -> None:
        if len(a):
            self.edges.append(np.stack([a, b]))

    def join_all(self, run: np.ndarray) -> None:
        self.join(run[:-1], run[1:])

    # ---- kernels

    def kernel(self, node: Node, declare: Declare) -> None:
        """Tie the iterations of a node to what they touch; where nothing is declared that can be read, nothing of it can be cut."""
        tensors = (*node.operands, *node.outputs)
        for names, nest, layouts in declare(node):
            geometry, stored = _bind_geometry(node, names, nest, layouts)
            if geometry is not None:
                break
        else:
            for tensor in tensors:
                for run in self.vertices(tensor):
                    self.join_all(run)
            return
        nest = geometry.nest
        runs = {name: self.run(geometry.extents[name]) for name in geometry.dims()}
        linear = _sums_of_products(nest)
        if linear:
            self.factors.add(node)
        linear = linear and not node.outputs[0].dtype.is_float  # whose sums depend on their order
        along = {axis.bare(): i for result in [*nest.writes.values()][:1] for i, axis in enumerate(result.axes)}
        self.loops[node] = []
        for name, dim in geometry.dims().items():
            is_sum = linear and dim.kind is Kind.REDUCTION and dim.combine is SUM
            self.loops[node].append((NestDimension(name, -1, is_sum, along.get(dim)), runs[name]))
            if dim.kind is Kind.COUPLED or (dim.kind is Kind.REDUCTION and not is_sum) or not _is_seen(nest, dim):
                self.join_all(runs[name])
            if dim.whole is not None:
                self.join(runs[name], runs[dim.whole][: len(runs[name])])
        maps = nest.maps()
        for name, tensor in zip(names, tensors, strict=True):
            own = self.vertices(tensor)
            if name in maps and not (name in nest.writes and node in self.replicated):
                for run, (axis, indices) in zip(own, stored[name], strict=True):
                    self._axis(geometry, maps[name].axes[axis], run[indices], runs)
        self.mapped[node] = frozenset(i for i, name in enumerate(names[: len(node.inputs)]) if name in maps)

    def _axis(self, geometry: Geometry, expr: Affine, indices: np.ndarray, runs: Mapping[str, np.ndarray]) -> None:
        """Tie the dimensions of an expression to the vertices of the axis that it is an index into."""
        bare = expr.bare()
        if len(indices) == 1:
            return
        if bare is not None and len(runs[bare.name]) == len(indices):
            self.join(runs[bare.name], indices)
            return
        box = geometry.box()
        for name in dict.fromkeys(dim.name for dim in expr.dims()):
            for value, vertex in enumerate(runs[name]):
                low, high = expr.span({**box, name: (value, value)})
                touched = indices[max(0, low) : max(0, high + 1)]
                self.join_all(touched)
                self.join(np.full(len(touched[:1]), vertex), touched[:1])

    # ---- views

    def view(self, node: Node) -> None:
        """Tie the axes of a container to those of its parts."""
        declared = VIEWS[node.op](node)
        sides = {"in": node.operands, "out": node.outputs}
        container = sides[declared.container[0]][declared.container[1]]
        whole = container.shape
        runs = self.vertices(container)
        for axis in (declared.grows, declared.slides):
            if axis is not None:
                self.join_all(runs[axis])
        for (side, position), place in declared.parts:
            part = sides[side][position]
            own = self.vertices(part)
            access = place(Access.dense(whole))
            if access is None or 0 in whole or 0 in access.shape:
                continue
            for axis, p in _matching_axes(access, whole, self._indexed(part)).items():
                for vertex, coordinates in zip(own[p], _axis_coordinates(access, whole, axis, p), strict=True):
                    self.join(np.full(len(coordinates), vertex), runs[axis][0] + coordinates)

    def _indexed(self, part: Tensor) -> set[int]:
        """Axes of a part that its readers take apart, index by index: these are no dimension of what is computed."""
        axes: set[int] = set()
        for node in self.graph.readers.get(part, ()):
            if node.op not in VIEWS:
                continue
            view = VIEWS[node.op](node)
            if view.container != ("in", 0) or node.operands[0] is not part:
                continue
            sides = {"in": node.operands, "out": node.outputs}
            for (side, position), place in view.parts:
                access, inner = place(Access.dense(part.shape)), sides[side][position]
                if access is None or 0 in access.shape:
                    continue
                if math.prod(access.shape) != part.elements:
                    span = _reached_extents(access, part.shape)
                    axes |= {a for a, size in enumerate(part.shape) if size > 1 and span[a] == 1}
                elif len(view.parts) == 1 and inner.rank == part.rank:
                    indexed = self._indexed(inner)
                    axes |= {a for a, p in _matching_axes(access, part.shape, set()).items() if p in indexed}
        return axes

    def finish(self) -> Dependence:
        nothing = np.zeros((2, 0), np.int64)
        index_class = connected_components(self.count, np.concatenate([nothing, *self.edges], axis=1))
        group = connected_components(
            len(index_class),
            np.concatenate([nothing, *(np.stack([index_class[run[:-1]], index_class[run[1:]]]) for run in self.runs)], axis=1),
        )
        dependence = Dependence(self.known, index_class, group, {}, self.mapped, frozenset(self.factors), self.replicated)
        loops = {
            node: tuple(replace(loop, group=dependence._class(index_class[run])) for loop, run in own) for node, own in self.loops.items()
        }
        return replace(dependence, loops=loops)


def connected_components(count: int, edges: np.ndarray) -> np.ndarray:
    """Per vertex the smallest vertex that it is connected with; ``edges`` is [2, n]."""
    label = np.arange(count)
    u, v = edges
    while True:
        a, b = label[u], label[v]
        apart = a != b
        if not apart.any():
            return label
        u, v, a, b = u[apart], v[apart], a[apart], b[apart]
        np.minimum.at(label, np.maximum(a, b), np.minimum(a, b))
        while not np.array_equal(shorter := label[label], label):
            label = shorter


def _bind_geometry(
    node: Node, names: tuple[str, ...], nest: Nest, layouts: Mapping[str, Layout]
) -> tuple[Geometry | None, dict[str, list[tuple[int, np.ndarray]]]]:
    """The geometry of a node, and per operand and axis of the graph: the axis of the nest's map and the graph's indices along it."""
    stages = epilogue.stage_operands(node.epilogue)
    reads = {**nest.reads, **(epilogue.stage_maps(node.epilogue, next(iter(nest.writes.values()))) if stages else {})}
    shapes: dict[str, tuple[int, ...]] = {}
    stored: dict[str, list[tuple[int, np.ndarray]]] = {}
    for name, tensor in zip(names, (*node.operands, *node.outputs), strict=True):
        shapes[name], stored[name] = tensor.shape, [(axis, np.arange(size)) for axis, size in enumerate(tensor.shape)]
        if tensor.data is not None and name in layouts and name not in stages and name in nest.maps():
            places = _encoded_axes(layouts[name], node, tensor.data)
            if places is None:
                return None, {}
            shapes[name], stored[name] = places
    try:
        return Geometry.bind(replace(nest, reads={name: access for name, access in reads.items() if name in shapes}), shapes), stored
    except ValueError:
        return None, {}


def _encoded_axes(layout: Layout, node: Node, data: np.ndarray) -> tuple[tuple[int, ...], list[tuple[int, np.ndarray]]] | None:
    """Where a layout puts the axes of a constant, found by storing their indices; None where it does more than reorder axes."""
    places: list[tuple[int, np.ndarray]] = []
    shape: tuple[int, ...] = ()
    for axis, size in enumerate(data.shape):
        along: np.ndarray = np.indices(data.shape, np.int32, sparse=True)[axis]
        try:
            image = layout.encode(np.ascontiguousarray(np.broadcast_to(along, data.shape)), node)
        except (ValueError, IndexError, TypeError, AssertionError):
            return None
        if image is None or image.size != data.size:
            return None
        shape = image.shape
        varying = [i for i in range(image.ndim) if (np.diff(image, axis=i) != 0).any()]
        if size == 1:
            places.append((0, np.zeros(1, np.int64)))
        elif len(varying) == 1 and image.shape[varying[0]] == size:
            places.append((varying[0], np.asarray(np.moveaxis(image, varying[0], 0).reshape(size, -1)[:, 0], np.int64)))
        else:
            return None
    return shape, places


def _sums_of_products(nest: Nest) -> bool:
    """Whether a nest's reductions add products of two operands: what parts of them leave can be added."""
    factors = [m for m in nest.reads.values() if any(d.kind is Kind.REDUCTION for d in m.dims())]
    return len(factors) >= 2 and not nest.phases and not nest.updates


def summed_axes(node: Node, declare: Declare, tensor: Tensor, axis: int) -> tuple[int | None, ...] | None:
    """Per input the axis that a node of floats sums over together with ``axis`` of ``tensor``; None where its output is no such sum.

    Sums over parts of that axis add up to the output.
    """
    if len(node.outputs) != 1 or not node.outputs[0].dtype.is_float or node.epilogue:
        return None
    for names, nest, layouts in declare(node):
        geometry, stored = _bind_geometry(node, names, nest, layouts)
        if geometry is None:
            continue
        maps, axes = geometry.nest.maps(), list[int | None]()
        if node.op != REDUCE_SUM.name and not _sums_of_products(geometry.nest):
            return None
        reads = dict(zip(names, node.operands, strict=False))
        along = {name: [maps[name].axes[place] for place, _ in stored[name]] for name in reads if name in maps}
        dim = next((along[name][axis].bare() for name, read in reads.items() if read is tensor and name in along), None)
        if dim is None or dim.kind is not Kind.REDUCTION or dim.combine is not SUM:
            return None
        for name in reads:
            places = [place for place, expr in enumerate(along.get(name, ())) if dim in expr.dims()]
            if len(places) > 1 or any(along[name][place].bare() is None for place in places):
                return None
            axes.append(places[0] if places else None)
        return tuple(axes)
    return None


def _is_seen(nest: Nest, dim: Dim) -> bool:
    """Whether a parallel dimension reaches an output: one that only a table has, which is read by index, does not."""
    return dim.kind is not Kind.PARALLEL or any(dim in access.dims() for access in (*nest.writes.values(), *nest.updates.values()))


def _reached_extents(access: Access, whole: tuple[int, ...]) -> list[int]:
    """How many indices of every axis of a container a part reaches, at most."""
    lowest = np.unravel_index(access.offset, whole)
    last = access.offset + sum((n - 1) * s for n, s in zip(access.shape, access.strides, strict=True))
    return [int(b) - int(a) + 1 for a, b in zip(lowest, np.unravel_index(last, whole), strict=True)]


def _part_coordinates(access: Access, whole: tuple[int, ...], p: int) -> np.ndarray:
    """Coordinates in the container, [axes, extent], of the part's first element and those further along axis ``p``."""
    places = access.offset + access.strides[p] * np.arange(access.shape[p])
    return np.stack(np.unravel_index(places, whole))


def _moving_axes(access: Access, whole: tuple[int, ...]) -> dict[int, list[int]]:
    """For every axis of a container the part's axes that move along it, the one with the longest steps first.

    Where an axis of the part is several of the container, it moves along the outermost that has more than one index.
    """
    moving: dict[int, list[int]] = {}
    for p in sorted(range(len(access.shape)), key=lambda p: -access.strides[p]):
        if access.shape[p] > 1:
            steps = _part_coordinates(access, whole, p)
            axes = [a for a in range(len(whole)) if (steps[a] != steps[a][0]).any()]
            moving.setdefault(axes[0], []).append(p)
    return moving


def _matching_axes(access: Access, whole: tuple[int, ...], skipped: set[int]) -> dict[int, int]:
    """By axis of a container that of a part that belongs to it: of several of the part the outermost that is not skipped."""
    return {axis: next((p for p in parts if p not in skipped), parts[0]) for axis, parts in _moving_axes(access, whole).items()}


def _axis_coordinates(access: Access, whole: tuple[int, ...], axis: int, p: int) -> Sequence[np.ndarray]:
    """For every index of the part's axis ``p``, the indices of the container's ``axis`` that it reaches."""
    others = [q for q in _moving_axes(access, whole).get(axis, []) if q != p]
    base = _part_coordinates(access, whole, p)[axis]
    reach = np.zeros(1, np.int64)
    for q in others:
        steps = _part_coordinates(access, whole, q)[axis]
        reach = (reach[:, None] + (steps - steps[0])[None, :]).ravel()
    reach = np.unique(reach)
    return [start + reach for start in base]
