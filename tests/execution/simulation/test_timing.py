"""What a call is bound by, and what an inference costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from deeploy.execution.simulation.timing import CallTiming, Traffic, energy


@pytest.mark.parametrize(
    ("compute", "overhead", "issue", "busy", "bound"),
    [(10, 4, 5, 9, "compute"), (10, 6, 5, 9, "overhead"), (10, 5, 6, 9, "overhead"), (10, 4, 5, 11, "L2_L1")],
)
def test_a_call_is_bound_by_what_is_busiest(compute: float, overhead: float, issue: float, busy: float, bound: str) -> None:
    """The first core sets tiles up and starts transfers, one after the other."""
    call = CallTiming("call", 0, 20, compute, overhead, issue, traffic={"L2_L1": Traffic(busy=busy), "L3_L2": Traffic(busy=1)})
    assert call.bound == bound


def test_energy_is_power_by_time_and_bytes_by_their_price() -> None:
    """A microsecond of eight cores of 100 mW, and a thousand bytes of 10 pJ."""
    timing = SimpleNamespace(mhz=360, core_mw={"cluster": 100, "npu": 7}, paths={"L2_L1": SimpleNamespace(pj_per_byte=10)})
    target = SimpleNamespace(timing=timing, engine=lambda name: SimpleNamespace(cores=8))
    call = SimpleNamespace(parts=(SimpleNamespace(kernel=SimpleNamespace(engine="cluster")),))
    plan: Any = SimpleNamespace(target=target, machine=SimpleNamespace(cores=9), program=SimpleNamespace(calls=[call, call]))
    found = energy(plan, 360, {"L2_L1": Traffic(600, 400)})
    assert (found.cores, found.paths, found.total) == (pytest.approx(0.8), {"L2_L1": pytest.approx(0.01)}, pytest.approx(0.81))
