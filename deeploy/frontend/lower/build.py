"""Pieces that lowering rules build graphs from. Lowered nodes have the domain ``deeploy``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.graph.nodes import Node, Tensor
from deeploy.graph.types import DType

DOMAIN = "deeploy"


def lowered(node: gs.Node) -> bool:
    """Whether the node is an operator of the integer form already."""
    return bool(node.domain == DOMAIN)


def variable(name: str, dtype: np.typing.DTypeLike, shape: Sequence[int]) -> gs.Variable:
    return gs.Variable(name, np.dtype(dtype), [int(n) for n in shape])


def const(name: str, values: np.typing.ArrayLike, dtype: np.typing.DTypeLike | None = None) -> gs.Constant:
    return gs.Constant(name, np.ascontiguousarray(np.asarray(values, dtype)))


def described(node: gs.Node) -> Node:
    """The read-only view of a lowered node, which has no absent operands, that declarations are evaluated on."""
    return Node(node.name, node.op, tuple(map(_described, node.inputs)), tuple(map(_described, node.outputs)), node.attrs)


def _described(tensor: gs.Tensor) -> Tensor:
    data = np.asarray(tensor.values) if isinstance(tensor, gs.Constant) else None
    return Tensor(tensor.name, tuple(int(n) for n in tensor.shape), DType.of(tensor.dtype), data)


def take_over(node: gs.Node) -> gs.Variable:
    """Disconnect the only result of ``node`` and return it."""
    y = node.outputs[0]
    node.outputs.clear()
    return y
