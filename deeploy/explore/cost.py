"""Latency and energy of every (layer, unrolling) pair, with the best innermost loop of each; NumPy over all pairs at once.

An array that unrolls loop d by u_d takes t_d = ceil(D_d / u_d) steps along a loop of D_d iterations and has on average
D_d / t_d lanes at work. In one cycle it needs these elements (paper, section III, whose factors u_d these are where u_d divides
D_d; groups and strides are ours):

    W = G K C FY FX        I = G C px(OY, FY) px(OX, FX)        O = G K OY OX

px(o, f) counts the different input rows (or columns) under o outputs and f taps: o + f - 1 at stride 1.

The innermost loop decides what stays in the registers: under C, FY, FX the sums, under K the inputs, under OY, OX the weights,
under G nothing. All loops that leave this operand alone are put directly around, so it changes once in ``run`` cycles, run being
the product of their steps; the paper's formulas are the limit of long runs. Under FX (FY) the windows move on by whole columns
(rows). Where elements pass inputs on to their neighbours, each of these is read once in the t cycles of that loop, px(OX, FX
whole) / t in a cycle; where they do not, all of them are read again.

A memory at the array that needs more bits per cycle than its bandwidth stalls the array by that ratio. Where several operands
share it, their bits add up. Energy is bits moved times energy per bit, for every level, plus multiply-accumulates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deeploy.explore.hardware import OPERANDS, Hardware, HardwareStore
from deeploy.ir.loops import LOOPS, LayerLoops

Array = np.ndarray

INNER = ("C", "K", "O", "FX", "FY", "G")  # innermost loops; O stands for OX and OY, which leave the same operand alone
_STEPS = {"C": ("C",), "K": ("K",), "O": ("OY", "OX"), "FX": ("FX",), "FY": ("FY",), "G": ("G",)}
_STATIONARY = {"C": "output", "FX": "output", "FY": "output", "K": "input", "O": "weight", "G": ""}
_IRRELEVANT = {"weight": ("OY", "OX"), "input": ("K",), "output": ("C", "FY", "FX")}
_CHUNK = 512  # unrollings evaluated at once: the arrays of a chunk stay in the cache


@dataclass(frozen=True)
class Assumptions:
    """How the paper is read, and what it leaves open; the defaults follow its text.

    Attributes:
        idle_lanes_need_bandwidth: section III states the bandwidth an unrolling needs by its factors, whatever the layer.
        idle_lanes_cost_energy: energy counts "the number of times each data has to be accessed"; lanes without data cost none.
        stationary_needs_bandwidth: the stationary operand changes once in a run; the formulas, stated as approximations, leave
            it out, which is their limit for long runs.
        whole_words: an access of a memory costs the energy of as many bits as it is wide, however few are needed.
        port_per_operand: a shared memory gives its bandwidth to every operand instead of dividing it.
        complete_sums_are_narrow: a sum that is complete goes to its memory with the result's bits, as results do; the paper's formula has
            the bits of partial sums throughout.
        array_energy: multiply-accumulates and registers cost energy, not only memories.
    """

    idle_lanes_need_bandwidth: bool = True
    idle_lanes_cost_energy: bool = False
    stationary_needs_bandwidth: bool = True
    whole_words: bool = False
    port_per_operand: bool = False
    complete_sums_are_narrow: bool = False
    array_energy: bool = True


@dataclass(frozen=True)
class UnrollingCosts:
    """Costs of one layer of each kind, by unrolling and layer: cycles, picojoule, share of elements at work, innermost loop.

    ``inner`` indexes ``INNER``; ``temporal`` is the share of cycles without a stall.
    """

    cycles: Array  # float64[N, L]
    energy: Array  # float64[N, L]
    utilisation: Array  # float64[N, L]
    temporal: Array  # float64[N, L]
    inner: Array  # int8[N, L]


def evaluate_unrollings(
    factors: Array, layers: Sequence[LayerLoops], hardware: Hardware, assumptions: Assumptions | None = None
) -> UnrollingCosts:
    """Costs of every pair; the innermost loop is the one with the least product of cycles and energy.

    Args:
        factors: int64[N, 7], as in ``Unrollings``.
    """
    model = _CostModel(layers, hardware, assumptions or Assumptions())
    parts = [model.costs(factors[begin : begin + _CHUNK]) for begin in range(0, len(factors), _CHUNK)]
    return UnrollingCosts(*(np.concatenate([getattr(part, name) for part in parts]) for name in UnrollingCosts.__dataclass_fields__))


def count_pixels(outputs: Array, taps: Array, stride: Array, dilation: Array) -> Array:
    """Different input indices under ``outputs`` x ``taps``: stride*i + dilation*j takes equal values at (i - d', j + s').

    d' and s' are dilation and stride without their common divisor; outputs + taps - 1 where both are 1.
    """
    common = np.gcd(stride, dilation)
    overlap = np.maximum(outputs - dilation // common, 0) * np.maximum(taps - stride // common, 0)
    return np.asarray(outputs * taps - overlap)


class _CostModel:
    """The layers as arrays, and what does not depend on the unrolling."""

    def __init__(self, layers: Sequence[LayerLoops], hardware: Hardware, assumptions: Assumptions) -> None:
        self.hardware, self.assumptions = hardware, assumptions
        self.size = {loop: np.array([layer.sizes[d] for layer in layers], np.float64) for d, loop in enumerate(LOOPS)}
        self.stride = {d: np.array([layer.strides[i] for layer in layers]) for i, d in enumerate("YX")}
        self.dilation = {d: np.array([layer.dilations[i] for layer in layers]) for i, d in enumerate("YX")}
        self.macs = np.prod(list(self.size.values()), axis=0)
        self.results = self.size["G"] * self.size["K"] * self.size["OY"] * self.size["OX"]
        self.outer_memories = self._cost_outer_memories()

    def costs(self, factors: Array) -> UnrollingCosts:
        unroll = {loop: factors[:, d : d + 1].astype(np.float64) for d, loop in enumerate(LOOPS)}
        steps = {loop: np.ceil(self.size[loop] / unroll[loop]) for loop in LOOPS}
        lanes = {loop: self.size[loop] / steps[loop] for loop in LOOPS}
        ideal = np.prod(list(steps.values()), axis=0)
        every = {loop: np.broadcast_to(unroll[loop], ideal.shape) for loop in LOOPS}
        fed = every if self.assumptions.idle_lanes_need_bandwidth else lanes
        paid = every if self.assumptions.idle_lanes_cost_energy else lanes
        wanted, moved = self._needed(fed), self._needed(paid)
        best: list[Array] = []
        for candidate, inner in enumerate(INNER):
            exists = np.prod([steps[loop] for loop in _STEPS[inner]], axis=0) > 1
            for runs in self._in_registers(inner, steps):
                is_complete = runs.get("output", 1) >= np.prod([steps[loop] for loop in _IRRELEVANT["output"]], axis=0)
                stall = self._stall(self._per_cycle(inner, wanted, fed, steps, runs), runs, is_complete)
                cycles = np.maximum(ideal * stall, self.outer_memories[0])
                energy = self._energy(self._per_cycle(inner, moved, paid, steps, runs), runs, ideal)
                product = np.where(exists | (inner == "G"), cycles * energy, np.inf)
                columns = [product, cycles, energy, ideal / cycles, np.full(product.shape, candidate, np.int8)]
                best = columns if not best else [np.where(product < best[0], new, old) for new, old in zip(columns, best, strict=True)]
        return UnrollingCosts(best[1], best[2], self.macs / (ideal * self.hardware.pes), best[3], best[4])

    def _needed(self, lanes: dict[str, Array]) -> dict[str, Array]:
        """Elements of each operand that the array needs in one cycle."""
        rows, columns = (count_pixels(lanes["O" + d], lanes["F" + d], self.stride[d], self.dilation[d]) for d in "YX")
        return {
            "weight": lanes["G"] * lanes["K"] * lanes["C"] * lanes["FY"] * lanes["FX"],
            "input": lanes["G"] * lanes["C"] * rows * columns,
            "output": lanes["G"] * lanes["K"] * lanes["OY"] * lanes["OX"],
        }

    def _in_registers(self, inner: str, steps: dict[str, Array]) -> list[dict[str, Array]]:
        """Runs of every operand in cycles, for the ways to use the registers.

        The stationary operand keeps its run of all loops that leave it alone. Where registers hold several of its words, a
        tile of another loop can go inside: that tile is the run of the operand which that other loop leaves alone.
        """
        stays = _STATIONARY[inner]
        if not stays:
            return [{}]
        run = {stays: np.prod([steps[loop] for loop in _IRRELEVANT[stays]], axis=0)}
        words = self.hardware.registers[OPERANDS.index(stays)]
        ways = [run]
        if words > 1:
            for other in OPERANDS:
                if other != stays:
                    ways.append({**run, other: np.minimum(np.prod([steps[loop] for loop in _IRRELEVANT[other]], axis=0), words)})
        return ways

    def _per_cycle(
        self, inner: str, needed: dict[str, Array], lanes: dict[str, Array], steps: dict[str, Array], runs: dict[str, Array]
    ) -> dict[str, Array]:
        """Elements per cycle between the array and its memories, on average."""
        flow = {operand: needed[operand] / runs[operand] if operand in runs else needed[operand] for operand in OPERANDS}
        if inner in ("FX", "FY") and "input" not in runs and self.hardware.shifts_inputs:
            d = inner[1]
            window, whole = lanes["F" + d], lanes["F" + d] * steps[inner]
            new = count_pixels(lanes["O" + d], whole, self.stride[d], self.dilation[d]) / steps[inner]
            flow["input"] = flow["input"] * new / count_pixels(lanes["O" + d], window, self.stride[d], self.dilation[d])
        return flow

    def _stall(self, flow: dict[str, Array], runs: dict[str, Array], is_complete: Array) -> Array:
        """Cycles per cycle of the array: how much the busiest memory at the array slows it down; where sums leave it complete is given."""
        stall, bits = np.ones_like(flow["output"]), dict[str, Array | int]((operand, self.hardware.bits(operand)) for operand in OPERANDS)
        if self.assumptions.complete_sums_are_narrow:
            bits["output"] = np.where(is_complete, self.hardware.output_bits, self.hardware.partial_bits)
        for store in self.hardware.inner():
            loads = [flow[operand] * bits[operand] for operand in store.operands]
            if not self.assumptions.stationary_needs_bandwidth:
                loads = [np.where(runs.get(operand, 1) > 1, 0, load) for operand, load in zip(store.operands, loads, strict=True)]
            load = np.max(loads, axis=0) if self.assumptions.port_per_operand else np.sum(loads, axis=0)
            stall = np.maximum(stall, load / store.bandwidth)
        return stall

    def _energy(self, flow: dict[str, Array], runs: dict[str, Array], ideal: Array) -> Array:
        """Picojoule of a layer: memories at the array, registers, multiply-accumulates, and what lies behind."""
        hardware = self.hardware
        energy = self.outer_memories[1]
        for operand in OPERANDS:
            store, bits = hardware.levels(operand)[0], hardware.bits(operand)
            moved, padding = flow[operand] * ideal, np.ones(())
            if self.assumptions.whole_words:
                wanted = flow[operand] * runs.get(operand, 1) * bits / store.bandwidth
                padding = np.ceil(wanted) / wanted
            if operand == "output":
                partial = np.maximum(moved - self.results, 0) * bits * (store.read_pj_per_bit + store.write_pj_per_bit)
                energy = energy + padding * (partial + self.results * hardware.output_bits * store.write_pj_per_bit)
            else:
                energy = energy + padding * moved * bits * store.read_pj_per_bit
        if self.assumptions.array_energy:
            bits = hardware.weight_bits + hardware.input_bits + 2 * hardware.partial_bits
            energy = energy + self.macs * (hardware.mac_pj + bits * hardware.register_pj_per_bit)
        return np.asarray(energy)

    def _cost_outer_memories(self) -> tuple[Array, Array]:
        """Cycles and picojoule of the traffic between both levels, per layer.

        What does not fit the memory at the array is cut into pieces that do: either weights come in pieces and all inputs pass
        by each of them, or the other way round, whichever moves less. Sums are complete before they leave.
        """
        elements = {"weight": self._elements("w"), "input": self._elements("x"), "output": self.results}
        bits = {operand: self.hardware.bits(operand) for operand in ("weight", "input")} | {"output": self.hardware.output_bits}
        pieces = {operand: self._pieces(operand, elements[operand] * bits[operand]) for operand in ("weight", "input")}
        volume = {operand: elements[operand] * bits[operand] for operand in OPERANDS}
        by_weights = volume["weight"] + volume["input"] * np.where(pieces["input"] > 1, pieces["weight"], 1)
        by_inputs = volume["input"] + volume["weight"] * np.where(pieces["weight"] > 1, pieces["input"], 1)
        cheaper = by_weights <= by_inputs
        moved = {
            "weight": np.where(cheaper, volume["weight"], by_inputs - volume["input"]),
            "input": np.where(cheaper, by_weights - volume["weight"], volume["input"]),
            "output": volume["output"],
        }
        return self._transferred(moved)

    def _transferred(self, moved: dict[str, Array]) -> tuple[Array, Array]:
        energy, loads = np.zeros_like(self.macs), dict[str, Array]()
        for operand in OPERANDS:
            levels = self.hardware.levels(operand)
            if len(levels) < 2:
                continue
            near, far = levels
            inwards, outwards = far.read_pj_per_bit + near.write_pj_per_bit, near.read_pj_per_bit + far.write_pj_per_bit
            energy = energy + moved[operand] * (outwards if operand == "output" else inwards)
            loads[far.name] = loads.get(far.name, np.zeros_like(energy)) + moved[operand]
        stores: dict[str, HardwareStore] = {store.name: store for store in self.hardware.outer()}
        cycles = np.max([np.zeros_like(energy), *(load / stores[name].bandwidth for name, load in loads.items())], axis=0)
        return cycles, energy

    def _elements(self, operand: str) -> Array:
        """Elements of the weights ("w") or of the inputs ("x") of a layer, without padding."""
        if operand == "w":
            return np.asarray(self.size["G"] * self.size["K"] * self.size["C"] * self.size["FY"] * self.size["FX"])
        rows, columns = (count_pixels(self.size["O" + d], self.size["F" + d], self.stride[d], self.dilation[d]) for d in "YX")
        return np.asarray(self.size["G"] * self.size["C"] * rows * columns)

    def _pieces(self, operand: str, volume: Array) -> Array:
        """Into how many pieces an operand is cut to fit its memory at the array; 1 where there is nothing behind that."""
        levels = self.hardware.levels(operand)
        if len(levels) < 2 or levels[0].capacity is None:
            return np.ones_like(volume)
        return np.asarray(np.ceil(volume / (8 * levels[0].capacity)))
