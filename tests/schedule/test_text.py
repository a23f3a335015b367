"""Schedules as text: one of every shape, pinned. ``python -m tests.schedule.test_text`` writes the file anew; read what changed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.options import Options
from deeploy.planning.plan import Plan
from deeploy.schedule import build_schedule
from tests.e2e import systems
from tests.execution.simulation import nets
from tests.models import save_graph
from tests.schedule.test_fused_groups import residual

SNAPSHOT = Path(__file__).with_name("shapes.txt")


def pointwise(folder: Path, options: Options) -> deeploy.Compiled:
    """A convolution of the integer dialect that N-EUREKA computes."""
    weights = {"w": np.arange(256).reshape(16, 16, 1, 1) % 7 - 3, "mul": np.full((16, 1, 1), 3), "add": np.full((16, 1, 1), 5)}
    return _requantised(folder, options, weights, 64)


def pointwise_sums(folder: Path, options: Options) -> deeploy.Compiled:
    """The same with factors of more bits than N-EUREKA has for them: cores requantise."""
    w = np.random.default_rng(0).integers(-127, 128, (64, 64, 1, 1))
    mul = np.random.default_rng(1).integers(1 << 22, 1 << 23, (64, 1, 1))
    return _requantised(folder, options, {"w": w, "mul": mul, "add": np.full((64, 1, 1), 1 << 30)}, 1 << 31)


def _requantised(folder: Path, options: Options, weights: dict[str, np.ndarray], by: int) -> deeploy.Compiled:
    requantise = helper.make_node("RequantShift", ["a", "mul", "add"], ["y"], name="requantise", n_levels=256, signed=1)
    requantise.attribute.append(helper.make_attribute("div", numpy_helper.from_array(np.array(float(by), np.float32))))
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="conv"), requantise]
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    channels = {"x": weights["w"].shape[1], "y": weights["w"].shape[0]}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n, 12, 10]) for name, n in channels.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    save_graph(graph, folder / "model.onnx", 13)
    return deeploy.compile(folder / "model.onnx", "siracusa", input_types={"x": "int8"}, **options.given())


SHAPES: dict[str, tuple[Callable[[Path, Options], deeploy.Compiled], Options, str]] = {
    "single": (nets.convolutions, Options(memory={"l1": 2500}, buffering="single"), "a_node"),
    "double": (nets.convolutions, Options(memory={"l1": 2500}, buffering="double"), "a_node"),
    "early": (nets.convolutions, Options(memory={"l1": 5000}, buffering="single"), "a_node"),
    "staged": (nets.convolutions, Options(memory={"l1": 2500, "l2": 14_000}, buffering="double", default_memory="L3"), "y_node"),
    "prefetched": (nets.convolutions, Options(memory={"l1": 2500, "l2": 9000}, buffering="double", default_memory="L3"), "c_node"),
    "accelerator": (pointwise, Options(memory={"l1": 3000}, buffering="double", engines=("cluster", "npu")), "conv"),
    "two parts": (pointwise_sums, Options(memory={"l1": 60_000}, buffering="single", engines=("cluster", "npu"), fusion=False), "conv"),
    "two parts that overlap": (pointwise_sums, Options(memory={"l1": 24_000}, buffering="double", engines=("cluster", "npu")), "conv"),
}


def texts(folder: Path) -> str:
    """The layer that shows each shape; for the last two, all that one of two chips does, and all of a network with a chain."""
    parts = []
    for title, (network, options, name) in SHAPES.items():
        layers = build_schedule(network(folder, options).plan).layers
        parts.append(f"# {title}\n{next(layer for layer in layers if layer.call.name == name)}\n")
    plan: Plan = systems.star(folder, "siracusa", 2).plans[1]
    chain = build_schedule(residual(folder).plan)
    return "\n".join([*parts, f"# chips\n{build_schedule(plan)}\n", f"# chain\n{chain}\n"])


@pytest.mark.slow
def test_every_shape_is_as_pinned(tmp_path: Path) -> None:
    found = texts(tmp_path)
    assert found == SNAPSHOT.read_text()
    for what in ("early of call", "wait for npu", "stage of call", "unstage of call", "constants)", "t % 2", "post-processing", "slide"):
        assert what in found, f"no shape shows {what}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        SNAPSHOT.write_text(texts(Path(scratch)))
