"""From models to projects: the stages of a compilation, one after the other, for one chip and for several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from deeploy import target as targets
from deeploy.backend.constants import Additions
from deeploy.backend.packages import check_package
from deeploy.documents import digest_of
from deeploy.driver.budgets import compile_within_budgets
from deeploy.driver.distributed import Distributed
from deeploy.driver.lower import Lowered, Stopwatch, check_options, lower_model, lower_with_fallback, lowered_for_chips
from deeploy.driver.plan import bind_and_plan, machine_resources, plan_chips, plan_requantised, plan_together
from deeploy.driver.prefixes import check_prefixes, select_options
from deeploy.driver.project import CompiledProject, Network
from deeploy.driver.self_test import describe_self_test
from deeploy.errors import UsageError, shorten
from deeploy.frontend import readers_first
from deeploy.ir.target import Target, load_timing
from deeploy.ir.topology import Topology
from deeploy.options import Options
from deeploy.partition.system import System, check_system
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.energy import measure_objective
from deeploy.planning.plan import Machine, Plan
from deeploy.planning.planner.co_planning import known_states
from deeploy.planning.planner.fixes import Wanted, parse_fixes
from deeploy.planning.planner.machine import check_code, kernels_of, machine_of
from deeploy.planning.planner.requantise import engines_of

Models = Mapping[str, str | Path]  # by the prefixes of their names in C


def load_target(target: str | Path | Target) -> Target:
    """The target itself, or that of a name or folder."""
    return target if isinstance(target, Target) else targets.load(target)


def select_target(options: Options) -> Target:
    """The target that options name, with the cycles of a board where they are given.

    Raises:
        DeeployError: there is no such target or file, or the cycles are of another machine.
    """
    target = load_target(options.target)
    if options.timing is None:
        return target
    timing = load_timing(options.timing)
    lacking = {path.name for path in target.paths} - set(timing.paths) | {engine.name for engine in target.engines} - set(timing.fork)
    if lacking:
        what = f"--timing {shorten(str(options.timing))}: there are no cycles of {', '.join(sorted(lacking))}"
        raise UsageError(what, f"Give a file that deeploy calibrate wrote for {target.name}.")
    slow = {memory.name for memory in target.memories[1:]} if target.is_flat else set()
    unknown = set(timing.memories) - slow
    if unknown:
        what = f"--timing {shorten(str(options.timing))}: {target.name} keeps no constants in {shorten(', '.join(sorted(unknown)))}"
        raise UsageError(what, f"Name {', '.join(sorted(slow))}." if slow else "Leave [memory] out.")
    return replace(target, timing=timing)


def compile_networks(models: Models, target: Target, options: Options, additions: Additions | None = None) -> CompiledProject:
    """One or several networks for one chip, within the limits of flash, RAM and stack.

    Args:
        additions: finds networks to which packages beside the compiler add functions.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    return compile_within_budgets(lambda given: _compile_networks(models, target, given, additions), options)


