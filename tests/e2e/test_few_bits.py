"""Weights of few bits: packed in memory where kernels read them so, and widened where none does; the same results everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import DeeployError
from deeploy.ir.types import PACKED, DType, pack_elements, unpack_elements
from deeploy.options import Options
from tests.models import model_of, save_graph

SIGNED, UNSIGNED = (TensorProto.INT4, -8, 7), (TensorProto.UINT4, 0, 15)


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_packed_elements_come_back(dtype: DType, count: int) -> None:
    values = np.random.default_rng(count).integers(*dtype.range, (3, 2, count), dtype.numpy, endpoint=True)
    values |= 1 if dtype is DType.INT1 else 0
    stored = pack_elements(values, dtype)
    assert stored.shape == (3, 2, -(-count * dtype.bits // 8))
    assert np.array_equal(unpack_elements(stored, dtype, count), values)


def test_the_first_element_is_in_the_lowest_bits() -> None:
    assert pack_elements(np.array([[1, -2, 3]]), DType.INT4).tolist() == [[0xE1, 0x03]]
    assert pack_elements(np.array([1, -2, -1, 0, 1]), DType.INT2).tolist() == [0x39, 0x01]
    assert pack_elements(np.array([1, -2, 3, -4]), DType.INT3).tolist() == [0xF1, 0x08]
    assert pack_elements(np.array([1, -1, -1, 1]), DType.INT1).tolist() == [0x06]


def test_elements_of_lanes_are_streams_of_their_own() -> None:
    values = np.random.default_rng(1).integers(-16, 15, (3, 64), endpoint=True)
    stored = pack_elements(values, DType.INT5, lanes=4)
    for lane in range(4):
        assert np.array_equal(stored[:, lane::4], pack_elements(values[:, lane::4], DType.INT5))


def quantised_network(kind: tuple[int, int, int], channels: int = 5, offset: int = 0) -> onnx.ModelProto:
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
    return model_of(helper.make_graph(nodes, "few", ports[:1], ports[1:], tensors), 21)


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
    model = quantised_network(kind, channels)
    onnx.save(model, tmp_path / "few.onnx")
    onnx.save(widened(model), tmp_path / "bytes.onnx")
    options = Options(memory={"l1": 6000}, engines=("cluster",)) if target == "siracusa" else Options()
    few, whole = (deeploy.compile(tmp_path / f"{name}.onnx", target, **options.given()) for name in ("few", "bytes"))
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
    model = quantised_network(UNSIGNED, offset=offset)
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
    save_graph(graph, tmp_path / "table.onnx", 21)
    compiled = deeploy.compile(tmp_path / "table.onnx", target)
    given = np.array([3, 0, 19, 3, 7])
    assert np.array_equal(compiled.run([given])[0], table[given] * np.float32(0.25))
    assert weights(compiled)[DType.INT4] == table.size // 2


def blocked(kind: str, depth: int = 64, columns: int = 12) -> tuple[onnx.ModelProto, np.ndarray]:
    """A product with a scale per block of 32, in one of its spellings, and the numbers that its weights stand for, [depth, columns]."""
    numbers, size, bits = np.random.default_rng(depth), 32, 2 if kind == "2 bits" else 4
    blocks = -(-depth // size)
    steps = numbers.integers(0, 2**bits, (columns, blocks * size), np.uint8)
    scales = numbers.uniform(0.01, 0.1, (columns, blocks)).astype(np.float32)
    centre = np.full((columns, blocks), 2 ** (bits - 1))
    zeros = numbers.integers(0, 2**bits, (columns, blocks), np.uint8) if kind == "zero points" else centre
    real = ((steps - np.repeat(zeros.astype(np.float32), size, 1)) * np.repeat(scales, size, 1))[:, :depth].T
    tensors, nodes = [numpy_helper.from_array(scales, "s")], []
    if kind in ("4 bits", "2 bits", "zero points"):
        per = 8 // bits
        packed = steps.reshape(columns, blocks, size // per, per) << np.arange(0, 8, bits, dtype=np.uint8)
        tensors.append(numpy_helper.from_array(np.bitwise_or.reduce(packed, axis=-1).astype(np.uint8), "w"))
        if kind == "zero points":
            zeros = np.pad(zeros, ((0, 0), (0, blocks % 2))).reshape(columns, -1, 2)
            tensors.append(numpy_helper.from_array((zeros[..., 0] | zeros[..., 1] << 4).astype(np.uint8), "z"))
        attrs = {"K": depth, "N": columns, "bits": bits, "block_size": size}
        names = ["x", "w", "s", *(["z"] if kind == "zero points" else [])]
        nodes.append(helper.make_node("MatMulNBits", names, ["y"], "product", domain="com.microsoft", **attrs))
    else:
        values = (steps[:, :depth].astype(np.int64) - 8).ravel()
        tensors.append(helper.make_tensor("w", TensorProto.INT4, (columns, depth), values))
        nodes.append(helper.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=1, block_size=size))
        nodes.append(helper.make_node("Transpose", ["f"], ["t"], perm=[1, 0]))
        last = "x"
        if kind == "quantised":
            tensors += [numpy_helper.from_array(np.float32(0.03), "xs"), numpy_helper.from_array(np.int8(3), "xz")]
            nodes.append(helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]))
            nodes.append(helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]))
            last = "d"
        nodes.append(helper.make_node("MatMul", [last, "t"], ["y"], "product"))
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, extent]) for n, extent in (("x", depth), ("y", columns))]
    graph = helper.make_graph(nodes, "blocks", ports[:1], ports[1:], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), real


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize("kind", ["4 bits", "2 bits", "zero points", "transposed", "quantised"])
def test_weights_with_a_scale_per_block_stay_packed(kind: str, target: str, tmp_path: Path) -> None:
    depth = 80 if kind == "transposed" else 64
    model, real = blocked(kind, depth)
    onnx.save(model, tmp_path / "blocks.onnx")
    compiled = deeploy.compile(tmp_path / "blocks.onnx", target)
    x = np.random.default_rng(3).normal(size=(3, depth)).astype(np.float32)
    (got,) = compiled.run([x])
    assert np.array_equal(got, compiled.interpret([x])[0])
    seen = (np.clip(np.rint(x / np.float32(0.03)) + 3, -128, 127) - 3) * np.float32(0.03) if kind == "quantised" else x
    np.testing.assert_allclose(got, seen @ real, atol=1e-4, rtol=1e-4)
    packed = DType.INT2 if kind == "2 bits" else DType.UINT4 if kind == "zero points" else DType.INT4
    assert weights(compiled)[packed] == 12 * depth * packed.bits // 8
    assert sum(weights(compiled).values()) <= 12 * depth * packed.bits // 8 + 12 * -(-depth // 32) * 5 + 12 * 4 + 8


def of_bits(bits: int, path: Path) -> Path:
    """A convolution of 1x1 and a product of bytes that a Clip limits to so many bits."""
    numbers, low, high = np.random.default_rng(bits), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    tensors = [numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.int8(0), "z")]
    tensors += [numpy_helper.from_array(np.int8(end), name) for end, name in ((low, "low"), (max(high, 1), "high"))]
    nodes, last = [], "x"

    def quantised(name: str) -> str:
        nodes.append(helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}.q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.q", "s", "z"], [f"{name}.d"]))
        return f"{name}.d"

    for op, shape in (("Conv", (32, 32, 1, 1)), ("MatMul", (96, 96))):
        values = numbers.choice([-1, 1], shape) if bits == 1 else numbers.integers(low, high, shape, endpoint=True)
        tensors.append(numpy_helper.from_array(values.astype(np.int8), f"{op}.w"))
        tensors.append(numpy_helper.from_array(np.float32(0.3 * 2.0**-bits), f"{op}.s"))
        nodes.append(helper.make_node("Clip", [f"{op}.w", "low", "high"], [f"{op}.c"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{op}.c", f"{op}.s", "z"], [f"{op}.f"]))
        nodes.append(helper.make_node(op, [quantised(last), f"{op}.f"], [f"{op}.y"], op))
        last = f"{op}.y"
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 32, 5, 96]) for n in ("x", quantised(last))]
    graph = helper.make_graph(nodes, "bits", ports[:1], ports[1:], tensors)
    return save_graph(graph, path / "bits.onnx")


@pytest.mark.parametrize("bits", range(1, 8))
def test_any_number_of_bits(bits: int, tmp_path: Path) -> None:
    model = of_bits(bits, tmp_path)
    x = np.random.default_rng(1).normal(size=(1, 32, 5, 96)).astype(np.float32) * 4
    compiled = deeploy.compile(model, weight_bits=1 if bits == 1 else None)  # limits of one bit are -1 to 1, which takes two
    (wanted,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    assert np.abs(compiled.run([x])[0] - wanted).max() < 0.11  # a step
    assert np.array_equal(compiled.run([x])[0], compiled.interpret([x])[0])
    assert weights(compiled)[DType(f"s{bits}")] == 96 * 12 * bits + 32 * 4 * bits


@pytest.mark.share(0.4)
@pytest.mark.parametrize("bits", [1, 3, 5, 6, 7])
def test_cores_read_any_number_of_bits(bits: int, tmp_path: Path) -> None:
    """Where there is no memory for more."""
    model = of_bits(bits, tmp_path)
    x = np.random.default_rng(1).normal(size=(1, 32, 5, 96)).astype(np.float32) * 4
    budgets = {"l2": 1280 * bits + 80}
    compiled = deeploy.compile(model, "siracusa", memory=budgets, engines=("cluster",), weight_bits=bits)
    assert np.array_equal(compiled.run([x])[0], compiled.interpret([x])[0])
    assert weights(compiled)[DType(f"s{bits}")] == 96 * 12 * bits + 32 * 4 * bits


@pytest.mark.parametrize("is_sorted", [True, False])
def test_products_whose_rows_choose_their_block(is_sorted: bool, tmp_path: Path) -> None:
    """g_idx of MatMulNBits: packed where blocks are as long as without. Onnxruntime 1.31 takes zero points of other blocks then."""
    model, _ = blocked("zero points")
    numbers = np.random.default_rng(4)
    chosen = (numbers.permutation(64) // 32 if is_sorted else numbers.integers(0, 2, 64)).astype(np.int32)
    model.graph.initializer.append(numpy_helper.from_array(chosen, "g"))
    model.graph.node[0].input.append("g")
    onnx.save(model, tmp_path / "blocks.onnx")
    compiled = deeploy.compile(tmp_path / "blocks.onnx")
    packed, zeros, scales = (
        numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == name)).reshape(12, -1) for name in "wzs"
    )
    steps, zeros = (np.stack([each & 15, each >> 4], axis=-1).reshape(12, -1) for each in (packed, zeros))
    real = (steps.astype(int) - zeros[:, chosen]) * scales[:, chosen]
    x = np.random.default_rng(3).normal(size=(3, 64)).astype(np.float32)
    np.testing.assert_allclose(compiled.run([x])[0], x @ real.T, atol=1e-4, rtol=1e-4)
    assert (DType.UINT4 in weights(compiled)) is is_sorted


def test_a_product_that_names_blocks_that_are_none(tmp_path: Path) -> None:
    model, _ = blocked("4 bits")
    model.graph.initializer.append(numpy_helper.from_array(np.full(64, 2, np.int32), "g"))
    model.graph.node[0].input.extend(["", "g"])
    onnx.save(model, tmp_path / "blocks.onnx")
    with pytest.raises(DeeployError, match="g_idx that is not of 64 constants from 0 to 1") as raised:
        deeploy.compile(tmp_path / "blocks.onnx")
    assert len(str(raised.value).splitlines()) == 2


@pytest.mark.parametrize("is_packed", [True, False])
def test_rows_of_a_table_with_a_scale_per_block(is_packed: bool, tmp_path: Path) -> None:
    """GatherBlockQuantized on bytes that hold two elements, and DequantizeLinear in front of Gather."""
    numbers = np.random.default_rng(5)
    steps, scales = numbers.integers(0, 16, (20, 32), np.uint8), numbers.uniform(0.1, 1, (20, 2)).astype(np.float32)
    tensors = [numpy_helper.from_array(scales, "s")]
    if is_packed:
        tensors.append(numpy_helper.from_array(steps[:, ::2] | steps[:, 1::2] << 4, "t"))
        names, attrs = ["t", "x", "s"], {"bits": 4, "block_size": 16, "quantize_axis": 1}
        nodes = [helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft", **attrs)]
    else:
        tensors.append(helper.make_tensor("t", TensorProto.INT4, steps.shape, steps.ravel().astype(int) - 8))
        nodes = [
            helper.make_node("DequantizeLinear", ["t", "s"], ["f"], axis=1, block_size=16),
            helper.make_node("Gather", ["f", "x"], ["y"]),
        ]
    ports = [helper.make_tensor_value_info("x", TensorProto.INT64, [5]), helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 32])]
    graph = helper.make_graph(nodes, "table", ports[:1], ports[1:], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "table.onnx")
    compiled = deeploy.compile(tmp_path / "table.onnx")
    given = np.array([3, 0, 19, 3, 7])
    assert np.array_equal(compiled.run([given])[0], ((steps - np.float32(8)) * np.repeat(scales, 16, axis=1))[given])
    assert weights(compiled)[DType.INT4] == steps.size // 2
