"""Networks of Keras as tf2onnx and TensorFlow Lite's converter write them: each compiles, and the C computes what onnxruntime does.

Everything is made here; nothing is downloaded. All cases skip where TensorFlow or tf2onnx is missing (the extra ``tensorflow``).
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import deeploy
from deeploy.driver.verify import verify_compiled
from tests.e2e.keras_networks import NETWORKS, QUANTISED

MISSING = [name for name in ("tensorflow", "tf2onnx") if importlib.util.find_spec(name) is None]
ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.exporters,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed (pip install '.[tensorflow]')"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All networks, converted."""
    made = tmp_path_factory.mktemp("keras")
    command = [sys.executable, "-m", "tests.e2e.keras_networks", str(made)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return made


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((name, "generic") for name in (*(name for name in NETWORKS if name not in QUANTISED), *(f"{name}_int8" for name in QUANTISED))),
        *((name, "siracusa") for name in ("mobile", "mobile_int8")),
    ],
)
def test_networks_of_keras(name: str, target: str, folder: Path, tmp_path: Path) -> None:
    path, inputs = folder / f"{name}.onnx", tmp_path / "inputs.npz"
    graph = onnx.load(path).graph
    shape = [dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim]
    np.savez(inputs, np.random.default_rng(1).normal(size=(4, *shape)).astype(np.float32))
    assert ({node.op_type for node in graph.node} >= {"QuantizeLinear", "DequantizeLinear"}) == name.endswith("_int8")
    compiled = deeploy.compile(path, target, inputs=inputs)
    verdict = verify_compiled(compiled, path, inputs)
    assert verdict.passed, [f"{against}: {comparison}" for against, comparison in verdict.comparisons]
    assert [against for against, _ in verdict.comparisons] == ["interpreter", "onnxruntime"], verdict.notes
