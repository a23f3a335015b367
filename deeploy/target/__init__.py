"""Everything that a target is made of, and how targets are found: the whole public interface for targets, versioned.

A target is a folder with a ``target.py`` that defines ``TARGET``. It is found by name in the compiler's ``targets/``, by path, or
through the entry-point group ``deeploy.targets``. What it needs of the compiler comes from here and from
``deeploy.target.operators`` (nests and references of known operators); everything else may change without notice.
``API_VERSION`` grows when a change would break a target; one that was written for another version is refused.

A machine with one memory and one kernel of its own before those of the generic target:

>>> from dataclasses import replace
>>> import numpy as np
>>> GENERIC = load("generic")
>>> def twice(node: Node) -> Nest:
...     (i,) = parallel("i")
...     return Nest(reads={"x": Map(i)}, writes={"y": Map(i)})
>>> def reference(node: Node, x: np.ndarray) -> np.ndarray:
...     return x.astype(np.int64) * 2
>>> TWICE = Operator("Twice", ("x",), twice, reference)
>>> KERNEL = TWICE.kernel(
...     "twice", "own/twice.c", types={"x": types("s8"), "y": types("s32")}, epilogues=((), ("requantise",)), cores=("i",)
... )
>>> SMALL = KERNEL.variant("twice_small", (lambda node: node.outputs[0].elements < 100, "fewer than 100 elements"), cores=())
>>> SMALL.op, SMALL.source
('Twice', 'own/twice.c')
>>> TARGET = replace(GENERIC, name="mine", memories=(Memory("arena", 64 * 1024, base=0x20000000),), kernels=(KERNEL, *GENERIC.kernels))
>>> TARGET.api == API_VERSION
True

What a declaration says can be asked for, and is all that the compiler knows of an operator:

>>> node = Node("n", "Twice", (Tensor("x", (100,), DType.INT8),), (Tensor("y", (100,), DType.INT32),))
>>> geometry = Geometry.bind(twice(node), {"x": (100,), "y": (100,)})
>>> geometry.footprint("x", {"i": (10, 29)}).extent
(20,)

Two memories, and a path between them that moves rows:

>>> near, far = Memory("L1", 64 * 1024, alignment=8), Memory("L2", 512 * 1024, alignment=8, reserved=4096)
>>> path = DmaPath("L2_L1", near.name, far.name, max_bytes=65535, max_rows=1024, max_total=65535, max_pitch=65535)
>>> cluster = Engine("cluster", near.name, cores=8)
>>> fast = replace(TARGET, memories=(near, far), paths=(path,), engines=(cluster,), default_memory="L2")
>>> [p.name for p in fast.outward("L1")]
['L2_L1']
"""

from __future__ import annotations

from deeploy.errors import TargetError
from deeploy.frontend.lower import passes
from deeploy.ir.array import Array, load_array
from deeploy.ir.device import Device, load_device
from deeploy.ir.dimensions import MAX, MIN, SUM, Combine, Kind
from deeploy.ir.expr import Dim, Expr
from deeploy.ir.kernel import (
    ANY,
    BYTES,
    FEW,
    FLOAT,
    FLOAT_OR_HALF,
    INTEGERS,
    SUMS,
    Condition,
    Count,
    Kernel,
    Layout,
    Need,
    Operator,
    PostProcessing,
    Reference,
    Row,
    Sample,
    Scratch,
    Tiling,
    Types,
    accumulated,
    packed,
    permuted,
    types,
    variant,
)
from deeploy.ir.nest import Geometry, Map, Nest, coupled, encoded, parallel, reduction
from deeploy.ir.nodes import Node, Tensor, compute
from deeploy.ir.rewriting import Match, Pass, Rule, lowered, need, require, standard
from deeploy.ir.target import (
    API_VERSION,
    DmaPath,
    Engine,
    Loops,
    Memory,
    PathTiming,
    Rate,
    Requantiser,
    Target,
    Timing,
    load_timing,
)
from deeploy.ir.topology import Link, Topology, load_topology
from deeploy.ir.types import DType
from deeploy.resources import resource
from deeploy.target._find import load, names, origin
from deeploy.target._validate import Problem, problems

__all__ = [
    "ANY",
    "API_VERSION",
    "BYTES",
    "FEW",
    "FLOAT",
    "FLOAT_OR_HALF",
    "INTEGERS",
    "MAX",
    "MIN",
    "SUM",
    "SUMS",
    "Array",
    "Combine",
    "Condition",
    "Count",
    "DType",
    "Device",
    "Dim",
    "DmaPath",
    "Engine",
    "Expr",
    "Geometry",
    "Kernel",
    "Kind",
    "Layout",
    "Link",
    "Loops",
    "Map",
    "Match",
    "Memory",
    "Need",
    "Nest",
    "Node",
    "Operator",
    "Pass",
    "PathTiming",
    "PostProcessing",
    "Problem",
    "Rate",
    "Reference",
    "Requantiser",
    "Row",
    "Rule",
    "Sample",
    "Scratch",
    "Target",
    "TargetError",
    "Tensor",
    "Tiling",
    "Timing",
    "Topology",
    "Types",
    "accumulated",
    "compute",
    "coupled",
    "encoded",
    "load",
    "load_array",
    "load_device",
    "load_timing",
    "load_topology",
    "lowered",
    "names",
    "need",
    "origin",
    "packed",
    "parallel",
    "passes",
    "permuted",
    "problems",
    "reduction",
    "require",
    "resource",
    "standard",
    "types",
    "variant",
]
