"""Whether a graph is well formed, and an order in which its nodes can run.

ONNX demands that names are unique, that every input is produced and that nodes are sorted. The first two are checked;
nodes are sorted here, since not every exporter does, and nodes that no output depends on are left out. Branches of an ``If`` and bodies
of loops are graphs that may read what is outside of them; they are checked together with the graph that they are in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx
from onnx import AttributeProto

from deeploy.errors import ModelError, UnsupportedError, shorten

_EXPORT_AGAIN = "the file is damaged or was edited; export the model again"
_MOST_SHOWN = 5  # nodes of a cycle that a message names
CONTROL = ("If", "Loop", "Scan")


def describe_node(node: onnx.NodeProto) -> str:
    """How messages call a node: its name, or where it has none, what it computes."""
    name = f"'{shorten(node.name)}'" if node.name else f"that computes '{shorten(next(iter(node.output), ''))}'"
    return f"node {name} ({shorten(node.op_type)})"


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and those that its nodes hold."""
    yield graph
    for node in graph.node:
        for inner in node_graphs(node):
            yield from all_graphs(inner)


def node_graphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs that the attributes of a node hold."""
    return [graph for attribute in node.attribute for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)]


def open_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs of a graph that have no value in the file."""
    constants = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in constants]


def read_names(node: onnx.NodeProto) -> list[str]:
    """The names of the tensors that a node depends on: its inputs, and what the graphs that it holds read of what is around them."""
    return [name for name in node.input if name] + [name for graph in node_graphs(node) for name in _captured_names(graph)]


def _captured_names(graph: onnx.GraphProto) -> list[str]:
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    used = [*(name for node in graph.node for name in read_names(node)), *(value.name for value in graph.output)]
    return [name for name in dict.fromkeys(used) if name not in own]


def check_structure(graph: onnx.GraphProto, around: Iterable[str] = ()) -> None:
    """Raise unless names are unique and nodes can be sorted: whoever follows a graph from name to name relies on both.

    Args:
        around: names that a branch may read of the graph that it is in.

    Raises:
        ModelError: names that are not unique, tensors that nobody produces, cycles, a graph without outputs.
        UnsupportedError: sparse constants, values that are not tensors.
    """
    producers, _ = _order_nodes(graph, around)
    for node in graph.node:
        if is_control(node):
            for inner in node_graphs(node):
                check_structure(inner, producers)


def check_and_sort(graph: onnx.GraphProto, around: Iterable[str] = ()) -> list[onnx.NodeProto]:
    """The nodes that the outputs depend on, sorted topologically and otherwise in the order of the file.

    Raises:
        ModelError: as ``check_structure``.
        UnsupportedError: as ``check_structure``; graphs in nodes that are no control flow.
    """
    for node in graph.node:
        _check_attributes(node)
    producers, order = _order_nodes(graph, around)
    return _used_nodes(graph, producers, order)


def _order_nodes(graph: onnx.GraphProto, around: Iterable[str]) -> tuple[dict[str, int], list[int]]:
    """The producers of all tensors, and the indices of all nodes in a topological order."""
    around = list(around)
    _check_values(graph, is_inner=bool(around))
    producers = {**dict.fromkeys(around, -1), **_find_producers(graph)}
    _check_inputs(graph, producers)
    return producers, _sort_nodes(graph.node, producers)


def _check_values(graph: onnx.GraphProto, is_inner: bool) -> None:
    if not graph.output:
        raise ModelError("the graph has no outputs", _EXPORT_AGAIN)
    if graph.sparse_initializer:
        name = shorten(graph.sparse_initializer[0].values.name)
        raise UnsupportedError(f"tensor '{name}' is a sparse constant", "store it as a dense tensor")
    for kind, values in (("input", graph.input), ("output", graph.output)):
        _check_unique((value.name for value in values), kind)
        for value in values:
            if value.type.WhichOneof("value") not in ("tensor_type", None if kind == "output" or is_inner else "tensor_type"):
                raise UnsupportedError(
                    f"graph {kind} '{shorten(value.name)}' is a {value.type.WhichOneof('value') or 'value without a type'}",
                    "only dense tensors can be inputs and outputs; give it a tensor type",
                )
    _check_unique((tensor.name for tensor in graph.initializer), "initialiser")


