"""Layers of a schedule as C: a function for each procedure, one for what a core computes in a tile, and one for the whole call.

All cores of a team run the functions of the calls of a section, in which the first core alone moves and waits.

Named parts of expressions become constants, each where it is first needed, and only those that something mentions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deeploy.backend import calls as c
from deeploy.backend.comments import comment_layer
from deeploy.backend.contracts import ReachedOperand, print_contract
from deeploy.backend.instance import SELF, load_fields
from deeploy.ir import interface
from deeploy.ir.expr import Named, Value, Variable
from deeploy.ir.kernel import SUMS
from deeploy.ir.mentions import Mentions, mentions
from deeploy.ir.target import Target
from deeploy.ir.templates import TemplateLookup
from deeploy.ir.types import DType
from deeploy.planning.program import Buffer, Program
from deeploy.schedule.ir import (
    CORE,
    TILE,
    Address,
    Barrier,
    Compute,
    Condition,
    Do,
    Finish,
    Guard,
    Layer,
    Loop,
    Move,
    Node,
    PostProcess,
    Schedule,
    ShiftRows,
    Token,
    Wait,
    merge_guards,
)
from deeploy.schedule.team import is_shared

FIRST = f"{CORE} == 0"  # whether the calling core is the first of its team
_CALL = re.compile(r"(\w+)\(&\((struct \w+)\)(\{.*\})\);", re.DOTALL)  # a kernel with its argument


def offset_macro(name: str) -> str:
    """The enumerator that holds the offset of a buffer or window."""
    return f"AT_{name.upper().replace('.', '__').replace('@', '__')}"


@dataclass(frozen=True)
class Text:
    """C that is printed later: what it mentions is noted then."""

    parts: tuple[Variable | str, ...]

    def __str__(self) -> str:
        return "".join(map(str, self.parts))


@dataclass(frozen=True)
class Outside(Text):
    """What lies in no arena, as C: a pointer, or the address of something that only transfers reach."""

    is_pointer: bool = True


@dataclass(frozen=True)
class Printer:
    """Prints the layers of one network.

    Attributes:
        schedule: of the network, and ``program`` what it was built from.
        outside: what lies in no arena, by its block.
        places: where buffers lie, in words.
        target: that the network was planned for.
        instances: the kernel instances of the project, to which those of the network are added.
        project: what their names begin with.
        has_contracts: whether layers of one tile have contracts in ACSL.
    """

    schedule: Schedule
    program: Program
    outside: Mapping[str, Outside]
    places: Mapping[str, str]
    target: Target
    lookup: TemplateLookup
    instances: dict[str, interface.Instance]
    project: str
    has_contracts: bool = False

    def layer(self, step: int) -> str:
        """The functions of one call, under a comment that says what it is; the last call of a fused group runs all of them."""
        layer = self.schedule.layers[step]
        types = {operand.buffer: self._dtype(operand.buffer) for operand in layer.call.operands.values()}
        lines = comment_layer(layer, self.target, self.places, types, self._windows(layer))
        for name, body in layer.procedures.items():
            if self._is_inline(layer, name):
                continue
            with mentions() as noted:
                statements = self._statements(layer, body)
            lines += self._function(f"static void {name}_{layer.call.name}", noted, statements, _has_tile(layer, name))
        for number, name in enumerate(["body", "outputs"][: 1 + bool(layer.team)]):
            if number or _is_function(layer):
                with mentions() as noted:
                    statements = self._body(layer, number)
                lines += self._function(f"static void {name}_{layer.call.name}", noted, statements, layer.tiling.tiles > 1)
        if layer.team and layer.cores == 1:
            lines += _print_fork(layer)
        if not layer.body:
            return "\n".join([*lines, ""])
        with mentions() as noted:
            statements = self._team_statements(layer) if layer.cores > 1 else [*self._step(layer), *self._statements(layer, layer.body)]
        lines += self._contract(layer) if self.has_contracts else []
        kind = "static void" if self.target.is_flat else "TILED_LAYER"
        return "\n".join([*lines, *self._function(f"{kind} layer_{layer.call.name}", noted, statements), ""])

    def _contract(self, layer: Layer) -> list[str]:
        """The contract of the function of a layer, where that computes one call in one tile."""
        if layer.procedures or layer.tiling.tiles > 1:
            return []
        reached = []
        for name, view in layer.work.operands.items():
            kind = f"{self._dtype(layer.call.operands[name].buffer).c} *"
            outside = self.outside[view.address.block] if not view.address.level else None
            if outside is None or SELF in outside.parts:
                address = self._address(view.address) if outside is None else str(outside)
                is_written = name in layer.call.writes
                pointer = f"({kind if is_written else f'const {kind}'})({address})"
                reached.append(ReachedOperand(pointer, view, is_written))
        return print_contract(reached)

    def _step(self, layer: Layer) -> list[str]:
        """What announces the call to the model of the machine, where there is one."""
        when = "_AT_BARRIER" if layer.begins_at_barrier else ""
        return [] if self.target.is_flat else [f"RT_STEP{when}(blocks, BLOCKS, {layer.step});"]

    def _function(self, head: str, noted: Mentions, statements: list[str], has_tile: bool = False) -> list[str]:
        """A function that gets an instance, and perhaps the number of a tile."""
        loaded = load_fields(noted.names())
        unused = [] if loaded or SELF.name in noted.names() else [f"(void){SELF};"]
        unused += [f"(void){TILE};"] if has_tile and TILE not in noted.names() else []
        parameters = f"instance *{SELF}" + f", int32_t {TILE}" * has_tile
        return [f"{head}({parameters}) {{", *_indent_lines([*unused, *loaded, *statements]), "}"]

    def _is_inline(self, layer: Layer, procedure: str) -> bool:
        """Whether a procedure is no function: the layer runs it once, and names no part of an expression in it."""
        is_once = layer.tiling.tiles == 1 and procedure not in ("early", "tile")
        return is_once and not any(self._parts(node) for node in layer.procedures[procedure])

    def initialise(self) -> list[str]:
        """What is done before the first inference."""
        return self._statements(None, self.schedule.initialise)

    # ---- statements

    def _team_statements(self, layer: Layer) -> list[str]:
        """What a team runs: the first core alone does what is not for all."""
        return self._shared(layer, layer.body, self._step(layer))

    def _shared(self, layer: Layer, nodes: Sequence[Node], begun: Sequence[str] = ()) -> list[str]:
        lines: list[str] = []
        alone, statements = list[Node](), list(begun)
        for node in [*nodes, None]:
            if node is not None and not is_shared(node, self.schedule.layers):
                alone.append(node)
                continue
            statements += self._statements(layer, alone)
            lines += _print_block(f"if ({FIRST})", statements)
            alone, statements = [], []
            if isinstance(node, Loop):
                lines += [f"{_print_loop(node)} {{", *_indent_lines(self._shared(layer, node.body)), "}"]
            elif isinstance(node, Guard):
                lines += _print_block(f"if ({_print_conditions(node)})", self._shared(layer, node.body))
            elif node is not None:
                lines += self._statement(layer, node, {})
        return lines

    def _statements(self, layer: Layer | None, nodes: Sequence[Node], declared: Mapping[str, str] | None = None) -> list[str]:
        """Statements in order; a part of expressions is declared in front of the first one that needs it, unless a block has it to itself.

        Where a name has another value than around, the statement is a block that declares all of its parts.

        Args:
            declared: the values of the parts that are around, as C, by name.
        """
        lines: list[str] = []
        known = dict(declared or {})
        together = merge_guards(nodes)
        needed = [self._parts(node) for node in together]
        for number, (node, parts) in enumerate(zip(together, needed, strict=True)):
            is_block = isinstance(node, Guard | Loop)
            is_other = any(known.get(name, value) != value for name, value in parts.items())
            shared = {name for later in needed[number + 1 :] for name in later} if is_block else set(parts)
            here = {name: value for name, value in parts.items() if name in shared and name not in known and not is_other}
            known |= here
            statement = self._statement(layer, node, known)
            if is_other and not is_block:
                statement = ["{", *_indent_lines([*_declare_constants(parts), *statement]), "}"]
            lines += [*_declare_constants(here), *statement]
        return lines

    def _parts(self, node: Node) -> dict[str, str]:
        """The named parts that moves mention: their values as C, by name."""
        if isinstance(node, Guard | Loop):
            return {name: value for inner in node.body for name, value in self._parts(inner).items()}
        with mentions() as noted:
            if isinstance(node, Move):
                self._move(node, None)
            elif isinstance(node, ShiftRows):
                self._slide(node, 1)
        return {part.name: str(part.value) for part in noted.parts()}

    def _statement(self, layer: Layer | None, node: Node, declared: Mapping[str, str]) -> list[str]:
        if isinstance(node, Move):
            return [self._move(node, None if layer is None else node.owner)]
        if isinstance(node, ShiftRows):
            return [self._slide(node, layer.cores if layer is not None else 1)]
        if isinstance(node, Wait):
            step = node.step if node.step is not None or layer is None else layer.step
            return [f"rt_wait(DMA_{node.token.path}, {self._ticket(node.token, step)});"]
        if isinstance(node, Do):
            called = self.schedule.layers[node.step]
            if self._is_inline(called, node.procedure):
                return self._statements(called, called.procedures[node.procedure])
            if node.procedure == "tile":
                return [f"TILE({node.step}, {called.call.name}, {node.tile});"]
            has_tile = _has_tile(called, node.procedure)
            return [f"{node.procedure}_{called.call.name}({SELF}{f', {node.tile}' if has_tile else ''});"]
        if isinstance(node, Guard):
            return _print_block(f"if ({_print_conditions(node)})", self._statements(layer, node.body, declared))
        if isinstance(node, Loop):
            return [f"{_print_loop(node)} {{", *_indent_lines(self._statements(layer, node.body, declared)), "}"]
        if isinstance(node, Finish):
            return [f"rt_job_wait(ACCELERATOR_{node.accelerator});"]
        if isinstance(node, Barrier):
            return ["rt_barrier();"]
        assert isinstance(node, Compute | PostProcess)
        layer = self.schedule.layers[node.step]
        if isinstance(node, Compute) and not _is_function(layer):
            return self._body(layer, 0)
        what = "outputs" if isinstance(node, PostProcess) else "body"
        if isinstance(node, PostProcess) and layer.cores == 1:
            argument = f"&(struct tile){{{SELF}, {node.tile}}}" if layer.tiling.tiles > 1 else f"(void *){SELF}"
            return [f"rt_fork({layer.team}, forked_{layer.call.name}, {argument});"]
        return [f"{what}_{layer.call.name}({SELF}{f', {node.tile}' if layer.tiling.tiles > 1 else ''});"]

    def _ticket(self, token: Token, step: int | None) -> str:
        """The enumerator of a ticket, in the call of a step or, without one, before the first inference."""
        if token.purpose != "constants":
            return token.purpose.upper()
        return "ONCE" if step is None else f"FOR_{self.schedule.layers[step].call.name.upper()}"

    def tickets(self) -> dict[str, int]:
        """The enumerators of all tickets; that of whole constants is called after the layer that needs them."""
        tickets_by_token = {
            self._ticket(node.token, None): node.token.ticket for node in walk_nodes(self.schedule.initialise) if isinstance(node, Move)
        }
        for layer in self.schedule.layers:
            for node in walk_nodes([*(node for body in layer.procedures.values() for node in body), *layer.body]):
                if isinstance(node, Move):
                    tickets_by_token[self._ticket(node.token, node.owner)] = node.token.ticket
        return dict(sorted(tickets_by_token.items(), key=lambda item: (item[0].startswith("FOR_"), item[1])))

    def _address(self, address: Address) -> str:
        """An address in C: a memory, the enumerator of what lies there, and where in it."""
        if address.level:
            base = f"{SELF}->{address.level.lower()} + {offset_macro(address.block)}"
        else:
            outside = self.outside[address.block]
            base = f"(rt_address){outside}" if outside.is_pointer else str(outside)
        if isinstance(address.offset, int):
            sign = "-" if address.offset < 0 else "+"
            return f"{base} {sign} {abs(address.offset)}" if address.offset else base
        return f"{base} + (rt_address)({address.offset})"

    def _move(self, move: Move, step: int | None) -> str:
        """The call that moves a box, for the call of a step; most are one run or rows of them."""
        verb = "rt_store" if move.is_store else "rt_fetch"
        ticketed = f"DMA_{move.token.path}, {self._ticket(move.token, step)}"
        near, far, box = self._address(move.near), self._address(move.far), move.box
        if not box.axes:
            return f"{verb}_run({ticketed}, {near}, {far}, {_print_unsigned(box.run)});"
        if len(box.axes) == 1:
            rows, pitch = _print_unsigned(box.axes[0].count), _print_unsigned(box.axes[0].pitch)
            return f"{verb}_rows({ticketed}, {near}, {far}, {_print_unsigned(box.run)}, {rows}, {pitch});"
        fields = [f".near = {near}", f".far = {far}", f".bytes = {_print_unsigned(box.run)}", f".axes = {len(box.axes)}"]
        fields += [f".{name} = {{{', '.join(_print_unsigned(getattr(axis, name)) for axis in box.axes)}}}" for name in ("count", "pitch")]
        return f"{verb}({ticketed}, &(struct rt_box){{{', '.join(fields)}}});"

    def _slide(self, node: ShiftRows, cores: int) -> str:
        """The move of what stays in a line buffer; each of several cores moves a part."""
        line_buffer = self._address(node.line_buffer)
        size = _print_unsigned(node.bytes)
        if cores > 1:
            return f"slide_part((unsigned char *)({line_buffer}), {_print_factor(node.begin)}, {size}, (uint32_t){CORE}, {cores});"
        return f"memmove((void *)({line_buffer}), (const void *)({line_buffer} + {_print_factor(node.begin)}), {size});"

    # ---- what a core computes

    def _body(self, layer: Layer, number: int) -> list[str]:
        """All that a core does for a tile in a part of a call: where it lies, where its operands are, and the call of the kernel."""
        call, work = layer.call, layer.work
        stored = {name: self._dtype(call.operands[name].buffer) for name in call.operands}
        views: dict[str, interface.PrintedOperand | None] = {name.rstrip("?"): None for name in call.kernel.inputs}
        views |= {n: interface.make_view(call, n, stored[n], work.operands[n].axes, work.operands[n].strides) for n in call.operands}
        if SUMS in work.operands:
            views[SUMS] = interface.accumulated_sums(call, work.operands[SUMS].axes, work.operands[SUMS].strides)
        part = interface.call_parts(call, views, stored)[number]
        phases = interface.part_phases(part, columns_before(layer))
        level = self.target.engine(call.kernel.engine).memory.lower()
        bases = {key: Text((SELF, f"->{level} + {offset_macro(name)}")) for key, name in call.scratch.items()}
        scratch = interface.scratch_pieces(part.call, layer.tiling.sizes, bases)
        extent: dict[str, Value] = {**call.geometry.extents}
        extent |= {dim: work.parts[dim][1] for dim in call.geometry.dynamic if dim in work.parts}
        is_team = layer.cores > 1 and (bool(number) or is_shared(Compute(layer.step, 0), self.schedule.layers))
        is_divided = is_team and columns_before(layer) != 0
        meetings = is_team * (len(phases) if is_divided else 1)
        with mentions() as first:
            empty = [
                line for count in work.empty for line in _print_block(f"if ({count} <= 0)", ["rt_barrier();"] * meetings + ["return;"])
            ]
        with mentions() as noted:
            message = c.message_number(self.program, layer.step)
            texts = []
            for phase in phases:
                function = c.add_instance(phase.call, phase.stored, self.instances, self.project)
                texts.append(
                    interface.render_call(phase.call, function, phase.views, scratch, extent, self.lookup, message, layer.work.cores)
                )
            pointers = [self._pointer(layer, name) for name in _print_mentions(noted, work.operands)]
            if layer.sums is not None:
                pointers.append(f"int32_t *const {SUMS} = (int32_t *)({self._address(layer.sums)});")
        lines = declare_parts(first.parts()) + empty
        lines += declare_parts(part for part in noted.parts() if part not in first.parts()) + pointers
        return lines + ("\n".join(texts) if not is_team else _add_barriers(texts, is_divided)).splitlines()

    def _windows(self, layer: Layer) -> dict[str, list[str]]:
        """The memories in which operands have windows, from the kernel's own outwards."""
        uses_of_windows: dict[str, list[str]] = {}
        for path in self.target.outward(self.target.engine(layer.call.kernel.engine).memory):
            for stream in layer.tiling.streams:
                if stream.path == path.name:
                    uses_of_windows.setdefault(stream.operand, []).append(path.near)
        return uses_of_windows

    def _dtype(self, buffer: str) -> DType:
        stored_buffer: Buffer = self.program.buffers[buffer]
        return stored_buffer.dtype

    def _pointer(self, layer: Layer, name: str) -> str:
        """The declaration of the pointer that a kernel gets for an operand: its address in the tile at hand."""
        operand = layer.work.operands[name]
        const = "" if name in (*layer.call.writes, SUMS) else "const "
        kind = f"{const}{(DType.INT32 if name == SUMS else self._dtype(layer.call.operands[name].buffer)).c} *"
        outside = self.outside.get(operand.address.block) if not operand.address.level else None
        begin = f"({kind})({self._address(operand.address)})"
        if outside is not None and outside.is_pointer:  # C converts one of unknown type, but does not add to it
            begin = str(outside) if operand.element == 0 else f"({kind}){outside}"
        return (
            f"{kind}const {name} = {begin};"
            if operand.element == 0
            else f"{kind}const {name} = {begin} + {_print_factor(operand.element)};"
        )


