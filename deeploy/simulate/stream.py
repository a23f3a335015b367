"""Inputs that stream through the stages of a pipeline: when each stage works on which, events in order.

A stage takes an input when it has arrived, works on it, and hands the result to the link behind it once the queue there has room; it
then takes the next input. A link moves one result at a time while the stages go on. A place in a queue is free again when the stage
behind it takes the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stream:
    """When every stage began and ended its work on every input, in the unit of what it was given.

    Attributes:
        starts, ends: by stage, then by input.
    """

    starts: tuple[tuple[float, ...], ...]
    ends: tuple[tuple[float, ...], ...]

    @property
    def total(self) -> float:
        """Until the last input is through."""
        return self.ends[-1][-1]

    @property
    def latencies(self) -> tuple[float, ...]:
        """Of every input, from when the first stage takes it."""
        return tuple(end - start for start, end in zip(self.starts[0], self.ends[-1], strict=True))

    @property
    def pace(self) -> float:
        """Between the last two results: the time of one input when all stages are busy."""
        return self.ends[-1][-1] - self.ends[-1][-2] if len(self.ends[-1]) > 1 else self.total

    @property
    def idle(self) -> tuple[float, ...]:
        """Part of the time in which each stage does not work, filling and draining included."""
        busy = [sum(e - s for s, e in zip(starts, ends, strict=True)) for starts, ends in zip(self.starts, self.ends, strict=True)]
        return tuple(1 - time / self.total for time in busy)


def stream(stages: Sequence[float], links: Sequence[float], queue: int, inputs: int) -> Stream:
    """Let inputs, all there at once, stream through a pipeline.

    Args:
        stages: time of every stage for one input.
        links: time of every link between two stages for what crosses it.
        queue: results that may wait behind a stage or be on their way, at least 1.
        inputs: how many, at least 1.
    """
    count = len(stages)
    starts: list[list[float]] = [[] for _ in stages]
    ends: list[list[float]] = [[] for _ in stages]
    handed = [0.0] * count  # when each stage was rid of its last result
    sent = [0.0] * count  # when each link was rid of its last one
    for number in range(inputs):
        arrived = 0.0
        for stage, time in enumerate(stages):
            start = max(arrived, handed[stage])
            starts[stage].append(start)
            ends[stage].append(start + time)
            handed[stage] = start + time
            if stage + 1 < count:
                if number >= queue:
                    handed[stage] = max(handed[stage], starts[stage + 1][number - queue])
                sent[stage] = max(handed[stage], sent[stage]) + links[stage]
                arrived = sent[stage]
    return Stream(tuple(map(tuple, starts)), tuple(map(tuple, ends)))
