"""Convolutions: C against the reference, and the reference against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.operators import conv
from deeploy.planning.binding import kernels as bind
from tests.operators.harness import check, make_node
from tests.operators.kernels import KERNELS, draw, kernel, requantisation, staged


def conv_attrs(
    strides: tuple[int, int] = (1, 1), dilations: tuple[int, int] = (1, 1), pads: tuple[int, ...] = (0,) * 4, group: int = 1, zero: int = 0
) -> dict[str, Any]:
    return {"strides": strides, "dilations": dilations, "pads": pads, "group": group, "zero_point": zero}


# x shape, filters, kernel, strides, dilations, pads, group
GEOMETRIES = {
    "dense 3x3": ((1, 7, 6, 5), 9, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "batch, asymmetric": ((2, 8, 7, 3), 80, (3, 2), (2, 1), (1, 1), (0, 1, 2, 0), 1),
    "dilated": ((1, 11, 9, 4), 17, (3, 3), (1, 2), (2, 3), (2, 3, 2, 1), 1),
    "pointwise strided": ((1, 5, 5, 10), 24, (1, 1), (2, 2), (1, 1), (0, 0, 0, 0), 1),
    "signal": ((1, 1, 20, 3), 6, (1, 5), (1, 3), (1, 2), (0, 4, 0, 4), 1),
    "kernel beyond image": ((1, 2, 3, 2), 8, (5, 5), (1, 1), (1, 1), (2, 2, 2, 2), 1),
    "wide padding": ((1, 3, 3, 1), 4, (2, 2), (1, 1), (1, 1), (3, 3, 3, 3), 1),
    "grouped": ((1, 6, 6, 12), 21, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 3),
    "grouped one filter": ((1, 4, 5, 6), 3, (2, 2), (1, 1), (1, 1), (0, 0, 1, 1), 3),
    "long window": ((1, 6, 5, 70), 67, (3, 3), (2, 1), (1, 2), (1, 2, 1, 2), 1),  # longer than the dot kernel's vector
    "grouped long window": ((2, 5, 4, 24), 10, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 2),
    "depthwise": ((2, 6, 7, 19), 19, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 19),
    "depthwise dilated": ((1, 9, 9, 70), 70, (3, 2), (1, 1), (3, 2), (3, 0, 3, 1), 70),
    "depthwise multiplied": ((1, 5, 5, 7), 21, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 7),
}


def fitting(x: np.ndarray, w: np.ndarray, attrs: dict[str, Any], y: str) -> list[str]:
    """The kernels that can run such a node, the one that the target takes first."""
    node = Node(
        "n",
        "Conv",
        (Tensor("x", x.shape, DType.of(x.dtype)), Tensor("w", w.shape, DType.of(w.dtype), w)),
        (Tensor("y", (1,), DType(y)),),
        attrs,
    )
    return [k.name for k in KERNELS if k.op == "Conv" and not bind.list_mismatches(k, node)]


def select(x: np.ndarray, w: np.ndarray, attrs: dict[str, Any], y: str) -> str:
    """The kernel that the target runs such a node with."""
    return fitting(x, w, attrs, y)[0]


@pytest.mark.share(0.25)
@pytest.mark.parametrize("zero", [0, -7])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_conv_is_exact(name: str, zero: int) -> None:
    shape, filters, taps, strides, dilations, pads, group = GEOMETRIES[name]
    rng = np.random.default_rng(len(name))
    x, w = draw(rng, "s8", *shape), draw(rng, "s8", filters, shape[3] // group, *taps)
    attrs = conv_attrs(strides, dilations, pads, group, zero)
    for chosen in fitting(x, w, attrs, "s32"):
        check(kernel(chosen), {"x": x, "w": w}, "s32", attrs)


@pytest.mark.parametrize(
    ("shape", "group", "kinds"),
    [
        ((4, 1, 3, 3), 1, ["is_dense"]),  # one channel, and no groups
        ((4, 3, 3, 3), 1, ["is_dense"]),
        ((4, 1, 3, 3), 4, ["is_depthwise", "is_depthwise_multiplied"]),
        ((8, 1, 3, 3), 4, ["is_depthwise_multiplied"]),
        ((8, 3, 3, 3), 2, []),
        ((1, 1, 3, 3), 1, ["is_dense"]),
    ],
)
def test_kinds_of_groups(shape: tuple[int, ...], group: int, kinds: list[str]) -> None:
    node = Node(
        "n", "Conv", (Tensor("x", (1, 8, 8, shape[1] * group), DType.INT8), Tensor("w", shape, DType.INT8)), (), conv_attrs(group=group)
    )
    every = (conv.is_dense, conv.is_depthwise, conv.is_depthwise_multiplied)
    assert [kind.__name__ for kind in every if kind(node)] == kinds


def test_the_special_kernel_comes_first() -> None:
    expected = {
        "dense 3x3": "conv2d",
        "long window": "conv2d_dot",
        "grouped": "conv2d_grouped",
        "grouped long window": "conv2d_dot_grouped",
        "depthwise": "depthwise2d",
        "depthwise multiplied": "depthwise2d_multiplied",
    }
    for name, chosen in expected.items():
        shape, filters, taps, strides, dilations, pads, group = GEOMETRIES[name]
        x, w = np.zeros(shape, np.int8), np.zeros((filters, shape[3] // group, *taps), np.int8)
        assert select(x, w, conv_attrs(strides, dilations, pads, group), "s32") == chosen
        assert select(x.astype(np.float32), w.astype(np.float32), conv_attrs(strides, dilations, pads, group), "f32") == chosen.replace(
            "_dot", ""
        )


@pytest.mark.share(0.25)
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize(
    "name", ["dense 3x3", "dilated", "depthwise", "depthwise multiplied", "grouped", "long window", "grouped long window"]
)
def test_conv_of_strided_images(name: str, zero: int) -> None:
    shape, filters, taps, strides, dilations, pads, group = GEOMETRIES[name]
    rng = np.random.default_rng(1)
    x, w = draw(rng, "u8", *shape), draw(rng, "s8", filters, shape[3] // group, *taps)
    attrs = conv_attrs(strides, dilations, pads, group, zero)
    check(kernel(select(x, w, attrs, "s32")), {"x": x, "w": w}, "s32", attrs, strided=True)


@pytest.mark.parametrize("mul_step, add_step", [(1, 1), (0, 1), (0, 0), (1, 0)])
@pytest.mark.parametrize(("result", "wide_add"), [("s8", False), ("u8", True)])
@pytest.mark.parametrize("name", ["dense 3x3", "depthwise", "batch, asymmetric", "long window"])
def test_conv_requantised(name: str, result: str, wide_add: bool, mul_step: int, add_step: int) -> None:
    shape, filters, taps, strides, dilations, pads, group = GEOMETRIES[name]
    rng = np.random.default_rng(5)
    x, w = draw(rng, "s8", *shape), draw(rng, "s8", filters, shape[3] // group, *taps)
    attrs = conv_attrs(strides, dilations, pads, group, 5)
    operands, values = requantisation(rng, filters, result, 60000, wide_add, mul_step, add_step)
    (y,) = check(kernel(select(x, w, attrs, "s32")), {"x": x, "w": w, **operands}, result, staged(attrs, "requantise", **values))
    assert len(np.unique(y)) > 50  # not everything is clipped


@pytest.mark.parametrize("stages", [("bias",), ("clamp",), ("bias", "clamp"), ("bias", "requantise")])
@pytest.mark.parametrize("bias_extent", [1, 9])
def test_conv_other_epilogues(stages: tuple[str, ...], bias_extent: int) -> None:
    rng = np.random.default_rng(2)
    operands: dict[str, np.ndarray] = {"x": draw(rng, "s8", 1, 7, 6, 5), "w": draw(rng, "s8", 9, 5, 3, 3)}
    values: dict[str, Any] = {"low": 0, "high": 5000}
    if "bias" in stages:
        operands["bias"] = rng.integers(-30000, 30000, bias_extent).astype(np.int32)
    if "requantise" in stages:
        requantised, values = requantisation(rng, 9, "s8", 60000)
        operands |= requantised
    check(kernel("conv2d"), operands, "s8" if "requantise" in stages else "s32", staged(conv_attrs(pads=(1, 1, 1, 1)), *stages, **values))


@pytest.mark.share(0.25)
@pytest.mark.parametrize(("x_type", "w_type"), [("u8", "s16"), ("s16", "s8"), ("s32", "u8"), ("u8", "u8"), ("s8", "s32")])
def test_conv_types(x_type: str, w_type: str) -> None:
    rng = np.random.default_rng(3)
    for group in (1, 10):
        x, w = draw(rng, x_type, 1, 5, 4, 10), draw(rng, w_type, 10, 10 // group, 3, 3)
        attrs = conv_attrs(pads=(1, 1, 1, 1), group=group, zero=2)
        for chosen in fitting(x, w, attrs, "s32"):
            check(kernel(chosen), {"x": x, "w": w}, "s32", attrs)
        check(kernel("conv2d_transpose"), {"x": x, "w": w}, "s32", {**attrs, "output_padding": (0, 0)})


@pytest.mark.share(0.25)
@pytest.mark.parametrize("stages", [(), ("bias",), ("bias", "clamp")])
@pytest.mark.parametrize("name", ["dense 3x3", "dilated", "grouped", "depthwise", "depthwise multiplied"])
def test_conv_float(name: str, stages: tuple[str, ...]) -> None:
    shape, filters, taps, strides, dilations, pads, group = GEOMETRIES[name]
    rng = np.random.default_rng(7)
    x, w = draw(rng, "f32", *shape), draw(rng, "f32", filters, shape[3] // group, *taps)
    attrs = staged(conv_attrs(strides, dilations, pads, group), *stages, low=0.0, high=6.0)
    bias = {"bias": draw(rng, "f32", filters)} if "bias" in stages else {}
    for chosen in ("conv2d_any", select(x, w, conv_attrs(strides, dilations, pads, group), "f32")):
        # The reference adds in the order of the C code: equal to the last bit.
        check(kernel(chosen, floating=True), {"x": x, "w": w, **bias}, "f32", attrs, rtol=0, atol=0)


TRANSPOSED = {
    "stride 2": ((1, 4, 5, 3), 6, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 1, (1, 1)),
    "batch, asymmetric": ((2, 3, 4, 5), 20, (4, 2), (2, 3), (1, 1), (0, 1, 2, 0), 1, (0, 2)),
    "dilated": ((1, 4, 3, 2), 9, (3, 2), (3, 2), (2, 3), (1, 0, 0, 1), 1, (0, 0)),
    "stride 1": ((1, 5, 5, 4), 70, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1, (0, 0)),
    "grouped": ((1, 3, 3, 6), 15, (2, 3), (2, 1), (1, 1), (0, 0, 0, 0), 3, (0, 0)),
    "depthwise": ((1, 3, 4, 8), 8, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), 8, (0, 0)),
}


def transposed(name: str, dtype: str, rng: np.random.Generator, zero: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    shape, filters, taps, strides, dilations, pads, group, padding = TRANSPOSED[name]
    operands = {"x": draw(rng, dtype, *shape), "w": draw(rng, dtype, shape[3], filters // group, *taps)}
    return operands, {**conv_attrs(strides, dilations, pads, group, zero), "output_padding": padding}


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_is_exact(name: str, strided: bool) -> None:
    operands, attrs = transposed(name, "s8", np.random.default_rng(4), -9)
    check(kernel("conv2d_transpose"), operands, "s32", attrs, strided=strided)


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_float_and_onnxruntime(name: str) -> None:
    operands, attrs = transposed(name, "f32", np.random.default_rng(4), 0)
    (y,) = check(kernel("conv2d_transpose", floating=True), operands, "f32", attrs, rtol=0, atol=0)
    want = onnxruntime_conv("ConvTranspose", operands, attrs)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_reference_equals_onnxruntime(name: str) -> None:
    shape, filters, taps, strides, dilations, pads, group = GEOMETRIES[name]
    rng = np.random.default_rng(8)
    operands = {"x": draw(rng, "s8", *shape), "w": draw(rng, "s8", filters, shape[3] // group, *taps)}
    attrs = conv_attrs(strides, dilations, pads, group)
    node = make_node(kernel("conv2d_grouped"), operands, "s32", attrs)
    want = onnxruntime_conv("Conv", operands, attrs)
    np.testing.assert_array_equal(conv.reference(node, operands["x"], operands["w"]), want.astype(np.int64))


def onnxruntime_conv(op: str, operands: dict[str, np.ndarray], attrs: dict[str, Any]) -> np.ndarray:
    """What onnxruntime computes in float32, channels last."""
    ort = pytest.importorskip("onnxruntime")
    x, w = operands["x"].transpose(0, 3, 1, 2).astype(np.float32), operands["w"].astype(np.float32)
    further = {"output_padding": attrs["output_padding"]} if op == "ConvTranspose" else {}
    node = onnx.helper.make_node(
        op, ["x", "w"], ["y"], strides=attrs["strides"], dilations=attrs["dilations"], pads=attrs["pads"], group=attrs["group"], **further
    )
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, x.shape), value("w", 1, w.shape)], [value("y", 1, [None] * 4)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, {"x": x, "w": w})[0]
    return result.transpose(0, 2, 3, 1)


def test_multiply_accumulates_are_derived() -> None:
    rng = np.random.default_rng(0)
    cases = {
        "conv2d": (draw(rng, "s8", 1, 8, 8, 3), draw(rng, "s8", 16, 3, 3, 3), 1, 8 * 8 * 16 * 27),
        "depthwise2d": (draw(rng, "s8", 1, 8, 8, 6), draw(rng, "s8", 6, 1, 3, 3), 6, 8 * 8 * 6 * 9),
        "conv2d_grouped": (draw(rng, "s8", 1, 8, 8, 6), draw(rng, "s8", 4, 3, 3, 3), 2, 8 * 8 * 4 * 27),
    }
    for name, (x, w, group, macs) in cases.items():
        chosen = kernel(name)
        node = make_node(chosen, {"x": x, "w": w}, "s32", conv_attrs(pads=(1, 1, 1, 1), group=group))
        stored = {"x": x, "w": chosen.layouts["w"].encode(w, node)}
        assert bind.bound_geometry(chosen, node, stored).macs() == macs


def test_transposed_counts_only_taps_that_reach() -> None:
    rng = np.random.default_rng(0)
    x, w = draw(rng, "s8", 1, 5, 5, 3), draw(rng, "s8", 3, 7, 4, 4)
    chosen = kernel("conv2d_transpose")
    attrs = {**conv_attrs((2, 2), pads=(1, 1, 1, 1)), "output_padding": (0, 0)}
    node = make_node(chosen, {"x": x, "w": w}, "s32", attrs)
    stored = {"x": x, "w": chosen.layouts["w"].encode(w, node)}
    assert node.outputs[0].shape == (1, 10, 10, 7)
    assert bind.bound_geometry(chosen, node, stored).macs() == 5 * 5 * 3 * 7 * 4 * 4


def test_narrow_output_without_requantisation_is_refused() -> None:
    rng = np.random.default_rng(0)
    x, w = draw(rng, "s8", 1, 4, 4, 3), draw(rng, "s8", 5, 3, 1, 1)
    node = make_node(kernel("conv2d"), {"x": x, "w": w}, "s8", conv_attrs())
    assert bind.list_mismatches(kernel("conv2d"), node) == ["a requantisation, or y of type s32, not s8"]
