"""What a study says of its sets: every layer counts as often as the network has it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from deeploy.explore import zigzag
from deeploy.explore.hardware import Hardware
from deeploy.explore.study import Study, describe_study, is_depthwise, recost_study, study_unrollings
from deeploy.ir.loops import LOOPS, LayerLoops
from tests.explore.accelerators import shared


def layer(name: str, count: int, **sizes: int) -> LayerLoops:
    return LayerLoops(name, tuple(sizes.get(loop, 1) for loop in LOOPS), count=count)


LAYERS = [
    layer("first", 1, K=16, C=3, OY=14, OX=14, FY=3, FX=3),
    layer("depthwise", 4, G=16, OY=14, OX=14, FY=3, FX=3),
    layer("pointwise", 5, K=16, C=16, OY=14, OX=14),
    layer("last", 2, K=40, C=64),
]


def test_sets_are_of_all_layers() -> None:
    found = describe_study(study_unrollings(LAYERS, shared(64, 1000), 3))
    assert [entry["configs"] for entry in found["sets"]] == [1, 2, 3]
    for entry in found["sets"]:
        assert entry["cycles"] == pytest.approx(sum(y.count * use["cycles"] for y, use in zip(LAYERS, entry["layers"], strict=True)))
        assert entry["energy_pj"] == pytest.approx(sum(y.count * use["energy_pj"] for y, use in zip(LAYERS, entry["layers"], strict=True)))
        assert entry["edp"] == pytest.approx(entry["cycles"] * entry["energy_pj"])
        assert entry["gain"] == pytest.approx(found["sets"][0]["edp"] / entry["edp"])
        for position, unrolling in enumerate(entry["unrollings"]):
            inner: dict[str, Counter[str]] = {"depthwise": Counter(), "other": Counter()}
            for y, use in zip(LAYERS, entry["layers"], strict=True):
                if use["unrolling"] == position:
                    inner["depthwise" if is_depthwise(y) else "other"][use["inner"]] += y.count
            assert unrolling["layers"] == sum(counts.total() for counts in inner.values())
            for kind, counts in inner.items():
                assert counts[unrolling["inner"][kind]] == max(counts.values(), default=0)


def test_other_costs_choose_among_what_the_formulas_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ZigZag says what the formulas say, the same sets; where one unrolling costs next to nothing, that one."""
    found = study_unrollings(LAYERS, shared(64, 1000), 2)
    totals = {tuple(row): costs for row, costs in zip(found.unrollings.factors.tolist(), zip(*_costs(found), strict=True), strict=True)}
    places = {y.name: at for at, y in enumerate(found.layers)}

    def same(of: LayerLoops, factors: np.ndarray, hardware: Hardware) -> tuple[float, float]:
        cycles, energy = totals[tuple(factors.tolist())]
        return float(cycles[places[of.name]]), float(energy[places[of.name]])

    monkeypatch.setattr(zigzag, "require_zigzag", lambda: None)
    monkeypatch.setattr(zigzag, "evaluate_layer", same)
    again = recost_study(found)
    assert len(again.unrollings) < len(found.unrollings)
    assert [[again.unrollings.labels[row] for row in choice.rows] for choice in again.choices] == [
        sorted((found.unrollings.labels[row] for row in choice.rows), key=again.unrollings.labels.index) for choice in found.choices
    ]
    favoured = again.unrollings.labels[-1]
    factors = again.unrollings.factors[-1].tolist()
    monkeypatch.setattr(zigzag, "evaluate_layer", lambda of, row, hardware: (1.0, 1.0) if row.tolist() == factors else (9.0, 9.0))
    assert recost_study(found).choices[0].rows == (again.unrollings.labels.index(favoured),)


def test_where_one_unrolling_beats_all_others_it_is_the_only_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zigzag, "require_zigzag", lambda: None)
    monkeypatch.setattr(zigzag, "evaluate_layer", lambda of, row, hardware: (7.0, 3.0))
    (choice,) = recost_study(study_unrollings(LAYERS[-1:], shared(64, 1000), 2)).choices
    assert (choice.rows, choice.cycles, choice.energy) == ((0,), 14.0, 6.0)


def _costs(found: Study) -> tuple[np.ndarray, np.ndarray]:
    return found.costs.cycles, found.costs.energy


def test_depthwise_layers_have_groups_of_one_channel() -> None:
    assert [is_depthwise(y) for y in LAYERS] == [False, True, False, False]
    assert not is_depthwise(layer("grouped", 1, G=4, K=2, OY=5)) and not is_depthwise(layer("grouped", 1, G=4, C=2, OY=5))
