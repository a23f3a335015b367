"""More memory never makes a plan impossible, and the smallest capacity that a message states is the smallest."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest

import deeploy
from deeploy.errors import FitError
from deeploy.planning.planner.machine import Options
from tests.execution.simulation import nets
from tests.planning.test_managed import products, residual
from tests.planning.test_misfit import replan, stated

NETWORKS = {"products": products, "residual": residual, "filters": nets.filters, "perceptron": nets.perceptron}


def fits(whole: deeploy.Compiled, l1: int, l2: int) -> bool:
    try:
        replan(whole, l1, l2)
    except FitError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "little", "plenty"),
    [
        ("products", (400, 200), (700, 200)),
        ("residual", (740, 740), (1400, 740)),
        ("filters", (1400, 1200), (12_000, 1200)),
        ("perceptron", (700, 800), (6000, 800)),
    ],
)
def test_more_memory_fits_what_less_did(name: str, little: tuple[int, int], plenty: tuple[int, int], tmp_path: Path) -> None:
    """Cases in which the fastest candidates of much L1 need more L2 than there is, with kernels that run in so much L1."""
    whole = NETWORKS[name](tmp_path, Options({"l1": plenty[0]}, default_memory="L3"))
    assert fits(whole, *little)
    assert fits(whole, *plenty)


@pytest.mark.share(0.25)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NETWORKS)
def test_what_fits_grows_with_every_capacity(name: str, seed: int, tmp_path: Path) -> None:
    """From a random L1 and too little L2: what is stated fits, also with more of either, and less of it does not."""
    numbers = random.Random(seed)
    whole = NETWORKS[name](tmp_path, Options(default_memory="L3"))
    l1 = int(math.exp(numbers.uniform(math.log(300), math.log(20_000))))
    least = 0
    for _ in range(2):
        try:
            replan(whole, l1, 8)
            break
        except FitError as error:
            if re.search(r"--l1 \d+", error.remedy):
                assert not fits(whole, stated(error, "L1") - 1, 8)
                l1 = stated(error, "L1")
            else:
                least = stated(error, "L2")
                break
    if least:
        assert fits(whole, l1, least)
        assert not fits(whole, l1, least - 8)
    more = int(l1 * numbers.uniform(1, 4)), int(max(least, 8) * numbers.uniform(1, 3))
    assert fits(whole, more[0], max(least, 8))
    assert fits(whole, *more)
