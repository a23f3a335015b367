"""Kernel selection: the kernels of the target whose signature fits a node.

There is no backtracking: element types are fixed by lowering, so a node either has a kernel or has none. All nodes
without one are reported together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

import numpy as np

from deeploy.errors import NoKernelError, shorten
from deeploy.frontend.lower.operators import LOWERED
from deeploy.frontend.schemas import MICROSOFT
from deeploy.ir import epilogue
from deeploy.ir.kernel import ANY, Kernel, Layout
from deeploy.ir.nest import Geometry, Map, Nest
from deeploy.ir.nodes import Node
from deeploy.ir.types import DType


def operand_names(kernel: Kernel, node: Node) -> tuple[str, ...] | None:
    """Names of the node's inputs by position, body first, or None where their number does not fit."""
    extra = epilogue.stage_operands(node.epilogue)
    body = len(node.inputs) - len(extra)
    required = sum(not name.endswith("?") for name in kernel.inputs)
    if not required <= body <= len(kernel.inputs):
        return None
    return tuple(name.rstrip("?") for name in kernel.inputs[:body]) + extra


def list_mismatches(kernel: Kernel, node: Node) -> list[str]:
    """What keeps ``kernel`` from running ``node``: empty when it fits."""
    if not node.domain and node.op in LOWERED:
        return ["the integer form (docs/integer-form.md), for which there is no rule with these shapes, types and attributes"]
    if node.epilogue not in kernel.epilogues:
        return [f"no epilogue {' + '.join(node.epilogue) or 'none'}"]
    names = operand_names(kernel, node)
    if names is None or len(node.outputs) != len(kernel.outputs):
        return [f"{len(kernel.inputs)} inputs and {len(kernel.outputs)} outputs"]
    problems = []
    operands = dict(zip(names, node.inputs, strict=True)) | dict(zip(kernel.outputs, node.outputs, strict=True))
    for name, tensor in operands.items():
        if tensor is None:
            if f"{name}?" not in kernel.inputs:
                problems.append(f"input {name}")
            continue
        accepted = kernel.types.get(name, epilogue.TYPES.get(name))
        if accepted is not None and tensor.dtype not in accepted and kernel.packing(name, tensor) is None:
            problems.append(f"{name} of type {' or '.join(sorted(t.value for t in accepted))}, not {tensor.dtype.value}")
        if name in kernel.constants and tensor.data is None:
            problems.append(f"constant {name}")
    if not problems and kernel.requires is not None:
        reason = kernel.requires(node)
        if reason is not None:
            problems.append(reason)
    return problems


def closest_needs(kernels: Sequence[Kernel], node: Node, own: Kernel) -> tuple[Kernel, list[str]] | None:
    """The needs of the kernel that misses least for a node, of those the one named most like the kernel that runs it."""
    missing = [(kernel, needs) for kernel in kernels if (needs := list_mismatches(kernel, node))]
    return min(missing, key=lambda one: (len(one[1]), -SequenceMatcher(None, one[0].name, own.name).ratio()), default=None)


def kernel_declarations(kernels: Sequence[Kernel], node: Node) -> Iterator[tuple[tuple[str, ...], Nest, Mapping[str, Layout]]]:
    """What the kernels that can run a node declare of it: operand names, inputs first, the nest, and how constants are stored."""
    for kernel in kernels:
        names = operand_names(kernel, node) if kernel.op == node.op and not list_mismatches(kernel, node) else None
        if names is not None and not kernel.packs:  # which others widen
            yield (*names, *kernel.outputs), kernel.nest(node), kernel.layouts


