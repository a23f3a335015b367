"""Inputs of the network that describe an operation: the refusal names the input and ``--pin``, and pinned they are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from deeploy.errors import UnsupportedError
from tests.frontend.models import Spec, build, f32, read

INT64, FLOAT, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
X = f32(1, 2, 4, 4)
# operator, the position of the setting, its type and shape, a value that it may have, attributes, inputs in front of it where not only x
SETTINGS: dict[str, tuple[str, int, Spec, Any, dict[str, Any]]] = {
    "Resize sizes": ("Resize", 3, ([4], INT64), [1, 2, 8, 8], {"mode": "nearest"}),
    "Resize scales": ("Resize", 2, ([4], FLOAT), [1, 1, 2, 2], {"mode": "nearest"}),
    "Upsample": ("Upsample", 1, ([4], FLOAT), [1, 1, 2, 2], {"mode": "nearest"}),
    "Reshape": ("Reshape", 1, ([2], INT64), [4, 8], {}),
    "Expand": ("Expand", 1, ([5], INT64), [3, 1, 2, 4, 4], {}),
    "Tile": ("Tile", 1, ([4], INT64), [1, 2, 1, 1], {}),
    "Slice": ("Slice", 1, ([1], INT64), [1], {}),
    "Pad": ("Pad", 1, ([8], INT64), [0, 0, 1, 1, 0, 0, 1, 1], {}),
    "Unsqueeze": ("Unsqueeze", 1, ([1], INT64), [0], {}),
    "Squeeze": ("Squeeze", 1, ([1], INT64), [0], {}),
    "ReduceSum": ("ReduceSum", 1, ([1], INT64), [1], {}),
    "Split": ("Split", 1, ([2], INT64), [1, 3], {"axis": 2}),
    "TopK": ("TopK", 1, ([1], INT64), [2], {}),
    "CumSum": ("CumSum", 1, ([], INT64), 1, {}),
    "Trilu": ("Trilu", 1, ([], INT64), 1, {}),
    "Compress": ("Compress", 1, ([4], BOOL), [1, 0, 1, 0], {"axis": 2}),
    "ReverseSequence": ("ReverseSequence", 1, ([1], INT64), [2], {"batch_axis": 0, "time_axis": 1}),
    "CenterCropPad": ("CenterCropPad", 1, ([2], INT64), [2, 2], {"axes": [2, 3]}),
    "Dropout": ("Dropout", 2, ([], BOOL), 0, {}),
}


def setting_model(case: str, computed: bool) -> Any:
    """A network whose second input ``setting`` describes its operation, perhaps behind an Identity."""
    op, position, spec, _, attributes = SETTINGS[case]
    inner = "inner" if computed else "setting"
    fillers = ["starts"] if op == "Slice" else [""]
    inputs = ["x", *(fillers * (position - 1)), inner] + (["ends", "axes"] if op == "Slice" else [])
    nodes = [helper.make_node(op, inputs, ["y", "y2"] if op in ("Split", "TopK") else ["y"], name="node", **attributes)]
    if computed:
        nodes.insert(0, helper.make_node("Cast", ["setting"], ["inner"], to=spec[1]))
    constants = {"ends": np.array([4]), "axes": np.array([2])} if op == "Slice" else {}
    opset = 9 if op == "Upsample" else 18
    given = (spec[0], INT64 if computed and spec[1] != BOOL else spec[1])
    return build(nodes, {"x": X, "setting": given}, ["y"], constants, opset)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("case", SETTINGS)
def test_settings_are_pinned(tmp_path: Path, case: str, computed: bool) -> None:
    with pytest.raises(UnsupportedError) as caught:
        read(setting_model(case, computed), tmp_path)
    assert "--pin setting=VALUE" in caught.value.remedy and len(str(caught.value).splitlines()) == 2, str(caught.value)
    graph = read(setting_model(case, computed), tmp_path, pins={"setting": SETTINGS[case][3]})
    assert [tensor.name for tensor in graph.inputs] == ["x"]


def test_data_is_not_to_be_pinned(tmp_path: Path) -> None:
    """A shape that depends on the data of a large input has no remedy of that kind."""
    nodes = [helper.make_node("Cast", ["x"], ["s"], to=INT64), helper.make_node("ConstantOfShape", ["s"], ["y"])]
    with pytest.raises(UnsupportedError) as caught:
        read(build(nodes, {"x": f32(100)}, ["y"]), tmp_path)
    assert "--pin" not in str(caught.value)
