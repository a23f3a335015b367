"""Layers of a schedule as C: a function for each procedure, one for what every core computes, and one for the first core.

Named parts of expressions become constants, each where it is first needed, and only those that something mentions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mako.lookup import TemplateLookup

from deeploy.backend import calls as c
from deeploy.graph.expr import Named, Value, Variable
from deeploy.graph.mentions import Mentions, mentions
from deeploy.graph.types import DType
from deeploy.midend.program import Buffer, Program
from deeploy.schedule.ir import TILE, Address, Compute, Condition, Do, Finish, Guard, Layer, Loop, Move, Node, Schedule, Token, Wait

PURPOSES = {"in": "IN", "out": "OUT", "early": "EARLY"}


def macro(name: str) -> str:
    """The enumerator that holds the offset of a buffer or window."""
    return f"AT_{name.upper().replace('.', '__').replace('@', '__')}"


@dataclass(frozen=True)
class Outside:
    """What lies in no arena, as C: a pointer, or the address of something that only transfers reach."""

    text: str
    is_pointer: bool = True


@dataclass(frozen=True)
class Printer:
    """Prints the layers of one network.

    Attributes:
        schedule: of the network, and ``program`` what it was built from.
        outside: what lies in no arena, by its block.
        engine_levels: the memory of every engine.
        is_flat: there is one memory, and no runtime that has to know of it.
        instances: the kernel instances of the project, to which those of the network are added.
        project: what their names begin with.
    """

    schedule: Schedule
    program: Program
    outside: Mapping[str, Outside]
    engine_levels: Mapping[str, str]
    is_flat: bool
    lookup: TemplateLookup
    instances: dict[str, c.Instance]
    project: str

    def layer(self, step: int) -> str:
        """The functions of one call, under a comment that says what it is."""
        layer = self.schedule.layers[step]
        tile = f"int32_t {TILE}" if layer.tiling.tiles > 1 else "void"
        lines = [f"/* {line} */" for line in c.header(layer.call)]
        for name, body in layer.procedures.items():
            with mentions() as noted:
                statements = self._statements(layer, body)
            parameter = "void" if name == "early" else tile
            unused = [] if parameter == "void" or TILE in noted.names() else [f"(void){TILE};"]
            lines += [f"static void {name}_{layer.call.name}({parameter}) {{", *_indented(unused + statements), "}"]
        if _is_forked(layer):
            lines += [f"static void body_{layer.call.name}(void *argument) {{", *_indented(self._body(layer)), "}"]
        kind = "static void" if self.is_flat else "TILED_LAYER"
        lines += [f"{kind} layer_{layer.call.name}(void) {{", *([] if self.is_flat else [f"    RT_STEP(blocks, BLOCKS, {step});"])]
        return "\n".join([*lines, *_indented(self._statements(layer, layer.body)), "}", ""])

    def initialise(self) -> list[str]:
        """What is done before the first inference."""
        return [line for node in self.schedule.initialise for line in self._statement(None, node)]

    # ---- statements

    def _statements(self, layer: Layer | None, nodes: Sequence[Node]) -> list[str]:
        return [line for node in nodes for line in self._statement(layer, node)]

    def _statement(self, layer: Layer | None, node: Node) -> list[str]:
        if isinstance(node, Move):
            return self._move(node)
        if isinstance(node, Wait):
            return [f"rt_wait(DMA_{node.token.path}, {_ticket(node.token)});"]
        if isinstance(node, Do):
            called = self.schedule.layers[node.step]
            has_tile = called.tiling.tiles > 1 and node.procedure != "early"
            return [f"{node.procedure}_{called.call.name}({node.tile if has_tile else ''});"]
        if isinstance(node, Guard):
            inner = self._statements(layer, node.body)
            condition = " && ".join(map(_condition, node.conditions))
            if len(inner) > 1 and inner[0] == "{":
                return [f"if ({condition}) {{", *inner[1:]]
            return [f"if ({condition}) {inner[0]}"] if len(inner) == 1 else [f"if ({condition}) {{", *_indented(inner), "}"]
        if isinstance(node, Loop):
            head = f"for (int32_t {node.variable} = 0; {node.variable} < {node.trips}; {node.variable}++) {{"
            return [head, *_indented(self._statements(layer, node.body)), "}"]
        if isinstance(node, Finish):
            return [f"rt_job_wait(ACCELERATOR_{node.accelerator});"]
        assert isinstance(node, Compute) and layer is not None
        if not _is_forked(layer):
            return self._body(layer) if layer.body == (node,) else ["{", *_indented(self._body(layer)), "}"]
        if layer.tiling.tiles == 1:
            return [f"rt_fork({layer.work.cores}, body_{layer.call.name}, 0);"]
        closure = f"{self.engine_levels[layer.call.kernel.engine].lower()} + {macro(layer.call.name + '.closure')}"
        return [f"team({layer.work.cores}, body_{layer.call.name}, {closure}, {node.tile});"]

    def _address(self, address: Address) -> str:
        if address.level:
            base = f"{address.level.lower()} + {macro(address.block)}"
        else:
            outside = self.outside[address.block]
            base = f"(rt_address){outside.text}" if outside.is_pointer else outside.text
        if isinstance(address.offset, int):
            sign = "-" if address.offset < 0 else "+"
            return f"{base} {sign} {abs(address.offset)}" if address.offset else base
        return f"{base} + (rt_address)({address.offset})"

    def _move(self, move: Move) -> list[str]:
        """The call that moves a box; most are one run or rows of them."""
        verb = "rt_store" if move.is_store else "rt_fetch"
        with mentions() as noted:
            how = f"DMA_{move.token.path}, {_ticket(move.token)}, {self._address(move.near)}, {self._address(move.far)}"
            box = move.box
            if not box.axes:
                text = f"{verb}_run({how}, {_unsigned(box.run)});"
            elif len(box.axes) == 1:
                text = f"{verb}_rows({how}, {_unsigned(box.run)}, {_unsigned(box.axes[0].count)}, {_unsigned(box.axes[0].pitch)});"
            else:
                near, far = self._address(move.near), self._address(move.far)
                fields = [f".near = {near}", f".far = {far}", f".bytes = {_unsigned(box.run)}", f".axes = {len(box.axes)}"]
                fields += [f".{name} = {{{', '.join(_unsigned(getattr(axis, name)) for axis in box.axes)}}}" for name in ("count", "pitch")]
                text = f"{verb}(DMA_{move.token.path}, {_ticket(move.token)}, &(struct rt_box){{{', '.join(fields)}}});"
        declared = declarations(noted.parts())
        return ["{", *_indented([*declared, text]), "}"] if declared else [text]

    # ---- what a core computes

    def _body(self, layer: Layer) -> list[str]:
        """All that a core does for a tile: where it lies, where its operands are, and the call of the kernel"""
        call, work = layer.call, layer.work
        stored = {name: self._dtype(call.operands[name].buffer) for name in call.operands}
        function = c.called(call, stored, self.instances, self.project)
        views: dict[str, c.View | None] = {name.rstrip("?"): None for name in call.kernel.inputs}
        views |= {n: c.view(call, n, stored[n], operand.axes, operand.strides) for n, operand in work.operands.items()}
        level = self.engine_levels[call.kernel.engine].lower()
        scratch = c.pieces(call, layer.tiling.sizes, {key: f"{level} + {macro(name)}" for key, name in call.scratch.items()})
        extent: dict[str, Value] = {**call.geometry.extents}
        extent |= {dim: work.parts[dim][1] for dim in call.geometry.limited if dim in work.parts}
        with mentions() as first:
            empty = [f"if ({count} <= 0) return;" for count in work.empty]
        with mentions() as noted:
            text = c.render(call, function, views, scratch, extent, self.lookup, c.message_number(self.program, layer.step))
            pointers = [self._pointer(layer, name) for name in _printed(noted, work.operands)]
        lines = declarations(first.parts()) + empty
        lines += declarations(part for part in noted.parts() if part not in first.parts()) + pointers + text.splitlines()
        if not _is_forked(layer):
            return lines
        is_tiled = TILE in first.names() | noted.names()
        return [f"const int32_t {TILE} = *(const int32_t *)argument;" if is_tiled else "(void)argument;", *lines]

    def _dtype(self, buffer: str) -> DType:
        found: Buffer = self.program.buffers[buffer]
        return found.dtype

    def _pointer(self, layer: Layer, name: str) -> str:
        operand = layer.work.operands[name]
        const = "" if name in layer.call.writes else "const "
        kind = f"{const}{self._dtype(layer.call.operands[name].buffer).c} *"
        outside = self.outside.get(operand.address.block) if not operand.address.level else None
        begin = f"({kind})({self._address(operand.address)})"
        if outside is not None and outside.is_pointer:  # C converts one of unknown type, but does not add to it
            begin = outside.text if operand.element == 0 else f"({kind}){outside.text}"
        return f"{kind}const {name} = {begin};" if operand.element == 0 else f"{kind}const {name} = {begin} + ({operand.element});"


def _is_forked(layer: Layer) -> bool:
    """Whether what cores compute is a function: for a team, for several tiles, or where it may have nothing to do."""
    return layer.work.cores > 1 or layer.tiling.tiles > 1 or bool(layer.work.empty)


def _printed(noted: Mentions, operands: Iterable[str]) -> list[str]:
    names = noted.names()
    return [name for name in operands if name in names]


def _ticket(token: Token) -> str:
    return PURPOSES.get(token.purpose, str(token.ticket))


def _condition(condition: Condition) -> str:
    if condition.relation == "!=" and condition.right == 0:
        return str(condition.left)
    return str(condition)


def _unsigned(value: Value) -> str:
    if isinstance(value, int):
        return str(value)
    terms = value.affine().terms
    is_name = len(terms) == 1 and value == terms[0][0] and isinstance(terms[0][0], Named | Variable)
    return f"(uint32_t){value}" if is_name else f"(uint32_t)({value})"


def declarations(parts: Iterable[Named]) -> list[str]:
    """The C constants that named parts of expressions become."""
    return [f"const int32_t {part.name} = {part.value};" for part in parts]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" if line.strip() else "" for line in lines]
