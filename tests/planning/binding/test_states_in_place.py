"""States with a value are begun where they lie, unless what they become needs them as they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import deeploy
from tests.models import Net

VALUES = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": 10 * np.ones((2, 3), np.float32)}


def exchange(n: Net) -> dict[str, str]:
    return {"a": "b", "b": "a"}


def turned(n: Net) -> dict[str, str]:
    return {"a": n.Reshape(n.Transpose("a", perm=[1, 0]), n.i(2, 3)), "b": n.Add("b", "a")}


def joined(n: Net) -> dict[str, str]:
    halves = n.node("Split", [n.Concat("a", "b", axis=0)], 2, axis=0)
    return {"a": n.Add(halves[1], "x0"), "b": halves[0]}


def unchanged(n: Net) -> dict[str, str]:
    return {"a": n.Identity("a"), "b": n.Add("b", "x0")}


@pytest.mark.parametrize("follow", [exchange, turned, joined, unchanged], ids=lambda function: function.__name__)
@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize("shown", ["a", "sum"])
def test_states_become_what_they_were_read_for(tmp_path: Path, follow: object, target: str, shown: str) -> None:
    n = Net()
    n.x(2, 3)
    following = follow(n)  # type: ignore[operator]
    y = n.Reshape("a", n.i(3, 2)) if shown == "a" else n.Add(n.Add("a", "b"), "x0")
    for name, source in following.items():
        n.nodes.append(onnx.helper.make_node("Identity", [source], [f"{name}.next"], f"{name} next"))
    for name, value in VALUES.items():
        n.inputs.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value.shape))
        n.constants.append(onnx.numpy_helper.from_array(value, name))
    model = n.save(tmp_path / "m.onnx", y, "a.next", "b.next")
    steps = np.random.default_rng(3).integers(0, 5, (4, 2, 3)).astype(np.float32)
    verdict = deeploy.compile(model, target).verify({"x0": steps}, sequence=True)
    assert verdict.passed and [against for against, _ in verdict.comparisons] == ["interpreter", "onnxruntime"], verdict
