"""Outputs against golden ones: exactly, in quantisation steps, as probabilities, or within a float tolerance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deeploy.documents import Document

EQUAL_SHARE = 0.99  # of the elements of a quantised output that must be equal
FLOAT_TOLERANCE = 1e-4
SOFTMAX_TOLERANCE = 10 / 255
EXPLAINED = "explained: see the note"


@dataclass(frozen=True)
class Comparison:
    """How one output compares.

    Attributes:
        worst: largest difference, in output steps (or absolute, where there are none).
        relative: of floats, the largest relative difference of the elements that differ by more than the absolute bound.
        rule: the bound that was met, or those that were not.
    """

    name: str
    passed: bool
    equal: float
    worst: float
    unit: str
    rule: str
    relative: float = 0.0

    def __str__(self) -> str:
        verdict = "ok" if self.passed else "DIFFERS"
        worst = f"{self.worst:.6g} {self.unit}" + (f", {self.relative:.6g} relative" if self.relative else "")
        return f"{self.name}: {verdict}, {self.equal:.2%} equal, worst difference {worst} ({self.rule})"


def compare_output(port: Document, got: np.ndarray, expected: np.ndarray, tolerance: float | None = None) -> Comparison:
    """Compare one output, all samples stacked, by the rule of its port or by an absolute ``tolerance`` on its values."""
    name = str(port["name"])
    if got.shape != expected.shape:
        return Comparison(name, False, 0.0, float("inf"), "", f"shape {list(got.shape)} instead of {list(expected.shape)}")
    difference = absolute_differences(got, expected)
    worst = float(difference.max(initial=0.0))
    if tolerance is not None:
        equal = float(np.mean(difference == 0)) if difference.size else 1.0
        return Comparison(name, worst <= tolerance, equal, worst, "absolute", f"within {tolerance:g}")
    rule = port["equality"]
    if rule == "softmax":
        return _compare_probabilities(name, port, got, expected)
    if rule == "float":
        equal = float(np.mean(difference == 0)) if difference.size else 1.0
        large = difference > FLOAT_TOLERANCE
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = difference[large] / np.abs(expected[large].astype(np.float64))
        relative = float(np.where(np.isnan(shares), np.inf, shares).max(initial=0.0))
        passed = relative_excess(got, expected).max(initial=0.0) <= 1
        met = "absolute or relative" if not passed else "relative" if large.any() else "absolute"
        return Comparison(name, bool(passed), equal, worst, "absolute", f"within {FLOAT_TOLERANCE:g} {met}", relative)
    step = float(port["step"]) if got.dtype.kind == "f" else 1.0
    zero_point = 0 if got.dtype.kind == "f" else int(port.get("zero_point", 0))
    steps = np.rint(difference / step) if rule == "steps" else difference
    equal = float(np.mean(steps == 0)) if steps.size else 1.0
    worst = float(steps.max(initial=0.0))
    if rule == "exact":
        return Comparison(name, worst == 0, equal, worst, "absolute" if got.dtype.kind == "f" else "steps", "every bit")
    passed = worst <= 1 and equal >= EQUAL_SHARE
    if not passed and is_fine(got, expected, zero_point):
        return Comparison(name, True, equal, worst, "steps", f"within {FLOAT_TOLERANCE:g} of the largest")
    return Comparison(name, passed, equal, worst, "steps", "one step, 99 % equal")


def is_fine(got: np.ndarray, expected: np.ndarray, zero_point: int = 0) -> bool:
    """Whether steps are so small that several are within 1e-4 of the largest magnitude, as those of 16 bits are; not of indices."""
    if got.dtype.kind != "f" and got.dtype.itemsize != 2:
        return False
    largest = float(np.abs(expected.astype(np.float64) - zero_point).max(initial=0.0))
    return float(absolute_differences(got, expected).max(initial=0.0)) <= FLOAT_TOLERANCE * largest


def allowed_difference(expected: np.ndarray) -> np.ndarray:
    """How far the floats of a layer alone may be from these: 1e-4, of the element or of the largest magnitude where that is below 1."""
    magnitudes = np.abs(expected.astype(np.float64))
    largest = float(magnitudes[np.isfinite(magnitudes)].max(initial=0.0))
    return np.asarray(FLOAT_TOLERANCE * np.maximum(magnitudes, min(1.0, largest)))


def relative_excess(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Differences of floats as multiples of what is allowed: 1e-4, absolute or relative to what is expected, whichever is larger."""
    difference = absolute_differences(got, expected)
    with np.errstate(invalid="ignore"):
        excess_steps = difference / (FLOAT_TOLERANCE * np.maximum(1.0, np.abs(expected.astype(np.float64))))
    return np.where(difference == 0, 0.0, np.where(np.isnan(excess_steps), np.inf, excess_steps))


def absolute_differences(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Absolute differences in float64; equal infinities and NaNs in both count as equal."""
    a, b = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def _compare_probabilities(name: str, port: Document, got: np.ndarray, expected: np.ndarray) -> Comparison:
    scale = 1.0 if got.dtype.kind == "f" else float(port["scale"])
    zero = 0 if got.dtype.kind == "f" else int(port["zero_point"])
    p, q = ((a.astype(np.float64) - zero) * scale for a in (got, expected))
    difference = np.abs(p - q)
    worst = float(difference.max(initial=0.0))
    best = np.take_along_axis(q, p.argmax(-1)[..., None], -1)[..., 0] if p.size else q
    half = scale / 2 if got.dtype.kind != "f" else 1e-6
    # Either side may tie: ours must hold its maximum at one of the reference's maxima, or the reference's at one of ours.
    other = np.take_along_axis(p, q.argmax(-1)[..., None], -1)[..., 0] if p.size else p
    tied = (best >= q.max(-1) - half) | (other >= p.max(-1) - half) if p.size else np.ones(1, bool)
    equal = float(np.mean(difference <= half)) if difference.size else 1.0
    passed = worst <= SOFTMAX_TOLERANCE and bool(np.all(tied))
    return Comparison(name, passed, equal, worst * 255, "steps of 1/255", "10 steps, same maximum")
