"""Layers of machines with several memories: found in what a machine shows of its memories, on the host model and on the simulator."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.backend.project import read_manifest, select_network
from deeploy.documents import Document
from deeploy.driver.verify import run_project, verify_compiled
from deeploy.errors import BuildError, DeeployError
from deeploy.execution.runners import gvsoc
from deeploy.execution.verification import layers
from deeploy.options import Options
from deeploy.training.step import TrainOptions, make_step
from tests.models import Net, save_graph

SHAPE = (1, 8, 64, 8)


@pytest.fixture(scope="module")
def three_convolutions_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three convolutions one behind the other, each with weights of its own."""
    values = np.random.default_rng(4).normal(scale=0.1, size=(3, 8, 8, 3, 3)).astype(np.float32)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    nodes = [
        helper.make_node("Conv", [a, f"w{i}"], [b], f"conv{i}", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        for i, (a, b) in enumerate([("x", "a"), ("a", "b"), ("b", "y")])
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(values)])
    path = tmp_path_factory.mktemp("model") / "network.onnx"
    save_graph(graph, path)
    return path


@dataclass(frozen=True)
class Shown:
    """Shows some bytes."""

    data: bytes

    def snapshots(self, project: Path, entry: Document, sample: object) -> bytes:
        return self.data


def corrupt(project: Path, compiled: deeploy.Compiled, name: str) -> None:
    """Make the first number of an array of constants another one, in C or where far constants are."""
    source, far = project / "src" / "network_weights.c", project / "network_weights.bin"
    if source.is_file():
        head, found, rest = source.read_text().partition(f"network_constant_{name}[")
        source.write_text(head + found + re.sub(r"\{\n *[-.\w]+", "{ 99.0f", rest, count=1))
        return
    values = compiled.plan.program.buffers[name].data
    assert values is not None
    first, data = values.tobytes()[:64], far.read_bytes()
    assert data.count(first) == 1
    far.write_bytes(data.replace(first, np.float32(99).tobytes() + first[4:]))


def sample() -> list[np.ndarray]:
    return [np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)]


def test_the_first_layer_whose_memory_differs_is_found(three_convolutions_model: Path, tmp_path: Path) -> None:
    """What the host model shows, with another byte at the result of a layer: that layer is the first that differs."""
    compiled = deeploy.compile(three_convolutions_model, "siracusa", l1=9000)
    assert max(compiled.plan.tiling(step).tiles for step in range(len(compiled.plan.calls))) > 1
    compiled.write(tmp_path / "out")
    entry = select_network(read_manifest(tmp_path / "out"))
    data = layers._take_snapshots(tmp_path / "out", entry, compiled.plan, sample(), None)
    (right, *_) = layers.layer_differences(tmp_path / "out", entry, compiled.plan, sample(), three_convolutions_model, Shown(data))
    assert right == f"all {len(compiled.plan.program.calls)} layers agree with the interpreter"
    levels = [memory.name for memory in compiled.plan.target.memories]
    head = 4 * (len(levels) + 2)  # how many levels there are, and the bytes of each and of the outputs
    sizes = np.frombuffer(data, np.uint32, len(levels) + 1, 4).tolist()
    record = np.dtype([("step", np.int32), *((name, np.uint8, (size,)) for name, size in zip([*levels, "outputs"], sizes, strict=True))])
    for step, call in enumerate(compiled.plan.program.calls[:-1]):
        (name,) = {call.operands[operand].buffer for operand in call.writes}
        steps = np.frombuffer(data, record, offset=head).copy()
        found = steps[compiled.plan.residences[name]][steps["step"] == step]
        found[0, compiled.plan.offsets[name] + 3] ^= 0x40
        steps[compiled.plan.residences[name]][steps["step"] == step] = found
        wrong = Shown(data[:head] + steps.tobytes())
        (said, *_) = layers.layer_differences(tmp_path / "out", entry, compiled.plan, sample(), three_convolutions_model, wrong)
        assert said.startswith(f"first layer that differs from the interpreter: {call.node.name} "), said


def test_paths_may_be_text(three_convolutions_model: Path, tmp_path: Path) -> None:
    compiled = deeploy.compile(three_convolutions_model)
    np.savez(tmp_path / "x.npz", x=sample()[0])
    compiled.write(tmp_path / "out")
    done = run_project(str(tmp_path / "out"), str(tmp_path / "x.npz"))
    np.savez(tmp_path / "y.npz", y=done.outputs[0][0])
    assert run_project(str(tmp_path / "out"), str(tmp_path / "x.npz"), str(tmp_path / "y.npz")).passed
    assert verify_compiled(compiled, str(three_convolutions_model), str(tmp_path / "x.npz"), str(tmp_path / "y.npz"), layers=True).passed