def _compile_networks(models: Models, target: Target, options: Options, additions: Additions | None) -> CompiledProject:
    """The same, of which flash and stack are not measured."""
    check_options(options)
    options.check_one_chip()
    if options.self_test is not None and len(models) > 1:
        raise UsageError("--self-test: several networks have no self-test together", "Compile them one by one.")
    if options.package is not None:
        check_package(options.package, target)
    if options.acsl and not target.is_flat:
        raise UsageError(f"--acsl: target {target.name} has several memories", "Use it with a target with one memory: --target generic.")
    target = options.set_clock(target)
    check_prefixes(models)
    machine = machine_resources(target, options.limit_ram(target), len(models))
    if options.requantise == "engine":
        engines_of(target, machine)
    stopwatch = Stopwatch(options.on_stage)
    networks: dict[str, Network] = {}
    lowered_networks: dict[str, Lowered] = {}
    fixed: dict[str, Wanted] = {}
    own = {prefix: select_options(options, prefix, models) for prefix in models}
    for prefix in readers_first(models, {prefix: one.dims for prefix, one in own.items()}, options.states):
        path, known = Path(models[prefix]), known_states(network.program for network in networks.values())
        if not options.generates_kernels:
            graph = lower_model(stopwatch, path, target, own[prefix], known)
        else:
            graph = lower_with_fallback(stopwatch, path, target, own[prefix], known, machine)
        target = graph.target
        if "ram" in options.budgets:
            io = sum(-(-tensor.elements * tensor.dtype.bits // 8) for tensor in (*graph.graph.inputs, *graph.graph.outputs))
            machine = machine_resources(target, options.limit_ram(target, io), len(models))
        may_fill = not options.generates_kernels and not graph.dialect
        fixed[prefix] = parse_fixes(own[prefix].fix, str(path))
        plan = bind_and_plan(stopwatch, prefix, graph.graph, target, machine, options, may_fill, fixed[prefix])
        graph.check(plan.program)
        lowered_networks[prefix], changed = graph, None
        if options.requantise == "engine":
            requantised, plan, changed = plan_requantised(stopwatch, prefix, graph.graph, target, machine, options, plan, fixed[prefix])
            graph = lowered_networks[prefix] = replace(graph, graph=requantised)
        about = graph.inputs, graph.outputs, graph.dialect, (*graph.notes, *_note_unpacked(options, plan)), graph.pinned
        networks[prefix] = Network(
            plan, path.name, *about, changed, graph.graph, own[prefix].inputs, digest_of(path), streamed=graph.streamed
        )

    def again(prefix: str, given: Machine) -> Plan:
        return bind_and_plan(stopwatch, prefix, lowered_networks[prefix].graph, target, given, options, wanted=fixed[prefix])

    plans, notes = {prefix: networks[prefix].plan for prefix in models}, dict[str, str]()
    if len(models) > 1:
        plans, notes = plan_together(plans, again)
    told = {prefix: (*networks[prefix].notes, *([notes[prefix]] if prefix in notes else [])) for prefix in models}
    result = {prefix: replace(networks[prefix], plan=plans[prefix], notes=told[prefix]) for prefix in models}
    if options.self_test is not None:
        result = {name: replace(one, self_test=describe_self_test(one.plan, options.self_test, one.pinned)) for name, one in result.items()}
    project = CompiledProject(result, stopwatch.seconds, additions, options.budgets, package=options.package)
    return replace(project, is_certified=options.certify, has_contracts=options.acsl)


def _note_unpacked(options: Options, plan: Plan) -> list[str]:
    """What the user is told where ``--weight-bits`` changes nothing."""
    if options.weight_bits is None or any(buffer.dtype.is_packed for buffer in plan.program.buffers.values()):
        return []
    fewer = "deeploy quantize --weights 4 makes such weights of a float model"
    return [f"--weight-bits {options.weight_bits} changes nothing: no weight that kernels read packed has values of so few bits; {fewer}"]


def compile_chips(model: Path, target: Target, options: Options) -> Distributed:
    """One network, cut over several chips.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    from deeploy.driver.partition import check_cut, partition_graph, topology_of  # what one chip does not need

    check_code(target)
    check_options(options)
    options.check_exact("--chips")
    for option, value, reason in (
        ("--fix", options.fix or None, "what is fixed is of the plan of one chip"),
        ("--acsl", options.acsl or None, "contracts are of code for one chip"),
        ("--package", options.package, "a package is code for one chip"),
        ("--self-test", options.self_test, "a self-test is of one chip"),
        ("--stream", options.stream, "a network that streams is computed by one chip"),
    ):
        if value is not None:
            raise UsageError(f"{option} with --chips: {reason}", "Leave one of them out.")
    topology = topology_of(target, options)
    target = options.set_clock(target, topology.mhz)
    chips = check_cut(options)
    stopwatch = Stopwatch(options.on_stage)
    lowered = lowered_for_chips(stopwatch, model, target, options)
    target = lowered.target
    if lowered.shorter is not None:
        machine = machine_of(target, options)
        lowered.check(stopwatch("bind", assemble_program, "network", lowered.graph, *kernels_of(target, machine)))
    systems = stopwatch("partition", partition_graph, lowered.graph, chips, target, topology, options)
    built = [build(system, lowered, model.name, target, topology, options, stopwatch) for system in systems]
    runs = [one.predicted for one in built]
    values = [measure_objective(options.objective, run.cycles, run.energy.total) if run is not None else 0.0 for run in runs]
    best = built[values.index(min(values))]
    return replace(best, digest=digest_of(model), is_certified=options.certify)


def build(
    system: System, lowered: Lowered, model: str, target: Target, topology: Topology, options: Options, stopwatch: Stopwatch | None = None
) -> Distributed:
    """Plan every chip of a system; chips that differ in the values of constants and in their peers are planned once.

    Args:
        lowered: the network that was cut, and ``model`` its name.

    Raises:
        ModelError, UsageError: the system does not do what it has to.
        FitError: a chip's part does not fit.
    """
    stopwatch = stopwatch or Stopwatch()
    stopwatch("check", check_system, system, topology)
    plans, leads = plan_chips(stopwatch, system, target, topology, options)
    notes = (*lowered.notes, *system.notes)
    ports, chips = (lowered.inputs, lowered.outputs), (tuple(plans), tuple(leads))
    return Distributed(system, topology, target, *chips, model, *ports, lowered.dialect, notes, stopwatch.seconds, lowered.pinned)
