"""Graphs that benchmarks write node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Graph:
    """Collects nodes and constants; every method returns the name of its result. Random numbers are seeded."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, values: Any, kind: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def node(self, op: str, *inputs: str, name: str = "", **attrs: Any) -> str:
        """A node; ``name`` is that of its result, where it matters."""
        result = name or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [result], f"{op}_{len(self.nodes)}", **attrs))
        return result
