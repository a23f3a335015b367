"""More memory never makes a plan impossible, and the smallest capacity that a message states is the smallest."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import deeploy
from deeploy.errors import FitError
from deeploy.options import Options
from tests.execution.simulation import nets
from tests.models import Net
from tests.planning.choice.test_infeasibility import replan, stated
from tests.planning.planner.test_network import products, residual

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
    whole = NETWORKS[name](tmp_path, Options(memory={"l1": plenty[0]}, default_memory="L3"))
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


def test_constants_that_just_fit_near_do_not_make_a_plan_slow(tmp_path: Path) -> None:
    """With a little more L2 all constants fit, and leave activations so little room that tiles of one row or less are all that is left."""
    net = Net()
    x, channels = net.DequantizeLinear(net.QuantizeLinear(net.x(1, 3, 48, 48), *(scale := (net.c(0.05), net.c(0, np.int8)))), *scale), 3
    for filters, stride in ((8, 1), (8, 2), (16, 1)):
        weights = net.c(net.random.integers(-90, 90, (filters, channels, 3, 3)), np.int8)
        y = net.Conv(x, net.DequantizeLinear(weights, net.c(0.01), net.c(0, np.int8)), pads=[1, 1, 1, 1], strides=[stride, stride])
        x, channels = net.DequantizeLinear(net.QuantizeLinear(y, *scale), *scale), filters
    onnx.save(net.model([x]), tmp_path / "network.onnx")
    cycles = []
    for l2 in (20_000, 24_000):
        options = Options(memory={"l1": 16_000, "l2": l2}, default_memory="L3", fusion=False, engines=("cluster",))
        run = deeploy.compile(tmp_path / "network.onnx", "siracusa", **options.given()).network.predicted
        assert run is not None
        cycles.append(run.cycles)
    assert cycles[1] <= 1.02 * cycles[0]
