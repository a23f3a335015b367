"""Every construct of ``nets``, in floats and quantised by onnxruntime, against onnxruntime."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import deeploy
from deeploy.execution.verification.compare import compare_output
from tests.frontend.lower.nets import CONSTRUCTS
from tests.frontend.lower.nets_transformer import OPSETS
from tests.models import OPSET, Net

FORMS: dict[str, dict[str, Any] | None] = {
    "float": None,
    "qdq int8": {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QInt8, "per_channel": True},
    "qdq uint8": {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "per_channel": False},
    "qoperator": {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QUInt8, "per_channel": False},
}
# Inference and execution disagree in onnxruntime about windows that begin in the padding at the end.
AMBIGUOUS = {"MaxPool ceil pads", "AveragePool ceil pads"}
# onnxruntime's integer kernel counts other elements than its float operator does; means of few taps that lie half-way
# between two steps round as the noise of its float sums decides.
INEXACT = {
    ("AveragePool include ceil", "qoperator"),
    ("AveragePool include ceil even", "qoperator"),
    ("AveragePool same", "qdq int8"),
    ("AveragePool same", "qdq uint8"),
    ("resize linear", "qdq int8"),  # weights of a half and quarters: every tenth value lies half-way
    ("resize linear", "qdq uint8"),
    ("resize linear", "qoperator"),  # thirds, cut off
}
# What stays in floats between a Dequantize and a Quantize: right, and slower.
FLOATS = {
    "group norm",
    "instance norm",
    "no NaN",
    "mean variance norm",
    *(f"reduce {kind}" for kind in ("L1", "L2", "LogSum", "LogSumExp", "SumSquare")),
    "gemm column bias",
    "gemm matrix bias",
    "gemm three variables",
    "log softmax",
    "lp normalization",
    "resize cubic",
    "resize linear",
    "resize linear aligned",
    "resize linear sizes",
    "log softmax axis 1",
    "matmul constant left",
    "mean of three",
    "padding mask",
    "pow of two tensors",
    "prelu",
    "sum of three",
}


class _Samples(CalibrationDataReader):
    def __init__(self, samples: list[dict[str, np.ndarray]]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._samples, None)


def _sample(net: Net, random: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in net.inputs}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def _expected(path: Path, sample: dict[str, np.ndarray], optimised: bool = True) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return list(onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, sample))


def _differences(compiled: deeploy.Compiled, results: list[np.ndarray], expected: list[np.ndarray]) -> list[str]:
    pairs = zip(compiled.network.outputs, results, expected, strict=True)
    outcomes = [compare_output({**asdict(port), "equality": port.equality.value}, got, want) for port, got, want in pairs]
    return [str(outcome) for outcome in outcomes if not outcome.passed]


def _inside(program: Any) -> list[str]:
    """Operators in floats, on the way from a Dequantize to a Quantize."""
    behind: set[str] = set()
    found: dict[str, str] = {}
    for call in program.calls:
        node = call.node
        if node.op == "Dequantize" or any(t is not None and t.name in behind for t in node.inputs):
            if node.op == "Quantize":
                found |= {t.name: "" for t in node.inputs if t is not None}
            else:
                behind |= {t.name for t in node.outputs}
    result = []
    for call in reversed(program.calls):
        node = call.node
        if any(t.name in found and t.name in behind for t in node.outputs) and node.op != "Dequantize":
            result.append(node.op)
            found |= {t.name: "" for t in node.inputs if t is not None and t.data is None}
    return [op for op in result if op not in ("Softmax", "Copy")]


def write(name: str, form: str, folder: Path, random: np.random.Generator) -> tuple[Net, Path]:
    """A construct, and its model in one of ``FORMS`` as a file in ``folder``.

    Raises:
        ValueError, IndexError, RuntimeError: onnxruntime cannot quantise it.
    """
    net = Net()
    result = CONSTRUCTS[name](net)
    model = net.model([result] if isinstance(result, str) else result, OPSETS.get(name, OPSET))
    path, options = folder / "float.onnx", FORMS[form]
    onnx.save(model, path)
    if options is None:
        return net, path
    if options["quant_format"] == QuantFormat.QDQ:  # every operator, not only those that onnxruntime has integer kernels for
        options = {**options, "op_types_to_quantize": sorted({node.op_type for node in model.graph.node})}
    quantised = folder / "quantised.onnx"
    quantize_static(path, quantised, _Samples([_sample(net, random) for _ in range(4)]), **options)
    return net, quantised


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", sorted(set(CONSTRUCTS) - AMBIGUOUS))
def test_construct(name: str, form: str, tmp_path: Path) -> None:
    if (name, form) in INEXACT:
        pytest.skip("onnxruntime rounds otherwise")
    random = np.random.default_rng(1)
    try:
        net, path = write(name, form, tmp_path, random)
    except (ValueError, IndexError, RuntimeError) as error:
        pytest.skip(f"onnxruntime cannot quantise it: {error}")
    sample = _sample(net, random)
    try:
        expected = _expected(path, sample)
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
        pytest.skip(f"onnxruntime cannot run what it quantised: {error}")
    compiled = deeploy.compile(path)
    results = compiled.interpret(sample)
    failures = _differences(compiled, results, expected)
    if failures:  # onnxruntime differs from itself with its optimisation on and off
        failures = _differences(compiled, results, _expected(path, sample, optimised=False))
    assert failures == []
    options = FORMS[form]
    if options is not None and options["quant_format"] == QuantFormat.QDQ:
        assert _inside(compiled.network.program) == [] or name in FLOATS
