"""Which indices of which tensors belong together: what has to be on one chip when a dimension is cut across chips.

Every index of every axis of every tensor, and every iteration of every dimension of every loop nest, is a vertex. A nest joins an
iteration with the indices that it touches, a view the indices of a container with those of its parts, and a dimension of which every
output needs all joins all of its iterations. What is connected depends on each other and is an *atom*: one head, one column of a matrix.
Atoms that meet on an axis are a *dependence class*: heads, the inner width of a feed-forward layer, the channels of an image. A class of
one atom cannot be cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.graph import epilogue, surgeon
from deeploy.graph.expr import Affine
from deeploy.graph.kernel import Layout
from deeploy.graph.nest import SUM, Dim, Geometry, Kind, Nest
from deeploy.graph.nodes import Node
from deeploy.operators.views import VIEWS, Access

# What a kernel declares of a node: names of its operands, inputs first, the nest of its body, how it stores constants.
Declared = tuple[tuple[str, ...], Nest, Mapping[str, Layout]]
Declare = Callable[[Node], Iterable[Declared]]  # in order of preference


@dataclass(frozen=True)
class Loop:
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
        first: the first vertex of every axis, by tensor (``key``).
        atom: per vertex the number of its atom, ``group`` per atom the number of its class.
        loops: the dimensions of every node's nest, by ``id``; views have none.
        mapped: positions of the inputs of a node that its nest maps; the others are tables, which are read whole.
        factors: nodes that sum products of two operands, by ``id``.
        detached: nodes whose outputs are made whole at once, by ``id``: their dimensions end there.
    """

    first: Mapping[object, tuple[int, ...]]
    atom: np.ndarray
    group: np.ndarray
    loops: Mapping[int, tuple[Loop, ...]]
    mapped: Mapping[int, frozenset[int]]
    factors: frozenset[int]
    detached: frozenset[int]

    def atoms(self, tensor: gs.Tensor, axis: int) -> np.ndarray:
        """The atom of every index of an axis."""
        begin = self.first[key(tensor)][axis]
        return self.atom[begin : begin + int(shape_of(tensor)[axis])]

    def classes(self, tensor: gs.Tensor) -> tuple[int, ...]:
        """Per axis its class, -1 where all of it is one atom."""
        return tuple(self._class(self.atoms(tensor, axis)) for axis in range(len(shape_of(tensor))))

    def axis(self, tensor: gs.Tensor, group: int) -> int | None:
        """The only axis that belongs to a class; None where there is none, or more than one."""
        axes = [axis for axis, found in enumerate(self.classes(tensor)) if found == group]
        return axes[0] if len(axes) == 1 else None

    def _class(self, atoms: np.ndarray) -> int:
        return int(self.group[atoms[0]]) if len(atoms) > 1 and (atoms != atoms[0]).any() else -1


def key(tensor: gs.Tensor) -> object:
    """Identity of a tensor: constants may share names."""
    return id(tensor) if isinstance(tensor, gs.Constant) else tensor.name


def shape_of(tensor: gs.Tensor) -> tuple[int, ...]:
    return tuple(int(n) for n in (tensor.values.shape if isinstance(tensor, gs.Constant) else tensor.shape))


def read_dependence(graph: gs.Graph, declare: Declare, detached: frozenset[int] = frozenset()) -> Dependence:
    """Read the nests and views of a lowered graph, whose nodes are in topological order."""
    collector = _Collector(detached)
    for tensor in (*graph.inputs, *graph.outputs):
        collector.vertices(tensor)
    for node in graph.nodes:
        if node.op in VIEWS:
            collector.view(node)
        else:
            collector.kernel(node, declare)
    return collector.finish()


