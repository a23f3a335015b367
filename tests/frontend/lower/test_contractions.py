"""Einsum of any number of operands, columns of images, and reductions of integers of 64 bits, beside onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from tests.models import model_of, save_graph

FLOAT, LONG = TensorProto.FLOAT, TensorProto.INT64
RANDOM = np.random.default_rng(5)


def check(nodes: list[onnx.NodeProto], given: dict[str, np.ndarray], constants: dict[str, np.ndarray], path: Path) -> None:
    """C, interpreter and onnxruntime agree on the results "y"."""
    kind = LONG if next(iter(given.values())).dtype == np.int64 else FLOAT
    inputs = [helper.make_tensor_value_info(name, kind, array.shape) for name, array in given.items()]
    outputs = [helper.make_tensor_value_info("y", kind, None)]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    model = model_of(graph, 18)
    onnx.save(model, path / "m.onnx")
    (wanted,) = onnxruntime.InferenceSession(path / "m.onnx").run(None, given)
    compiled = deeploy.compile(path / "m.onnx")
    (got,) = compiled.run(given)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, compiled.interpret(given)[0])
    np.testing.assert_allclose(got, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bld,bln,bld->bldn", [(2, 5, 3), (2, 5, 4), (2, 5, 3)]),
        ("ij,jk,kl,l->i", [(3, 4), (4, 5), (5, 2), (2,)]),
        ("bijc,bjk->bik", [(2, 5, 6, 3), (2, 6, 4)]),
        ("bij->bj", [(2, 5, 6)]),
        ("b...->...", [(2, 5, 6)]),
        ("i...j,...jk", [(3, 2, 4), (2, 4, 5)]),
        ("ij,kl->", [(3, 2), (4, 5)]),
        ("...ij,...jk->...ik", [(3, 2, 4), (1, 4, 5)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (1, 5, 4, 2)]),
        ("b...c,bc...->b...", [(2, 1, 4, 3), (1, 3, 5, 4)]),
        ("bij,bjk->bik", [(1, 2, 4), (3, 4, 5)]),
        ("bi,bi,bj->bij", [(1, 4), (3, 4), (1, 2)]),
        ("bj,bj->j", [(1, 4), (3, 4)]),
        ("bii->bi", [(2, 4, 4)]),
        ("ii", [(4, 4)]),
        ("iij,jk->ik", [(3, 3, 4), (4, 2)]),
        ("...ii->...i", [(2, 3, 4, 4)]),
        ("iii->i", [(3, 3, 3)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]], tmp_path: Path) -> None:
    given = {f"x{at}": RANDOM.normal(size=shape).astype(np.float32) for at, shape in enumerate(shapes)}
    check([helper.make_node("Einsum", list(given), ["y"], equation=equation)], given, {}, tmp_path)


@pytest.mark.parametrize(
    ("equation", "shapes"), [("ij,jk->ik", [(2, 3), (4, 5)]), ("ij,jk->iik", [(2, 3), (3, 5)]), ("ii->i", [(2, 3)]), ("i->!", [(2,)])]
)
def test_equations_that_do_not_fit(equation: str, shapes: list[tuple[int, ...]], tmp_path: Path) -> None:
    inputs = [helper.make_tensor_value_info(f"x{at}", FLOAT, shape) for at, shape in enumerate(shapes)]
    node = helper.make_node("Einsum", [value.name for value in inputs], ["y"], equation=equation)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", FLOAT, None)])
    save_graph(graph, tmp_path / "m.onnx", 18)
    with pytest.raises(deeploy.errors.DeeployError, match="Einsum"):
        deeploy.compile(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("image", "block", "columns", "attributes"),
    [
        ((4, 6), (2, 3), 4, {"strides": [2, 3]}),
        ((7, 6), (2, 3), 12, {"strides": [2, 2], "pads": [0, 1, 1, 1]}),
        ((1, 8), (1, 2), 6, {"dilations": [1, 2]}),
    ],
)
def test_columns_become_an_image(image: tuple[int, int], block: tuple[int, int], columns: int, attributes: dict, tmp_path: Path) -> None:
    given = {"x": RANDOM.normal(size=(2, 3 * block[0] * block[1], columns)).astype(np.float32)}
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], **attributes)
    check([node], given, {"image": np.array(image), "block": np.array(block)}, tmp_path)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMin"])
def test_integers_of_64_bits_are_reduced(op: str, tmp_path: Path) -> None:
    given = {"x": RANDOM.integers(-(2**40), 2**40, (3, 4, 9))}
    check([helper.make_node(op, ["x", "axes"], ["y"], keepdims=0)], given, {"axes": np.array([0, 2])}, tmp_path)


@pytest.mark.parametrize(
    ("shape", "dtype", "axis", "exclusive", "reverse", "target"),
    [
        ((1, 9000), np.float32, 1, 0, 0, "generic"),
        ((2, 1009), np.float32, -1, 1, 1, "siracusa"),
        ((300, 3), np.int64, 0, 0, 1, "siracusa"),
        ((2, 257, 2), np.int32, 1, 1, 0, "generic"),
    ],
)
def test_long_running_sums(
    shape: tuple[int, ...], dtype: type[np.generic], axis: int, exclusive: int, reverse: int, target: str, tmp_path: Path
) -> None:
    """Whole numbers in floats, whose sums are exact; constants take few bytes."""
    x = RANDOM.integers(-50, 50, shape).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    ports = ([helper.make_tensor_value_info(name, kind, shape)] for name in "xy")
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], exclusive=exclusive, reverse=reverse)
    graph = helper.make_graph([node], "g", *ports, [numpy_helper.from_array(np.array(axis), "axis")])
    save_graph(graph, tmp_path / "m.onnx", 14)
    compiled = deeploy.compile(tmp_path / "m.onnx", target)
    (wanted,) = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})
    for (got,) in (compiled.run([x]), compiled.interpret([x])):
        np.testing.assert_array_equal(got, wanted)
    stored = (buffer.data for buffer in compiled.network.program.buffers.values())
    assert sum(data.nbytes for data in stored if data is not None) < 2**18


@pytest.mark.parametrize("is_sparse", [True, False])
def test_columns_that_are_runs_between_zeros(is_sparse: bool, tmp_path: Path) -> None:
    matrix, places = RANDOM.normal(size=(40, 12)).astype(np.float32), np.arange(40)[:, None]
    matrix[(places < 3 * np.arange(12)) | (places >= 3 * np.arange(12) + (5 if is_sparse else 30))] = 0
    matrix[:, 4] = 0
    check(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": RANDOM.normal(size=(2, 3, 40)).astype(np.float32)}, {"w": matrix}, tmp_path
    )
    ops = {call.node.op for call in deeploy.compile(tmp_path / "m.onnx").network.program.calls}
    assert ops == ({"BandMatMul"} if is_sparse else {"MatMul"})
