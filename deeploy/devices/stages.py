"""Devices that are only planned for: how much of a network they hold, and how long a stage of it takes.

A device has a memory for constants of its own. Layers get room in it in their order; one that does not find room as a whole lies with
the host, and is fetched at every inference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deeploy.ir.device import Device
from deeploy.ir.memo import by_arguments
from deeploy.partition.balance import Table
from deeploy.partition.balance_levels import BalancedLayer, Levels, levels_of

Loops = tuple[int, ...]  # of a layer's products (``deeploy.ir.loops.LOOPS``); empty where it has none


@dataclass(frozen=True)
class Use:
    """What a stage does on a device: positions on its array, bytes of constants that it holds and that the host does, layers fetched."""

    steps: int
    held: int
    fetched: int
    fetches: int


def device_use(layers: Sequence[BalancedLayer], loops: Sequence[Loops], device: Device) -> Use:
    """What one device does that runs all these layers."""
    return device_uses(levels_of(layers, 0), layers, loops, device, 0)[-1]


def device_uses(levels: Levels, layers: Sequence[BalancedLayer], loops: Sequence[Loops], device: Device, first: int) -> list[Use]:
    """What stages do that begin at a level and end with it, with the next one, and so on."""
    steps = held = fetched = fetches = 0
    stage_uses = []
    for row in levels.layers[first:]:
        for position in row:
            size = device.stored(layers[position].weights, loops[position])
            steps += device.steps(loops[position])
            if held + size <= device.memory:
                held += size
            else:
                fetched += size
                fetches += 1
        stage_uses.append(Use(steps, held, fetched, fetches))
    return stage_uses


class DeviceStages:
    """The costs of stages (``deeploy.partition.pipeline.StageCosts``) on devices, all equal but for those in ``others``, by stage."""

    def __init__(
        self,
        levels: Levels,
        layers: Sequence[BalancedLayer],
        loops: Sequence[Loops],
        device: Device,
        others: Mapping[int, Device] | None = None,
    ) -> None:
        self.levels = levels
        self.layers = layers
        self.loops = loops
        self.device = device
        self.others = others or {}
        self._tables: dict[Device, Table] = {}

    def at(self, stage: int) -> Device:
        """The device that runs a stage."""
        return self.others.get(stage, self.device)

    def use(self, first: int, end: int, stage: int = 0) -> Use:
        """What levels ``first`` to ``end - 1`` do."""
        return self._uses(self.at(stage))[first][end - first - 1]

    @by_arguments
    def _uses(self, device: Device) -> list[list[Use]]:
        """What levels do on a device, by the first one and by how many there are."""
        return [device_uses(self.levels, self.layers, self.loops, device, start) for start in range(self.levels.depth)]

    def seconds(self, first: int, end: int, stage: int = 0) -> float:
        """Seconds of a stage for one inference, with what it is given and returns."""
        return sum(self.shares(first, end, stage))

    def shares(self, first: int, end: int, stage: int = 0) -> tuple[float, float, float]:
        """Seconds of a stage by what they are spent on: products, constants fetched, what the stage is given and returns."""
        use, device = self.use(first, end, stage), self.at(stage)
        moved = self.levels.crossing[first] + self.levels.crossing[end]
        fetching = use.fetched * device.byte + use.fetches * device.fetch
        return use.steps * device.step, fetching, moved * device.byte

    def overflow(self, stage: int, first: int, end: int) -> int:
        """Bytes of constants that lie with the host."""
        return self.use(first, end, stage).fetched

    def table(self, stage: int = 0) -> Table:
        """Seconds of all that a stage's device may run."""
        device = self.at(stage)
        if device not in self._tables:
            depth = self.levels.depth
            table = np.full((depth, depth + 1), math.inf)
            for first in range(depth):
                for end in range(first + 1, depth + 1):
                    table[first, end] = self.seconds(first, end, stage)
            self._tables[device] = table
        return self._tables[device]

    def tables(self, stages: int) -> list[Table]:
        """The table of times of every stage (``table``), in their order."""
        return [self.table(stage) for stage in range(stages)]


def seconds_per_input(stages: Sequence[float], batch: int) -> float:
    """Seconds per input of a batch that streams through stages, each of which works on one input at a time."""
    return (sum(stages) + (batch - 1) * max(stages)) / batch