class _Collector:
    """Hands out vertices and collects the edges between them."""

    def __init__(self, detached: frozenset[int]) -> None:
        self.detached = detached
        self.count = 0
        self.first: dict[object, tuple[int, ...]] = {}
        self.runs: list[tuple[int, int]] = []  # first vertex and length of every axis and dimension
        self.edges: list[np.ndarray] = []
        self.loops: dict[int, list[tuple[str, int, int, bool, int | None]]] = {}
        self.mapped: dict[int, frozenset[int]] = {}
        self.factors: set[int] = set()

    def run(self, length: int) -> int:
        begin, self.count = self.count, self.count + length
        self.runs.append((begin, length))
        return begin

    def vertices(self, tensor: gs.Tensor) -> tuple[int, ...]:
        name = key(tensor)
        if name not in self.first:
            self.first[name] = tuple(self.run(n) for n in shape_of(tensor))
        return self.first[name]

    def join(self, a: np.ndarray, b: np.ndarray) -> None:
        if len(a):
            self.edges.append(np.stack([a, b]))

    def join_all(self, begin: int, length: int) -> None:
        run = np.arange(begin, begin + length)
        self.join(run[:-1], run[1:])

    # ---- kernels

    def kernel(self, node: gs.Node, declare: Declare) -> None:
        """Tie the iterations of a node to what they touch; where nothing is declared that can be read, nothing of it can be cut."""
        view = surgeon.described(node)
        tensors = (*node.inputs, *node.outputs)
        for names, nest, layouts in declare(view):
            geometry, stored = _bound(view, names, nest, layouts)
            if geometry is not None:
                break
        else:
            for tensor in tensors:
                for begin, length in zip(self.vertices(tensor), shape_of(tensor), strict=True):
                    self.join_all(begin, length)
            return
        begins = {name: self.run(geometry.extents[name]) for name in geometry.dims()}
        linear = _sums_of_products(geometry.nest)
        if linear:
            self.factors.add(id(node))
        linear = linear and np.dtype(node.outputs[0].dtype).kind != "f"  # whose sums depend on their order
        result = next(iter(geometry.nest.writes.values()), None)
        along = {axis.bare(): i for i, axis in enumerate(result.axes)} if result is not None else {}
        self.loops[id(node)] = []
        for name, dim in geometry.dims().items():
            is_sum = linear and dim.kind is Kind.REDUCTION and dim.combine is SUM
            self.loops[id(node)].append((name, begins[name], geometry.extents[name], is_sum, along.get(dim)))
            if dim.kind is Kind.COUPLED or (dim.kind is Kind.REDUCTION and not is_sum) or not _is_seen(geometry.nest, dim):
                self.join_all(begins[name], geometry.extents[name])
            if dim.whole is not None:
                indices = np.arange(geometry.extents[name])
                self.join(begins[name] + indices, begins[dim.whole] + indices)
        maps = geometry.nest.maps()
        for name, tensor in zip(names, tensors, strict=True):
            if name in geometry.nest.writes and id(node) in self.detached:
                self.vertices(tensor)
            elif name in maps:
                for axis, begin in enumerate(self.vertices(tensor)):
                    place = stored[name][axis]
                    if place is None:
                        self.join_all(begin, shape_of(tensor)[axis])
                    else:
                        self._axis(geometry, maps[name].axes[place[0]], begin + place[1], begins)
            else:
                self.vertices(tensor)
        self.mapped[id(node)] = frozenset(i for i, name in enumerate(names[: len(node.inputs)]) if name in maps)

    def _axis(self, geometry: Geometry, expr: Affine, indices: np.ndarray, begins: Mapping[str, int]) -> None:
        """Tie the dimensions of an expression to the vertices of the axis that it is an index into."""
        bare = expr.bare()
        if len(indices) == 1:
            return
        if bare is not None and geometry.extents[bare.name] == len(indices):
            self.join(begins[bare.name] + np.arange(len(indices)), indices)
            return
        box = geometry.box()
        for name in dict.fromkeys(dim.name for dim in expr.dims()):
            for value in range(geometry.extents[name]):
                low, high = expr.span({**box, name: (value, value)})
                touched = indices[max(0, low) : max(0, high + 1)]
                if len(touched):
                    self.join(touched[:-1], touched[1:])
                    self.join(np.array([begins[name] + value]), touched[:1])

    # ---- views

    def view(self, node: gs.Node) -> None:
        """Tie the axes of a container to those of its parts."""
        declared = VIEWS[node.op](surgeon.described(node))
        sides = {"in": node.inputs, "out": node.outputs}
        container = sides[declared.container[0]][declared.container[1]]
        whole = shape_of(container)
        begins = self.vertices(container)
        for axis in (declared.grows, declared.slides):
            if axis is not None:
                self.join_all(begins[axis], whole[axis])
        for (side, position), place in declared.parts:
            part = sides[side][position]
            own = self.vertices(part)
            access = place(Access.dense(whole))
            if access is None or 0 in whole or 0 in access.shape:
                continue
            chosen = {a: p for a, p in _matches(access, whole, _indexed(part))}
            for axis, p in chosen.items():
                for index, coordinates in enumerate(_coordinates(access, whole, axis, p)):
                    self.join(np.full(len(coordinates), own[p] + index), begins[axis] + coordinates)

    def finish(self) -> Dependence:
        edges = np.concatenate(self.edges, axis=1) if self.edges else np.zeros((2, 0), np.int64)
        atom = components(self.count, edges)
        beside = [np.stack([atom[b : b + n - 1], atom[b + 1 : b + n]]) for b, n in self.runs if n > 1]
        group = components(len(atom), np.concatenate(beside, axis=1) if beside else np.zeros((2, 0), np.int64))
        found = Dependence(self.first, atom, group, {}, self.mapped, frozenset(self.factors), self.detached)
        loops = {
            node: tuple(Loop(name, found._class(atom[begin : begin + size]), is_sum, axis) for name, begin, size, is_sum, axis in dims)
            for node, dims in self.loops.items()
        }
        return replace(found, loops=loops)


