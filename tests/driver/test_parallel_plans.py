"""Plans of chips that workers make are those that are made here, and so is what is printed of them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from deeploy import chips
from deeploy.driver import parallel_plans as apart
from deeploy.driver import plan
from deeploy.errors import FitError
from deeploy.jobs import workers
from deeploy.planning.plan import Plan
from deeploy.target import load

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The chips whose plans are made in this process, of programs of any size that may go to workers."""
    found: list[int] = []
    make = plan._plan_chip

    def planned(*task: object) -> Plan:
        found.append(os.getpid())
        return make(*task)  # type: ignore[arg-type]

    monkeypatch.setattr(apart, "WORTH", 1)
    monkeypatch.setattr(plan, "_plan_chip", planned)
    return found


@pytest.mark.parametrize("partition", [pytest.param("tensor", marks=pytest.mark.slow), "pipeline"])
def test_workers_make_the_same_plans(partition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "WORTH", 1)
    found = []
    for jobs in (1, 2):
        with workers(jobs):
            found.append(chips.compile(DIGITS, "siracusa", 3, partition=partition))
    assert found[0].sources() == found[1].sources()
    one, two = (system.plans for system in found)
    assert [a.prediction for a in one] == [b.prediction for b in two]
    kernels = {id(kernel) for made in two for kernel in made.target.kernels}
    assert all(id(call.kernel) in kernels for made in two for call in made.program.calls)


def test_the_first_chip_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "WORTH", 1)
    errors = []
    for jobs in (1, 2):
        with workers(jobs), pytest.raises(FitError) as found:
            chips.compile(DIGITS, "siracusa", 3, memory={"l1": 600})
        errors.append((found.value.what, found.value.remedy))
    assert errors[0] == errors[1] and errors[0][0].startswith("chip ")


def test_what_a_worker_cannot_load_is_planned_here(made: list[int]) -> None:
    """A target that was put together in Python: functions of this test cannot be sent, and need not be."""
    target = load("siracusa")
    own = replace(target, kernels=(*target.kernels, target.kernels[0].variant("other", (lambda node: False, "never"))))
    with workers(2):
        chips.compile(DIGITS, own, 2, partition="pipeline")
    assert made == [os.getpid()] * 2
