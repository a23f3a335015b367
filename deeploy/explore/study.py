"""A study: all pairs evaluated, the best set of every size, what each layer does with it, and what it costs the datapath."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeploy.documents import Contents
from deeploy.explore import overhead, zigzag
from deeploy.explore.choose import Objective, UnrollingChoice, best_set, evaluate_set, undominated_rows
from deeploy.explore.cost import INNER, Assumptions, UnrollingCosts, evaluate_unrollings
from deeploy.explore.hardware import Hardware
from deeploy.explore.unrollings import Unrollings, enumerate_unrollings
from deeploy.ir.loops import LOOPS, LayerLoops, distinct_layers
from deeploy.jobs import in_order

Array = np.ndarray


@dataclass(frozen=True)
class Study:
    """What was found for a suite of networks on one accelerator.

    Attributes:
        layers: without repetition, each with its number.
        costs: of one layer of each kind.
        choices: the best set of one unrolling, of two, and so on.
        seconds: "pairs" to evaluate all pairs, "choice" to find the sets.
    """

    hardware: Hardware
    objective: Objective
    layers: tuple[LayerLoops, ...]
    unrollings: Unrollings
    costs: UnrollingCosts
    choices: tuple[UnrollingChoice, ...]
    seconds: Mapping[str, float]

    def totals(self) -> tuple[Array, Array]:
        """Cycles and picojoule of all layers of each kind: float64[N, L] each."""
        return total_costs(self.costs, self.layers)


def total_costs(costs: UnrollingCosts, layers: Sequence[LayerLoops]) -> tuple[Array, Array]:
    """Cycles and picojoule, times how many such layers there are."""
    count = np.array([layer.count for layer in layers], np.float64)
    return costs.cycles * count, costs.energy * count


def study_unrollings(
    layers: Sequence[LayerLoops],
    hardware: Hardware,
    configs: int = 2,
    objective: Objective = "edp",
    prune: bool = True,
    assumptions: Assumptions | None = None,
) -> Study:
    """Evaluate every pair and choose the best 1, 2, ... ``configs`` unrollings."""
    start = time.perf_counter()
    kinds = distinct_layers(layers)
    combinations = enumerate_unrollings(hardware.pes, kinds, prune)
    costs = evaluate_unrollings(combinations.factors, kinds, hardware, assumptions)
    middle = time.perf_counter()
    cycles, energy = total_costs(costs, kinds)
    sizes = range(1, min(configs, len(combinations)) + 1)
    choices = tuple(best_set(cycles, energy, size, objective) for size in sizes)
    seconds = {"pairs": middle - start, "choice": time.perf_counter() - middle}
    return Study(hardware, objective, tuple(kinds), combinations, costs, choices, seconds)


def recost_study(result: Study) -> Study:
    """A study whose sets are chosen by ZigZag's cycles and energy, of the unrollings that no other beats in every layer by the formulas.

    Layers cost energy and cycles at the rate of the best set, as in ``trade_overhead``. Pairs are tasks of ``deeploy.jobs``.

    Raises:
        UsageError: ZigZag is not installed.
    """
    zigzag.require_zigzag()
    start = time.perf_counter()
    front = undominated_rows(_layer_costs(result))
    factors = result.unrollings.factors[front]
    pairs_of = [(layer, row, result.hardware) for row in factors for layer in result.layers]
    pairs = np.array(list(in_order(_by_zigzag, pairs_of))).reshape(len(front), len(result.layers), 2)
    own = UnrollingCosts(*(getattr(result.costs, name)[front] for name in UnrollingCosts.__dataclass_fields__))
    ideal = np.array([layer.macs for layer in result.layers]) / (own.utilisation * result.hardware.pes)
    costs = UnrollingCosts(pairs[..., 0], pairs[..., 1], own.utilisation, ideal / pairs[..., 0], own.inner)
    unrollings = replace(result.unrollings, factors=factors)
    cycles, energy = total_costs(costs, result.layers)
    sizes = range(1, min(len(result.choices), len(front)) + 1)
    choices = tuple(best_set(cycles, energy, size, result.objective) for size in sizes)
    seconds = {**result.seconds, "zigzag": time.perf_counter() - start}
    return Study(result.hardware, result.objective, result.layers, unrollings, costs, choices, seconds)


def _by_zigzag(job: tuple[LayerLoops, Array, Hardware]) -> tuple[float, float]:
    return zigzag.evaluate_layer(*job)


def _layer_costs(result: Study) -> Array:
    """What every layer costs on every unrolling: energy and cycles at the rate of the best pair, or one of them; float64[N, L]."""
    cycles, energy = result.totals()
    best = result.choices[min(1, len(result.choices) - 1)]
    weight = {"edp": (1.0, best.energy / best.cycles), "latency": (0.0, 1.0), "energy": (1.0, 0.0)}[result.objective]
    return np.asarray(weight[0] * energy + weight[1] * cycles)


def trade_overhead(result: Study) -> list[Contents]:
    """The front of the objective over the gates of the datapath beside its elements.

    Pairs are formed of the unrollings that no other beats in every layer, each layer's cost being energy plus cycles at the
    rate of the best pair; larger sets enter as the best of their size.
    """
    cycles, energy = result.totals()
    cost = _layer_costs(result)
    front = undominated_rows(cost)
    between = overhead.of_pairs(result.unrollings.factors[front], result.hardware)
    i, j = np.triu_indices(len(front), 1)
    sums = np.concatenate([_pair_sums(cost[front], row) for row in range(len(front) - 1)]) if len(front) > 1 else np.empty(0)
    points = [choice.rows for choice in result.choices]
    points += (
        [(int(front[i[k]]), int(front[j[k]])) for k in overhead.overhead_front(list(sums), list(between[i, j]))]
        if len(result.choices) > 1
        else []
    )
    best_sets = [evaluate_set(cycles, energy, rows, result.objective) for rows in points]
    gates = [overhead.overhead_gates(result.unrollings.factors[list(rows)], result.hardware) for rows in points]
    front_points = overhead.overhead_front([choice.value(result.objective) for choice in best_sets], gates)
    return [
        {
            "unrollings": [result.unrollings.labels[row] for row in points[k]],
            "overhead_gates": gates[k],
            **_choice_figures(best_sets[k]),
        }
        for k in front_points
    ]


def _pair_sums(cost: Array, row: int) -> Array:
    return np.asarray(np.minimum(cost[row], cost[row + 1 :]).sum(axis=1))


def _choice_figures(choice: UnrollingChoice) -> dict[str, float]:
    return {"cycles": choice.cycles, "energy_pj": choice.energy, "edp": choice.edp}


def describe_study(result: Study) -> Contents:
    """The study as plain data, for JSON and for the report."""
    sets = []
    for choice in result.choices:
        factors = result.unrollings.factors[list(choice.rows)]
        sets.append(
            {
                "configs": len(choice.rows),
                **_choice_figures(choice),
                "bound": choice.bound,
                "gain": result.choices[0].value(result.objective) / choice.value(result.objective),
                "overhead_gates": overhead.overhead_gates(factors, result.hardware),
                "unrollings": [_describe_unrolling(result, choice, position) for position in range(len(choice.rows))],
                "layers": _describe_layers(result, choice),
            }
        )
    unrollings = result.unrollings
    return {
        "hardware": result.hardware.name,
        "pes": result.hardware.pes,
        "datapath_gates": overhead.datapath_gates(result.hardware),
        "objective": result.objective,
        "factorisations": {
            "all": unrollings.complete,
            "useful": unrollings.useful,
            "evaluated": len(unrollings),
            "pruned": unrollings.is_pruned,
        },
        "pairs": len(unrollings) * len(result.layers),
        "layers": [
            {"name": y.name, "count": y.count, "macs": y.macs, "loops": dict(zip(LOOPS, y.sizes, strict=True))} for y in result.layers
        ],
        "sets": sets,
        "tradeoff": trade_overhead(result),
    }


def _describe_unrolling(result: Study, choice: UnrollingChoice, position: int) -> Contents:
    """One unrolling of a set: its factors, and the innermost loop that most of its layers choose, depthwise ones apart."""
    row = choice.rows[position]
    inner: dict[str, dict[str, int]] = {"depthwise": {}, "other": {}}
    for at, layer in enumerate(result.layers):
        if choice.uses[at] == position:
            kind = inner["depthwise" if is_depthwise(layer) else "other"]
            name = INNER[int(result.costs.inner[row, at])]
            kind[name] = kind.get(name, 0) + layer.count
    most = {kind: max(counts, key=lambda name: counts[name]) if counts else None for kind, counts in inner.items()}
    factors = {loop: int(u) for loop, u in zip(LOOPS, result.unrollings.factors[row], strict=True)}
    return {
        "factors": factors,
        "label": result.unrollings.labels[row],
        "inner": most,
        "layers": sum(map(sum, (c.values() for c in inner.values()))),
    }


def is_depthwise(layer: LayerLoops) -> bool:
    """Whether a layer has groups, and neither input nor output channels inside them."""
    size = dict(zip(LOOPS, layer.sizes, strict=True))
    return size["G"] > 1 and size["C"] == size["K"] == 1


def _describe_layers(result: Study, choice: UnrollingChoice) -> list[Contents]:
    costs, entries = result.costs, []
    for at, use in enumerate(choice.uses):
        row = choice.rows[use]
        entries.append(
            {
                "unrolling": use,
                "inner": INNER[int(costs.inner[row, at])],
                "utilisation": float(costs.utilisation[row, at]),
                "temporal": float(costs.temporal[row, at]),
                "cycles": float(costs.cycles[row, at]),
                "energy_pj": float(costs.energy[row, at]),
            }
        )
    return entries
