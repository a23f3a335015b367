"""Differences from onnxruntime: said to be its rounding where that is shown, layer by layer, and never otherwise; and where they grow."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.driver import project as drivers
from deeploy.driver import verify
from deeploy.execution.verification import layers, onnxruntime_reference, onnxruntime_tensors
from deeploy.execution.verification.layers import Agreement, Compared, Difference, growing_differences
from tests.command import deeploy_cli
from tests.models import save_graph

pytest.importorskip("onnxruntime", reason="the extra verify is not installed")
SIZE = 16


def ties(path: Path, depth: int, dtype: type = np.int8) -> Path:
    """Layers that take 3 from tensors with steps of 6/255, which is a tie of every element, and multiply what comes out by a matrix."""
    rng, signed = np.random.default_rng(0), dtype is np.int8
    weights: dict[str, Any] = {
        "s": np.float32(6 / 255),
        "z": dtype(0 if signed else 128),
        "cs": np.float32(3 / 127),
        "ws": np.float32(0.004),
    }
    weights |= {"c": np.full((64, SIZE), 127 if signed else 255, dtype), "wz": np.int8(0)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])]
    nodes.append(helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d0"]))
    nodes.append(helper.make_node("DequantizeLinear", ["c", "cs", "z"], ["three"]))
    for k in range(depth):
        weights[f"w{k}"] = rng.integers(-127, 128, (SIZE, SIZE)).astype(np.int8)
        nodes.append(helper.make_node("DequantizeLinear", [f"w{k}", "ws", "wz"], [f"wd{k}"]))
        for op, left, right, result in (("Sub", f"d{k}", "three", f"minus{k}"), ("MatMul", f"minus{k}_d", f"wd{k}", f"product{k}")):
            after = f"{result}_d" if op == "Sub" else f"d{k + 1}"
            nodes.append(helper.make_node(op, [left, right], [result]))
            nodes.append(helper.make_node("QuantizeLinear", [result, "s", "z"], [f"{result}_q"]))
            nodes.append(helper.make_node("DequantizeLinear", [f"{result}_q", "s", "z"], [after]))
    nodes[-1].output[0] = "y"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, SIZE]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()])
    return save_graph(graph, path)


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_where_onnxruntime_rounds_otherwise_the_layers_and_shares_are_named(tmp_path: Path, target: str) -> None:
    done = deeploy_cli("verify", ties(tmp_path / "m.onnx", 2), "--target", target, "--json")
    told = json.loads(done.stdout)
    interpreter, runtime = told["comparisons"]
    assert (done.returncode, told["passed"], interpreter["rule"], interpreter["equal"]) == (0, True, "every bit", 1.0)
    assert runtime["rule"] == "explained: see the note" and runtime["equal"] < 0.99 and told["verdict"] == "explained"
    evidence = told["evidence"]
    assert evidence["is_explained"] and evidence["disagreement"] is None and evidence["tensors"] >= 6
    assert evidence["text"] in told["notes"] and evidence["text"].startswith("C equals the specification, and each of")
    assert "amplifies rounding" in evidence["text"] and not evidence["unoptimised"][0]["passed"] and evidence["moved"][0]["worst"] >= 1
    strict = deeploy_cli("verify", tmp_path / "m.onnx", "--target", target, "--json", "--strict")
    told = json.loads(strict.stdout)
    assert (strict.returncode, told["passed"], told["verdict"], told["evidence"]) == (1, False, "differs", evidence)


def test_the_tensors_are_those_of_the_run_that_is_judged(tmp_path: Path) -> None:
    """Of int8 tensors, which onnxruntime stores as uint8, and of uint8 ones; and its outputs do not change by being looked into."""
    for dtype in (np.int8, np.uint8):
        model = ties(tmp_path / f"{dtype.__name__}.onnx", 1, dtype)
        compiled = deeploy.compile(model)
        x = np.random.default_rng(1).normal(size=(64, SIZE)).astype(np.float32)
        entry = {
            "inputs": [{"name": "x", "type": "f32", "shape": x.shape}],
            "outputs": [{"name": "y", "type": "f32", "shape": x.shape, "equality": "steps"}],
        }
        wanted = {name: np.dtype(dtype) for name in ("q", "minus0_q", "product0_q")} | {"y": np.dtype(np.float32)}
        found = onnxruntime_tensors.run_inside(model, entry, [[x]], wanted)
        assert not isinstance(found, str) and list(found.tensors) == ["q", "minus0_q", "product0_q", "y"]
        zero = 0 if dtype is np.int8 else 128
        scale = np.float32(6 / 255)
        assert np.array_equal(found.tensors["q"][0], np.clip(np.rint(x / scale) + zero, np.iinfo(dtype).min, np.iinfo(dtype).max))
        assert np.array_equal((found.tensors["product0_q"][0].astype(np.float32) - zero) * scale, found.tensors["y"][0])
        session, _ = onnxruntime_reference.open_session(model, entry)
        assert session is not None and found.outputs[0] is not None
        assert np.array_equal(session.run([[x]])[0], found.outputs[0])
        assert compiled.network.program.tensors.keys() >= wanted.keys()


def test_what_the_interpreter_does_not_confirm_is_not_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same differences from onnxruntime, of C that is not what the specification says."""
    model = ties(tmp_path / "m.onnx", 1)
    original = drivers.network_outputs
    monkeypatch.setattr(drivers, "network_outputs", lambda *given: [array + np.float32(6 / 255) for array in original(*given)])
    verdict = verify.verify_compiled(deeploy.compile(model), model)
    assert [(against, c.passed) for against, c in verdict.comparisons] == [("interpreter", False), ("onnxruntime", False)]
    assert verdict.evidence is None