def _check_unique(names: Iterable[str], kind: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not name:
            raise ModelError(f"a graph {kind} has no name", _EXPORT_AGAIN)
        if name in seen:
            raise ModelError(f"two graph {kind}s are called '{shorten(name)}'", "give each tensor its own name")
        seen.add(name)


def _check_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            raise ModelError(f"{describe_node(node)} takes attribute '{shorten(attribute.name)}' of a function it is not in", _EXPORT_AGAIN)
        is_graph = attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) or attribute.HasField("g") or attribute.graphs
        if is_graph and not is_control(node):
            raise UnsupportedError(
                f"{describe_node(node)} holds a subgraph: only If, Loop and Scan may",
                "export the model with operators of ONNX in its place",
            )
    if is_control(node):
        _ = if_branches(node) if node.op_type == "If" else body_of(node)


def is_control(node: onnx.NodeProto) -> bool:
    """Whether a node is control flow, which holds graphs."""
    return node.op_type in CONTROL and is_standard(node)


def is_standard(node: onnx.NodeProto) -> bool:
    """Whether a node's operator is one of ONNX, by its domain."""
    return node.domain in ("", "ai.onnx")


def count_inputs(node: onnx.NodeProto) -> int:
    """How many inputs a node has, without absent ones at the end."""
    return max((position for position, name in enumerate(node.input, 1) if name), default=0)


def if_branches(node: onnx.NodeProto) -> tuple[onnx.GraphProto, onnx.GraphProto]:
    """What an ``If`` computes where its condition holds, and where it does not.

    Raises:
        ModelError: it has not one condition, two branches, and from each as many outputs as it has.
    """
    graphs = {attribute.name: attribute.g for attribute in node.attribute if attribute.type == AttributeProto.GRAPH}
    if set(graphs) != {"then_branch", "else_branch"} or len(node.attribute) != 2 or len(node.input) != 1 or not node.input[0]:
        raise ModelError(f"{describe_node(node)} has not one condition and two branches", _EXPORT_AGAIN)
    for branch in graphs.values():
        if branch.input or len(branch.output) != len(node.output):
            told = f"{len(branch.input)} inputs and {len(branch.output)} outputs"
            raise ModelError(f"{describe_node(node)} has a branch of {told}; none and {len(node.output)} are needed", _EXPORT_AGAIN)
    return graphs["then_branch"], graphs["else_branch"]


@dataclass(frozen=True)
class Scanned:
    """What a ``Scan`` reads part by part and writes part by part.

    Attributes:
        carried: how many inputs and outputs are handed from round to round.
        input_axes, input_reversed: of every other input, the axis along which it is read, and whether from its end.
        output_axes, output_reversed: of every other output.
    """

    carried: int
    input_axes: Sequence[int]
    input_reversed: Sequence[bool]
    output_axes: Sequence[int]
    output_reversed: Sequence[bool]


def scan_attributes(node: onnx.NodeProto, body: onnx.GraphProto) -> Scanned:
    """The attributes of a ``Scan``.

    Raises:
        ModelError: they do not fit each other, the inputs, or the outputs of the body.
    """
    given = {attribute.name: attribute for attribute in node.attribute}
    count = given["num_scan_inputs"].i if "num_scan_inputs" in given else 0
    carried = len(node.input) - count
    if not 1 <= count <= len(node.input) or len(body.output) < carried:
        raise ModelError(
            f"{describe_node(node)} scans {count} of {len(node.input)} inputs and has {len(body.output)} results", _EXPORT_AGAIN
        )

    def numbers(name: str, length: int) -> list[int]:
        values = list(given[name].ints) if name in given else [0] * length
        if len(values) != length:
            raise ModelError(f"{describe_node(node)} has {len(values)} {shorten(name)} instead of {length}", _EXPORT_AGAIN)
        return values

    results = len(body.output) - carried
    return Scanned(
        carried,
        numbers("scan_input_axes", count),
        [bool(way) for way in numbers("scan_input_directions", count)],
        numbers("scan_output_axes", results),
        [bool(way) for way in numbers("scan_output_directions", results)],
    )


