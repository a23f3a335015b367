"""The planner against exhaustive search: every candidate, residence and early window of small networks, with every address packed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deeploy
from deeploy.errors import FitError
from deeploy.options import Options
from deeploy.planning.candidates.instruction_cache import cache_savings, code_of
from deeploy.planning.choice.problem import Choice, ChoiceProblem
from deeploy.planning.choice.resident_constants import Far
from deeploy.planning.packing.addresses import Overfull
from deeploy.planning.plan import Machine, Plan
from deeploy.planning.planner.network import Planner, make_plan
from deeploy.planning.program import Program
from tests.execution.simulation.nets import compile_nodes, node
from tests.planning.choice import exhaustive

FEW = 5  # candidates per combination of residences
MOST_STATES = 40_000


def residual(folder: Path, options: Options) -> deeploy.Compiled:
    """Two convolutions, and the first one's output added to the second's."""
    nodes = [node("Conv", "x w1", "a", pads=[1, 1, 1, 1]), node("Conv", "a w2", "b", pads=[1, 1, 1, 1]), node("Add", "a b", "y")]
    return compile_nodes(folder, nodes, {"x": [1, 2, 8, 8]}, {"y": [1, 4, 8, 8]}, {"w1": [4, 2, 3, 3], "w2": [4, 4, 3, 3]}, options)


def products(folder: Path, options: Options) -> deeploy.Compiled:
    """Matrix products whose weights are larger than what they work on."""
    nodes = [node("MatMul", "x w1", "a"), node("Tanh", "a", "b"), node("MatMul", "b w2", "y")]
    return compile_nodes(folder, nodes, {"x": [6, 16]}, {"y": [6, 12]}, {"w1": [16, 24], "w2": [24, 12]}, options)


def pooled(folder: Path, options: Options) -> deeploy.Compiled:
    """A strided convolution, a pool and a dense layer."""
    nodes = [
        node("Conv", "x w1", "a", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("MaxPool", "a", "b", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "b", "f"),
        node("Gemm", "f w2", "y"),
    ]
    return compile_nodes(folder, nodes, {"x": [1, 3, 12, 12]}, {"y": [1, 10]}, {"w1": [6, 3, 3, 3], "w2": [54, 10]}, options)


NETWORKS: dict[str, Callable[[Path, Options], deeploy.Compiled]] = {"residual": residual, "products": products, "pooled": pooled}


class Exact(Planner):
    """The planner without a tolerated gap, and with few candidates so that everything can be tried."""

    def __init__(self, whole: deeploy.Compiled, machine: Machine, few: int = FEW, program: Program | None = None) -> None:
        super().__init__(program or whole.network.program, whole.plan.target, machine)
        self.search = replace(self.search, gap=0.0)
        self.few = few

    def problem(self, far: Far) -> ChoiceProblem:
        full = super().problem(far)
        kept = []
        for candidates in full.candidates:
            groups: dict[object, list[object]] = {}
            for candidate in candidates:
                groups.setdefault((candidate.variant, candidate.distances), []).append(candidate)
            kept.append([c for c in candidates if _is_few(groups[c.variant, c.distances], c, self.few)])
        return replace(full, candidates=kept)


def _is_few(group: list[object], candidate: object, few: int) -> bool:
    """Spread over the front, both ends among them."""
    if len(group) <= few:
        return True
    return candidate in [group[round(i * (len(group) - 1) / (few - 1))] for i in range(few)]


def cheapest_packed(planner: Planner, problem: ChoiceProblem) -> int | None:
    """Cycles of the cheapest of all choices that can be packed."""
    for cycles, choice in sorted(exhaustive.every(problem), key=lambda entry: entry[0]):
        if packs(planner, problem, choice):
            return cycles
    return None


def packs(planner: Planner, problem: ChoiceProblem, choice: Choice) -> bool:
    try:
        planner._place(problem, choice)
    except Overfull as overfull:
        assert overfull.is_proven
        return False
    return True


@pytest.mark.share(0.25)
@pytest.mark.parametrize("l1", [900, 1400, 2500, 6000])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_plan_is_the_best_of_all(name: str, l1: int, tmp_path: Path) -> None:
    """Choose and Place find the cheapest choice that has addresses, or say that there is none."""
    whole = NETWORKS[name](tmp_path, Options())
    machine = whole.plan.machine
    assert machine is not None
    planner = Exact(whole, replace(machine, capacities={**machine.capacities, "L1": l1}))
    problem = planner.problem(Far.NONE)
    best = cheapest_packed(planner, problem)
    if best is None:
        with pytest.raises(FitError):
            planner.plan()
        return
    plan = planner.plan()
    assert plan.prediction is not None
    assert plan.prediction.cycles == plan.prediction.bound == best
    warm = cache_savings([code_of(call, plan.target) for call in plan.program.calls], plan.calls)
    assert sum(c.cycles - any(s.is_prefetchable for s in c.tiling.streams) * c.prefetchable_cycles for c in plan.calls) - sum(warm) <= best


FAR = [
    ("products", 1400, 1500),
    ("products", 1400, 2600),
    ("products", 2500, 2000),
    ("residual", 1400, 1500),
    ("residual", 2500, 800),
    ("pooled", 1400, 2600),
    ("pooled", 1400, 3000),
    ("pooled", 2500, 1100),
]


@pytest.mark.share(0.25)
@pytest.mark.parametrize(("name", "l1", "l2"), FAR)
def test_with_far_memories_too(name: str, l1: int, l2: int, tmp_path: Path) -> None:
    """Constants that do not all fit: kept, fetched, fetched ahead or streamed, whatever is best."""
    whole = NETWORKS[name](tmp_path, Options(default_memory="L3"))
    machine = whole.plan.machine
    assert machine is not None
    planner = Exact(whole, replace(machine, capacities={**machine.capacities, "L1": l1, "L2": l2}), few=3)
    assert planner._solve(planner.problem(Far.NONE)) is None
    best = cheapest_packed(planner, planner.problem(Far.LARGE))
    plan = planner.plan()
    assert plan.prediction is not None
    assert plan.prediction.cycles == plan.prediction.bound == best


ARRAY = Path(__file__).parents[2] / "targets" / "array"


def chain(folder: Path, options: Options) -> deeploy.Compiled:
    """A copy and two convolutions that two engines could run, with their filters in different orders."""
    nodes = [node("Conv", "x w1", "a"), node("Conv", "a w2", "b", pads=[1, 1, 1, 1])]
    weights = {"w1": [24, 6, 1, 1], "w2": [12, 24, 3, 3]}
    return compile_nodes(folder, nodes, {"x": [1, 6, 6, 6]}, {"b": [1, 12, 6, 6]}, weights, options, ARRAY)


def bound(folder: Path, build: Callable[[Path, Options], deeploy.Compiled], patch: pytest.MonkeyPatch) -> tuple[deeploy.Compiled, Program]:
    """A network, and its program before kernels were chosen."""
    seen: list[Program] = []

    def recorded(program: Program, *others: Any) -> Plan:
        seen.append(program)
        return make_plan(program, *others)

    patch.setattr("deeploy.driver.order.make_plan", recorded)
    return build(folder, Options()), seen[0]


@pytest.mark.parametrize(
    ("l1", "pad", "l2", "engines"),
    [
        (4000, 16_000, 40_000, "cores array"),
        (9000, 15_000, 17_000, "cores array"),
        (20_000, 13_000, 12_900, "cores cores"),
        (2000, 16_000, 15_000, "array array"),
        (9000, 1500, 15_000, "cores cores"),
        (3000, 9000, 12_000, None),
    ],
)
def test_with_two_engines_too(l1: int, pad: int, l2: int, engines: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs each call, with which constants: as cheap as the cheapest of all variants that have addresses."""
    whole, program = bound(tmp_path, chain, monkeypatch)
    machine = whole.plan.machine
    assert machine is not None
    planner = Exact(whole, replace(machine, capacities={**machine.capacities, "L1": l1, "PAD": pad, "L2": l2}), 2, program)
    assert [len(planner.program.variants(step)) for step in range(len(program.calls))] == [1, 2, 2, 1]
    best = cheapest_packed(planner, planner.problem(Far.NONE))
    assert (best is None) == (engines is None)
    if best is None:
        with pytest.raises(FitError):
            planner.plan()
        return
    plan = planner.plan()
    assert " ".join(call.kernel.engine for call in plan.program.calls[1:3]) == engines
    assert plan.prediction is not None
    assert plan.prediction.cycles == plan.prediction.bound == best
