"""Requantisations that an engine computes itself instead of leaving its sums to cores (``--requantise engine``).

A layer keeps its exact requantisation where some engine computes that, or where none computes the layer. For the others, constants are
looked for that an engine's requantiser has room for, with results that are nearest to the exact ones (``deeploy.operators.nearest``):
they become the constants of the node, so that everything behind, references included, has the engine's arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from deeploy.errors import UsageError
from deeploy.ir import epilogue
from deeploy.ir.kernel import Kernel
from deeploy.ir.nodes import Node, constant
from deeploy.ir.target import Engine, Target
from deeploy.ir.values import Graph, change_nodes
from deeploy.operators.nearest import Nearest, nearest_results
from deeploy.operators.requantise import fused_stage
from deeploy.planning.binding.kernels import list_mismatches
from deeploy.planning.plan import Machine

TRIED = 8  # shifts of which an engine may refuse the first


@dataclass(frozen=True, eq=False)
class Requantised:
    """A layer whose requantisation an engine computes: the node as it was, and the constants that it has instead."""

    exact: Node
    engine: str
    nearest: Nearest

    @property
    def result(self) -> str:
        """The name of the tensor that the layer computes."""
        return self.exact.outputs[0].name


def engines_of(target: Target, machine: Machine) -> dict[str, Engine]:
    """The engines with a requantiser that a plan may use, by name.

    Raises:
        UsageError: there are none.
    """
    able = {engine.name: engine for engine in target.engines if engine.requantiser is not None}
    engines = {name: engine for name, engine in able.items() if not machine.engines or name in machine.engines}
    if not engines:
        left_out = f"--engines leaves out {' and '.join(able)}" if able else f"target {target.name} has none"
        remedy = "Leave --requantise out, or let --engines name it." if able else "Leave --requantise out: results are exact then."
        raise UsageError(f"--requantise engine needs an engine that requantises its sums itself: {left_out}", remedy)
    return engines


def requantise_graph(graph: Graph, engines: Mapping[str, Engine], kernels: Sequence[Kernel]) -> tuple[list[Requantised], list[str]]:
    """The layers of a lowered graph for which there are constants that their engine computes with.

    Args:
        kernels: that a plan may choose from.

    Returns:
        these, and the names of nodes that stay exact, as no constants of an engine keep one step.
    """
    layers: list[Requantised] = []
    exact: list[str] = []
    for node in graph.nodes:
        fitting = [kernel for kernel in kernels if kernel.engine in engines and kernel.op == node.op and not list_mismatches(kernel, node)]
        if not fitting or any(kernel.post_processing is None for kernel in fitting) or fused_stage(node) is None:
            continue
        names = dict.fromkeys(kernel.engine for kernel in fitting)
        layer = next(
            (layer_by_engine for name in names if (layer_by_engine := _requantise_by(engines[name], node, kernels)) is not None), None
        )
        if layer is None:
            exact.append(node.name)
        else:
            layers.append(layer)
    return layers, exact


def _requantise_by(engine: Engine, node: Node, kernels: Sequence[Kernel]) -> Requantised | None:
    """A node for an engine; None where it has no kernel for what is nearest."""
    staircase = fused_stage(node)
    assert staircase is not None and engine.requantiser is not None
    own = [kernel for kernel in kernels if kernel.engine == engine.name and kernel.op == node.op and kernel.post_processing is None]
    for parameters in islice(nearest_results(*staircase, node.attrs["shift"], engine.requantiser), TRIED):
        if any(not list_mismatches(kernel, _set_constants(parameters, node)) for kernel in own):
            return Requantised(node, engine.name, parameters)
    return None


def with_nearest(graph: Graph, layers: Sequence[Requantised]) -> Graph:
    """A graph whose layers have the constants of their engines."""
    parameters = {layer.result: layer.nearest for layer in layers}
    return change_nodes(
        graph, lambda node: _set_constants(parameters[node.outputs[0].name], node) if node.outputs[0].name in parameters else node
    )


def _set_constants(parameters: Nearest, node: Node) -> Node:
    """A node with the constants of a requantiser.

    Its bias is in ``add``, and is zero where channels have shifts of their own: a kernel may keep these in its place.
    """
    shift = int(parameters.shift.max())
    left = shift - parameters.shift
    added = {"mul": parameters.mul << left, "add": parameters.add << left}
    stages: tuple[str, ...] = ("requantise",)
    if left.any():
        added, stages = {"bias": np.zeros_like(left), **added}, ("bias", "requantise")
    kinds = {name: np.int32 if np.abs(values).max() < 2**31 else np.int64 for name, values in added.items()}
    constants = [
        replace(constant(values.astype(kinds[name])), name=f"{node.outputs[0].name}_nearest_{name}") for name, values in added.items()
    ]
    attrs = {name: value for name, value in node.attrs.items() if name != "even"}
    body = node.inputs[: -len(epilogue.stage_operands(node.epilogue))]
    return node.another(inputs=(*body, *constants), attrs={**attrs, "epilogue": stages, "shift": shift})
