"""Declarations of operators and of the kernels that run them.

An ``Operator`` says what holds whoever computes it: its operands, its loop nest, a bit-exact NumPy reference, and what parts of the
compiler ask of it. A ``Kernel`` joins one C function to one operator: the types, the epilogue stages that the function can fuse, the
layout of its constants, what it may overwrite, its scratch memory, the template of its call. A target lists kernels as rows of a table,
``operator.kernel(name, source, ...)``; what a row does not say follows from the operator, and what a variant
(``kernel.variant(name, ...)``) does not say from the kernel that it is a variant of. Epilogues have one reference for all kernels
(``deeploy.ir.epilogue``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from deeploy.ir.nest import Map, Nest, encoded
from deeploy.ir.nodes import Attributes, Node, Tensor
from deeploy.ir.types import HALVES, PACKED, WHOLE, DType, pack_elements

Types = frozenset[DType]
Reference = Callable[..., Any]  # reference(node, *input arrays) -> array, or tuple of arrays
Condition = Callable[[Node], str | None]  # None, or what the kernel would need instead
Need = tuple[Callable[[Node], bool], str]  # a condition, and what a kernel would need where it does not hold
Count = int | np.ndarray  # a number, or an array of them for as many tiles
AxisIndices = Sequence[np.ndarray | None]  # per operand, inputs first: the indices that are kept along its axis, None for all
Share = Callable[[Node, Sequence[int | None], AxisIndices], Attributes | None]
Bounds = Callable[[Node], tuple[np.ndarray, np.ndarray]]
Addition = Callable[[Node, int], Mapping[str, int] | None]
Range = tuple[int, int]
Integers = Callable[[Node], Mapping[str, tuple[Range, Range]]]


def types(*names: str) -> Types:
    """A set of element types by short name: ``types("s8", "u8")``."""
    return frozenset(DType(name) for name in names)


CORE = "core"  # the first engine of a target, whatever its name is
DIVIDES = "It divides values, which takes longer for some of them."  # as ``data_dependent``
SUMS = "sums"  # what the first one of two parts of a kernel leaves for its post-processing, or a tile along a reduction for the next one
BYTES = types("s8", "u8")
INTEGERS = types("s8", "u8", "s16", "u16", "s32")
FLOAT = types("f32")
ANY = frozenset(WHOLE)
FEW = frozenset(PACKED)  # of constants that are stored packed
FLOAT_OR_HALF = FLOAT | frozenset(HALVES)  # of constants that may be stored in 16 bits


@dataclass(frozen=True)
class Layout:
    """How a constant is stored for a kernel.

    ``encode`` takes the array as the graph has it and the node, and returns the array to store, or None where others hold what the
    kernel needs of it; a nest's map for the operand describes the stored axes. Cuts along an encoded axis are multiples of ``block``.
    Elements of few bits are packed in so many ``lanes`` (``deeploy.ir.types.pack_elements``).
    """

    encode: Callable[[np.ndarray, Node], np.ndarray | None]
    block: int = 1
    lanes: int = 1


def permuted(*axes: int) -> Layout:
    """The layout that reorders axes: stored axis i is the graph's axis ``axes[i]``."""
    return Layout(lambda array, node: np.ascontiguousarray(array.transpose(axes)))


def packed(declare: Callable[[Node], Nest], operand: str) -> Callable[[Node], Nest]:
    """The nest of a kernel that reads an operand packed: bytes along its last axis, of which every iteration reads all."""

    def nest(node: Node) -> Nest:
        declared = declare(node)
        *axes, last = declared.reads[operand].axes
        return replace(declared, reads={**declared.reads, operand: Map(*axes, *encoded(f"{operand}_byte", of=tuple(last.dims())))})

    return nest


def accumulated(declare: Callable[[Node], Nest], *names: str) -> Callable[[Node], Nest]:
    """The nest of a kernel that adds up the products of tiles along reductions, in 32-bit sums in its scratch memory ``SUMS``."""
    return lambda node: replace(declare(node), accumulated=names)


@dataclass(frozen=True)
class Tiling:
    """Which tiles a kernel accepts: ``whole`` dimensions are never cut, ``multiple`` ones only at multiples."""

    whole: tuple[str, ...] = ()
    multiple: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """A node to try a kernel on: shapes of the body's inputs in graph layout, and of outputs where inputs do not say them; attributes
    without epilogue; arrays that cannot be random.
    """

    shapes: Mapping[str, tuple[int, ...]]
    attrs: Attributes = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


