"""Scales that are computed at run time, as onnxruntime's dynamic quantisation writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.driver.verify import verify_compiled
from deeploy.ir.types import DType
from tests.frontend.models import build, f32

ort = pytest.importorskip("onnxruntime")
node = helper.make_node


def values(seed: int, *shape: int, low: int = -128, dtype: Any = np.int8) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, low + 256, shape).astype(dtype)


def agrees(path: Path, tmp_path: Path, samples: dict[str, np.ndarray], target: str = "generic", **options: Any) -> list[np.ndarray]:
    """The C, the interpreter and onnxruntime say the same of all outputs; returns them."""
    np.savez(tmp_path / "inputs.npz", **samples)
    made = deeploy.compile(path, target, **options)
    verdict = verify_compiled(made, path, tmp_path / "inputs.npz")
    assert verdict.passed, verdict.comparisons
    assert {against for against, _ in verdict.comparisons} == {"interpreter", "onnxruntime"}
    return verdict.outputs


def saved(tmp_path: Path, model: onnx.ModelProto) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def test_scale_and_zero_point(tmp_path: Path) -> None:
    """Of values of both signs, of one, of zeros alone, and of so many that rows come first."""
    model = build([node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])], {"x": f32(40, 50)}, ["y", "s", "z"])
    x = np.random.default_rng(0).normal(size=(5, 40, 50)).astype(np.float32)
    x[1], x[2], x[3] = np.abs(x[1]), -np.abs(x[2]), 0
    y, s, z = agrees(saved(tmp_path, model), tmp_path, {"x": x})
    low, high = np.minimum(x.min((1, 2)), 0), np.maximum(x.max((1, 2)), 0)
    assert np.array_equal(s, np.where(high > low, (high - low) / np.float32(255), 1)) and z.tolist()[1:4] == [0, 255, 0]
    assert not y[3].any()


def convolution(rank: int, group: int, pads: bool, zeros: bool) -> onnx.ModelProto:
    shape = (1, 4, *[9] * rank)
    weights = values(1, 4, 4 // group, *[3] * rank)
    constants = {"w": weights, "wz": np.int8(-7)} if zeros else {"w": weights}
    quantised = node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    attrs = {"group": group, "strides": [2] * rank, **({"pads": [1] * rank + [2] * rank} if pads else {})}
    product = node("ConvInteger", ["q", "w", "z", *(["wz"] if zeros else [])], ["c"], **attrs)
    return build(
        [quantised, product, node("Cast", ["c"], ["f"], to=1), node("Mul", ["f", "s"], ["y"])], {"x": f32(*shape)}, ["y"], constants
    )


@pytest.mark.parametrize(
    ("rank", "group", "pads", "zeros"), [(2, 1, True, False), (2, 4, True, False), (1, 1, True, True), (2, 2, False, True)]
)
def test_convolutions_of_bytes(tmp_path: Path, rank: int, group: int, pads: bool, zeros: bool) -> None:
    path = saved(tmp_path, convolution(rank, group, pads, zeros))
    agrees(path, tmp_path, {"x": np.random.default_rng(0).normal(1, 1, (3, 1, 4, *[9] * rank)).astype(np.float32)})
    ops = [call.node.op for call in deeploy.compile(path).network.program.calls]
    assert "Dequantize" in ops and "Cast" not in ops and ops.count("Conv") == 1


@pytest.mark.parametrize("per_column", [False, True])
def test_matrix_products_of_bytes(tmp_path: Path, per_column: bool) -> None:
    weights = values(3, 16, 5, low=0, dtype=np.uint8)
    zeros = values(4, 5, low=0, dtype=np.uint8) if per_column else np.uint8(77)
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("MatMulInteger", ["q", "w", "z", "wz"], ["y"])]
    model = build(nodes, {"x": f32(2, 3, 16)}, ["y"], {"w": weights, "wz": zeros})
    x = np.random.default_rng(0).normal(size=(3, 2, 3, 16)).astype(np.float32)
    agrees(saved(tmp_path, model), tmp_path, {"x": x})


@pytest.mark.parametrize(
    ("a", "b", "a_zero", "b_zero", "computed", "target"),
    [
        ((3, 2, 8), (3, 8, 5), (), (3, 1, 5), False, "siracusa"),
        ((2, 2, 8), (2, 8, 5), (2, 2, 1), (1, 1, 5), True, "siracusa"),
        ((4, 8), (8, 5), (4,), (5,), False, "generic"),
        ((2, 3, 4, 8), (2, 3, 8, 5), (2, 3, 4, 1), (2, 3, 1, 5), True, "generic"),
        ((2, 4, 8), (8, 5), (), (5,), True, "generic"),
        ((8,), (8, 5), (), (5,), False, "generic"),
        ((4, 8), (8,), (4,), (), True, "generic"),
    ],
)
def test_zero_points_of_rows_and_columns(
    a: tuple[int, ...], b: tuple[int, ...], a_zero: tuple[int, ...], b_zero: tuple[int, ...], computed: bool, target: str, tmp_path: Path
) -> None:
    """By the definition, since onnxruntime has none per row."""
    arrays = {
        "a": values(7, *a, low=0, dtype=np.uint8),
        "b": values(8, *b),
        "az": values(9, *a_zero, low=0, dtype=np.uint8),
        "bz": values(10, *b_zero),
    }
    given = ["a", "b", "az", "bz"] if computed else ["a"]
    types = {name: (arrays[name].shape, TensorProto.UINT8 if name in ("a", "az") else TensorProto.INT8) for name in given}
    constants = {name: array for name, array in arrays.items() if name not in given}
    model = build([node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])], types, ["y"], constants)
    made = deeploy.compile(saved(tmp_path, model), target)
    wide = {name: array.astype(np.int64) for name, array in arrays.items()}
    rows = wide["az"][:, None] if len(a_zero) == 1 else wide["az"]
    expected = (wide["a"] - rows) @ (wide["b"] - wide["bz"])
    for found in (made.run({name: arrays[name] for name in given})[0], made.interpret([arrays[name] for name in given])[0]):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("shapes", "parameters"),
    [
        (((3, 2, 8), (3, 8, 5)), ((), (3, 1, 5), ())),
        (((4, 8), (8, 5)), ((4,), (5,), ())),
        (((4, 8), (8, 5)), ((4,), (), (4,))),
        (((2, 4, 8), (2, 8, 5)), ((2, 4, 1), (2, 1, 5), (2, 4, 1))),
    ],
)
def test_quantised_products_with_scales_of_rows_and_columns(
    shapes: tuple[tuple[int, ...], ...], parameters: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    numbers = np.random.default_rng(3)
    scales = [
        numbers.uniform(0.5, 1.5, shape).astype(np.float32) * base for shape, base in zip(parameters, (0.02, 0.01, 0.05), strict=True)
    ]
    zeros = [numbers.integers(-9, 9, shape).astype(np.int8) for shape in parameters]
    x, w = values(1, *shapes[0]), values(2, *shapes[1])
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    constants = dict(zip(names[1:], (scales[0], zeros[0], w, scales[1], zeros[1], scales[2], zeros[2]), strict=True))
    model = build([node("QLinearMatMul", names, ["y"])], {"x": (shapes[0], TensorProto.INT8)}, ["y"], constants)
    rows = [[array[:, None] if array.ndim == 1 else array for array in (s[0], s[2])] for s in (scales, zeros)]
    left = (x.astype(np.float64) - rows[1][0]) * rows[0][0]
    real = left @ ((w.astype(np.float64) - zeros[1]) * scales[1])
    expected = np.clip(np.rint(real / rows[0][1]) + rows[1][1], -128, 127)
    made = deeploy.compile(saved(tmp_path, model))
    (found,) = made.run([x])
    np.testing.assert_array_equal(found, made.interpret([x])[0])
    assert len(np.unique(expected)) > 5 and np.abs(found - expected).max() <= 1 and np.mean(found == expected) > 0.99
    program = made.network.program
    (product,) = (call for call in program.calls if call.node.op == "MatMul")
    assert {program.buffers[product.operands[name].buffer].dtype for name in "ab"} <= {DType.INT8, DType.INT16}


def test_a_zero_point_that_is_given(tmp_path: Path) -> None:
    inputs = {"a": ((2, 8), TensorProto.UINT8), "z": ((), TensorProto.UINT8)}
    model = build([node("MatMulInteger", ["a", "w", "z"], ["y"])], inputs, ["y"], {"w": values(5, 8, 3)})
    agrees(saved(tmp_path, model), tmp_path, {"a": values(6, 4, 2, 8, low=0, dtype=np.uint8), "z": np.array([0, 255, 128, 3], np.uint8)})


def convolutions_model() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    shapes = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 1, 3, 3), "w2": (8, 12), "b2": (12,), "w3": (12, 4)}
    constants = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=8),
        node("GlobalAveragePool", ["c1"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "w2", "b2"], ["g"]),
        node("Relu", ["g"], ["r1"]),
        node("MatMul", ["r1", "w3"], ["y"]),
    ]
    return build(nodes, {"x": f32(1, 3, 16, 16)}, ["y"], constants, opset=17)


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_what_the_quantiser_writes(tmp_path: Path, target: str) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    onnx.save(convolutions_model(), tmp_path / "float.onnx")
    path = tmp_path / "dynamic.onnx"
    quantize_dynamic(tmp_path / "float.onnx", path, weight_type=QuantType.QInt8 if target == "generic" else QuantType.QUInt8)
    found = {n.op_type for n in onnx.load(path).graph.node}
    assert {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"} <= found
    agrees(path, tmp_path, {"x": np.random.default_rng(1).normal(size=(4, 1, 3, 16, 16)).astype(np.float32)}, target)


@pytest.mark.parametrize("both", [True, False])
def test_a_product_of_two_matrices_that_are_computed(both: bool, tmp_path: Path) -> None:
    """Attention's: both have zero points that are computed, or the second a constant one."""
    constants = {} if both else {"bs": np.float32(0.035), "bz": np.uint8(131)}
    quantised = node("DynamicQuantizeLinear", ["b"], ["bq", "bs", "bz"]) if both else node("QuantizeLinear", ["b", "bs", "bz"], ["bq"])
    nodes = [
        *(node("DynamicQuantizeLinear", ["a"], ["aq", "as", "az"]), quantised),
        *(node("MatMulInteger", ["aq", "bq", "az", "bz"], ["sums"]), node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT)),
        *(node("Mul", ["as", "bs"], ["scale"]), node("Mul", ["floats", "scale"], ["y"])),
    ]
    model = build(nodes, {"a": f32(1, 2, 5, 8), "b": f32(1, 2, 8, 6)}, ["y"], constants)
    numbers = np.random.default_rng(4)
    samples = {name: numbers.normal(size=(3, 1, 2, *shape)).astype(np.float32) for name, shape in (("a", (5, 8)), ("b", (8, 6)))}
    (y,) = agrees(saved(tmp_path, model), tmp_path, samples)
    assert np.abs(y - samples["a"] @ samples["b"]).max() < 0.2


def test_a_constant_that_is_quantised_again(tmp_path: Path) -> None:
    """A weight in int8 that readers want in uint8, as quantisers write it of tensors with several names."""
    weight = np.array([-100, 3, 90, 7], np.int8)
    constants = {"w": weight, "s": np.float32(0.01), "z": np.int8(0), "t": np.float32(0.008), "u": np.uint8(128)}
    nodes = [
        *(node("DequantizeLinear", ["w", "s", "z"], ["d"]), node("QuantizeLinear", ["d", "t", "u"], ["q"])),
        *(node("DequantizeLinear", ["q", "t", "u"], ["again"]), node("Mul", ["x", "again"], ["y"])),
    ]
    (y,) = agrees(saved(tmp_path, build(nodes, {"x": f32(3, 4)}, ["y"], constants)), tmp_path, {"x": np.ones((2, 3, 4), np.float32)})
    steps = np.clip(np.rint(weight * np.float32(0.01) / np.float32(0.008)), -128, 127)
    np.testing.assert_allclose(y, np.broadcast_to(steps * np.float32(0.008), y.shape), rtol=1e-6)
