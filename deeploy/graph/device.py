"""Devices that are planned for, without code: their figures, read from a TOML file (docs/segmentation.md)."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeploy.errors import TargetError

_HOLDS = "docs/segmentation.md lists what a device's file holds."


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
        TargetError: it is no TOML, an entry is missing, makes no sense, or does not say where its figures are from.
    """
    try:
        data: dict[str, Any] = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TargetError(f"{file}: {error}", _HOLDS) from error
    for name, entry in data.items():
        if not isinstance(entry, dict) or not entry.get("provenance"):
            raise TargetError(f"{file.name}: entry {name} does not say where its figures are from", "Give it a provenance.")
    try:
        memory, time = data["memory"], data["time"]
        units = (int(memory[name]) for name in ("bytes", "filters"))
        found = Device(*units, *(float(time[name]) for name in ("slot", "byte", "fetch")))
    except KeyError as error:
        raise TargetError(f"{file.name}: the figure {error} is missing", _HOLDS) from error
    except (TypeError, ValueError) as error:
        raise TargetError(f"{file.name}: a figure is no number: {error}", _HOLDS) from error
    if found.memory < 1 or found.filters < 1 or min(found.slot, found.byte, found.fetch) < 0:
        raise TargetError(f"{file.name}: a figure is negative, or a device without memory", _HOLDS)
    return found
