"""From a lowered graph to a Program: views become strides, everything else becomes kernel calls.

Decides where every tensor lies. Walking backwards, the parts of a container that is already placed (a graph output, a
Concat) are placed inside it when nothing else claims them; walking forwards, the remaining views follow their source. A
copy is inserted only where a view cannot be expressed, a caller's buffer is involved, or a kernel cannot follow strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import UnsupportedError, shorten
from deeploy.graph.kernel import Kernel
from deeploy.graph.names import Names
from deeploy.graph.nodes import Node, Tensor
from deeploy.graph.types import DType
from deeploy.midend.bind import bound_geometry, operand_names, select, view_node
from deeploy.midend.program import Buffer, Call, Operand, Program, Role
from deeploy.operators.views import MATERIALISE, VIEWS, Access, Place


@dataclass(frozen=True)
class _Follow:
    """``tensor`` lies inside ``source``, at the place that ``place`` computes."""

    source: Tensor
    tensor: Tensor
    place: Place


def _copy(source: Tensor, result: Tensor) -> Node:
    return Node(f"copy of {result.name}", MATERIALISE, (source,), (result,))


def assemble(name: str, graph: gs.Graph, kernels: Sequence[Kernel]) -> Program:
    """Bind every node of ``graph`` to a kernel and every tensor to a buffer.

    Raises:
        UnsupportedError: nodes without a kernel, all in one error.
    """
    nodes = [view_node(node) for node in graph.nodes]
    inputs = [view_tensor(t) for t in graph.inputs]
    selected = iter(select(kernels, [node for node in nodes if node.op not in VIEWS]))
    bindings = {id(node): next(selected) for node in nodes if node.op not in VIEWS}
    outputs = [view_tensor(t) for t in graph.outputs]
    nodes, outputs = _own_outputs(nodes, inputs, outputs)
    steps, placed, roots = _place_backwards(nodes, inputs, outputs)
    return _Assembler(name, kernels, bindings, placed, roots).run(steps, inputs, outputs)


def view_tensor(tensor: gs.Tensor) -> Tensor:
    """The read-only view of a graph input or output."""
    return view_node(gs.Node(op="graph boundary", name=tensor.name, inputs=[tensor])).inputs[0] or Tensor(tensor.name, (), tensor.dtype)


def _own_outputs(nodes: list[Node], inputs: list[Tensor], outputs: list[Tensor]) -> tuple[list[Node], list[Tensor]]:
    """Copy outputs that are inputs, constants, or the same tensor twice, so that each one owns its buffer."""
    taken = {t.name for t in inputs}
    nodes, result = list(nodes), list[Tensor]()
    for tensor in outputs:
        if tensor.name in taken or tensor.data is not None:
            own = Tensor(f"{tensor.name} (output {len(result)})", tensor.shape, tensor.dtype)
            nodes.append(_copy(tensor, own))
            tensor = own
        taken.add(tensor.name)
        result.append(tensor)
    return nodes, result


def _place_backwards(
    nodes: list[Node], inputs: list[Tensor], outputs: list[Tensor]
) -> tuple[list[Node | _Follow], dict[str, Operand], dict[str, Tensor]]:
    """Place the parts of containers; return what is left to do in order, the places found, and the containers by name."""
    placed = {t.name: Operand(t.name, Access.dense(t.shape)) for t in outputs}
    roots = {t.name: t for t in outputs}
    callers = {t.name for t in inputs}
    steps: list[Node | _Follow] = []

    def free(tensor: Tensor) -> bool:
        return tensor.data is None and tensor.name not in callers and tensor.name not in placed

    for node in reversed(nodes):
        if node.op not in VIEWS:
            steps.append(node)
            continue
        view = VIEWS[node.op](node)
        sides = {"in": node.inputs, "out": node.outputs}
        container = sides[view.container[0]][view.container[1]]
        assert container is not None
        if view.container[0] == "out":
            if container.name not in placed:
                placed[container.name] = Operand(container.name, Access.dense(container.shape))
                roots[container.name] = container
            base = placed[container.name]
            for (side, position), place in view.parts:
                part = sides[side][position]
                access = place(base.access)
                assert part is not None and access is not None
                if part.elements == 0:
                    continue
                if not free(part):
                    own = Tensor(f"{part.name} (in {container.name}, {position})", part.shape, part.dtype)
                    steps.append(_copy(part, own))
                    part = own
                placed[part.name] = Operand(base.buffer, access)
            continue
        for (side, position), place in view.parts:
            part = sides[side][position]
            assert part is not None
            if part.name not in placed:
                steps.append(_Follow(container, part, place))
                continue
            target = placed[part.name]
            access = view.inverse(target.access) if view.inverse is not None and free(container) else None
            if access is not None:
                placed[container.name] = Operand(target.buffer, access)
            else:
                alias = Tensor(f"{part.name} (view)", part.shape, part.dtype)
                steps.append(_copy(alias, part))
                steps.append(_Follow(container, alias, place))
    steps.reverse()
    return steps, placed, roots


class _Assembler:
    """Walks the steps forwards and collects buffers and calls."""

    def __init__(
        self,
        name: str,
        kernels: Sequence[Kernel],
        bindings: dict[int, Kernel],
        placed: dict[str, Operand],
        roots: dict[str, Tensor],
    ) -> None:
        self.name = name
        self.kernels = kernels
        self.bindings = bindings
        self.placed = placed
        self.roots = roots
        self.names = Names()
        self.buffers: dict[str, Buffer] = {}
        self.owners: dict[str, str] = {}  # root tensor -> its buffer
        self.where: dict[str, Operand] = {}
        self.dense: dict[str, Tensor] = {}  # tensor -> dense copy of it
        self.constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self.calls: list[Call] = []

    def run(self, steps: list[Node | _Follow], inputs: list[Tensor], outputs: list[Tensor]) -> Program:
        for tensor in inputs:
            self.where[tensor.name] = Operand(self._owner(tensor, Role.INPUT), Access.dense(tensor.shape))
        for tensor in outputs:
            self._owner(tensor, Role.OUTPUT)
        for step in steps:
            if isinstance(step, _Follow):
                self._follow(step)
            elif any(t.elements for t in step.outputs):
                self._call(step)
        return Program(
            self.name,
            self.buffers,
            tuple(self.calls),
            tuple(self.owners[t.name] for t in inputs),
            tuple(self.owners[t.name] for t in outputs),
            self.where,
        )

    def _owner(self, root: Tensor, role: Role) -> str:
        """The buffer of a root tensor, created at first use."""
        if root.name not in self.owners:
            name = self.names.unique(root.name)
            self.owners[root.name] = name
            self.buffers[name] = Buffer(name, root.name, role, root.dtype, root.shape)
        return self.owners[root.name]

    def _constant(self, tensor: Tensor, stored: np.ndarray) -> str:
        key = (stored.dtype.str, stored.shape, stored.tobytes())
        if key not in self.constants:
            name = self.names.unique(tensor.name)
            self.buffers[name] = Buffer(name, tensor.name, Role.CONSTANT, DType.of(stored.dtype), stored.shape, stored)
            self.constants[key] = name
        return self.constants[key]

    def _locate(self, tensor: Tensor) -> Operand:
        if tensor.data is not None and tensor.name not in self.where:
            return Operand(self._constant(tensor, tensor.data), Access.dense(tensor.shape))
        if tensor.name not in self.where and tensor.name in self.placed:
            return self._output(tensor)  # a container, whose parts were written one by one
        return self.where[tensor.name]

    def _follow(self, step: _Follow) -> None:
        source = self._locate(step.source)
        access = step.place(source.access)
        if access is None:
            source = self._locate(self._dense_copy(step.source))
            access = step.place(source.access)
            assert access is not None, "every view of a dense container can be expressed"
        self.where[step.tensor.name] = Operand(source.buffer, access)

    def _dense_copy(self, tensor: Tensor) -> Tensor:
        """A densely stored copy of ``tensor``, shared by all who need one."""
        if tensor.name not in self.dense:
            copy = Tensor(f"{tensor.name} (dense)", tensor.shape, tensor.dtype)
            self.dense[tensor.name] = copy
            self._call(_copy(tensor, copy))
        return self.dense[tensor.name]

    def _output(self, tensor: Tensor) -> Operand:
        place = self.placed.get(tensor.name, Operand(tensor.name, Access.dense(tensor.shape)))
        return Operand(self._owner(self.roots.get(place.buffer, tensor), Role.LOCAL), place.access)

    def _call(self, node: Node) -> None:
        kernel = self.bindings.get(id(node)) or select(self.kernels, [node])[0]
        names = operand_names(kernel, node)
        assert names is not None
        operands: dict[str, Operand] = {}
        stored: dict[str, np.ndarray] = {}
        for name, tensor in zip(names, node.inputs, strict=True):
            if tensor is None:
                continue
            if tensor.data is not None:
                layout = kernel.layouts.get(name)
                array = tensor.data if layout is None else layout.encode(tensor.data, node)
                stored[name] = array
                operands[name] = Operand(self._constant(tensor, array), Access.dense(array.shape))
            else:
                operands[name] = self._readable(kernel, name, tensor)
        copies: list[Node] = []
        for name, tensor in zip(kernel.outputs, node.outputs, strict=True):
            place = self._output(tensor)
            self.where[tensor.name] = place
            if not _follows(kernel, name, place.access):
                own = Tensor(f"{tensor.name} (before copy)", tensor.shape, tensor.dtype)
                copies.append(_copy(own, tensor))
                place = self._output(own)
                self.where[own.name] = place
            operands[name] = place
        try:
            geometry = bound_geometry(kernel, node, stored)
        except ValueError as error:
            raise UnsupportedError(
                f"node {shorten(node.name)} ({node.op}) does not fit the loop nest of kernel {kernel.name}: {error}",
                "Check the shapes of the node's operands, or the kernel's declaration.",
            ) from error
        call = self.names.unique(node.name)
        scratch = {key: self._scratch(f"{call}_{key}", size(geometry)) for key, size in kernel.scratch.items()}
        self.calls.append(Call(call, node, kernel, geometry, operands, scratch))
        for copy in copies:
            self._call(copy)

    def _scratch(self, name: str, size: int) -> str:
        unique = self.names.unique(name)
        self.buffers[unique] = Buffer(unique, name, Role.SCRATCH, DType.UINT8, (size,))
        return unique

    def _readable(self, kernel: Kernel, name: str, tensor: Tensor) -> Operand:
        place = self._locate(tensor)
        if _follows(kernel, name, place.access):
            return place
        return self._locate(self._dense_copy(tensor))


def _follows(kernel: Kernel, operand: str, access: Access) -> bool:
    """Whether the kernel can step over the operand as it lies."""
    return access.dense_axes() >= min(kernel.strided.get(operand, len(access.shape)), len(access.shape))
