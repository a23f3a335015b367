"""What a call is bound by, and what an inference costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from deeploy.execution.simulation.timing import CallTiming, Traffic
from deeploy.planning.energy import energy


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
    path = SimpleNamespace(pj_per_byte=10)
    timing = SimpleNamespace(
        mhz=360, core_mw={"cluster": 100, "npu": 7}, paths={"L2_L1": path}, static_mw=50, active_mw={"npu": 30}, memory_pj={}
    )
    engines = {name: SimpleNamespace(name=name, cores=8, accelerator=name == "npu", memory="L1") for name in ("cluster", "npu")}
    target = SimpleNamespace(timing=timing, engine=engines.get, engines=list(engines.values()), is_flat=False)
    calls = [SimpleNamespace(parts=(SimpleNamespace(kernel=SimpleNamespace(engine=name, link=None)),), operands={}) for name in engines]
    plan: Any = SimpleNamespace(target=target, machine=SimpleNamespace(cores=9), program=SimpleNamespace(calls=calls))
    found = energy(plan, 360, {"L2_L1": 1000}, {"npu": 180})
    assert found.parts == pytest.approx({"cores": 0.8, "npu": 0.015, "L2_L1": 0.01, "static": 0.05})
    assert (found.total, found.missing) == (pytest.approx(0.875), ())
