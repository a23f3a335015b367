"""Against ZigZag, where it is installed: pairs whose answer both models must agree on."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from deeploy.errors import UsageError
from deeploy.explore import zigzag
from deeploy.explore.cost import Assumptions, evaluate_unrollings
from deeploy.explore.hardware import load_hardware
from deeploy.ir.loops import LOOPS, LayerLoops

HARDWARE = load_hardware(Path(__file__).parents[2] / "examples" / "hardware" / "table3.toml", {"pes": 64})

PAIRS = [
    (LayerLoops("pointwise", (1, 32, 16, 8, 8, 1, 1)), {"K": 8, "OX": 4, "OY": 2}),
    (LayerLoops("depthwise", (16, 1, 1, 8, 8, 3, 3)), {"G": 8, "OX": 8}),
    (LayerLoops("heads", (4, 16, 8, 4, 4, 1, 1)), {"C": 8, "K": 8}),
]


@pytest.mark.parametrize(("layer", "factors"), PAIRS, ids=lambda value: value.name if isinstance(value, LayerLoops) else "")
def test_both_models_agree(layer: LayerLoops, factors: dict[str, int]) -> None:
    pytest.importorskip("zigzag.api", reason="the extra zigzag is not installed")
    row = np.array([factors.get(loop, 1) for loop in LOOPS])
    cycles, energy = zigzag.evaluate_layer(layer, row, HARDWARE)
    ours = evaluate_unrollings(row[None], [layer], HARDWARE, Assumptions(idle_lanes_need_bandwidth=False))
    assert cycles == pytest.approx(float(ours.cycles[0, 0]), rel=0.15)
    assert energy == pytest.approx(float(ours.energy[0, 0]), rel=0.15)


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zigzag.api", None)
    layer, factors = PAIRS[0]
    with pytest.raises(UsageError, match="zigzag-dse is not installed") as error:
        zigzag.evaluate_layer(layer, np.array([factors.get(loop, 1) for loop in LOOPS]), HARDWARE)
    assert "pip install zigzag-dse" in error.value.remedy
