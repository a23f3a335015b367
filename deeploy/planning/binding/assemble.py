"""From a lowered graph to a Program: views become strides, everything else becomes kernel calls.

Decides where every tensor lies. Walking backwards, the parts of a container that is already placed (a graph output, a
Concat) are placed inside it when nothing else claims them; walking forwards, the remaining views follow their source. A
copy is inserted only where a view cannot be expressed, a caller's buffer is involved, or a kernel cannot follow strides.
The first kernel of a node decides that; others become variants of its call where they can work on what was so placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeploy.errors import UnsupportedError, shorten
from deeploy.ir import epilogue
from deeploy.ir.kernel import Kernel
from deeploy.ir.names import Names, is_short
from deeploy.ir.nest import Geometry, Map, Nest
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.operators.views import APPEND, KEEP, POSITION, SETTLES, VIEWS, Access, Place, by_rows
from deeploy.planning.binding.dynamic import dynamic_dims, spread_axes
from deeploy.planning.binding.kernel_fusion import fuse_sums_and_norms
from deeploy.planning.binding.kernels import bound_geometry, operand_names, select_kernels
from deeploy.planning.binding.lookups import with_lookups
from deeploy.planning.binding.periods import with_first_calls, with_periods
from deeploy.planning.binding.states import (
    SlidingBuffer,
    begun_in_place,
    copy_node,
    find_sliding_buffers,
    place_over,
    settled_source,
    source_of,
    state_memory,
    state_number,
    with_copies,
)
from deeploy.planning.program import (
    Buffer,
    Call,
    DynamicLength,
    Operand,
    Program,
    Role,
    State,
    digest_values,
    overwritten_pairs,
    united_buffers,
)

MOST_INFERENCES = 2**31 - 2  # of a sequence, where no state grows


@dataclass(frozen=True)
class _Follow:
    """``tensor`` lies inside ``source``, at the place that ``place`` computes; it ``slides`` back along an axis with every row."""

    source: Tensor
    tensor: Tensor
    place: Place
    slides: int | None = None


def assemble_program(name: str, graph: Graph, kernels: Sequence[Kernel], off: Sequence[Kernel] = ()) -> Program:
    """Bind every node of ``graph`` to its kernels and every tensor to a buffer; ``off`` are kernels that are not to be used.

    Raises:
        UnsupportedError: nodes without a kernel, all in one error.
    """
    nodes = fuse_sums_and_norms(with_lookups(graph.nodes, {t.name for t in graph.outputs}, kernels), kernels)
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    computed = [node for node in nodes if node.op not in VIEWS and node.op != KEEP]
    selected = iter(select_kernels(kernels, computed, off))
    bindings = {id(node): next(selected) for node in computed}
    dynamic = spread_axes(
        [node for node in nodes if node.op != KEEP], lambda node: _declared_nest(bindings.get(id(node), (None,))[0], node)
    )
    grown, state_writes = [[node for node in nodes if node.op == op] for op in (APPEND, KEEP)]
    state_writes.sort(key=state_number)
    whole = [state_memory(node) for node in state_writes]  # read where a state lies, until it is written anew
    states = [*(node.outputs[0] for node in grown), *whole]
    nodes, outputs = _own_outputs([node for node in nodes if node.op != KEEP], [*inputs, *states], outputs)
    sliding = find_sliding_buffers(nodes, state_writes, outputs, graph.periods)
    begun = {first: state for first, state in begun_in_place(nodes, state_writes, outputs).items() if state not in sliding}
    nodes = with_copies(nodes, [node for node in state_writes if source_of(node) not in begun], begun)
    steps, placed, roots = _place_backwards(nodes, [*inputs, *states, *begun], outputs, list(sliding.values()))
    placed |= {first.name: Operand(state.name, Access.dense(state.shape)) for first, state in begun.items()}
    for node, state in zip(state_writes, whole, strict=True):
        buffer = sliding.get(state)
        placed[node.outputs[0].name] = Operand(state.name, Access.dense(state.shape)) if buffer is None else buffer.first
        roots[state.name] = state if buffer is None else buffer.memory
    assembler = _Assembler(name, (kernels, off), bindings, placed, roots, dynamic)
    for state in states:
        assembler.owner(roots.get(state.name, state), Role.STATE)
    for state in whole:
        place = sliding[state].old if state in sliding else Operand(state.name, Access.dense(state.shape))
        assembler.where[state.name] = replace(place, buffer=assembler.owners[state.name])
    program = with_first_calls(assembler.run(steps, inputs, outputs, grown, state_writes))
    if not graph.periods and not sliding:
        return program
    written = {assembler.owners[own.name]: graph.periods.get(t.name, 1) for own, t in zip(outputs, graph.outputs, strict=True)}
    written |= {assembler.owners[s.name]: graph.periods.get(node.outputs[0].name, 1) for node, s in zip(state_writes, whole, strict=True)}
    turns = {node.outputs[0].name: sliding[s].turns for node, s in zip(state_writes, whole, strict=True) if s in sliding}
    return with_periods(program, written, turns)


def _declared_nest(kernel: Kernel | None, node: Node) -> tuple[tuple[str, ...], Nest] | None:
    """The operand names and the nest of a node's kernel."""
    names = operand_names(kernel, node) if kernel is not None else None
    if kernel is None or names is None:
        return None
    nest = kernel.nest(node)
    reads = {**nest.reads, **epilogue.stage_maps(node.epilogue, next(iter(nest.writes.values()), Map()))}
    return (*names, *kernel.outputs), replace(nest, reads=reads)


