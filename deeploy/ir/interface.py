"""What the template of a kernel's call sees: operands as views, scratch memory, sizes, settings; and what it makes of them.

``Bound`` is a node with the kernel that runs it. Templates see operands as ``View`` objects; every number in them comes from the geometry
and from where an operand lies. This module knows types, strides and epilogues, and no operator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, Self

from deeploy.documents import Document
from deeploy.errors import UnsupportedError, shorten
from deeploy.ir import epilogue, names
from deeploy.ir.expr import Value, Variable, multiply_values
from deeploy.ir.kernel import SUMS, Kernel, Variant
from deeploy.ir.nest import Geometry, Map, Nest, Window
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.templates import TemplateLookup
from deeploy.ir.types import HALVES, DType


class Shaped(Protocol):
    """Anything with a shape: a tensor, a buffer, an operand."""

    @property
    def shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, eq=False)
class Bound:
    """A node and the kernel that runs it, with the operands that are there as they are stored."""

    node: Node
    kernel: Kernel
    geometry: Geometry
    operands: Mapping[str, Shaped]

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the operands written by the call."""
        return (*self.geometry.nest.writes, *self.geometry.nest.updates)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The tensor of every operand that is there."""
        extra = epilogue.stage_operands(self.node.epilogue)
        body = [name.rstrip("?") for name in self.kernel.inputs[: len(self.node.inputs) - len(extra)]]
        pairs = zip((*body, *extra, *self.kernel.outputs), (*self.node.inputs, *self.node.outputs), strict=True)
        return {name: tensor for name, tensor in pairs if tensor is not None}

    @cached_property
    def parts(self) -> tuple[Self, ...]:
        """What an accelerator does of the call, and then cores; the call itself where one of them does all."""
        post_processing = self.kernel.post_processing
        if post_processing is None:
            return (self,)
        extra = epilogue.stage_operands(self.node.epilogue)
        body = {name: operand for name, operand in self.operands.items() if name not in extra}
        first = replace(self, node=post_processing.body(self.node), kernel=replace(self.kernel, post_processing=None), operands=body)
        stages = tuple(stage for stage in self.node.epilogue if stage != "bias")
        inputs = self.node.inputs[-len(epilogue.stage_operands(stages)) :]
        attrs = {**self.node.attrs, "epilogue": stages}
        rest = replace(self.node, inputs=(None, *inputs), attrs=attrs, words=post_processing.words(self.node))
        others = {name: operand for name, operand in self.operands.items() if name in extra or name in self.writes}
        return first, replace(self, node=rest, kernel=post_processing.kernel, operands=others)

    @cached_property
    def phases(self) -> tuple[Self, ...]:
        """What the kernels do that the call's kernel consists of, in order; the call itself where it is of one piece."""
        phase_tensors = []
        for phase in self.kernel.phases:
            operands = {own: self.operands[name] for name, own in phase.operands.items() if name in self.operands}
            maps = {own: access for name, own in phase.operands.items() if (access := self.geometry.nest.maps().get(name)) is not None}
            written = phase.kernel.outputs
            nest = Nest({n: m for n, m in maps.items() if n not in written}, {n: maps[n] for n in written}, extents=self.geometry.extents)
            geometry = replace(self.geometry, nest=nest)
            phase_tensors.append(replace(self, node=phase.node(self.node), kernel=phase.kernel, geometry=geometry, operands=operands))
        return tuple(phase_tensors) or (self,)


_STAGES = {"bias": "bias", "requantise": "rq", "lookup": "table", "clamp": "clamp"}


@dataclass(frozen=True)
class Instance:
    """One compilation of a kernel source: the function's name and argument, and the macros that select types and epilogue."""

    name: str
    source: str
    struct: str
    macros: tuple[tuple[str, str], ...]
    texts: Mapping[str, str] = field(default_factory=dict, hash=False)


