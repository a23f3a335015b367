"""Transposed convolutions as convolutions of all phases equal the operator of the integer form, for any window."""

from __future__ import annotations

import random

import numpy as np
import pytest

from deeploy.frontend.lower.transposed import PhaseAxis
from deeploy.ir.rewriting import Unfit


def direct(x: np.ndarray, w: np.ndarray, stride: int, dilation: int, pad: int, out: int) -> np.ndarray:
    """Every input adds its products to the outputs under its taps (ONNX, operator ConvTranspose)."""
    full = np.zeros((len(x) - 1) * stride + (len(w) - 1) * dilation + 1 + stride, np.int64)
    for place, value in enumerate(x):
        full[place * stride : place * stride + (len(w) - 1) * dilation + 1 : dilation] += value * w
    return full[pad : pad + out]


def by_phases(axis: PhaseAxis, x: np.ndarray, w: np.ndarray, dilation: int, out: int) -> np.ndarray:
    """A convolution with the taps of every phase, whose outputs are interleaved and cut."""
    padded = np.pad(x, (axis.before, axis.after))
    taps = np.pad(w, (0, axis.phases * axis.taps - len(w))).reshape(axis.taps, axis.phases)[::-1]
    found = [sum(padded[q + u * dilation] * taps[u] for u in range(axis.taps)) for q in range(axis.outputs)]
    return np.ravel(found)[axis.cut : axis.cut + out]


def test_outputs_of_all_phases_are_those_of_the_operator() -> None:
    rng, numbers, tried = random.Random(0), np.random.default_rng(0), 0
    for _ in range(300):
        stride, dilation, taps, size = rng.randint(1, 4), rng.choice((1, 1, 2, 3)), rng.randint(1, 7), rng.randint(1, 6)
        reach = (taps - 1) * dilation
        pads, padding = (rng.randint(0, reach), rng.randint(0, reach)), rng.randrange(stride)
        out = (size - 1) * stride + reach + 1 + padding - sum(pads)
        if out < 1 or min(stride, dilation) > 1:
            continue
        x, w = numbers.integers(-9, 9, size), numbers.integers(-9, 9, taps)
        axis = PhaseAxis.of(size, out, taps, stride, dilation, pads[0])
        assert min(axis.before, axis.after, axis.cut) >= 0
        np.testing.assert_array_equal(by_phases(axis, x, w, dilation, out), direct(x, w, stride, dilation, pads[0], out))
        tried += 1
    assert tried > 100


def test_dilated_taps_with_steps_between_inputs_have_no_phases() -> None:
    with pytest.raises(Unfit):
        PhaseAxis.of(4, 9, 3, 2, 2, 0)
