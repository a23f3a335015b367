"""Where to cut a network into a pipeline: five strategies, each a pure function of its levels.

=============  ==========================================================================================================
``layers``     equal numbers of layers
``cut_by_vendor``     stages filled up to the average of the constants, the rest to the last, as the Edge TPU's published partitioner cuts
``cut_by_profile``    every way to cut, timed; the fastest
``cut_by_parameters`` the largest stage as small as can be, then moved until all constants fit (Villarrubia et al., Segm_Balanced)
``cut_by_cycles``     the slowest stage as fast as can be, exactly
=============  ==========================================================================================================

``cut_by_profile`` and ``cut_by_cycles`` read tables: ``tables[k][first, end]`` is the time of stage ``k`` if it runs levels
``first`` to ``end - 1``, transfers included, infinite where its device cannot. Devices may differ; equal ones share a table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deeploy.errors import FitError, UsageError, shorten
from deeploy.partition.balance_levels import Cuts, Levels, stage_segments

MOST_PARTITIONS = 200_000  # that `profile` tries

Table = np.ndarray  # [levels, levels + 1]
Overflow = Callable[[int, int, int], int]  # stage, first level, level behind the last: bytes that its device does not hold


def check_stages(levels: Levels, stages: int) -> None:
    """Raise ``UsageError`` where a network has fewer levels than there are to be stages."""
    if stages < 1:
        raise UsageError(f"a pipeline of {stages} stages", "Give at least 1: --chips 1.")
    if stages > levels.depth:
        raise UsageError(
            f"{stages} stages are more than the {levels.depth} levels that the network can be cut between",
            f"Ask for at most that many: --chips {levels.depth}.",
        )


def cut_by_layers(levels: Levels, stages: int) -> Cuts:
    """Equal numbers of layers; what is left over is given to the last stage (5 in 4: 1, 1, 1, 2)."""
    check_stages(levels, stages)
    before = [0, *itertools.accumulate(len(row) for row in levels.layers)]
    cuts: list[int] = []
    for stage in range(1, stages):
        share = stage * before[-1] // stages
        nearest = max(border for border, count in enumerate(before) if count <= share)
        cuts.append(min(max(nearest, (cuts[-1] if cuts else 0) + 1), levels.depth - (stages - stage)))
    return tuple(cuts)


def cut_by_vendor(levels: Levels, stages: int) -> Cuts:
    """Every stage but the last is filled until the next level would make it exceed the average of all constants; the rest is the last's.

    What the stages before leave of their averages adds up in the last one, so that it may exceed its device.
    """
    check_stages(levels, stages)
    average = sum(levels.weights) / stages
    cuts: list[int] = []
    filled = 0
    for level, size in enumerate(levels.weights[1:], 1):
        filled += levels.weights[level - 1]
        missing = stages - 1 - len(cuts)
        if missing and (filled + size > average or levels.depth - level == missing):
            cuts.append(level)
            filled = 0
    return tuple(cuts)


# ---- by profile


def count_partitions(levels: Levels, stages: int) -> int:
    """In how many ways a network can be cut."""
    return math.comb(levels.depth - 1, stages - 1)


def slowest_stage(tables: Sequence[Table], cuts: Cuts) -> float:
    """Time of the slowest stage."""
    return max(_stage_times(tables, cuts))


def _stage_times(tables: Sequence[Table], cuts: Cuts) -> list[float]:
    return [float(table[part]) for table, part in zip(tables, stage_segments(cuts, tables[0].shape[0]), strict=True)]


def check_profile(levels: Levels, stages: int, most: int = MOST_PARTITIONS) -> None:
    """Raise ``UsageError`` where there are more ways to cut than are tried."""
    check_stages(levels, stages)
    count = count_partitions(levels, stages)
    if count > most:
        raise UsageError(
            f"--balance profile would try {count} ways to cut {levels.depth} levels into {stages} stages, {most} at most",
            "Use --balance cycles, which finds the best one without trying all.",
        )


def cut_by_profile(levels: Levels, tables: Sequence[Table], most: int = MOST_PARTITIONS) -> Cuts:
    """The best of all ways to cut.

    Raises:
        UsageError: there are more than ``most``, or than levels.
        FitError: none can run.
    """
    check_profile(levels, len(tables), most)
    every = itertools.combinations(range(1, levels.depth), len(tables) - 1)
    best = min(every, key=lambda cuts: (max(times := _stage_times(tables, cuts)), sum(times), cuts))
    if math.isinf(slowest_stage(tables, best)):
        raise _nothing_fits(levels, tables)
    return best


# ---- by parameters


def split_check(weights: Sequence[int], bound: int, stages: int) -> Cuts | None:
    """Fill stages from the front up to ``bound`` bytes each; None where that takes more than ``stages`` (algorithm 1, splitCheck)."""
    cuts: list[int] = []
    filled = 0
    for position, size in enumerate(weights):
        filled += size
        if filled > bound:
            cuts.append(position)
            filled = size
    return tuple(cuts) if len(cuts) < stages else None


def balanced_split(weights: Sequence[int], stages: int) -> Cuts:
    """Cuts whose largest stage is as small as can be: a binary search for its size (algorithm 1, balancedSplit).

    There may be fewer stages than asked for: a further one would not make the largest smaller.
    """
    low, high = max(weights), sum(weights)
    best: Cuts = ()
    while low <= high:
        bound = (low + high) // 2
        cuts = split_check(weights, bound, stages)
        if cuts is None:
            low = bound + 1
        else:
            best, high = cuts, bound - 1
    return best


@dataclass(frozen=True)
class Refined:
    """Cuts, moved until everything fits.

    Attributes:
        moves: how often a cut was moved.
        reports: how often the memory of a stage was asked for.
        excess: bytes that do not fit in the end, over all stages.
    """

    cuts: Cuts
    moves: int
    reports: int
    excess: int


def cut_by_parameters(levels: Levels, stages: int, overflow: Overflow | None = None) -> Refined:
    """Segm_Balanced: the largest stage as small as can be, then the cuts moved by what a planner of memory reports, if given."""
    check_stages(levels, stages)
    cuts = _fill_cuts(levels.weights, balanced_split(levels.weights, stages), stages)
    return Refined(cuts, 0, 0, 0) if overflow is None else refine_cuts(levels, cuts, overflow)


def _fill_cuts(weights: Sequence[int], cuts: Cuts, stages: int) -> Cuts:
    """Further cuts, each through the largest stage that has several levels and where its halves differ least."""
    filled = list(cuts)
    while len(filled) < stages - 1:
        parts = [part for part in stage_segments(tuple(filled), len(weights)) if part[1] - part[0] > 1]
        first, end = max(parts, key=lambda part: (sum(weights[part[0] : part[1]]), part[1] - part[0]))
        halves = [(abs(sum(weights[first:cut]) - sum(weights[cut:end])), abs(2 * cut - first - end), cut) for cut in range(first + 1, end)]
        filled = sorted([*filled, min(halves)[2]])
    return tuple(filled)


def refine_cuts(levels: Levels, cuts: Cuts, overflow: Overflow) -> Refined:
    """Move cuts until no stage holds more than its device: first forward, then backward if the last stage has too much.

    A cut moves at once by as many levels as the bytes that are too many, so that the planner is asked once for each move. Where that leaves
    as much too many as there was, cuts stay as they were: stages would only be less equal.
    """
    borders = [0, *cuts, levels.depth]
    moves = reports = 0
    stages = len(borders) - 1
    before = sum(overflow(stage, borders[stage], borders[stage + 1]) for stage in range(stages))

    def excess(stage: int) -> int:
        nonlocal reports
        reports += 1
        return overflow(stage, borders[stage], borders[stage + 1])

    for stage in range(stages - 1):
        while borders[stage + 1] - borders[stage] > 1 and (over := excess(stage)) > 0:
            borders[stage + 1] -= _reach_bytes(levels.weights[borders[stage] + 1 : borders[stage + 1]][::-1], over)
            moves += 1
    if excess(stages - 1) > 0:
        for stage in range(stages - 1, 0, -1):
            while borders[stage + 1] - borders[stage] > 1 and (over := excess(stage)) > 0:
                borders[stage] += _reach_bytes(levels.weights[borders[stage] : borders[stage + 1] - 1], over)
                moves += 1
    left = sum(excess(stage) for stage in range(stages))
    return Refined(tuple(borders[1:-1]), moves, reports, left) if left < before or not moves else Refined(tuple(cuts), 0, reports, before)


def _reach_bytes(weights: Sequence[int], wanted: int) -> int:
    """How many of the levels together have ``wanted`` bytes; all of them if that is not enough."""
    return next((count for count, total in enumerate(itertools.accumulate(weights), 1) if total >= wanted), len(weights))


# ---- by cycles


def cut_by_cycles(levels: Levels, tables: Sequence[Table]) -> Cuts:
    """The cuts whose slowest stage is fastest; among those, with the least time in all. Exact, by dynamic programming.

    Raises:
        UsageError: there are more stages than levels.
        FitError: whatever is cut, some device cannot run its stage.
    """
    check_stages(levels, len(tables))
    limit = bottleneck_time(tables)
    if math.isinf(limit):
        raise _nothing_fits(levels, tables)
    return _solve_cuts(tables, np.add, limit)[1]


def bottleneck_time(tables: Sequence[Table]) -> float:
    """Time of the slowest stage of the best cut; infinite where there is none."""
    return _solve_cuts(tables, np.maximum, math.inf)[0]


def _solve_cuts(tables: Sequence[Table], combine: np.ufunc, limit: float) -> tuple[float, Cuts]:
    """The least combination of stages that take at most ``limit`` each, and its cuts."""
    depth = tables[0].shape[0]
    best = np.full(depth + 1, math.inf)
    best[0] = 0.0
    choices = []
    for table in tables:
        reached = np.vstack([table, np.full(depth + 1, math.inf)])
        joint = combine(best[:, None], np.where(reached <= limit, reached, math.inf))
        joint[np.tril_indices(depth + 1)] = math.inf  # a stage has at least one level
        choices.append(joint.argmin(axis=0))
        best = joint.min(axis=0)
    borders = [depth]
    for choice in reversed(choices):
        borders.append(int(choice[borders[-1]]))
    return float(best[depth]), tuple(reversed(borders[1:-1]))


def _nothing_fits(levels: Levels, tables: Sequence[Table]) -> FitError:
    alone = [level for level in range(levels.depth) if all(math.isinf(table[level, level + 1]) for table in tables)]
    if alone:
        level, size = alone[0], levels.weights[alone[0]]
        return FitError(
            f"level {level} of {levels.depth}, with {shorten(levels.names[level])}, has {size} bytes of constants, which no device can run",
            "Use devices with more memory, or make its layers smaller.",
        )
    return FitError(f"however it is cut, one of {len(tables)} stages does not fit its device", "Ask for more devices: --chips.")


def smallest_count(levels: Levels, fits: Callable[[int], bool], most: int, least: int = 1) -> int:
    """The smallest number of stages for which ``fits`` says that all constants stay on their devices (``--chips auto``).

    Raises:
        FitError: no number up to ``most`` does.
    """
    top = min(most, levels.depth)
    for stages in range(least, top + 1):
        if fits(stages):
            return stages
    raise FitError(
        f"the constants do not stay on the devices with any number of them up to {top}",
        "Give the number yourself (--chips N): what does not fit is then streamed, or use devices with more memory.",
    )
