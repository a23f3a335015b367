"""The best set of K unrollings for a network: each layer runs on the one that serves the objective best.

Latency and energy are sums over layers: their best set is a K-median problem, solved by trying all pairs (K = 2) or in CP-SAT.

EDP, the product of two sums, is not. Every set with an assignment of layers is a point (cycles T, energy E), and a product is
least at a corner of the points' convex hull, where E + rate * T is least for some rate. F(rate) = min (E + rate * T) is a K-median
problem. The rate of the optimum is E/T itself, which lies between known bounds; that interval is cut until no part of it can hold
a better product: where a <= E/T <= b, E + a T >= F(a) and E + b T >= F(b) bound E T from below by a corner of that region.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

Array = np.ndarray
Objective = Literal["edp", "latency", "energy"]

OBJECTIVES: tuple[Objective, ...] = ("edp", "latency", "energy")
_TOLERANCE = 1e-6  # relative distance to the lower bound at which a set counts as best
_BLOCK = 64  # rows of pairs evaluated at once
_SCALE = 10**8  # CP-SAT counts in whole numbers: the network's cost is about this many
_ITERATIONS = 400  # of the subgradient method
_SECONDS = 60.0  # deterministic solver time of one problem


@dataclass(frozen=True)
class UnrollingChoice:
    """A set of unrollings: rows of the cost arrays, ascending, and for every layer the position of its unrolling in the set.

    ``bound`` is what no set of that size can be better than, in the objective's own unit.
    """

    rows: tuple[int, ...]
    uses: tuple[int, ...]
    cycles: float
    energy: float
    bound: float

    @property
    def edp(self) -> float:
        return self.cycles * self.energy

    def value(self, objective: Objective) -> float:
        """The objective's value for the whole network: cycles, energy in pJ, or their product."""
        return {"edp": self.edp, "latency": self.cycles, "energy": self.energy}[objective]


def best_set(cycles: Array, energy: Array, size: int, objective: Objective = "edp") -> UnrollingChoice:
    """The best ``size`` unrollings.

    Args:
        cycles, energy: float64[N, L] of all layers of a kind together, that is, multiplied by how many there are.
    """
    size = min(size, len(cycles))
    if objective != "edp":
        cost = cycles if objective == "latency" else energy
        rows, bound = _solve_median(cost, size)
        return _assign_layers(cycles, energy, rows, cost, bound)
    return _best_product(cycles, energy, size)


def evaluate_set(cycles: Array, energy: Array, rows: tuple[int, ...], objective: Objective = "edp") -> UnrollingChoice:
    """A given set, with the assignment of layers that is best for the objective."""
    chosen = np.array(rows)
    if objective != "edp":
        cost = cycles if objective == "latency" else energy
        return _assign_layers(cycles, energy, rows, cost, 0.0)
    best = _best_product(cycles[chosen], energy[chosen], len(rows))
    uses = tuple(best.rows[use] for use in best.uses)
    return UnrollingChoice(tuple(rows), uses, best.cycles, best.energy, best.bound)


def _assign_layers(cycles: Array, energy: Array, rows: tuple[int, ...], cost: Array, bound: float) -> UnrollingChoice:
    uses = np.argmin(cost[list(rows)], axis=0)
    picked = np.array(rows)[uses]
    layers = np.arange(cost.shape[1])
    total = float(cycles[picked, layers].sum()), float(energy[picked, layers].sum())
    return UnrollingChoice(tuple(rows), tuple(int(use) for use in uses), *total, bound)