def _own_outputs(nodes: list[Node], inputs: list[Tensor], outputs: list[Tensor]) -> tuple[list[Node], list[Tensor]]:
    """Copy outputs that are inputs, constants, or the same tensor twice, so that each one owns its buffer."""
    taken = {t.name for t in inputs}
    nodes, result = list(nodes), list[Tensor]()
    for tensor in outputs:
        if tensor.name in taken or tensor.data is not None:
            own = Tensor(f"{tensor.name} (output {len(result)})", tensor.shape, tensor.dtype)
            nodes.append(copy_node(tensor, own))
            tensor = own
        taken.add(tensor.name)
        result.append(tensor)
    return nodes, result


def _place_backwards(
    nodes: list[Node], inputs: list[Tensor], outputs: list[Tensor], sliding: Sequence[SlidingBuffer]
) -> tuple[list[Node | _Follow], dict[str, Operand], dict[str, Tensor]]:
    """Place the parts of containers; return what is left to do in order, the places found, and the containers by name."""
    placed = {t.name: Operand(t.name, Access.dense(t.shape)) for t in outputs} | {buffer.columns.name: buffer.every for buffer in sliding}
    roots = {t.name: t for t in (*outputs, *(buffer.memory for buffer in sliding))}
    callers = {t.name for t in inputs}
    steps: list[Node | _Follow] = []
    readers = Counter(tensor for node in nodes for tensor in node.operands)

    def free(tensor: Tensor) -> bool:
        return tensor.data is None and tensor.name not in callers and tensor.name not in placed

    for node in reversed(nodes):
        if node.op not in VIEWS:
            source = settled_source(node, readers)
            steps += [node] if source is None or not free(source) else place_over(node, source, placed, roots)
            continue
        view = VIEWS[node.op](node)
        sides = {"in": node.inputs, "out": node.outputs}
        container = sides[view.container[0]][view.container[1]]
        assert container is not None
        if view.container[0] == "out":
            if container.name not in placed:
                access = Access.dense(container.shape) if view.grows is None else by_rows(container.shape, view.grows)
                placed[container.name] = Operand(container.name, access)
                roots[container.name] = container
            base = placed[container.name]
            step = base.step if view.grows is None else base.access.strides[view.grows]
            for (side, position), place in view.parts:
                part, inside = sides[side][position], place(base.access)
                assert part is not None and inside is not None
                if part.elements == 0:
                    continue
                if not free(part):
                    own = Tensor(f"{part.name} (in {container.name}, {position})", part.shape, part.dtype)
                    steps.append(copy_node(part, own))
                    part = own
                placed[part.name] = replace(base, access=inside, step=step)
            continue
        for (side, position), place in view.parts:
            part = sides[side][position]
            assert part is not None
            if part.name not in placed:
                steps.append(_Follow(container, part, place, view.slides))
                continue
            target = placed[part.name]
            whole = view.inverse(target.access) if view.inverse is not None and free(container) else None
            if whole is not None:
                placed[container.name] = replace(target, access=whole)
            else:
                alias = Tensor(f"{part.name} (view)", part.shape, part.dtype)
                steps.append(copy_node(alias, part))
                steps.append(_Follow(container, alias, place, view.slides))
    steps.reverse()
    return steps, placed, roots


