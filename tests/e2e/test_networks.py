"""Real networks: C against golden outputs, and memory against the best known figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.driver.verify import verify_compiled
from tests.models import save_graph

SHARED = Path(__file__).parents[3] / "shared" / "models"
NETWORKS = ["CNN_Linear2", "miniMobileNet", "MLPerf/ImageClassification", "MLPerf/KeywordSpotting", "CCT/Int/ICCT"]
NETWORKS += [f"microLlama/INT8/microLlama{kind}" for kind in ("1", "64", "16_parallel")]
INTEGER = (
    "Add/Large Add/Regular_RQ Attention Concat Conv/DW_1D Conv/DW_2D_RQ Conv/DW_3x3_RQ Conv/PW_2D_RQ/Regular_RQ"
    " Conv/Regular_1D_RQ Conv/Regular_2D_RQ Conv/Regular_3x3 Conv/StriddedPadded_2D_RQ GEMM/Regular"
    " GEMM/Regular_RQPerColumn GEMM/TransB_RQ Hardswish/Regular_RQ Identity/InputIdentity MatMul/Regular MatMul/Regular_RQ"
    " MaxPool/Regular_2D Pad/Regular_2D RMSNorm ReduceMean ReduceSum Slice Softmax/Regular"
    " Sub TrueIntegerDiv iNoNorm"
)
FLOAT = [f"Kernels/FP32/{n}" for n in ("Conv/Regular_2D_Bias", "GEMM/Regular", "Softmax/Regular", "GELU", "LayerNorm")]
FLOAT += ["Models/CCT/FP32/CCT_1_16_16_8"]
MIXED = ["Kernels/Mixed/Quant", "Kernels/Mixed/Dequant", "Models/Transformer_DeepQuant"]
PEAKS = {
    "ad_fp32": 1024,
    "kws_fp32": 64_000,
    "vww_fp32": 221_184,
    "ic_fp32": 196_608,
    "kws_int8_qdq_pc": 16_000,
    "kws_int8_qdq_pt": 16_000,
    "kws_int8_qop_pt": 16_000,
    "kws_int8_ref": 16_000,
    "ic_int8_qdq_pc": 49_152,
    "ic_int8_qdq_pt": 49_152,
    "ic_int8_qop_pc": 49_152,
    "ad_int8_qdq_pc": 1024,
}

needs_models = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not here")


def check(folder: Path, integer: bool, every_bit: bool) -> deeploy.Compiled:
    compiled = deeploy.compile(folder / "network.onnx", inputs=folder / "inputs.npz", dialect="integer" if integer else None)
    verdict = verify_compiled(compiled, folder / "network.onnx", folder / "inputs.npz", folder / "outputs.npz")
    assert {against for against, _ in verdict.comparisons} >= {"interpreter", "outputs.npz"}
    for against, comparison in verdict.comparisons:
        assert comparison.passed, f"{against}: {comparison}"
        assert not every_bit or comparison.rule == "every bit"
    for use in compiled.memory.values():
        assert use.peak == use.lower_bound
    return compiled


@pytest.mark.share(0.34)
@needs_models
@pytest.mark.parametrize("name", [f"Models/{n}" for n in NETWORKS] + [f"Kernels/Integer/{n}" for n in INTEGER.split()])
def test_dialect_networks_are_exact(name: str) -> None:
    check(SHARED / "dialect" / name, integer=True, every_bit=True)


@needs_models
@pytest.mark.parametrize("name", FLOAT + MIXED)
def test_float_and_mixed_networks(name: str) -> None:
    check(SHARED / "dialect" / name, integer=False, every_bit=False)


@pytest.mark.share(0.34)
@needs_models
@pytest.mark.parametrize("name", sorted(PEAKS))
def test_mlperf_tiny(name: str) -> None:
    compiled = check(SHARED / "mlperf_tiny" / name, integer=False, every_bit=False)
    assert compiled.memory["arena"].peak <= PEAKS[name]
    assert not [call.name for call in compiled.network.program.calls if call.node.op in ("Copy", "Transpose")]


HOSTILE = [
    'quote " and \\ backslash',
    "new\nline */ /* comment",
    "${1/0} <% raise %> ## %x",
    "../../etc/passwd",
    "while",
    "x" * 10_000,
    "x" * 10_000 + "y",
    "a.b",
    "a/b",
    "A b",
    "名前",
    "",
]


def test_hostile_names_reach_no_code(tmp_path: Path) -> None:
    """A chain of nodes whose names and tensors are hostile compiles, runs under sanitizers, and computes what it should."""
    names = [f"{name}!" for name in HOSTILE]
    tensors = ['in ${x} " \n', *names]
    nodes = [helper.make_node("Neg" if i % 2 else "Abs", [tensors[i]], [tensors[i + 1]], HOSTILE[i]) for i in range(len(HOSTILE))]
    ends = [helper.make_tensor_value_info(tensors[i], TensorProto.FLOAT, [3]) for i in (0, -1)]
    graph = helper.make_graph(nodes, 'graph "*/ ${name}', ends[:1], ends[1:])
    path = tmp_path / "$(model) ${x}.onnx"
    save_graph(graph, path)
    compiled = deeploy.compile(path)
    x = np.array([-1.5, 0.0, 2.0], np.float32)
    assert np.array_equal(compiled.run([x], sanitize=True)[0], compiled.interpret([x])[0])
    assert np.array_equal(compiled.interpret([x])[0], -np.abs(x))
    assert all(".." not in name and name.isascii() and len(name) < 120 for name in compiled.files())


def test_command_line_round_trip(tmp_path: Path) -> None:
    """compile, run, report and verify: statuses, JSON, saved outputs, stacked samples."""
    import json

    from tests.command import deeploy_cli
    from tests.e2e.test_bad_input import node, save

    model = save(tmp_path / "model.onnx", [node("Neg", "x", "y")])
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    np.savez(tmp_path / "in.npz", x=x, surplus=x)
    np.savez(tmp_path / "good.npz", y=-x)
    np.savez(tmp_path / "bad.npz", y=-x + 1)
    out = tmp_path / "out"
    done = deeploy_cli("compile", model, "--target", "generic", "-o", out, "--json")
    manifest = json.loads(done.stdout)
    assert done.returncode == 0 and {"model", "target", "memory", "calls", "bytes", "cycles", "energy_uj"} <= manifest.keys()
    run = ["run", out, "--inputs", tmp_path / "in.npz"]
    good = deeploy_cli(*run, "--expect", tmp_path / "good.npz", "--save", tmp_path / "got.npz", "--sanitize")
    assert good.returncode == 0 and "2 samples" in good.stdout
    assert np.array_equal(np.load(tmp_path / "got.npz")["y"], -x)
    assert deeploy_cli(*run, "--expect", tmp_path / "bad.npz").returncode == 1
    assert deeploy_cli(*run, "--expect", tmp_path / "bad.npz", "--tolerance", "1.5").returncode == 0
    verified = deeploy_cli("verify", model, "-t", "generic", "--inputs", tmp_path / "in.npz", "--json", "--layers")
    assert verified.returncode == 0 and {c["against"] for c in json.loads(verified.stdout)["comparisons"]} >= {"interpreter"}
    told = json.loads(deeploy_cli("report", out, "--json").stdout)
    assert [found["kind"] for found in told.pop("advice")] == ["quantise"] and told == manifest
    assert "unary" in deeploy_cli("report", out).stdout
    assert json.loads(deeploy_cli("inspect", model, "--json").stdout)["operators"] == {"Neg": 1}
    assert "generic" in deeploy_cli("targets").stdout
