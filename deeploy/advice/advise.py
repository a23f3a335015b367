"""The list of what would help a network, ranked by the cycles that it saves: every entry is the answer to a query about its plan.

A change that saves less than a hundredth of the cycles is left out, and so is one that no query can answer for. Gains do not add up:
two changes may help the same layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from deeploy.advice.changes import changed, powers_of_two, symmetric_weights
from deeploy.advice.costs import Better, Costs, identity
from deeploy.advice.quantised import MOST_BYTES, activations_of, weights_of
from deeploy.documents import Contents, Document
from deeploy.errors import DeeployError
from deeploy.frontend.io import strip_quantisation
from deeploy.frontend.lower.in_int8 import in_int8
from deeploy.graph.rewriting import rewrite
from deeploy.graph.target import Target
from deeploy.graph.values import Graph, change_nodes
from deeploy.midend.assemble import assemble
from deeploy.midend.cost import form
from deeploy.midend.cost import instance as kernel_instance
from deeploy.midend.machine import Options, kernels_of, machine_of
from deeploy.midend.misfit import quantise
from deeploy.midend.plan import Machine, Plan
from deeploy.midend.program import Call, Program, State, chosen
from deeploy.operators.requantise import fused

ROUNDED = 1000  # parts of all cycles
LEAST = 0.01  # of all cycles: what an entry has to save
SIZES = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # of a memory, as multiples of what the plan may use
ENOUGH = 0.9  # of the gain that the largest memory has
_QUERY = "the costs of these layers, with tensors in the memories that the plan has them in"


@dataclass(frozen=True)
class Subject:
    """A compiled network: what queries are about.

    Attributes:
        graph: as it was lowered, before kernels were chosen.
        entry: its part of ``deploy.json``.
        is_exact: whether engines requantise exactly (``--requantise exact``).
        is_dialect: whether the model is in the integer dialect, which rounds half up.
        is_part: whether it is what one of several chips computes.
        imported: as it was before it was lowered; None where that is not known.
    """

    plan: Plan
    graph: Graph
    entry: Document
    is_exact: bool
    is_dialect: bool
    is_part: bool = False
    imported: Graph | None = None

    @property
    def target(self) -> Target:
        return self.plan.target

    def program(self, graph: Graph | None = None, machine: Machine | None = None) -> Program:
        """The program of a graph, by the kernels of a machine; of the network's own where none are given."""
        kernels = kernels_of(self.target, machine or self.plan.machine)
        return assemble(self.plan.program.name, self.graph if graph is None else graph, *kernels)


def advise(subject: Subject) -> list[Contents]:
    """The changes that would help: of a float network first its quantisation, then those that save cycles, the best first."""
    first = [_quantise(subject)] if subject.plan.program.is_float else []
    if not subject.plan.offered or not subject.entry["cycles"] or subject.target.is_flat:
        return first
    costs = Costs(subject.plan, [call["cycles"] for call in subject.entry["calls"]])
    found: list[Contents] = []
    for query in (_memory, _scales, _requantisers, _weights, _engines, _cores, _buffering, _edges):
        found += query(subject, costs)
    return first + sorted((entry for entry in found if entry["share"] >= LEAST), key=lambda entry: -int(entry["gain"]))


def _entry(
    subject: Subject,
    kind: str,
    title: str,
    why: str,
    options: Sequence[str],
    layers: Sequence[Contents],
    how: str = _QUERY,
    less: int = 0,
) -> Contents:
    """An entry; ``less`` cycles of what its layers gain are spent elsewhere.

    Its gain is rounded up to thousandths of the network's cycles: layers that do not change may start a little earlier as well.
    """
    cycles = max(1, int(subject.entry["cycles"]))
    saved = max(0, min(sum(int(layer["gain"]) for layer in layers), cycles) - less)
    gain = min(cycles, math.ceil(cycles * math.ceil(ROUNDED * saved / cycles) / ROUNDED))
    ranked = sorted(layers, key=lambda layer: -int(layer["gain"]))
    share = gain / cycles
    return {
        "kind": kind,
        "title": title,
        "why": why,
        "how": f"Predicted from {how}{', for this chip alone: others may have to be waited for' if subject.is_part else ''}.",
        "options": list(options),
        "gain": gain,
        "share": share,
        "layers": ranked,
    }


