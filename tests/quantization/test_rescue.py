"""What 8 bits ruin is found and stays in float: Concats of unlike operands, logarithms behind powers, signs; and it is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import deeploy
from deeploy.cli import app
from deeploy.errors import AccuracyError, UnsupportedError
from deeploy.quantization.form import Form
from deeploy.quantization.losses import compare_networks
from deeploy.quantization.static import Written, read_source, write_quantised
from tests.quantization.networks import decibel, node, outputs_of, save

LOUDNESS = 10.0 ** np.random.default_rng(5).uniform(-3, 0, size=(24, 1, 1))


def normal(*shape: int) -> np.ndarray:
    """Numbers that are the same for one shape."""
    return np.random.default_rng([23, *shape]).normal(size=shape).astype(np.float32)


def powers(path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Powers over six decades, their logarithm, and a product."""
    nodes = [
        node("MatMul", "x basis", "bins"),
        node("Mul", "bins bins", "power"),
        node("Add", "power floor", "lifted"),
        node("Log", "lifted", "log"),
        node("Gemm", "log w b", "hidden"),
        node("Relu", "hidden", "active"),
        node("Gemm", "active v c", "y"),
    ]
    constants = {
        "basis": normal(32, 16),
        "floor": np.float32([1e-6]),
        "w": normal(16, 64),
        "b": normal(64),
        "v": normal(64, 3),
        "c": normal(3),
    }
    return save(path, nodes, {"x": (1, 32)}, {"y": (1, 3)}, constants), {"x": (LOUDNESS * normal(24, 1, 32)).astype(np.float32)}


