"""Devices that are planned for, without code: their figures, read from a TOML file (docs/segmentation.md)."""

from __future__ import annotations

import math
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
        filters: constants are stored, and products computed, for so many results at a time.
        slot: seconds for one product, ``byte`` for a byte of constants or one that a stage is given or returns, ``fetch`` for a layer
            whose constants lie with the host.
    """

    memory: int
    filters: int
    slot: float = 0.0
    byte: float = 0.0
    fetch: float = 0.0

    def stored(self, weights: int, loops: Sequence[int]) -> int:
        """Bytes of a layer's constants as the device lays them out; ``loops`` are those of ``deeploy.graph.loops.LOOPS``, or none."""
        return self._products(loops) + weights - math.prod(loops[i] for i in (0, 1, 2, 5, 6)) if loops else weights

    def slots(self, loops: Sequence[int]) -> int:
        """Products that a layer computes, those that only fill up included."""
        return self._products(loops) * loops[3] * loops[4] if loops else 0

    def _products(self, loops: Sequence[int]) -> int:
        """Those of one place of the result: groups are filters of one channel."""
        groups, results, inputs, _, _, high, wide = loops
        return -(-groups * results // self.filters) * self.filters * inputs * high * wide


def load_device(file: Path) -> Device:
    """Read a device's file.

    Raises:
        UsageError: there is no such file.
        TargetError: it is not what its schema says; the entry is named.
    """
    data = read_document(file, "device.toml", TargetError)
    memory, time = data["memory"], data["time"]
    return Device(memory["bytes"], memory["filters"], *(float(time[name]) for name in ("slot", "byte", "fetch")))
