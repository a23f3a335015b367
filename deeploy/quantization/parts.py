"""What of a network's outputs is judged by itself: every output, and every operand of a Concat of unlike ones.

One scale for values of which some are hundreds and others below one leaves nothing of the latter; the sum of all errors does not show it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from deeploy.quantization.run import values_of
from deeploy.quantization.samples import Sample

UNLIKE = 4.0  # between the largest magnitudes of operands: two of eight bits
MOVES = frozenset({"Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
_ALL = slice(None)


@dataclass(frozen=True)
class TensorPart:
    """A tensor of the float network, or what one operand of a Concat makes of it.

    Attributes:
        label: how it is called.
        place: where it lies in the tensor.
        is_output: whether it leaves the network as it is, or only moved.
    """

    tensor: str
    label: str
    place: tuple[slice, ...]
    is_output: bool


def parts_of(model: onnx.ModelProto, name: str, samples: Sequence[Sample], states: Mapping[str, str]) -> list[TensorPart]:
    """The outputs that are no states, and the operands of Concats whose largest magnitudes differ by ``UNLIKE`` or more."""
    graph, carried = model.graph, set(states.values())
    outputs = [v.name for v in graph.output if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT and v.name not in carried]
    parts = [TensorPart(output, f"output {output}", (), True) for output in outputs]
    concats = [node for node in graph.node if node.op_type == "Concat"]
    names = list(dict.fromkeys(name for node in concats for name in node.input))
    largest, shapes = dict.fromkeys(names, 0.0), dict[str, tuple[int, ...]]()
    for values in values_of(model, name, names, samples) if names else ():
        for each, array in values.items():
            finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
            shapes[each], largest[each] = array.shape, max(largest[each], float(np.abs(finite).max(initial=0)))
            largest[each] = largest[each] if array.dtype.kind == "f" else 0.0
    tail = {node.name for node in moved_out(model.graph, carried)}
    for node in concats:
        sizes = [largest[name] for name in node.input if largest[name]]
        if not sizes or max(sizes) < UNLIKE * min(sizes):
            continue
        axis, start = onnx.helper.get_node_attr_value(node, "axis"), 0
        for each in node.input:
            stop = start + shapes[each][axis]
            place = (*[_ALL] * (axis % len(shapes[each])), slice(start, stop))
            if largest[each]:
                told = f"{each} in {node.name} (largest {largest[each]:.3g} of {max(sizes):.3g})"
                parts.append(TensorPart(node.output[0], told, place, node.name in tail))
            start = stop
    return parts


def moved_out(graph: onnx.GraphProto, carried: Collection[str]) -> list[onnx.NodeProto]:
    """The nodes that only move what leaves the network and is not carried to the next step, from the last to the first."""
    readers: dict[str, list[str]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.name)
    moved: dict[str, onnx.NodeProto] = {}
    for node in reversed(graph.node):
        if (
            node.op_type in MOVES
            and not any(name in carried for name in node.output)
            and all(reader in moved for name in node.output for reader in readers.get(name, ()))
        ):
            moved[node.name] = node
    return list(moved.values())


def kept_apart(graph: onnx.GraphProto, parts: Sequence[TensorPart], states: Mapping[str, str]) -> list[str]:
    """Names of the Concats of unlike operands that lead to outputs, and of what moves their results: they stay in float."""
    unlike = {part.tensor for part in parts if part.is_output and part.place}
    apart: list[str] = []
    for node in reversed(moved_out(graph, states.values())):
        if unlike & {*node.input, *node.output}:
            unlike |= set(node.output)
            apart.append(node.name)
    return apart