def columns_before(layer: Layer) -> Value:
    """Columns of a row before the share of the core that runs, where cores divide rows that a later phase of the kernel reads whole."""
    dims, divided = layer.call.geometry.dims(), [name for name, _ in layer.work.division if layer.call.kernel.phases]
    return next((layer.work.parts[name][0] for name in divided if dims[name].whole), 0)


def _print_fork(layer: Layer) -> list[str]:
    """The post-processing of a tile as a function that can be forked."""
    given, lines = "argument", list[str]()
    if layer.tiling.tiles > 1:
        lines, given = ["    const struct tile *const tile = argument;"], f"tile->{SELF}, tile->{TILE}"
    return [f"static void forked_{layer.call.name}(void *argument) {{", *lines, f"    outputs_{layer.call.name}({given});", "}"]


def _is_function(layer: Layer) -> bool:
    """Whether what cores compute is a function: for a team, for several tiles, or where it may have nothing to do."""
    return layer.work.cores > 1 or (layer.tiling.tiles > 1 and "tile" not in layer.procedures) or bool(layer.work.empty)


def _has_tile(layer: Layer, procedure: str) -> bool:
    """Whether the function of a procedure gets the number of a tile."""
    return procedure == "tile" or (layer.tiling.tiles > 1 and procedure != "early")