def _best_product(cycles: Array, energy: Array, size: int) -> UnrollingChoice:
    least_cycles, least_energy = float(cycles.min(axis=0).sum()), float(energy.min(axis=0).sum())
    start = int(np.argmin(cycles.sum(axis=1) * energy.sum(axis=1)))
    best = _assign_layers(cycles, energy, (start,), cycles, 0.0)

    def solve(rate: float) -> float:
        """F(rate), or a lower bound of it; a better product that is found on the way is kept."""
        nonlocal best
        cost = energy + rate * cycles
        rows, bound = _solve_median(cost, size)
        assigned = _assign_layers(cycles, energy, rows, cost, 0.0)
        best = assigned if assigned.edp < best.edp else best
        return bound

    for _ in range(3):  # the rate of the best point so far is where a better one is most likely
        solve(best.energy / best.cycles)
    low, high = least_energy**2 / best.edp, best.edp / least_cycles**2
    bound = _refine_rates(solve, lambda: best.edp, low, high)
    ordered = sorted(range(len(best.rows)), key=lambda i: best.rows[i])
    place = {old: new for new, old in enumerate(ordered)}
    return UnrollingChoice(tuple(best.rows[i] for i in ordered), tuple(place[use] for use in best.uses), best.cycles, best.energy, bound)


def _refine_rates(solve: Callable[[float], float], best: Callable[[], float], low: float, high: float) -> float:
    """Cut the interval of rates until every part is closed; returns a lower bound of the product."""
    low, high = low * (1 - _TOLERANCE), high * (1 + _TOLERANCE)
    values = {low: solve(low), high: solve(high)}
    open_parts, bound = [(low, high)], math.inf
    while open_parts:
        a, b = open_parts.pop()
        least = _least_product(a, values[a], b, values[b])
        if least >= best() * (1 - _TOLERANCE) or b / a < 1 + _TOLERANCE / 10:
            bound = min(bound, least)
            continue
        middle = math.sqrt(a * b)
        values[middle] = solve(middle)
        open_parts += [(a, middle), (middle, b)]
    return min(bound, best())


def _least_product(a: float, value_a: float, b: float, value_b: float) -> float:
    """The least E T over E + a T >= value_a, E + b T >= value_b, a <= E/T <= b: at one of the region's corners."""
    on_a = max(value_a / (2 * a), value_b / (a + b))
    on_b = max(value_a / (a + b), value_b / (2 * b))
    corners = [a * on_a**2, b * on_b**2]
    time = (value_b - value_a) / (b - a)
    rest = value_a - a * time
    if time > 0 and a * time <= rest <= b * time:
        corners.append(rest * time)
    return min(corners)


def _solve_median(cost: Array, size: int) -> tuple[tuple[int, ...], float]:
    """``size`` rows with the least sum over columns of the smallest entry, and a lower bound of that sum."""
    front = undominated_rows(cost)
    small = cost[front]
    if size >= len(front):
        return tuple(int(k) for k in front), float(small.min(axis=0).sum())
    if size == 1:
        sums = small.sum(axis=1)
        return (int(front[np.argmin(sums)]),), float(sums.min())
    if size == 2:
        pair, total = _best_pair(small)
        return tuple(int(front[i]) for i in pair), total
    rows, bound = _median_by_solver(small, size)
    return tuple(int(front[i]) for i in rows), bound


def undominated_rows(cost: Array) -> Array:
    """Indices of the rows that no other row matches or beats in every column, by ascending sum; of equal rows the first."""
    order = np.argsort(cost.sum(axis=1), kind="stable")
    numbers: list[int] = []
    front = np.empty((0, cost.shape[1]))
    for index in order:
        if not len(front) or not np.any(np.all(front <= cost[index], axis=1)):
            numbers.append(int(index))
            front = np.vstack([front, cost[index]])
    return np.array(numbers)


def _best_pair(cost: Array) -> tuple[tuple[int, int], float]:
    """All pairs, in blocks."""
    best, pair = math.inf, (0, 0)
    for begin in range(0, len(cost), _BLOCK):
        block = cost[begin : begin + _BLOCK]
        sums = np.zeros((len(block), len(cost) - begin))
        for column in range(cost.shape[1]):
            sums += np.minimum(block[:, column, None], cost[None, begin:, column])
        i, j = np.unravel_index(np.argmin(sums), sums.shape)
        if sums[i, j] < best:
            best, pair = float(sums[i, j]), (begin + int(i), begin + int(j))
    return pair, best


