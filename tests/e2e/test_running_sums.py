"""Pools over the window of a stream in integers: sums of columns and running sums give what pools of all columns do, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import deeploy
from deeploy.driver.project import CompiledProject
from deeploy.driver.verify import verify_compiled
from deeploy.frontend import import_model
from deeploy.frontend.lower.quant import byte_tensor, quantised_result
from deeploy.frontend.streaming import sums
from deeploy.frontend.streaming.stream import Streaming
from deeploy.ir import rewriting
from deeploy.ir.epilogue import clip_shifted
from deeploy.ir.types import DType
from tests.e2e.test_streaming import compare_calls
from tests.models import Net, model_of, node
from tests.streamed_networks import quantise_network

SHAPES = {"kept": (4, 24, 5), "running": (64, 80, 5)}  # channels, columns, frequencies


def save_pools(folder: Path, kind: str, stride: int = 1, is_padded: bool = True) -> Path:
    """Means of two layers, of which the second one is later, in int8."""
    n, (channels, columns, frequencies) = Net(), SHAPES[kind]
    pads = [1, 0, 1, 0] if is_padded else [0, 0, 0, 0]
    first = n.Relu(n.Conv(n.x(1, 2, columns, frequencies), n.w(channels, 2, 3, 1), pads=pads, strides=[stride, 1]))
    second = n.Relu(n.Conv(first, n.w(channels, 1, 3, 1), pads=pads, group=channels))
    means = [n.Flatten(n.GlobalAveragePool(second))]
    means += [n.ReduceMean(first, axes=[2, 3], keepdims=0)] if is_padded else []
    path = n.save(folder / "m.onnx", *(n.Gemm(mean, n.w(channels, 3)) for mean in means))
    return quantise_network(path, folder / "q.onnx")


def list_states(compiled: CompiledProject) -> list[tuple[int, ...]]:
    program = compiled.network.program
    return sorted(state.shape for state in program.states if program.buffers[state.buffer].dtype in (DType.INT16, DType.INT32))


@pytest.mark.parametrize(
    ("kind", "stride", "hop", "calls"), [("kept", 1, 2, 20), ("kept", 2, 1, 36), ("running", 1, 2, 60), ("running", 2, 1, 130)]
)
def test_sums_give_what_pools_do(tmp_path: Path, kind: str, stride: int, hop: int, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if stride > 1:
        monkeypatch.setattr(sums, "_START", 0)  # of a small network
    path = save_pools(tmp_path, kind, stride)
    compiled = deeploy.compile(path, stream=f"x0.2={hop}", certify=False)
    channels = SHAPES[kind][0]
    assert ((1, channels, 1, 1) in list_states(compiled)) == (kind == "running")
    assert len(list_states(compiled)) == (4 if kind == "running" else 2)
    assert compiled.network.program.period == max(1, stride // hop)
    assert compare_calls(compiled, calls, False) > 20


@pytest.mark.parametrize("target", ["generic", "cortex_m4", "siracusa"])
def test_the_c_adds_up(tmp_path: Path, target: str) -> None:
    path = save_pools(tmp_path, "running")
    compiled = deeploy.compile(path, target, stream="x0.2=8")
    assert len(list_states(compiled)) >= 2
    if target != "cortex_m4":
        assert verify_compiled(compiled, path).passed


@pytest.mark.parametrize("kind", SHAPES)
def test_a_sliding_window_gives_the_bits_of_each_window(tmp_path: Path, kind: str) -> None:
    path = save_pools(tmp_path, kind, is_padded=False)
    compiled, whole = deeploy.compile(path, stream="x0.2=4", stream_mode="window"), deeploy.compile(path)
    columns, frequencies = SHAPES[kind][1:]
    assert list_states(compiled)
    recording = np.random.default_rng(0).normal(size=(1, 2, 2 * columns, frequencies)).astype(np.float32)
    got = compiled.interpret_sequence([[recording[:, :, at : at + 4]] for at in range(0, 2 * columns, 4)])
    streamed, compared = compiled.network.streamed, 0
    assert streamed is not None
    for call, outputs in enumerate(got):
        first = (call + 1) * 4 - streamed.stream.outputs[0].reach
        if 0 <= first <= columns:
            assert np.array_equal(outputs[0], whole.interpret([recording[:, :, first : first + columns]])[0])
            compared += 1
    assert compared > 4


def forget_what_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The running sum takes columns off that are one older."""
    add_up, history = Streaming.add_up, Streaming._history

    def late(self: Streaming, x, past, length, fill):  # type: ignore[no-untyped-def]
        return history(self, x, past + (past >= SHAPES["running"][1]), length, fill)

    def add_up_late(self, one):  # type: ignore[no-untyped-def]
        monkeypatch.setattr(Streaming, "_history", late)
        found = add_up(self, one)
        monkeypatch.setattr(Streaming, "_history", history)
        return found

    monkeypatch.setattr(Streaming, "add_up", add_up_late)


