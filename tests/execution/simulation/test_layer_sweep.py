"""No cliffs: random layers stay within a multiple of what bounds them, on every target that has a timing (benchmarks/layer_sweep.py)."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from benchmarks import layer_sweep
from deeploy.options import Options
from deeploy.target import load

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = {name: str(ROOT / "examples" / "targets" / name / f"deeploy_{name}") for name in ("pulp_open", "snitch")}
# Times its bound that a layer takes at most, and half of them: peaks are those of the fastest engine for the best kind of layer.
MOST = {"siracusa": (60.0, 12.0), "pulp_open": (25.0, 10.0), "snitch": (80.0, 25.0)}
KINDS = ("conv", "depthwise", "grouped", "transposed", "average", "max", "nearest", "shuffle", "add")


@pytest.mark.parametrize("name", MOST)
def test_layers_are_near_their_bounds(name: str) -> None:
    target = load(EXAMPLES.get(name, name))
    found = [one for one in layer_sweep.Sweep(target, Options()).layers(24, 7, KINDS) if one.layer.form != "float"]
    large = [one for one in found if one.cycles > layer_sweep.FULL]
    assert len(large) >= 4
    most, half = MOST[name]
    for one in large:
        assert 0 < one.ratio <= most, f"{one.layer} by {', '.join(one.kernels)}: {one.cycles:.0f} cycles, {one.bound:.0f} at least"
    assert median(one.ratio for one in large) <= half
