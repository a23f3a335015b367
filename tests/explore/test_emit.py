"""A target that exploration emits: networks compile for it, run, and are as much faster as the study says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.driver.project import CompiledProject
from deeploy.errors import UsageError
from deeploy.explore.command import ExploreOptions, run_exploration
from deeploy.target import load, problems
from tests.targets.test_unrolled import UNROLLED, saved

HARDWARE = UNROLLED / "hardware.toml"


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("emit"))


@pytest.fixture(scope="module", params=[512, 64])
def emitted(
    request: pytest.FixtureRequest, saved_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[float, CompiledProject]]:
    """The network for arrays with one unrolling and with two, and the cycles that the study predicts; with 64 bits, memories stall them."""
    hardware = tmp_path_factory.mktemp("hardware") / "hardware.toml"
    hardware.write_text(HARDWARE.read_text().replace("bandwidth = 512", f"bandwidth = {request.param}"))
    found = []
    for configs in (1, 2):
        folder = tmp_path_factory.mktemp(f"configs{configs}")
        study = json.loads(
            run_exploration(
                [saved_model],
                hardware,
                load("generic"),
                {},
                ExploreOptions(configs=configs, target=folder, as_json=True, machine="siracusa"),
            )
        )
        assert not list(problems(load(folder), folder))
        found.append((study["sets"][-1]["cycles"], deeploy.compile(saved_model, folder)))
    return found


def on_array(compiled: CompiledProject) -> float:
    timing = compiled.network.predicted
    assert timing is not None
    calls = zip(compiled.plan.program.calls, timing.calls, strict=True)
    return sum(own.cycles for call, own in calls if call.kernel.engine != "cores")


def test_the_gain_of_two_unrollings_is_that_of_the_study(emitted: list[tuple[float, CompiledProject]]) -> None:
    (one, first), (two, second) = emitted
    assert one / two > 1.1
    assert on_array(first) / on_array(second) == pytest.approx(one / two, rel=0.1)
    assert {call.kernel.engine for call in second.plan.program.calls} >= {engine.name for engine in second.plan.target.engines[1:]}


def test_the_network_runs_on_the_array_bit_for_bit(emitted: list[tuple[float, CompiledProject]]) -> None:
    x = np.random.default_rng(1).integers(-128, 128, (1, 8, 16, 16)).astype(np.int8)
    compiled = emitted[1][1]
    assert np.array_equal(compiled.run([x])[0], compiled.interpret([x])[0])


def test_folders_of_others_are_left_alone(saved_model: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds no target that was emitted"):
        run_exploration([saved_model], HARDWARE, load("generic"), {}, ExploreOptions(target=tmp_path))
    with pytest.raises(UsageError, match="exists and is not a folder"):
        run_exploration([saved_model], HARDWARE, load("generic"), {}, ExploreOptions(target=tmp_path / "notes.txt"))
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
