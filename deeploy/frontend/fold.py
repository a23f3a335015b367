"""Values of nodes whose inputs are all constant, computed by the reference implementation of the onnx package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from deeploy.errors import UnsupportedError, shorten
from deeploy.frontend.schemas import signature
from deeploy.frontend.shapes import Value
from deeploy.frontend.structure import describe

# Their constants stay in the graph: scale and zero point of a weight are what a quantised model consists of.
_KEPT = frozenset({"DequantizeLinear"})
_RANDOM = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"})
_MOST_ELEMENTS = 1 << 28  # of a computed constant: no machine that this compiles for holds more

_FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


def is_foldable(op: str, domain: str, version: int) -> bool:
    """Whether ``evaluate`` can compute an operator."""
    return not domain and op not in _KEPT | _RANDOM and signature(op, version, frozenset(), 1) is not None


def evaluate(
    node: onnx.NodeProto, attributes: dict[str, Any], arrays: Sequence[np.ndarray | None], outputs: Sequence[Value], version: int
) -> list[np.ndarray]:
    """The node's outputs for constant inputs, in the element types of ``outputs`` where these are known.

    Raises:
        UnsupportedError: the constant would be huge, or the reference implementation cannot compute it.
    """
    from onnx.reference import ReferenceEvaluator  # only here: its import takes longer than that of a whole small model

    sizes = [value.static_shape for value in outputs]
    if any(math.prod(shape) > _MOST_ELEMENTS for shape in sizes if shape is not None):
        raise UnsupportedError(
            f"{describe(node)} computes a constant of shape {next(s for s in sizes if s is not None)}",
            f"constants have at most {_MOST_ELEMENTS} elements",
        )
    found = signature(node.op_type, version, frozenset(attributes), len(arrays))
    version = found.schema.since_version if found is not None and found.schema.since_version > version else version
    inputs = ["" if array is None else f"i{i}" for i, array in enumerate(arrays)]
    copy = helper.make_node(node.op_type, inputs, [f"o{i}" for i in range(len(node.output))])
    copy.attribute.extend(node.attribute)
    feeds = {name: array for name, array in zip(inputs, arrays, strict=True) if array is not None}
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(copy, opsets={"": version}).run(None, feeds)
    except _FAILURES as error:
        raise UnsupportedError(
            f"{describe(node)} has constant inputs but cannot be computed: {shorten(str(error), 120)}",
            "replace it by its value in the model",
        ) from error
    values = [np.asarray(result) for result in results]
    return [array if value.dtype is None else array.astype(value.dtype, copy=False) for array, value in zip(values, outputs, strict=True)]
