"""An operator from outside: types, code, MAC counts and verification without an edit in the tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import TargetError, UnsupportedError
from deeploy.target import load

OUTSIDE = Path(__file__).parent / "outside"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """x[3,5] int8 -> Stretch by 2 -> int32[6,4] -> RequantShift -> int8; the file holds no shape for the inner tensor."""
    w = np.arange(-10, 10).reshape(5, 4).astype(np.float32)
    constants = {"w": w, "mul": np.array([3.0], np.float32), "add": np.array([5.0], np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("Stretch", ["x", "w"], ["inner"], "stretch", domain="my.domain", factor=2),
            helper.make_node("RequantShift", ["inner", "mul", "add"], ["y"], "requant", div=16, n_levels=256, signed=1),
        ],
        "outside",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 4])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = tmp_path / "outside.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("my.domain", 1)]), path)
    return path


def expected(x: np.ndarray) -> np.ndarray:
    w = np.arange(-10, 10).reshape(5, 4)
    inner = np.repeat(x.astype(np.int64) @ w, 2, axis=0)
    return np.clip((inner * 3 + 5 + 8) >> 4, -128, 127).astype(np.int8)


def test_an_operator_from_outside_is_compiled_and_verified(model: Path) -> None:
    compiled = deeploy.compile(model, OUTSIDE)
    x = np.random.default_rng(0).integers(-128, 128, (3, 5)).astype(np.int8)
    call = compiled.network.program.calls[0]
    assert (call.kernel.name, call.geometry.macs()) == ("stretch", 6 * 4 * 5)
    assert [t.dtype.value for t in call.node.outputs] == ["s32"]
    footprint = call.geometry.footprint("x", {"rows": (2, 3)})
    assert (footprint.first, footprint.extent) == ((1, 0), (1, 5))
    assert np.array_equal(compiled.interpret([x])[0], expected(x))
    assert np.array_equal(compiled.run([x], sanitize=True)[0], expected(x))


def test_the_generic_target_says_that_it_has_no_such_kernel(model: Path) -> None:
    with pytest.raises(UnsupportedError) as error:
        deeploy.compile(model, "generic")
    assert "stretch" in str(error.value).lower()


@pytest.mark.parametrize("place", ["template", "macro", "string", "compared"])
def test_texts_of_a_model_are_in_no_code(model: Path, tmp_path: Path, place: str) -> None:
    """A text that is no name is an error where a template or a macro prints it as code, and is escaped as a string."""
    hostile = onnx.load(model)
    hostile.graph.node[0].attribute.append(helper.make_attribute("label", 'constant"); system(1); //'))
    onnx.save(hostile, model)
    target = load(OUTSIDE)
    (tmp_path / "templates").mkdir()
    text = (OUTSIDE / "templates" / "stretch.mako").read_text()
    printed = {
        "template": "${attrs['label']}",
        "string": "/* ${c_string(attrs['label'])} */",
        "compared": "${int(node.attrs['label'] == 'x')};",
    }
    (tmp_path / "templates" / "stretch.mako").write_text(text + printed.get(place, ""))
    stretch = target.kernels[0]
    if place == "macro":
        stretch = replace(stretch, macros=lambda node: {"LABEL": str(node.attrs["label"])})
    target = replace(target, kernels=(stretch, *target.kernels[1:]), template_folders=(tmp_path / "templates", *target.template_folders))
    compiled = deeploy.compile(model, target)
    if place in ("template", "macro"):
        with pytest.raises(UnsupportedError, match=r"stretch \(Stretch\) (has the text 'constant|wants an instance of kernel stretch)"):
            compiled.files()
    else:
        code = compiled.files()["src/network.c"]
        assert ("system" in str(code)) is (place == "string") and 'constant"' not in str(code)


def test_a_folder_without_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"holds no target\.py"):
        load(tmp_path)


def test_a_target_for_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target.py").write_text(
        "from dataclasses import replace\nfrom deeploy.target import load\nTARGET = replace(load('generic'), name='old', api=0)\n"
    )
    with pytest.raises(TargetError, match="version 0 of the target interface, this compiler has 2"):
        load(tmp_path)
