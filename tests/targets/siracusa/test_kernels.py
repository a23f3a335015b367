"""The cluster's kernels on the host, with the portable body of xpulp.h: C against the NumPy references, over shapes and types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deeploy.target import Kernel, load
from tests.operators import harness
from tests.operators.kernels import draw, requantisation, staged

PULP = harness.KERNELS.parent / "pulp"


@pytest.fixture(autouse=True)
def pulp_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the harness find the sources, and give calls the one core that they run on."""
    monkeypatch.setattr(harness, "WARNINGS", (*harness.WARNINGS, f"-I{PULP}", "-Drt_core()=0"))


def kernel(name: str) -> Kernel:
    return next(k for k in load("siracusa").kernels if k.name == name)


# rows, depth, columns
PRODUCTS = [(5, 7, 9), (1, 30, 140), (4, 6, 3), (6, 17, 1), (2, 1, 2), (3, 3, 5), (7, 64, 13), (16, 130, 11), (1, 1, 1)]
STAGES: dict[str, tuple[str, ...]] = {"plain": (), "clamped": ("clamp",), "biased": ("bias",), "requantised": ("bias", "requantise")}


def epilogue(rng: np.random.Generator, stages: tuple[str, ...], channels: int, size: int, y: str, wide: bool) -> tuple[Any, Any]:
    """Operands and attributes of the stages."""
    given: dict[str, np.ndarray] = {}
    attrs: dict[str, Any] = {}
    if "bias" in stages:
        given["bias"] = rng.integers(-9000, 9000, channels).astype(np.int32)
    if "requantise" in stages:
        operands, attrs = requantisation(rng, channels, y, size, wide)
        operands["mul"] = np.maximum(np.abs(operands["mul"]), 1)
        given |= operands
    elif "clamp" in stages:
        attrs = {"low": -4000, "high": 3000}
    return given, staged({}, *stages, **attrs)


@pytest.mark.parametrize("types", [("s8", "s8"), ("u8", "u8")])
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("shape", PRODUCTS)
def test_matmul(shape: tuple[int, int, int], stages: str, types: tuple[str, str]) -> None:
    rows, depth, columns = shape
    rng = np.random.default_rng(rows * 1000 + depth)
    given, attrs = epilogue(rng, STAGES[stages], columns, 4000 * depth, types[1], False)
    given |= {"a": draw(rng, types[0], rows, depth), "b": draw(rng, "s8", depth, columns)}
    zero = {"a_zero_point": 0, "b_zero_point": 0, "trans_a": False, "trans_b": False}
    y = types[1] if "requantise" in STAGES[stages] else "s32"
    harness.check(kernel("pulp_matmul"), given, y, attrs | zero, strided=True)
