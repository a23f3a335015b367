"""A network of equal layers, as deep as wanted: a transformer encoder whose heads are nodes of their own, 60 nodes per layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TOKENS, WIDTH, HIDDEN, HEADS = 32, 32, 64, 4
NODES_PER_LAYER = 60


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.numbers = np.random.default_rng(0)

    def constant(self, name: str, *shape: int) -> str:
        values = self.numbers.uniform(-0.5, 0.5, shape).astype(np.float32)
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def number(self, name: str, value: float) -> str:
        self.constants.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def add(self, op: str, output: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], f"{output}_node", **attributes))
        return output

    def norm(self, at: str, x: str) -> str:
        return self.add("LayerNormalization", f"{at}_norm", x, self.constant(f"{at}_g", WIDTH), self.constant(f"{at}_b", WIDTH), axis=-1)

    def dense(self, at: str, x: str, rows: int, columns: int) -> str:
        product = self.add("MatMul", f"{at}_product", x, self.constant(f"{at}_w", rows, columns))
        return self.add("Add", f"{at}_sum", product, self.constant(f"{at}_b", columns))

    def head(self, at: str, x: str) -> str:
        size = WIDTH // HEADS
        q, k, v = (self.dense(f"{at}_{part}", x, WIDTH, size) for part in "qkv")
        scores = self.add("MatMul", f"{at}_scores", q, self.add("Transpose", f"{at}_kt", k, perm=[0, 2, 1]))
        scaled = self.add("Mul", f"{at}_scaled", scores, self.number(f"{at}_scale", size**-0.5))
        return self.add("MatMul", f"{at}_mixed", self.add("Softmax", f"{at}_weights", scaled, axis=-1), v)

    def gelu(self, at: str, x: str) -> str:
        erf = self.add("Erf", f"{at}_erf", self.add("Div", f"{at}_scaled", x, self.number(f"{at}_root", 2**0.5)))
        product = self.add("Mul", f"{at}_part", x, self.add("Add", f"{at}_one", erf, self.number(f"{at}_1", 1.0)))
        return self.add("Mul", f"{at}_gelu", product, self.number(f"{at}_half", 0.5))

    def layer(self, at: str, x: str) -> str:
        normed = self.norm(f"{at}_attention", x)
        heads = [self.head(f"{at}_h{h}", normed) for h in range(HEADS)]
        mixed = self.dense(f"{at}_o", self.add("Concat", f"{at}_heads", *heads, axis=-1), WIDTH, WIDTH)
        x = self.add("Add", f"{at}_x", x, mixed)
        inner = self.gelu(f"{at}_mlp", self.dense(f"{at}_up", self.norm(f"{at}_mlp", x), WIDTH, HIDDEN))
        return self.add("Add", f"{at}_y", x, self.dense(f"{at}_down", inner, HIDDEN, WIDTH))


def save(path: Path, layers: int) -> int:
    """Write the network; returns its number of nodes."""
    builder = _Builder()
    x = "x"
    for index in range(layers):
        x = builder.layer(f"l{index}", x)
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, TOKENS, WIDTH])
    result = helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, TOKENS, WIDTH])
    graph = helper.make_graph(builder.nodes, "stacked", [source], [result], builder.constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return len(builder.nodes)
