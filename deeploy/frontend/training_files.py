"""Training graphs of others as files have them, in the form that is walked over: optimisers of sequences become one for every tensor.

onnxruntime's optimisers take sequences of weights and gradients. A sequence is known where it is constructed of tensors. Its nodes of
the way back have a description, which is dropped. The loss of the established compiler's training graphs has the shape of its scores, and
is the logarithm of their softmax; one axis is written there as a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
from onnx import helper, numpy_helper

from deeploy.errors import ModelError
from deeploy.frontend.branches import BranchNames
from deeploy.frontend.schemas import MICROSOFT
from deeploy.frontend.structure import describe_node, is_standard

# Positions of sequences among inputs and outputs; each member is a node of its own.
_MEMBERWISE: Mapping[str, tuple[range, range]] = {
    "SGDOptimizerV2": (range(1, 3), range(1, 2)),
    "AdamWOptimizer": (range(2, 6), range(1, 4)),
}
_TOGETHER = "InplaceClipGradNorm"  # all members are inputs and outputs of one node


class _Sequences:
    """The sequences of a file, by their names: the names of their members."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.names = BranchNames.of(model.graph)
        self.members: dict[str, list[str]] = {}
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}

    def rewrite(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """The nodes of tensors that a node becomes."""
        if node.op_type == "SequenceConstruct" and is_standard(node):
            self.members[node.output[0]] = list(node.input)
        elif node.op_type == "SequenceAt" and is_standard(node) and node.input[0] in self.members:
            yield helper.make_node("Identity", [self._pick(node)], node.output, node.name)
        elif node.domain == MICROSOFT and node.op_type == _TOGETHER and node.input and node.input[0] in self.members:
            inputs = self.members[node.input[0]]
            outputs = self._name_members(node.output[0], len(inputs))
            yield _change_node(node, inputs, outputs)
        elif node.domain == MICROSOFT and node.op_type in _MEMBERWISE and self.members.keys() & {*node.input}:
            yield from self._rewrite_memberwise(node)
        else:
            if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].HasField("t"):
                self.constants[node.output[0]] = node.attribute[0].t
            yield node

    def _pick(self, node: onnx.NodeProto) -> str:
        members, place = self.members[node.input[0]], self.constants.get(node.input[1])
        number = None if place is None else numpy_helper.to_array(place)
        if number is None or number.size != 1 or not -len(members) <= number.item() < len(members):
            raise ModelError(f"{describe_node(node)} takes no constant place of {len(members)}", "Give it a constant within the sequence.")
        return members[int(number.item())]

    def _name_members(self, name: str, count: int) -> list[str]:
        self.members[name] = [self.names.fresh(f"{name}.{number}") for number in range(count)] if name else [""] * count
        return self.members[name]

    def _rewrite_memberwise(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        ins, outs = _MEMBERWISE[node.op_type]
        counts = {len(self.members.get(node.input[i], [])) for i in ins if i < len(node.input)}
        if len(counts) != 1:
            raise ModelError(f"{describe_node(node)} takes sequences of different lengths", "Export the model again.")
        count = counts.pop()
        results = {i: self._name_members(node.output[i], count) for i in outs if i < len(node.output)}
        for number in range(count):
            inputs = [self.members[name][number] if i in ins else name for i, name in enumerate(node.input)]
            outputs = [results[i][number] if i in results else name if not number else "" for i, name in enumerate(node.output)]
            yield _change_node(node, inputs, outputs)


def _change_node(node: onnx.NodeProto, inputs: list[str], outputs: list[str]) -> onnx.NodeProto:
    """A node with other inputs and outputs."""
    other = onnx.NodeProto()
    other.CopyFrom(node)
    del other.input[:], other.output[:]
    other.input.extend(inputs)
    other.output.extend(outputs)
    return other


def unpack_training_graph(model: onnx.ModelProto) -> None:
    """Put members in the place of sequences, and the operators in the place of others' spellings, in place."""
    graph = model.graph
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in (*graph.input, *graph.value_info, *graph.output)}
    for node in graph.node:
        for attribute in [each for each in node.attribute if each.name == "description"]:
            node.attribute.remove(attribute)
        for attribute in node.attribute:
            if attribute.name == "axes" and attribute.type == onnx.AttributeProto.INT and attribute.HasField("i") and is_standard(node):
                attribute.CopyFrom(helper.make_attribute("axes", [attribute.i]))
        is_loss = node.op_type == "SoftmaxCrossEntropyLoss" and is_standard(node) and len(node.output) == 1 and len(node.input) > 1
        if is_loss and ranks.get(node.output[0], 0) == ranks.get(node.input[0], 1) > 1:
            node.CopyFrom(helper.make_node("LogSoftmax", node.input[:1], node.output, node.name, axis=1))
    made = {node.output[0] for node in graph.node if node.op_type == "SequenceConstruct" and is_standard(node) and node.output}
    known = {"SequenceAt", _TOGETHER, *_MEMBERWISE}
    if not made or any(made & {*node.input} and (node.op_type not in known or not node.output) for node in graph.node):
        return  # nodes that do not know sequences are refused by name
    sequences = _Sequences(model)
    nodes = [new for node in graph.node for new in sequences.rewrite(node)]
    del graph.node[:]
    graph.node.extend(nodes)
    outputs = [other for value in graph.output for other in _members_of(value, sequences.members)]
    del graph.output[:]
    graph.output.extend(outputs)


def _members_of(value: onnx.ValueInfoProto, members: Mapping[str, list[str]]) -> list[onnx.ValueInfoProto]:
    """An output, or those of the members of a sequence."""
    if value.name not in members:
        return [value]
    return [onnx.ValueInfoProto(name=name) for name in members[value.name]]