def make_instance(call: Bound, stored: Mapping[str, DType], project: str = "") -> Instance:
    """The kernel instance that the call needs.

    Args:
        stored: types that operands are stored in.
        project: begins the name, so that several projects may have the same kernel.
    """
    stages = call.node.epilogue
    extra = epilogue.stage_operands(stages)
    macros: list[tuple[str, str]] = []
    output = call.kernel.outputs[0]
    first = next((n for n in stored if n not in extra), output)
    is_float = stored[first].is_float or stored[output].is_float
    macros.append(("ACC_T", "float" if is_float else "int32_t"))
    if is_float:
        macros.append(("ACC_IS_FLOAT", "1"))
    for name, dtype in stored.items():
        macros.append((f"{name.upper()}_T", dtype.c))
        if dtype.is_float:
            macros.append((f"{name.upper()}_IS_FLOAT", "1"))
        if dtype in HALVES:
            macros.append((f"{name.upper()}_FROM", f"from_{dtype.value}"))
        if dtype.is_packed:
            macros += [(f"{name.upper()}_BITS", str(dtype.bits)), (f"{name.upper()}_IS_SIGNED", str(int(dtype.range[0] < 0)))]
    macros += [(f"EPILOGUE_{stage.upper()}", "1") for stage in stages]
    further = dict(call.kernel.macros(call.node)) if call.kernel.macros is not None else {}
    macros += ((name, str(int(bool(text))) if isinstance(text, Variant) else text) for name, text in further.items())
    even = call.node.attrs.get("even") if "requantise" in stages else None
    if even is not None:
        macros.append(("EPILOGUE_EVEN", str(even)))
    codes = [dtype.value for name, dtype in stored.items() if name not in extra]
    suffix = [_STAGES[stage] + ("64" if stage == "requantise" and stored.get("add", DType.INT32).bytes == 8 else "") for stage in stages]
    if even is not None:
        suffix.append(f"even{even}")
    owner = [project, "kernel"] if project else []
    name = "_".join([*owner, call.kernel.name, *codes, *suffix, *filter(None, further.values())])
    if not names.is_name(name):
        label = f"node {shorten(call.node.name)} ({call.node.op})"
        raise UnsupportedError(
            f"{label} wants an instance of kernel {call.kernel.name} that would be called {shorten(name)}",
            "Correct the model, or the macros of the kernel's declaration: their values are parts of a name in C.",
        )
    kernel = call.kernel
    return Instance(name, kernel.source, kernel.argument, (("KERNEL", name), *macros), kernel.texts)


@dataclass(frozen=True)
class PrintedOperand:
    """An operand as templates see it: its pointer, and values that print as C; strides in elements.

    ``first`` are the indices of its first element in the whole operand; ``dense`` counts the trailing axes that the kernel's declaration
    has packed.
    """

    ptr: Value
    extent: tuple[Value, ...]
    stride: tuple[Value, ...]
    before: tuple[Value, ...]
    first: tuple[Value, ...]
    shape: tuple[int, ...]
    dtype: DType
    dense: int


@dataclass(frozen=True)
class Initialiser:
    """A C initialiser of a structure, by its fields."""

    fields: Mapping[str, object]

    def __str__(self) -> str:
        return "{" + (", ".join(f".{name} = {value}" for name, value in self.fields.items()) or "0") + "}"


@dataclass(frozen=True)
class Piece:
    """Scratch memory as templates see it: prints as a pointer to the part of the core that runs, which has so many bytes."""

    base: object
    bytes: int
    cores: int

    def __str__(self) -> str:
        return f"(void *)({self.base} + (uintptr_t)(rt_core() * {self.bytes}))" if self.cores > 1 else f"(void *)({self.base})"


def scratch_pieces(call: Bound, tile: Mapping[str, int], bases: Mapping[str, object]) -> dict[str, Piece]:
    """The scratch memory of a call in tiles of this size, which begins at ``bases``, which print as expressions in C of bytes."""
    extents = {**call.geometry.extents, **tile}
    return {n: Piece(bases[n], int(scratch.bytes(call.node, extents)), scratch.cores) for n, scratch in call.kernel.scratch.items()}


