"""Operators without a kernel by generated C: right on every kind of machine, counted, marked, and off unless asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import deeploy
from deeploy.driver.verify import verify_compiled
from deeploy.errors import FitError, UnsupportedError, UsageError
from tests.command import deeploy_cli
from tests.models import model_of, save_model

HOSTILE = 'a */ "name\n%s${1}'


def save(path: Path, nodes: list[onnx.NodeProto], x: list[int], y: list[int], **constants: np.ndarray) -> Path:
    return save_model(path, nodes, {"x": x}, {"y": y}, constants)


def mixed(path: Path) -> Path:
    """A convolution that has a kernel, and Hardmax and LpPool, which have none."""
    w = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Hardmax", ["c"], ["m"], axis=1, name=HOSTILE),
        helper.make_node("Add", ["c", "m"], ["s"]),
        helper.make_node("LpPool", ["s"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    return save(path, nodes, [1, 3, 8, 8], [1, 4, 4, 4], w=w)


def determinant(path: Path) -> Path:
    """Determinants, whose generated code has an array of its own."""
    return save(path, [helper.make_node("Det", ["x"], ["y"])], [2, 4, 4], [2])


def test_without_the_extra_two_lines_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deeploy.fallback import generate

    generate._load_compiler.cache_clear()
    monkeypatch.setitem(sys.modules, "emx_onnx_cgen.compiler", None)
    with pytest.raises(UsageError, match=r"emx-onnx-cgen is not installed\nInstall it: pip install emx-onnx-cgen"):
        deeploy.compile(mixed(tmp_path / "m.onnx"), fallback=True)


def test_it_is_off_unless_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"2 nodes have no kernel(?s:.*)or try fallback=True\.$"):
        deeploy.compile(mixed(tmp_path / "m.onnx"))


def test_an_option_that_was_given_or_cannot_help_is_no_advice(tmp_path: Path) -> None:
    """Neither with the option, nor for a graph of the dialect, nor where the model is cut over chips."""
    from deeploy import chips

    pytest.importorskip("emx_onnx_cgen", reason="the extra fallback is not installed")
    hardmax = save(tmp_path / "h.onnx", [helper.make_node("Hardmax", ["x"], ["y"])], [2, 3], [2, 3])
    random = save(tmp_path / "r.onnx", [helper.make_node("RandomNormalLike", ["x"], ["y"])], [2, 3], [2, 3])
    for refused in (
        lambda: deeploy.compile(random, fallback=True),
        lambda: deeploy.compile(hardmax, dialect="integer"),
        lambda: chips.compile(mixed(tmp_path / "m.onnx"), "generic", 2),
    ):
        with pytest.raises(UnsupportedError) as error:
            refused()
        assert "fallback" not in error.value.remedy


def test_it_is_not_used_where_there_is_a_kernel(tmp_path: Path) -> None:
    """Nor is the generator needed then."""
    plain = save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], [2, 3], [2, 3])
    assert deeploy.compile(plain, fallback=True).files() == deeploy.compile(plain).files()


def test_an_engine_that_runs_no_c_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="C runs on cluster of target siracusa"):
        deeploy.compile(mixed(tmp_path / "m.onnx"), "siracusa", fallback_engine="npu")


def twice(path: Path) -> Path:
    """Two nodes of one kind with attributes that say the default, and small constants, which become part of their code."""
    rng = np.random.default_rng(0)
    shapes = {"w": (1, 12, 4), "r": (1, 12, 4), "b": (1, 24), "h": (1, 2, 4)}
    weights = {f"{name}{i}": rng.normal(size=shape).astype(np.float32) for i in range(2) for name, shape in shapes.items()}
    nodes = []
    for i, (source, result) in enumerate((("x", "t"), ("u", "v"))):
        inputs = [source, f"w{i}", f"r{i}", f"b{i}", "", f"h{i}"]
        nodes.append(helper.make_node("GRU", inputs, ["", result], hidden_size=4, direction="forward", linear_before_reset=0))
        nodes.append(helper.make_node("Expand", [result, "five"], ["u" if i == 0 else "y"]))
    return save(path, nodes, [5, 2, 4], [5, 2, 4], five=np.array([5, 2, 4]), **weights)


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize("make", [mixed, determinant, twice])
def test_results_are_those_of_onnx(tmp_path: Path, target: str, make: Callable[[Path], Path]) -> None:
    pytest.importorskip("emx_onnx_cgen", reason="the extra fallback is not installed")
    model = make(tmp_path / "m.onnx")
    compiled = deeploy.compile(model, target, fallback=True)
    shape = [d.dim_value for d in onnx.load(model).graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    (wanted,) = ReferenceEvaluator(onnx.load(model)).run(None, {"x": x})
    assert np.allclose(compiled.run([x], sanitize=True)[0], wanted, atol=1e-5)
    assert np.allclose(compiled.interpret([x])[0], wanted, atol=1e-5)
    assert verify_compiled(compiled, model).passed


def test_it_is_marked_everywhere(tmp_path: Path) -> None:
    pytest.importorskip("emx_onnx_cgen", reason="the extra fallback is not installed")
    out = tmp_path / "out"
    done = deeploy_cli("compile", mixed(tmp_path / "m.onnx"), "-t", "siracusa", "--fallback", "-o", out)
    assert done.returncode == 0 and done.stderr.count("by the fallback, on cluster: emx-onnx-cgen") == 2
    calls = json.loads((out / "deploy.json").read_text())["calls"]
    assert [(c["op"].split(".")[0], c["engine"], c["tiles"]) for c in calls if c["generator"]] == [
        ("Hardmax", "cluster", 1),
        ("LpPool", "cluster", 1),
    ]
    for file, marks in (("report.html", "fallback"), ("explain.json", "in C from emx-onnx-cgen")):
        assert (out / file).read_text().count(marks) >= 2
    shown = deeploy_cli("explain", out, "LpPool_y").stdout
    assert "in C from emx-onnx-cgen" in shown
    assert "(fallback)" in deeploy_cli("report", out).stdout
    assert all(HOSTILE not in path.read_text() for path in out.rglob("*.c"))


def test_operands_and_arrays_that_do_not_fit_say_so(tmp_path: Path) -> None:
    pytest.importorskip("emx_onnx_cgen", reason="the extra fallback is not installed")
    with pytest.raises(FitError, match="L1"):
        deeploy.compile(mixed(tmp_path / "m.onnx"), "siracusa", memory={"l1": 1500}, fallback=True)
    compiled = deeploy.compile(determinant(tmp_path / "g.onnx"), fallback=True)
    assert all(call.kernel.generator for call in compiled.plan.program.calls)
    scratch = [b for b in compiled.plan.program.buffers.values() if b.role.value == "scratch"]
    assert [b.bytes for b in scratch] == [4 * 4 * 4]  # one matrix


def test_strings_that_could_leave_a_comment_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("emx_onnx_cgen", reason="the extra fallback is not installed")
    from deeploy.fallback.generate import generate_code

    node = helper.make_node("LpPool", ["x0"], ["y0"], kernel_shape=[2], auto_pad='*/ #include "/etc/passwd" /*')
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, n_])] for n, n_ in (("x0", 4), ("y0", 3))]
    model = model_of(helper.make_graph([node], "g", *ends))
    assert generate_code(model) == "its attribute auto_pad holds characters that generated code must not"


@pytest.mark.parametrize(
    ("node", "version", "reason"),
    [
        (helper.make_node("Bernoulli", ["x0"], ["y0"], seed=1.0), 22, "what it computes is random"),
        (
            helper.make_node("Attention", ["x0", "x0", "x0", "", "", "", "n"], ["y0"]),
            24,
            "the generator aligns causal masks of padded keys",
        ),
    ],
)
def test_what_would_compute_something_else_is_refused(node: onnx.NodeProto, version: int, reason: str) -> None:
    from deeploy.fallback.generate import generate_code

    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, [4])] for n in ("x0", "y0")]
    model = model_of(helper.make_graph([node], "g", *ends), version)
    assert str(generate_code(model)).startswith(reason)


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_an_input_that_is_pinned_is_a_constant_of_the_generated_code(tmp_path: Path, target: str) -> None:
    pytest.importorskip("emx_onnx_cgen", reason="the extra fallback is not installed")
    nodes = [helper.make_node("Mul", ["x", "factor"], ["t"]), helper.make_node("Hardmax", ["t"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [2, 3], [2, 3])
    model = onnx.load(path)
    model.graph.input.append(helper.make_tensor_value_info("factor", TensorProto.FLOAT, [1, 3]))
    onnx.save(model, path)
    compiled = deeploy.compile(path, target, pins={"factor": [1.0, -1.0, 0.0]}, fallback=True)
    assert [port.name for port in compiled.network.inputs] == ["x"]
    (y,) = compiled.run([np.array([[1, 2, 3], [1, -2, 3]], np.float32)])
    assert np.array_equal(y, [[1, 0, 0], [0, 1, 0]])
