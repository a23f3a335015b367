"""Nodes for N-EUREKA: its constants give the node's own results, and what it cannot compute is refused with a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeploy.api import compile as compile_model
from deeploy.ir import epilogue
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.operators import conv, matmul
from targets.siracusa import npu_lowering
from targets.siracusa.npu import Mode
from targets.siracusa.npu_lowering import LoweredLayer, lower_layer

Array = np.ndarray[Any, np.dtype[Any]]
RANGES = {"s8": (-128, 127), "u8": (0, 255)}
IMAGE: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "group": 1, "zero_point": 0}
PRODUCT: dict[str, Any] = {"trans_a": False, "trans_b": False, "a_zero_point": 0, "b_zero_point": 0}


def node(op: str, x: tuple[int, ...], w: Array, attrs: dict[str, Any], x_type: str = "u8", y_type: str = "s8", **changes: Any) -> Node:
    """A node with a bias and a requantisation of 9 bits."""
    random = np.random.default_rng(w.size)
    channels = w.shape[0] if op == "Conv" else w.shape[1]
    low, high = RANGES[y_type]
    constants = {
        "bias": random.integers(-5000, 5000, channels).astype(np.int32),
        "mul": random.integers(257, 514, channels).astype(np.int32),
        "add": np.array([1 << 15], np.int32),
    }
    requantisation = {"epilogue": ("bias", "requantise"), "shift": 16, "low": low, "high": high}
    operands = [Tensor(name, a.shape, DType.of(a.dtype), a) for name, a in {"w": w, **constants}.items()]
    y = Tensor("y", (1,), DType(y_type))
    return Node("layer", op, (Tensor("x", x, DType(x_type)), *operands), (y,), {**attrs, **requantisation, **changes})


def weights(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).integers(-20, 21, shape).astype(np.int8)


NODES = {
    "1x1": (node("Conv", (1, 5, 6, 33), weights(20, 33, 1, 1), {**IMAGE, "pads": (0, 0, 0, 0)}), Mode.POINTWISE),
    "1x1 of stride 2": (node("Conv", (1, 5, 6, 9), weights(7, 9, 1, 1), {**IMAGE, "pads": (0,) * 4, "strides": (2, 2)}), Mode.POINTWISE),
    "3x3": (node("Conv", (1, 7, 6, 9), weights(11, 9, 3, 3), {**IMAGE, "zero_point": 7}), Mode.DENSE),
    "depthwise": (node("Conv", (1, 7, 6, 9), weights(9, 1, 3, 3), {**IMAGE, "group": 9, "pads": (0, 1, 1, 0)}), Mode.DEPTHWISE),
    "product": (node("MatMul", (13, 30), weights(30, 17), PRODUCT, "s8", "u8"), Mode.POINTWISE),
    "product with zero points": (
        node("MatMul", (13, 30), weights(30, 17), {**PRODUCT, "a_zero_point": 3, "b_zero_point": -2}, "s8"),
        Mode.POINTWISE,
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_its_arithmetic_gives_the_results_of_the_node(name: str) -> None:
    layer, mode = NODES[name]
    x_tensor, w_tensor = layer.inputs[:2]
    assert x_tensor is not None and w_tensor is not None and w_tensor.data is not None
    low, high = RANGES[x_tensor.dtype.value]
    x = np.random.default_rng(1).integers(low, high + 1, x_tensor.shape).astype(x_tensor.dtype.numpy)
    reference = conv.reference if layer.op == "Conv" else matmul.reference
    arrays = dict(zip(("bias", "mul", "add"), (t.data for t in layer.inputs[2:] if t is not None and t.data is not None), strict=True))
    wanted = epilogue.apply_stages(layer, np.asarray(reference(layer, x, w_tensor.data)), arrays)

    lowered = lower_layer(layer)
    assert isinstance(lowered, LoweredLayer) and lowered.layer.mode is mode and lowered.normalisation is not None
    assert lowered.layer.padding_value == (7 if name == "3x3" else 0)
    plain = Node("body", layer.op, layer.inputs[:2], layer.outputs, {**layer.attrs, "a_zero_point": 0})
    acc = np.asarray(reference(plain, x, w_tensor.data)).astype(np.int64)
    norm = lowered.normalisation
    shift = norm.shift if norm.shifts is None else norm.shifts.astype(np.int64)
    got = np.clip((acc * norm.scale.astype(np.int64) + norm.bias) >> np.asarray(shift), *RANGES[layer.outputs[0].dtype.value])
    np.testing.assert_array_equal(got, wanted)
    assert len(np.unique(wanted)) > 20


def changed(name: str, **attrs: Any) -> Node:
    known = NODES[name][0]
    return Node(known.name, known.op, known.inputs, known.outputs, {**known.attrs, **attrs})


@pytest.mark.parametrize(
    ("wrong", "need"),
    [
        (changed("3x3", strides=(2, 2)), "stride 1"),
        (changed("3x3", dilations=(2, 2)), "no dilation"),
        (changed("3x3", pads=(2, 1, 1, 1)), "borders of at most 1"),
        (changed("1x1", pads=(0, 0, 1, 1)), "without padding"),
        (changed("3x3", even=0), "rounds halves up"),
        (changed("3x3", low=-5), "32 bits compute with the same results"),
        (changed("product", trans_a=True), "not transposed"),
        (node("Conv", (1, 7, 6, 9), weights(9, 3, 3, 3), {**IMAGE, "group": 3}), "one channel in each"),
        (node("Conv", (1, 7, 6, 9), weights(9, 9, 3, 3), IMAGE, "s16"), "x of 8 bits, not s16"),
        (node("Conv", (1, 7, 6, 9), weights(9, 9, 3, 3).astype(np.int16) * 20, IMAGE), "weights within 8 bits, not -400 to 400"),
        (Node("layer", "AveragePool", NODES["3x3"][0].inputs, NODES["3x3"][0].outputs, {}), "a convolution or a product"),
    ],
)
def test_what_it_cannot_compute_is_refused(wrong: Node, need: str) -> None:
    reason = lower_layer(wrong)
    assert isinstance(reason, str) and need in reason


@pytest.mark.parametrize(("name", "most"), [("MLPerf/KeywordSpotting", 9), ("MLPerf/ImageClassification", 8)])
def test_layers_of_the_integer_dialect(shared_models: Path, name: str, most: int) -> None:
    """All but those of other kernels and of 3x3 with stride 2."""
    folder = shared_models / "dialect" / "Models" / name
    plan = compile_model(folder / "network.onnx", "generic", inputs=folder / "inputs.npz").networks["network"].plan
    layers = [call.node for call in plan.program.calls if call.node.op in ("Conv", "MatMul")]
    assert sum(isinstance(lower_layer(layer), LoweredLayer) for layer in layers) == most


def test_channels_with_shifts_of_their_own_need_the_place_of_a_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds them: no other operand does."""
    layer, _ = NODES["3x3"]
    lowered = lower_layer(layer)
    assert isinstance(lowered, LoweredLayer) and lowered.normalisation is not None and layer.epilogue == ("bias", "requantise")
    found = replace(lowered.normalisation, shift=None, shifts=np.arange(11, dtype=np.uint8))
    monkeypatch.setattr(npu_lowering, "find_normalisation", lambda *_: found)
    apart = lower_layer(layer)
    assert isinstance(apart, LoweredLayer) and apart.normalisation is found and apart.layer.shift is None
    x, w, _, *rest = layer.inputs
    bare = replace(layer, inputs=(x, w, *rest), attrs={**layer.attrs, "epilogue": ("requantise",)})
    assert lower_layer(bare) == "a bias, in whose place a channel's own shift is stored, or one shift for all channels"
