"""What a study says of its sets: every layer counts as often as the network has it."""

from __future__ import annotations

from collections import Counter

import pytest

from deeploy.explore.study import describe, is_depthwise, study
from deeploy.graph.loops import LOOPS, Layer
from tests.explore.accelerators import shared


def layer(name: str, count: int, **sizes: int) -> Layer:
    return Layer(name, tuple(sizes.get(loop, 1) for loop in LOOPS), count=count)


LAYERS = [
    layer("first", 1, K=16, C=3, OY=14, OX=14, FY=3, FX=3),
    layer("depthwise", 4, G=16, OY=14, OX=14, FY=3, FX=3),
    layer("pointwise", 5, K=16, C=16, OY=14, OX=14),
    layer("last", 2, K=40, C=64),
]


def test_sets_are_of_all_layers() -> None:
    found = describe(study(LAYERS, shared(64, 1000), 3))
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


def test_depthwise_layers_have_groups_of_one_channel() -> None:
    assert [is_depthwise(y) for y in LAYERS] == [False, True, False, False]
    assert not is_depthwise(layer("grouped", 1, G=4, K=2, OY=5)) and not is_depthwise(layer("grouped", 1, G=4, C=2, OY=5))
