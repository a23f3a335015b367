"""Emitted projects: readable, stable, and the same for the same input."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.backend import project
from deeploy.errors import UsageError
from deeploy.target import load
from tests.models import save_graph

SNAPSHOT = Path(__file__).parent / "network.c.snapshot"


@pytest.fixture
def requantised_model(tmp_path: Path) -> Path:
    """An integer layer with bias and requantisation, then an addition of two of its results."""
    constants = {
        "w": np.arange(-6, 6).reshape(3, 4),
        "bias": np.array([1, -2, 3, 400]),
        "mul": np.array([5, 6, 7, 8]),
        "add": np.zeros(4),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w", "bias"], ["acc"], "dense/first layer"),
            helper.make_node("RequantShift", ["acc", "mul", "add"], ["h"], "requant", div=64, n_levels=256, signed=1),
            helper.make_node("Add", ["h", "h"], ["y"], "twice"),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()],
    )
    path = tmp_path / "small.onnx"
    return save_graph(graph, path, 13)


def test_the_network_reads_as_it_did(requantised_model: Path) -> None:
    files = deeploy.compile(requantised_model).files()
    assert files["src/network.c"] == SNAPSHOT.read_text()


def test_the_same_model_gives_the_same_bytes_and_no_path_of_this_machine(requantised_model: Path) -> None:
    first, second = deeploy.compile(requantised_model).files(), deeploy.compile(requantised_model).files()
    assert first == second
    assert not [name for name, text in first.items() if isinstance(text, str) and str(Path.cwd()) in text]


def test_binary_weights_are_those_of_the_c_file(requantised_model: Path) -> None:
    compiled = deeploy.compile(requantised_model)
    files = compiled.files()
    constants = [b for b in compiled.network.program.buffers.values() if b.data is not None]
    blob, position = files["network_weights.bin"], 0
    assert isinstance(blob, bytes)
    for buffer in constants:
        assert buffer.data is not None
        assert blob[position : position + buffer.bytes] == buffer.data.tobytes()
        position += -(-buffer.bytes // 16) * 16
    assert len(blob) == position + 16 and len(constants) == 3
    assert int.from_bytes(blob[-12:-8], "little") == zlib.crc32(blob[:-12])
    assert f"NETWORK_WEIGHTS_CODE {int.from_bytes(blob[-16:-12], 'little')}u" in str(files["src/network_weights.h"])


def test_a_project_is_written_whole_and_replaces_only_our_own(requantised_model: Path, tmp_path: Path) -> None:
    compiled = deeploy.compile(requantised_model)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="was not written by deeploy"):
        compiled.write(foreign)
    assert [p.name for p in foreign.iterdir()] == ["notes.txt"]
    ours = tmp_path / "ours"
    compiled.write(ours)
    (ours / "stale.txt").write_text("left over")
    compiled.write(ours)
    assert not (ours / "stale.txt").exists()
    manifest = project.read_manifest(ours)
    assert manifest["memory"]["arena"] == {"capacity": None, "peak": 16, "lower_bound": 16, "io": 38, "reserved": 0, "constants": 44}
    assert [(c["op"], c["macs"], c["engine"]) for c in manifest["calls"]] == [("MatMul", 24, "core"), ("Add", 0, "core")]
    assert json.loads((ours / "timings.json").read_text()).keys() == {"total", "import", "lower", "bind", "plan", "certify", "emit"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["foreign", "ours", "small.onnx"]


def test_the_c_computes_what_the_interpreter_does(requantised_model: Path) -> None:
    compiled = deeploy.compile(requantised_model)
    x = np.array([[100, -100, 7], [-128, 127, 0]], np.int8)
    acc = x.astype(np.int64) @ np.arange(-6, 6).reshape(3, 4) + np.array([1, -2, 3, 400])
    expected = 2 * np.clip((acc * np.array([5, 6, 7, 8]) + 32) >> 6, -128, 127)
    assert np.array_equal(compiled.run([x], sanitize=True)[0], expected)
    assert np.array_equal(compiled.interpret([x])[0], expected)


def test_two_networks_share_a_project_and_an_arena(requantised_model: Path, tmp_path: Path) -> None:
    both = deeploy.compile({"first": requantised_model, "second": requantised_model})
    both.write(tmp_path / "both")
    manifest = project.read_manifest(tmp_path / "both")
    assert [entry["name"] for entry in manifest["networks"]] == ["first", "second"]
    files = both.files()
    assert {"include/first.h", "include/second.h", "src/networks.c"} <= files.keys()
    assert np.array_equal(both.run([np.ones((2, 3), np.int8)])[0], deeploy.compile(requantised_model).run([np.ones((2, 3), np.int8)])[0])


def test_networks_share_a_memory_whose_size_the_target_does_not_say(requantised_model: Path, tmp_path: Path) -> None:
    siracusa, other = load("siracusa"), onnx.load(requantised_model)
    far = next(memory for memory in siracusa.memories if memory.is_far)
    target = replace(siracusa, memories=tuple(replace(m, capacity=None) if m is far else m for m in siracusa.memories))
    for weights in other.graph.initializer:
        weights.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(weights), weights.name))
    onnx.save(other, tmp_path / "other.onnx")
    options = deeploy.Options(default_memory=far.name)
    both = deeploy.compile({"first": requantised_model, "second": tmp_path / "other.onnx"}, target, **options.given())
    uses = [network.plan.memory[far.name] for network in both.networks.values()]
    assert (
        uses[0].constants
        == uses[1].constants
        > deeploy.compile(requantised_model, target, **options.given()).plan.memory[far.name].constants
    )
    assert all(use.capacity is None and use.lower_bound <= use.peak for use in uses)


@pytest.mark.parametrize("name", ["dialect", "operators", "transposes", "fuse"])
def test_a_graph_can_be_saved_after_any_pass(name: str, requantised_model: Path, tmp_path: Path) -> None:
    deeploy.compile(requantised_model, save_after=(name, tmp_path / "after.onnx"))
    operators = [node.op_type for node in onnx.load(tmp_path / "after.onnx").graph.node]
    assert operators == (["MatMul", "Add"] if name == "fuse" else operators) and "Add" in operators


def test_an_output_of_a_chip_that_is_not_there_is_named() -> None:
    chips = [{"inputs": [], "outputs": [{"name": "y"}]}]
    outputs = [{"name": "y", "chip": 0}, {"name": "y", "chip": 1}, {"name": "z", "chip": 0}]
    manifest = {"chips": chips, "inputs": [], "outputs": outputs}
    assert list(project._unknown_ports(manifest)) == [("outputs", 1, "y"), ("outputs", 0, "z")]