def components(count: int, edges: np.ndarray) -> np.ndarray:
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


def _bound(
    node: Node, names: tuple[str, ...], nest: Nest, layouts: Mapping[str, Layout]
) -> tuple[Geometry | None, dict[str, list[tuple[int, np.ndarray] | None]]]:
    """The geometry of a node, and per operand and axis of the graph: the axis of the nest's map and the graph's indices along it."""
    tensors = (*node.inputs, *node.outputs)
    stages = epilogue.operands(node.epilogue)
    if stages:
        reads = {**nest.reads, **epilogue.maps(node.epilogue, next(iter(nest.writes.values())))}
        nest = Nest(reads, nest.writes, nest.updates, nest.extents, nest.indirect, nest.phases)
    shapes: dict[str, tuple[int, ...]] = {}
    stored: dict[str, list[tuple[int, np.ndarray] | None]] = {}
    for name, tensor in zip(names, tensors, strict=True):
        assert tensor is not None
        shapes[name] = tensor.shape
        stored[name] = [(axis, np.arange(size)) for axis, size in enumerate(tensor.shape)]
        layout = layouts.get(name)
        if tensor.data is not None and layout is not None and name not in stages and name in nest.maps():
            places = _encoded(layout, node, tensor.data)
            if places is None:
                return None, {}
            shapes[name], stored[name] = places
    reads_here = {name: access for name, access in nest.reads.items() if name in shapes}
    nest = Nest(reads_here, nest.writes, nest.updates, nest.extents, nest.indirect, nest.phases)
    try:
        return Geometry.bind(nest, shapes), stored
    except ValueError:
        return None, {}


def _encoded(layout: Layout, node: Node, data: np.ndarray) -> tuple[tuple[int, ...], list[tuple[int, np.ndarray] | None]] | None:
    """Where a layout puts the axes of a constant, found by storing their indices; None where it does more than reorder axes."""
    places: list[tuple[int, np.ndarray] | None] = []
    shape: tuple[int, ...] = ()
    for axis, size in enumerate(data.shape):
        along = np.arange(size, dtype=np.int32).reshape([-1 if i == axis else 1 for i in range(data.ndim)])
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


