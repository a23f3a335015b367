"""What calibration measures: the machine alone, and every family of kernels swept over shapes and cores."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.gvsoc import cases
from benchmarks.gvsoc.families import Family
from benchmarks.gvsoc.layer import HAL, Case, l1_bytes, make, simulate
from benchmarks.gvsoc.sweep import Swept, Team, sweep, writers
from deeploy.bringup.fit import Array, fit_coefficients
from deeploy.execution.simulation.walk import walk_plan
from deeploy.ir.target import Loops, Rate
from deeploy.planning import cost
from deeploy.planning.plan import Plan
from deeploy.target import Target

MOST_LAYERS, MOST_BYTES = 64, 800_000  # of one program
CORES = (8, 1)  # a team, and one alone


# ---- the machine


@dataclass(frozen=True)
class Machine:
    """Lines of machine.c: cycles of a team by cores, and of two barriers; of moves and of many transfers.

    Moves are (engine, out, bytes, rows, issue, cycles), many transfers (engine, out, bytes, count, cycles).
    """

    forks: dict[int, int]
    barrier: int
    moves: Array
    many: Array


def machine(target: Target) -> Machine:
    """Run machine.c.

    Raises:
        SimulationError: no simulator, or no compiler.
    """
    with tempfile.TemporaryDirectory(prefix="deeploy-gvsoc-") as scratch:
        folder, sources = Path(scratch), [Path(__file__).parent / "machine.c"]
        defines = f"-DL1_ARENA={l1_bytes(target)} -DENGINES={len(target.paths)}"
        lines = [line.split() for line in simulate(make(sources, [HAL], folder, target, DEFINES=defines), folder, target)]
    numbers = {word: np.array([list(map(int, w[1:])) for w in lines if w[:1] == [word]]) for word in ("fork", "barrier", "move", "many")}
    return Machine({int(c): int(n) for c, n in numbers["fork"]}, int(numbers["barrier"][0][1]), numbers["move"], numbers["many"])


# ---- kernels

Entry = tuple[Family, str, Case]


@dataclass(frozen=True)
class Point:
    """One case on some cores: cycles of its team, once with cold and once with warm caches, and what the largest part does.

    Attributes:
        active: cores that have work; is_team: whether there is one.
        sizes: extents of the part's dimensions; ``macs`` to ``runs`` are what they make.
    """

    variant: str
    name: str
    cores: int
    active: int
    is_team: bool
    sizes: Mapping[str, int]
    macs: float
    outputs: float
    rows: float
    runs: float
    cold: int
    warm: int

    def count(self, term: str) -> float:
        """How often a term of ``Rate.per`` occurs."""
        result = 1.0
        for factor in term.split():
            name, below, limit = factor.partition("<")
            name, _, step = name.partition("/")
            value = {"macs": self.macs, "rows": self.rows, "runs": self.runs}.get(name) or self.sizes.get(name, 1)
            result *= cost.whole_steps(value, -int(limit) if below else int(step or 1))
        return result


def point(variant: str, swept: Swept, team: Team, cores: int) -> Point:
    """What was measured of a call of one tile."""
    call, division = swept.plan.program.calls[team.step], swept.plan.tiling(team.step).division or ()
    sizes, active = dict(call.geometry.extents), 1
    for dim, parts in division:
        share = -(-sizes[dim] // parts)
        active, sizes[dim] = active * -(-sizes[dim] // share), share

    def cycles(rate: Rate) -> float:
        return float(
            cost.work_of(call, rate).divided(division).cycles(lambda name, step: cost.whole_steps(sizes[name], step) if step else 1)
        )

    counts = (cycles(Rate(0, 1, 0)), cycles(Rate(0, 0, 1)), *(cycles(Rate(0, 0, 0, per={name: 1.0})) for name in ("rows", "runs")))
    return Point(variant, call.name, cores, active, bool(division), sizes, *counts, team.cold, team.warm)


def points(families: Sequence[Family], target: Target) -> dict[str, list[Point]]:
    """Every case of every family on one core and on all; families take turns, so that each finds the caches full of another.

    Raises:
        SimulationError: a family's kernel cannot run a case, or anything fails on the simulator.
    """
    found: dict[str, list[Point]] = {family.kernel: [] for family in families}
    most = max(1, *(len(family.divided) for family in families))
    for part in _programs(families):
        for turn in range(most):
            for family, one in _points(part, _dividing(families, target, turn), CORES[0]):
                if turn < max(1, len(family.divided)):
                    found[family.kernel].append(one)
        for family, one in _points(part, target, CORES[1]):
            found[family.kernel].append(one)
    return found


def _dividing(families: Sequence[Family], target: Target, turn: int) -> Target:
    """The target whose kernels of some families divide one dimension over cores, in turn another one."""
    dims = {family.kernel.split()[0]: family.divided[turn] for family in families if turn < len(family.divided)}
    return replace(target, kernels=tuple(replace(k, cores=(dims[k.name],)) if k.name in dims else k for k in target.kernels))


def _points(part: Sequence[Entry], target: Target, cores: int) -> Iterator[tuple[Family, Point]]:
    """The cases of one program that are one tile each."""
    swept = sweep([case for _, _, case in part], target, cores, kernels=[family.kernel.split()[0] for family, _, _ in part])
    by_step = {team.step: team for team in swept.teams if swept.plan.tiling(team.step).tiles == 1}
    for step, (family, variant, _) in zip(writers(swept.plan.program, len(part)), part, strict=True):
        if step in by_step:
            yield family, point(variant, swept, by_step[step], cores)


def _programs(families: Sequence[Family]) -> Iterator[list[Entry]]:
    """The cases of every program: of few variants, as each is an instance to compile, that take turns."""
    part: list[list[Entry]] = []
    for family in families:
        for name, some in family.variants.items():
            variant = [(family, name, case) for case in some]
            if part and (sum(map(len, part)) + len(variant) > MOST_LAYERS or sum(map(_bytes, part)) + _bytes(variant) > MOST_BYTES):
                yield _in_turns(part)
                part = []
            part.append(variant)
    if part:
        yield _in_turns(part)


def _bytes(entries: Sequence[Entry]) -> int:
    return sum(array.nbytes for _, _, case in entries for array in case.operands.values())


def _in_turns(lists: Sequence[list[Entry]]) -> list[Entry]:
    """The n-th entry of every list, then the next one."""
    return [some[number] for number in range(max(map(len, lists))) for some in lists if number < len(some)]


# ---- what is around the kernels

LAYERS = (
    *(cases.matmul(m, k, n) for m, k, n in ((64, 64, 64), (16, 64, 128), (40, 32, 32), (2, 64, 64), (24, 40, 8))),
    *(cases.add(1, 40, 160), cases.add(16, 16, 16), cases.requant_shift(1, 8000), cases.requant_shift(8, 40), cases.add(4, 65)),
    *(cases.pointwise((12, 12, 32), 32), cases.pointwise((16, 16, 16), 32), cases.pointwise((4, 4, 32), 16)),
)
SMALL = (2_000, 4_000, 8_000, None)  # bytes of L1 that cut the layers into many tiles; what there is, into few or one


def loops(target: Target, found: Machine) -> tuple[Loops, float, int]:
    """Cycles of the first core around kernels and transfers: of a layer and of windows, of a tile, and how many layers say so.

    What a layer took in one fork of all, less its teams when they are forked alone, the barriers instead, and what the walk waits for
    transfers, is linear in these. As the waits depend on what is between them, this is solved three times.
    """
    swept = [sweep(LAYERS, target, 8, size, has_layers=True) for size in SMALL]
    assert target.timing is not None
    around, tile, rows = Loops(), 0.0, 0
    for _ in range(3):
        timing = replace(target.timing, loops=around, tile=tile)
        features, rest, measured = [], [], []
        for one in swept:
            runs = walk_plan(replace(one.plan, target=replace(target, timing=timing))).calls
            for step, (layer, run) in enumerate(zip(one.layers, runs, strict=True)):
                own = [team.cold for team in one.teams if team.step == step]
                is_team = bool(one.plan.tiling(step).division)
                teams = sum(own) - len(own) * (found.forks[8] - found.barrier if is_team else found.forks[1])
                features.append([1.0, *_windows(one.plan, step), one.plan.tiling(step).tiles])
                issue = sum(traffic.transfers for traffic in run.traffic.values()) * timing.paths["L2_L1"].issue
                rest.append(layer - teams - run.stalled - issue)
                measured.append(layer)
        x = fit_coefficients(np.array(features, float), np.array(rest, float), np.array(measured, float))
        around, tile, rows = Loops(round(float(x[0])), round(float(x[1])), round(float(x[2]))), round(float(x[3])), len(rest)
    return around, tile, rows


def _windows(plan: Plan, step: int) -> tuple[int, int]:
    """Windows that move while a call runs, for the first time and again: its own, and those of the next one that are fetched early."""
    streams = plan.tiling(step).streams
    following = plan.tiling(step + 1).streams if step + 1 < len(plan.program.calls) else ()
    first = sum(not s.is_prefetchable or s.moves > 1 for s in streams) + sum(s.is_prefetchable for s in following)
    every = sum(s.moves - s.is_prefetchable for s in streams) + sum(s.is_prefetchable for s in following)
    return first, every - first


# ---- fits


@dataclass(frozen=True)
class Fitted:
    """The rates of a family by variant, how many points they were fitted to, and relative errors: median and largest."""

    rates: dict[str, Rate]
    points: int
    median: float
    largest: float
    errors: tuple[tuple[float, Point], ...]


def fit(family: Family, some: Sequence[Point], forks: Mapping[int, int]) -> Fitted:
    """The rates that describe what was measured of a family."""
    some = [point for point in some if family.is_usual(point.sizes)]
    variants = list(dict.fromkeys(point.variant for point in some))
    columns = np.array([_features(family, point, variants) for point in some])
    others = np.array([point.active - 1 for point in some])
    warm = np.array([p.warm - forks[p.cores if p.is_team else 1] for p in some], float)
    best: tuple[float, float, Array, Array] | None = None
    for shared in (*np.linspace(0.0, 0.08, 41), *np.linspace(0.1, 1.0, 46)):
        features = columns * np.column_stack([np.ones(len(some)), *[1 + shared * others] * (columns.shape[1] - 1)])
        x = fit_coefficients(features, warm)
        errors = np.abs(features @ x / warm - 1)
        if best is None or np.square(errors).sum() < best[0]:
            best = float(np.square(errors).sum()), float(shared), x, errors
    assert best is not None
    _, shared, x, errors = best
    cold = float(np.median([p.cold - p.warm for p in some if p.cores > 1]))
    terms = x[2 : 2 + len(family.terms)]
    per = {term: round(float(each), 4) for term, each in zip(family.terms, terms, strict=True) if each > 1e-6}
    rates = {}
    for variant, output in zip(variants, x[2 + len(terms) :], strict=True):
        counted = {**per, family.results: round(float(output), 3)} if family.results and output > 1e-6 else per
        each = 0.0 if family.results else round(float(output), 3)
        rates[variant] = Rate(round(float(x[0])), round(float(x[1]), 4), each, round(cold), round(shared, 4), counted)
    return Fitted(rates, len(some), float(np.median(errors)), float(errors.max()), tuple(zip(errors, some, strict=True)))


def _features(family: Family, point: Point, variants: Sequence[str]) -> list[float]:
    """1, multiply-accumulates, the family's terms, outputs in the column of the variant."""
    count = point.count(family.results) if family.results else point.outputs
    outputs = [count if name == point.variant else 0.0 for name in variants]
    return [1.0, point.macs, *map(point.count, family.terms), *outputs]