def _layer(subject: Subject, step: int, gain: int, text: str) -> Contents:
    call = subject.plan.program.calls[step]
    return {"name": call.name, "node": call.node.name, "gain": gain, "text": text}


def _layers(subject: Subject, found: Iterable[Better]) -> list[Contents]:
    return [_layer(subject, better.step, better.gain, f"by {instance(better.call, subject.target)}") for better in found]


def instance(call: Call, target: Target) -> str:
    """The kernel of a call with the form in which it requantises, and its engine."""
    return f"{kernel_instance(call, target)} on {call.kernel.engine}"


def _counted(count: int, words: str = "layer") -> str:
    return f"{count} {words}{'s' * (count != 1)}"


# ---- the machine


def _memory(subject: Subject, costs: Costs) -> list[Contents]:
    """More of the memory of the engines, up to what the target has: as much as gives nearly all of the gain."""
    plan, level = subject.plan, costs.levels[0]
    most, now = machine_of(subject.target, Options()).capacities[level], plan.machine.capacities[level]
    if most <= now or all(min(c.cycles for c in offered) >= own.cycles for offered, own in zip(plan.offered, plan.calls, strict=True)):
        return []
    machine, program = replace(plan.machine, capacities={**plan.machine.capacities, level: most}), subject.program()
    offers = [(near, costs.loads(level, near), _ways(costs, program, machine, near)) for near in (False, True)]
    sizes = sorted({min(most, int(now * size) // 1024 * 1024) for size in SIZES} | {most})
    found: list[tuple[int, list[tuple[Better, int]]]] = []
    for size in (size for size in sizes if size > now):
        choices = [_within(costs, size, loads, ways, level) for _, loads, ways in offers]
        found.append((size, max(choices, key=lambda rows: sum(better.gain for better, _ in rows))))
    gains = [sum(better.gain for better, _ in rows) for _, rows in found]
    best = max(gains, default=0)
    size, rows = next(((size, rows) for (size, rows), gain in zip(found, gains, strict=True) if gain >= ENOUGH * best), (0, []))
    if not rows:
        return []
    option = f"--{level.lower()}" if level in ("L1", "L2") else "--memory"
    value = str(size) if level in ("L1", "L2") else f"{level}={size}"
    layers = [
        _layer(subject, better.step, better.gain, f"by {instance(better.call, subject.target)}, {_room(level, lack)}")
        for better, lack in rows
    ]
    why = f"{_counted(len(layers))} would run faster with more {level}: the plan may use {now} bytes, {subject.target.name} has {most}"
    return [_entry(subject, "memory", f"{option} {value}", why, (option, value), layers)]


def _room(level: str, lack: int) -> str:
    """What a faster way needs: bytes for its windows, or only that tensors lie nearer."""
    return f"which needs {lack} bytes more of {level} than are free" if lack else f"with its tensors in {level}"


def _ways(costs: Costs, program: Program, machine: Machine, near: bool) -> dict[int, list[Better]]:
    """What every call could be with more memory, the fastest first."""
    found = {}
    for step, number in costs.pairs(program):
        ways = [
            Better(step, variant, candidate, costs.gain(step, candidate))
            for variant in program.variants(number)
            for candidate in costs.candidates(step, variant, program, machine, near)
        ]
        found[step] = sorted(ways, key=lambda way: -way.gain)
    return found


def _need(costs: Costs, way: Better, level: str) -> int:
    """The bytes of a memory that a way takes; none of one that its engine, such as that of a chip's links, does not work in."""
    reach = costs.reach(way.call)
    return way.candidate.bytes[reach.index(level)] if level in reach else 0


def _within(costs: Costs, size: int, loads: Mapping[int, int], ways: dict[int, list[Better]], level: str) -> list[tuple[Better, int]]:
    """The faster ways in a memory of some bytes, and how many bytes more each needs than are free now; none where tensors do not fit."""
    found = []
    for step, offers in ways.items():
        room = size - loads[step]
        best = next((way for way in offers if _need(costs, way, level) <= room), None)
        if best is None:
            return []
        if best.gain > 0:
            lack = _need(costs, best, level) - costs.rooms.free(level, step, costs.plan.program.calls[step].name)
            found.append((best, max(0, lack)))
    return found


def _engines(subject: Subject, costs: Costs) -> list[Contents]:
    """The engines that ``--engines`` leaves out."""
    every = machine_of(subject.target, Options()).engines
    left_out = [name for name in every if name not in subject.plan.machine.engines]
    if not left_out:
        return []
    machine = replace(subject.plan.machine, engines=every)
    found = costs.better(subject.program(machine=machine), machine, lambda call: call.kernel.engine in left_out)
    why = f"{_counted(len(found))} would run faster on {' and '.join(left_out)}, which --engines leaves out"
    return [_entry(subject, "engines", "Leave --engines out", why, (), _layers(subject, found))]


def _cores(subject: Subject, costs: Costs) -> list[Contents]:
    """The cores that ``--cores`` leaves out."""
    most = machine_of(subject.target, Options()).cores
    if subject.plan.machine.cores >= most:
        return []
    found = costs.better(subject.program(), replace(subject.plan.machine, cores=most))
    why = f"{_counted(len(found))} would run faster on {most} cores instead of {subject.plan.machine.cores}"
    return [_entry(subject, "cores", f"--cores {most}", why, ("--cores", str(most)), _layers(subject, found))]


def _buffering(subject: Subject, costs: Costs) -> list[Contents]:
    """Both kinds of buffering, where ``--buffering`` allows one."""
    if subject.plan.machine.buffering == "auto":
        return []
    found = costs.better(subject.program(), replace(subject.plan.machine, buffering="auto"))
    why = (
        f"{_counted(len(found))} would run faster with one or two buffers, whichever is better, instead of {subject.plan.machine.buffering}"
    )
    return [_entry(subject, "buffering", "--buffering auto", why, ("--buffering", "auto"), _layers(subject, found))]


# ---- the model


def _quantise(subject: Subject) -> Contents:
    """The network in int8: its bytes, and its cycles where these are known of floats and of integers."""
    program, whole, cycles = subject.plan.program, _in_int8(subject), subject.entry["cycles"]
    before = weights_of(program), activations_of(program)
    after, about = (before[0] // 4, before[1] // 4), "about "
    how, layers, less = "", list[Contents](), 0
    if whole is not None:
        numbers = [0] * len(whole.calls)
        if cycles and subject.plan.offered:
            costs = Costs(subject.plan, [call["cycles"] for call in subject.entry["calls"]])
            fewest = [[costs.alone(v, whole, subject.plan.machine) for v in whole.variants(n)] for n in range(len(whole.calls))]
            numbers = [row.index(min(row)) for row in fewest]
            gains = [(step, round(costs.cycles[step] - min(fewest[number]))) for step, number in costs.pairs(whole)]
            layers = [_layer(subject, step, gain, "on integers") for step, gain in gains if gain > 0]
            less = sum(int(layer["gain"]) for layer in layers) - (int(cycles) - sum(map(min, fewest)))
            how = "the fewest cycles of the same layers on integers, with activations in the memory of the engines"
        whole = chosen(whole, numbers)
        after, about = (weights_of(whole), activations_of(whole)), ""
    why = (
        f"the network computes floats; in int8, weights take {about}{after[0]} bytes instead of {before[0]}, "
        f"and activations {about}{after[1]} instead of {before[1]}"
    )
    title = f"Quantise the network: {quantise(subject.target)} MODEL --calibrate SAMPLES.npz -o INT8.onnx"
    if layers:
        return _entry(subject, "quantise", title, why, (), layers, how, less)
    how = "Bytes are those of the same layers on integers."
    return {"kind": "quantise", "title": title, "why": why, "how": how, "options": [], "gain": 0, "share": 0.0, "layers": []}


def _in_int8(subject: Subject) -> Program | None:
    """The program of the network in int8; None where nobody can say, as for what a target has no integer kernels for."""
    program = subject.plan.program
    if subject.imported is None or program.growth is not None or weights_of(program) > MOST_BYTES:
        return None
    try:
        return subject.program(rewrite(in_int8(subject.imported), subject.target.passes))
    except DeeployError:
        return None


def _edges(subject: Subject, costs: Costs) -> list[Contents]:
    """Integer inputs and outputs instead of floats that the network converts itself; what has to be copied then is counted."""
    states = _states(subject)
    graph, stripped = strip_quantisation(subject.graph, {state.past for state in states} | {state.present for state in states})
    if not stripped:
        return []
    program = subject.program(graph)
    kept = {identity(call) for call in program.calls}
    steps = [step for step, call in enumerate(subject.plan.program.calls) if identity(call) not in kept]
    if not steps:
        return []
    layers = [_layer(subject, step, int(subject.entry["calls"][step]["cycles"]), "is left out") for step in steps]
    added = sum(costs.alone(call, program, subject.plan.machine) for call in program.calls if identity(call) not in costs.steps)
    why = f"{_counted(len(steps))} convert floats at the network's inputs and outputs; an application that has integers needs none of them"
    how = f"the cycles of these layers, less {added} cycles for copies that are needed instead" if added else "the cycles of these layers"
    return [_entry(subject, "quantised-io", "--quantised-io", why, ("--quantised-io",), layers, how, added)]


def _states(subject: Subject) -> Sequence[State]:
    growth = subject.plan.program.growth
    return growth.states if growth is not None else ()


def _slow(subject: Subject) -> list[int]:
    """The steps of calls that requantise in more than 32 bits, or in cores behind an accelerator."""
    calls = subject.plan.program.calls
    return [step for step, call in enumerate(calls) if _is_slow(call, subject.target)]


def _scales(subject: Subject, costs: Costs) -> list[Contents]:
    """Multipliers that are powers of two: cores requantise in 32 bits.

    Only in the integer dialect, which rounds ties up. In QDQ graphs they go to the even result: between powers of two ties are frequent,
    and rounding them so takes more than 32 bits. A test compiles such a network in both forms, and finds it slower.
    """
    calls, slow = subject.plan.program.calls, _slow(subject) if subject.is_dialect else []
    graph, names = changed(subject.graph, powers_of_two) if slow else (subject.graph, set[str]())
    steps = [step for step in slow if calls[step].node.name in names]
    if not steps:
        return []
    found = costs.better(subject.program(graph), subject.plan.machine, steps=steps)
    told = _forms((calls[better.step] for better in found), subject.target)
    why = f"{_counted(len(found))} of {len(calls)} requantise {told}; with scales of 2^n, 32 bits are enough"
    title = "Requantise with multipliers that are powers of two (scales of 2^n)"
    return [_entry(subject, "scales", title, why, (), _layers(subject, found))]


def _requantisers(subject: Subject, costs: Costs) -> list[Contents]:
    """Constants that an accelerator requantises with itself: it costs what such constants do, whatever they are."""
    calls, engines = subject.plan.program.calls, subject.target.engines
    able = {engine.name for engine in engines if engine.requantiser is not None and engine.name in subject.plan.machine.engines}
    steps = [step for step in _slow(subject) if fused(calls[step].node) is not None] if able and subject.is_exact else []
    if not steps:
        return []
    program = subject.program(change_nodes(subject.graph, powers_of_two))
    found = costs.better(program, subject.plan.machine, lambda call: call.kernel.engine in able and call.kernel.second is None, steps)
    why = (
        f"{_counted(len(found))} would be requantised by {' and '.join(sorted(able))} instead of cores; results differ by one step at most"
    )
    return [_entry(subject, "requantise", "--requantise engine", why, ("--requantise", "engine"), _layers(subject, found))]


def _is_slow(call: Call, target: Target) -> bool:
    """Whether a call requantises in more than 32 bits, or in cores behind an accelerator."""
    stages = call.node.epilogue
    return "requantise" in stages and (call.kernel.second is not None or form(call, target) not in ("", "narrow"))


def _forms(calls: Iterable[Call], target: Target) -> str:
    """How calls requantise, in words."""
    found = []
    for call in calls:
        text = "in 64 bits" if form(call, target) in ("wide", "upper") else "in halves of 32 bits"
        found.append("by cores what an engine has summed up" if call.kernel.second is not None else text)
    return " or ".join(dict.fromkeys(found))


def _weights(subject: Subject, costs: Costs) -> list[Contents]:
    """Weights without zero points, as int8: what SIMD instructions and accelerators multiply."""
    graph, names = changed(subject.graph, symmetric_weights)
    steps = [step for step, call in enumerate(subject.plan.program.calls) if call.node.name in names]
    if not steps:
        return []
    found = costs.better(subject.program(graph), subject.plan.machine, steps=steps)
    engines = " and ".join(dict.fromkeys(better.call.kernel.engine for better in found))
    why = f"{_counted(len(found))} would run by faster kernels on {engines}, which want int8 weights without zero points"
    return [_entry(subject, "weights", "Quantise weights symmetrically (zero point 0, int8)", why, (), _layers(subject, found))]
