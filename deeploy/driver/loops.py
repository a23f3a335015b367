"""Loops that stay loops, as kernels: a round is a network of its own on one core and in one memory, the working memory of the kernel.

All its operands are whole, on every target. A nested loop is a kernel of the round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from deeploy.backend.loops import ALIGNMENT, LoopText, print_loop_kernel
from deeploy.execution.simulation.interpreter import network_outputs
from deeploy.fallback.portable import HEADER, STRUCT
from deeploy.frontend.rounds import BODY, LOOPS, Body
from deeploy.ir.kernel import Kernel, Operator, Reference, Scratch, Tiling
from deeploy.ir.nest import Map, Nest, coupled
from deeploy.ir.nodes import Node, constant
from deeploy.ir.target import Memory, Rate, Target
from deeploy.ir.templates import template_lookup
from deeploy.ir.values import Graph, change_nodes
from deeploy.options import Options
from deeploy.planning import cost
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.planner.machine import kernels_of, machine_of
from deeploy.planning.planner.network import make_plan
from deeploy.planning.program import Program

Lower = Callable[[Body, Target], tuple[Graph, Target]]  # a round for a target, and the target with the kernels of loops in it


def with_loops(graph: Graph, target: Target, lower: Lower) -> tuple[Graph, Target]:
    """A graph whose loops are nodes of kernels, and the target with these."""

    def changed(node: Node) -> Node:
        nonlocal target
        if node.domain == LOOPS and BODY in node.attrs:
            node, target = _with_loop(node, target, lower)
        return node

    return change_nodes(graph, changed), target


def _with_loop(node: Node, target: Target, lower: Lower) -> tuple[Node, Target]:
    body: Body = node.attrs[BODY]
    graph, flat = lower(body, _flat_target(target))
    machine = machine_of(flat, Options())
    plan = make_plan(assemble_program("round", graph, *kernels_of(flat, machine)), replace(flat, timing=None), machine)
    text = print_loop_kernel(plan, body, template_lookup(tuple(flat.template_folders)), STRUCT)
    constants = (replace(constant(buffer.data), name=f"{node.name}_{buffer.name}") for buffer in text.constants if buffer.data is not None)
    attrs = {name: value for name, value in node.attrs.items() if name != BODY}
    node = node.another(inputs=(*node.inputs, *constants), attrs=attrs)
    kernel = _loop_kernel(node, body, text, plan.program, target.engines[0].name)
    node = node.another(op=kernel.op)
    target = replace(target, kernels=(*target.kernels, kernel))
    if target.timing is None:
        return node, target
    cycles = body.rounds * sum(_round_cycles(plan.program, step, flat) for step in range(len(plan.program.calls)))
    rate = Rate(0.0, 0.0, cycles / sum(tensor.elements for tensor in node.outputs), is_estimate=True)
    return node, replace(target, timing=replace(target.timing, kernels={**target.timing.kernels, kernel.name: rate}))


def _flat_target(target: Target) -> Target:
    """One core of a target's first engine with one memory, and the kernels that it runs alone."""
    kernels = [
        replace(kernel, scratch={name: replace(each, cores=1) for name, each in kernel.scratch.items()})
        for kernel in target.computing
        if kernel.engine == target.engines[0].name and not (kernel.forks or kernel.post_processing or kernel.resident or kernel.phases)
    ]
    return replace(target, memories=(Memory("arena", alignment=ALIGNMENT),), paths=(), engines=(), kernels=tuple(kernels))


def _round_cycles(program: Program, step: int, target: Target) -> float:
    """Cycles of a call of a round on one core, whose instructions are not cached any more since the round before."""
    call = program.calls[step]
    rate, sizes = cost.kernel_rate(call, target), call.geometry.extents
    return (
        rate.call
        + rate.cold
        + float(cost.work_of(call, rate).cycles(lambda name, size: cost.whole_steps(sizes[name], size) if size else 1))
    )


def _loop_kernel(node: Node, body: Body, text: LoopText, program: Program, engine: str) -> Kernel:
    """The kernel of a loop: whole operands, nothing tiled, one core."""
    inputs, results = (tuple(f"{kind}{at}" for at in range(len(operands))) for kind, operands in (("x", node.inputs), ("y", node.outputs)))
    shapes = dict(zip(results, (tensor.shape for tensor in node.outputs), strict=True))
    dims = {name: coupled(*(f"{name}_{axis}" for axis in range(len(shape)))) for name, shape in shapes.items()}
    nest = Nest(reads={}, writes={name: Map(*axes) for name, axes in dims.items()})
    tensors = zip((*inputs, *results), (*node.operands, *node.outputs), strict=True)
    digest = hashlib.sha256(f"{text.text}{text.parts}".encode()).hexdigest()[:8]
    source = f"{STRUCT}/loop_{digest}.c"
    operator = Operator(f"{node.op}.{digest}", inputs, lambda _: nest, _loop_reference(body, program, len(text.constants)))
    return operator.kernel(
        f"loop_{digest}",
        source,
        outputs=results,
        types={name: frozenset({tensor.dtype}) for name, tensor in tensors},
        struct=STRUCT,
        settings=lambda _: {"names": inputs, "results": results},
        scratch={"work": Scratch(lambda _, extents: max(1, text.scratch))},
        tiling=Tiling(whole=tuple(dim.name for axes in dims.values() for dim in axes)),
        engine=engine,
        texts={source: text.text, f"{STRUCT}/{STRUCT}.h": HEADER},
        parts=text.parts,
    )


def _loop_reference(body: Body, program: Program, constants: int) -> Reference:
    """All rounds by the references of their kernels."""

    def reference(node: Node, *given: np.ndarray) -> tuple[np.ndarray, ...]:
        values = given[: len(given) - constants]
        carried, scanned = list(values[: body.carried]), values[body.carried : body.carried + len(body.backwards)]
        parts: list[list[np.ndarray]] = [[] for _ in body.results_backwards]
        for i in range(body.rounds):
            now = [array[-1 - i if way else i] for array, way in zip(scanned, body.backwards, strict=True)]
            number = [np.array(i, np.int64)] if body.has_number else []
            results = network_outputs(program, [*carried, *now, *values[body.carried + len(scanned) :], *number])
            carried = results[: body.carried]
            for rows, row in zip(parts, results[body.carried :], strict=True):
                rows.append(row)
        ways = zip(parts, body.results_backwards, strict=True)
        return (*carried, *(np.stack(rows[::-1] if way else rows) for rows, way in ways))

    return reference
