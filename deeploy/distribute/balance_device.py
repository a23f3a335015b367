"""Devices that are only planned for: how much of a network they hold, and how long a stage of it takes.

A device has a memory for constants of its own. Layers get room in it in their order; one that does not find room as a whole lies with
the host, and is fetched at every inference.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deeploy.distribute.balance import Table
from deeploy.distribute.balance_levels import Layer, Levels, levels_of
from deeploy.errors import TargetError


@dataclass(frozen=True)
class Product:
    """What a device has to know of a layer beyond ``Layer``: the loops (``deeploy.graph.loops.LOOPS``) of its products, or none."""

    loops: tuple[int, ...]


@dataclass(frozen=True)
class Device:
    """A device.

    Attributes:
        memory: bytes for constants.
        filters: constants are stored, and products computed, for so many results at a time, and for ``channels`` inputs.
        slot: seconds for one product, ``byte`` for a byte of constants or one that a stage is given or returns, ``fetch`` for a layer
            whose constants lie with the host.
    """

    memory: int
    filters: int
    channels: int
    slot: float = 0.0
    byte: float = 0.0
    fetch: float = 0.0

    def stored(self, layer: Layer, product: Product) -> int:
        """Bytes of a layer's constants as the device lays them out."""
        if not product.loops:
            return layer.weights
        return self._products(product) + layer.weights - math.prod(product.loops[i] for i in (0, 1, 2, 5, 6))

    def slots(self, product: Product) -> int:
        """Products that a layer computes, those that only fill up included."""
        return self._products(product) * product.loops[3] * product.loops[4] if product.loops else 0

    def _products(self, product: Product) -> int:
        """Those of one place of the result: groups are filters of one channel."""
        groups, results, inputs, _, _, high, wide = product.loops
        if groups > 1:
            return _up(groups * results, self.filters) * inputs * high * wide
        return _up(results, self.filters) * _up(inputs, self.channels) * high * wide


@dataclass(frozen=True)
class Use:
    """What a stage does on a device: products, bytes of constants that it holds, that the host does, and of how many layers."""

    slots: int
    held: int
    fetched: int
    fetches: int


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def use(layers: Sequence[Layer], products: Sequence[Product], device: Device) -> Use:
    """What one device does that runs all these layers."""
    return uses(levels_of(layers, 0), layers, products, device, 0)[-1]


def uses(levels: Levels, layers: Sequence[Layer], products: Sequence[Product], device: Device, first: int) -> list[Use]:
    """What stages do that begin at a level and end with it, with the next one, and so on."""
    slots = held = fetched = fetches = 0
    found = []
    for row in levels.layers[first:]:
        for position in row:
            size = device.stored(layers[position], products[position])
            slots += device.slots(products[position])
            if held + size <= device.memory:
                held += size
            else:
                fetched += size
                fetches += 1
        found.append(Use(slots, held, fetched, fetches))
    return found


class DeviceStages:
    """The costs of stages (``deeploy.distribute.pipeline.Costs``) on equal devices."""

    def __init__(self, levels: Levels, layers: Sequence[Layer], products: Sequence[Product], device: Device) -> None:
        self.levels = levels
        self.device = device
        self.uses = [uses(levels, layers, products, device, first) for first in range(levels.depth)]

    def use(self, first: int, end: int) -> Use:
        """What levels ``first`` to ``end - 1`` do."""
        return self.uses[first][end - first - 1]

    def seconds(self, first: int, end: int) -> float:
        """Seconds of a stage for one inference, with what it is given and returns."""
        return sum(self.shares(first, end))

    def shares(self, first: int, end: int) -> tuple[float, float, float, float]:
        """The same by what they are spent on: products, constants held, constants fetched, what the stage is given and returns."""
        found, device = self.use(first, end), self.device
        moved = self.levels.crossing[first] + self.levels.crossing[end]
        fetching = found.fetched * device.byte + found.fetches * device.fetch
        return found.slots * device.slot, found.held * device.byte, fetching, moved * device.byte

    def overflow(self, stage: int, first: int, end: int) -> int:
        """Bytes of constants that lie with the host."""
        return self.use(first, end).fetched

    def table(self) -> Table:
        """Seconds of all stages."""
        depth = self.levels.depth
        table = np.full((depth, depth + 1), math.inf)
        for first in range(depth):
            for end in range(first + 1, depth + 1):
                table[first, end] = self.seconds(first, end)
        return table

    def tables(self, stages: int) -> list[Table]:
        """The same for every stage."""
        return [self.table()] * stages


def load_device(file: Path) -> Device:
    """Read a device's file.

    Raises:
        TargetError: an entry is missing, or does not say where its figures are from.
    """
    data = tomllib.loads(file.read_text())
    for name, entry in data.items():
        if not isinstance(entry, dict) or not entry.get("provenance"):
            raise TargetError(f"{file.name}: entry {name} does not say where its figures are from", "Give it a provenance.")
    try:
        memory, time = data["memory"], data["time"]
        units = (int(memory[name]) for name in ("bytes", "filters", "channels"))
        return Device(*units, *(float(time[name]) for name in ("slot", "byte", "fetch")))
    except KeyError as error:
        raise TargetError(
            f"{file.name}: the figure {error} is missing", "docs/segmentation.md lists what a device's file holds."
        ) from error


def throughput(stages: Sequence[float], batch: int) -> float:
    """Seconds per input of a batch that streams through stages, each of which works on one input at a time."""
    return (sum(stages) + (batch - 1) * max(stages)) / batch
