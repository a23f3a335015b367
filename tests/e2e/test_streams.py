"""States that do not grow: a recurrent network is fed a stream chunk by chunk, and goes on where the last chunk ended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.backend.project import read_manifest
from deeploy.driver.verify import verify_compiled
from deeploy.errors import UsageError
from tests.models import model_of

UNITS, INPUTS = 8, 5


def stream(path: Path, op: str, steps: int, rows: int = UNITS) -> Path:
    """A layer whose states before the first step are inputs, those behind the last one outputs, and a product of its sequence."""
    rng, gates = np.random.default_rng(0), {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * UNITS
    shapes = {"w": (1, gates, INPUTS), "r": (1, gates, UNITS), "b": (1, 2 * gates), "p": (UNITS, 3)}
    constants = [numpy_helper.from_array(rng.normal(scale=0.5, size=s).astype(np.float32), n) for n, s in shapes.items()]
    before, after = (["h", "c"], ["hn", "cn"]) if op == "LSTM" else (["h"], ["hn"])
    nodes = [
        helper.make_node(op, ["x", "w", "r", "b", "", *before], ["s", *after], "layer", hidden_size=UNITS),
        helper.make_node("MatMul", ["s", "p"], ["y"], "product"),
    ]
    ends = {"x": (steps, 1, INPUTS), "y": (steps, 1, 1, 3)} | dict.fromkeys((*before, *after), (1, 1, rows))
    inputs, outputs = (
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ends[n]) for n in names] for names in (("x", *before), ("y", *after))
    )
    model = model_of(helper.make_graph(nodes, "g", inputs, outputs, constants), 14)
    model.ir_version = 8
    onnx.save(model, path)
    return path


STATES = {"LSTM": {"h": "hn", "c": "cn"}, "GRU": {"h": "hn"}, "RNN": {"h": "hn"}}


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("op", STATES)
def test_chunks_give_what_the_whole_stream_does(tmp_path: Path, op: str, steps: int, target: str) -> None:
    whole = deeploy.compile(stream(tmp_path / "whole.onnx", op, 6))
    path = stream(tmp_path / "chunk.onnx", op, steps)
    compiled = deeploy.compile(path, target, states=STATES[op])
    x = np.random.default_rng(1).normal(size=(6, 1, INPUTS)).astype(np.float32)
    zeros = [np.zeros((1, 1, UNITS), np.float32)] * len(STATES[op])
    wanted = whole.interpret([x, *zeros])[0]
    chunks = [[x[at : at + steps]] for at in range(0, 6, steps)]
    got = np.concatenate([outputs[0] for outputs in compiled.interpret_sequence(chunks)])
    assert np.allclose(got, wanted, atol=1e-6)
    np.savez(tmp_path / "x.npz", x=np.stack([chunk[0] for chunk in chunks]))
    found = verify_compiled(compiled, path, tmp_path / "x.npz", sequence=True)
    assert found.passed, found
    assert np.allclose(np.concatenate(list(found.outputs[0])), wanted, atol=1e-6)


def test_every_sequence_begins_with_zeros(tmp_path: Path) -> None:
    path = stream(tmp_path / "m.onnx", "LSTM", 2)
    compiled = deeploy.compile(path, "siracusa", states=STATES["LSTM"])
    x = np.random.default_rng(1).normal(size=(3, 2, 1, INPUTS)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    apart = verify_compiled(compiled, path, tmp_path / "x.npz", sequence=False)
    assert apart.passed, apart
    alone = [compiled.run([sample])[0] for sample in x]
    assert all(np.array_equal(a, b) for a, b in zip(apart.outputs[0], alone, strict=True))
    together = verify_compiled(compiled, path, tmp_path / "x.npz", sequence=True)
    assert np.array_equal(together.outputs[0][0], alone[0])
    assert not np.allclose(together.outputs[0][1], alone[1], atol=1e-3)


def test_states_are_described(tmp_path: Path) -> None:
    compiled = deeploy.compile(stream(tmp_path / "m.onnx", "LSTM", 2), "siracusa", states=STATES["LSTM"])
    compiled.write(tmp_path / "out")
    manifest = read_manifest(tmp_path / "out")
    network = next(iter(manifest["networks"].values())) if "networks" in manifest else manifest
    states = {state["past"]: state for state in network["states"]}
    assert [port["name"] for port in network["inputs"]] == ["x"]
    assert [port["name"] for port in network["outputs"]] == ["y"]
    assert states.keys() == {"h", "c"}
    assert states["c"]["axis"] is None and states["c"]["bytes"] == 4 * UNITS
    assert network["rows"] == 1


def test_a_context_is_only_for_states_that_grow(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"context: the states of the model do not grow\nLeave context out\."):
        deeploy.compile(stream(tmp_path / "m.onnx", "GRU", 2), states=STATES["GRU"], context=10)
