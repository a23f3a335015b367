"""The greedy plan is a fair measure: it has the engines that the plan has, and keeps to the same memories."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

import deeploy
from deeploy.options import Options
from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.choice.greedy import choose_greedily
from deeploy.planning.choice.problem import ChoiceProblem, ConditionalConstant, Residence
from deeploy.planning.tiling.loops import CallTiling
from tests.models import Net

SIZES = [1000, 1000, 1000]  # bytes of the engines' memory, of the one around it, and of another engine's own


def candidate(variant: int, near_bytes: int, cycles: int) -> Candidate:
    """A candidate of one operand in the memory around the engines'."""
    return Candidate(CallTiling((), (), None), (1,), (near_bytes, 0, 0), cycles, 0, 0, 0, 0, False, variant=variant)


def two_variants(share: int) -> ChoiceProblem:
    """A call that is faster by its second variant, which needs constants in another engine's memory."""
    candidates = [candidate(0, 500, 900), candidate(0, 900, 800), candidate(1, 400, 150), candidate(1, 600, 100)]
    return ChoiceProblem([candidates], [[[None], [None]]], (), SIZES, [ConditionalConstant(2, share, ((0, 1),))])


def test_a_call_is_run_by_the_fastest_kernel_with_its_largest_tile() -> None:
    choice = choose_greedily(two_variants(share=1000))
    assert choice is not None and choice.picks == (3,) and choice.cycles == 100


def test_a_kernel_whose_constants_fit_no_memory_is_not_taken() -> None:
    choice = choose_greedily(two_variants(share=1001))
    assert choice is not None and choice.picks == (1,) and choice.cycles == 800


def test_the_greedy_plan_has_the_engines_of_the_plan(tmp_path: Path) -> None:
    """With an accelerator it takes less than half of the cycles, as the plan does."""
    numbers, net = np.random.default_rng(3), Net()
    weights = net.c(numbers.integers(-100, 100, (32, 32, 3, 3)).astype(np.float32))
    factors = np.full((1, 32, 1, 1), 12345679, np.float32)
    sums = net.Conv(net.x(1, 32, 12, 12), weights, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    result = net.RequantShift(sums, net.c(factors), net.c(factors * 0 + 77), div=1 << 31, n_levels=256, signed=1)
    onnx.save(net.model([result]), tmp_path / "m.onnx")

    def predicted(engines: tuple[str, ...] | None) -> tuple[int, int]:
        options = Options(engines=engines)
        found = deeploy.compile(tmp_path / "m.onnx", "siracusa", **options.given(), input_types={"x0": "int8"}, dialect="integer")
        prediction = found.plan.prediction
        assert prediction is not None and prediction.greedy is not None
        return prediction.cycles, prediction.greedy

    cycles, by_hand = predicted(None)
    alone, alone_by_hand = predicted(("cluster",))
    assert cycles < alone / 2 and by_hand < alone_by_hand / 2 and cycles <= by_hand


def test_a_buffer_that_only_the_own_memory_of_an_engine_holds_is_a_dead_end() -> None:
    assert choose_greedily(ChoiceProblem([], [], [Residence("x", 64, (0, 0), (3,))], [64, 64, 64, 64])) is None
    assert choose_greedily(ChoiceProblem([], [], [Residence("x", 64, (0, 0), (1, 3))], [64, 64, 64, 64])) is not None
