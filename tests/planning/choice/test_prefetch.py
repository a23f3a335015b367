"""Fetches that begin earlier than the call before: no earlier than they have to, in turn, and only where there is room."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deeploy
from benchmarks.transformer_models import Shape, decoder
from deeploy.backend import project
from deeploy.execution.runners import host
from deeploy.options import Options
from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.choice.prefetch import prefetch_earlier
from deeploy.planning.choice.problem import Choice, ChoiceProblem, Residence, memory_loads
from deeploy.planning.tiling.loops import CallTiling

CALL = Candidate(CallTiling((), (), None), (), (10, 100, 0), 1000, 0, 0, 0, 0, False)


def problem(capacity: int, short: int = 60, far: int = 0) -> tuple[ChoiceProblem, Choice]:
    """Six calls of 1 000 cycles, the path busy in ``far`` of each: ``a`` is fetched for the third, ``b`` for the fifth, a call ahead."""
    residences = (Residence("a", short, (2, 2), (1, 2), 500, origin=2), Residence("b", 80, (4, 4), (1, 2), 2500, origin=2))
    call = Candidate(CALL.tiling, (), CALL.bytes, 1000, 0, 0, 0, far, False)
    rows = [[call] for _ in range(6)]
    chosen = Choice((0,) * 6, (False,) * 6, {"a": 1, "b": 1}, {"a": 1, "b": 3}, 7500, 6000)
    return ChoiceProblem(rows, [[[]] for _ in range(6)], residences, (100, capacity, 10_000)), chosen


def test_as_late_as_all_arrive() -> None:
    """2 500 cycles before the fifth call begins, and the other one before: both set out in the second call, and nobody waits."""
    found = prefetch_earlier(*problem(1000))
    assert found.fetched == {"a": 1, "b": 1}
    assert found.cycles == 7500 - 1500


def test_a_path_that_calls_use_themselves() -> None:
    """Half of the time it is free: the first call is early enough for the one, and too late for the other."""
    found = prefetch_earlier(*problem(1000, far=500))
    assert found.fetched == {"a": 0, "b": 0}
    assert found.cycles == 7500 - (2000 - 1000)  # 500 and 2 500 cycles in twice as many


@pytest.mark.parametrize(("capacity", "begins"), [(239, {"a": 1, "b": 3}), (179, {"a": 1, "b": 4}), (240, {"a": 1, "b": 1})])
def test_where_there_is_room(capacity: int, begins: dict[str, int]) -> None:
    """Calls take 100, a 60 in the second and third, b 80 until the fifth."""
    case, choice = problem(capacity)
    if begins["b"] == 4:
        choice = Choice(choice.picks, choice.prefetched, choice.residences, {"a": 1, "b": 4}, 8500, 6000)
    assert prefetch_earlier(case, choice).fetched == begins


def test_what_cannot_gain_stays() -> None:
    case, choice = problem(1000)
    alone = Choice(choice.picks, choice.prefetched, {"a": 1}, {"a": 1}, 6000, 6000)
    assert prefetch_earlier(case, alone) is alone


@st.composite
def cases(draw: st.DrawFn) -> tuple[ChoiceProblem, Choice]:
    """Calls that take different room, constants that are fetched for some of them, a call ahead, and enough capacity for that."""
    count = draw(st.integers(3, 7))
    calls = [
        [Candidate(CALL.tiling, (), (10, draw(st.integers(0, 9)), 0), draw(st.integers(0, 900)), 0, 0, 0, 0, False)] for _ in range(count)
    ]
    uses = draw(st.lists(st.integers(1, count - 1), min_size=1, max_size=4))
    residences = tuple(
        Residence(f"h{i}", draw(st.integers(1, 9)), (use, use), (1, 2), draw(st.integers(1, 2000)), origin=2)
        for i, use in enumerate(sorted(uses))
    )
    begins = {residence.name: residence.steps[0] - 1 for residence in residences}
    choice = Choice((0,) * count, (False,) * count, dict.fromkeys(begins, 1), begins, 10**6, 0)
    without_limit = ChoiceProblem(calls, [[[]] for _ in calls], residences, (100, 10**6, 10**6))
    capacity = max(memory_loads(without_limit, choice)[1]) + draw(st.integers(0, 12))
    return ChoiceProblem(calls, without_limit.operands, residences, (100, capacity, 10**6)), choice


@given(cases())
def test_nothing_is_fetched_before_there_is_room_or_later_than_it_was(case: tuple[ChoiceProblem, Choice]) -> None:
    """What is there in every step fits; fetches keep their turn; fewer cycles are waited for."""
    limited, choice = case
    found = prefetch_earlier(limited, choice)
    assert max(memory_loads(limited, found)[1]) <= limited.capacities[1]
    begins = [found.fetched[residence.name] for residence in limited.residences]
    assert begins == sorted(begins)
    assert all(begin <= choice.fetched[residence.name] for residence, begin in zip(limited.residences, begins, strict=True))
    assert found.cycles < choice.cycles if found is not choice else found.fetched == choice.fetched


@pytest.mark.slow
def test_a_language_model_whose_weights_are_far(tmp_path: Path) -> None:
    """Weights set out several calls ahead, each with a ticket of its own while it is under way; every mode of the host model agrees."""
    path = tmp_path / "model.onnx"
    onnx.save(decoder(Shape(128, 256, 4, 2, 1, True)), path)
    options = Options(memory={"l2": 90_000}, engines=("cluster",), default_memory="L3")
    made = deeploy.compile(path, "siracusa", dialect="integer", context=16, **options.given())
    plan = made.plan
    assert max(use - plan.fetched[name] for name, use in plan.first_uses.items()) > 3
    under_way = [(plan.fetched[name], use, plan.load_tickets[use]) for name, use in plan.first_uses.items()]
    assert all(a[2] != b[2] or a[1] == b[1] or a[1] < b[0] or b[1] < a[0] for a in under_way for b in under_way), (
        "a wait for one would be a wait for the other"
    )
    made.write(tmp_path / "out")
    random = np.random.default_rng(1)
    shapes = [plan.program.buffers[name].shape for name in plan.program.inputs]
    sample = [random.integers(-60, 40, shape).astype(np.int8) for shape in shapes]
    got = host.Host().run(tmp_path / "out", project.read_manifest(tmp_path / "out"), [sample]).outputs
    for have, want in zip(got, made.interpret(sample), strict=True):
        assert np.unique(want).size > 5
        np.testing.assert_array_equal(have[0], want)
