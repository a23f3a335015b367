"""Float kernels on a host compute several positions at once in vector registers: the same sums, however wide these are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.backend.project import read_manifest, select_network
from deeploy.runners.host import Host


def network(path: Path) -> None:
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
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)]), path)


def test_vectors_add_in_the_order_of_the_plain_loops(tmp_path: Path) -> None:
    network(tmp_path / "vectors.onnx")
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