class _Assembler:
    """Walks the steps forwards and collects buffers and calls."""

    def __init__(
        self,
        name: str,
        kernels: tuple[Sequence[Kernel], Sequence[Kernel]],
        bindings: dict[int, tuple[Kernel, ...]],
        placed: dict[str, Operand],
        roots: dict[str, Tensor],
        dynamic: Mapping[str, frozenset[int]],
    ) -> None:
        self.name = name
        self.kernels = kernels  # those to choose from, and those not to be used
        self.bindings = bindings
        self.placed = placed
        self.roots = roots
        self.dynamic = dynamic
        self.names = Names()
        self.buffers: dict[str, Buffer] = {}
        self.owners: dict[str, str] = {}  # root tensor -> its buffer
        self.where: dict[str, Operand] = {}
        self.dense: dict[str, Tensor] = {}  # tensor -> dense copy of it
        self.constants: dict[tuple[str, str, tuple[int, ...], bytes], str] = {}
        self.calls: list[Call] = []
        self.others: list[tuple[Kernel, ...]] = []  # per call the kernels that may replace its own

    def run(
        self, steps: list[Node | _Follow], inputs: list[Tensor], outputs: list[Tensor], appends: list[Node], state_writes: list[Node]
    ) -> Program:
        for tensor in inputs:
            self.where[tensor.name] = Operand(self.owner(tensor, Role.INPUT), Access.dense(tensor.shape))
        for tensor in outputs:
            self.owner(tensor, Role.OUTPUT)
        for step in steps:
            if isinstance(step, _Follow):
                self._follow(step)
            elif any(t.elements for t in step.outputs or step.inputs if t is not None):
                self._call(step)
        program = Program(
            self.name,
            self.buffers,
            tuple(self.calls),
            tuple(self.owners[t.name] for t in inputs if t.name != POSITION),
            tuple(self.owners[t.name] for t in outputs),
            self.where,
            self._find_dynamic_length(appends, state_writes),
            self.dynamic,
        )
        shared = united_buffers(program)
        calls = []
        for number, (call, kernels) in enumerate(zip(self.calls, self.others, strict=True)):
            variants = [self._alternative(program, call, kernel, shared.get(number)) for kernel in kernels]
            calls.append(tuple(variant for variant in variants if variant is not None))
        return replace(program, further=tuple(calls))

    def _find_dynamic_length(self, appends: list[Node], state_writes: list[Node]) -> DynamicLength | None:
        """What outlives an inference, where something does; all states that grow have equally many rows (``deeploy.frontend.states``)."""
        if not appends and not state_writes:
            return None
        states, context, count = [], MOST_INFERENCES, 1
        for node in state_writes:
            state = state_memory(node)
            pair, has_value = (node.attrs["past"], node.attrs["present"]), bool(node.attrs.get("has_value"))
            states.append(State(*pair, self.owners[state.name], state.shape, None, has_value=has_value))
        for node in sorted(appends, key=state_number):
            state, rows, axis = node.outputs[0], node.inputs[0], int(node.attrs["axis"])
            assert rows is not None
            context, count = state.shape[axis], rows.shape[axis]
            step = node.attrs.get("scale"), node.attrs.get("zero_point")
            states.append(State(node.attrs["past"], node.attrs["present"], self.owners[state.name], state.shape, axis, *step))
        begins = any(node.attrs.get("begins") for node in appends)
        return DynamicLength(context, count, tuple(states), self.owners.get(POSITION), begins)

    def owner(self, root: Tensor, role: Role, writer: tuple[str, str] = ("", "")) -> str:
        """The buffer of a root tensor, created at first use; ``writer`` are a node and one of its operands."""
        if root.name not in self.owners:
            name = self._named(root, writer)
            self.owners[root.name] = name
            self.buffers[name] = Buffer(name, root.name, role, root.dtype, root.shape)
        return self.owners[root.name]

    def _named(self, tensor: Tensor, user: tuple[str, str]) -> str:
        """A name for a buffer: the tensor's own, or where that is too long the one of a layer that uses it, and of the operand."""
        return self.names.unique(*user if user[0] and not is_short(tensor.name) else (tensor.name, ""))

    def _constant(self, tensor: Tensor, form: tuple[np.ndarray, DType], memory: str = "", reader: tuple[str, str] = ("", "")) -> str:
        """The buffer of a constant as it is stored, created at first use; ``reader`` are a node and one of its operands."""
        stored, dtype = form
        key = (memory, dtype.value, stored.shape if stored.size > 1 else (stored.size,), digest_values(stored))  # numbers have no axes
        if key not in self.constants:
            name = self._named(tensor, reader)
            self.buffers[name] = Buffer(name, tensor.name, Role.CONSTANT, dtype, stored.shape, stored, memory)
            self.constants[key] = name
        return self.constants[key]

    def _locate(self, tensor: Tensor) -> Operand:
        if tensor.data is not None and tensor.name not in self.where:
            return Operand(self._constant(tensor, (tensor.data, tensor.dtype)), Access.dense(tensor.shape))
        if tensor.name not in self.where and tensor.name in self.placed:
            return self._output(tensor)  # a container, whose parts were written one by one
        if tensor.elements == 0 and tensor.name not in self.where:
            return self._output(tensor)  # nobody writes it, since there is nothing to write
        return self.where[tensor.name]

    def _follow(self, step: _Follow) -> None:
        source = self._locate(step.source)
        access = step.place(source.access)
        if access is None:
            source = self._locate(self._dense_copy(step.source))
            access = step.place(source.access)
            assert access is not None, "every view of a dense container can be expressed"
        back = source.access.strides[step.slides] if step.slides is not None else 0
        self.where[step.tensor.name] = replace(source, access=access, step=source.step - back)

    def _dense_copy(self, tensor: Tensor) -> Tensor:
        """A densely stored copy of ``tensor``, shared by all who need one."""
        if tensor.name not in self.dense:
            copy = Tensor(f"{tensor.name} (dense)", tensor.shape, tensor.dtype)
            self.dense[tensor.name] = copy
            self._call(copy_node(tensor, copy))
        return self.dense[tensor.name]

    def _output(self, tensor: Tensor, writer: tuple[str, str] = ("", "")) -> Operand:
        place = self.placed.get(tensor.name, Operand(tensor.name, Access.dense(tensor.shape)))
        root = self.roots.get(place.buffer)
        name = self.owner(tensor, Role.LOCAL, writer) if root is None else self.owner(root, Role.LOCAL)
        return replace(place, buffer=name)

    def _call(self, node: Node) -> None:
        kernel, *others = self.bindings.get(id(node)) or select_kernels(self.kernels[0], [node], self.kernels[1])[0]
        names = operand_names(kernel, node)
        assert names is not None
        operands: dict[str, Operand] = {}
        stored: dict[str, np.ndarray] = {}
        for name, tensor in zip(names, node.inputs, strict=True):
            if tensor is None:
                continue
            if tensor.data is not None:
                form = kernel.stored(name, tensor, node)
                if form is None:
                    continue
                stored[name] = form[0]
                buffer = self._constant(tensor, form, kernel.resident.get(name, ""), (node.name, name))
                operands[name] = Operand(buffer, Access.dense(form[0].shape))
            else:
                operands[name] = self._readable(kernel, name, tensor)
        copies: list[Node] = []
        for name, tensor in zip(kernel.outputs, node.outputs, strict=True):
            place = self._output(tensor, (node.name, name))
            self.where[tensor.name] = place
            if not _kernel_follows(kernel, name, place.access):
                own = Tensor(f"{tensor.name} (before copy)", tensor.shape, tensor.dtype)
                copies.append(copy_node(own, tensor))
                place = self._output(own, (node.name, name))
                self.where[own.name] = place
            operands[name] = place
        try:
            geometry = bound_geometry(kernel, node, stored)
        except ValueError as error:
            raise UnsupportedError(
                f"node {shorten(node.name)} ({node.op}) does not fit the loop nest of kernel {kernel.name}: {error}",
                "Check the shapes of the node's operands, or the kernel's declaration.",
            ) from error
        if 0 in geometry.extents.values():
            raise UnsupportedError(
                f"node {shorten(node.name)} ({node.op}) computes from no element",
                "Check the shapes of its operands, or give the model its result as a constant.",
            )
        geometry, loose = self._grown(kernel, node, names, geometry)
        if loose is not None:
            raise UnsupportedError(
                f"node {shorten(node.name)} ({node.op}): kernel {kernel.name} wants the rows of {shorten(loose.name)} packed, "
                "whose number changes",
                "Give the target a kernel that takes any strides (Kernel.strided), or compile with a fixed length (--dim).",
            )
        call = self.names.unique(node.name)
        is_settled = SETTLES in node.attrs and operands[names[1]] == operands[kernel.outputs[0]]
        first = node.attrs[SETTLES] if is_settled else None
        self.calls.append(Call(node, kernel, geometry, operands, call, self._scratch(call, node, kernel, geometry), first=first))
        self.others.append(tuple(others))
        for copy in copies:
            self._call(copy)

    def _alternative(self, program: Program, call: Call, kernel: Kernel, shared: tuple[str, str] | None) -> Call | None:
        """The call by another kernel; None where that cannot work on the operands as they were placed.

        Args:
            shared: the buffers of which the call writes the first over the second.
        """
        node = call.node
        names = operand_names(kernel, node)
        own = operand_names(call.kernel, node)
        assert names is not None and own is not None
        places = [call.operands.get(name) for name in (*own, *call.kernel.outputs)]
        operands = list(zip((*names, *kernel.outputs), (*node.inputs, *node.outputs), places, strict=True))
        moving = {name: place for name, tensor, place in operands if place is not None and (tensor is None or tensor.data is None)}
        if not all(_kernel_follows(kernel, name, place.access) for name, place in moving.items()):
            return None
        forms = {name: kernel.stored(name, t, node) for name, t, _ in operands if t is not None and t.data is not None}
        stored = {name: form for name, form in forms.items() if form is not None}
        try:
            bound = bound_geometry(kernel, node, {name: array for name, (array, _) in stored.items()})
            geometry, loose = self._grown(kernel, node, names, bound)
        except ValueError:
            return None
        variant = Call(node, kernel, geometry, moving, call.name, {})
        if loose is not None or (shared is not None and shared not in overwritten_pairs(program, variant)):
            return None
        every: dict[str, Operand] = {}
        for name, tensor, _ in operands:
            if tensor is not None and name in stored:
                place = self._constant(tensor, stored[name], kernel.resident.get(name, ""))
                every[name] = Operand(place, Access.dense(stored[name][0].shape))
            elif name in moving:
                every[name] = moving[name]
        return replace(variant, operands=every, scratch=self._scratch(call.name, node, kernel, geometry))

    def _grown(self, kernel: Kernel, node: Node, names: Sequence[str], geometry: Geometry) -> tuple[Geometry, Tensor | None]:
        """The geometry with the dimensions that only run over rows that exist, and a tensor that the kernel wants packed but is not.

        Rows that exist are fewer than there is room for: axes that a kernel wants packed cannot lie around a dynamic one.
        """
        operands, tensors = (*names, *kernel.outputs), (*node.inputs, *node.outputs)
        geometry = replace(geometry, dynamic=geometry.dynamic | dynamic_dims(operands, tensors, geometry.nest, self.dynamic))
        for name, tensor in zip(operands, tensors, strict=True):
            axes = self.dynamic.get(tensor.name, frozenset()) if tensor is not None else frozenset()
            rank = len(tensor.shape) if tensor is not None else 0
            outermost = rank - kernel.dense(name, rank)
            if tensor is not None and any(tensor.shape[a] > 1 for axis in axes for a in range(outermost, axis)):
                return geometry, tensor
        return geometry, None

    def _scratch(self, call: str, node: Node, kernel: Kernel, geometry: Geometry) -> dict[str, str]:
        """Buffers of a call's scratch memory, for all of it as one tile, by the kernel's names for it."""
        result = {}
        for key, size in kernel.scratch.items():
            unique = self.names.unique(call, key)
            self.buffers[unique] = Buffer(unique, f"{call}_{key}", Role.SCRATCH, DType.UINT8, (int(size.total(node, geometry.extents)),))
            result[key] = unique
        return result

    def _readable(self, kernel: Kernel, name: str, tensor: Tensor) -> Operand:
        place = self._locate(tensor)
        if _kernel_follows(kernel, name, place.access):
            return place
        return self._locate(self._dense_copy(tensor))


def _kernel_follows(kernel: Kernel, operand: str, access: Access) -> bool:
    """Whether the kernel can step over the operand as it lies."""
    return access.dense_axes() >= kernel.dense(operand, len(access.shape))
