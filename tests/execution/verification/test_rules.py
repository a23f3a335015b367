"""Rules by which outputs are compared: exactly, in steps, as probabilities, as floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deeploy.execution.verification.compare import compare_output

NAN, INF = float("nan"), float("inf")


def port(equality: str, **more: Any) -> dict[str, Any]:
    return {"name": "y", "equality": equality, "step": 0.5, "scale": 1 / 255, "zero_point": -128, **more}


def stepped(ones: int, twos: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A thousand integers, and the same with so many of them a step, or two, away."""
    expected = np.arange(1000, dtype=np.int32)
    moved = np.zeros(1000, np.int32)
    moved[:ones], moved[ones : ones + twos] = 1, -2
    return expected + moved, expected


@pytest.mark.parametrize(("ones", "twos", "passed"), [(0, 0, True), (10, 0, True), (11, 0, False), (0, 1, False), (1, 1, False)])
def test_quantised_outputs_differ_by_one_step_in_one_element_of_a_hundred(ones: int, twos: int, passed: bool) -> None:
    got, expected = stepped(ones, twos)
    found = compare_output(port("steps"), got, expected)
    assert found.passed is passed
    assert found.equal == 1 - (ones + twos) / 1000
    assert found.worst == (2 if twos else 1 if ones else 0)
    floats = compare_output(port("steps"), got.astype(np.float32) / 2, expected.astype(np.float32) / 2)
    assert (floats.passed, floats.worst) == (passed, found.worst), "floats count in steps of their scale"


def test_steps_of_16_bits_are_compared_as_floats_are() -> None:
    """3 steps of 32768 are within 1e-4; 3 of 127 are not, and no index is near another one."""
    wide = np.linspace(-32768, 32764, 1000).astype(np.int16)
    assert compare_output(port("steps", zero_point=0), wide + np.int16(3), wide).passed
    assert not compare_output(port("steps", zero_point=0), wide[400:600] + np.int16(3), wide[400:600]).passed, "these are smaller"
    assert compare_output(port("steps"), (wide + 3.0).astype(np.float32) / 2, wide.astype(np.float32) / 2).passed
    assert not compare_output(port("steps"), (wide // 256 + 3.0).astype(np.float32) / 2, (wide // 256).astype(np.float32) / 2).passed
    assert not compare_output(port("steps", zero_point=0), wide.astype(np.int64) + 3, wide.astype(np.int64)).passed


@pytest.mark.parametrize("ones", [0, 1])
def test_every_bit(ones: int) -> None:
    assert compare_output(port("exact"), *stepped(ones)).passed is (ones == 0)


@pytest.mark.parametrize(
    ("got", "expected", "passed"),
    [
        ([1.0, NAN, INF, -INF], [1.0, NAN, INF, -INF], True),
        ([NAN], [1.0], False),
        ([1.0], [NAN], False),
        ([INF], [-INF], False),
        ([INF], [1.0], False),
        ([0.0], [-0.0], True),
        ([0.5], [0.51], False),
    ],
)
def test_what_is_no_number_equals_itself_only(got: list[float], expected: list[float], passed: bool) -> None:
    a, b = np.array(got, np.float32), np.array(expected, np.float32)
    assert compare_output(port("float"), a, b).passed is passed
    assert compare_output(port("exact"), a, b).passed is passed


@pytest.mark.parametrize(
    ("got", "expected", "passed"),
    [
        ([0.50, 0.30, 0.20], [0.52, 0.29, 0.19], True),
        ([0.50, 0.30, 0.20], [0.56, 0.27, 0.17], False),  # 15 of 255
        ([0.40, 0.42, 0.18], [0.42, 0.40, 0.18], False),  # another maximum
        ([0.41, 0.41, 0.18], [0.42, 0.40, 0.18], True),  # a tie
        ([0.42, 0.40, 0.18], [0.41, 0.41, 0.18], True),
    ],
)
def test_probabilities_are_near_and_have_the_same_maximum(got: list[float], expected: list[float], passed: bool) -> None:
    a, b = np.array([got], np.float32), np.array([expected], np.float32)
    assert compare_output(port("softmax"), a, b).passed is passed
    eight = [(np.rint(array * 255) - 128).astype(np.int8) for array in (a, b)]
    assert compare_output(port("softmax"), *eight).passed is passed


def test_quantised_probabilities_tie_where_they_are_equal_only() -> None:
    """A step of 1/255 apart is another maximum, and no equal element; where either side has a tie, its maximum is the other's."""
    one, other, tied = (np.array([row], np.int8) for row in ([-27, -28, -74], [-28, -27, -74], [-28, -28, -74]))
    found = compare_output(port("softmax"), one, other)
    assert not found.passed and found.equal == pytest.approx(1 / 3) and found.worst == pytest.approx(1)
    assert compare_output(port("softmax"), one, tied).passed and compare_output(port("softmax"), tied, other).passed


def test_a_tolerance_replaces_the_rule() -> None:
    got, expected = stepped(500)
    assert compare_output(port("exact"), got, expected, 1.0).passed
    assert not compare_output(port("steps"), got, expected, 0.5).passed
    assert not compare_output(port("float"), np.array([NAN]), np.array([1.0]), 10.0).passed


def test_shapes_are_compared_first() -> None:
    found = compare_output(port("float"), np.zeros((2, 3)), np.zeros((3, 2)), 1e9)
    assert not found.passed and found.rule == "shape [2, 3] instead of [3, 2]"
