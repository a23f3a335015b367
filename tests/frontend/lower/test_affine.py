"""Multiplications, additions and borders beside products: they become weights, biases and pads, and results stay what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import deeploy
from deeploy import chips as distributed
from deeploy.frontend.lower.affine import fold_model
from tests.models import model_of, save_graph

PRODUCTS = ("conv", "grouped conv", "conv of rows", "transposed conv", "grouped transposed conv", "gemm", "gemm transB", "matmul")
STEPS = ("norm", "mul", "mul by one", "div", "add", "sub", "sub from")


class Network:
    """A chain of nodes from one input; ``kept`` are nodes that have to stay."""

    def __init__(self, seed: int, *shape: int) -> None:
        self.random, self.shape = np.random.default_rng(seed), list(shape)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.source, self.result = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape), int(onnx.TensorProto.FLOAT)

    def constant(self, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def values(self, *shape: int, low: float = -1.0) -> str:
        return self.constant(self.random.uniform(low, 1.5, shape).astype(np.float32))

    def then(self, op: str, *others: str, swapped: bool = False, **attributes: Any) -> None:
        name = self.nodes[-1].output[0] if self.nodes else "x"
        inputs = [*others, name] if swapped else [name, *others]
        self.nodes.append(helper.make_node(op, inputs, [f"t{len(self.nodes)}"], f"n{len(self.nodes)}", **attributes))

    def product(self, kind: str) -> None:
        if "conv" in kind:
            groups = 2 if "grouped" in kind else 1
            weights: tuple[int, ...] = (4, 6 // groups, 3) if "transposed" in kind else (6, 4 // groups, 3)
            if kind == "conv of rows":
                self.then("Unsqueeze", self.constant(np.array([2])))
                weights = (6, 4, 1, 3)
            bias = [self.values(6)] * int(self.random.integers(2))
            self.then("ConvTranspose" if "transposed" in kind else "Conv", self.values(*weights), *bias, group=groups)
            if kind == "conv of rows":
                self.then("Squeeze", self.constant(np.array([2])))
            self.shape[1] = 6
            self.shape[2] += 2 if "transposed" in kind else -2
        else:
            width = self.shape[-1]
            transposed = kind.endswith("transB")
            if kind == "matmul":
                self.then("MatMul", self.values(width, 6))
            else:
                weights = (6, width) if transposed else (width, 6)
                self.then("Gemm", self.values(*weights), self.values(6), alpha=0.5, beta=2.0, transB=int(transposed))
            self.shape[-1] = 6

    def step(self, kind: str) -> None:
        """A multiplication or addition per channel, which is axis 1 of images and the last one of rows."""
        channels = (6, 1) if len(self.shape) == 3 else (6,)
        if kind == "norm" and len(self.shape) in (2, 3):
            self.then("BatchNormalization", *(self.values(6, low=0.5) for _ in range(4)))
        elif kind == "mul by one":
            self.then("Mul", self.values(1))
        elif kind in ("div", "sub from"):
            self.then("Div" if kind == "div" else "Sub", self.values(*channels, low=0.5), swapped=kind == "sub from")
        else:
            self.then({"norm": "Mul"}.get(kind, kind.capitalize()), self.values(*channels))

    def model(self) -> onnx.ModelProto:
        output = helper.make_tensor_value_info(self.nodes[-1].output[0], self.result, self.shape)
        graph = helper.make_graph(self.nodes, "network", [self.source], [output], self.constants)
        return model_of(graph)

    def expected(self, x: np.ndarray) -> np.ndarray:
        """What onnxruntime computes as the file says it: optimised, it rounds to bytes beside weights of bytes."""
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(self.model().SerializeToString(), options, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, {"x": x})[0])

    def operators(self, folder: Path) -> list[str]:
        """The operators of the calls of the compiled network, whose results are compared with those of onnxruntime."""
        onnx.save(self.model(), folder / "m.onnx")
        compiled = deeploy.compile(folder / "m.onnx")
        x = self.random.standard_normal([d.dim_value for d in self.source.type.tensor_type.shape.dim]).astype(np.float32)
        np.testing.assert_allclose(compiled.interpret({"x": x})[0], self.expected(x), rtol=1e-4, atol=1e-4)
        return [call.node.op for call in compiled.network.program.calls if call.node.op != "Copy"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", PRODUCTS)
def test_what_is_behind_a_product_is_in_it(kind: str, seed: int, tmp_path: Path) -> None:
    net = Network(seed, *((2, 4, 7) if "conv" in kind else (3, 5)))
    net.product(kind)
    for _ in range(1 + seed):
        net.step(str(net.random.choice(STEPS)))
    assert net.operators(tmp_path) in (["Conv"], ["ConvTranspose"], ["MatMul"])


@pytest.mark.parametrize("kind", ["conv", "matmul"])
def test_what_is_behind_views_of_a_product_is_in_it(kind: str, tmp_path: Path) -> None:
    net = Network(5, *((2, 4, 7) if kind == "conv" else (3, 5)))
    net.product(kind)
    if kind == "conv":  # channels to the last axis, which becomes two
        net.then("Transpose", perm=[0, 2, 1])
        net.then("Mul", net.values(6))
        net.then("Reshape", net.constant(np.array([10, 6])))
        net.shape = [10, 6]
    else:
        net.then("Reshape", net.constant(np.array([3, 1, 6])))
        net.shape = [3, 1, 6]
    net.then("Add", net.values(6))
    assert net.operators(tmp_path) in (["Conv"], ["MatMul"])


@pytest.mark.parametrize("why", ["two readers", "an output", "other elements", "divided", "shared weights", "split channels"])
def test_what_is_no_row_of_weights_stays(why: str, tmp_path: Path) -> None:
    net = Network(7, 3, 5)
    net.product("matmul")
    weights = net.constants[0].name
    if why == "two readers":
        net.then("Mul", net.values(6))
        net.then("Add", net.nodes[0].output[0])
    elif why == "other elements":
        net.then("Mul", net.values(3, 6))
    elif why == "divided":
        net.then("Div", net.values(6, low=0.5), swapped=True)
    elif why == "shared weights":
        net.then("Mul", net.values(6))
        net.nodes.append(helper.make_node("MatMul", ["x", weights], ["again"], "again"))
        net.nodes.append(helper.make_node("Add", [net.nodes[-2].output[0], "again"], ["sum"], "sum"))
    elif why == "split channels":
        net.then("Reshape", net.constant(np.array([3, 2, 3])))
        net.then("Mul", net.values(2, 1))
        net.shape = [3, 2, 3]
    else:
        net.then("Mul", net.values(6))
    model = net.model()
    if why == "an output":
        model.graph.output.append(helper.make_tensor_value_info(net.nodes[0].output[0], onnx.TensorProto.FLOAT, [3, 6]))
        onnx.save(model, tmp_path / "m.onnx")
        assert [call.node.op for call in deeploy.compile(tmp_path / "m.onnx").network.program.calls] == ["MatMul", "Mul"]
        return
    assert net.operators(tmp_path) != ["MatMul"]


@pytest.mark.parametrize(("before", "after", "dilation"), [(2, 0, 1), (4, 0, 2), (1, 1, 1), (0, 2, 1)])
@pytest.mark.parametrize("kind", ["conv", "conv of rows"])
def test_zeros_around_an_image_are_borders(kind: str, before: int, after: int, dilation: int, tmp_path: Path) -> None:
    net = Network(3, 2, 4, 9)
    net.then("Pad", net.constant(np.array([0, 0, before, 0, 0, after])))
    net.shape[2] += before + after
    net.product(kind)
    conv = next(node for node in net.nodes if node.op_type == "Conv")
    conv.attribute.append(helper.make_attribute("dilations", [dilation] if kind == "conv" else [1, dilation]))
    net.shape[2] -= 2 * (dilation - 1)
    assert net.operators(tmp_path) == ["Conv"]


@pytest.mark.parametrize("why", ["other value", "channels", "wider than the filter", "edge"])
def test_other_borders_stay(why: str, tmp_path: Path) -> None:
    net = Network(3, 2, 4, 9)
    widths = {"channels": [0, 0, 0, 0, 0, 0], "wider than the filter": [0, 0, 3, 0, 0, 0]}.get(why, [0, 0, 1, 0, 0, 1])
    if why == "channels":
        net.shape[1], widths = 3, [0, 1, 0, 0, 0, 0]
        net.source = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, net.shape)
    value = [net.constant(np.array(0.5, np.float32))] if why == "other value" else []
    net.then("Pad", net.constant(np.array(widths)), *value, mode="edge" if why == "edge" else "constant")
    net.shape = [n + a + b for n, a, b in zip(net.shape, widths[:3], widths[3:], strict=True)]
    net.product("conv")
    assert net.operators(tmp_path) == ["Pad", "Conv"]


@pytest.mark.parametrize("kind", PRODUCTS)
def test_a_file_is_folded_for_quantisation(kind: str) -> None:
    net = Network(1, *((2, 4, 7) if "conv" in kind else (3, 5)))
    net.product(kind)
    net.step("norm")
    model = onnx.shape_inference.infer_shapes(net.model())
    folded = fold_model(model)
    onnx.checker.check_model(folded)
    assert not {"BatchNormalization", "Mul"} & {node.op_type for node in folded.graph.node}
    x = net.random.standard_normal([d.dim_value for d in net.source.type.tensor_type.shape.dim]).astype(np.float32)
    session = onnxruntime.InferenceSession(folded.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], net.expected(x), rtol=1e-4, atol=1e-4)


def test_a_file_without_anything_to_fold_stays_the_same() -> None:
    net = Network(1, 3, 5)
    net.product("gemm")
    model = onnx.shape_inference.infer_shapes(net.model())
    assert fold_model(model) is model


@pytest.mark.parametrize("chips", [0, 2])
def test_a_constant_and_its_transpose_are_stored_once(chips: int, tmp_path: Path) -> None:
    """As tied embeddings are, on one chip; two chips hold parts of the transpose."""
    table = np.random.default_rng(1).standard_normal((40, 8)).astype(np.float32)
    net = Network(1, 3)
    net.source = helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [3])
    tensors = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(table.T.copy(), "transposed")]
    nodes = [helper.make_node("Gather", ["table", "x"], ["rows"]), helper.make_node("Tanh", ["rows"], ["t"])]
    nodes.append(helper.make_node("MatMul", ["t", "transposed"], ["y"]))
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 40])
    graph = helper.make_graph(nodes, "network", [net.source], [output], tensors)
    path, x = tmp_path / "m.onnx", np.array([0, 39, 7])
    save_graph(graph, path)
    if chips:
        assert len(distributed.compile(path, "siracusa", chips).plans) == chips
        return
    compiled = deeploy.compile(path)
    np.testing.assert_allclose(compiled.interpret({"x": x})[0], np.tanh(table[x]) @ table.T, rtol=1e-5, atol=1e-6)
    buffers = compiled.network.program.buffers.values()
    assert sum(buffer.bytes for buffer in buffers if buffer.data is not None) == table.nbytes


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("scales", [1, 6])
def test_weights_of_bytes_stay_bytes_beside_floats(scales: int, is_transposed: bool, tmp_path: Path) -> None:
    net = Network(4, 3, 40)
    values = net.random.integers(-128, 128, (6, 40) if is_transposed else (40, 6)).astype(np.int8)
    zeros = net.random.integers(-9, 9, () if scales == 1 else scales).astype(np.int8)
    steps = net.random.uniform(0.01, 0.02, zeros.shape).astype(np.float32)
    axis = 0 if is_transposed else 1
    weights = [net.constant(values), net.constant(steps), net.constant(zeros)]
    net.nodes.append(helper.make_node("DequantizeLinear", weights, ["w"], "weights", axis=axis))
    net.nodes.append(helper.make_node("Gemm", ["x", "w"], ["y"], "product", transB=int(is_transposed)))
    net.shape = [3, 6]
    assert net.operators(tmp_path) == ["BlockMatMul"]
    buffers = deeploy.compile(tmp_path / "m.onnx").network.program.buffers.values()
    assert sum(buffer.bytes for buffer in buffers if buffer.data is not None) <= values.nbytes + 2 * 4 * 6


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("seed", range(4))
def test_a_normalised_image_is_requantised_exactly(dtype: type[np.generic], seed: int, tmp_path: Path) -> None:
    """All values of bytes, in channels of their own means and deviations."""
    net = Network(seed, 1, 256, 3)
    net.source = helper.make_tensor_value_info("x", int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype))), [1, 256, 3])
    mean, deviation = (net.random.uniform(40, 130, 3).astype(np.float32) for _ in range(2))
    step, zero = np.array(net.random.uniform(0.01, 0.03), np.float32), np.array(net.random.integers(-20, 20), np.int8)
    net.then("Cast", to=onnx.TensorProto.FLOAT)
    net.then("Sub", net.constant(mean))
    net.then("Div", net.constant(deviation)) if seed % 2 else net.then("Mul", net.constant(1 / deviation))
    net.then("QuantizeLinear", net.constant(step), net.constant(zero))
    net.result = int(onnx.TensorProto.INT8)
    onnx.save(net.model(), tmp_path / "m.onnx")
    compiled = deeploy.compile(tmp_path / "m.onnx")
    assert [call.node.op for call in compiled.network.program.calls] == ["RequantShift"]
    every = np.arange(256) - (128 if dtype is np.int8 else 0)
    x = np.stack([every] * 3, axis=-1)[None].astype(dtype)
    np.testing.assert_array_equal(compiled.interpret({"x": x})[0], net.expected(x))