def _median_by_solver(cost: Array, size: int) -> tuple[tuple[int, ...], float]:
    """CP-SAT, on the rows that a Lagrangian bound cannot rule out."""
    start = _exchange_rows(cost, size)
    limit = float(cost[list(start)].min(axis=0).sum())
    front = _promising_rows(cost, size, limit)
    if len(front) <= size:
        return start, limit
    medians, bound = _solve_cover(cost[front], size, [k for k in range(len(front)) if front[k] in start], limit)
    rows = tuple(int(front[i]) for i in medians)
    return (rows, bound) if medians and cost[list(rows)].min(axis=0).sum() < limit else (start, min(bound, limit))


def _promising_rows(cost: Array, size: int, limit: float) -> Array:
    """Rows that a set better than ``limit`` could contain.

    With a price per column, sum(prices) + the ``size`` least of r(row) = sum(min(0, cost - price)) bounds every set from below.
    A row whose r lifts that bound above ``limit`` when it replaces the worst of the least is in no better set. Prices climb along
    the subgradient.
    """
    prices = np.partition(cost, size, axis=0)[size]
    best, gains = -math.inf, np.zeros(len(cost))
    for _ in range(_ITERATIONS):
        reduced = np.minimum(cost - prices, 0)
        sums = reduced.sum(axis=1)
        least = np.argpartition(sums, size - 1)[:size]
        bound = float(prices.sum() + sums[least].sum())
        if bound > best:
            best, gains = bound, sums
        slope = 1 - np.count_nonzero(reduced[least] < 0, axis=0)
        if not slope.any() or bound >= limit:
            break
        prices = prices + slope * (limit - bound) / float(slope @ slope)
    worst = np.partition(gains, size - 1)[size - 1]
    return np.flatnonzero(best - worst + np.maximum(gains, worst) <= limit * (1 + 1e-9))


def _solve_cover(cost: Array, size: int, start: list[int], limit: float) -> tuple[list[int], float]:
    """A layer pays its cheapest entry, and a step more for every level of cost that no chosen row lies on or below.

    The steps need one variable per layer and level instead of one per layer and row (the "radius" form of the problem).
    """
    from deeploy.planning.packing.solver import cp_model, new_solver, solve_model

    least = cost.min(axis=0)
    scale = _SCALE / limit
    model = cp_model.CpModel()
    chosen = [model.new_bool_var(f"row{i}") for i in range(len(cost))]
    model.add(sum(chosen) == size)
    for i, variable in enumerate(chosen):
        model.add_hint(variable, i in start)
    paid: list[cp_model.LinearExprT] = []
    for column in range(cost.shape[1]):
        entries = np.floor((cost[:, column] - least[column]) * scale).astype(np.int64)
        levels = [level for level in np.unique(entries) if level <= (limit - least.sum()) * scale + 1]
        above = None
        for level, higher in zip(levels, [*levels[1:], None], strict=True):
            serving = [chosen[i] for i in np.flatnonzero(entries == level)]
            clause = serving if above is None else [*serving, above.negated()]
            if higher is None:
                model.add_bool_or(clause)
                break
            above = model.new_bool_var(f"layer{column} above {level}")
            model.add_bool_or([*clause, above])
            paid.append(int(higher - level) * above)
    model.minimize(sum(paid))
    solver = new_solver(_SECONDS)
    status = solve_model(solver, model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return [], limit if status == cp_model.INFEASIBLE else float(least.sum())
    rows = [i for i, variable in enumerate(chosen) if solver.value(variable)]
    return rows, float(least.sum() + solver.best_objective_bound / scale)


def _exchange_rows(cost: Array, size: int) -> tuple[int, ...]:
    """A good set: rows one by one, each the best addition, then exchanged one for one as long as that helps."""
    rows: list[int] = []
    for _ in range(size):
        current = cost[rows].min(axis=0) if rows else np.full(cost.shape[1], np.inf)
        rows.append(int(np.argmin(np.minimum(cost, current).sum(axis=1))))
    best, improved = cost[rows].min(axis=0).sum(), True
    while improved:
        improved = False
        for place in range(size):
            others = cost[rows[:place] + rows[place + 1 :]].min(axis=0)
            sums = np.minimum(cost, others).sum(axis=1)
            if sums.min() < best * (1 - 1e-12):
                rows[place], best, improved = int(np.argmin(sums)), float(sums.min()), True
    return tuple(rows)
