"""What planning makes of networks, as text: ``printed/*.txt`` has the program, its plan and the schedule of the plan.

``UPDATE=1 pytest tests/schedule/test_printed.py --draw all`` writes what comes out now into the files, for a review to read. What a plan
is predicted to take is left out: ``tests/figures.json`` has that of whole networks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest

import deeploy
from deeploy.options import Options
from deeploy.schedule import build_schedule
from tests.models import Net, conv, quantised, weights

FOLDER = Path(__file__).parent / "printed"
PATTERN = re.compile(r"; \d+ cycles$", re.MULTILINE)


def product(n: Net) -> str:
    return quantised(n, n.MatMul(quantised(n, n.x(8, 32)), weights(n, 32, 24)))


def perceptron(n: Net) -> str:
    hidden = quantised(n, n.Relu(n.MatMul(quantised(n, n.x(16, 24)), weights(n, 24, 96))), 0.1)
    return quantised(n, n.MatMul(hidden, weights(n, 96, 24)))


def convolution(n: Net) -> str:
    return quantised(n, n.Conv(quantised(n, n.x(1, 8, 12, 10)), weights(n, 16, 8, 3, 3), pads=[1, 1, 1, 1]))


def depthwise(n: Net) -> str:
    return quantised(n, n.Conv(quantised(n, n.x(1, 16, 9, 9)), weights(n, 16, 1, 3, 3), group=16, strides=[2, 2]))


def separable(n: Net) -> str:
    rows = quantised(n, n.Relu(n.Conv(quantised(n, n.x(1, 16, 10, 10)), weights(n, 16, 1, 3, 3), group=16, pads=[1, 1, 1, 1])), 0.1)
    return quantised(n, n.Conv(rows, weights(n, 32, 16, 1, 1)))


def pooled(n: Net) -> str:
    rows = quantised(n, n.Relu(n.Conv(quantised(n, n.x(1, 4, 12, 12)), weights(n, 8, 4, 3, 3), pads=[1, 1, 1, 1])), 0.1)
    return quantised(n, n.MaxPool(rows, kernel_shape=[2, 2], strides=[2, 2]), 0.1)


def residual(n: Net) -> str:
    x = quantised(n, n.Relu(quantised(n, n.x(1, 8, 8, 8))))
    return quantised(n, n.Add(quantised(n, n.Conv(x, weights(n, 8, 8, 3, 3), pads=[1, 1, 1, 1])), x), 0.1)


def scores(n: Net) -> str:
    return quantised(n, n.Softmax(quantised(n, n.x(6, 40)), axis=-1), 1 / 256)


def joined(n: Net) -> str:
    x = quantised(n, n.x(1, 8, 8, 8))
    return str(n.Concat(*(quantised(n, n.Conv(x, weights(n, 8, 8, 1, 1))) for _ in range(2)), axis=1))


def float_convolution(n: Net) -> str:
    return str(n.Relu(conv(n, n.x(1, 3, 14, 11), 3, 8, strides=[2, 2])))


def float_perceptron(n: Net) -> str:
    return str(n.Gemm(n.Relu(n.Gemm(n.x(5, 32), n.w(32, 40), n.w(40))), n.w(40, 10), n.w(10)))


NETWORKS: dict[str, Callable[[Net], str]] = {
    made.__name__.replace("_", " "): made
    for made in (
        product,
        perceptron,
        convolution,
        depthwise,
        separable,
        pooled,
        residual,
        scores,
        joined,
        float_convolution,
        float_perceptron,
    )
}


class Machine(NamedTuple):
    options: Options
    networks: tuple[str, ...] = tuple(NETWORKS)


MACHINES = {
    "one window": Machine(Options("siracusa", l1=3000, buffering="single", engines=("cluster",), fusion=False)),
    "two windows": Machine(Options("siracusa", l1=4000, buffering="double", engines=("cluster",), fusion=False)),
    "fused groups": Machine(
        Options("siracusa", l1=5000, engines=("cluster",), objective="traffic"), ("perceptron", "separable", "pooled", "residual")
    ),
    "all engines": Machine(Options("siracusa", l1=6000), ("product", "convolution", "depthwise", "separable", "residual")),
    "constants far away": Machine(
        Options("siracusa", l1=4000, l2=12_000, default_memory="L3", engines=("cluster",)),
        ("product", "perceptron", "convolution", "float perceptron"),
    ),
    "one memory": Machine(Options("generic"), ("product", "perceptron", "convolution", "separable", "residual", "joined")),
    "little memory": Machine(Options("generic", objective="ram"), ("separable", "pooled", "residual")),
}
CASES = [(machine, network) for machine, (_, networks) in MACHINES.items() for network in networks]


def printed(machine: str, network: str, folder: Path) -> str:
    """The program, the plan and the schedule."""
    net = Net()
    model = net.model([NETWORKS[network](net)])
    onnx.save(model, folder / "network.onnx")
    plan = deeploy.compile(folder / "network.onnx", **MACHINES[machine].options.given()).plan
    return f"-- program\n{plan.program}\n-- plan\n{PATTERN.sub('', str(plan))}\n-- schedule\n{build_schedule(plan)}\n"


@pytest.mark.share(0.5)
@pytest.mark.parametrize(("machine", "network"), CASES, ids=lambda one: one)
def test_planning_makes_this_of_a_network(machine: str, network: str, tmp_path: Path) -> None:
    file, now = FOLDER / f"{machine}, {network}.txt", printed(machine, network, tmp_path)
    if os.environ.get("UPDATE"):
        file.write_text(now)
    assert now == file.read_text()


def test_every_file_is_of_a_case() -> None:
    assert {file.stem for file in FOLDER.glob("*.txt")} == {", ".join(case) for case in CASES}
    assert len(CASES) >= 40
