"""Small decoders with caches, in float and QDQ, for the tests of states."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.models import save_graph

HEADS, WIDTH = 2, 8
MODEL = HEADS * WIDTH


@dataclass
class Net:
    """Collects nodes; every method returns the name of its result."""

    is_quantised: bool = False
    score_step: float = 0.05
    cache_step: float = 0.03
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    scales: dict[str, float] = field(default_factory=dict)

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def node(self, op: str, *inputs: str, name: str | None = None, **attrs: Any) -> str:
        result = name or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [result], f"{op}_{len(self.nodes)}", **attrs))
        return result

    def step(self, tensor: str, scale: float, name: str | None = None) -> str:
        """A Quantize and Dequantize pair, where the network is quantised."""
        if not self.is_quantised:
            return tensor if name is None else self.node("Identity", tensor, name=name)
        parameters = [self.constant(np.float32(scale)), self.constant(np.int8(0))]
        return self.node("DequantizeLinear", self.node("QuantizeLinear", tensor, *parameters), *parameters, name=name)

    def weights(self, generator: np.random.Generator, *shape: int) -> str:
        values = generator.normal(scale=0.3, size=shape).astype(np.float32)
        if not self.is_quantised:
            return self.constant(values)
        parameters = [self.constant(np.float32(0.01)), self.constant(np.int8(0))]
        stored = np.clip(np.rint(values / 0.01), -127, 127).astype(np.int8)
        return self.node("DequantizeLinear", self.constant(stored), *parameters)


def _rope(net: Net, x: str) -> str:
    """x * cos + rotated x * sin, along the last axis."""
    half = WIDTH // 2
    first = net.node("Slice", x, net.constant([0]), net.constant([half]), net.constant([3]))
    second = net.node("Slice", x, net.constant([half]), net.constant([WIDTH]), net.constant([3]))
    turned = net.node("Concat", net.node("Neg", second), first, axis=3)
    return net.node("Add", net.node("Mul", x, "cos"), net.node("Mul", net.step(turned, 0.03), "sin"))


def _heads(net: Net, x: str, rows: int | str) -> str:
    shape = [1, rows if isinstance(rows, int) else -1, HEADS, WIDTH]
    return net.node("Transpose", net.node("Reshape", x, net.constant(shape)), perm=[0, 2, 1, 3])


def _layer(net: Net, x: str, number: int, rows: int | str, generator: np.random.Generator, outputs: list[str], begins: bool = False) -> str:
    q, k, v = (net.step(net.node("MatMul", x, net.weights(generator, MODEL, MODEL)), 0.03) for _ in range(3))
    q, k = (net.step(_rope(net, _heads(net, t, rows)), 0.03) for t in (q, k))
    full = []
    for kind, new in (("key", k), ("value", _heads(net, v, rows))):
        past = new if begins else net.step(f"past_key_values.{number}.{kind}", 0.03)
        both = new if begins else net.node("Concat", past, new, axis=2)
        present = net.step(both, net.cache_step, name=f"present.{number}.{kind}")
        outputs.append(present)
        full.append(present)
    scores = net.node("MatMul", q, net.node("Transpose", full[0], perm=[0, 1, 3, 2]))
    scores = net.step(net.node("Mul", scores, net.constant(np.float32(WIDTH**-0.5))), net.score_step)
    scores = net.step(net.node("Add", scores, "mask"), 0.1)
    shares = net.step(net.node("Softmax", scores, axis=3), 1 / 127)
    mixed = net.step(net.node("MatMul", shares, full[1]), 0.03)
    shape = [1, rows if isinstance(rows, int) else -1, MODEL]
    flat = net.node("Reshape", net.node("Transpose", mixed, perm=[0, 2, 1, 3]), net.constant(shape))
    result = net.step(net.node("MatMul", flat, net.weights(generator, MODEL, MODEL)), 0.03)
    return net.step(net.node("Add", x, result), 0.05)


def _saved(graph: onnx.GraphProto, folder: Path) -> Path:
    path = folder / f"{graph.name}.onnx"
    return save_graph(graph, path)


def decoder(
    folder: Path, rows: int = 1, layers: int = 1, is_quantised: bool = False, past: int | str = "past", name: str = "decoder"
) -> Path:
    """Write a decoder: x, cos, sin, mask and caches in; y and caches out. ``rows`` are those of one inference."""
    net = Net(is_quantised)
    generator = np.random.default_rng(7)
    total = past + rows if isinstance(past, int) else "total"
    outputs: list[str] = []
    x = net.step("x", 0.05)
    for number in range(layers):
        x = _layer(net, x, number, rows, generator, outputs)
    y = net.node("Identity", x, name="y")
    shapes: dict[str, list[int | str]] = {
        "x": [1, rows, MODEL],
        "cos": [1, 1, rows, WIDTH],
        "sin": [1, 1, rows, WIDTH],
        "mask": [1, 1, rows, total],
    }
    for number in range(layers):
        shapes |= {f"past_key_values.{number}.{kind}": [1, HEADS, past, WIDTH] for kind in ("key", "value")}
    graph = helper.make_graph(
        net.nodes,
        name,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, rows, MODEL])]
        + [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, HEADS, total, WIDTH]) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in net.constants.items()],
    )
    return _saved(graph, folder)


def writer(
    folder: Path,
    tokens: int = 40,
    layers: int = 2,
    last_only: bool = False,
    name: str = "writer",
    has_places: bool = False,
    has_mask: bool = False,
    begins: bool = False,
    cache_step: float = 0.03,
) -> Path:
    """Write a decoder of token numbers, in any number of rows: ids and caches in; scores of the next tokens and caches out.

    The mask and the turns of the rotary embedding follow from the length of a cache. ``last_only`` scores the last row alone. With
    ``has_places``, positions that choose rows of a table and a mask of ones for the rows that are seen are inputs, too; with ``has_mask``,
    what is added to scores is one. One that ``begins`` takes no caches, and returns them with a step of their own.
    """
    net = Net(is_quantised=True, score_step=0.037, cache_step=cache_step)  # no half steps when a mask of zeros vanishes
    generator = np.random.default_rng(11)
    outputs: list[str] = []
    angles = np.arange(64)[:, None] / 100.0 ** (np.arange(WIDTH // 2) * 2 / WIDTH)
    turns = np.concatenate([angles, angles], axis=1).astype(np.float32)
    past = net.constant([0]) if begins else net.node("Shape", "past_key_values.0.key", start=2, end=3)
    total = net.node("Add", past, net.node("Shape", "ids", start=1, end=2))
    for kind, values in (("cos", np.cos(turns)), ("sin", np.sin(turns))):
        net.step(net.node("Slice", net.constant(values), past, total, net.constant([0])), 0.01, name=kind)
    scalar = net.constant(np.array([], np.int64))
    first, last = net.node("Reshape", past, scalar), net.node("Reshape", total, scalar)
    columns = net.node("Range", net.constant(np.int64(0)), last, net.constant(np.int64(1)))
    own = net.node("Unsqueeze", net.node("Range", first, last, net.constant(np.int64(1))), net.constant([1]))
    later = net.node("Cast", net.node("Greater", columns, own), to=TensorProto.FLOAT)
    far = net.constant(np.float32(-100))
    causal = net.node("Mul", later, far, name=None if has_places or has_mask else "mask")
    if has_places:
        hidden = net.node("Sub", net.constant(np.float32(1)), net.node("Cast", "seen", to=TensorProto.FLOAT))
        net.node("Add", causal, net.node("Unsqueeze", net.node("Mul", hidden, far), net.constant([1, 2])), name="mask")
    x = net.step(net.node("Gather", net.weights(generator, tokens, MODEL), "ids", axis=0), 0.05)
    if has_places:
        x = net.step(net.node("Add", x, net.step(net.node("Gather", net.weights(generator, 32, MODEL), "places", axis=0), 0.05)), 0.05)
    for number in range(layers):
        x = _layer(net, x, number, "rows", generator, outputs, begins)
    if last_only:
        x = net.node("Slice", x, net.constant([-1]), net.constant([1 << 40]), net.constant([1]))
    net.step(net.node("MatMul", x, net.weights(generator, MODEL, tokens)), 0.05, name="scores")
    caches = [] if begins else [f"past_key_values.{number}.{kind}" for number in range(layers) for kind in ("key", "value")]
    present = "rows" if begins else "total"
    sources: dict[str, list[int | str]] = {"ids": [1, "rows"]} | ({"seen": [1, present], "places": [1, "rows"]} if has_places else {})
    masks = {"mask": [1, 1, "rows", present]} if has_mask else {}
    graph = helper.make_graph(
        net.nodes,
        name,
        [helper.make_tensor_value_info(n, TensorProto.INT64, s) for n, s in sources.items()]
        + [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in masks.items()]
        + [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, HEADS, "past", WIDTH]) for n in caches],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 1 if last_only else "rows", tokens])]
        + [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, HEADS, present, WIDTH]) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in net.constants.items()],
    )
    return _saved(graph, folder)


def attention(folder: Path, rows: int, name: str = "attention") -> Path:
    """Write a quantised block of causal attention without caches: x in, y out; turns and mask are constants."""
    net = Net(is_quantised=True)
    angle = np.arange(rows)[:, None] / 100.0 ** (np.arange(WIDTH // 2) * 2 / WIDTH)
    angles = np.concatenate([angle, angle], axis=1)
    for kind, values in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
        net.step(net.constant(values.astype(np.float32)), 0.01, name=kind)
    net.step(net.constant(np.triu(np.full((rows, rows), -10, np.float32), 1)), 0.1, name="mask")
    net.node("Identity", _layer(net, net.step("x", 0.05), 0, rows, np.random.default_rng(7), [], begins=True), name="y")
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [1, rows, MODEL]) for end in "xy"]
    constants = [numpy_helper.from_array(v, n) for n, v in net.constants.items()]
    return _saved(helper.make_graph(net.nodes, name, ends[:1], ends[1:], constants), folder)


def steps(count: int, rows: int, context: int, seed: int = 3) -> list[dict[str, np.ndarray]]:
    """Inputs of consecutive inferences; masks have room for the whole context and hide what is later than a row."""
    generator = np.random.default_rng(seed)
    result = []
    for number in range(count):
        at = number * rows + np.arange(rows)
        angle = at[:, None] / 100.0 ** (np.arange(WIDTH // 2) * 2 / WIDTH)
        angles = np.concatenate([angle, angle], axis=1)[None, None]
        mask = np.where(np.arange(context) <= at[:, None], 0, -10).astype(np.float32)
        x = generator.normal(size=(1, rows, MODEL)).astype(np.float32)
        turn = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
        result.append({"x": x, **turn, "mask": mask[None, None]})
    return result


def stacked(path: Path, samples: list[dict[str, np.ndarray]]) -> Path:
    """Samples as an npz, stacked on a new first axis."""
    np.savez(path, **{name: np.stack([sample[name] for sample in samples]) for name in samples[0]})
    return path
