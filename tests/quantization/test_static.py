"""Quantisation: the written model computes what the float one does, and what does not fit is refused in two lines."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from deeploy.errors import DeeployError, ModelError, UnsupportedError, UsageError
from deeploy.quantization.form import Form
from deeploy.quantization.samples import Input, _check_sample
from deeploy.quantization.static import quantize_model
from tests.models import save_graph

RANDOM = np.random.default_rng(7)
WEIGHTS = RANDOM.normal(size=(4, 2, 3, 3)).astype(np.float32) * np.array([1, 8, 64, 512], np.float32).reshape(4, 1, 1, 1)
SAMPLES = RANDOM.uniform(-1, 1, size=(12, 2, 6, 6)).astype(np.float32)


def convolution(path: Path, *, opset: int = 17, batch: int | str = 1) -> Path:
    """Write a convolution whose output channels differ in size by a factor of 512."""
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"], "conv", kernel_shape=[3, 3]), helper.make_node("Relu", ["c"], ["y"], "relu")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 2, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4, 4, 4])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    save_graph(graph, path, opset)
    return path


def two_inputs(path: Path) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"], "add")],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
    )
    return save_graph(graph, path)


def run(path: Path, **feed: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)[0]


def constants(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def calibration(path: Path, *arrays: np.ndarray, **named: np.ndarray) -> Path:
    np.savez(path, *arrays, **named)
    return path


@pytest.mark.parametrize("opset", [7, 11, 13, 21])
def test_output_is_within_the_steps_of_its_scales(tmp_path: Path, opset: int) -> None:
    model = convolution(tmp_path / "f.onnx", opset=opset)
    assert quantize_model(model, calibration(tmp_path / "c.npz", x=SAMPLES), tmp_path / "q.onnx") == 12
    for sample in SAMPLES:
        want, got = run(model, x=sample[None]), run(tmp_path / "q.onnx", x=sample[None])
        # one step of the output (its range is about 0..3000) and 18 taps of half a weight step times half an input step
        assert np.abs(want - got).max() < 3000 / 255 + 18 * 512 * 4 / 254
    kinds = {node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= kinds
    assert onnx.load(tmp_path / "q.onnx").opset_import[0].version >= 13


def test_weights_have_one_scale_per_channel_unless_told_otherwise(tmp_path: Path) -> None:
    model, data = convolution(tmp_path / "f.onnx"), calibration(tmp_path / "c.npz", x=SAMPLES)
    quantize_model(model, data, tmp_path / "channel.onnx")
    quantize_model(model, data, tmp_path / "tensor.onnx", Form(per_channel=False))
    largest = np.abs(WEIGHTS).max(axis=(1, 2, 3))
    scale = next(value for name, value in constants(tmp_path / "channel.onnx").items() if name.startswith("w") and "scale" in name)
    np.testing.assert_allclose(scale, largest / 127, rtol=0.01)
    scale = next(value for name, value in constants(tmp_path / "tensor.onnx").items() if name.startswith("w") and "scale" in name)
    np.testing.assert_allclose(scale, largest.max() / 127, rtol=0.01)


@pytest.mark.parametrize(("kind", "dtype"), [("int8", np.int8), ("uint8", np.uint8)])
def test_type_of_the_activations(tmp_path: Path, kind: str, dtype: type) -> None:
    model = convolution(tmp_path / "f.onnx")
    quantize_model(model, calibration(tmp_path / "c.npz", x=SAMPLES), tmp_path / "q.onnx", Form(activations=kind))
    assert next(value for name, value in constants(tmp_path / "q.onnx").items() if name == "x_zero_point").dtype == dtype


def test_the_input_scale_is_the_range_of_all_samples(tmp_path: Path) -> None:
    samples = SAMPLES.copy()
    samples[-1, 0, 0, 0], samples[0, 0, 0, 0] = 3, -2
    quantize_model(convolution(tmp_path / "f.onnx"), calibration(tmp_path / "c.npz", x=samples), tmp_path / "q.onnx")
    assert constants(tmp_path / "q.onnx")["x_scale"] == pytest.approx(5 / 255)


@pytest.mark.parametrize(
    ("batch", "array", "count"),
    [
        (1, SAMPLES, 12),
        (1, SAMPLES[:, None], 12),
        (1, SAMPLES[:1], 1),
        (3, SAMPLES, 4),
        ("n", SAMPLES, 12),
        (1, SAMPLES.astype(np.float64), 12),
    ],
    ids=["leading axis", "new axis", "one sample", "batches", "symbolic", "other type"],
)
def test_ways_to_stack_samples(tmp_path: Path, batch: int | str, array: np.ndarray, count: int) -> None:
    model = convolution(tmp_path / "f.onnx", batch=batch)
    assert quantize_model(model, calibration(tmp_path / "c.npz", array), tmp_path / "q.onnx") == count


def test_arrays_go_by_name_then_by_position(tmp_path: Path) -> None:
    model = two_inputs(tmp_path / "f.onnx")
    small, large = RANDOM.uniform(-1, 1, (5, 4)), RANDOM.uniform(-9, 9, (5, 4))
    quantize_model(model, calibration(tmp_path / "c.npz", b=large, a=small), tmp_path / "named.onnx")
    quantize_model(model, calibration(tmp_path / "d.npz", small, large, small), tmp_path / "placed.onnx")
    for path in (tmp_path / "named.onnx", tmp_path / "placed.onnx"):
        scales = constants(path)
        assert scales["a_scale"] < 2.1 / 255 < 9 / 255 < scales["b_scale"]


def refused(tmp_path: Path, kind: type[DeeployError], text: str, model: Path, data: Path, output: str = "q.onnx") -> None:
    """Check that quantisation is refused with two lines that say ``text``, and leaves no file behind."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(kind, match=text) as caught:
        quantize_model(model, data, tmp_path / output)
    assert len(str(caught.value).splitlines()) == 2
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (SAMPLES[:, :1], r"shape \[12, 1, 6, 6\] instead of \[1, 2, 6, 6\]"),
        (SAMPLES.reshape(12, -1), r"shape \[12, 72\]"),
        (SAMPLES[:0], "no sample"),
        (np.full_like(SAMPLES, np.nan), "cannot hold"),
        (np.full(SAMPLES.shape, "1"), "not numbers"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, array: np.ndarray, text: str) -> None:
    refused(tmp_path, UsageError, text, convolution(tmp_path / "f.onnx"), calibration(tmp_path / "c.npz", x=array))


