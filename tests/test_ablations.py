"""The benchmark that plans without each part of the planner: what it takes away is there, and is gone while it plans."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import deeploy
from benchmarks import ablations
from deeploy.options import Options
from tests.execution.simulation.nets import perceptron


def made(folder: Path, variant: ablations.Variant) -> deeploy.Compiled:
    with ablations.without(variant):
        return perceptron(folder, ablations.options_of(Options(memory={"l1": 8000}), variant))


@pytest.mark.parametrize("title", ["layer by layer", "largest tiles", "nothing stays in L1", "no prefetch"])
def test_what_is_taken_away_is_gone(title: str, tmp_path: Path) -> None:
    plan = made(tmp_path, ablations.VARIANTS[title]).plan
    if title != "no prefetch":
        locals_ = [name for name, buffer in plan.program.buffers.items() if buffer.role.value == "local"]
        assert locals_ and {plan.residences[name] for name in locals_ if name in plan.residences} == {"L2"}
    if title != "nothing stays in L1":
        assert not any(stream.is_prefetchable for call in plan.calls for stream in call.tiling.streams)


@pytest.mark.parametrize("title", ablations.VARIANTS)
def test_every_part_that_is_taken_away_exists(title: str) -> None:
    with ablations.without(ablations.VARIANTS[title]) as decided:
        assert not decided


def test_the_page_is_of_what_is_recorded() -> None:
    recorded = json.loads(ablations.PAGE.file.read_text())
    assert ablations.page(recorded).split() == ablations.PAGE.path.read_text().split()
    assert {setup: set(names) for setup, names in ablations.PLANNED.items()} == {
        setup: {name for name, setups in recorded["results"]["networks"].items() if setup in setups} for setup in ablations.SETUPS
    }


def test_no_addresses_take_less_than_is_alive_at_once(tmp_path: Path) -> None:
    """Blocks begin at aligned addresses in the plan and at the first hole alike, so that both are measured in the same bytes."""
    plan = made(tmp_path, ablations.VARIANTS[ablations.FULL]).plan
    recorded = ablations.PAGE.read()["networks"]
    every = [variants[ablations.FULL]["memory"] for setups in recorded.values() for variants in setups.values()]
    for memory in (ablations.allocation(plan), *every):
        assert memory["bound"] <= memory["first_fit"] <= memory["no_reuse"] and memory["bound"] <= memory["peak"] <= memory["capacity"]
    odd = [replace(block, size=block.size + 1) for block in plan.placements]
    assert ablations.allocation(replace(plan, placements=tuple(odd)))["first_fit"] % plan.target.memory("L1").alignment == 0
