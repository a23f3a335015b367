"""Weights of few bits: packed in memory where kernels read them so, and widened where none does; the same results everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.graph.types import DType, pack, unpack
from deeploy.midend.machine import Options

SIGNED, UNSIGNED = (TensorProto.INT4, -8, 7), (TensorProto.UINT4, 0, 15)


@pytest.mark.parametrize("dtype", [DType.INT4, DType.UINT4, DType.INT2, DType.UINT2])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_packed_elements_come_back(dtype: DType, count: int) -> None:
    values = np.random.default_rng(count).integers(*dtype.range, (3, 2, count), dtype.numpy, endpoint=True)
    stored = pack(values, dtype)
    assert stored.shape == (3, 2, -(-count * dtype.bits // 8))
    assert np.array_equal(unpack(stored, dtype, count), values)


def test_the_first_element_is_in_the_lowest_bits() -> None:
    assert pack(np.array([[1, -2, 3]]), DType.INT4).tolist() == [[0xE1, 0x03]]
    assert pack(np.array([1, -2, -1, 0, 1]), DType.INT2).tolist() == [0x39, 0x01]


def network(kind: tuple[int, int, int], channels: int = 5, offset: int = 0) -> onnx.ModelProto:
    """A dense, a grouped and a depthwise convolution, and a product, all of quantised tensors; zero points of weights are ``offset``."""
    code, low, high = kind
    numbers = np.random.default_rng(channels)
    tensors = [numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.int8(3), "z")]
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x.q"]), helper.make_node("DequantizeLinear", ["x.q", "s", "z"], ["x.d"])]
    last = "x.d"

    def layer(name: str, op: str, shape: tuple[int, ...], axis: int, **attrs: object) -> None:
        nonlocal last
        count = shape[axis]
        weights, terms = numbers.integers(low, high, shape, endpoint=True), int(np.prod(shape)) // count
        scales = numbers.uniform(0.05, 0.25, count) / (terms**0.5 if low or offset else terms)
        tensors.append(helper.make_tensor(f"{name}.w", code, shape, weights.ravel()))
        tensors.append(numpy_helper.from_array(scales.astype(np.float32), f"{name}.s"))
        tensors.append(helper.make_tensor(f"{name}.z", code, [count], [offset] * count))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.w", f"{name}.s", f"{name}.z"], [f"{name}.f"], axis=axis))
        nodes.append(helper.make_node(op, [last, f"{name}.f"], [f"{name}.y"], name, **attrs))
        nodes.append(helper.make_node("QuantizeLinear", [f"{name}.y", "s", "z"], [f"{name}.q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.q", "s", "z"], [f"{name}.d"]))
        last = f"{name}.d"

    layer("dense", "Conv", (8, channels, 3, 3), 0, pads=[1, 1, 1, 1])
    layer("grouped", "Conv", (8, 4, 3, 3), 0, group=2)
    layer("depthwise", "Conv", (8, 1, 3, 3), 0, group=8, pads=[1, 1, 1, 1])
    nodes.append(helper.make_node("Flatten", [last], ["flat"]))
    last = "flat"
    layer("product", "MatMul", (8 * 16, 12), 1)
    shapes = {"x": [1, channels, 6, 6], last: [1, 12]}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    return helper.make_model(
        helper.make_graph(nodes, "few", ports[:1], ports[1:], tensors), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same with weights of 8 bits."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for tensor in result.graph.initializer:
        if tensor.data_type in (TensorProto.INT4, TensorProto.UINT4):
            values = numpy_helper.to_array(tensor).astype(np.int8 if tensor.data_type == TensorProto.INT4 else np.uint8)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return result


def weights(compiled: deeploy.Compiled) -> dict[DType, int]:
    """Bytes of constants by type."""
    found: dict[DType, int] = {}
    for buffer in compiled.network.program.buffers.values():
        if buffer.data is not None:
            found[buffer.dtype] = found.get(buffer.dtype, 0) + buffer.bytes
    return found


@pytest.mark.parametrize("kind", [SIGNED, UNSIGNED])
@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize("channels", [5, 8])
def test_few_bits_compute_what_bytes_compute(kind: tuple[int, int, int], target: str, channels: int, tmp_path: Path) -> None:
    model = network(kind, channels)
    onnx.save(model, tmp_path / "few.onnx")
    onnx.save(widened(model), tmp_path / "bytes.onnx")
    options = Options({"l1": 6000}, engines=("cluster",)) if target == "siracusa" else Options()
    few, whole = (deeploy.compile(tmp_path / f"{name}.onnx", target, options=options) for name in ("few", "bytes"))
    given = [np.random.default_rng(2).normal(size=(1, channels, 6, 6)).astype(np.float32) * 3 + 2]
    (wanted,) = whole.interpret(given)
    assert len(np.unique(wanted)) > 4
    assert np.array_equal(few.interpret(given)[0], wanted)
    assert np.array_equal(few.run(given)[0], wanted)
    assert not any(dtype.is_packed for dtype in weights(whole))
    if target == "siracusa":
        assert weights(few).get(DType.INT4, 0) >= (12 * 64 if kind is SIGNED else 0)  # the product; cores read no unsigned ones
    else:
        packed = weights(few)[DType.INT4 if kind is SIGNED else DType.UINT4]
        assert packed == 8 * -(-9 * channels // 2) + 8 * 18 + 12 * 64
        assert sum(weights(few).values()) < sum(weights(whole).values()) - packed + 20


@pytest.mark.parametrize(("offset", "is_packed"), [(8, True), (3, False)])
def test_zero_points_of_weights(offset: int, is_packed: bool, tmp_path: Path) -> None:
    """What is left of 4 bits without their zero point may have a bit more: such weights are bytes."""
    model = network(UNSIGNED, offset=offset)
    onnx.save(model, tmp_path / "few.onnx")
    onnx.save(widened(model), tmp_path / "bytes.onnx")
    few, whole = (deeploy.compile(tmp_path / f"{name}.onnx") for name in ("few", "bytes"))
    given = [np.random.default_rng(2).normal(size=(1, 5, 6, 6)).astype(np.float32)]
    assert np.array_equal(few.run(given)[0], whole.interpret(given)[0])
    assert (DType.INT4 in weights(few)) is is_packed


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_rows_of_a_table_of_few_bits(target: str, tmp_path: Path) -> None:
    numbers = np.random.default_rng(8)
    table = numbers.integers(-8, 7, (20, 12), endpoint=True)
    tensors = [
        numpy_helper.from_array(np.float32(0.25), "s"),
        helper.make_tensor("z", TensorProto.INT4, [], [0]),
        helper.make_tensor("t", TensorProto.INT4, table.shape, table.ravel()),
    ]
    nodes = [helper.make_node("DequantizeLinear", ["t", "s", "z"], ["f"]), helper.make_node("Gather", ["f", "x"], ["y"])]
    ports = [helper.make_tensor_value_info("x", TensorProto.INT64, [5]), helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 12])]
    graph = helper.make_graph(nodes, "table", ports[:1], ports[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "table.onnx")
    compiled = deeploy.compile(tmp_path / "table.onnx", target)
    given = np.array([3, 0, 19, 3, 7])
    assert np.array_equal(compiled.run([given])[0], table[given] * np.float32(0.25))
    assert weights(compiled)[DType.INT4] == table.size // 2
