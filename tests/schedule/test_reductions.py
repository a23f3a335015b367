"""Products that are cut along their reductions: they fit where no row of weights does, are safe, and what makes one unsafe is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.backend import project
from deeploy.errors import FitError
from deeploy.execution.runners import host
from deeploy.options import Options
from deeploy.planning.plan import Buffering
from deeploy.planning.tiling.loops import cut_dims
from deeploy.schedule import build_schedule
from deeploy.schedule.ir import Compute, Do, Finish, Guard, Move, Node, PostProcess
from deeploy.target import load
from tests.schedule.proofs import refuse_schedules
from tests.schedule.test_fused_groups import mutants
from tests.schedule.test_managed_fused_groups import Quantised


class Deep(Quantised):
    def matmul(self, x: str, depth: int, columns: int) -> str:
        scale, zero = self.constant(np.full(columns, 0.01 / depth**0.5)), self.constant(np.zeros(columns), np.int8)
        weights = self.constant(self.random.integers(-127, 128, (depth, columns)), np.int8)
        return self.stored(self.node("MatMul", self.read(x), self.node("DequantizeLinear", weights, scale, zero, axis=1)))


def product(path: Path) -> Path:
    """A row of weights and one of the input are longer than L1; more columns than four times the cores, and some left over."""
    one = Deep()
    return one.save(path, one.matmul("x", 9000, 37), [3, 9000], [3, 37])


def ragged(path: Path) -> Path:
    """Rows that end within a word."""
    one = Deep()
    return one.save(path, one.matmul("x", 5003, 12), [2, 5003], [2, 12])


def convolution(path: Path) -> Path:
    one = Deep()
    return one.save(path, one.conv("x", 256, 12, 3), [1, 256, 5, 6], [1, 12, 5, 6])


def pointwise(path: Path) -> Path:
    one = Deep()
    return one.save(path, one.conv("x", 3000, 6, 1), [1, 3000, 3, 3], [1, 6, 3, 3])


def dense(path: Path) -> Path:
    """A convolution of which N-EUREKA adds parts to its sums."""
    one = Deep()
    return one.save(path, one.conv("x", 300, 40, 3), [1, 300, 7, 8], [1, 40, 7, 8])


NETWORKS: dict[str, tuple[Callable[[Path], Path], int, str]] = {
    "product": (product, 12_000, "pulp_matmul_sums"),
    "ragged": (ragged, 9_000, "pulp_matmul_sums"),
    "convolution": (convolution, 9_000, "pulp_conv2d_sums"),
    "pointwise": (pointwise, 9_000, "pulp_conv2d_pointwise_sums"),
    "dense": (dense, 32_000, "neureka_dense_parts"),
}


SIRACUSA = load("siracusa")
# Weights come through L1, and nothing but N-EUREKA's parts is as deep.
PARTS = replace(SIRACUSA, kernels=tuple(k for k in SIRACUSA.kernels if not k.resident and not (k.op == "Conv" and "pulp" in k.source)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@cache
def compile_reduction(folder: Path, name: str, buffering: Buffering = "auto") -> deeploy.Compiled:
    make, l1, _ = NETWORKS[name]
    engines = ("cluster", "npu") if name == "dense" else ("cluster",)
    options = Options(memory={"l1": l1}, buffering=buffering, engines=engines)
    return deeploy.compile(make(folder / f"{name}.onnx"), PARTS if name == "dense" else SIRACUSA, **options.given())


@pytest.mark.share(0.25)
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_deeper_than_l1_computes_the_same(name: str, folder: Path, tmp_path: Path) -> None:
    one = compile_reduction(folder, name)
    (step,) = (step for step, call in enumerate(one.plan.program.calls) if call.kernel.name == NETWORKS[name][2])
    call, tiling = one.plan.program.calls[step], one.plan.tiling(step)
    (dim,) = call.geometry.nest.accumulated
    assert tiling.loops[-1].dim == dim and tiling.partial(call.geometry) == tiling.loops[-1].trips > 1
    one.write(tmp_path / "out")
    entry = project.select_network(project.read_manifest(tmp_path / "out"))
    sample = [np.random.default_rng(3).integers(-128, 128, entry["inputs"][0]["shape"]).astype(np.int8)]
    (outputs,) = host.Host(sanitize=True).run(tmp_path / "out", entry, [sample]).outputs
    np.testing.assert_array_equal(outputs[0], one.interpret(sample)[0])
    assert np.unique(outputs[0]).size > 8


def test_weights_of_one_row_of_outputs_move_once(folder: Path) -> None:
    one = compile_reduction(folder, "product")
    (step,) = (step for step, call in enumerate(one.plan.program.calls) if call.kernel.name == "pulp_matmul_sums")
    moved = one.network.predicted.calls[step].traffic["L2_L1"].bytes_in if one.network.predicted else 0
    weights, rows = 9000 * 37, 3 * 9000
    assert weights + rows <= moved <= 1.02 * (weights + rows * -(-37 // 4))


def test_without_sums_the_network_is_refused(folder: Path) -> None:
    target = replace(SIRACUSA, kernels=tuple(kernel for kernel in SIRACUSA.kernels if not kernel.name.endswith("_sums")))
    make, l1, _ = NETWORKS["product"]
    with pytest.raises(FitError, match="L1"):
        deeploy.compile(make(folder / "refused.onnx"), target, memory={"l1": l1}, engines=("cluster",))


def test_short_reductions_stay_whole(folder: Path) -> None:
    """Sums that are kept cost time and room: where little is needed without them, no plan has them to choose from."""
    one = Deep()
    model = one.save(folder / "short.onnx", one.matmul("x", 64, 32), [16, 64], [16, 32])
    plan = deeploy.compile(model, "siracusa", engines=("cluster",)).plan
    assert all(not call.geometry.nest.accumulated for row in (plan.program.calls, *plan.variants) for call in row)


def test_reductions_are_cut_only_where_a_kernel_keeps_sums(folder: Path) -> None:
    call = next(call for call in compile_reduction(folder, "product").plan.program.calls if call.kernel.name == "pulp_matmul_sums")
    assert "k" in cut_dims(call)
    nest = replace(call.geometry.nest, accumulated=())
    assert "k" not in cut_dims(replace(call, geometry=replace(call.geometry, nest=nest)))


def _with_the_first(one: Node, of: Callable[[Node], bool]) -> Node | None:
    """What is done with the last of several tiles, with the first of them."""
    if isinstance(one, Guard) and any(map(of, one.body)):
        return replace(one, conditions=tuple(replace(condition, right=0) for condition in one.conditions))
    return None


CHANGES: dict[str, Callable[[Node], Node | None]] = {
    "a tile is left out": lambda n: n if isinstance(n, Compute) else None,
    "another tile is added": lambda n: replace(n, tile=n.tile - 1) if isinstance(n, Compute) and not isinstance(n.tile, int) else None,
    "nobody waits for a job": lambda n: n if isinstance(n, Finish) else None,
    "cores do not wait for the last tile": lambda n: _with_the_first(n, lambda inner: isinstance(inner, PostProcess)),
    "transfers are left out": lambda n: n if isinstance(n, Do) else None,
    "outputs leave before they are complete": lambda n: _with_the_first(n, lambda inner: isinstance(inner, Move) and inner.is_store),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("buffering", ["single", "double"])
@pytest.mark.parametrize("name", ["product", "dense"])
def test_what_makes_sums_wrong_is_found(name: str, what: str, buffering: Buffering, folder: Path) -> None:
    one = compile_reduction(folder, name, buffering)
    plan = one.plan
    assert any(plan.tiling(step).partial(call.geometry) > 1 for step, call in enumerate(plan.program.calls))
    without = {
        "product": ("nobody waits for a job", "cores do not wait for the last tile"),
        "dense": ("outputs leave before they are complete",),
    }
    assert bool(refuse_schedules(one, mutants(build_schedule(plan), CHANGES[what]))) is (what not in without[name])
