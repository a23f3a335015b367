"""Networks of hundreds of layers in a row: nothing calls itself as often as a network is deep."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import deeploy
from deeploy import chips
from tests.models import Net, quantised

FRAMES = 250  # of the stack that one compile may take beside the caller's; libraries need about 100
DEPTH = 200
TARGETS = Path(__file__).parents[2] / "examples" / "targets"
CODE = ("generic", "siracusa", *(str(path.parent) for path in sorted(TARGETS.glob("*/*/target.py"))))


@pytest.fixture
def few_frames() -> Iterator[None]:
    """A stack that has no room for a frame per layer."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + FRAMES)
    yield
    sys.setrecursionlimit(before)


def residual(net: Net, depth: int) -> str:
    """Quantised convolutions with a residual path around each."""
    x, step, zero = quantised(net, net.x(1, 4, 8, 8)), net.c(np.float32(0.01)), net.c(np.int8(0))
    for _ in range(depth):
        weight = net.DequantizeLinear(net.c(net.random.integers(-100, 100, (4, 4, 3, 3)).astype(np.int8)), step, zero)
        x = quantised(net, net.Add(quantised(net, net.Conv(x, weight, pads=[1, 1, 1, 1])), x))
    return net.MaxPool(x, kernel_shape=[2, 2])


def views(net: Net, depth: int) -> str:
    """A product, seen in many other ways."""
    x = net.MatMul(net.x(4, 8, 8), net.c(np.eye(8, dtype=np.float32)))
    for _ in range(depth):
        x = net.Reshape(net.Transpose(x, perm=[1, 0, 2]), net.c(np.array([4, 8, 8])))
    return x


def products(net: Net, depth: int) -> str:
    x = net.x(4, 16)
    for _ in range(depth):
        x = net.Relu(net.MatMul(x, net.w(16, 16)))
    return x


def saved(make: Callable[[Net, int], str], depth: int, folder: Path) -> Path:
    net = Net()
    onnx.save(net.model([make(net, depth)]), folder / "deep.onnx")
    return folder / "deep.onnx"


@pytest.mark.parametrize("make", [residual, views], ids=lambda make: make.__name__)
def test_a_deep_network(make: Callable[[Net, int], str], tmp_path: Path, few_frames: None) -> None:
    compiled = deeploy.compile(saved(make, DEPTH, tmp_path), "generic")
    assert len(compiled.plan.program.calls) >= (DEPTH if make is not views else 1)
    assert "src/network.c" in compiled.files()


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["tensor", "pipeline"])
def test_a_deep_network_on_several_chips(partition: str, tmp_path: Path, few_frames: None) -> None:
    compiled = chips.compile(saved(products, DEPTH, tmp_path), "siracusa", 2, partition=partition)
    assert sum(len(plan.program.calls) for plan in compiled.plans) >= DEPTH


@pytest.mark.slow
@pytest.mark.parametrize("depth", [200, 400, 800])
@pytest.mark.parametrize("target", CODE, ids=lambda target: Path(target).name)
def test_chains_of_residual_convolutions(target: str, depth: int, tmp_path: Path) -> None:
    compiled = deeploy.compile(saved(residual, depth, tmp_path), target)
    assert sum(call.node.op == "Conv" for call in compiled.plan.program.calls) == depth
    assert "src/network.c" in compiled.files()
