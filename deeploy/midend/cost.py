"""Cycles of a tiled call, predicted in closed form from a target's timing.

With single buffering everything adds up. With two slots per window, the transfers of one tile run while another is
computed: the longer of the two counts, besides the first window to arrive and the last one to leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deeploy.graph.loops import from_geometry, slots
from deeploy.graph.target import Rate, Target
from deeploy.midend.program import Call


@dataclass(frozen=True)
class Load:
    """What one path does for a call: cycles on the path in all, for the first window in and for the last one out."""

    data: Any = 0.0
    first: Any = 0.0
    last: Any = 0.0


def work(call: Call, target: Target) -> float:
    """Cycles that one core computes for the whole call, apart from what every tile costs."""
    assert target.timing is not None
    rate = target.timing.kernel(call.kernel.name)
    outputs = sum(call.operands[name].access_elements for name in call.writes)
    return rate.mac * products(call, rate) + rate.output * outputs


def products(call: Call, rate: Rate) -> int:
    """Multiply-accumulates of a call; on an array that unrolls loops, with those of elements that have no work in a cycle."""
    if not rate.unrolling:
        return call.geometry.macs()
    names = [name.rstrip("?") for name in call.kernel.inputs]
    constants = {name for name, tensor in zip(names, call.node.inputs, strict=False) if tensor is not None and tensor.data is not None}
    return sum(slots(layer, rate.unrolling) for layer in from_geometry(call.node.name, call.geometry, constants))


def overhead(call: Call, target: Target) -> float:
    """Cycles that every tile costs besides its share of the work: to set it up and to call the kernel."""
    assert target.timing is not None
    return target.timing.tile + target.timing.kernel(call.kernel.name).call


def fork(call: Call, target: Target) -> float:
    """Cycles to start a team for a tile and to join it."""
    assert target.timing is not None
    return target.timing.fork.get(call.kernel.engine, 0.0)


def total(compute: Any, issue: Any, loads: Mapping[str, Load], is_double: bool) -> Any:
    """Cycles of a call whose tiles take ``compute`` in all; works on numbers and on arrays of them.

    ``issue`` is what the first core spends to start transfers; it overlaps with nothing.
    """
    ends: Any = sum(load.first + load.last for load in loads.values())
    if not is_double:
        return compute + issue + sum(load.data for load in loads.values())
    longest = compute
    for load in loads.values():
        rest = load.data - load.first - load.last
        longest = (longest + rest + abs(longest - rest)) / 2  # the larger of the two, for arrays too
    return longest + issue + ends
