"""Small networks of which each has other parts of a plan: windows, accelerators and cores, fused groups, chains on a flat machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import deeploy
from tests.hal.hand_written import doubled, staged, sums
from tests.schedule.test_fused_groups import residual


def chained(folder: Path) -> deeploy.Compiled:
    """Rows that are handed on in rings on a flat machine, with strides, halos and a branch."""
    return residual(folder)


NETWORKS: Mapping[str, Callable[[Path], deeploy.Compiled]] = {made.__name__: made for made in (doubled, chained, sums, staged)}