def _add_barriers(texts: Sequence[str], is_divided: bool) -> str:
    """Calls of kernels behind a barrier, and behind one each where cores divide what they read whole.

    Their arguments are filled before, while the first core may still wait for transfers.
    """
    filled, called = list[str](), list[str]()
    for number, text in enumerate(texts):
        match = _CALL.fullmatch(text)
        if match is not None:
            kernel, kind, fields = match.groups()
            name = "argument" if len(texts) == 1 else f"argument_{number}"
            filled.append(f"const {kind} {name} = {fields};")
            text = f"{kernel}(&{name});"
        called += ["rt_barrier();", text] if is_divided or not number else [text]
    return "\n".join([*filled, *called])


def _print_block(head: str, lines: Sequence[str]) -> list[str]:
    """A statement under a condition; nothing where there is none."""
    if len(lines) == 1 and not lines[0].startswith(("const ", "if ", "for ")):
        return [f"{head} {lines[0]}"]
    return [f"{head} {{", *_indent_lines(lines), "}"] if lines else []


def _print_loop(node: Loop) -> str:
    return f"for (int32_t {node.variable} = 0; {node.variable} < {node.trips}; {node.variable}++)"


def _print_conditions(node: Guard) -> str:
    return " && ".join(map(_print_condition, node.conditions))


