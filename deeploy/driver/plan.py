"""From lowered graphs to plans: of the networks of one chip, which may share what outlives inferences, and of all chips of a system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from deeploy.driver.layer_fusion import predict_savings
from deeploy.driver.lower import Stopwatch
from deeploy.driver.order import plan_in_best_order
from deeploy.driver.parallel_plans import Task, plan_apart
from deeploy.errors import FitError, NoKernelError
from deeploy.execution.simulation.walk import walk_plan
from deeploy.ir.target import Target
from deeploy.ir.topology import Topology
from deeploy.ir.values import Graph
from deeploy.options import Options
from deeploy.partition.system import System, with_queues
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.choice.infeasibility import suggest_remedy
from deeploy.planning.packing.addresses import check_placements
from deeploy.planning.plan import Machine, Plan
from deeploy.planning.planner.co_planning import share_plans, state_groups
from deeploy.planning.planner.fixes import Wanted
from deeploy.planning.planner.isomorphic import carry_plan, plan_wording, program_signature
from deeploy.planning.planner.machine import check_code, kernels_of, machine_of, own_options, share_machine
from deeploy.planning.planner.ram_copies import with_copies
from deeploy.planning.planner.requantise import Requantised, engines_of, requantise_graph, with_nearest
from deeploy.planning.program import Program, Role

MOST_BYTES = 2**31 - 1  # of an arena: offsets are constants of the type int


def machine_resources(target: Target, options: Options, networks: int = 1) -> Machine:
    """The machine that plans may use, without what several networks cannot share.

    Raises:
        UsageError: the target makes no code, or does not have what an option says.
    """
    check_code(target)
    machine = machine_of(target, options)
    return share_machine(machine, target) if networks > 1 else machine


def bind_and_plan(
    stopwatch: Stopwatch,
    prefix: str,
    graph: Graph,
    target: Target,
    machine: Machine,
    options: Options,
    may_fill: bool = False,
    wanted: Wanted | None = None,
) -> Plan:
    """The plan of a network on the part of a target that it may use.

    Args:
        may_fill: whether the remedy for a missing kernel is ``--fallback``.
        wanted: what the user fixes.

    Raises:
        NoKernelError, FitError: there is none.
        UsageError: what is fixed is not possible.
    """
    try:
        program = stopwatch("bind", assemble_program, prefix, graph, *kernels_of(target, machine))
    except NoKernelError as error:
        if not may_fill:
            raise
        raise error.also("try --fallback") from error
    if wanted is None or not wanted.fixes:
        return stopwatch("plan", plan_program, program, target, machine, options)
    fixed, given = wanted.applied(program, target, machine)
    free: Plan | None = None
    with suppress(FitError):  # an order that the user fixes may need less memory than the file's
        free = stopwatch("plan", plan_program, program, target, machine, options)
    try:
        plan = stopwatch("plan", plan_program, fixed, target, given, options)
    except FitError as error:
        if free is None:
            raise
        named = " and ".join(map(str, given.fixes))
        raise FitError(error.what, f"Leave out {named}: without what is fixed, the network fits.") from error
    if free is None or target.timing is None or target.is_flat:
        return plan
    return replace(plan, free_cycles=round(walk_plan(free).cycles))


def plan_program(program: Program, target: Target, machine: Machine, options: Options) -> Plan:
    """The plan of one program on the part of a target that it may use."""
    plan = _plan_copies(plan_in_best_order(program, target, machine, options.seconds))
    peak = max(use.peak for use in plan.memory.values())
    if target.is_flat and peak > MOST_BYTES:
        raise FitError(
            f"the arena takes {peak} bytes, addresses in the generated code go up to {MOST_BYTES}",
            "Check the shapes, or pin smaller dimensions: --dim NAME=VALUE.",
        )
    return _check_plan(plan)


def _check_plan(plan: Plan) -> Plan:
    """The plan, whose addresses hold."""
    check_placements(plan.placements, {level: (use.alignment, use.peak - use.constants) for level, use in plan.memory.items()})
    return plan


def over_budget(plan: Plan, name: str, sizes: tuple[int, int], last: str) -> str:
    """What helps a program that takes more than a budget.

    Args:
        plan: of the network, or of the one with the largest arena.
        name: of the budget: ``flash``, ``ram`` or ``stack``.
        sizes: bytes that the program takes, and the budget.
        last: how it gets more.
    """
    program = plan.program
    roles = {"flash": (Role.CONSTANT,), "ram": (Role.LOCAL, Role.STATE)}.get(name, ())
    there = [(b.name, b.bytes) for b in program.buffers.values() if b.role in roles]
    if name == "ram":  # what lies beside the arena does not depend on the network's inputs
        depends = sum(use.peak + use.io for use in plan.memory.values())
        sizes = depends, sizes[1] - (sizes[0] - depends)
    return suggest_remedy(program, plan.target, there, sizes, [], last)


def _plan_copies(plan: Plan) -> Plan:
    """The plan with the constants that are copied to RAM, and with what that saves."""
    copied_plan = with_copies(plan)
    return plan if copied_plan is plan else predict_savings(copied_plan, walk_plan(plan), walk_plan(copied_plan))


@dataclass(frozen=True, eq=False)
class Requantisation:
    """What ``--requantise engine`` made of a network.

    Attributes:
        layers: that an engine requantises itself.
        unchanged: nodes that stay exact, as no constants of an engine keep one step.
        plan: of the exact network.
    """

    layers: tuple[Requantised, ...]
    unchanged: tuple[str, ...]
    plan: Plan


def plan_requantised(
    stopwatch: Stopwatch,
    prefix: str,
    graph: Graph,
    target: Target,
    machine: Machine,
    options: Options,
    exact: Plan,
    wanted: Wanted | None = None,
) -> tuple[Graph, Plan, Requantisation]:
    """The plan of a network whose layers are requantised by their engine where it runs them.

    Args:
        exact: its plan without that.

    Raises:
        UsageError: no engine requantises.
        FitError: there is no plan.
    """
    engines = engines_of(target, machine)
    layers, unchanged = stopwatch("requantise", requantise_graph, graph, engines, kernels_of(target, machine)[0])
    while True:
        changed = with_nearest(graph, layers)
        plan = bind_and_plan(stopwatch, prefix, changed, target, machine, options, wanted=wanted)
        run_by = {call.node.outputs[0].name: call.kernel.engine for call in plan.program.calls}
        done = [layer for layer in layers if run_by.get(layer.result) in engines]
        if len(done) == len(layers):
            return changed, plan, Requantisation(tuple(layers), tuple(unchanged), exact)
        layers = done


def plan_together(plans: Mapping[str, Plan], again: Callable[[str, Machine], Plan]) -> tuple[dict[str, Plan], dict[str, str]]:
    """Plans of networks of one chip that share what outlives inferences, and what the user is told of each.

    Args:
        again: plans a network on another machine.
    """
    shared_plans = share_plans(plans, again)
    leads = state_groups({name: plan.program for name, plan in shared_plans.items()})
    notes = {name: f"network {name} shares the caches of network {lead}" for name, lead in leads.items() if lead != name}
    return {name: _check_plan(plan) for name, plan in shared_plans.items()}, notes


def plan_chips(stopwatch: Stopwatch, system: System, target: Target, topology: Topology, options: Options) -> tuple[list[Plan], list[int]]:
    """The plan of every chip, and the first chip with the same code; what differs in constants and peers alone is planned once.

    Raises:
        FitError, UnsupportedError: a chip's part cannot be planned; the chip is named.
    """
    programs: list[Program] = []
    first: list[int] = []  # of every chip, the one whose plan it takes
    known: dict[object, int] = {}
    tasks: dict[int, Task] = {}
    for chip, graph in enumerate(system.chips):
        own = as_member(target, system, chip, topology)
        limits = own_options(options, topology, chip)
        machine = machine_of(own, limits)
        programs.append(program := stopwatch("bind", assemble_program, "network", graph, *kernels_of(own, machine)))
        key = program_signature(program), own.memories, repr(machine), tuple(t.name for t in (*graph.inputs, *graph.outputs))
        first.append(known.setdefault(key, chip))
        if first[chip] == chip:
            tasks[chip] = chip, program, own, machine, limits
    made = dict(zip(tasks, stopwatch("plan", list, plan_apart(_plan_chip, list(tasks.values()))), strict=True))
    written: dict[object, int] = {}
    plans, leads = list[Plan](), list[int]()
    for chip, lead in enumerate(first):
        plans.append(made[chip] if lead == chip else stopwatch("plan", carry_plan, made[lead], programs[lead], programs[chip]))
        leads.append(written.setdefault((lead, plan_wording(plans[chip])), chip))
    return plans, leads


def _plan_chip(chip: int, program: Program, target: Target, machine: Machine, options: Options) -> Plan:
    try:
        return plan_program(program, target, machine, options)
    except FitError as error:
        raise FitError(f"chip {chip}: {error.what}", error.remedy) from error


def as_member(target: Target, system: System, chip: int, topology: Topology) -> Target:
    """The target with the memory reserved that queues take at both ends.

    For each chip that it sends to, and for each that it receives from, there is room for as many messages as may wait.
    """
    largest: dict[tuple[int, int], int] = {}
    for message in system.messages:
        ends = message.sender[0], message.receiver[0]
        if chip in ends:
            largest[ends] = max(largest.get(ends, 0), message.bytes)
    return with_queues(target, topology, largest.values())
