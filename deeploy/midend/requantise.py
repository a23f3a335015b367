"""Requantisations that an engine computes itself instead of leaving its sums to cores (``--requantise engine``).

A layer keeps its exact requantisation where some engine computes that, or where none computes the layer. For the others, constants are
looked for that an engine's requantiser has room for, with results that are nearest to the exact ones (``deeploy.operators.nearest``):
they become the constants of the node, so that everything behind, references included, has the engine's arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import UsageError
from deeploy.graph import epilogue
from deeploy.graph.kernel import Kernel
from deeploy.graph.nodes import Attributes, Node
from deeploy.graph.surgeon import const
from deeploy.graph.target import Engine, Target
from deeploy.midend.bind import mismatch, view_node
from deeploy.midend.plan import Machine
from deeploy.operators.nearest import Nearest, nearest
from deeploy.operators.requantise import fused

TRIED = 8  # shifts of which an engine may refuse the first


@dataclass(frozen=True, eq=False)
class Requantised:
    """A layer whose requantisation an engine computes: the node as it was, and the constants that it has now."""

    exact: Node
    engine: str
    found: Nearest

    @property
    def result(self) -> str:
        """The tensor that it computes."""
        return self.exact.outputs[0].name


@dataclass(frozen=True, eq=False)
class Change:
    """A layer that is changed in a graph, and what its node was before."""

    layer: Requantised
    node: gs.Node
    inputs: Sequence[gs.Tensor]
    attrs: Attributes

    def undo(self) -> None:
        _write(self.node, self.inputs, self.attrs)


def engines_of(target: Target, machine: Machine) -> dict[str, Engine]:
    """The engines with a requantiser that a plan may use, by name.

    Raises:
        UsageError: there are none.
    """
    able = {engine.name: engine for engine in target.engines if engine.requantiser is not None}
    found = {name: engine for name, engine in able.items() if not machine.engines or name in machine.engines}
    if not found:
        left_out = f"--engines leaves out {' and '.join(able)}" if able else f"target {target.name} has none"
        remedy = "Leave --requantise out, or let --engines name it." if able else "Leave --requantise out: results are exact then."
        raise UsageError(f"--requantise engine needs an engine that requantises its sums itself: {left_out}", remedy)
    return found


def requantise(graph: gs.Graph, engines: Mapping[str, Engine], kernels: Sequence[Kernel]) -> tuple[list[Change], list[str]]:
    """Give the layers of a lowered graph constants that their engine computes with, in place.

    Args:
        kernels: that a plan may choose from.

    Returns:
        what was changed, and the names of nodes that stay exact, as no constants of an engine keep one step.
    """
    changes: list[Change] = []
    exact: list[str] = []
    for node in graph.nodes:
        view = view_node(node)
        fitting = [kernel for kernel in kernels if kernel.engine in engines and kernel.op == node.op and not mismatch(kernel, view)]
        if not fitting or any(kernel.second is None for kernel in fitting) or fused(view) is None:
            continue
        former = node, list(node.inputs), dict(node.attrs)
        names = dict.fromkeys(kernel.engine for kernel in fitting)
        layer = next((found for name in names if (found := _by(engines[name], node, view, kernels)) is not None), None)
        if layer is None:
            exact.append(node.name)
        else:
            changes.append(Change(layer, *former))
    return changes, exact


def _by(engine: Engine, node: gs.Node, view: Node, kernels: Sequence[Kernel]) -> Requantised | None:
    """Change a node for an engine; None, and nothing is changed, where it has no kernel for what is nearest."""
    staircase = fused(view)
    assert staircase is not None and engine.requantiser is not None
    inputs, attrs = list(node.inputs), dict(node.attrs)
    own = [kernel for kernel in kernels if kernel.engine == engine.name and kernel.op == node.op and kernel.second is None]
    for found in islice(nearest(*staircase, attrs["shift"], engine.requantiser), TRIED):
        _write(node, *_with(found, view, inputs, attrs))
        if any(not mismatch(kernel, view_node(node)) for kernel in own):
            return Requantised(view, engine.name, found)
    _write(node, inputs, attrs)
    return None


def _write(node: gs.Node, inputs: Sequence[gs.Tensor], attrs: Attributes) -> None:
    node.inputs = list(inputs)
    node.attrs = dict(attrs)


def _with(found: Nearest, view: Node, inputs: Sequence[gs.Tensor], attrs: Attributes) -> tuple[list[gs.Tensor], Attributes]:
    """The inputs and attributes of a node with the constants of a requantiser.

    Its bias is in ``add``, and is zero where channels have shifts of their own: a kernel may keep these in its place.
    """
    body, shift = inputs[: -len(epilogue.operands(view.epilogue))], int(found.shift.max())
    left = shift - found.shift
    added = {"mul": found.mul << left, "add": found.add << left}
    stages: tuple[str, ...] = ("requantise",)
    if left.any():
        added, stages = {"bias": np.zeros_like(left), **added}, ("bias", "requantise")
    kinds = {name: np.int32 if np.abs(values).max() < 2**31 else np.int64 for name, values in added.items()}
    constants = [const(f"{view.outputs[0].name}_nearest_{name}", values, kinds[name]) for name, values in added.items()]
    kept = {name: value for name, value in attrs.items() if name != "even"}
    return [*body, *constants], {**kept, "epilogue": stages, "shift": shift}
