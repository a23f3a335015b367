"""Inputs and outputs of lowered graphs."""

from __future__ import annotations

import numpy as np

from deeploy.frontend.io import strip_quantisation
from deeploy.ir.nodes import Node, Tensor, constant
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.operators.link import send


def test_a_chip_that_is_given_integers_sends_what_it_sent() -> None:
    """What only other chips read is no part of what the conversion of an input computes."""
    x, q = Tensor("x", (4,), DType.FLOAT32), Tensor("q", (4,), DType.INT8)
    quantise = Node("quantise", "Quantize", (x, constant(np.float32([0.5])), constant(np.int32([0]))), (q,), {"low": -128, "high": 127})
    clip = Node("clip", "Clip", (q,), (Tensor("y", (4,), DType.INT8),), {"low": 0, "high": 9})
    stripped, found = strip_quantisation(Graph("chip", (x,), (), order=(quantise, clip, send(clip.outputs[0], 1, 0))))
    assert [node.op for node in stripped.nodes] == ["Clip", "Send"] and found == {"x": (0.5, 0)}
    assert stripped.nodes[0].inputs == stripped.inputs and str(stripped.inputs[0]) == "s8[4]"
