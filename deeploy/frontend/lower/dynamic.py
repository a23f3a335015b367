"""Quantisation with scales that are computed at run time: the smallest and the largest element give scale and zero point."""

from __future__ import annotations

from deeploy.graph.nodes import Node, Tensor, compute
from deeploy.graph.rewriting import Match, Pass, Result, standard
from deeploy.graph.types import DType
from deeploy.operators.dynamic import LEVELS, SCALE

_ROW = 1024  # elements, from which on extremes are found in two steps


@standard("DynamicQuantizeLinear", lowers=True)
def dynamic(m: Match) -> Result:
    """The extremes, what follows from them, and a Quantize."""
    extremes = tuple(_extreme(m, op) for op in ("ReduceMin", "ReduceMax"))
    results = (Tensor("", (1,), dtype, label=label) for label, dtype in (("scale", DType.FLOAT32), ("zero point", DType.INT32)))
    scale, zero = Node("", SCALE.name, extremes, tuple(results)).outputs
    found = m.replace("Quantize", m.x, scale, zero, low=0, high=LEVELS), scale, compute("Cast", zero, dtype=DType.UINT8)
    return {y: result.reshape(y.shape) for y, result in zip(m.node.outputs, found, strict=False)}


def _extreme(m: Match, op: str) -> Tensor:
    """The smallest or the largest element, of shape [1]: of rows first, which may be cut into tiles."""
    shape, is_channels_first = m.x.shape, any(reader.op == "ConvInteger" for reader in m.readers(m.y))
    rows = next((axis for axis, n in enumerate(shape) if n > 1 and not (is_channels_first and axis == 1)), None)
    found = m.x.reshape(shape or [1])
    if m.x.elements > _ROW and rows is not None and m.x.rank > 1:
        others = tuple(axis for axis in range(m.x.rank) if axis != rows)
        found = compute(op, found, axes=others, keepdims=False, label=f"{op} of rows")
    return (compute(op, found, axes=tuple(range(found.rank)), keepdims=True)).reshape([1])


PASS = Pass("dynamic", (dynamic,))
