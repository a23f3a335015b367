"""Names of networks that would clash in C are refused; all others build."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import UsageError
from deeploy.execution.runners import host
from tests.models import model_of


def product(path: Path) -> Path:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xy"]
    weight = numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weight])
    path.write_bytes(model_of(graph, 13).SerializeToString())
    assert onnx.load(path)
    return path


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["A", "a"], "differ in case only"),
        (["deeploy_network"], "another file"),
        (["String"], "another file"),
        (["a", "a_weights"], "a part of the network a"),
        (["a", "a_instance"], "a part of the network a"),
        (["a_kernel_matmul", "a"], "a part of the network a"),
        (["networks", "b"], "another file"),
        (["Machine", "b"], "another file"),
        (["matmul"], "has a file kernels/"),
        (["x" * 65], "cannot be the name"),
        (["a b"], "cannot be the name"),
        (["ä"], "cannot be the name"),
    ],
)
def test_names_that_clash(names: list[str], message: str, tmp_path: Path) -> None:
    model = product(tmp_path / "m.onnx")
    with pytest.raises(UsageError, match=message):
        deeploy.compile(dict.fromkeys(names, model), "siracusa").write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_names_that_look_alike_build(target: str, tmp_path: Path) -> None:
    model = product(tmp_path / "m.onnx")
    names = ["a", "a_", "ab", "a_b", "a_default", "int", "main", "instance", "tile", "network", "x" * 64]
    deeploy.compile(dict.fromkeys(names, model), target).write(tmp_path / "out")
    assert host.build_application(tmp_path / "out", flags="-O0").exists()
