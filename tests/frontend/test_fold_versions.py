"""Constants are computed as the model's opset says, against onnxruntime: every operator whose meaning or form changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from deeploy.errors import UnsupportedError
from deeploy.frontend import fold
from deeploy.frontend.shapes import Value
from tests.frontend.models import build, f32, ints, read
from tests.models import model_of

Case = tuple[str, list[Any], dict[str, Any], int]  # operator, constants, attributes, outputs
OPSETS = (7, 9, 10, 11, 12, 13, 17, 18, 21)


def f(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def _moved(v: int) -> Iterator[Case]:
    """Operators whose attributes became inputs."""
    for axes in ([0], [0, 2], [2, 0], *([[-1], [-1, 0], [-4, -2]] if v >= 11 else [])):
        yield ("Unsqueeze", [f(2, 3)], {"axes": axes}, 1) if v < 13 else ("Unsqueeze", [f(2, 3), ints(*axes)], {}, 1)
    for axes in ([0], [0, 2]):
        yield ("Squeeze", [f(1, 3, 1)], {"axes": axes}, 1) if v < 13 else ("Squeeze", [f(1, 3, 1), ints(*axes)], {}, 1)
    yield ("Split", [f(5, 2)], {"split": [2, 3]}, 2) if v < 13 else ("Split", [f(5, 2), ints(2, 3)], {}, 2)
    for pads in ([1, 0, 0, 2], [-1, 0, 0, 1], [0, 1, -2, -1]):
        for mode in ("constant", "edge", "reflect"):
            yield ("Pad", [f(3, 3), *([ints(*pads)] if v >= 11 else [])], {"mode": mode, **({"pads": pads} if v < 11 else {})}, 1)
    yield ("Pad", [f(3), ints(1, -1), np.float32(4)], {}, 1) if v >= 11 else ("Pad", [f(3)], {"pads": [1, -1], "value": 4.0}, 1)
    yield ("Clip", [f(6), np.float32(1), np.float32(3)], {}, 1) if v >= 11 else ("Clip", [f(6)], {"min": 1.0, "max": 3.0}, 1)
    yield ("Dropout", [f(2, 3)], {}, 1)
    yield ("TopK", [f(4, 3) % 5, ints(2)], {"axis": 0}, 2) if v >= 10 else ("TopK", [f(4, 3) % 5], {"axis": 0, "k": 2}, 2)
    if v < 10:
        yield "Slice", [f(4, 3)], {"starts": [-2], "ends": [2**62]}, 1
        scales = [1.0, 1.0, 2.0, 2.0]
        yield (
            ("Upsample", [f(1, 1, 2, 2)], {"scales": scales}, 1)
            if v < 9
            else ("Upsample", [f(1, 1, 2, 2), np.array(scales, np.float32)], {}, 1)
        )
    else:
        yield "Slice", [f(4, 3), ints(3, -1), ints(0, -9), ints(0, 1), ints(-2, -1)], {}, 1
        yield "Slice", [f(4, 3), ints(-(2**63)), ints(2**62)], {}, 1
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"):
        axes = v < (13 if op == "ReduceSum" else 18)
        yield op, [f(2, 3), *([] if axes else [ints(1)])], {"keepdims": 0, **({"axes": [1]} if axes else {})}, 1


def _meant(v: int) -> Iterator[Case]:
    """Operators that mean something else, and those whose references fail."""
    yield from ((op, [f(2, 3, 4) % 7], {"axis": axis}, 1) for op in ("Softmax", "LogSoftmax", "Hardmax") for axis in (0, 1, 2))
    yield from ((op, [f(2, 3, 4) % 7], {"axis": 1, "keepdims": 0}, 1) for op in ("ArgMax", "ArgMin"))
    yield "BatchNormalization", [f(1, 3, 2), f(3), f(3), f(3), f(3) + 1], {}, 1
    yield "LRN", [f(2, 3, 2, 2)], {"size": 3}, 1
    yield "InstanceNormalization", [f(2, 2, 4), f(2), f(2)], {}, 1
    yield "Gather", [f(4, 5), np.array([[0, 3], [2, 1]])], {"axis": 0}, 1
    yield "Cast", [np.array([-1.5, 0, 2.6, 100.5], np.float32)], {"to": 6}, 1
    if v >= 11:
        indices = np.arange(0, 40, 5)
        yield "GatherElements", [f(1, 512), indices[None]], {"axis": 1}, 1
        yield "GatherElements", [f(40, 2), indices[:, None] - 40], {}, 1
        yield "GatherElements", [f(3, 40, 3), indices[None, :, None]], {"axis": -2}, 1


@pytest.mark.parametrize("opset", OPSETS)
def test_constants_of_every_opset_equal_onnxruntime(opset: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    for op, constants, attributes, outputs in (*_moved(opset), *_meant(opset)):
        arrays = [np.asarray(value) for value in constants]
        node = helper.make_node(op, [f"i{i}" for i in range(len(arrays))], [f"o{i}" for i in range(outputs)], **attributes)
        inputs = [helper.make_tensor_value_info(f"i{i}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for i, a in enumerate(arrays)]
        kinds = [6 if op == "Cast" else 7 if op.startswith("Arg") or i == 1 != (op == "Split") else 1 for i in range(outputs)]
        results = [helper.make_tensor_value_info(f"o{i}", kind, None) for i, kind in enumerate(kinds)]
        model = model_of(helper.make_graph([node], "g", inputs, results), opset)
        expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {f"i{i}": a for i, a in enumerate(arrays)})
        found = fold.evaluate_node(node, attributes, arrays, [Value()] * outputs, opset)
        for one, other in zip(found, expected, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape), (op, attributes)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=f"{op} {attributes}")


@pytest.mark.parametrize("opset", OPSETS)
def test_a_shape_computed_from_a_shape(tmp_path: Path, opset: int) -> None:
    """The flattening that PyTorch writes for x.view(x.size(0), -1)."""
    axes = {"axes": [0]} if opset < 13 else {}
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"], axis=0),
        helper.make_node("Unsqueeze", ["batch", *([] if axes else ["zeros"])], ["batch1"], **axes),
        helper.make_node("Concat", ["batch1", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"zero": np.array(0), "zeros": ints(0), "minus": ints(-1)}
    assert list(read(build(nodes, {"x": f32(2, 3, 4)}, ["y"], constants, opset), tmp_path).outputs[0].shape) == [2, 12]


def test_what_only_onnxruntime_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the refusal says that it would help."""
    node = helper.make_node("LRN", ["x"], ["y"], size=1, alpha=1e-9)
    arguments = (node, {"size": 1, "alpha": 1e-9}, [f(2, 1, 2)[None]], [Value()], 13)
    pytest.importorskip("onnxruntime")
    np.testing.assert_allclose(fold.evaluate_node(*arguments)[0], f(2, 1, 2)[None], rtol=1e-6)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"\(LRN\) has constant inputs but cannot be computed[^\n]*\n[^\n]*install onnxruntime"):
        fold.evaluate_node(*arguments)


def test_failures_of_other_packages_are_refusals() -> None:
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    with pytest.raises(UnsupportedError, match=r"\(Reshape\) has constant inputs but cannot be computed"):
        fold.evaluate_node(node, {}, [f(4), ints(3)], [Value()], 13)