def test_layers_of_chains_are_named(three_convolutions_model: Path, tmp_path: Path) -> None:
    """Of what stays inside of a chain only some rows are in memory at a time."""
    options = Options(memory={"l1": 12000}, objective="traffic")
    compiled = deeploy.compile(three_convolutions_model, "siracusa", **options.given())
    assert compiled.plan.fused_groups
    compiled.write(tmp_path / "out")
    entry = select_network(read_manifest(tmp_path / "out"))
    (found, *_) = layers.layer_differences(tmp_path / "out", entry, compiled.plan, sample(), three_convolutions_model)
    held = {name for chain in compiled.plan.fused_groups for name in chain.held}
    inside = [call.node.name for call in compiled.plan.program.calls if any(call.operands[name].buffer in held for name in call.writes)]
    assert inside and all(name in found.partition("only a part is in memory")[2] for name in inside), found
    count = len(compiled.plan.program.calls)
    assert found.startswith(f"{count - len(inside)} of {count} layers agree with the interpreter"), found


def test_states_are_compared_before_a_later_layer_writes_them_anew(tmp_path: Path) -> None:
    n = Net()
    model = make_step(
        n.save(tmp_path / "m.onnx", n.MatMul(n.Relu(n.MatMul(n.x(2, 3), n.w(3, 4))), n.w(4, 2)), opset=20), TrainOptions("mse")
    )
    onnx.save(model, tmp_path / "step.onnx")
    compiled = deeploy.compile(tmp_path / "step.onnx")
    compiled.write(tmp_path / "out")
    program, rng = compiled.plan.program, np.random.default_rng(0)
    feeds = [rng.standard_normal(program.buffers[name].shape).astype(np.float32) for name in program.inputs]
    entry = select_network(read_manifest(tmp_path / "out"))
    (found, *_) = layers.layer_differences(tmp_path / "out", entry, compiled.plan, feeds, tmp_path / "step.onnx")
    assert found.startswith("all "), found


def test_a_simulation_without_snapshots(three_convolutions_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is one that writes them; that none are there is said."""
    tools = tmp_path / "bin"
    tools.mkdir()
    compiler = f'#!/bin/sh\necho "$*" >> {tmp_path}/log\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && : > "$2"; shift; done\n'
    for name, text in {"gvsoc": "#!/bin/sh\nexit 0\n", "riscv64-unknown-elf-gcc": compiler}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.delenv("GVSOC", raising=False)
    monkeypatch.setenv("CHECK_STACKS", "0")
    deeploy.compile(three_convolutions_model, "siracusa").write(tmp_path / "out")
    entry = select_network(read_manifest(tmp_path / "out"))
    with pytest.raises(BuildError, match="left no snapshots"):
        gvsoc.Gvsoc().snapshots(tmp_path / "out", entry, sample())
    assert "-DRT_CHECKED" in (tmp_path / "log").read_text()


@pytest.mark.gvsoc
@pytest.mark.parametrize("memory", ["L2", "L3"])
def test_the_first_wrong_layer_on_the_chip(three_convolutions_model: Path, tmp_path: Path, memory: str) -> None:
    """All agree, tiled and with far constants; with another constant of the second convolution, that is the first that differs."""
    try:
        gvsoc.check_tools()
    except DeeployError as missing:
        pytest.skip(missing.what)
    sizes = {"l1": 12000} | ({"l2": 30000} if memory == "L3" else {})
    compiled = deeploy.compile(three_convolutions_model, "siracusa", memory=sizes, default_memory=memory)
    compiled.write(tmp_path / "out")
    entry = select_network(read_manifest(tmp_path / "out"))
    (right, *_) = layers.layer_differences(tmp_path / "out", entry, compiled.plan, sample(), three_convolutions_model, gvsoc.Gvsoc())
    assert right == f"all {len(compiled.plan.program.calls)} layers agree with the interpreter"
    corrupt(tmp_path / "out", compiled, "w1")
    (found, *_) = layers.layer_differences(tmp_path / "out", entry, compiled.plan, sample(), three_convolutions_model, gvsoc.Gvsoc())
    assert found.startswith("first layer that differs from the interpreter: conv1 "), found
