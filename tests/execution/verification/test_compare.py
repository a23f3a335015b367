"""The rule for floats: 1e-4, absolute or relative to what is expected, whichever is larger; and which of the two was met."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.driver.verify import verify_compiled
from deeploy.execution.verification.compare import compare_output, relative_excess
from tests.command import deeploy_cli
from tests.models import save_graph

PORT = {"name": "y", "equality": "float", "step": 1.0}


def _compared(got: list[float], expected: list[float]) -> tuple[bool, str, float]:
    found = compare_output(PORT, np.array(got, np.float32), np.array(expected, np.float32))
    return found.passed, found.rule, found.relative


def test_each_output_says_which_bound_it_met() -> None:
    assert _compared([0.5, 1.00009], [0.5, 1.0])[:2] == (True, "within 0.0001 absolute")
    passed, rule, relative = _compared([316.0002, 0.00005], [316.0, 0.0])
    assert passed and rule == "within 0.0001 relative" and 5e-7 < relative < 7e-7
    assert _compared([0.0003, 316.0], [0.0, 316.0])[:2] == (False, "within 0.0001 absolute or relative")
    passed, rule, relative = _compared([50010.0], [50000.0])
    assert (passed, rule) == (False, "within 0.0001 absolute or relative") and math.isclose(relative, 2e-4, rel_tol=1e-3)


def test_the_bound_is_the_larger_one_and_never_the_sum() -> None:
    expected = np.array([0.0, 0.5, 1.0, 2.0, -1000.0])
    bound = np.array([1e-4, 1e-4, 1e-4, 2e-4, 0.1])
    assert np.allclose(relative_excess(expected + bound, expected), 1, rtol=1e-9)
    assert (relative_excess(expected + 1.001 * bound, expected) > 1).all()


@pytest.mark.parametrize(
    ("got", "expected", "passed"),
    [(math.inf, math.inf, True), (math.nan, math.nan, True), (math.inf, 1.0, False), (1.0, math.inf, False), (math.nan, 1.0, False)],
)
def test_infinities_and_nans_are_equal_to_themselves_alone(got: float, expected: float, passed: bool) -> None:
    assert _compared([got], [expected])[0] is passed
    assert (relative_excess(np.array([got]), np.array([expected]))[0] <= 1) is np.bool_(passed)


@pytest.mark.parametrize(("wrong", "by", "passed"), [(2, 1, True), (3, 1, False), (200, 1, False), (1, 2, False)])
@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_a_hundredth_of_a_quantised_output_may_be_one_step_off(wrong: int, by: int, passed: bool, dtype: type) -> None:
    step = 0.5 if dtype is np.float32 else 1
    expected = (np.arange(200) % 50 * step).astype(dtype)
    got = expected.copy()
    got[:wrong] += dtype(by * step)
    found = compare_output({"name": "y", "equality": "steps", "step": step}, got, expected)
    assert (found.passed, found.worst, found.equal) == (passed, by, 1 - wrong / 200)


def _model(path: Path, op: str) -> Path:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", ends[:1], ends[1:])
    return save_graph(graph, path)


def test_large_values_are_compared_by_what_they_are(tmp_path: Path) -> None:
    """Of an exponential of about 5e4, the last bits are more than 1e-4; run, verify, and a golden file say so alike."""
    model, out = _model(tmp_path / "m.onnx", "Exp"), tmp_path / "out"
    x = np.array([10.8, 10.5, 0.1, -3.0], np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    exact = np.exp(x.astype(np.float64))
    for name, factor in (("near", 1 + 5e-6), ("far", 1 + 3e-4)):
        np.savez(tmp_path / f"{name}.npz", y=(exact * factor).astype(np.float32))
    assert deeploy_cli("compile", model, "-o", out).returncode == 0
    near = deeploy_cli("run", out, "--inputs", tmp_path / "x.npz", "--expect", tmp_path / "near.npz")
    far = deeploy_cli("run", out, "--inputs", tmp_path / "x.npz", "--expect", tmp_path / "far.npz")
    assert near.returncode == 0 and "relative (within 0.0001 relative)" in near.stdout
    assert far.returncode == 1 and "DIFFERS" in far.stdout and "(within 0.0001 absolute or relative)" in far.stdout
    verdict = verify_compiled(deeploy.compile(model), model, tmp_path / "x.npz", tmp_path / "near.npz")
    assert verdict.passed and [c.rule for _, c in verdict.comparisons][-1] == "within 0.0001 relative"


@pytest.mark.parametrize("change", [lambda y: y * 1.0003, lambda y: y + 5], ids=["relative", "absolute"])
def test_an_own_tolerance_stays_absolute(tmp_path: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    got = np.array([50000.0], np.float32)
    found = compare_output(PORT, got, change(got), tolerance=1.0)
    assert not found.passed and found.rule == "within 1"