def begin_with_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns from before the recording are the number zero, which stands for another."""
    monkeypatch.setattr(Streaming, "_fill_window", lambda self, x: 0.0)


def round_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The requantisation has no rounding."""
    requantise = sums._requantise_sums

    def shifted(*given):  # type: ignore[no-untyped-def]
        mul, add, limits = requantise(*given)
        return mul, add - (1 << limits["shift"] - 1), limits

    monkeypatch.setattr(sums, "_requantise_sums", shifted)


@pytest.mark.parametrize("change", [forget_what_leaves, begin_with_zeros, round_down])
def test_mutants_are_found(tmp_path: Path, change, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    path = save_pools(tmp_path, "running")
    change(monkeypatch)
    with pytest.raises(AssertionError):
        compare_calls(deeploy.compile(path, stream="x0.2=4", certify=False), 30, False)


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.1), (0.1, 0.05), (0.07, 0.0313), (0.5, 2.0)])
@pytest.mark.parametrize("op", ["GlobalAveragePool", "AveragePool", "ReduceSum"])
def test_every_sum_is_rounded_as_the_pool_does(tmp_path: Path, op: str, a: float, b: float) -> None:
    """All sums of six elements, as the kernel's reference pools the elements, and as their sum is requantised."""
    forms: dict[str, dict[str, Any]] = {"AveragePool": {"kernel_shape": [2, 3]}, "ReduceSum": {"keepdims": 1}}
    attrs = forms.get(op, {})
    totals = np.arange(6 * -128, 6 * 127 + 1)
    shape, result = (len(totals), 1, 2, 3), (len(totals), 1, 1, 1)
    x = (totals[:, None] // 6 + (np.arange(6) < totals[:, None] % 6)).astype(np.int8).reshape(shape)
    names = [("a", np.float32(a)), ("b", np.float32(b)), ("z", np.int8(-3)), ("axes", np.array([2, 3]))]
    nodes = [
        node("DequantizeLinear", "q a z", "d"),
        node(op, "d axes" if op == "ReduceSum" else "d", "p", **attrs),
        node("QuantizeLinear", "p b z", "y"),
    ]
    made = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT8, extents) for name, extents in (("q", shape), ("y", result))]
    constants = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in names]
    onnx.save(model_of(onnx.helper.make_graph(nodes, "g", made[:1], made[1:], constants)), tmp_path / "m.onnx")
    compiled = deeploy.compile(tmp_path / "m.onnx", certify=False)
    (pooled,) = compiled.interpret([x])
    graph = import_model(tmp_path / "m.onnx")
    pool = next(one for one in graph.nodes if one.op == op)
    q, y = byte_tensor(pool.operands[0]), quantised_result(graph.readers[pool.outputs[0]][0])
    assert q is not None and y is not None
    found = rewriting.attempt(sums._requantise_sums, pool, q, y, 6)
    with_ties = [("AveragePool", 0.1), ("AveragePool", 2.0), ("ReduceSum", 2.0)]  # that go to even results, by the scale of the result
    assert (found is None) == ((op, b) in with_ties)
    if found is not None:
        mul, add, limits = found
        assert np.array_equal(clip_shifted(limits, totals * mul.astype(np.int64) + add), pooled.ravel())
