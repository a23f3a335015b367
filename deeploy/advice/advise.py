"""The list of what would help a network, ranked by the cycles that it saves: every change is compiled, as it would be if it were made.

A promise is the difference of two plans, walked over by the same cycles. A change that saves less than a hundredth of the cycles is left
out. Gains do not add up: two changes may help the same layer. What cannot change a plan is not compiled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from deeploy.advice.changes import Rewrite, powers_of_two, symmetric_weights
from deeploy.advice.portable import slow_layers
from deeploy.documents import Contents
from deeploy.driver.project import Project, Unit
from deeploy.errors import DeeployError
from deeploy.frontend.lower.in_int8 import in_int8
from deeploy.ir.target import Target
from deeploy.ir.values import change_nodes
from deeploy.operators.requantise import fused_stage
from deeploy.options import Options
from deeploy.planning.cost import kernel_instance
from deeploy.planning.planner.machine import machine_of
from deeploy.report.quantised import MOST_BYTES, quantise_first, weights_of

LEAST = 0.01  # of all cycles: what a change has to save
SIZES = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # of a memory, as multiples of what the plan may use
FIRST = ("quantise", "kernel")  # kinds of changes that come before all others
ENOUGH = 0.9  # of the gain that all of a memory has

Compile = Callable[[Target, Options], Project]


@dataclass(frozen=True)
class Change:
    """What could be done: the target and the options that a network would be compiled with.

    Attributes:
        title: what to do: options of ``deeploy compile``, where these make the change.
        why: with the number of layers that become faster in the place of ``{}``.
    """

    kind: str
    title: str
    why: str
    target: Target
    options: Options


def advise(project: Project, compiled: Compile, target: Target, options: Options) -> Mapping[str, list[Contents]]:
    """The changes that would help, the best first, by the names of units; of float networks first their quantisation.

    Args:
        compiled: compiles the same models, as the project was by ``target`` and ``options``.
    """
    advice_by_unit: dict[str, list[Contents]] = {name: [] for name, unit in project.units.items() if unit.is_lead}
    for change, after in _compile_changes(project, compiled, target, options):
        units = after.units
        for name in advice_by_unit:
            entry = _describe_change(change, project.units[name], units[name]) if name in units else None
            advice_by_unit[name] += [entry] if entry is not None else []
    for name, entries in advice_by_unit.items():
        program = project.units[name].network.program
        if program.is_float and not any(entry["kind"] == "quantise" for entry in entries):
            entries.append(quantise_first(program, target))
        entries += [] if program.is_float else slow_layers(project.units[name], target)
        entries.sort(key=lambda entry: (entry["kind"] not in FIRST, -int(entry["gain"]), -entry["share"]))
    return advice_by_unit


def _describe_change(change: Change, before: Unit, after: Unit) -> Contents | None:
    """What a change gains; None where that is not worth mentioning."""
    cycles, gain = round(before.cycles or 0), round((before.cycles or 0) - (after.cycles or 0))
    layers = sorted(_faster_layers(before, after), key=lambda layer: -int(layer["gain"])) if gain > 0 else []
    figures = {"gain": max(0, gain), "share": max(0, gain) / max(1, cycles), "layers": layers}
    if change.kind == "quantise" and before.network.program.is_float:
        return {**quantise_first(before.network.program, change.target, after.network.program), **figures}
    if gain < LEAST * cycles or not gain:
        return None
    why = change.why.replace("{}", f"{len(layers)} layer{'s' * (len(layers) != 1)}", 1)
    head = {"kind": change.kind, "title": change.title, "why": why, "how": "The difference of two plans."}
    return {**head, "options": change.title.split() if change.title.startswith("--") else [], **figures}


def _faster_layers(before: Unit, after: Unit) -> Iterator[Contents]:
    """The layers that take fewer cycles, by nodes and operators: names in C hang on what else there is."""
    then = _cycles_by_node(after)
    for key, (step, cycles) in _cycles_by_node(before).items():
        number, fewer = then.get(key, (None, 0.0))
        if (gain := round(cycles - fewer)) > 0:
            call, text = (
                before.network.program.calls[step],
                "is left out" if number is None else _describe_call(before, step, after, number),
            )
            yield {"name": call.name, "node": call.node.name, "gain": gain, "text": text}


def _cycles_by_node(unit: Unit) -> dict[tuple[str, str], tuple[int, float]]:
    """Per node and operator the first call, and the cycles of all."""
    longest_times: dict[tuple[str, str], tuple[int, float]] = {}
    for step, (call, timing) in enumerate(zip(unit.network.program.calls, unit.run.calls if unit.run is not None else (), strict=True)):
        first, cycles = longest_times.get((call.node.name, call.node.op), (step, 0.0))
        longest_times[call.node.name, call.node.op] = first, cycles + timing.cycles
    return longest_times


def _describe_call(before: Unit, step: int, after: Unit, number: int) -> str:
    """The kernel of a call, with the form in which it requantises, its engine, and its bytes of the engine's memory where these differ."""
    call, target = after.network.program.calls[number], after.network.plan.target
    own = [unit.network.plan.calls[place : place + 1] for unit, place in ((before, step), (after, number))]
    was, now = (sum(candidate.bytes[candidate.engine_memory] for candidate in each) for each in own)
    text, memory = f"by {kernel_instance(call, target)} on {call.kernel.engine}", target.engine(call.kernel.engine).memory
    return text if was == now else f"{text}, whose windows take {now} bytes of {memory} instead of {was}"