def test_batches_that_do_not_divide(tmp_path: Path) -> None:
    refused(tmp_path, UsageError, r"\[5, 2, 6, 6\]", convolution(tmp_path / "f.onnx", batch=5), calibration(tmp_path / "c.npz", x=SAMPLES))


def test_too_few_arrays_and_unequal_counts(tmp_path: Path) -> None:
    model = two_inputs(tmp_path / "f.onnx")
    refused(tmp_path, UsageError, "holds the arrays a; the inputs are a, b", model, calibration(tmp_path / "c.npz", a=np.ones((3, 4))))
    refused(tmp_path, UsageError, "'a': 3, 'b': 2", model, calibration(tmp_path / "c.npz", a=np.ones((3, 4)), b=np.ones((2, 4))))


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    model = convolution(tmp_path / "f.onnx")
    refused(tmp_path, UsageError, "absent.npz", model, tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("not an archive")
    refused(tmp_path, UsageError, "text.npz", model, tmp_path / "text.npz")
    np.save(tmp_path / "bare.npy", SAMPLES)
    refused(tmp_path, UsageError, "is a single array", model, tmp_path / "bare.npy")


def test_files_that_are_no_model(tmp_path: Path) -> None:
    data = calibration(tmp_path / "c.npz", x=SAMPLES)
    refused(tmp_path, ModelError, "absent.onnx", tmp_path / "absent.onnx", data)
    whole = convolution(tmp_path / "f.onnx").read_bytes()
    (tmp_path / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path, ModelError, "cut.onnx", tmp_path / "cut.onnx", data)
    (tmp_path / "empty.onnx").write_bytes(b"")
    refused(tmp_path, ModelError, "empty.onnx", tmp_path / "empty.onnx", data)


def test_a_quantised_model_is_refused(tmp_path: Path) -> None:
    data = calibration(tmp_path / "c.npz", x=SAMPLES)
    quantize_model(convolution(tmp_path / "f.onnx"), data, tmp_path / "once.onnx")
    refused(tmp_path, ModelError, "quantised already", tmp_path / "once.onnx", data)


@pytest.mark.parametrize("op", ["Upsample", "Sum"])
def test_an_old_model_that_onnx_cannot_convert(tmp_path: Path, op: str) -> None:
    """Operands are missing: of these, onnx's converter says something in exceptions of its own."""
    model = onnx.load(convolution(tmp_path / "f.onnx", opset=9))
    model.graph.node[1].op_type = op
    del model.graph.node[1].input[op == "Upsample" :]
    onnx.save(model, tmp_path / "f.onnx")
    refused(
        tmp_path, UnsupportedError, "is of opset 9 and cannot be converted", tmp_path / "f.onnx", calibration(tmp_path / "c.npz", x=SAMPLES)
    )


def test_a_model_that_onnxruntime_cannot_run(tmp_path: Path) -> None:
    model = onnx.load(convolution(tmp_path / "f.onnx"))
    model.graph.node[1].op_type = "NoSuchOperator"
    onnx.save(model, tmp_path / "f.onnx")
    refused(tmp_path, UnsupportedError, "NoSuchOperator", tmp_path / "f.onnx", calibration(tmp_path / "c.npz", x=SAMPLES))


def test_an_output_that_cannot_be_written_and_an_old_one_that_stays(tmp_path: Path) -> None:
    model, data = convolution(tmp_path / "f.onnx"), calibration(tmp_path / "c.npz", x=SAMPLES)
    refused(tmp_path, UsageError, "does not exist", model, data, "none/q.onnx")
    (tmp_path / "folder").mkdir()
    refused(tmp_path, UsageError, "is a directory", model, data, "folder")
    (tmp_path / "q.onnx").write_text("precious")
    refused(tmp_path, UsageError, "cannot hold", model, calibration(tmp_path / "d.npz", x=SAMPLES * np.nan))
    assert (tmp_path / "q.onnx").read_text() == "precious"


def test_without_onnxruntime_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    model, data = convolution(tmp_path / "f.onnx"), calibration(tmp_path / "c.npz", x=SAMPLES)
    refused(tmp_path, UsageError, "pip install onnxruntime", model, data)


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    quantize_model(convolution(tmp_path / "f.onnx"), calibration(tmp_path / "c.npz", x=SAMPLES), tmp_path / "q.onnx")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("dtype", [object, str, np.complex64])
def test_samples_of_what_is_no_number_are_refused(dtype: type) -> None:
    array = np.ones(2) if dtype is np.complex64 else np.array(["a", "b"], object)
    with pytest.raises(UsageError, match=r"has values that .* cannot hold"):
        _check_sample(Path("samples.npz"), Input("x", np.dtype(dtype), (2,)), array)