def test_a_specification_that_is_wrong_is_not_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with another weight is compiled: C and interpreter agree, and a layer differs by more than a step from the same inputs."""
    model, other = ties(tmp_path / "m.onnx", 1), tmp_path / "other.onnx"
    changed = onnx.load(model)
    for tensor in changed.graph.initializer:
        if tensor.name == "w0":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) // 2, "w0"))
    onnx.save(changed, other)
    verdict = verify.verify_compiled(deeploy.compile(other), model)
    assert [(against, c.passed) for against, c in verdict.comparisons] == [("interpreter", True), ("onnxruntime", False)]
    assert verdict.evidence is not None and not verdict.evidence.is_explained and verdict.evidence.disagreement is not None
    assert verdict.evidence.disagreement.tensor == "product0_q"


def test_a_tolerance_of_ones_own_is_kept(tmp_path: Path) -> None:
    model = ties(tmp_path / "m.onnx", 1)
    assert not verify.verify_compiled(deeploy.compile(model), model, tolerance=1e-3).passed


EQUAL, STEP, TWO = (Difference(share, worst, "step(s)", worst <= 1) for share, worst in ((1.0, 0.0), (0.8, 1.0), (0.7, 2.0)))


def _found(*tensors: tuple[str, Difference, Difference]) -> Compared:
    return Compared([Agreement(*tensor) for tensor in tensors], [])


def test_layers_show_where_differences_grow() -> None:
    four = replace(TWO, worst=4.0)
    (text,) = growing_differences(_found(("a", STEP, STEP), ("b", TWO, EQUAL), ("c", TWO, STEP), ("d", STEP, STEP), ("y", four, STEP)))
    head, *lines = text.splitlines()
    assert head == "of 5 tensors, these differ more from onnxruntime than all before them:"
    assert lines == [
        "  b: 70.00% equal, worst difference 2 step(s); from onnxruntime's own inputs 100.00% equal, worst difference 0 step(s)",
        "  y: 70.00% equal, worst difference 4 step(s); from onnxruntime's own inputs 80.00% equal, worst difference 1 step(s)",
    ]
    (text,) = growing_differences(_found(("a", STEP, STEP), ("y", EQUAL, EQUAL)))
    assert text.endswith("agree with onnxruntime; the least equal is a: 80.00% equal, worst difference 1 step(s)")
    assert growing_differences(_found(("y", EQUAL, EQUAL))) == ["all 1 tensors that both have are those of onnxruntime"]


def test_layers_of_a_network_show_growth_and_not_the_first_step(tmp_path: Path) -> None:
    done = deeploy_cli("verify", ties(tmp_path / "m.onnx", 3), "--layers")
    grown = [line.split(":")[0].strip() for line in done.stderr.splitlines() if "own inputs" in line and line.startswith("  ")]
    assert grown and grown[0] != "minus0_q" and len(grown) < 6


def test_images_and_parts_are_found_where_they_lie(tmp_path: Path) -> None:
    """A convolution's image lies channels last, a concatenation's parts in one buffer: from its own inputs every tensor is right."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "v"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
        helper.make_node("Neg", ["c"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n, 6, 5]) for name, n in (("x", 2), ("y", 6))]
    kernels = [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in (("w", (3, 2, 3, 3)), ("v", (3, 3, 3, 3)))]
    model = tmp_path / "m.onnx"
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], kernels)
    save_graph(graph, model)
    compiled = deeploy.compile(model)
    x = rng.normal(size=(1, 2, 6, 5)).astype(np.float32)
    port = {"name": "y", "type": "f32", "shape": [1, 6, 6, 5], "equality": "float", "step": 1.0}
    entry = {"inputs": [{"name": "x", "type": "f32", "shape": [1, 2, 6, 5]}], "outputs": [port]}
    found = layers.compare_tensors(compiled.network.program, entry, [[x]], model)
    assert not isinstance(found, str)
    assert {tensor.name for tensor in found.tensors} >= {"a", "b", "y"}
    assert all(tensor.whole.is_small and tensor.alone.is_small for tensor in found.tensors)
