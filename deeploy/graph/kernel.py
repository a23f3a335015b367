"""Kernel declarations: which operators a C kernel runs, on which types, and where its geometry comes from.

A ``Kernel`` joins one C function to one operator. Everything that is not in the C file is declared here, once: the nest,
the types, the epilogue stages that the function can fuse, the layout it wants its constants in, what it may overwrite,
its scratch memory, the template of its call, and a bit-exact NumPy reference of its *body*. Epilogues have one reference
for all kernels (``deeploy.graph.epilogue``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from deeploy.graph.nest import Geometry, Nest
from deeploy.graph.nodes import Node
from deeploy.graph.types import DType

Types = frozenset[DType]
Reference = Callable[..., Any]  # reference(node, *input arrays) -> array, or tuple of arrays


def types(*names: str) -> Types:
    """A set of element types by short name: ``types("s8", "u8")``."""
    return frozenset(DType(name) for name in names)


@dataclass(frozen=True)
class Layout:
    """How a constant is stored for a kernel.

    ``encode`` takes the array as the graph has it and the node, and returns the array to store, or None where others hold what the
    kernel needs of it; a nest's map for the operand describes the stored axes. Cuts along an encoded axis are multiples of ``block``.
    """

    encode: Callable[[np.ndarray, Node], np.ndarray | None]
    block: int = 1


def permuted(*axes: int) -> Layout:
    """The layout that reorders axes: stored axis i is the graph's axis ``axes[i]``."""
    return Layout(lambda array, node: np.ascontiguousarray(array.transpose(axes)))


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
    attrs: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Kernel:
    """One C kernel.

    Attributes:
        name: stem of the C function's name; type suffixes are added per instance.
        op: the operator of the integer form that it runs.
        inputs: operand names of the body's inputs, in node order; a trailing ``?`` marks an optional one.
        outputs: operand names of the outputs.
        types: accepted element types per operand; epilogue operands are checked by the stage itself.
        nest: the geometry of the body.
        source: C file that defines the function, relative to ``kernels/``; type macros instantiate it.
        struct: what the function takes, declared in a header of that name that the source includes; the source's stem where empty.
        template: Mako file that renders the call, relative to ``templates/``.
        reference: bit-exact NumPy body; gets the node and the arrays in graph layout.
        accepts: further condition on a node: None, or what the kernel would need instead.
        epilogues: tuples of stages that the function can fuse.
        constants: operands that must be constants; ``layouts`` says how they are stored.
        overwrites: pairs (output, input) that may share memory when the input dies in this call.
        strided: operands whose outer axes may have any stride; the number is how many trailing axes must be dense.
        scratch: bytes of working memory per call, by name.
        macros: further macros of the instance that a node needs; their values become part of its name.
        settings: further values that the template of the call sees, by name.
        resident: constants that the engine reads where they lie for good, by the name of that memory; it is on no transfer path.
        cores: dimensions that may be divided over the cores of an engine, best first.
        samples: nodes that ``deeploy target check`` tries it on, beside those it knows for the operator.
        texts: C files that are in no folder, source and headers, by their names relative to ``kernels/``.
        generator: who wrote its C, where that was a program; reports say so.
        link: the kernel computes nothing, but sends its operand to another chip or receives it; it has no C function (``source``).
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    types: Mapping[str, Types]
    nest: Callable[[Node], Nest]
    source: str
    template: str
    reference: Reference
    outputs: tuple[str, ...] = ("y",)
    accepts: Callable[[Node], str | None] | None = None
    epilogues: tuple[tuple[str, ...], ...] = ((),)
    constants: tuple[str, ...] = ()
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    overwrites: tuple[tuple[str, str], ...] = ()
    strided: Mapping[str, int] = field(default_factory=dict)
    scratch: Mapping[str, Callable[[Geometry], int]] = field(default_factory=dict)
    macros: Callable[[Node], Mapping[str, str]] | None = None
    settings: Callable[[Node], Mapping[str, Any]] | None = None
    resident: Mapping[str, str] = field(default_factory=dict)
    tiling: Tiling = field(default_factory=Tiling)
    cores: tuple[str, ...] = ()
    engine: str = "core"
    struct: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    generator: str = ""
    link: Literal["send", "recv"] | None = None
    samples: tuple[Sample, ...] = ()

    def dense(self, operand: str, rank: int) -> int:
        """How many trailing axes of an operand of so many axes must be packed in row-major order."""
        return min(self.strided.get(operand, rank), rank)
