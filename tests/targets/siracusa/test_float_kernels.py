"""Kernels of the cluster on single floats, on the host: C against the NumPy references, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from deeploy.operators.elementwise import FUNCTIONS, is_exact
from tests.operators import harness
from tests.operators.kernels import draw, staged
from tests.targets.siracusa.test_kernels import kernel, pulp_sources

__all__ = ["pulp_sources"]
PAIRS = [((3, 5), (3, 5)), ((2, 3, 9), (1,)), ((1,), (17,)), ((4, 1, 6), (3, 1)), ((2, 1, 3, 8), (5, 1, 8)), ((7, 1), (1, 13))]


@pytest.mark.parametrize("stages", [(), ("clamp",)])
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_pairs_of_floats(name: str, stages: tuple[str, ...], a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Four together, what is left of a row, and operands that are one for a row or lie apart."""
    rng = np.random.default_rng(len(a) + len(b))
    given = {"a": draw(rng, "f32", *a), "b": draw(rng, "f32", *b)}
    attrs = {"a_zero_point": 0, "b_zero_point": 0} if name == "mul" else {}
    form = staged(attrs, *stages, low=-0.5, high=0.7) if stages else attrs
    harness.check(kernel(f"pulp_{name}_floats"), given, "f32", form, strided=len(a) > 2, rtol=0, atol=0)


@pytest.mark.parametrize("name", sorted(filter(is_exact, FUNCTIONS)))
def test_functions_of_floats(name: str) -> None:
    x = np.random.default_rng(len(name)).normal(0, 3, (4, 5, 33)).astype(np.float32)
    attrs = {"function": name, "alpha": 0.3, "beta": 0.5}
    with np.errstate(all="ignore"):
        harness.check(kernel("pulp_unary_floats"), {"x": x}, "f32", attrs, strided=True, rtol=0, atol=0)
