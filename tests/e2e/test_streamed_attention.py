"""Attention along a stream: keys and values of past columns are kept, and results are those of the lengthened network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import deeploy
from deeploy.driver import streams
from deeploy.driver.project import CompiledProject
from deeploy.driver.verify import verify_compiled
from deeploy.errors import UnsupportedError
from deeploy.frontend.streaming import stream
from tests.e2e.test_streaming import compare_calls, divide_products
from tests.models import Net, model_of, node, ports
from tests.streamed_networks import attend, quantise_network

WINDOW, WIDTH, HEADS = 24, 8, 2


def band(columns: int, before: int, after: int) -> np.ndarray:
    """Whether a column sees another one: so many before it, and behind it."""
    distance = np.arange(columns) - np.arange(columns)[:, None]
    return (distance >= -before) & (distance <= after)


def chunks(columns: int, size: int, left: int) -> np.ndarray:
    """Whether a column sees another one: of its own chunk, and of so many before that."""
    chunk = np.arange(columns) // size
    return (chunk <= chunk[:, None]) & (chunk >= chunk[:, None] - left)


MASKS = {"causal": band(WINDOW, WINDOW, 0), "band": band(WINDOW, 5, 2), "behind": band(WINDOW, 0, 3), "chunks": chunks(WINDOW, 4, 1)}


def save(path: Path, mask: np.ndarray, kind: str, bias: np.ndarray | None = None, layers: int = 2) -> Path:
    """Layers of attention over so many columns as the mask has; results for every column, and their mean."""
    n = Net()
    x = n.x(1, len(mask), WIDTH)
    for _ in range(layers):
        x = attend(n, x, HEADS, mask, kind, bias)
    return n.save(path, x, n.ReduceMean(x, axes=[1], keepdims=0))


def bands(compiled: CompiledProject) -> list[tuple[int, int, int]]:
    assert compiled.network.streamed is not None
    return [(one.block, one.before, one.after) for one in compiled.network.streamed.stream.bands]


@pytest.mark.share(0.34)
@pytest.mark.parametrize("is_float", [True, False])
@pytest.mark.parametrize("kind", ["add", "where"])
@pytest.mark.parametrize(("name", "hop"), [(name, hop) for name in MASKS for hop in ("", "=8", "=3") if (name, hop) != ("chunks", "=3")])
def test_calls_give_what_the_lengthened_network_does(tmp_path: Path, name: str, hop: str, kind: str, is_float: bool) -> None:
    path = save(tmp_path / "m.onnx", MASKS[name], kind)
    path = path if is_float else quantise_network(path, tmp_path / "q.onnx")
    compiled = deeploy.compile(path, stream=f"x0.1{hop}", certify=False)
    assert bands(compiled) == [{"causal": (1, 23, 0), "band": (1, 5, 2), "behind": (1, 0, 3), "chunks": (4, 4, 0)}[name]] * 2
    assert divide_products(compiled) == 1
    assert compare_calls(compiled, 60 if hop == "" and name != "chunks" else 16, is_float) > 20


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_a_long_mask_gives_the_same(tmp_path: Path, name: str, with_bias: bool) -> None:
    """The float network over the whole recording, with a mask of that size, beside the calls."""
    length = 60
    masks = {
        "causal": band(length, WINDOW - 1, 0),
        "band": band(length, 5, 2),
        "behind": band(length, 0, 3),
        "chunks": chunks(length, 4, 1),
    }

    def bias(columns: int) -> np.ndarray | None:
        slopes = np.array([0.1, 0.7], np.float32)[:, None, None]
        return -slopes * np.abs(np.arange(columns) - np.arange(columns)[:, None]).astype(np.float32) if with_bias else None

    compiled = deeploy.compile(save(tmp_path / "m.onnx", MASKS[name], "add", bias(WINDOW)), stream="x0.1=4", certify=False)
    long, own = save(tmp_path / "l.onnx", masks[name], "where", bias(length)), tmp_path / "m.onnx"
    recording = np.random.default_rng(0).normal(size=(1, length, WIDTH)).astype(np.float32)
    calls = compiled.interpret_sequence([[recording[:, at : at + 4]] for at in range(0, length, 4)])
    got = np.concatenate([outputs[0] for outputs in calls], 1)
    assert compiled.network.streamed is not None
    delay = compiled.network.streamed.stream.outputs[0].delay
    wanted, first = (_run(path, recording[:, :columns]) for path, columns in ((long, length), (own, WINDOW)))
    assert np.allclose(got[:, delay:], wanted[:, : length - delay], atol=2e-5)
    known = WINDOW - 4 * 2 if name in ("band", "behind") else WINDOW  # columns whose look-ahead is in the window
    assert np.allclose(got[:, delay : delay + known], first[:, :known], atol=2e-5)


def _run(path: Path, x: np.ndarray) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x0": x})[0])


@pytest.mark.parametrize(("name", "hop", "target"), [("band", 1, "generic"), ("band", 3, "siracusa"), ("chunks", 8, "generic")])
def test_the_c_attends(tmp_path: Path, name: str, hop: int, target: str) -> None:
    path = quantise_network(save(tmp_path / "m.onnx", MASKS[name], "add"), tmp_path / "q.onnx")
    compiled = deeploy.compile(path, target, stream=f"x0.1={hop}")
    assert verify_compiled(compiled, path).passed


VENDORS: dict[str, tuple[int, str, dict[str, object], int]] = {  # opset, inputs, attributes, columns that are seen before
    "Attention": (17, "x packed bias", {"num_heads": 2, "unidirectional": 1}, 15),
    "MultiHeadAttention": (17, "q k v", {"num_heads": 2, "unidirectional": 1}, 15),
    "GroupQueryAttention": (17, "q narrow_k narrow_v  ", {"num_heads": 2, "kv_num_heads": 1, "local_window_size": 6}, 5),
    "standard": (23, "q k v", {"q_num_heads": 2, "kv_num_heads": 2, "is_causal": 1}, 15),
}


@pytest.mark.parametrize("op", VENDORS)
def test_attention_in_one_node_streams(tmp_path: Path, op: str) -> None:
    opset, inputs, attrs, before = VENDORS[op]
    rng, columns = np.random.default_rng(0), 16
    weights = {"q": WIDTH, "k": WIDTH, "v": WIDTH, "narrow_k": WIDTH // 2, "narrow_v": WIDTH // 2}
    used = {name: width for name, width in weights.items() if name in inputs.split()}
    constants = {f"{name}_weights": rng.standard_normal((WIDTH, width)).astype(np.float32) / 3 for name, width in used.items()}
    constants |= {"packed": rng.standard_normal((WIDTH, 3 * WIDTH)).astype(np.float32) / 3, "bias": np.zeros(3 * WIDTH, np.float32)}
    given, results = inputs.split(), ["y"]
    if op == "GroupQueryAttention":
        given, results = [*given, "", "", "last", "total"], ["y", "keys", "values"]
        constants |= {"last": np.array([columns - 1], np.int32), "total": np.array(columns, np.int32)}
    domain, name = ("", "Attention") if op == "standard" else ("com.microsoft", op)
    nodes = [node("MatMul", f"x {each}_weights", each) for each in used]
    nodes.append(onnx.helper.make_node(name, given, results, "attention", domain=domain, **attrs))
    tensors = [onnx.numpy_helper.from_array(value, each) for each, value in constants.items()]
    graph = onnx.helper.make_graph(nodes, "g", ports({"x": (1, columns, WIDTH)}), ports({"y": (1, columns, WIDTH)}), tensors)
    model = model_of(graph, opset)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, tmp_path / "m.onnx")
    compiled = deeploy.compile(tmp_path / "m.onnx", stream="x.1=2", certify=False)
    assert bands(compiled) == [(1, before, 0)]
    assert compare_calls(compiled, 20, True) > 20


@pytest.mark.parametrize(
    ("op", "attrs"), [("ITAMax", {"n_levels": 256}), ("iSoftmax", {"n_levels": 256, "coeffA": 23, "coeffB": 30, "coeffC": 200, "log2": 15})]
)
def test_integers_of_the_dialect_attend(tmp_path: Path, op: str, attrs: dict[str, int]) -> None:
    rng, shape, step = np.random.default_rng(0), (1, 16, WIDTH), {"div": 2**10, "n_levels": 256, "signed": 1}
    nodes = [node("MatMul", f"x w{each}", f"{each}_sum") for each in "qkv"]
    nodes += [node("RequantShift", f"{each}_sum m a", each, **step) for each in "qkv"]
    nodes += [node("Transpose", "k", "turned", perm=[0, 2, 1]), node("MatMul", "q turned", "s")]
    nodes.append(node("RequantShift", "s m a", "scores", **step))
    nodes += [node("Add", "scores mask", "masked"), node("RequantShift", "masked one a", "seen", **{**step, "div": 2})]
    nodes += [node(op, "seen", "p", **attrs), node("MatMul", "p v", "o"), node("RequantShift", "o m a", "y", **step)]
    constants = {f"w{each}": rng.integers(-60, 60, (WIDTH, WIDTH)) for each in "qkv"}
    constants |= {"mask": np.where(np.tri(shape[1]), 0, -128)[None], "m": np.full(1, 5), "one": np.full(1, 2), "a": np.zeros(1)}
    tensors = [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
    onnx.save(model_of(onnx.helper.make_graph(nodes, "g", ports({"x": shape}), ports({"y": shape}), tensors)), tmp_path / "m.onnx")
    compiled = deeploy.compile(tmp_path / "m.onnx", stream="x.1=2", certify=False)
    assert bands(compiled) == [(1, 15, 0)]
    hops = [rng.integers(-128, 128, (1, 2, WIDTH)).astype(np.int8) for _ in range(16)]
    got = [np.stack(arrays) for arrays in zip(*compiled.interpret_sequence([[hop] for hop in hops]), strict=True)]
    assert compiled.network.streamed is not None
    (wanted,) = streams.find_expected(compiled.network.streamed, hops, got, streams.run_references(compiled.plan.target))
    assert np.array_equal(got[0], wanted)
    assert np.count_nonzero(wanted) > 20


def test_what_attention_sees_is_said(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", MASKS["causal"], "add", layers=1)
    notes = deeploy.compile(path, stream="x0.1=2", certify=False).notes
    assert "stream: node MatMul_17 (MatMul) sees 23 columns before, as many as the window has, and 0 behind" in notes


@pytest.mark.parametrize("mask", [np.ones((WINDOW, WINDOW), bool), band(WINDOW, 3, WINDOW), np.tri(WINDOW, dtype=bool)[::-1]])
def test_other_masks_need_the_window(tmp_path: Path, mask: np.ndarray) -> None:
    compiled = deeploy.compile(save(tmp_path / "m.onnx", mask, "add", layers=1), stream="x0.1=4", certify=False)
    assert not bands(compiled)
    assert compiled.network.streamed is not None
    assert compiled.network.streamed.stream.heads[0] == "node MatMul_13 (MatMul)"  # of queries and keys, which are kept
    assert compare_calls(compiled, 10, True) > 20


def test_products_may_be_the_last_of_one_attention_and_the_first_of_another(tmp_path: Path) -> None:
    n, columns = Net(), 6
    x = n.x(1, columns, columns)
    mask, scores = n.c(np.where(np.tri(columns), 0, -1e9).astype(np.float32)), n.MatMul(x, n.Transpose(n.Relu(x), perm=[0, 2, 1]))
    for _ in range(2):
        scores = n.MatMul(n.Softmax(n.Add(scores, mask), axis=-1), x)
    compiled = deeploy.compile(n.save(tmp_path / "m.onnx", scores), stream="x0.1=2", certify=False)
    assert len(bands(compiled)) == 1
    assert compare_calls(compiled, 8, True) > 20


def test_a_sliding_window_keeps_keys_and_values(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", MASKS["causal"], "where", layers=1)
    compiled = deeploy.compile(path, stream="x0.1=4", stream_mode="window", certify=False)
    recording = np.random.default_rng(0).normal(size=(1, 2 * WINDOW, WIDTH)).astype(np.float32)
    calls = compiled.interpret_sequence([[recording[:, at : at + 4]] for at in range(0, 2 * WINDOW, 4)])
    for call in range(WINDOW // 4 - 1, len(calls)):
        assert np.allclose(calls[call][0], _run(path, recording[:, 4 * call + 4 - WINDOW : 4 * call + 4]), atol=2e-5)


def test_hops_have_whole_blocks(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"in blocks of 4: a hop of 6 columns .*\nGive a hop that is a multiple of 4"):
        deeploy.compile(save(tmp_path / "m.onnx", MASKS["chunks"], "add"), stream="x0.1=6")


def show_columns_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys from before the recording are not hidden."""
    mask = stream.Streaming._mask_keys
    monkeypatch.setattr(stream.Streaming, "_mask_keys", lambda self, *given: mask(self, *given) and None)


def come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys from before the recording are hidden for one call more."""
    mask = stream.Streaming._add_mask
    monkeypatch.setattr(stream.Streaming, "_add_mask", lambda self, name, shape, since: mask(self, name, shape, since + (since > 0)))


@pytest.mark.parametrize("change", [show_columns_before, come_late])
def test_mutants_are_found(tmp_path: Path, change, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    path = quantise_network(save(tmp_path / "m.onnx", MASKS["band"], "add"), tmp_path / "q.onnx")
    change(monkeypatch)
    with pytest.raises(AssertionError):
        compare_calls(deeploy.compile(path, stream="x0.1=2", certify=False), 20, False)
