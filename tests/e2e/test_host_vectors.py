"""Kernels on a host compute several positions and channels at once in vector registers: the same results, however wide these are."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.backend.project import read_manifest, select_network
from deeploy.execution.runners.host import Host
from tests.models import model_of, save_graph


def save_convolutions(path: Path) -> None:
    """Convolutions whose rows are several blocks of positions and a rest, with 40, 8 and 5 filters, and a product of 13 rows."""
    rng = np.random.default_rng(8)
    shapes = {"w0": (40, 3, 3, 3), "w1": (8, 40, 1, 1), "w2": (5, 8, 3, 2), "w3": (11, 70)}
    weights = [numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name) for name, shape in shapes.items()]
    weights.append(numpy_helper.from_array(np.array([5, 13, 11], np.int64), "shape"))
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1], strides=[1, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"]),
        helper.make_node("Conv", ["c", "w2"], ["d"], pads=[1, 0, 1, 2], dilations=[1, 2]),
        helper.make_node("Reshape", ["d", "shape"], ["e"]),
        helper.make_node("MatMul", ["e", "w3"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 13, 22]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 13, 70]),
    ]
    graph = helper.make_graph(nodes, "vectors", ends[:1], ends[1:], weights)
    save_graph(graph, path)


def test_vectors_add_in_the_order_of_the_plain_loops(tmp_path: Path) -> None:
    save_convolutions(tmp_path / "vectors.onnx")
    compiled = deeploy.compile(tmp_path / "vectors.onnx", "generic")
    compiled.write(tmp_path / "out")
    entry = select_network(read_manifest(tmp_path / "out"))
    sample = [np.random.default_rng(1).normal(size=(1, 3, 13, 22)).astype(np.float32)]
    plain, usual, native = (
        Host(flags=flags).run(tmp_path / "out", entry, [sample]).outputs[0] for flags in ("-O0", "-O2", "-O3 -march=native")
    )
    assert usual.tobytes() == plain.tobytes()  # whatever this machine's vectors are
    (want,) = compiled.interpret(sample)
    assert usual[0].tobytes() == want.tobytes()
    np.testing.assert_allclose(native[0], want, rtol=1e-5, atol=1e-6 * np.abs(want).max())
    assert native.tobytes() != plain.tobytes() or not has_fma()


def has_fma() -> bool:
    """Whether this machine joins products and sums, which only the native build may do."""
    return " fma " in Path("/proc/cpuinfo").read_text()


def bytes_network(path: Path, dtype: int) -> None:
    """Convolutions of bytes: few and many filters, groups, steps, dilations, windows that leave the image, depthwise ones."""
    rng = np.random.default_rng(9)
    kind = np.int8 if dtype == TensorProto.INT8 else np.uint8
    zero = np.array(-7 if kind is np.int8 else 131, kind)
    constants: dict[str, object] = {"z": zero, "s": np.float32(0.05), "wz": np.int8(0)}
    nodes, name, channels = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x0"])], "x0", 3
    layers: list[tuple[int, int, tuple[int, int], dict[str, list[int]]]] = [
        (12, 1, (3, 3), {"pads": [1, 1, 1, 1]}),
        (12, 12, (3, 3), {"pads": [1, 1, 1, 1]}),
        (37, 1, (1, 1), {}),
        (72, 1, (3, 2), {"pads": [0, 1, 2, 0], "strides": [1, 2]}),
        (72, 72, (3, 4), {"pads": [2, 3, 2, 3], "dilations": [2, 2]}),
        (152, 1, (1, 1), {}),
        (152, 152, (5, 5), {"pads": [2, 2, 2, 2], "strides": [2, 3]}),
        (16, 4, (2, 2), {"pads": [1, 0, 0, 1]}),
        (5, 1, (1, 1), {"strides": [2, 1]}),
    ]
    for i, (filters, groups, window, attrs) in enumerate(layers):
        constants[f"w{i}"] = rng.integers(-128, 128, (filters, channels // groups, *window)).astype(np.int8)
        constants[f"s{i}"] = np.float32(1 / (74 * np.sqrt(constants[f"w{i}"][0].size)))  # outputs are about as large as inputs
        nodes += [
            helper.make_node("DequantizeLinear", [name, "s", "z"], [f"f{i}"]),
            helper.make_node("DequantizeLinear", [f"w{i}", f"s{i}", "wz"], [f"v{i}"]),
            helper.make_node("Conv", [f"f{i}", f"v{i}"], [f"y{i}"], group=groups, **attrs),
            helper.make_node("QuantizeLinear", [f"y{i}", "s", "z"], [f"x{i + 1}"]),
        ]
        name, channels = f"x{i + 1}", filters
    nodes.append(helper.make_node("Identity", [name], ["y"]))
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 19, 23]),
        helper.make_tensor_value_info("y", dtype, None),
    ]
    weights = [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()]
    graph = helper.make_graph(nodes, "bytes", ends[:1], ends[1:], weights)
    model = model_of(graph)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)


IS_X86 = platform.machine() == "x86_64"
# by what the machine has; for a machine without such instructions; for this machine
BUILDS = [(TensorProto.INT8, ("-O2", "-O1 -march=x86-64-v3" if IS_X86 else "-O1")), (TensorProto.UINT8, ("-O3 -march=native",))]


@pytest.mark.parametrize(("dtype", "builds"), BUILDS)
def test_vectors_of_bytes_give_the_same_bytes(tmp_path: Path, dtype: int, builds: tuple[str, ...]) -> None:
    bytes_network(tmp_path / "bytes.onnx", dtype)
    compiled = deeploy.compile(tmp_path / "bytes.onnx", "generic")
    compiled.write(tmp_path / "out")
    entry = select_network(read_manifest(tmp_path / "out"))
    sample = [np.random.default_rng(1).normal(size=(1, 3, 19, 23)).astype(np.float32) * 3]
    (want,) = compiled.interpret(sample)
    assert len(np.unique(want)) > 20  # results are not all at their limits
    for flags in builds:
        assert Host(flags=flags).run(tmp_path / "out", entry, [sample]).outputs[0][0].tobytes() == want.tobytes(), flags
