"""A lowered graph is cut over the chips of a topology: every layer over all of them, samples of a batch, or the network by its depth."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal

from deeploy.errors import FitError, UsageError
from deeploy.execution.simulation.stages import plan_pipeline_stages
from deeploy.execution.simulation.walk import walk_plan
from deeploy.frontend.states import LOSS, RATE
from deeploy.ir.target import Target
from deeploy.ir.topology import Topology, load_topology
from deeploy.ir.values import Graph
from deeploy.options import Options
from deeploy.partition.collectives import Costs, Effort
from deeploy.partition.data import partition_by_samples
from deeploy.partition.dependence import Declare
from deeploy.partition.joins import join_residuals
from deeploy.partition.proof import prove_partition
from deeploy.partition.system import System
from deeploy.partition.tensor import partition_by_tensor
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.binding.kernels import kernel_declarations
from deeploy.planning.cost import barrier_cycles, call_once, tile_overhead
from deeploy.planning.planner.isomorphic import program_signature
from deeploy.planning.planner.machine import kernels_of, machine_of, own_options
from deeploy.planning.planner.network import make_plan


def check_cut(options: Options) -> int | Literal["auto"]:
    """The number of chips that a model is cut over.

    Raises:
        UsageError: there is none, or something is said of the sums of a pipeline, which has none.
    """
    if options.chips is None:
        raise UsageError("--chips is missing", "Say over how many chips the model is cut: --chips N.")
    if options.partition == "pipeline" and (options.collective is not None or not options.gathers):
        option = "--no-gathers" if options.collective is None else "--collective"
        raise UsageError(f"{option} with --partition pipeline: its stages have no partial sums to add up", "Leave one of them out.")
    return options.chips


def topology_of(target: Target, options: Options) -> Topology:
    """The topology of the file that options name, else the target's, with what options say of sums.

    Raises:
        UsageError: there is none, or it says of a chip what the target does not have.
    """
    file = options.topology
    if file is None and target.topology is None:
        raise UsageError(
            f"target {target.name} has no topology: the links between its chips are unknown",
            "Name a file: --topology FILE (docs/chips.md).",
        )
    topology = load_topology(file, target.topology) if file is not None else target.topology
    assert topology is not None
    collective, has_gathers = options.collective or topology.collective, options.gathers and topology.has_gathers
    topology = replace(topology, collective=collective, has_gathers=has_gathers)
    for chip in sorted(topology.members):
        try:
            machine_of(target, own_options(options, topology, chip))
        except UsageError as error:
            raise UsageError(f"chip {chip} of the topology: {error.what}", error.remedy) from error
    return topology


def partition_graph(graph: Graph, chips: int | Literal["auto"], target: Target, topology: Topology, options: Options) -> list[System]:
    """Cut a lowered graph; where all chips may compute rows, with that and without. Inputs of products are put together where that is
    estimated to end earlier than adding up partial sums.

    Raises:
        UsageError, FitError, UnsupportedError: it cannot be cut so.
    """
    if options.partition == "pipeline":
        return [plan_pipeline_stages(graph, target, chips, options.balance, topology, options).system]
    if chips == "auto":
        raise UsageError("--chips auto: only pipelines know how many chips they need", "Name a number, or say --partition pipeline.")
    kernels, _ = kernels_of(target, machine_of(target, options))
    declare: Declare = partial(kernel_declarations, kernels)
    costs, systems = costs_of(target, options), list[System]()
    is_timed = target.timing is not None and not target.is_flat
    if chips > 1 and (options.partition == "data" or _is_training_step(graph)):
        result = partition_by_samples(graph, chips, topology, declare, costs)
        prove_partition(graph, declare, result)
        return [result.system]
    may_gather = is_timed and topology.has_gathers
    for by_rows in (False, True) if may_gather else (False,):
        result = partition_by_tensor(graph, chips, topology, declare, costs, by_rows)
        if may_gather and result.gathered:
            result = partition_by_tensor(graph, chips, topology, declare, costs, by_rows, result.gathered)
        if not by_rows or result.has_rows:
            prove_partition(graph, declare, result)
            systems.append(join_residuals(result.system, lambda node: any(declare(node))))
    return systems


def _is_training_step(graph: Graph) -> bool:
    """Whether a graph is a training step."""
    return any(tensor.name == RATE for tensor in graph.inputs) and any(tensor.name == LOSS for tensor in graph.outputs)


def costs_of(target: Target, options: Options) -> Costs:
    """What a target's timing says of messages, and the planner of graphs of one call; nothing, where there is no timing."""
    timing, machine = target.timing, machine_of(target, options)
    if timing is None or target.is_flat:
        return Costs()
    kernels, off = kernels_of(target, machine)
    second = timing.mhz * 1e6
    known: dict[object, Effort] = {}

    def effort(graph: Graph) -> Effort:
        program = assemble_program("probe", graph, kernels, off)
        key = program_signature(program)
        if key not in known:
            try:
                plan = make_plan(program, target, machine, options.seconds)
            except FitError:  # which is said of the chip that it does not fit on
                return Effort()
            call = plan.program.calls[0]
            least = tile_overhead(call, target) + call_once(call, False, target) + barrier_cycles(call, target)
            known[key] = Effort(walk_plan(plan).cycles / second, least / second)
        return known[key]

    link = next((timing.kernel(kernel.name, engine=kernel.engine).call for kernel in kernels if kernel.link is not None), 0.0)
    return Costs((timing.loops.layer + timing.tile + link) / second, effort)
