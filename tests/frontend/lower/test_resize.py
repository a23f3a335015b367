"""Interpolation against onnxruntime, and what else is lowered in the spelling of ONNX."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import deeploy
from tests.models import save_model


def run(path: Path, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the compiler's references and onnxruntime make of ``x``."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return deeploy.compile(path).interpret([x])[0], session.run(None, {"x": x})[0]


def save(path: Path, nodes: list[onnx.NodeProto], x: tuple[int, list[int]], y: tuple[int, list[int]], **constants: np.ndarray) -> Path:
    return save_model(path, nodes, {"x": x}, {"y": y}, constants, 19)


TRANSFORMATIONS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


@pytest.mark.share(0.4)
@pytest.mark.parametrize(("mode", "transformation"), itertools.product(("linear", "cubic"), TRANSFORMATIONS))
@pytest.mark.parametrize("sizes", [(7, 11), (3, 4), (5, 1), (10, 8)])
@pytest.mark.parametrize("further", [{}, {"antialias": 1}, {"exclude_outside": 1}])
def test_interpolation(mode: str, transformation: str, sizes: tuple[int, int], further: dict[str, Any], tmp_path: Path) -> None:
    if mode == "linear" and "exclude_outside" in further:
        further = {}  # onnxruntime heeds it with cubic interpolation only
    attributes = {"mode": mode, "coordinate_transformation_mode": transformation, **further}
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)
    result = (TensorProto.FLOAT, [1, 2, *sizes])
    path = save(tmp_path / "m.onnx", [node], (TensorProto.FLOAT, [1, 2, 5, 8]), result, sizes=np.array([1, 2, *sizes]))
    got, expected = run(path, np.random.default_rng(1).standard_normal((1, 2, 5, 8)).astype(np.float32))
    assert got.shape == (1, 2, *sizes)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transformation", sorted({*TRANSFORMATIONS} - {"half_pixel_symmetric"}))  # of which last bits differ
@pytest.mark.parametrize("sizes", [(10, 16), (13, 8), (3, 21), (1, 1)])
def test_images_are_interpolated_bit_by_bit(transformation: str, sizes: tuple[int, int], tmp_path: Path) -> None:
    """Products and sums of floats in the order of onnxruntime, at places that it computes in floats."""
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", coordinate_transformation_mode=transformation)
    result = (TensorProto.FLOAT, [2, 3, *sizes])
    path = save(tmp_path / "m.onnx", [node], (TensorProto.FLOAT, [2, 3, 5, 8]), result, sizes=np.array([2, 3, *sizes]))
    got, expected = run(path, np.random.default_rng(1).standard_normal((2, 3, 5, 8)).astype(np.float32))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_the_nearest_of_two_is_the_one_that_the_mode_says(rounding: str, transformation: str, tmp_path: Path) -> None:
    """Of sizes of which many places lie halfway between two elements."""
    attributes = {"mode": "nearest", "coordinate_transformation_mode": transformation, "nearest_mode": rounding}
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)
    result = (TensorProto.FLOAT, [1, 1, 10, 4])
    path = save(tmp_path / "m.onnx", [node], (TensorProto.FLOAT, [1, 1, 5, 8]), result, sizes=np.array([1, 1, 10, 4]))
    got, expected = run(path, np.arange(40, dtype=np.float32).reshape(1, 1, 5, 8))
    np.testing.assert_array_equal(got, expected)


def test_bytes_are_interpolated_as_real_numbers(tmp_path: Path) -> None:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear")
    path = save(
        tmp_path / "m.onnx", [node], (TensorProto.UINT8, [1, 1, 1, 3]), (TensorProto.UINT8, [1, 1, 1, 6]), sizes=np.array([1, 1, 1, 6])
    )
    (got,) = deeploy.compile(path).interpret([np.array([[[[0, 100, 255]]]], np.uint8)])
    assert got.ravel().tolist() == [0, 25, 75, 138, 216, 255]


@pytest.mark.parametrize(("op", "last"), itertools.product(("ArgMax", "ArgMin"), (0, 1)))
def test_the_largest_of_quantised_values_is_found_among_integers(op: str, last: int, tmp_path: Path) -> None:
    real = helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real"])
    node = helper.make_node(op, ["real"], ["y"], axis=1, keepdims=0, select_last_index=last)
    constants = {"scale": np.array(0.3, np.float32), "zero": np.array(5, np.int8)}
    path = save(tmp_path / "m.onnx", [real, node], (TensorProto.INT8, [2, 9, 4]), (TensorProto.INT64, [2, 4]), **constants)
    got, expected = run(path, np.random.default_rng(2).integers(-3, 3, (2, 9, 4)).astype(np.int8))
    assert got.dtype == np.int64 and np.array_equal(got, expected)
    assert [call.node.op for call in deeploy.compile(path).plan.program.calls] == ["ArgMax"]


def test_lengths_that_two_readings_differ_about_are_refused(tmp_path: Path) -> None:
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear", coordinate_transformation_mode="align_corners")
    scales = np.array([1, 1, 1, 0.6], np.float32)
    path = save(tmp_path / "m.onnx", [node], (TensorProto.FLOAT, [1, 1, 1, 4]), (TensorProto.FLOAT, [1, 1, 1, 2]), scales=scales)
    with pytest.raises(deeploy.errors.UnsupportedError, match="Resize"):
        deeploy.compile(path)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize(
    ("mode", "transformation"),
    [("nearest", "asymmetric"), ("nearest", "half_pixel"), ("linear", "half_pixel"), ("cubic", "pytorch_half_pixel")],
)
@pytest.mark.parametrize(("axes", "sizes"), [([2, 3], [7, 12]), ([3, 2], [5, 9]), ([2], [3])])
def test_the_ratio_of_sides_stays(
    policy: str, mode: str, transformation: str, axes: list[int] | None, sizes: list[int], tmp_path: Path
) -> None:
    attributes = {"mode": mode, "coordinate_transformation_mode": transformation, "keep_aspect_ratio_policy": policy}
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes, **({} if axes is None else {"axes": axes}))
    path = save(
        tmp_path / "m.onnx", [node], (TensorProto.FLOAT, [1, 2, 5, 8]), (TensorProto.FLOAT, ["a", "b", "c", "d"]), sizes=np.array(sizes)
    )
    got, expected = run(path, np.random.default_rng(1).standard_normal((1, 2, 5, 8)).astype(np.float32))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
