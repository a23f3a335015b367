"""Graphs of the integer form, node by node, for tests of passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.ir.nodes import INTEGER_FORM as DOMAIN


def variable(name: str, dtype: np.typing.DTypeLike, shape: Sequence[int]) -> gs.Variable:
    return gs.Variable(name, np.dtype(dtype), list(shape))


def const(name: str, values: np.typing.ArrayLike, dtype: np.typing.DTypeLike | None = None) -> gs.Constant:
    return gs.Constant(name, np.ascontiguousarray(np.asarray(values, dtype)))


def add(graph: gs.Graph, op: str, inputs: Sequence[gs.Tensor], output: gs.Tensor, name: str | None = None, **attrs: Any) -> gs.Tensor:
    """Append a lowered node that computes ``output`` and return it; an old producer of ``output`` is disconnected."""
    for old in list(output.inputs):
        old.outputs = [t for t in old.outputs if t is not output]
    graph.nodes.append(gs.Node(op, name or output.name, attrs, list(inputs), [output], domain=DOMAIN))
    return output


def reshape(graph: gs.Graph, x: gs.Tensor, shape: Sequence[int], label: str) -> gs.Tensor:
    """``x`` under another shape; a constant is reshaped at once."""
    if isinstance(x, gs.Constant):
        return const(f"{x.name} ({label})", np.asarray(x.values).reshape(shape))
    if list(x.shape) == list(shape):
        return x
    return add(graph, "Reshape", [x], variable(f"{x.name} ({label})", x.dtype, shape))


def transpose(graph: gs.Graph, x: gs.Tensor, perm: Sequence[int], label: str) -> gs.Tensor:
    """``x`` with its axes reordered; a constant is transposed at once."""
    if list(perm) == list(range(len(perm))):
        return x
    if isinstance(x, gs.Constant):
        return const(f"{x.name} ({label})", np.asarray(x.values).transpose(perm))
    return add(graph, "Transpose", [x], variable(f"{x.name} ({label})", x.dtype, [x.shape[p] for p in perm]), perm=tuple(perm))