def make_view(call: Bound, name: str, stored: DType, seen: Sequence[Window], strides: Sequence[Value]) -> PrintedOperand:
    """An operand of which a call sees a window, with strides in elements; ``stored`` is the type of these."""
    extent = tuple(window.count for window in seen)
    return PrintedOperand(
        ptr=Variable(name, 0, 0),
        extent=extent,
        stride=template_strides(call, name, strides, extent),
        before=tuple(window.before for window in seen),
        first=tuple(window.first for window in seen),
        shape=call.operands[name].shape,
        dtype=stored,
        dense=call.kernel.dense(name, len(seen)),
    )


def accumulated_sums(call: Bound, seen: Sequence[Window], strides: Sequence[Value]) -> PrintedOperand:
    """What a kernel keeps of its outputs between tiles along a reduction."""
    return replace(make_view(call, call.writes[0], DType.INT32, seen, strides), ptr=Variable(SUMS, 0, 0))


def sums_operand(call: Bound, views: Mapping[str, PrintedOperand | None]) -> PrintedOperand:
    """What the first part of a call leaves of its output for post-processing: packed, with what does not stay between."""
    post_processing, y = call.kernel.post_processing, views[call.writes[0]]
    assert post_processing is not None and y is not None
    by = post_processing.steps(call.node)
    extent = tuple((n - 1) * step + 1 for n, step in zip(y.extent, by, strict=True))
    strides = tuple(multiply_values(extent[axis + 1 :]) for axis in range(len(extent)))
    shape = tuple((n - 1) * step + 1 for n, step in zip(y.shape, by, strict=True))
    none = (0,) * len(shape)
    return PrintedOperand(Variable(SUMS, 0, 0), extent, strides, none, none, shape, DType.INT32, len(shape))


@dataclass(frozen=True)
class CalledPart:
    """A call, or a part of one, with what it sees of its operands and the types that these are stored in."""

    call: Bound
    views: Mapping[str, PrintedOperand | None]
    stored: Mapping[str, DType]


def call_parts(call: Bound, views: Mapping[str, PrintedOperand | None], stored: Mapping[str, DType]) -> tuple[CalledPart, ...]:
    """The kernels that a call runs, one or two, each with the operands that its template sees."""
    if call.kernel.post_processing is None:
        return (CalledPart(call, views, stored),)
    (first, last), between = call.parts, sums_operand(call, views)
    of_first = {name: dtype for name, dtype in stored.items() if name in first.operands} | dict.fromkeys(call.writes, DType.INT32)
    of_last = {SUMS: DType.INT32} | {name: dtype for name, dtype in stored.items() if name in last.operands}
    seen = {name: view for name, view in views.items() if name in first.operands}
    return CalledPart(first, {**seen, **dict.fromkeys(call.writes, between)}, of_first), CalledPart(last, {**views, SUMS: between}, of_last)


def part_phases(part: CalledPart, columns: Value) -> tuple[CalledPart, ...]:
    """The parts that kernels one behind the other are; ``columns`` are those of a row before the share of the core that runs."""
    phase_pieces = []
    for phase, call in zip(part.call.kernel.phases, part.call.phases, strict=False):
        views = {own: part.views.get(name) for name, own in phase.operands.items()}
        views |= {own: _whole_rows(view, columns) for own in phase.whole if (view := views[own]) is not None}
        stored = {own: part.stored[name] for name, own in phase.operands.items() if name in part.stored}
        phase_pieces.append(CalledPart(call, views, stored))
    return tuple(phase_pieces) or (part,)


def _whole_rows(view: PrintedOperand, columns: Value) -> PrintedOperand:
    """The rows of which a core sees some columns."""
    return replace(view, ptr=view.ptr - columns, extent=(*view.extent[:-1], view.shape[-1]), first=(*view.first[:-1], 0))


def template_strides(call: Bound, name: str, strides: Sequence[Value], extents: Sequence[Value]) -> tuple[Value, ...]:
    """Strides as templates see them: 0 where an axis of extent 1 stands for every index of a longer dimension.

    Of the trailing axes that the kernel has packed, one of extent 1 has the stride of packed ones, wherever a view or a window has it:
    a template may read from it how long what follows is.
    """
    maps, shape = _operand_maps(call), call.operands[name].shape
    result = list(strides)
    spread = [False] * len(shape)
    if name in maps:
        box = call.geometry.box()
        spread = [n == 1 and axis.span(box)[1] > 0 for n, axis in zip(shape, maps[name].axes, strict=True)]
    packed: Value = 1
    for axis in reversed(range(len(shape))):
        if spread[axis]:
            result[axis] = 0
        elif axis < len(shape) - call.kernel.dense(name, len(shape)):
            continue
        elif shape[axis] == 1:
            result[axis] = packed
        else:
            packed = result[axis] * extents[axis]
    return tuple(result)


