"""Operators that become others while a model is walked over, where shapes and constants are known: a table of expansions."""

from __future__ import annotations

import onnx

from deeploy.frontend.expand import ai_onnx_ml as classic
from deeploy.frontend.expand import attention, images, products, recurrent, training, trees
from deeploy.frontend.expand import indexing as places
from deeploy.frontend.expand.expansion import EXPANSIONS, Expansion
from deeploy.frontend.schemas import Attributes
from deeploy.frontend.walk import GraphWalk

__all__ = ["attention", "classic", "expand", "images", "places", "products", "recurrent", "training", "trees"]


def expand(walk: GraphWalk, node: onnx.NodeProto, domain: str, attributes: Attributes) -> bool:
    """Put what a node is made of in its place; False where it stays.

    Raises:
        ModelError: the node does not fit its inputs.
        UnsupportedError: something of the operator is not supported.
    """
    expansion = EXPANSIONS.get((domain, node.op_type))
    return expansion is not None and Expansion(walk, node, attributes).expand(expansion)
