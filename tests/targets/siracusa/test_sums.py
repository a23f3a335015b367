"""Sums of partial sums, with and without a residual connection, in networks on the host's machine model: whole, and in tiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from deeploy.api import Compiled, Network
from deeploy.backend import host, host_model
from deeploy.frontend.io import ports
from deeploy.midend.assemble import assemble
from deeploy.midend.machine import Options, machine_of
from deeploy.midend.managed import plan_managed
from deeploy.target import load

BOTH: dict[str, Any] = {"mul_a": 3 << 14, "mul_b": 5 << 13, "offset": 1 << 15, "shift_sum": 16, "low_sum": -128, "high_sum": 127}

# shape of y, terms, channels of the factors
SUMS = [((1, 1, 512), 4, 1), ((3, 1, 37), 5, 37), ((2, 4, 6, 16), 2, 1), ((9, 1), 3, 1)]


def residual_sums(l1: int, cores: int) -> tuple[Compiled, list[np.ndarray], list[np.ndarray]]:
    """A network of residual sums side by side, its inputs and its outputs."""
    rng = np.random.default_rng(3)
    nodes, inputs, outputs, arrays, wanted = [], [], [], [], []
    for number, (shape, terms, channels) in enumerate(SUMS):
        x, b = (rng.integers(-size, size, s).astype(t) for size, s, t in ((2000, (terms, *shape), "i4"), (128, shape, "i1")))
        mul, add = rng.integers(30, 60, channels).astype(np.int32), np.full(channels, 1 << 10, np.int32)
        t = np.clip((x.sum(axis=0) * mul.astype(np.int64) + add) >> 11, -128, 127)
        wanted.append(np.clip((t * BOTH["mul_a"] + b.astype(np.int64) * BOTH["mul_b"] + BOTH["offset"]) >> 16, -128, 127).astype(np.int8))
        ins = [gs.Variable(f"{name}{number}", dtype=array.dtype, shape=list(array.shape)) for name, array in (("x", x), ("b", b))]
        y = gs.Variable(f"y{number}", dtype=np.int8, shape=list(shape))
        factors = [gs.Constant(f"{name}{number}", array) for name, array in (("mul", mul), ("add", add))]
        attrs = {**BOTH, "shift": 11, "low": -128, "high": 127}
        nodes.append(gs.Node(op="ResidualSum", name=f"s{number}", attrs=attrs, inputs=[*ins, *factors], outputs=[y]))
        inputs += ins
        outputs.append(y)
        arrays += [x, b]
    graph = gs.Graph(nodes=nodes, inputs=inputs, outputs=outputs)
    target, options = load("siracusa"), Options({"l1": l1}, cores=cores)
    machine = machine_of(target, options)
    assert machine is not None, "siracusa has managed memories"
    plan = plan_managed(assemble("network", graph, target.kernels), target, machine, options.seconds)
    sources, results = ports(graph, True, {})
    return Compiled({"network": Network(plan, "sums", tuple(sources), tuple(results), True, ())}, {}), arrays, wanted


@pytest.mark.parametrize(("l1", "cores"), [(60_000, 8), (60_000, 3), (1_500, 8), (1_500, 1)])
def test_residual_sums(tmp_path: Path, l1: int, cores: int) -> None:
    made, arrays, wanted = residual_sums(l1, cores)
    if l1 < 2000:
        assert made.plan.tiling(0).tiles > 1
    made.write(tmp_path)
    entry = host.select_network(json.loads((tmp_path / "deploy.json").read_text()))
    got = host_model.run(tmp_path, entry, [arrays], sanitize=True)
    for have, want in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(have[0], want)
