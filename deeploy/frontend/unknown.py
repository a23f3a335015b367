"""Operators that nobody knows: neither ONNX, nor a rule of this package, nor the target, nor the file by the shapes that it declares.

They are looked for before anything is inferred, so that a model is refused for them, with all their names, and not for what follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from deeploy.errors import UnsupportedError, shorten
from deeploy.frontend.expand.expansion import EXPANSIONS
from deeploy.frontend.schemas import FALLBACK, RECORDS, canonical_domain, explain_misplaced
from deeploy.frontend.shapes import read_type
from deeploy.frontend.structure import check_and_sort, is_control, node_graphs
from deeploy.frontend.walk import CustomShapes
from deeploy.ir.nodes import Node

_MOST_SHOWN = 6  # operators that a message names
_MOST_PLACES = 3  # and nodes of each


def is_unknown(node: onnx.NodeProto) -> bool:
    """Whether the importer itself can say nothing of a node's outputs; a name that is another operator's has a refusal of its own."""
    domain = canonical_domain(node.domain, node.op_type)
    key = (domain, node.op_type)
    if domain == FALLBACK or key in EXPANSIONS or key in RECORDS:
        return False
    return explain_misplaced(node.op_type, domain) is None and (bool(domain) or not onnx.defs.has(node.op_type))


def check_known(graph: onnx.GraphProto, custom_shapes: CustomShapes | None) -> None:
    """Raise UnsupportedError where nodes that are always computed have operators that nobody knows.

    Of an ``If`` one branch may never be: those are looked at once they are walked over.
    """
    if any(_is_refused(node, graph, custom_shapes) for node in check_and_sort(graph) if node.op_type != "If"):
        raise unknown_operators(graph, custom_shapes)


def unknown_operators(graph: onnx.GraphProto, custom_shapes: CustomShapes | None, first: onnx.NodeProto | None = None) -> UnsupportedError:
    """The error for the operators of a graph that nobody knows, and for that of the node ``first``."""
    nodes = [*([first] if first is not None else []), *_refused_nodes(graph, custom_shapes)]
    unknown: dict[str, dict[str, None]] = {}
    for node in nodes:
        place = shorten(node.name or next(iter(node.output), ""), 40)
        unknown.setdefault(f"{shorten(node.op_type, 40)} {_describe_origin(node)}", {})[place] = None
    listed = [f"{name} ({_enumerate_places(list(places))})" for name, places in list(unknown.items())[:_MOST_SHOWN]]
    more = f", and {len(unknown) - _MOST_SHOWN} more" if len(unknown) > _MOST_SHOWN else ""
    what = "an operator is unknown" if len(unknown) == 1 else f"{len(unknown)} operators are unknown"
    return UnsupportedError(
        f"{what}: {'; '.join(listed)}{more}",
        "export the model with operators of ONNX in their place, quantisers as QuantizeLinear and DequantizeLinear, "
        "or add them to the target and declare their shapes in value_info (docs/tutorial-operator.md)",
    )


def _describe_origin(node: onnx.NodeProto) -> str:
    domain = canonical_domain(node.domain, node.op_type)
    return f"of the domain '{shorten(domain, 40)}'" if domain else "in the domain of ONNX"


def _enumerate_places(places: Sequence[str]) -> str:
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return f"node{'s' * (len(places) > 1)} {', '.join(places[:_MOST_PLACES])}{more}"


def _refused_nodes(graph: onnx.GraphProto, custom_shapes: CustomShapes | None) -> Iterable[onnx.NodeProto]:
    """The nodes of a graph, and of those in it, whose operators nobody knows."""
    for node in graph.node:
        if not is_control(node) and _is_refused(node, graph, custom_shapes):
            yield node
        for inner in node_graphs(node):
            yield from _refused_nodes(inner, custom_shapes)


def _is_refused(node: onnx.NodeProto, graph: onnx.GraphProto, custom_shapes: CustomShapes | None) -> bool:
    if is_control(node):
        return any(_is_refused(each, inner, custom_shapes) for inner in node_graphs(node) for each in inner.node if each.op_type != "If")
    if not is_unknown(node):
        return False
    probe = Node(node.name, node.op_type, (), (), {}, domain=node.domain)
    if custom_shapes is not None and custom_shapes(probe) is not None:
        return False
    declared = {value.name: read_type(value.type, {}) for value in (*graph.value_info, *graph.output)}
    return any(name and (name not in declared or declared[name].shape is None) for name in node.output)
