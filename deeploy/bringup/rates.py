"""A ``timing.toml`` from what a machine measures of compiled networks: cycles of every kernel's calls, products and outputs."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deeploy.bringup.fit import fit_coefficients
from deeploy.ir.target import ESTIMATE, Rate
from deeploy.planning import cost
from deeploy.planning.plan import Plan
from deeploy.planning.program import Call
from deeploy.target import Target

_MEASURED = "measured on {place} by deeploy calibrate. Give it to deeploy compile with --timing."
_ESTIMATED = "estimated: {place}. deeploy calibrate measures those of a board."
_HEAD = """# Cycles of {target}, {how}

[machine.clock]
mhz = {mhz:g}
tile = 0
provenance = {provenance}
"""
_ENGINE = """
[engine.{name}]
fork = 0
core_mw = 0
provenance = "part of the cycles of kernels; power was not measured"
"""
_KERNEL = """
[kernel."{name}"]
call = {call:g}
mac = {mac:g}
output = {output:g}
provenance = {provenance}
"""


_TOLD_APART = frozenset({"f32", "grouped"})  # words of instances of a kernel that take other cycles than its others
_FEW = 3  # layers of a kernel that say what a call takes besides products and outputs


@dataclass(frozen=True)
class Observed:
    """A layer on a machine: its kernel, with the words of instances that are told apart, its products, outputs, and cycles."""

    kernel: str
    macs: float
    outputs: float
    cycles: int


@dataclass(frozen=True)
class Fitted:
    """The rate of a kernel, from how many layers, and the median of its relative errors for them."""

    rate: Rate
    layers: int
    error: float

    @property
    def provenance(self) -> str:
        return f"{self.layers} layer{'s' * (self.layers != 1)}, median error {self.error:.1%}"


def observe_layers(plan: Plan, layers: Sequence[tuple[str, int]]) -> list[Observed]:
    """What was measured of the layers of a plan for one memory, in the plan's order."""
    observations = []
    for call, (name, cycles) in zip(plan.program.calls, layers, strict=True):
        assert call.name == name
        instance = " ".join([call.kernel.name, *sorted(_TOLD_APART & cost.instance_words(call))])
        observations.append(Observed(instance, _count_work(call, Rate(0, 1, 0)), _count_work(call, Rate(0, 0, 1)), cycles))
    return observations


def _count_work(call: Call, rate: Rate) -> float:
    """How often what a rate prices occurs in a call of one tile."""
    sizes = call.geometry.extents
    return float(cost.work_of(call, rate).cycles(lambda dim, step: cost.whole_steps(sizes[dim], step) if step else 1))


def fit_rates(layers: Sequence[Observed]) -> dict[str, Fitted]:
    """The rate of every kernel: ``cycles = call + mac * macs + output * outputs``, none negative.

    Kernels that were not measured are taken to be as slow as the slowest by products and outputs, with the median of what a call takes
    besides, so that none of them is chosen for being unknown.
    """
    groups: dict[str, list[Observed]] = {}
    for layer in layers:
        groups.setdefault(layer.kernel, []).append(layer)
    rates = {name: _fit_rate(some) for name, some in sorted(groups.items())}
    known = [one.rate for one in rates.values()]
    slowest = Rate(float(np.median([rate.call for rate in known])), max(rate.mac for rate in known), max(rate.output for rate in known))
    return {ESTIMATE: Fitted(slowest, len(layers), _relative_error(layers, slowest)), **rates}


def _fit_rate(layers: Sequence[Observed]) -> Fitted:
    features = np.array([[float(len(layers) >= _FEW), layer.macs, layer.outputs] for layer in layers])
    cycles = np.array([max(layer.cycles, 1) for layer in layers], float)
    call, mac, output = (float(value) for value in fit_coefficients(features, cycles))
    rate = Rate(call, mac, output)
    return Fitted(rate, len(layers), _relative_error(layers, rate))


def predict_layer(rates: Mapping[str, Fitted], layer: Observed) -> float:
    """Cycles of a layer by the rates of kernels."""
    rate = rates.get(layer.kernel, rates[ESTIMATE]).rate
    return rate.call + rate.mac * layer.macs + rate.output * layer.outputs


def _relative_error(layers: Sequence[Observed], rate: Rate) -> float:
    return float(np.median([abs((rate.call + rate.mac * x.macs + rate.output * x.outputs) / max(x.cycles, 1) - 1) for x in layers]))


def write_rates(target: Target, rates: Mapping[str, Fitted], place: str, mhz: float, is_estimate: bool = False) -> str:
    """The text of a ``timing.toml`` with the fitted rates, cycles at ``mhz``; ``place`` is where they were measured, or estimated."""
    when = f"{place}, {datetime.date.today().isoformat()}"
    how = (_ESTIMATED if is_estimate else _MEASURED).format(place=place)
    parts = [_HEAD.format(target=target.name, how=how, mhz=mhz, provenance=json.dumps(f"{'estimate: ' * is_estimate}the clock of {when}"))]
    parts += [_ENGINE.format(name=engine.name) for engine in target.engines]
    for name, observed_rate in rates.items():
        origin = f"{'estimate: ' * (is_estimate or name == ESTIMATE)}{observed_rate.provenance}: {when}"
        rate = observed_rate.rate
        parts.append(_KERNEL.format(name=name, call=rate.call, mac=rate.mac, output=rate.output, provenance=json.dumps(origin)))
    return "".join(parts)