def body_of(node: onnx.NodeProto) -> onnx.GraphProto:
    """What a ``Loop`` or ``Scan`` computes in every round.

    Raises:
        ModelError: it has no body, or one that has other inputs or outputs than the node gives and takes.
    """
    body: onnx.GraphProto | None = next(
        (attribute.g for attribute in node.attribute if attribute.name == "body" and attribute.HasField("g")), None
    )
    if body is None:
        raise ModelError(f"{describe_node(node)} has no body", _EXPORT_AGAIN)
    carried = scan_attributes(node, body).carried if node.op_type == "Scan" else len(node.input) - 1
    first = int(node.op_type == "Loop")  # its first two inputs may be absent, and the first result of its body is the condition
    is_short = not all(node.input[2 * first :]) or (first and carried < 1) or carried > len(body.output)
    if is_short or len(body.input) != len(node.input) or len(node.output) > len(body.output) - first:
        told = f"{len(body.input)} inputs and {len(body.output)} outputs"
        raise ModelError(
            f"{describe_node(node)} has {len(node.input)} inputs, {len(node.output)} outputs and a body of {told}", _EXPORT_AGAIN
        )
    return body


def _find_producers(graph: onnx.GraphProto) -> dict[str, int]:
    """Index of the producing node by tensor name; -1 for inputs and initialisers."""
    producers = {value.name: -1 for value in graph.input}
    producers.update((tensor.name, -1) for tensor in graph.initializer)
    for index, node in enumerate(graph.node):
        for name in node.output:
            if name in producers:
                raise ModelError(f"{describe_node(node)} computes '{shorten(name)}', which exists already", "give each tensor its own name")
            if name:
                producers[name] = index
    return producers


def _check_inputs(graph: onnx.GraphProto, producers: dict[str, int]) -> None:
    for node in graph.node:
        for name in read_names(node):
            if name not in producers:
                raise ModelError(f"{describe_node(node)} reads '{shorten(name)}', which nothing produces", _EXPORT_AGAIN)
    for value in graph.output:
        if value.name not in producers:
            raise ModelError(f"nothing produces the graph output '{shorten(value.name)}'", _EXPORT_AGAIN)


def _sort_nodes(nodes: Sequence[onnx.NodeProto], producers: dict[str, int]) -> list[int]:
    """Indices in a topological order: that of the file, with what a node reads in front of it."""
    done: dict[int, None] = {}
    sources = [list(dict.fromkeys(producers[name] for name in read_names(node))) for node in nodes]
    done[-1] = None  # inputs and initialisers
    for root in range(len(nodes)):
        path = {} if root in done else {root: None}
        while path:
            index = next(reversed(path))
            source = next((s for s in sources[index] if s not in done), None)
            if source is None:
                done[index] = path.pop(index)
            elif source in path:
                walked = list(path)
                raise _cycle_error([describe_node(nodes[i]) for i in walked[walked.index(source) :][::-1]])
            else:
                path[source] = None
    return list(done)[1:]


def _cycle_error(cycle: list[str]) -> ModelError:
    """The error for nodes of a cycle, each before those that read it."""
    more = f", and {len(cycle) - _MOST_SHOWN} more" if len(cycle) > _MOST_SHOWN else ""
    what = f"the graph has a cycle through {', '.join(cycle[:_MOST_SHOWN])}{more}" if len(cycle) > 1 else f"{cycle[0]} reads its own output"
    return ModelError(what, _EXPORT_AGAIN)


def _used_nodes(graph: onnx.GraphProto, producers: dict[str, int], order: list[int]) -> list[onnx.NodeProto]:
    needed = {producers[value.name] for value in graph.output}
    for index in reversed(order):
        if index in needed:
            needed.update(producers[name] for name in read_names(graph.node[index]))
    return [graph.node[index] for index in order if index in needed]
