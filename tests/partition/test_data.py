"""Samples of a batch on several chips: training steps equal those of one chip with the whole batch, and states are equal on all chips."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import deeploy
from deeploy import chips
from deeploy.errors import UsageError
from deeploy.execution.simulation import chips as golden
from deeploy.training.step import TrainOptions, make_step
from tests.frontend.gradients.test_gradients import values_of
from tests.models import Net, conv, quantised
from tests.training.networks import NETWORKS
from tests.training.test_steps import RATE, STEPS, run_steps, samples_of


def batch_step(folder: Path, name: str, loss: str = "mse", batch: int = 4, **options: object) -> onnx.ModelProto:
    """A training step of a network on a batch."""
    net = Net()
    path = net.save(folder / "m.onnx", (attention if name == "heads" else NETWORKS[name])(net), opset=20)
    return make_step(path, TrainOptions(loss, batch=batch, **options))  # type: ignore[arg-type]


def attention(n: Net) -> str:
    """Attention of two heads over four samples."""
    x = n.x(4, 3, 6)
    q, k, v = (n.Transpose(n.Reshape(n.MatMul(x, n.w(6, 6)), n.i(4, 3, 2, 3)), perm=[0, 2, 1, 3]) for _ in range(3))
    scores = n.Softmax(n.MatMul(q, n.Transpose(k, perm=[0, 1, 3, 2])), axis=-1)
    joined = n.Reshape(n.Transpose(n.MatMul(scores, v), perm=[0, 2, 1, 3]), n.i(4, 3, 6))
    return str(n.MatMul(n.LayerNormalization(joined, n.w(6), n.w(6), axis=-1), n.w(6, 2)))


def run_system(system: chips.CompiledChips, model: onnx.ModelProto) -> tuple[list[np.ndarray], list[dict[str, np.ndarray]]]:
    """The losses of steps, and behind the last one the states of every chip, by the names of tensors."""
    states, losses, programs = golden.States(), list[np.ndarray](), [plan.program for plan in system.plans]
    for step in range(STEPS):
        feeds = {**values_of(model, 3 + step)[0], "learning_rate": np.array([RATE])}
        given = {name: array if array.dtype == np.int32 else array.astype(np.float32) for name, array in feeds.items()}
        losses += golden.system_outputs(system.system, programs, given, states)
    named = [
        {program.buffers[name].tensor.split(" (")[0]: array for name, array in states.chips[chip].memory.items()}
        for chip, program in enumerate(programs)
    ]
    return losses, named


@pytest.mark.parametrize(
    ("name", "options", "target", "count", "collective"),
    [
        ("convolution", {"optimizer": "momentum"}, "generic", 2, "ring"),
        ("Softmax", {"loss": "cross_entropy", "optimizer": "adam"}, "generic", 4, "flat"),
        ("norm", {"accumulate": 2}, "siracusa", 4, "ring"),
        ("heads", {}, "siracusa", 2, None),
    ],
)
def test_steps_are_those_of_the_whole_batch(
    tmp_path: Path, name: str, options: dict[str, str], target: str, count: int, collective: str | None
) -> None:
    """Weights and what optimisers remember behind several steps, by the same step on one chip in 64 bits; and equal on all chips."""
    model = batch_step(tmp_path, name, **options)  # type: ignore[arg-type]
    system = chips.compile(model, target, count, collective=collective)
    _, found = run_system(system, model)
    behind = run_steps(model, STEPS)[-1]
    for state, value in behind.items():
        np.testing.assert_allclose(found[0][state].reshape(value.shape), value, rtol=1e-4, atol=1e-6, err_msg=state)
        for other in found[1:]:
            np.testing.assert_array_equal(other[state], found[0][state])


def test_products_are_divided_evenly(tmp_path: Path) -> None:
    """Every chip multiplies for its own samples alone."""
    net = Net()
    x = net.Relu(conv(net, net.x(4, 2, 6, 6), 2, 4))
    path = net.save(tmp_path / "m.onnx", net.MatMul(net.Flatten(x), net.w(144, 3)), opset=20)
    model = make_step(path, TrainOptions("mse"))
    alone, system = deeploy.compile(model, target="generic"), chips.compile(model, "generic", 2)

    def products(plan: object) -> int:
        return sum(call.geometry.macs() for call in plan.program.calls if call.node.op in ("MatMul", "Conv"))  # type: ignore[attr-defined]

    (whole,) = [unit.network.plan for unit in alone.units.values()]
    assert [2 * products(plan) for plan in system.plans] == [products(whole)] * 2


def test_steps_of_chips_in_c_are_those_of_the_interpreter(tmp_path: Path) -> None:
    model = batch_step(tmp_path, "convolution")
    verdict = chips.compile(model, "siracusa", 2).verify(samples_of(model), sequence=True)
    assert verdict.passed, verdict


def test_samples_of_an_inference_are_divided(tmp_path: Path) -> None:
    """Of a quantised network, bit for bit."""
    net = Net()
    x = quantised(net, net.x(4, 2, 6, 6))
    x = quantised(net, net.Relu(conv(net, x, 2, 4)))
    path = net.save(tmp_path / "m.onnx", net.MatMul(net.Flatten(x), net.w(144, 3)))
    given = [[np.random.default_rng(1).uniform(-1, 1, (4, 2, 6, 6)).astype(np.float32)]]
    found = chips.compile(path, "generic", 2, partition="data").references(given)
    assert found[0][0].any()
    np.testing.assert_array_equal(found, deeploy.compile(path, target="generic").references(given))


def test_a_batch_that_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the 3 samples of input x0 cannot be divided evenly") as caught:
        chips.compile(batch_step(tmp_path, "norm", batch=3), "generic", 2)
    assert "--batch" in caught.value.remedy