def _is_seen(nest: Nest, dim: Dim) -> bool:
    """Whether a parallel dimension reaches an output: one that only a table has, which is read by index, does not."""
    return dim.kind is not Kind.PARALLEL or any(dim in access.dims() for access in (*nest.writes.values(), *nest.updates.values()))


def _indexed(part: gs.Tensor) -> set[int]:
    """Axes of a part that its readers take apart, index by index: these are no dimension of what is computed."""
    found: set[int] = set()
    for node in part.outputs:
        if node.op not in VIEWS:
            continue
        view = VIEWS[node.op](surgeon.described(node))
        if view.container != ("in", 0) or node.inputs[0] is not part:
            continue
        sides = {"in": node.inputs, "out": node.outputs}
        whole = shape_of(part)
        for (side, position), place in view.parts:
            access = place(Access.dense(whole))
            if access is None or 0 in access.shape:
                continue
            if not _reaches_all(access, whole):
                span = _span(access, whole)
                found |= {a for a, size in enumerate(whole) if size > 1 and span[a] == 1}
            elif len(view.parts) == 1 and len(shape_of(sides[side][position])) == len(whole):
                inner = _indexed(sides[side][position])
                found |= {a for a, p in _matches(access, whole, set()) if p in inner}
    return found


def _reaches_all(access: Access, whole: tuple[int, ...]) -> bool:
    return int(np.prod(access.shape)) == int(np.prod(whole))


def _span(access: Access, whole: tuple[int, ...]) -> list[int]:
    """How many indices of every axis of a container a part reaches, at most."""
    lowest = np.unravel_index(access.offset, whole)
    last = access.offset + sum((n - 1) * s for n, s in zip(access.shape, access.strides, strict=True))
    return [int(b) - int(a) + 1 for a, b in zip(lowest, np.unravel_index(last, whole), strict=True)]


def _steps(access: Access, whole: tuple[int, ...], p: int) -> np.ndarray:
    """Coordinates in the container, [axes, extent], of the part's first element and those further along axis ``p``."""
    places = access.offset + access.strides[p] * np.arange(access.shape[p])
    return np.stack(np.unravel_index(places, whole))


def _moving(access: Access, whole: tuple[int, ...]) -> dict[int, list[int]]:
    """For every axis of a container the part's axes that move along it, the one with the longest steps first.

    Where an axis of the part is several of the container, it moves along the outermost that has more than one index.
    """
    found: dict[int, list[int]] = {}
    for p in sorted(range(len(access.shape)), key=lambda p: -access.strides[p]):
        if access.shape[p] > 1:
            steps = _steps(access, whole, p)
            axes = [a for a in range(len(whole)) if (steps[a] != steps[a][0]).any()]
            found.setdefault(axes[0], []).append(p)
    return found


def _matches(access: Access, whole: tuple[int, ...], skipped: set[int]) -> list[tuple[int, int]]:
    """Pairs of a container's and a part's axis that belong together: of several axes of the part the outermost that is not skipped."""
    result = []
    for axis, parts in _moving(access, whole).items():
        free = [p for p in parts if p not in skipped] or parts
        result.append((axis, free[0]))
    return result


def _coordinates(access: Access, whole: tuple[int, ...], axis: int, p: int) -> Sequence[np.ndarray]:
    """For every index of the part's axis ``p``, the indices of the container's ``axis`` that it reaches."""
    others = [q for q in _moving(access, whole).get(axis, []) if q != p]
    base = _steps(access, whole, p)[axis]
    reach = np.zeros(1, np.int64)
    for q in others:
        steps = _steps(access, whole, q)[axis]
        reach = (reach[:, None] + (steps - steps[0])[None, :]).ravel()
    reach = np.unique(reach)
    return [start + reach for start in base]