Draw = Callable[[Random], Sample]  # a random node of an operator


@dataclass(frozen=True)
class Scratch:
    """Working memory of a kernel while it computes a tile.

    ``bytes`` gives those of one core, for the node and the extents of the tile by dimension, ints or arrays of as many tiles; a smaller
    tile never needs more. ``cores`` have as many each, one behind the other: a template sees where those of its core begin.
    """

    bytes: Callable[[Node, Mapping[str, Count]], Count]
    cores: int = 1

    def total(self, node: Node, extents: Mapping[str, Count]) -> Count:
        """Bytes of working memory that all cores need together for a tile."""
        return self.bytes(node, extents) * self.cores


class Variant(str):
    """A word of an instance's name, whose macro is 1, or 0 where the word is empty."""


def variant(word: str, holds: bool) -> Variant:
    """The value of a macro that is 1 where a node ``holds``, which the name of the instance says by ``word``."""
    return Variant(word if holds else "")


@dataclass(frozen=True, eq=False)
class PostProcessing:
    """The post-processing of an accelerator's kernel: a team of cores makes the outputs of the sums that the first part left.

    The sums are int32, packed, in the kernel's scratch memory ``SUMS``, of which there are two where the accelerator computes the next
    tile meanwhile.

    Attributes:
        kernel: of the cores. Its operands are ``SUMS``, those of the epilogue, and the output; its cores divide a tile among them.
        body: what the first part computes: the node without epilogue.
        steps: one of how many sums stays, along every axis of the output.
        words: by which the rates of the post-processing of nodes differ, besides those of its kernel (``Timing.kernel``).
    """

    kernel: Kernel
    body: Callable[[Node], Node]
    steps: Callable[[Node], tuple[int, ...]]
    words: Callable[[Node], tuple[str, ...]] = lambda node: ()


@dataclass(frozen=True, eq=False)
class Phase:
    """One of the kernels that a call runs one behind the other, on the same cores and the same tile.

    Attributes:
        kernel: whose macros, settings, template and rate are the phase's.
        node: what it computes, of the node of the call.
        operands: its own names of the call's operands, by what the call calls them.
        whole: of these, those of which it reads whole rows where cores divide columns: all cores have to be through the phase before it.
    """

    kernel: Kernel
    node: Callable[[Node], Node]
    operands: Mapping[str, str]
    whole: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A function that a kernel of generated C calls, in a file of its own: another kernel's source with its macros.

    In the kernel's text it is ``name``, which a macro makes a name of the instance's own.
    """

    name: str
    source: str
    struct: str
    macros: tuple[tuple[str, str], ...]
    texts: Mapping[str, str] = field(default_factory=dict)


class Stored(TypedDict, total=False):
    """How constants are stored: the part of a row that belongs together."""

    nest: Callable[[Node], Nest]
    constants: tuple[str, ...]
    layouts: Mapping[str, Layout]


class Row(Stored, total=False):
    """What a row of a target's table may say; ``Kernel`` has the meanings."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, Types]
    source: str
    struct: str
    template: str
    reference: Reference
    requires: Condition | None
    epilogues: tuple[tuple[str, ...], ...]
    overwrites: tuple[tuple[str, str], ...]
    strided: Mapping[str, int]
    scratch: Mapping[str, Scratch]
    macros: Callable[[Node], Mapping[str, str]] | None
    settings: Callable[[Node], Attributes] | None
    resident: Mapping[str, str]
    tiling: Tiling
    cores: tuple[str, ...]
    team: str
    forks: bool
    engine: str
    post_processing: PostProcessing | None
    phases: tuple[Phase, ...]
    texts: Mapping[str, str]
    parts: tuple[Part, ...]
    generator: str
    link: Literal["send", "recv"] | None
    reorders: bool
    data_dependent: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True, eq=False)
