"""What quantisation costs is measured tensor by tensor, and options that give layers more bits or floats do what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import AccuracyError, UnsupportedError
from deeploy.quantization import static
from deeploy.quantization.form import Form
from deeploy.quantization.losses import Loss, LossComparison, compare_networks
from tests.models import save_graph

RANDOM = np.random.default_rng(11)


@pytest.fixture(scope="module")
def outlier_network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two products, of which the first one's results range far beyond what most of them are."""
    folder = tmp_path_factory.mktemp("float")
    first = RANDOM.normal(size=(16, 32))
    first[:, 0] *= 60  # one channel takes nearly all of a scale per tensor
    weights = {"v": first, "w": RANDOM.normal(size=(32, 4))}
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"], "first"),
        helper.make_node("Tanh", ["a"], ["b"], "middle"),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()],
    )
    save_graph(graph, folder / "float.onnx", 21)
    np.savez(folder / "samples.npz", x=RANDOM.normal(size=(24, 16)).astype(np.float32))
    return folder / "float.onnx", folder / "samples.npz"


def compared(network: tuple[Path, Path], output: Path, form: Form) -> LossComparison:
    source = static.read_source(*network, {"batch": 1}, {})
    static.write_quantised(source, output, replace(form, float_share=0))  # what 8 bits ruin stays in them
    assert onnx.load(output).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1
    return compare_networks(source, output)


def test_the_tensor_that_loses_most_is_found_and_helped(outlier_network: tuple[Path, Path], tmp_path: Path) -> None:
    plain = compared(outlier_network, tmp_path / "plain.onnx", Form())
    assert plain.samples == 24 and {layer.tensor for layer in plain.layers} == {"a", "b", "y"}
    assert [layer.signal_to_noise for layer in plain.layers] == sorted(layer.signal_to_noise for layer in plain.layers)
    by_node = {layer.node: layer for layer in plain.layers}
    assert by_node.keys() == {"first", "middle", "MatMul_2"}  # the node without a name got one
    wide = compared(outlier_network, tmp_path / "wide.onnx", Form(wide=("first",)))
    kept = compared(outlier_network, tmp_path / "kept.onnx", Form(keep=("first", "middle")))
    widened = next(layer for layer in wide.layers if layer.node == "first")
    assert by_node["first"].own is not None and widened.own is not None and widened.own > by_node["first"].own + 40  # 8 bits are 48 dB
    assert wide.signal_to_noise > plain.signal_to_noise + 3
    assert kept.signal_to_noise > plain.signal_to_noise + 3
    assert {node.op_type for node in onnx.load(tmp_path / "kept.onnx").graph.node if "first" in node.name} == {"MatMul"}
    assert next(layer for layer in kept.layers if layer.node == "first").own is None


def test_a_form_with_16_bits_has_them(outlier_network: tuple[Path, Path], tmp_path: Path) -> None:
    plain, wide = (compared(outlier_network, tmp_path / "q.onnx", Form(activations=kind)) for kind in ("int8", "int16"))
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(tmp_path / "q.onnx").graph.initializer}
    zeros = [values[node.input[2]] for node in onnx.load(tmp_path / "q.onnx").graph.node if node.op_type == "QuantizeLinear"]
    assert {zero.dtype for zero in zeros} == {np.dtype(np.int16)} and wide.signal_to_noise > plain.signal_to_noise + 6


def test_methods_choose_ranges(outlier_network: tuple[Path, Path], tmp_path: Path) -> None:
    scales = {}
    for method in ("minmax", "entropy", "percentile"):
        compared(outlier_network, tmp_path / "q.onnx", Form(method=method))
        model = onnx.load(tmp_path / "q.onnx")
        values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        scales[method] = next(float(values[node.input[1]]) for node in model.graph.node if node.op_type == "QuantizeLinear")
    compared(outlier_network, tmp_path / "q.onnx", Form(method="percentile", percentile=90))
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(tmp_path / "q.onnx").graph.initializer}
    assert values["x_scale"] < scales["percentile"] < scales["minmax"] and scales["entropy"] < scales["minmax"]


def test_what_works_is_said_where_onnxruntime_fails(
    outlier_network: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = static._run_quantiser

    def failing(*arguments: object) -> None:
        (form,) = (each for each in arguments if isinstance(each, Form))
        if form.per_channel:
            raise ValueError("axis 3 is out of bounds")
        run(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(static, "_run_quantiser", failing)
    with pytest.raises(UnsupportedError, match="axis 3 is out of bounds") as failed:
        compared(outlier_network, tmp_path / "q.onnx", Form())
    assert failed.value.remedy == "It can with --per-tensor."
    assert list(tmp_path.iterdir()) == []


def test_the_summary_shows_the_worst_layers() -> None:
    layers = tuple(Loss(f"n{i}", "Conv", f"t{i}", 10.0 + i, None if i else 33.3) for i in range(20))
    lines = LossComparison(4, 21.5, 0.75, layers).summary().splitlines()
    assert lines[0] == "outputs beside float, 4 samples: signal to noise 21.5 dB, same top-1 as float in 75.0 % of rows"
    assert len(lines) == 10 and lines[2].split() == ["n0", "Conv", "10.0", "dB", "33.3", "dB"]
    assert lines[3].split() == ["n1", "Conv", "11.0", "dB", "-"]


def test_python_writes_nothing_that_loses_more(outlier_network: tuple[Path, Path], tmp_path: Path) -> None:
    model, samples = outlier_network
    with pytest.raises(AccuracyError, match=r"less than at_least=90"):
        deeploy.quantize(model, samples, tmp_path / "q.onnx", Form(float_share=0), at_least=90)
    assert not (tmp_path / "q.onnx").exists()
    deeploy.quantize(model, samples, tmp_path / "q.onnx", at_least=5)
    assert (tmp_path / "q.onnx").is_file()
