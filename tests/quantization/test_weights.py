"""Weights of 4 bits: chosen with the inputs in mind, under budgets, in groups; what is written compiles and says what onnxruntime does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import UsageError
from deeploy.ir.types import DType
from deeploy.quantization import static
from deeploy.quantization.form import Form
from deeploy.quantization.losses import run_model
from deeploy.quantization.weights import Narrowed, choose_weights, scales_of, steps_of
from tests.models import model_of, save_graph

RANDOM = np.random.default_rng(3)


@pytest.fixture(scope="module")
def weighted_network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A convolution, a product that depends on it, and one with a bias, whose weights matter little and much."""
    folder = tmp_path_factory.mktemp("float")
    weights = {
        **{"c": RANDOM.normal(size=(8, 3, 3, 3)), "cb": RANDOM.normal(size=8), "v": RANDOM.normal(size=(128, 32))},
        **{"w": RANDOM.normal(size=(10, 32)), "wb": RANDOM.normal(size=10)},
    }
    nodes = [
        helper.make_node("Conv", ["x", "c", "cb"], ["a"], "conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["p"], "product"),
        helper.make_node("Gemm", ["p", "w", "wb"], ["y"], "gemm", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()],
    )
    save_graph(graph, folder / "float.onnx")
    np.savez(folder / "samples.npz", x=RANDOM.normal(size=(12, 1, 3, 8, 8)).astype(np.float32))
    return folder / "float.onnx", folder / "samples.npz"


def quantised(network: tuple[Path, Path], output: Path, form: Form) -> tuple[Narrowed, ...]:
    return static.write_quantised(static.read_source(*network, {}, {}), output, form).weights


def kinds(path: Path) -> dict[str, int]:
    """Types of the weights of products and convolutions."""
    stored = {t.name: t.data_type for t in onnx.load(path).graph.initializer if len(t.dims) > 1}
    return {name.removesuffix("_quantized"): kind for name, kind in stored.items() if name.endswith("_quantized")}


def test_rounding_knows_the_inputs() -> None:
    """Steps that are rounded together lose less at the outputs than those that are rounded alone."""
    inputs = RANDOM.normal(size=(400, 24)) @ RANDOM.normal(size=(24, 24))
    values = RANDOM.normal(size=(16, 24))
    errors = []
    for gram in (None, inputs.T @ inputs):
        steps, scales = steps_of(values, gram, None)
        assert steps.min() >= -8 and steps.max() <= 7 and scales.shape == (16, 1)
        errors.append(np.square(inputs @ (values - steps * scales).T).sum())
    assert errors[1] < 0.7 * errors[0]


def test_a_group_has_a_scale_of_its_own() -> None:
    values = np.concatenate([RANDOM.normal(size=(3, 8)), 50 * RANDOM.normal(size=(3, 4))], axis=1)
    assert scales_of(values, np.ones(12), 4).shape == (3, 3)
    few, many = (steps_of(values, None, group) for group in (None, 4))
    lost = [np.square(values - steps * np.repeat(scales, 12 // scales.shape[1], axis=1))[:, :8].sum() for steps, scales in (few, many)]
    assert lost[1] < 0.05 * lost[0]


def test_budgets_choose_what_loses_least_for_a_byte() -> None:
    noise, sizes = [1e-3, 1e-4, 1e-2], [1000, 10, 1000]
    assert choose_weights(noise, sizes, 2010, Form(weight_bytes=1600)) == [0]
    assert choose_weights(noise, sizes, 2010, Form(weight_bytes=1505)) == [0, 1]
    assert choose_weights(noise, sizes, 2010, Form(weight_loss=25.0)) == [0, 1]
    with pytest.raises(UsageError, match="1005"):
        choose_weights(noise, sizes, 2010, Form(weight_bytes=1000))


@pytest.mark.parametrize("group", [None, 16])
def test_what_is_written_compiles_and_says_what_onnxruntime_says(
    group: int | None, weighted_network: tuple[Path, Path], tmp_path: Path
) -> None:
    found = quantised(weighted_network, tmp_path / "q.onnx", Form(weights=4, group=group))
    assert [(w.node, w.bytes, w.bits) for w in found] == [("conv", 216, 4), ("product", 4096, 4), ("gemm", 320, 4)]
    assert kinds(tmp_path / "q.onnx") == dict.fromkeys("cvw", TensorProto.INT4)
    compiled = deeploy.compile(tmp_path / "q.onnx")
    packed = [b for b in compiled.network.program.buffers.values() if b.dtype is DType.INT4]
    assert sum(b.bytes for b in packed) == 8 * 14 + (4096 + 320) // 2
    samples = np.load(weighted_network[1])["x"][:4]
    wanted = run_model(onnx.load(tmp_path / "q.onnx"), "q.onnx", [{"x": x} for x in samples], {})[0]
    for x, y in zip(samples, wanted, strict=True):
        (got,) = compiled.interpret([x])
        steps = np.abs(got - y) / np.abs(np.diff(np.unique(wanted))).min()
        assert steps.max() <= 1.01 and (steps < 0.01).mean() >= 0.8
    assert np.array_equal(compiled.run([samples[0]])[0], compiled.interpret([samples[0]])[0])


def test_a_budget_of_bytes_keeps_weights_in_8_bits(weighted_network: tuple[Path, Path], tmp_path: Path) -> None:
    found = quantised(weighted_network, tmp_path / "q.onnx", Form(weights=4, weight_bytes=2600))
    assert sum(w.bytes * w.bits // 8 for w in found) <= 2600
    assert {w.bits for w in found} == {4, 8}
    assert all(w.signal_to_noise is not None for w in found)
    assert {TensorProto.INT4, TensorProto.INT8} == {*kinds(tmp_path / "q.onnx").values()}


def test_weights_with_two_readers_keep_8_bits(tmp_path: Path) -> None:
    """Both would have to agree on the scales of groups, and on where a row begins."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 32]) for name in ("x", "y")]
    nodes = [helper.make_node("MatMul", [a, w], [b], b) for a, w, b in (("x", "v", "a"), ("a", "v", "b"), ("b", "w", "y"))]
    weights = [numpy_helper.from_array(RANDOM.normal(size=(32, 32)).astype(np.float32), name) for name in "vw"]
    model = model_of(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights))
    onnx.save(model, tmp_path / "float.onnx")
    np.savez(tmp_path / "samples.npz", x=RANDOM.normal(size=(4, 1, 32)).astype(np.float32))
    found = quantised((tmp_path / "float.onnx", tmp_path / "samples.npz"), tmp_path / "q.onnx", Form(weights=4))
    assert [(w.node, w.bits) for w in found] == [("y", 4)]
    assert kinds(tmp_path / "q.onnx") == {"v": TensorProto.INT8, "w": TensorProto.INT4}


def test_groups_divide_what_is_added_up(weighted_network: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="node product adds up 128"):
        quantised(weighted_network, tmp_path / "q.onnx", Form(weights=4, group=48))
    assert not (tmp_path / "q.onnx").exists()
