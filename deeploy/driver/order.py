"""Which order of calls a network on a machine with several memories is planned in, where accelerators and cores could work side by side.

Neighbours of which neither needs the other run beside each other (``deeploy.planning.groups``). Another order may be faster than that
of the file: the one that list scheduling finds (``deeploy.planning.packing``) is planned as well, and taken where the walk finds it faster.
"""

from __future__ import annotations

from dataclasses import replace

from deeploy.driver.layer_fusion import fuse_layers
from deeploy.errors import FitError
from deeploy.execution.simulation.timing import Run
from deeploy.execution.simulation.walk import walk_plan
from deeploy.ir.target import Target
from deeploy.planning.energy import ENERGY, measure_objective, milliwatt
from deeploy.planning.packing.order import EngineLoad, arrange_calls, is_free, side_by_side
from deeploy.planning.plan import Machine, OrderChoice, Plan
from deeploy.planning.planner.network import make_plan
from deeploy.planning.program import Program

WORTH = 0.01  # of the cycles of a network that another order has to promise, as planning takes as long again, and to save


def plan_in_best_order(program: Program, target: Target, machine: Machine, seconds: float) -> Plan:
    """The plan of a network: of that with the fewest cycles, and one in which energy counts beside them, the better one by the objective.

    Energy over the power that a cycle takes in any case is counted in cycles. A product of energy and cycles falls where their sum does,
    each by its value in the fastest plan: there, a picojoule counts for less.

    Raises:
        FitError: there is no plan.
    """
    if machine.objective not in ENERGY:
        return _plan_order(program, target, machine, seconds)
    plan = _plan_order(program, target, replace(machine, objective="cycles"), seconds)
    run = walk_plan(plan)
    power = milliwatt(target, machine.cores)  # in nanojoules a cycle it is divided by the clock in MHz
    if machine.objective == "edp":
        power += run.energy.total * 1e3 * run.mhz / run.cycles if run.cycles else 0.0
    plans = [plan, *([] if target.is_flat else [_plan_order(program, target, replace(machine, price=power * 1e3 / run.mhz), seconds)])]

    def value(one: Plan) -> float:
        run = walk_plan(one)
        return measure_objective(machine.objective, run.cycles, run.energy.total)

    return replace(min(plans, key=value), machine=machine)


def _plan_order(program: Program, target: Target, machine: Machine, seconds: float) -> Plan:
    """The plan of a network with its fused groups, in the order of the file or in the one that is faster.

    Raises:
        FitError: there is no plan.
    """
    alone = make_plan(program, target, machine, seconds)
    plan = fuse_layers(alone, program)
    has_engines = len({bool(target.engine(part.kernel.engine).accelerator) for call in alone.program.calls for part in call.parts}) > 1
    is_wanted = (
        has_engines
        and target.timing is not None
        and machine.fusion
        and not any(fix.what == "after" for fix in machine.fixes)
        and machine.objective == "cycles"
        and program.dynamic_length is None
    )
    if target.is_flat or not is_wanted or not is_free(alone.program):
        return plan
    steps = {call.name: step for step, call in enumerate(program.calls)}
    given = arrange_calls(
        program, [steps[call.name] for call in alone.program.calls]
    )  # memory may have wanted another order than the file's
    run = walk_plan(alone)
    order = side_by_side(alone.program, _engine_loads(alone, run), WORTH * run.cycles)
    if order is None:
        return plan
    other = arrange_calls(given, order)
    try:
        reordered = fuse_layers(make_plan(other, target, machine, seconds), other)
    except FitError:
        return plan
    cycles, faster = walk_plan(plan).cycles, walk_plan(reordered).cycles
    is_other = [call.name for call in reordered.program.calls] != [call.name for call in plan.program.calls]
    is_taken = faster <= (1 - WORTH) * cycles and is_other
    choice = OrderChoice(tuple(call.name for call in plan.program.calls), round(cycles), round(faster), is_taken)
    return replace(reordered if is_taken else plan, order=choice if is_other else None)


def _engine_loads(plan: Plan, run: Run) -> list[EngineLoad]:
    """For how long every call keeps an accelerator busy while no cores compute for it, and cores."""
    teams = {engine.name for engine in plan.target.engines if not engine.accelerator}
    cores, jobs = [0.0] * len(plan.calls), [0.0] * len(plan.calls)
    for one in run.intervals:
        if one.kind == "compute":
            (cores if one.lane in teams else jobs)[one.step] += one.end - one.start
    return [EngineLoad(min(job, max(0.0, call.cycles - core)), core) for job, core, call in zip(jobs, cores, run.calls, strict=True)]
