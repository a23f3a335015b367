"""Masks of attention: what is hidden gets scores of -10000 to minus infinity, which the scale of the others must not follow.

In front of a softmax it is enough that hidden scores lie so far below the lowest of the others that all of them together are less than
a step of the result. Ranges are chosen so; what lies below them saturates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from deeploy.frontend.structure import read_names
from deeploy.quantization.samples import Sample

HIDDEN = -1e3  # a score below it is a hidden one
_LOWEST = -1e4  # what constants hold at least instead, so that sums and products of them are finite
_MARGIN = 8.0  # e^-8 is a tenth of a step of 1/256
_ON_THE_WAY = frozenset(
    [
        *("Add", "Sub", "Mul", "Div", "Where", "Max", "Cast", "Gemm", "Identity"),
        *("Concat", "Expand", "Gather", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    ]
)

Tensors = Callable[[onnx.ModelProto, str, Sequence[str], Sequence[Sample]], Iterator[list[np.ndarray]]]


def score_nodes(graph: onnx.GraphProto) -> dict[str, list[onnx.NodeProto]]:
    """The nodes that move, scale and mask the scores of every softmax, by its input; those next to the softmax come first."""
    makers = {name: node for node in graph.node for name in node.output}
    nodes_by_mask: dict[str, list[onnx.NodeProto]] = {}
    for softmax in (node for node in graph.node if node.op_type == "Softmax"):
        nodes: list[onnx.NodeProto] = []
        ahead = [softmax.input[0]]
        while ahead:
            maker = makers.get(ahead.pop(0))
            if maker is not None and maker.op_type in _ON_THE_WAY and all(maker is not node for node in nodes):
                nodes.append(maker)
                ahead += _masked_inputs(maker)
        nodes_by_mask[softmax.input[0]] = nodes
    return nodes_by_mask


def _masked_inputs(node: onnx.NodeProto) -> Sequence[str]:
    """The inputs of a node that may be scores or masks: of a product with a mask as its summand, that one."""
    return list(node.input)[2 if node.op_type == "Gemm" else 0 :]


def masked_tensors(graph: onnx.GraphProto) -> set[str]:
    """Names of the tensors that may hold hidden scores."""
    return {name for nodes in score_nodes(graph).values() for node in nodes for name in (*_masked_inputs(node), *node.output)}


def bound_masks(graph: onnx.GraphProto) -> None:
    """Raise the constants of masks that are below -10000 to that."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    replaced: list[onnx.TensorProto] = []
    for node in (node for nodes in score_nodes(graph).values() for node in nodes):
        for position, name in enumerate(node.input):
            if name not in _masked_inputs(node):
                continue
            values = numpy_helper.to_array(constants[name]) if name in constants else np.zeros(0)
            if values.dtype.kind != "f" or not (values < _LOWEST).any():
                continue
            raised = f"{name} (bounded)"
            if raised not in constants:
                constants[raised] = numpy_helper.from_array(np.maximum(values, values.dtype.type(_LOWEST)), raised)
                graph.initializer.append(constants[raised])
            node.input[position] = raised
            replaced.append(constants[name])
    read = {name for node in graph.node for name in read_names(node)} | {value.name for value in graph.output}
    for tensor in replaced:
        if tensor.name not in read and tensor in graph.initializer:
            graph.initializer.remove(tensor)


def score_ranges(model: onnx.ModelProto, name: str, samples: Sequence[Sample], tensors: Tensors) -> dict[str, tuple[float, float]]:
    """The limits of all tensors that hold hidden scores, by their names.

    Args:
        model: its constants are bounded.
        tensors: computes tensors of a model for every sample (``deeploy.quantization.run.run_tensors``).
    """
    tensors_of = {
        end: {name for node in nodes for name in (*_masked_inputs(node), *node.output)} for end, nodes in score_nodes(model.graph).items()
    }
    every = set().union(*tensors_of.values())
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name in every}
    groups = {end: names - {""} for end, names in tensors_of.items() if _may_hide(names, constants, model.graph)}
    given = {value.name for value in model.graph.input}
    computed = sorted(set().union(*groups.values()) - constants.keys() - given)
    seen = {name: _SeenMask() for name in set().union(*groups.values())}
    for name in seen.keys() & constants.keys():
        seen[name].add(constants[name])
    for sample, values in zip(samples, tensors(model, name, computed, samples) if computed else (), strict=False):
        for each, array in (*zip(computed, values, strict=True), *((name, sample[name]) for name in seen.keys() & sample.keys())):
            seen[each].add(array)
    ranges: dict[str, tuple[float, float]] = {}
    for end, names in groups.items():
        if not seen[end].hides:
            continue
        margin = _MARGIN + math.log(max(1, seen[end].columns))
        depth = seen[end].high - seen[end].low + margin
        for each in names:
            if seen[each].hides:
                lower = seen[each].low - (margin if each == end else depth)
                ranges[each] = (min(lower, ranges.get(each, (lower, 0.0))[0]), seen[each].high)
    return ranges


def _may_hide(names: set[str], constants: dict[str, np.ndarray], graph: onnx.GraphProto) -> bool:
    """Whether a mask is among these tensors: a constant that is low, or floats that are given."""
    given = {value.name for value in graph.input if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    known = [constants[name] for name in names & constants.keys()]
    return bool(names & given) or any(values.dtype.kind == "f" and (values < HIDDEN).any() for values in known)


class _SeenMask:
    """What is known of a tensor over all samples: the limits of scores that are not hidden (0 without any), and whether others are."""

    def __init__(self) -> None:
        self.low, self.high, self.hides, self.columns = 0.0, 0.0, False, 1
        self._any = False

    def add(self, values: np.ndarray) -> None:
        if values.dtype.kind != "f":
            return
        shown = values[values >= HIDDEN]
        self.hides |= shown.size < values.size
        self.columns = max(self.columns, values.shape[-1] if values.ndim else 1)
        if shown.size:
            low, high = float(shown.min()), float(shown.max())
            self.low, self.high = (min(self.low, low), max(self.high, high)) if self._any else (low, high)
            self._any = True