def _operand_maps(call: Bound) -> dict[str, Map]:
    """The map of every operand, of the first phase that has one."""
    maps = call.geometry.nest.maps()
    for phase in call.geometry.nest.phases:
        maps |= {name: access for name, access in phase.maps().items() if name not in maps}
    return maps


def epilogue_initialiser(call: Bound) -> Initialiser:
    """The initialiser of ``struct epilogue`` for the call."""
    stages = call.node.epilogue
    attrs = call.node.attrs
    fields: dict[str, object] = {}
    for name in epilogue.stage_operands(stages):
        if name in call.operands:
            fields[name] = Variable(name, 0, 0)
            if name in epilogue.ROWS:
                fields[f"{name}_step"] = int(math.prod(call.operands[name].shape) > 1)
    if "requantise" in stages:
        fields |= {name: attrs[name] for name in ("shift", "low", "high")}
    elif "clamp" in stages:
        dtype = call.node.outputs[0].dtype
        fields |= zip(("low_f", "high_f") if dtype.is_float else ("low", "high"), limit_constants(attrs, dtype), strict=True)
    return Initialiser(fields)


def render_call(
    call: Bound,
    kernel: str,
    views: Mapping[str, PrintedOperand | None],
    scratch: Mapping[str, Piece],
    extent: Mapping[str, Value],
    lookup: TemplateLookup,
    message: int | None = None,
    cores: int = 1,
) -> str:
    """The text of a call, by its kernel's template.

    Args:
        extent: iterations of every dimension, in the part of a core.
        cores: of the team that calls it.
        message: which one of the network's messages it is (``message_number``).
    """
    owner = f"node {call.node.name} ({call.node.op})"
    attrs = names.guard_value(dict(call.node.attrs), owner)
    text: str = lookup.get_template(call.kernel.call).render(
        kernel=kernel,
        node=replace(call.node, name=names.guard_value(call.node.name, owner), attrs=attrs),
        attrs=attrs,
        geometry=call.geometry,
        extent=extent,
        epilogue=epilogue_initialiser(call),
        limits=limit_constants,
        c_float=c_float,
        c_int=c_int,
        c_string=names.c_literal,
        product=multiply_values,
        scratch=scratch,
        message=message,
        cores=cores,
        **(call.kernel.settings(call.node) if call.kernel.settings is not None else {}),
        **views,
    )
    return text.strip()


def limit_constants(attrs: Document, dtype: DType) -> tuple[str, str]:
    """The attributes ``low`` and ``high`` as C constants; None means unbounded."""
    low, high = attrs.get("low"), attrs.get("high")
    if dtype.is_float:
        return c_float(-math.inf if low is None else low), c_float(math.inf if high is None else high)
    smallest, largest = dtype.range
    return c_int(smallest if low is None else max(int(low), smallest)), c_int(largest if high is None else min(int(high), largest))


def c_float(value: float) -> str:
    """A float32 constant in C that reads back as the same value."""
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    if math.isnan(value):
        return "NAN"
    text = f"{value:.9g}"
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"


def c_floats(values: Sequence[float]) -> list[str]:
    """``c_float`` of many."""
    texts = map("%.9g".__mod__, values)
    return [f"{text}f" if "." in text or "e" in text else c_float(float(text)) for text in texts]


def c_int(value: int) -> str:
    """An integer constant in C; the most negative int32 and int64 have no literal of their own."""
    if value == -(2**31):
        return "INT32_MIN"
    if value == -(2**63):
        return "INT64_MIN"
    return f"INT64_C({value})" if not -(2**31) <= value < 2**31 else str(value)
