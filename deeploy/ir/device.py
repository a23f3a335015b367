"""Devices that are planned for, without code: their figures, read from a TOML file (docs/segmentation.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deeploy.documents import read_document
from deeploy.errors import TargetError


@dataclass(frozen=True)
class Device:
    """A device.

    Attributes:
        memory: bytes for constants.
        filters: the side of its array of multipliers: constants are stored for so many results at a time, and products computed in
            tiles of so many results times so many of the inputs that are summed.
        step: seconds for one position of the result in one tile of the array, ``byte`` for a byte between the device and the host: of
            constants that lie there, of what a stage is given or returns; ``fetch`` for a layer whose constants lie with the host.
    """

    memory: int
    filters: int
    step: float = 0.0
    byte: float = 0.0
    fetch: float = 0.0

    def stored(self, weights: int, loops: Sequence[int]) -> int:
        """Bytes of a layer's constants as the device lays them out; ``loops`` are those of ``deeploy.ir.loops.LOOPS``, or none."""
        if not loops:
            return weights
        groups, results, inputs, _, _, high, wide = loops
        return (self._blocks(groups * results) * self.filters - groups * results) * inputs * high * wide + weights

    def steps(self, loops: Sequence[int]) -> int:
        """Positions that a layer's products take on the array, over all its tiles, which are filled with the depth of the array each.

        A dense layer is a matrix of weights, results times all that is summed. Of a layer with groups every tap is a tile, where an input
        meets its own result only.
        """
        if not loops:
            return 0
        groups, results, inputs, tall, wide, high, broad = loops
        summed = self._blocks(inputs * high * broad) if groups == 1 else self._blocks(inputs) * high * broad
        return self._blocks(groups * results) * summed * (tall * wide + self.filters)

    def _blocks(self, count: int) -> int:
        """How many sides of the array something takes."""
        return -(-count // self.filters)


def load_device(file: Path) -> Device:
    """Read a device's file.

    Raises:
        UsageError: there is no such file.
        TargetError: it is not what its schema says; the entry is named.
    """
    data = read_document(file, "device.toml", TargetError)
    memory, time = data["memory"], data["time"]
    return Device(memory["bytes"], memory["filters"], *(float(time[name]) for name in ("step", "byte", "fetch")))