def select_kernels(kernels: Sequence[Kernel], nodes: Sequence[Node], off: Sequence[Kernel] = ()) -> list[tuple[Kernel, ...]]:
    """The kernels of every node that fit it, and that a plan may choose from; in order of preference.

    Args:
        off: kernels of engines that are not to be used.

    Raises:
        NoKernelError: lists every node that has no kernel, with what the closest one would need.
    """
    chosen: list[tuple[Kernel, ...]] = []
    failures: list[str] = []
    for node in nodes:
        candidates = [kernel for kernel in kernels if kernel.op == node.op]
        attempts = [(list_mismatches(kernel, node), kernel) for kernel in candidates]
        fitting = [kernel for problems, kernel in attempts if not problems]
        if fitting:
            chosen.append(_packing_kernels(fitting))
            continue
        types = ", ".join(str(t) for t in node.inputs if t is not None) + " -> " + ", ".join(map(str, node.outputs))
        what = f"{shorten(node.name)} ({shorten(node.op)}): {types}"
        able = list(dict.fromkeys(kernel.engine for kernel in off if kernel.op == node.op and not list_mismatches(kernel, node)))
        if able:
            failures.append(f"{what}; only {' or '.join(able)} could run it, which --engines leaves out")
        elif attempts:
            problems, kernel = min(attempts, key=lambda attempt: len(attempt[0]))
            failures.append(f"{what}; closest kernel {kernel.name} needs {'; '.join(problems)}")
        else:
            failures.append(f"{what}; no kernel of the target has this operator")
    if failures:
        raise NoKernelError(
            f"{len(failures)} node{'s have' if len(failures) > 1 else ' has'} no kernel:\n  " + "\n  ".join(failures),
            "Change the model or its types (--input-type, --dialect), or give the target such a kernel (docs/kernels.md).",
        )
    return chosen


def _packing_kernels(fitting: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """The kernels without those that widen constants of few bits, on engines whose first one reads them packed."""
    firsts: dict[str, Kernel] = {}
    for kernel in fitting:
        firsts.setdefault(kernel.engine, kernel)
    return tuple(kernel for kernel in fitting if kernel.packs or not firsts[kernel.engine].packs)


def bound_geometry(kernel: Kernel, node: Node, stored: dict[str, np.ndarray]) -> Geometry:
    """The kernel's nest with the epilogue's operands, bound to the shapes of the operands as they are stored."""
    names = operand_names(kernel, node)
    assert names is not None
    nest = kernel.nest(node)
    body = set(names) - set(epilogue.stage_operands(node.epilogue))
    result = next(iter(nest.writes.values()), Map())
    reads = {name: access for name, access in nest.reads.items() if name in body}
    nest = replace(nest, reads={**reads, **epilogue.stage_maps(node.epilogue, result)})
    shapes = {n: t.shape for n, t in zip(names, node.inputs, strict=True) if t is not None}
    shapes |= {n: a.shape for n, a in stored.items()}
    shapes |= {n: t.shape for n, t in zip(kernel.outputs, node.outputs, strict=True)}
    return Geometry.bind(nest, shapes)


def inferred_shapes(kernels: Sequence[Kernel], node: Node) -> list[list[int]] | None:
    """Output shapes of an operator from the nest of the first kernel that names it, or None where no kernel does.

    They are none where it has no inputs.

    Every axis of an output is as long as the hull of its expression over the iteration domain.
    """
    kernel = next((kernel for kernel in kernels if kernel.op == node.op), None)
    if kernel is None or not node.operands:
        return None if kernel is None else []
    view = node.another(inputs=tuple(replace(tensor, dtype=DType.FLOAT32, maker=None) for tensor in node.operands), outputs=())
    nest = kernel.nest(view)
    names = [name.rstrip("?") for name in kernel.inputs]
    geometry = Geometry.bind(nest, {name: t.shape for name, t in zip(names, view.operands, strict=False)})
    return [[axis.span(geometry.box())[1] + 1 for axis in nest.writes[name].axes] for name in kernel.outputs]


def custom_type(kernels: Sequence[Kernel], node: Node) -> DType | None:
    """The result type of an operator outside ONNX and the dialect: the one that the first kernel accepting its inputs states.

    None for other operators, and where the kernel leaves a choice.
    """
    if not node.domain or node.domain == MICROSOFT:
        return None
    for kernel in kernels:
        names = [name.rstrip("?") for name in kernel.inputs]
        if kernel.op != node.op or len(node.inputs) > len(names):
            continue
        accepted = (kernel.types.get(n, ANY) for n in names)
        if all(tensor.dtype in types for tensor, types in zip(node.inputs, accepted, strict=False) if tensor is not None):
            results = kernel.types.get(kernel.outputs[0], frozenset())
            return next(iter(results)) if len(results) == 1 else None
    return None