# ---- what could be done


def _compile_changes(project: Project, compiled: Compile, target: Target, options: Options) -> Iterator[tuple[Change, Project]]:
    """The changes, each with the project that it makes; without those that cannot be made."""
    for change in [*_try_whole_machine(target, options), *_try_other_numbers(project, target, options)]:
        with suppress(DeeployError):
            yield change, compiled(change.target, change.options)
    yield from _try_more_memory(project, compiled, target, options)


def _total_cycles(project: Project) -> float:
    """Cycles of all units."""
    return sum(unit.cycles or 0 for unit in project.units.values() if unit.is_lead)


def _try_more_memory(project: Project, compiled: Compile, target: Target, options: Options) -> Iterator[tuple[Change, Project]]:
    """More of a memory of which options allow less than there is: as much as gives nearly all of the gain."""
    now, most = (machine_of(target, one).capacities for one in (options, Options()))
    before, made = _total_cycles(project), dict[str, Project]()
    for level in (memory.name for memory in target.memories if before and now[memory.name] < most[memory.name]):

        def given(size: int, level: str = level) -> Change:
            sizes = {name: bytes for name, bytes in options.capacities.items() if name.lower() != level.lower()}
            option = f"--{level.lower()} {size}" if level in ("L1", "L2") else f"--memory {level}={size}"
            wanted = options.with_memory({**sizes, level.lower(): size})
            why = f"{{}} would run faster with more {level}: the plan may use {now[level]} bytes, {target.name} has {most[level]}"
            return Change("memory", option, why, target, wanted)

        def gain(size: int) -> float:
            change = given(size)
            made[change.title] = compiled(target, change.options)
            return before - _total_cycles(made[change.title])

        best = gain(most[level])
        if best >= LEAST * before:
            sizes = [int(now[level] * size) // 1024 * 1024 for size in SIZES]
            sizes = [size for size in sizes if now[level] < size < most[level]]
            change = given([*sizes, most[level]][bisect_left(sizes, ENOUGH * best, key=gain)])
            yield change, made[change.title]


def _try_whole_machine(target: Target, options: Options) -> Iterator[Change]:
    """What options leave out of the machine."""
    now, every = machine_of(target, options), machine_of(target, Options())
    left_out = [name for name in every.engines if name not in now.engines]

    def change(kind: str, title: str, why: str, wanted: Options) -> Change:
        return Change(kind, title, f"{{}} would run faster {why}", target, wanted)

    if left_out:
        why = f"on {' and '.join(left_out)}, which --engines leaves out"
        yield change("engines", "Leave --engines out", why, replace(options, engines=None))
    if now.cores < every.cores:
        yield change("cores", f"--cores {every.cores}", f"on {every.cores} cores instead of {now.cores}", replace(options, cores=None))
    if now.buffering != "auto":
        why = f"with one or two buffers, whichever is better, instead of {now.buffering}"
        yield change("buffering", "--buffering auto", why, replace(options, buffering="auto"))


def _try_other_numbers(project: Project, target: Target, options: Options) -> Iterator[Change]:
    """Other numbers: quantised networks, inputs, scales and weights.

    Scales of 2^n only in the integer dialect, which rounds ties up. In QDQ graphs they go to the even result: between powers of two ties
    are frequent, and rounding them so takes more than 32 bits.
    """
    networks = [unit.network for unit in project.units.values() if unit.is_lead]
    programs = [network.program for network in networks]
    nodes = [node for network in networks if network.graph is not None for node in network.graph.nodes]

    def rewritten(change: Rewrite, is_first: bool = False) -> Target:
        return replace(target, passes=(change, *target.passes) if is_first else (*target.passes, change))

    if any(program.is_float and program.dynamic_length is None and weights_of(program) <= MOST_BYTES for program in programs):
        yield Change("quantise", "", "", rewritten(Rewrite("in int8", (), in_int8), True), options)
    ports = [program.buffers[name] for program in programs if not program.is_float for name in (*program.inputs, *program.outputs)]
    if not options.quantised_io and any(buffer.dtype.is_float for buffer in ports):
        why = "{} convert floats at the network's inputs and outputs or wait for that; an application that has integers needs none of it"
        yield Change("quantised-io", "--quantised-io", why, target, replace(options, quantised_io=True))
    if any(network.dialect for network in networks) and any(powers_of_two(node) is not node for node in nodes):
        why = "{} would be faster with scales of 2^n, with which 32 bits are enough to requantise"
        title = "Requantise with multipliers that are powers of two (scales of 2^n)"
        scales = Rewrite("scales", (), lambda graph: change_nodes(graph, powers_of_two))
        yield Change("scales", title, why, rewritten(scales), options)
    engines = machine_of(target, options).engines
    able = [engine.name for engine in target.engines if engine.requantiser is not None and engine.name in engines]
    if able and options.requantise == "exact" and any(fused_stage(node) is not None for node in nodes):
        why = f"{{}} would be requantised by {' and '.join(able)} instead of cores; results differ by one step at most"
        yield Change("requantise", "--requantise engine", why, target, replace(options, requantise="engine"))
    if any(symmetric_weights(node) is not node for node in nodes):
        why = "{} would run by faster kernels, which want int8 weights without zero points"
        weights = Rewrite("weights", (), lambda graph: change_nodes(graph, symmetric_weights))
        yield Change("weights", "Quantise weights symmetrically (zero point 0, int8)", why, rewritten(weights), options)
