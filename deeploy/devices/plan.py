"""Plans of pipelines for targets without code: what every stage holds, and how long it takes, by the figures of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from deeploy.devices.layers import Item, read_layers
from deeploy.devices.stages import DeviceStages, seconds_per_input
from deeploy.documents import Contents
from deeploy.errors import UsageError, shorten
from deeploy.ir.device import Device
from deeploy.ir.target import Target
from deeploy.ir.topology import Member
from deeploy.ir.values import Graph
from deeploy.options import Balance, Options
from deeploy.partition.balance_levels import BalancedLayer, Cuts, Levels, levels_of, stage_segments
from deeploy.partition.pipeline import check_states, choose_cuts_by, fewest_chips
from deeploy.planning.planner.machine import machine_of

BATCH = 15  # inputs that a throughput is given for: the study's
USUAL = -1  # in place of a stage: a device as the target says


@dataclass(frozen=True, eq=False)
class DevicePlan:
    """A network cut into stages for devices.

    Attributes:
        notes: what the user is told.
    """

    items: tuple[Item, ...]
    levels: Levels
    costs: DeviceStages
    cuts: Cuts
    balance: Balance
    notes: tuple[str, ...]

    @property
    def parts(self) -> list[tuple[int, int]]:
        """First level and the one behind the last of every stage."""
        return stage_segments(self.cuts, self.levels.depth)

    @property
    def seconds(self) -> tuple[float, ...]:
        """Predicted seconds that each stage takes for one input of the network."""
        return tuple(self.costs.seconds(*part, stage) for stage, part in enumerate(self.parts))

    def contents(self) -> Contents:
        """What is known of the plan, for scripts; times in milliseconds."""
        times, alone = self.seconds, self.costs.seconds(0, self.levels.depth, USUAL)
        one = self.costs.use(0, self.levels.depth, USUAL)
        return {
            "layers": len(self.items),
            "levels": self.levels.depth,
            "macs": sum(item.macs for item in self.items),
            "balance": self.balance,
            "stages": [self._stage(stage) for stage in range(len(times))],
            "host": sum(self.costs.use(*part, stage).fetched for stage, part in enumerate(self.parts)),
            "slowest_ms": _to_milliseconds(max(times)),
            "latency_ms": _to_milliseconds(sum(times)),
            "batch": {"inputs": BATCH, "ms_per_input": _to_milliseconds(seconds_per_input(times, BATCH))},
            "one_device": {"ms": _to_milliseconds(alone), "held": one.held, "host": one.fetched},
            "speedup": round(alone / seconds_per_input(times, BATCH), 3),
        }

    def _stage(self, stage: int) -> Contents:
        first, end = self.parts[stage]
        use, shares = self.costs.use(first, end, stage), self.costs.shares(first, end, stage)
        positions = sorted(position for row in self.levels.layers[first:end] for position in row)
        return {
            "memory": self.costs.at(stage).memory,
            "levels": [first, end],
            "first": self.items[positions[0]].name,
            "layers": len(positions),
            "macs": sum(self.items[position].macs for position in positions),
            "held": use.held,
            "host": use.fetched,
            "host_layers": use.fetches,
            "given": self.levels.crossing[first],
            "returned": self.levels.crossing[end],
            "ms": _to_milliseconds(sum(shares)),
            "ms_of": dict(zip(("products", "host", "moved"), map(_to_milliseconds, shares), strict=True)),
            "idle": round(1 - sum(shares) / max(self.seconds), 4),
        }


def _to_milliseconds(seconds: float) -> float:
    return round(1e3 * seconds, 6)


def plan_devices(
    graph: Graph,
    target: Target,
    chips: int | Literal["auto"],
    balance: Balance,
    options: Options,
    members: Mapping[int, Member] | None = None,
) -> DevicePlan:
    """Cut a lowered graph into a pipeline of a target's devices; ``members`` are those that differ.

    Raises:
        UsageError, FitError, UnsupportedError: it cannot be cut so.
    """
    check_states(graph)
    assert target.device is not None
    machine_of(target, options.with_memory({}))  # refuses what such a target does not have
    usual = _limited_device(target, target.device, options.capacities)
    others = {chip: _device_member(target, usual, chip, member) for chip, member in (members or {}).items()}
    device_layers = read_layers(graph, target.kernels)
    layers = [BalancedLayer(item.name, item.reads, item.weights, item.output) for item in device_layers.items]
    levels = levels_of(layers, device_layers.given, device_layers.returned)
    costs = DeviceStages(levels, layers, [item.loops for item in device_layers.items], usual, others)
    count = fewest_chips(levels, costs) if chips == "auto" else chips
    cuts = choose_cuts_by(levels, count, balance, costs)
    return DevicePlan(device_layers.items, levels, costs, cuts, balance, _explain_host_constants(device_layers.items, costs, cuts))


def _limited_device(target: Target, device: Device, capacities: Mapping[str, int]) -> Device:
    """The device with less memory, where an option says so."""
    memory = target.memories[0]
    for name, size in capacities.items():
        if name != memory.name.lower():
            raise UsageError(f"target {target.name} has no memory {shorten(name)}", f"Its memories: {memory.name}.")
        if size > device.memory:
            raise UsageError(f"memory {memory.name} has {device.memory} bytes for constants, not {size}", "Give it less.")
        device = replace(device, memory=size)
    return device


def _device_member(target: Target, device: Device, chip: int, member: Member) -> Device:
    if member.cores is not None or member.engines is not None:
        raise UsageError(f"chip {chip}: target {target.name} has neither cores nor engines to choose", "Say memory only.")
    return _limited_device(target, device, member.capacities)


def _explain_host_constants(items: tuple[Item, ...], costs: DeviceStages, cuts: Cuts) -> tuple[str, ...]:
    """Why constants lie with the host: layers that no device holds are named."""
    parts = stage_segments(cuts, costs.levels.depth)
    most = max(costs.at(stage).memory for stage in range(len(parts)))
    sizes = [costs.device.stored(item.weights, item.loops) for item in items]
    notes = [
        f"layer {shorten(item.name)} has {size} bytes of constants, more than a device: it lies with the host on any of them"
        for item, size in zip(items, sizes, strict=True)
        if size > most
    ]
    host = sum(costs.use(*part, stage).fetched for stage, part in enumerate(parts))
    if host:
        notes.append(f"{host} bytes of constants lie with the host, and are fetched at every inference")
    return tuple(notes)