def sensors(path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Accelerations, a temperature and a pressure, scaled by the first product."""
    nodes = [
        node("Concat", "acc temp pres", "all", axis=1),
        node("Gemm", "all w b", "h"),
        node("Relu", "h", "r"),
        node("Gemm", "r v b", "y"),
    ]
    scale = np.float32([1, 1, 1, 0.1, 1e-3])[:, None]
    constants = {"w": scale * normal(5, 4), "b": normal(4), "v": normal(4, 4)}
    given = {"acc": normal(24, 1, 3), "temp": 20 + 5 * normal(24, 1, 1), "pres": 101325 + 500 * normal(24, 1, 1)}
    return save(path, nodes, {"acc": (1, 3), "temp": (1, 1), "pres": (1, 1)}, {"y": (1, 4)}, constants), given


def signs(path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Activations of one bit."""
    nodes = [
        node("Gemm", "x w b", "h"),
        node("Sign", "h", "s"),
        node("MatMul", "s v", "g"),
        node("Sign", "g", "t"),
        node("MatMul", "t u", "y"),
    ]
    constants = {"w": normal(24, 24), "b": 0.1 * normal(24), "v": np.sign(normal(24, 25)), "u": normal(25, 4)}
    return save(path, nodes, {"x": (1, 24)}, {"y": (1, 4)}, constants), {"x": normal(24, 1, 24)}


def boxes(path: Path, is_moved: bool = False) -> tuple[Path, dict[str, np.ndarray]]:
    """Boxes in pixels and scores below one, in one output; or turned on their way out."""
    last = [node("Concat", "pixels scores", "both", axis=1), node("Transpose", "both", "y", perm=[0, 2, 1])]
    nodes = [
        node("Conv", "x w", "f", kernel_shape=[3]),
        node("Relu", "f", "r"),
        node("Conv", "r v", "offsets", kernel_shape=[1]),
        node("Mul", "offsets size", "pixels"),
        node("Conv", "r u", "logits", kernel_shape=[1]),
        node("Sigmoid", "logits", "scores"),
        *(last if is_moved else [node("Concat", "pixels scores", "y", axis=1)]),
    ]
    constants = {"w": normal(8, 3, 3), "v": normal(4, 8, 1), "u": 0.3 * normal(2, 8, 1), "size": np.float32([64])}
    return save(path, nodes, {"x": (1, 3, 8)}, {"y": (1, 6, 6)}, constants), {"x": normal(24, 1, 3, 8)}


NETWORKS = {"powers": powers, "sensors": sensors, "signs": signs, "boxes": boxes, "moved boxes": lambda path: boxes(path, True)}


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_ruined_stays_in_float(name: str, tmp_path: Path) -> None:
    model, given = NETWORKS[name](tmp_path / "f.onnx")
    np.savez(tmp_path / "c.npz", **{each: array[:16] for each, array in given.items()})
    source = read_source(model, tmp_path / "c.npz", {}, {})
    written = write_quantised(source, tmp_path / "q.onnx")
    found = compare_networks(source, tmp_path / "q.onnx")
    assert found.signal_to_noise > 20 and (written.float_tensors or written.apart)
    made = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert sum(node.op_type == "QuantizeLinear" for node in made.graph.node) > 0
    compiled = deeploy.compile(tmp_path / "q.onnx", "generic")
    fresh = [{each: array[i] for each, array in given.items()} for i in range(16, 24)]
    right, got = outputs_of(model, fresh), outputs_of(tmp_path / "q.onnx", fresh)
    assert decibel(np.stack([row[0] for row in got]), np.stack([row[0] for row in right])) > 14
    for sample, row in zip(fresh, got, strict=True):
        assert decibel(compiled.run(sample)[0], row[0]) > 30
    if "boxes" in name:
        part = [np.stack([row[0] if name == "boxes" else row[0].swapaxes(1, 2) for row in rows])[:, :, 4:] for rows in (got, right)]
        assert decibel(*part) > 20 and {"y"} == {part.tensor for part in source.parts} - {"both"}


def test_nothing_is_done_where_nothing_is_ruined(tmp_path: Path) -> None:
    model = save(tmp_path / "f.onnx", [node("Gemm", "x w", "h"), node("Tanh", "h", "y")], {"x": (1, 8)}, {"y": (1, 8)}, {"w": normal(8, 8)})
    np.savez(tmp_path / "c.npz", x=normal(8, 1, 8))
    assert write_quantised(read_source(model, tmp_path / "c.npz", {}, {}), tmp_path / "q.onnx") == Written()


def test_what_is_lost_is_said_and_can_be_an_error(tmp_path: Path) -> None:
    model, given = powers(tmp_path / "f.onnx")
    np.savez(tmp_path / "c.npz", **given)
    command = ["quantize", str(model), "--calibrate", str(tmp_path / "c.npz"), "-o", str(tmp_path / "q.onnx")]
    told = CliRunner().invoke(app, command).stdout.splitlines()
    assert any("lifted of lifted (largest" in line for line in told) and told[-1].startswith("wrote")
    told = CliRunner().invoke(app, [*command, "--float-share", "0"]).stdout.splitlines()
    assert told[-1].startswith("warning: output y has a signal-to-noise ratio of") and told[-2].startswith("wrote")
    before = (tmp_path / "q.onnx").read_bytes()
    failed = CliRunner().invoke(app, [*command, "--float-share", "0", "--at-least", "15"]).exception
    assert isinstance(failed, AccuracyError) and failed.exit_status == 1 and "less than --at-least 15" in failed.what
    assert (tmp_path / "q.onnx").read_bytes() == before and len(list(tmp_path.iterdir())) == 3
    plain = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    more = json.loads(CliRunner().invoke(app, [*command, "--json", "--at-least", "50", "--float-share", "1"]).stdout)
    assert more["signal_to_noise"] > 50 > plain["signal_to_noise"] and more["float_share"] > plain["float_share"]


def test_a_budget_is_kept(tmp_path: Path) -> None:
    model, given = powers(tmp_path / "f.onnx")
    np.savez(tmp_path / "c.npz", **given)
    source = read_source(model, tmp_path / "c.npz", {}, {})
    shares = [write_quantised(source, tmp_path / "q.onnx", Form(float_share=share)).share for share in (0, 0.02, 0.75)]
    assert shares[0] == 0 and shares[1] <= 0.02 and shares[1] < shares[2] <= 0.75


@pytest.mark.parametrize(
    ("nodes", "inputs", "constants"),
    [
        ([node("Gemm", "x w b", "y")], {"x": (1, 8)}, {"w": normal(8, 8), "b": normal(1, 8)}),
        ([node("Mul", "x gain", "m"), node("Tanh", "m", "y")], {"x": (1, 8), "gain": ()}, {}),
    ],
    ids=["a bias that is a row", "an input without axes"],
)
def test_shapes_that_onnxruntime_alone_refuses(
    nodes: list[tuple[str, str, str, dict[str, object]]],
    inputs: dict[str, tuple[int, ...]],
    constants: dict[str, np.ndarray],
    tmp_path: Path,
) -> None:
    model = save(tmp_path / "f.onnx", nodes, inputs, {"y": (1, 8)}, constants)
    np.savez(tmp_path / "c.npz", **{name: normal(6, *shape) for name, shape in inputs.items()})
    source = read_source(model, tmp_path / "c.npz", {}, {})
    write_quantised(source, tmp_path / "q.onnx")
    assert compare_networks(source, tmp_path / "q.onnx").signal_to_noise > 30


def test_nodes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    model = onnx.load(save(tmp_path / "f.onnx", [node("Tanh", "x", "h"), node("Tanh", "h", "y")], {"x": (1, 4)}, {"y": (1, 4)}, {}))
    model.graph.node[1].name = "h"
    onnx.save(model, tmp_path / "f.onnx")
    np.savez(tmp_path / "c.npz", x=normal(4, 1, 4))
    assert [node.name for node in read_source(tmp_path / "f.onnx", tmp_path / "c.npz", {}, {}).model.graph.node] == ["h", "h_1"]


def test_operators_that_nobody_knows_are_named_with_their_domains(tmp_path: Path) -> None:
    model = onnx.load(save(tmp_path / "f.onnx", [node("Own", "x", "h"), node("Other", "h", "y")], {"x": (1, 4)}, {"y": (1, 4)}, {}))
    np.savez(tmp_path / "c.npz", x=normal(4, 1, 4))
    del model.graph.node[0]
    model.graph.node[0].input[0] = "x"
    onnx.save(model, tmp_path / "f.onnx")
    with pytest.raises(UnsupportedError, match=r"onnxruntime does not know the operator Other of domain ai\.onnx"):  # of a known shape
        read_source(tmp_path / "f.onnx", tmp_path / "c.npz", {}, {})
    model.graph.node[0].domain = "com.nobody"
    model.opset_import.append(onnx.helper.make_opsetid("com.nobody", 1))
    onnx.save(model, tmp_path / "f.onnx")
    with pytest.raises(UnsupportedError, match=r"Other of (the )?domain '?com\.nobody"):
        read_source(tmp_path / "f.onnx", tmp_path / "c.npz", {}, {})