def _print_mentions(noted: Mentions, operands: Iterable[str]) -> list[str]:
    names = noted.names()
    return [name for name in operands if name in names]


def walk_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes, and those inside of guards and loops."""
    for node in nodes:
        yield node
        if isinstance(node, Guard | Loop):
            yield from walk_nodes(node.body)


def _print_condition(condition: Condition) -> str:
    if condition.relation == "!=" and condition.right == 0:
        return str(condition.left)
    return str(condition)


def _print_unsigned(value: Value) -> str:
    if isinstance(value, int):
        return str(value)
    return f"(uint32_t){_print_factor(value)}"


def _print_factor(value: Value) -> str:
    """A value as C that binds as tightly as a name."""
    if isinstance(value, int) and value >= 0:
        return str(value)
    terms = () if isinstance(value, int) else value.affine().terms
    is_name = len(terms) == 1 and value == terms[0][0] and isinstance(terms[0][0], Named | Variable)
    return str(value) if is_name else f"({value})"


def declare_parts(parts: Iterable[Named]) -> list[str]:
    """The C constants that named parts of expressions become."""
    return _declare_constants({part.name: str(part.value) for part in parts})


def _declare_constants(values: Mapping[str, str]) -> list[str]:
    return [f"const int32_t {name} = {value};" for name, value in values.items()]


def _indent_lines(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" if line.strip() else "" for line in lines]
