"""One spelling for every operator: what the rules make of attributes, inputs and padding in all opsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from deeploy.errors import ModelError, UnsupportedError
from tests.frontend.models import build, f32, ints, one, read

W = np.ones((4, 2, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("attributes", "pads", "shape"),
    [
        ({}, [0, 0, 0, 0], [1, 4, 6, 5]),
        ({"pads": [1, 0, 2, 1]}, [1, 0, 2, 1], [1, 4, 9, 6]),
        ({"auto_pad": "VALID", "strides": [2, 1]}, [0, 0, 0, 0], [1, 4, 3, 5]),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, [0, 1, 1, 1], [1, 4, 4, 4]),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, [1, 1, 0, 1], [1, 4, 4, 4]),
        ({"auto_pad": "SAME_UPPER", "dilations": [2, 1]}, [2, 1, 2, 1], [1, 4, 8, 7]),
    ],
)
def test_convolution(tmp_path: Path, attributes: dict[str, Any], pads: list[int], shape: list[int]) -> None:
    graph = one(tmp_path, "Conv", (1, 2, 8, 7), W, opset=11, **attributes)
    node = graph.nodes[0]
    expected = {"strides": [1, 1], "dilations": [1, 1], **attributes, "kernel_shape": [3, 3], "group": 1, "pads": pads}
    expected.pop("auto_pad", None)
    assert node.attrs == expected
    assert list(graph.outputs[0].shape) == shape


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"pads": [-1, 0, 0, 0]}, "pads"),
        ({"kernel_shape": [2, 2]}, "kernel_shape"),
        ({"strides": [0, 1]}, "the node"),
        ({"pads": [1, 1]}, "pads"),
        ({"group": 0}, "2 input channels in 0 groups"),
        ({"group": 2}, r"2 input channels in 2 groups, which its weight of shape \[4, 2, 3, 3\]"),
    ],
)
def test_convolutions_that_are_refused(tmp_path: Path, attributes: dict[str, Any], words: str) -> None:
    with pytest.raises((ModelError, UnsupportedError), match=words) as caught:
        one(tmp_path, "Conv", (1, 2, 8, 7), W, **attributes)
    assert "the node" in str(caught.value)


@pytest.mark.parametrize(
    ("op", "channels", "shape", "group"),
    [
        ("Conv", 3, (4, 2, 3, 3), 1),
        ("Conv", 4, (4, 2, 3, 3), 1),
        ("Conv", 4, (5, 2, 3, 3), 2),
        ("Conv", 6, (4, 1, 3, 3), 4),
        ("ConvTranspose", 3, (4, 2, 3, 3), 1),
    ],
)
def test_channels_that_disagree(tmp_path: Path, op: str, channels: int, shape: tuple[int, ...], group: int) -> None:
    with pytest.raises(ModelError, match=f"{channels} input channels in {group} groups"):
        one(tmp_path, op, (1, channels, 8, 8), np.ones(shape, np.float32), group=group)


@pytest.mark.parametrize("index", [2, -3])
def test_constant_indices_beyond_the_axis(tmp_path: Path, index: int) -> None:
    assert list(one(tmp_path, "Gather", (2, 3), ints(1, -2)).outputs[0].shape) == [2, 3]
    with pytest.raises(ModelError, match="of an axis that has 2"):
        one(tmp_path, "Gather", (2, 3), ints(0, index))


def test_gathering_all_entries_in_order_is_a_reshape(tmp_path: Path) -> None:
    graph = one(tmp_path, "Gather", (2, 3), np.array([[0, 1, 2]]), axis=1)
    assert [(node.op, node.attrs, len(node.inputs)) for node in graph.nodes] == [("Reshape", {}, 1)]
    assert list(graph.outputs[0].shape) == [2, 1, 3]
    for indices in (ints(0, 1), ints(1, 0, 2), ints(0, 1, 2, 0)):
        assert one(tmp_path, "Gather", (2, 3), indices, axis=1).nodes[0].op == "Gather"


@pytest.mark.parametrize(
    "attributes",
    [
        {"output_shape": [3]},
        {"output_shape": [8]},
        {"output_shape": [9]},
        {"output_shape": [10]},
        {"output_shape": [7], "auto_pad": "SAME_UPPER"},
        {"output_shape": [8], "auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER"},
        {"auto_pad": "VALID"},
        {"pads": [1, 0]},
        {"output_padding": [1]},
    ],
)
def test_transposed_convolution_has_the_padding_of_onnxruntime(tmp_path: Path, attributes: dict[str, Any]) -> None:
    """The same node with the explicit pads found here gives the same values."""
    onnxruntime = pytest.importorskip("onnxruntime")
    weight, x = np.arange(1, 4, dtype=np.float32).reshape(1, 1, 3), np.arange(1, 5, dtype=np.float32).reshape(1, 1, 4)
    found = dict(one(tmp_path, "ConvTranspose", (1, 1, 4), weight, strides=[2], **attributes).nodes[0].attrs)
    assert set(found) == {"kernel_shape", "strides", "dilations", "pads", "group", "output_padding"}

    def run(**given: Any) -> np.ndarray:
        model = build([helper.make_node("ConvTranspose", ["x", "w"], ["y"], **given)], {"x": f32(1, 1, 4)}, ["y"], {"w": weight})
        model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
        return np.asarray(onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0])

    np.testing.assert_array_equal(run(**found), run(strides=[2], **attributes))


@pytest.mark.parametrize("opset", [10, 12, 19, 22])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads", "end", "out"),
    [
        (7, 2, 2, [0, 0], 1, 4),  # one more window
        (6, 2, 2, [0, 0], 0, 3),  # nothing to round
        (6, 2, 3, [0, 1], 0, 2),  # the last window would start in the padding
        (7, 3, 3, [1, 0], 1, 3),
    ],
)
def test_ceil_mode_becomes_padding(
    tmp_path: Path, opset: int, size: int, kernel: int, stride: int, pads: list[int], end: int, out: int
) -> None:
    graph = one(tmp_path, "MaxPool", (1, 1, size), opset=opset, kernel_shape=[kernel], strides=[stride], pads=pads, ceil_mode=1)
    assert "ceil_mode" not in graph.nodes[0].attrs
    fitted = graph.nodes[0].attrs["pads"]
    assert fitted[0] == pads[0]
    assert list(graph.outputs[0].shape) == [1, 1, out]
    assert (size + sum(fitted) - kernel) // stride + 1 == out
    assert fitted[1] >= end


def test_average_that_counts_its_own_padding_only(tmp_path: Path) -> None:
    attributes = {"kernel_shape": [4], "strides": [3], "pads": [1, 1], "ceil_mode": 1, "count_include_pad": 1}
    graph = one(tmp_path, "AveragePool", (1, 1, 7), **attributes)
    assert [n.op for n in graph.nodes] == ["Pad", "AveragePool"]
    assert graph.nodes[0].attrs == {"pads": [0, 0, 1, 0, 0, 1], "mode": "constant", "value": 0.0}
    assert graph.nodes[1].attrs == {"kernel_shape": [4], "strides": [3], "dilations": [1], "pads": [0, 1], "count_include_pad": 0}
    assert list(graph.outputs[0].shape) == [1, 1, 3]


def test_one_axis_that_ceil_mode_makes_longer_is_enough(tmp_path: Path) -> None:
    attributes = {"kernel_shape": [4, 4], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1, "count_include_pad": 1}
    graph = one(tmp_path, "AveragePool", (1, 1, 7, 8), **attributes)
    assert [n.op for n in graph.nodes] == ["Pad", "AveragePool"]
    assert graph.nodes[0].attrs["pads"] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert (graph.nodes[1].attrs["pads"], graph.nodes[1].attrs["count_include_pad"]) == ([0, 0, 1, 0], 0)
    assert list(graph.outputs[0].shape) == [1, 1, 3, 3]


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("form", ["attribute", "input"])
def test_axes_and_other_settings_in_both_forms(tmp_path: Path, opset: int, form: str) -> None:
    """Attributes of old opsets in new files and the other way round."""

    def normalised(
        op: str, shape: list[int], operands: list[np.ndarray | None], **attributes: Any
    ) -> tuple[str, dict[str, Any], list[int]]:
        graph = (
            one(tmp_path, op, shape, opset=opset, **attributes) if form == "attribute" else one(tmp_path, op, shape, *operands, opset=opset)
        )
        assert len(graph.nodes[0].inputs) == 1
        return graph.nodes[0].op, graph.nodes[0].attrs, list(graph.outputs[0].shape)

    assert normalised("Squeeze", [1, 3, 1], [ints(-1)], axes=[-1]) == ("Reshape", {}, [1, 3])
    assert normalised("Unsqueeze", [3, 4], [ints(0, -1)], axes=[0, -1]) == ("Reshape", {}, [1, 3, 4, 1])
    assert normalised("ReduceSum", [2, 3, 4], [ints(-1, 0)], axes=[-1, 0]) == ("ReduceSum", {"axes": [0, 2], "keepdims": 1}, [1, 3, 1])
    op, attrs, shape = normalised("Slice", [5, 6], [ints(-3), ints(99), ints(1)], starts=[-3], ends=[99], axes=[1])
    assert (op, attrs, shape) == ("Slice", {"starts": [0, 3], "ends": [5, 6], "steps": [1, 1]}, [5, 3])
    op, attrs, shape = normalised("Pad", [2, 3], [ints(0, 1, 0, 2), np.float32(7)], pads=[0, 1, 0, 2], value=7.0)
    assert (op, attrs, shape) == ("Pad", {"pads": [0, 1, 0, 2], "mode": "constant", "value": 7.0}, [2, 6])
    op, attrs, shape = normalised("Clip", [2], [np.float32(-1), np.float32(6)], min=-1.0, max=6.0)
    assert (op, attrs, shape) == ("Clip", {"min": -1.0, "max": 6.0}, [2])


def test_reductions_without_axes(tmp_path: Path) -> None:
    assert one(tmp_path, "ReduceMean", (2, 3)).nodes[0].attrs == {"axes": [0, 1], "keepdims": 1}
    assert one(tmp_path, "ReduceSum", (2, 3), ints()).nodes[0].attrs["axes"] == [0, 1]
    graph = one(tmp_path, "ReduceSum", (2, 3), noop_with_empty_axes=1)
    assert (graph.nodes[0].op, list(graph.outputs[0].shape)) == ("Reshape", [2, 3])
    assert one(tmp_path, "ReduceMax", (2, 3), ints(1), opset=20, keepdims=0).nodes[0].attrs == {"axes": [1], "keepdims": 0}


def test_slices_backwards_and_empty(tmp_path: Path) -> None:
    graph = one(tmp_path, "Slice", (5,), ints(-1), ints(-100), ints(0), ints(-2))
    assert [(n.op, n.attrs, n.inputs[1].data.tolist()) for n in graph.nodes] == [("Gather", {"axis": 0}, [4, 2, 0])]
    assert list(graph.outputs[0].shape) == [3]
    graph = one(tmp_path, "Slice", (5, 6), ints(-1, 1), ints(-4, 5))
    assert [n.op for n in graph.nodes] == ["Slice"]
    graph = one(tmp_path, "Slice", (5, 6, 4), ints(-1, 1, 2), ints(-4, 5, -9), ints(0, 1, 2), ints(-1, 2, -1))
    assert [(n.op, n.attrs) for n in graph.nodes] == [
        ("Slice", {"starts": [0, 1, 0], "ends": [5, 5, 4], "steps": [1, 2, 1]}),
        ("Gather", {"axis": 0}),
        ("Gather", {"axis": 2}),
    ]
    assert [n.inputs[1].data.tolist() for n in graph.nodes[1:]] == [[4, 3, 2], [2, 1, 0]]
    assert [list(n.outputs[0].shape) for n in graph.nodes] == [[5, 2, 4], [3, 2, 4], [3, 2, 3]]
    graph = one(tmp_path, "Slice", (5,), ints(4), ints(2))
    assert (graph.nodes[0].attrs, list(graph.outputs[0].shape)) == ({"starts": [0], "ends": [0], "steps": [1]}, [0])
    with pytest.raises(ModelError, match="the node"):
        one(tmp_path, "Slice", (5,), ints(0), ints(5), ints(0), ints(0))


def test_padding_of_some_axes_and_cropping(tmp_path: Path) -> None:
    graph = one(tmp_path, "Pad", (2, 3, 4), ints(1, 2, 3, 4), None, ints(2, 0), opset=18)
    assert graph.nodes[0].attrs["pads"] == [2, 0, 1, 4, 0, 3]
    graph = one(tmp_path, "Pad", (4, 5), ints(-1, 2, 0, -1), np.float32(3))
    assert [(n.op, n.attrs) for n in graph.nodes] == [
        ("Slice", {"starts": [1, 0], "ends": [4, 4], "steps": [1, 1]}),
        ("Pad", {"pads": [0, 2, 0, 0], "mode": "constant", "value": 3.0}),
    ]
    assert list(graph.outputs[0].shape) == [3, 6]
    assert [n.op for n in one(tmp_path, "Pad", (4, 5), ints(-1, 0, 0, 0)).nodes] == ["Slice"]
    with pytest.raises(UnsupportedError, match="reflect"):
        one(tmp_path, "Pad", (4, 5), ints(-1, 2, 0, 0), mode="reflect")


@pytest.mark.parametrize(
    ("opset", "attributes", "operands", "outputs", "sizes"),
    [
        (11, {"split": [1, 5]}, [], 2, [1, 5]),
        (13, {"axis": -1}, [ints(2, 4)], 2, [2, 4]),
        (13, {}, [], 3, [2, 2, 2]),
        (18, {"num_outputs": 4}, [], 4, [2, 2, 2, 0]),
    ],
)
def test_split(tmp_path: Path, opset: int, attributes: dict[str, Any], operands: list[np.ndarray], outputs: int, sizes: list[int]) -> None:
    graph = one(tmp_path, "Split", (6,), *operands, opset=opset, outputs=outputs, **attributes)
    assert graph.nodes[0].attrs == {"axis": 0, "split": sizes}
    assert [list(t.shape) for t in graph.outputs] == [[n] for n in sizes]


@pytest.mark.parametrize(
    ("opset", "shape", "attributes", "ops", "axis"),
    [
        (13, (2, 3, 4), {}, ["Softmax"], 2),
        (13, (2, 3, 4), {"axis": 1}, ["Softmax"], 1),
        (11, (2, 3, 4), {}, ["Reshape", "Softmax", "Reshape"], 1),
        (11, (2, 3, 4), {"axis": -1}, ["Softmax"], 2),
        (11, (2, 3, 4), {"axis": 0}, ["Reshape", "Softmax", "Reshape"], 1),
        (11, (2, 10), {}, ["Softmax"], 1),
        (11, (2, 10, 1, 1), {}, ["Softmax"], 1),
        (11, (2, 1, 1, 10), {}, ["Softmax"], 3),
    ],
)
def test_softmax(tmp_path: Path, opset: int, shape: tuple[int, ...], attributes: dict[str, Any], ops: list[str], axis: int) -> None:
    graph = one(tmp_path, "Softmax", shape, opset=opset, **attributes)
    assert [n.op for n in graph.nodes] == ops
    assert next(n for n in graph.nodes if n.op == "Softmax").attrs["axis"] == axis
    assert list(graph.outputs[0].shape) == list(shape)
    if len(ops) == 3:
        start = attributes.get("axis", 1)
        assert list(graph.nodes[1].inputs[0].shape) == [int(np.prod(shape[:start])), int(np.prod(shape[start:]))]


def test_reshapes(tmp_path: Path) -> None:
    for op, operands, attributes, shape in [
        ("Reshape", [ints(0, -1)], {}, [2, 12]),
        ("Reshape", [ints(4, -1)], {}, [4, 6]),
        ("Flatten", [], {"axis": -1}, [6, 4]),
        ("Flatten", [], {"axis": 0}, [1, 24]),
        ("Expand", [ints(1, 2, 3, 4)], {}, [1, 2, 3, 4]),
    ]:
        graph = one(tmp_path, op, (2, 3, 4), *operands, **attributes)
        assert [(n.op, n.attrs, len(n.inputs)) for n in graph.nodes] == [("Reshape", {}, 1)]
        assert list(graph.outputs[0].shape) == shape
    graph = one(tmp_path, "Expand", (2, 1), ints(2, 5))
    assert [(n.op, n.attrs, len(n.inputs), list(n.outputs[0].shape)) for n in graph.nodes] == [("Expand", {}, 1, [2, 5])]


def test_what_changes_nothing_disappears(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [
        node("Reshape", ["x", "same"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=[0, 1]),
        node("Pad", ["b", "none"], ["c"]),
        node("Slice", ["c", "zero", "end"], ["d"]),
        node("Expand", ["d", "one"], ["e"]),
        node("Clip", ["e"], ["f"]),
        node("Concat", ["f"], ["g"], axis=0),
        node("Relu", ["g"], ["y"]),
    ]
    constants = {"same": ints(2, -1), "none": ints(0, 0, 0, 0), "zero": ints(0), "end": ints(2), "one": ints(1)}
    graph = read(build(nodes, {"x": f32(2, 3)}, ["y"], constants), tmp_path)
    assert [(n.op, n.inputs[0].name) for n in graph.nodes] == [("Relu", "x")]


def test_defaults_are_written_out(tmp_path: Path) -> None:
    gemm = one(tmp_path, "Gemm", (2, 3), np.ones((4, 3), np.float32), transB=1).nodes[0]
    assert gemm.attrs == {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}
    assert one(tmp_path, "Transpose", (2, 3, 4)).nodes[0].attrs == {"perm": [2, 1, 0]}
    assert one(tmp_path, "Gather", (2, 3), ints(1)).nodes[0].attrs == {"axis": 0}
    assert one(tmp_path, "LeakyRelu", (2,)).nodes[0].attrs["alpha"] == pytest.approx(0.01)
    batch = one(tmp_path, "BatchNormalization", (1, 2, 3), *[np.ones(2, np.float32)] * 4, opset=9, momentum=0.5).nodes[0]
    assert batch.attrs == {"epsilon": pytest.approx(1e-5)}
    with pytest.raises(UnsupportedError, match="training"):
        one(tmp_path, "BatchNormalization", (1, 2, 3), *[np.ones(2, np.float32)] * 4, opset=15, outputs=3, training_mode=1)


def test_quantisation_axes(tmp_path: Path) -> None:
    scales = np.ones(3, np.float32)
    assert one(tmp_path, "QuantizeLinear", (2, 3), scales, np.zeros(3, np.int8)).nodes[0].attrs["axis"] == 1
    assert one(tmp_path, "QuantizeLinear", (3, 2), scales, np.zeros(3, np.int8), axis=-2).nodes[0].attrs["axis"] == 0
    with pytest.raises(ModelError, match="scales"):
        one(tmp_path, "QuantizeLinear", (2, 4), scales, np.zeros(3, np.int8))
    blocks = [np.ones((2, 2), np.float32), np.zeros((2, 2), np.int8)]
    assert one(tmp_path, "QuantizeLinear", (2, 4), *blocks, opset=21, block_size=2).nodes[0].attrs["axis"] == 1
    with pytest.raises(ModelError, match="scales"):
        one(tmp_path, "QuantizeLinear", (2, 8), *blocks, opset=21, block_size=2)
    vendor = one(tmp_path, "QuantizeLinear", (2, 3), np.float32(1), np.uint8(3), domain="com.microsoft")
    assert (vendor.nodes[0].domain, vendor.outputs[0].dtype.numpy) == ("", np.uint8)


@pytest.mark.parametrize("domain", ["", "PACTOps", "ai.onnx.contrib"])
def test_dialect_attributes_are_plain(tmp_path: Path, domain: str) -> None:
    def tensor(value: float, shape: list[int]) -> Any:
        return helper.make_tensor("t", TensorProto.FLOAT, shape, [value])

    attributes = {"div": tensor(256.0, [1]), "n_levels_out": tensor(255.0, []), "signed": 1}
    graph = one(tmp_path, "RequantShift", (1, 4, 5), np.ones((1, 4, 1), np.float32), np.zeros(1, np.float32), domain=domain, **attributes)
    node = graph.nodes[0]
    assert node.domain == ""
    assert node.attrs == {"div": 256, "n_levels": 255, "signed": True}
    assert [type(value) for value in node.attrs.values()].count(int) == 2
    assert node.attrs["signed"] is True
    assert list(graph.outputs[0].shape) == [1, 4, 5]


def test_a_recurrent_layer_with_projected_states(tmp_path: Path) -> None:
    """As PyTorch's exporter writes an LSTM with ``proj_size``, which ONNX does not have: cells are of more units than states."""
    w, r, h, c = (np.zeros(shape, np.float32) for shape in ((1, 16, 6), (1, 16, 4), (1, 1, 4), (1, 1, 8)))
    with pytest.raises(ModelError, match=r"input 6 of shape \[1, 1, 8\] instead of \[1, 1, 4\].*no projection"):
        one(tmp_path, "LSTM", (7, 1, 6), w, r, None, None, h, c, opset=14, hidden_size=4)
    assert list(one(tmp_path, "LSTM", (7, 1, 6), w, r, None, None, h, h, opset=14, hidden_size=4).outputs[0].shape) == [7, 1, 1, 4]