class Operator:
    """What holds of an operator of the integer form, or of a target's own, whoever computes it.

    Attributes:
        name: how nodes call it.
        inputs: operand names of the body's inputs, in node order; a trailing ``?`` marks an optional one.
        nest: the geometry of the body.
        reference: bit-exact NumPy body; gets the node and the arrays in graph layout.
        usual: what kernels of the operator have unless their row says otherwise.
        share: its attributes where it computes a share of its outputs, given the axis of every operand (inputs first) that is divided
            and the indices that are kept along it; None where no attributes express that. Without one, attributes do not change.
        bounds: the least and the most accumulator that its body can leave for the types and constants of a node, int64, one entry per
            output channel or one for all; without them, any value of 32 bits.
        integers: what its body computes on the way, by name: the least and the most for the types and constants of a node, and what the
            type in C holds; ``sum`` is its accumulator where it has no ``bounds``.
        is_product: its accumulators are sums of products, in whose epilogues kernels may multiply by factors of two parts.
        addition: for the sum of two 8-bit tensors: the attributes of the ``ResidualSum`` that adds the operand at a position as the sum
            of partial sums; None where there are none.
        affine: with a constant operand, whether it adds an ``offset`` to every element or multiplies by a ``factor``.
        is_table: every element becomes the entry of the second operand for its value, the smallest of the first one's type first.
        converts: it changes only how the elements of its first operand are represented: their type, scale or zero point.
        calls_library: whether the C of a node calls functions of the C library whose last bit is the library's choice, such as sinf.
        draw: a random node of what the operator allows, on which kernels are tried (``deeploy target check``).
    """

    name: str
    inputs: tuple[str, ...]
    nest: Callable[[Node], Nest]
    reference: Reference
    usual: Row = field(default_factory=lambda: Row())
    share: Share | None = None
    bounds: Bounds | None = None
    integers: Integers | None = None
    is_product: bool = False
    addition: Addition | None = None
    affine: Literal["", "offset", "factor"] = ""
    is_table: bool = False
    converts: bool = False
    calls_library: Callable[[Node], bool] = lambda node: False
    draw: Draw | None = None

    def kernel(self, name: str, source: str, /, needs: Need | None = None, **row: Unpack[Row]) -> Kernel:
        """A kernel of this operator whose function is in the C file ``source``; ``needs`` is a condition besides the operator's."""
        return replace(Kernel(name, self, self.inputs, self.nest, self.reference, source), **self.usual).variant(name, needs, **row)


