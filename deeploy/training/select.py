"""Which constants of a model are trained, and the graph that reads them as variables, in floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeploy.errors import UsageError, shorten, suggest
from deeploy.frontend.expand.expansion import is_fixed
from deeploy.frontend.gradients import GRADIENTS
from deeploy.frontend.lower.quant import BYTES, behind_dequantisation
from deeploy.frontend.schemas import PRODUCTS
from deeploy.frontend.states import LOSS, RATE
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph, change_nodes, substitute_tensors
from deeploy.training.optimizers import BETAS

LABEL = "label"
RESERVED = (LABEL, RATE, LOSS, "steps", *BETAS)  # names that a step gives itself
_DEVIATION = 0.02  # of the first factor of an update of low rank
_FORMS = "Give all, last:N, lora:RANK, bias, norms, or names of nodes with commas between them."


@dataclass(frozen=True, eq=False)
class Selection:
    """A graph that reads what is trained as variables, and their first values."""

    graph: Graph
    initial: dict[Tensor, np.ndarray]


@dataclass(frozen=True)
class _TrainedWeight:
    """A fixed tensor of floats that a node reads as a weight, or adds."""

    node: Node
    tensor: Tensor
    is_bias: bool


def _weights_of(node: Node) -> list[_TrainedWeight]:
    """The weights of a node; numbers of a formula are none."""
    record, trained = GRADIENTS.get(node.op), list[_TrainedWeight]()
    for position in sorted((*record.weights, *record.biases)) if record is not None else ():
        tensor = node.inputs[position] if position < len(node.inputs) else None
        if record is None or tensor is None or not tensor.dtype.is_float or not is_fixed(tensor):
            continue
        if node.op in PRODUCTS or tensor.elements > 1 or tensor.shape[-1:] == node.outputs[0].shape[-1:]:
            trained.append(_TrainedWeight(node, tensor, position in record.biases))
    return trained


def select_weights(graph: Graph, wanted: str) -> Selection:
    """The graph with variables for the weights that ``--train`` names.

    Raises:
        UsageError: it names none.
    """
    selection = _with_factors(graph, _read_count(wanted)) if wanted.startswith("lora:") else _with_variables(graph, wanted)
    if not selection.initial:
        raise UsageError(f"--train {shorten(wanted)}: the model has no such weights", _FORMS)
    return replace(selection, graph=_in_floats(selection.graph, selection.initial))


def _read_count(wanted: str) -> int:
    """The number behind the colon."""
    word, _, text = wanted.partition(":")
    if not text.isdecimal() or not 0 < int(text) < 10_000:
        raise UsageError(f"--train {shorten(wanted)}: {shorten(text)} is no number above 0", f"For example: --train {word}:1")
    return int(text)


def _chosen_weights(graph: Graph, wanted: str) -> list[_TrainedWeight]:
    weights = [weight for node in graph.nodes for weight in _weights_of(node)]
    if wanted == "all":
        return weights
    if wanted in ("bias", "norms"):
        return [each for each in weights if (each.is_bias if wanted == "bias" else each.node.op.endswith("Normalization"))]
    if wanted.startswith("last:"):
        places = {node: place for place, node in enumerate(graph.nodes)}
        products = sorted({places[each.node] for each in weights if each.node.op in PRODUCTS})[-_read_count(wanted) :]
        return [each for each in weights if products and places[each.node] >= products[0]]
    names, known = wanted.split(","), {each.node.name for each in weights}
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--train: there is no node {shorten(unknown[0])} with weights", suggest(unknown[0], known) + _FORMS)
    return [each for each in weights if each.node.name in names]


def _taken_names(graph: Graph) -> set[str]:
    """Names that no state may have: those of inputs and outputs, and of what a step adds."""
    return {*RESERVED, *(tensor.name for tensor in (*graph.inputs, *graph.outputs))}


def _claim_name(name: str, taken: set[str]) -> str:
    """A name like this one that nothing has; it is taken then."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _with_variables(graph: Graph, wanted: str) -> Selection:
    initial, variables, taken = dict[Tensor, np.ndarray](), dict[Tensor, Tensor](), _taken_names(graph)
    for weight in _chosen_weights(graph, wanted):
        tensor = weight.tensor
        if tensor in variables:
            continue
        quantised = behind_dequantisation(tensor)
        value = tensor.data if quantised is None or quantised.tensor.data is None else quantised.real(quantised.tensor.data)
        if value is None:
            raise UsageError(f"--train: weights of node {shorten(weight.node.name)} are computed from constants", "Train other nodes.")
        name = (tensor.name if quantised is None else quantised.tensor.name) or weight.node.name
        variables[tensor] = Tensor(_claim_name(name, taken), tensor.shape, tensor.dtype)
        initial[variables[tensor]] = value
    return Selection(substitute_tensors(graph, variables), initial)


def _with_factors(graph: Graph, rank: int) -> Selection:
    """Products of data and matrices get a summand: the data times two factors of low rank, the second zeros at first (LoRA)."""
    random, initial, taken = np.random.default_rng(0), dict[Tensor, np.ndarray](), _taken_names(graph)

    def change(node: Node) -> Node:
        weights = [each.tensor for each in _weights_of(node) if not each.is_bias]
        if node.op not in PRODUCTS or [w.rank for w in weights] != [2] or weights[0] is not node.inputs[1] or node.attrs.get("transA"):
            return node
        (w,), (x, *_), y = weights, node.operands, node.outputs[0]
        inner, outer = w.shape[::-1] if node.attrs.get("transB") else w.shape
        if min(inner, outer) <= rank:
            return node
        factors = {"down": (inner, rank), "up": (rank, outer)}
        down, up = (Tensor(_claim_name(f"{node.name}.{name}", taken), shape, w.dtype) for name, shape in factors.items())
        initial[down] = (random.standard_normal(down.shape) * _DEVIATION).astype(np.float32)
        initial[up] = np.zeros(up.shape, np.float32)
        frozen = node.another(outputs=[replace(y, name=f"{y.name} (frozen)", maker=None)]).outputs[0]
        return Node(f"{node.name}.sum", "Add", (frozen, x @ down @ up), (replace(y, maker=None),), domain="")

    return Selection(change_nodes(graph, change), initial)


def _in_floats(graph: Graph, variables: Sequence[Tensor] | dict[Tensor, np.ndarray]) -> Graph:
    """The graph in which nothing is quantised that depends on variables."""
    moving = set(variables)

    def change(node: Node) -> Node:
        if moving.isdisjoint(node.operands):
            return node
        results = [replace(y, maker=None, dtype=DType.FLOAT32 if y.dtype in BYTES else y.dtype) for y in node.outputs]
        if node.op in ("QuantizeLinear", "DequantizeLinear"):
            node = Node(node.name, "Identity", node.inputs[:1], tuple(results), domain="")
        else:
            node = node.another(outputs=results)
        moving.update(node.outputs)
        return node

    return change_nodes(graph, change)
