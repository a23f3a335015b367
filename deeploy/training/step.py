"""The graph of a training step: forward, loss, backward, update; what outlives the step are pairs of an input and an output.

Of a state ``w``, the file has an input with the value that it begins with and an output ``w.next`` (docs/state.md).
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import onnx

from deeploy.errors import UnsupportedError, UsageError, shorten, suggest
from deeploy.frontend import import_model
from deeploy.frontend.gradients import add_gradients, differentiate_node
from deeploy.frontend.load import read_model
from deeploy.frontend.lower.forms import OPERATORS
from deeploy.frontend.states import LOSS, RATE
from deeploy.frontend.structure import open_inputs
from deeploy.ir.nodes import Node, Tensor, constant, where
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.training.losses import LOSSES, TrainingLoss
from deeploy.training.optimizers import OPTIMIZERS, Optimizer, average
from deeploy.training.recompute import RecomputedTensors, cheap_nodes, comparing_nodes, least_memory, list_variants
from deeploy.training.select import LABEL, RESERVED, Selection, select_weights
from deeploy.training.write import write_step

ONE = constant(np.ones(1, np.float32))
OBJECTIVES: Mapping[str, bool] = {"cycles": False, "ram": True}  # whether plans are compared
ACTIVATIONS: Mapping[str, bool] = {"float32": False, "int8": True}  # whether what the way back reads is stored in bytes
_Choice = TypeVar("_Choice")
_Differentiated: TypeAlias = tuple[Tensor, Tensor, Mapping[Tensor, Tensor]]  # label, loss, and gradients by weight


@dataclass(frozen=True)
class TrainOptions:
    """How a model is trained.

    Attributes:
        loss: a name of ``LOSSES``.
        train: which weights: all, last:N, lora:RANK, bias, norms, or names of nodes.
        optimizer: a name of ``OPTIMIZERS``.
        batch: samples of a step; None: as many as the model has.
        accumulate: steps whose gradients are added up before weights change.
        recompute: what is cheap is computed again where gradients need it, instead of being there in between.
        objective: ram: compute again what lowers the peak of RAM of the plan for a target.
        target: that one, by its name; None: the one that options begin with.
        activations: int8: what gradients read of the way there is stored in 8 bits.
    """

    loss: str
    train: str = "all"
    optimizer: str = "sgd"
    batch: int | None = None
    accumulate: int = 1
    recompute: bool = False
    objective: str = "cycles"
    target: str | None = None
    activations: str = "float32"


class _StepStates:
    """Tensors that outlive a step: what each begins with, and what it is behind the step."""

    def __init__(self) -> None:
        self.initial: dict[Tensor, np.ndarray] = {}
        self.following: dict[Tensor, Tensor] = {}

    def add(self, name: str, value: np.ndarray) -> Tensor:
        tensor = Tensor(name, value.shape, DType.of(value.dtype))
        self.initial[tensor] = value
        return tensor


@dataclass(frozen=True)
class TrainedGraphs:
    """The training step of a model, and the model itself with the states of the step; both as ONNX."""

    step: onnx.ModelProto
    inference: onnx.ModelProto


def make_graphs(path: Path, options: TrainOptions, dims: Mapping[str, int] | None = None) -> TrainedGraphs:
    """The training step of a model, and the model as it reads the weights that the step changes.

    Raises:
        ModelError, UnsupportedError, UsageError: the model cannot be read or has no gradient, or options do not fit it.
    """
    loss, optimizer = _choose(LOSSES, options.loss, "--loss"), _choose(OPTIMIZERS, options.optimizer, "--optimizer")
    if options.accumulate < 1 or (options.batch is not None and options.batch < 1):
        raise UsageError("--batch and --accumulate are numbers above 0", "For example: --batch 8 --accumulate 4")
    graph = OPERATORS(import_model(path, dims) if options.batch is None else _import_batch(path, options.batch, dims or {}))
    selection = select_weights(graph, options.train)
    moving, in_bytes = _learning_tensors(selection), _choose(ACTIVATIONS, options.activations, "--activations")

    def build(repeated: Collection[Node]) -> TrainedGraphs:
        compared = comparing_nodes(selection.graph) if in_bytes else set[Node]()
        again = RecomputedTensors({*repeated, *compared}, in_bytes)
        return _build_graphs(graph, selection, options, optimizer, _differentiate_loss(selection, loss, moving, again))

    if _choose(OBJECTIVES, options.objective, "--objective"):
        return build(least_memory(list_variants(selection.graph, moving), lambda repeated: build(repeated).step, options.target))
    return build(cheap_nodes(selection.graph) if options.recompute else ())


def _learning_tensors(selection: Selection) -> set[Tensor]:
    """The weights that are trained, and what depends on them."""
    moving = set(selection.initial)
    for node in selection.graph.nodes:
        if not moving.isdisjoint(node.operands):
            moving.update(node.outputs)
    return moving


def _build_graphs(
    graph: Graph, selection: Selection, options: TrainOptions, optimizer: Optimizer, derivatives: _Differentiated
) -> TrainedGraphs:
    label, cost, gradients = derivatives
    rate, states = Tensor(RATE, (1,), DType.FLOAT32), _StepStates()
    _update_weights(states, selection, gradients, optimizer, rate, options.accumulate)
    inputs = (*selection.graph.inputs, label, rate)
    if twice := [t.name for t in (*inputs[:-2], *selection.graph.outputs) if t.name in RESERVED]:
        raise UsageError(f"the model has an input or output called {twice[0]}, as the step has", "Rename it in the model.")
    domains = graph.opset, graph.domains
    step = write_step(Graph(graph.name, inputs, (cost,), *domains), {LOSS: cost}, states.initial, states.following)
    outputs = {tensor.name: tensor for tensor in selection.graph.outputs}
    unchanged = {state: state for state in states.following}
    return TrainedGraphs(step, write_step(replace(selection.graph, name=graph.name), outputs, states.initial, unchanged))


def make_step(path: Path, options: TrainOptions, dims: Mapping[str, int] | None = None) -> onnx.ModelProto:
    """The training step of a model as ONNX; errors are those of ``make_graphs``."""
    return make_graphs(path, options, dims).step


def _choose(table: Mapping[str, _Choice], name: str, option: str) -> _Choice:
    if name not in table:
        raise UsageError(f"{option} {shorten(name)} is unknown", f"{suggest(name, table)}Give one of {', '.join(table)}.")
    return table[name]


def _import_batch(path: Path, batch: int, dims: Mapping[str, int]) -> Graph:
    """A model whose inputs have ``batch`` samples on their first axis."""
    model = read_model(path)
    for value in open_inputs(model.graph):
        axes = value.type.tensor_type.shape.dim
        if axes and not (axes[0].dim_param and axes[0].dim_param in dims):
            axes[0].dim_value = batch
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    with tempfile.TemporaryDirectory() as scratch:
        other = Path(scratch) / "batch.onnx"
        other.write_bytes(model.SerializeToString())
        return import_model(other, dims)


def _differentiate_loss(selection: Selection, loss: TrainingLoss, moving: AbstractSet[Tensor], again: RecomputedTensors) -> _Differentiated:
    """The label, the mean loss of the first output, and the gradient of that for every weight."""
    graph, prediction = selection.graph, selection.graph.outputs[0]
    if (last := prediction.made_by(loss.squashed)) is not None:
        prediction = last.operands[0]
    if not prediction.dtype.is_float:
        raise UnsupportedError(
            f"output '{shorten(prediction.name)}' is {prediction.dtype.value}, no float", "Train a model whose first output is."
        )
    shape, dtype = loss.label(prediction.shape)
    label = Tensor(LABEL, tuple(shape), dtype)
    cost, gradient = loss.of(prediction, label)
    known = {prediction: gradient}
    for node in reversed(graph.nodes):
        results = [known.get(y) for y in node.outputs]
        if moving.isdisjoint(node.operands) or not any(results):
            continue
        for x, found in zip(node.inputs, differentiate_node(again.node(node), results), strict=False):
            total = None if x is None or x not in moving else add_gradients(known.get(x), found)
            if x is not None and total is not None:
                known[x] = total
    gradients = {weight: known[weight] for weight in selection.initial if weight in known}
    if not gradients:
        raise UsageError("the first output does not depend on what is trained", "Train other nodes: --train.")
    return label, cost, gradients


def _update_weights(
    states: _StepStates, selection: Selection, gradients: Mapping[Tensor, Tensor], optimizer: Optimizer, rate: Tensor, accumulate: int
) -> None:
    """Every weight and what the optimiser remembers, as states; with ``accumulate``, they change in every so many steps."""
    last: Tensor | None = None
    if accumulate > 1:
        count = states.add("steps", np.zeros(1, np.float32))
        last = (count + 1.0).apply("Greater", accumulate - 0.5)
        states.following[count] = where(last, 0.0, count + 1.0)

    def follow(state: Tensor, new: Tensor) -> None:
        states.following[state] = new if last is None else where(last, new, state)

    shares = []
    for name, beta in optimizer.betas.items():
        share = states.add(name, np.zeros(1, np.float32))
        shares.append(average(share, ONE, beta))
        follow(share, shares[-1])
    for weight, gradient in gradients.items():
        states.initial[weight] = selection.initial[weight]
        if last is not None:
            total = states.add(f"{weight.name}.gradient", np.zeros(weight.shape, np.float32))
            gradient = total + gradient
            states.following[total] = where(last, 0.0, gradient)
            gradient = gradient * (1 / accumulate)
        memory = [states.add(f"{weight.name}.{name}", np.zeros(weight.shape, np.float32)) for name in optimizer.memory]
        new, remembered = optimizer.update(rate, weight, gradient, memory, shares)
        for state, following in zip((weight, *memory), (new, *remembered), strict=True):
            follow(state, following)