@dataclass(frozen=True, eq=False)
class Kernel:
    """One C kernel.

    Attributes:
        name: stem of the C function's name; type suffixes are added per instance.
        operator: what it runs.
        inputs: operand names of the body's inputs, in node order; a trailing ``?`` marks an optional one.
        outputs: operand names of the outputs.
        types: accepted element types per operand; epilogue operands are checked by the stage itself. Narrow ones are of constants,
            packed ones with their bytes along the last axis of what the layout makes of them.
        nest: the geometry of the body.
        source: C file that defines the function, relative to ``kernels/``; type macros instantiate it.
        struct: what the function takes, declared in a header of that name that the source includes; by default the source's stem.
        template: Mako file that renders the call, relative to ``templates/``; by default named like the struct.
        reference: bit-exact NumPy body; gets the node and the arrays in graph layout.
        requires: further condition on a node: None, or what the kernel would need instead.
        epilogues: tuples of stages that the function can fuse.
        constants: operands that must be constants; ``layouts`` says how they are stored.
        overwrites: pairs (output, input) that may share memory when the input dies in this call.
        strided: operands whose outer axes may have any stride; the number is how many trailing axes must be dense.
        scratch: working memory, by name.
        macros: further macros of the instance that a node needs; their values become part of its name. Those of ``variant`` are 1 or 0.
        settings: further values that the template of the call sees, by name.
        resident: constants that the engine reads where they lie for good, by the name of that memory; it is on no transfer path.
        cores: dimensions that may be divided over the cores of an engine, best first: one alone, or two or three at once.
        team: a dimension that the kernel itself divides over all cores of the engine, which call it together and may meet at barriers.
        forks: its C forks teams itself, so it is called by the first core outside of any team.
        engine: what runs it; ``core`` is the first engine of the target.
        post_processing: what cores make of an accelerator's sums; source, template and settings are then of the first part.
        phases: the kernels that it consists of, of which each reads what those before it wrote; source and template are of the last one.
        samples: nodes that ``deeploy target check`` tries it on, beside those it knows for the operator.
        texts: C files that are in no folder, source and headers, by their names relative to ``kernels/``.
        parts: functions that it calls, in files of their own.
        generator: who wrote its C, where that was a program; reports say so.
        link: the kernel computes nothing, but sends its operand to another chip or receives it; it has no C function (``source``).
        reorders: its C adds up floats in another order than the reference, or fuses products and sums.
        data_dependent: a sentence on the branch, loop bound or division by which its time depends on values of its operands, if one does.
    """

    name: str
    operator: Operator
    inputs: tuple[str, ...]
    nest: Callable[[Node], Nest]
    reference: Reference
    source: str
    types: Mapping[str, Types] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)
    requires: Condition | None = None
    epilogues: tuple[tuple[str, ...], ...] = ((),)
    constants: tuple[str, ...] = ()
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    overwrites: tuple[tuple[str, str], ...] = ()
    strided: Mapping[str, int] = field(default_factory=dict)
    scratch: Mapping[str, Scratch] = field(default_factory=dict)
    macros: Callable[[Node], Mapping[str, str]] | None = None
    settings: Callable[[Node], Attributes] | None = None
    resident: Mapping[str, str] = field(default_factory=dict)
    tiling: Tiling = field(default_factory=Tiling)
    cores: tuple[str, ...] = ()
    team: str = ""
    forks: bool = False
    engine: str = CORE
    post_processing: PostProcessing | None = None
    phases: tuple[Phase, ...] = ()
    struct: str = ""
    template: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    generator: str = ""
    link: Literal["send", "recv"] | None = None
    reorders: bool = False
    data_dependent: str = ""
    samples: tuple[Sample, ...] = ()

    @property
    def argument(self) -> str:
        """The name of the C struct that the kernel's function takes."""
        return self.struct or Path(self.source).stem

    @property
    def call(self) -> str:
        """The file name of the template that renders the kernel's call."""
        return self.template or f"{self.argument}.mako"

    @property
    def op(self) -> str:
        """The name of the operator that the kernel runs."""
        return self.operator.name

    def is_exact(self, node: Node) -> bool:
        """Whether the C equals the reference bit for bit on floats as well: every operation is one of IEEE 754, in one stated order."""
        if self.generator or self.reorders or any(phase.kernel.reorders for phase in self.phases):
            return False
        return not self.operator.calls_library(node) and not any(p.kernel.operator.calls_library(p.node(node)) for p in self.phases)

    def explain_time(self, node: Node) -> str:
        """Why the time of a node may depend on values of its operands, as a sentence; empty where it does not."""
        if self.generator:
            return "Nobody looked for branches in C that a program wrote."
        if any(tensor.dtype.is_float for tensor in (*node.operands, *node.outputs)):
            return "Operations on floats may take longer for some values, above all where they are functions."
        parts = (
            self,
            *(phase.kernel for phase in self.phases),
            *([self.post_processing.kernel] if self.post_processing is not None else []),
        )
        return next((part.data_dependent for part in parts if part.data_dependent), "")

    def variant(self, name: str, needs: Need | None = None, **row: Unpack[Row]) -> Kernel:
        """Another kernel of the same operator: what is given differs, and ``needs`` is a condition besides those of this one.

        Of ``types`` and ``layouts``, only the operands that are given differ.
        """
        if row.keys() & {"source", "struct"}:
            row = {"struct": "", "template": "", **row}
        kernel = replace(self, name=name, **row)
        kernel = replace(kernel, types={**self.types, **kernel.types}, layouts={**self.layouts, **kernel.layouts})
        if needs is None:
            return kernel
        given, (holds, need) = kernel.requires, needs

        def state_requirement(node: Node) -> str | None:
            reason = given(node) if given is not None else None
            return reason if reason is not None or holds(node) else need

        return replace(kernel, requires=state_requirement)

    @property
    def packs(self) -> tuple[str, ...]:
        """The constants that the kernel reads packed, and in no other way."""
        return tuple(name for name, accepted in self.types.items() if accepted and accepted <= FEW)

    def packing(self, operand: str, tensor: Tensor) -> DType | None:
        """The type of the fewest bits in which the kernel reads a constant; None where that is its own."""
        return next((t for t in tensor.narrow if t in self.types.get(operand, ())), None)

    def stored(self, operand: str, tensor: Tensor, node: Node) -> tuple[np.ndarray, DType] | None:
        """A constant operand as the kernel wants it stored, and the type of that; None where it does not want it."""
        assert tensor.data is not None
        layout, packing = self.layouts.get(operand), self.packing(operand, tensor)
        array = tensor.data if layout is None else layout.encode(tensor.data, node)
        if array is None:
            return None
        return (
            (array, DType.of(array.dtype))
            if packing is None
            else (pack_elements(array, packing, 1 if layout is None else layout.lanes), packing)
        )

    def slots(self, scratch: str, is_double: bool) -> int:
        """How many pieces of scratch memory of a name there are, where two tiles may be under way."""
        return 2 if is_double and self.post_processing is not None and scratch == SUMS else 1

    def dense(self, operand: str, rank: int) -> int:
        """How many trailing axes of an operand of so many axes must be packed in row-major order."""
        return min(self.strided.get(operand, rank), rank)
