"""What the stages of a pipeline cost on a target with several memories: each is planned as a network of its own and walked through.

Plans of all stages that there could be would take too long. A stage has a bound that its time does not go below: its calls at their
best, with all constants near, and what cannot stay near through the path to the far memory. Cuts are chosen by bounds, the stages so
chosen are planned, their times take the bounds' places, and so on until no bound promises a better cut than one whose stages are all
planned. Bounds are those of the planner's closed form, from which the walk differs by little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from deeploy.errors import FitError, UsageError, shorten
from deeploy.execution.simulation.walk import walk_plan
from deeploy.ir.target import Target
from deeploy.ir.topology import Topology
from deeploy.ir.values import Graph
from deeploy.options import Balance, Options
from deeploy.partition import balance
from deeploy.partition.balance import Table
from deeploy.partition.balance_levels import Cuts, Levels, result_spans, stage_segments
from deeploy.partition.pipeline import Pipeline, build_pipeline, levels_of_graph, nodes_of, stage_graph
from deeploy.partition.system import with_queues
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.choice.resident_constants import Far
from deeploy.planning.packing.lifetimes import FOR_EVER
from deeploy.planning.plan import Plan
from deeploy.planning.planner.machine import kernels_of, machine_of, own_options
from deeploy.planning.planner.network import Planner
from deeploy.planning.program import Role

MOST_ROUNDS = 40  # of choosing and planning


@dataclass(frozen=True)
class Stage:
    """What a plan says of a stage: cycles of one inference, and bytes of constants that come from far away at each."""

    cycles: float
    streamed: int


class PlannedStages:
    """The costs of stages (``deeploy.partition.pipeline.StageCosts``) of a lowered graph, by plans for every kind of chip.

    Constants may lie in the far memory (``Options.default_memory``): they are then copied once where there is room, and streamed where
    there is not. Room is what the queues at both ends of a stage and the tensors that it only forwards leave.

    Attributes:
        rounds: how often cuts were chosen anew.
        is_exact: whether the best cut was found, when tables were last asked for; else the best of those whose stages were planned
            is taken.
    """

    def __init__(self, graph: Graph, levels: Levels, target: Target, options: Options, topology: Topology) -> None:
        self.graph = graph
        self.levels = levels
        self.target = target
        self.options = options
        self.topology = topology
        self.rounds = 0
        self.is_exact = True
        self.planned: dict[tuple[int, int, int], Stage] = {}  # by kind of chip, first level and the one behind the last
        self._kinds: list[Options] = []
        self._spans = result_spans(nodes_of(graph), levels)
        self._bounds: dict[int, Table] = {}

    def _kind(self, chip: int) -> int:
        """The number of what a chip may use; equal chips share it, and plans."""
        own = own_options(self.options, self.topology, chip)
        if own not in self._kinds:
            self._kinds.append(own)
        return self._kinds.index(own)

    def stage(self, first: int, end: int, chip: int = 0) -> Stage:
        """What a plan says of levels ``first`` to ``end - 1`` on a chip; infinite cycles where there is none."""
        place = self._kind(chip), first, end
        if place not in self.planned:
            size = sum(self.levels.weights[first:end])
            try:
                planner = self._planner(first, end, chip)
                if not planner.is_far and size > self._room(planner):  # known before any plan is tried
                    self.planned[place] = Stage(math.inf, size)
                else:
                    plan = planner.plan()
                    self.planned[place] = Stage(walk_plan(plan).cycles, streamed_bytes(plan))
            except FitError:
                self.planned[place] = Stage(math.inf, size)
        return self.planned[place]

    def _room(self, planner: Planner) -> int:
        """Bytes of the memories in which constants may stay: the one around the engines' own, and those that kernels want them in."""
        on, _ = kernels_of(planner.target, planner.machine)
        wanted = {memory for kernel in on for memory in kernel.resident.values()}
        return sum(planner.room[name] for name in {planner.levels[1], *wanted})

    def _planner(self, first: int, end: int, chip: int) -> Planner:
        target = self._left(first, end)
        options = self._kinds[self._kind(chip)]
        try:
            machine = machine_of(target, options)
        except UsageError as error:  # less memory is left than an option asks for
            raise FitError(error.what, error.remedy) from error
        program = assemble_program("stage", stage_graph(self.graph, self.levels, first, end), *kernels_of(target, machine))
        return Planner(program, target, machine, options.seconds)

    def _left(self, first: int, end: int) -> Target:
        """The target without the memory that a stage's queues at both ends take, and what it forwards."""
        queued = [max((size for made, last, size in self._spans if made < border <= last), default=0) for border in (first, end)]
        passed = sum(size for made, last, size in self._spans if made < first and end <= last)
        return with_queues(self.target, self.topology, queued, passed)

    def overflow(self, stage: int, first: int, end: int) -> int:
        """Bytes of constants that are streamed at every inference."""
        return self.stage(first, end, stage).streamed

    def times(self, cuts: Cuts) -> list[float]:
        """Cycles of the stages of a cut, transfers over the links included."""
        parts = stage_segments(cuts, self.levels.depth)
        links = self._links(len(parts))
        return [self.stage(*p, k).cycles + links[k][p[0]] + links[k + 1][p[1]] for k, p in enumerate(parts)]

    def _links(self, stages: int) -> list[np.ndarray]:
        """Cycles of what crosses each border before level i, if it is the one before stage k; nothing goes over links at the ends."""
        assert self.target.timing is not None  # or nothing would be planned
        hertz, borders = self.target.timing.mhz * 1e6, range(self.levels.depth + 1)
        inner = [[self.topology.seconds(k - 1, k, self.levels.crossing[i], stages) * hertz for i in borders] for k in range(1, stages)]
        ends = [0.0] * (self.levels.depth + 1)
        return [np.array(row) for row in (ends, *inner, ends)]

    def tables(self, stages: int) -> Sequence[Table]:
        """Times of the stages that were planned, among which are those of the best cut, and infinite ones for all others; where
        nothing fits, with bounds."""
        for cuts in (balance.cut_by_layers(self.levels, stages), balance.cut_by_parameters(self.levels, stages).cuts):
            self.times(cuts)
        self.is_exact = True
        kinds = [self._kind(chip) for chip in range(stages)]
        for chip, kind in enumerate(kinds):
            if kind not in self._bounds:
                self._bounds[kind] = self._bounded(chip)
        bases = [self._bounds[kind] for kind in kinds]
        unknown = [np.full_like(bases[0], math.inf)] * stages
        for _ in range(MOST_ROUNDS):
            tables, planned = self._tables(bases), self._tables(unknown)
            best = balance.bottleneck_time(tables)
            if math.isinf(best):  # the bounds say what fits nowhere
                return tables
            if balance.bottleneck_time(planned) <= best:
                return planned
            self.rounds += 1
            for chip, p in enumerate(stage_segments(balance.cut_by_cycles(self.levels, tables), self.levels.depth)):
                self.stage(*p, chip)
        self.is_exact = False
        planned = self._tables(unknown)
        return self._tables(bases) if math.isinf(balance.bottleneck_time(planned)) else planned

    def _tables(self, bases: Sequence[Table]) -> list[Table]:
        """The tables of all chips: what is planned, and where nothing is, what the bases say."""
        cycles = [base.copy() for base in bases]
        kinds = [self._kind(chip) for chip in range(len(bases))]
        for (kind, first, end), stage in self.planned.items():
            for chip, own in enumerate(kinds):
                if own == kind:
                    cycles[chip][first, end] = stage.cycles
        links = self._links(len(bases))
        return [own + links[k][:-1, None] + links[k + 1][None, :] for k, own in enumerate(cycles)]

    def _bounded(self, chip: int) -> Table:
        """Cycles below which no stage on a chip can be, by first level and the one behind the last."""
        depth, path = self.levels.depth, self.target.outward(self.target.engines[0].memory)[-1]
        assert self.target.timing is not None
        planner = self._planner(0, depth, chip)
        level = {self.graph.nodes[position].name: i for i, row in enumerate(self.levels.layers) for position in row}
        near = np.zeros(depth)
        for call, candidates in zip(planner.program.calls, planner.problem(Far.NONE).candidates, strict=True):
            if call.node.name in level and candidates:
                near[level[call.node.name]] += min(c.cycles - c.prefetchable_cycles for c in candidates)
        room = self._room(planner)
        table = np.full((depth, depth + 1), math.inf)
        for first in range(depth):
            cycles, sizes = np.cumsum(near[first:]), np.cumsum(self.levels.weights[first:])
            streaming = np.maximum(sizes - room, 0) * self.target.timing.paths[path.name].byte[0]
            table[first, first + 1 :] = np.where((sizes > room) & (not planner.is_far), math.inf, np.maximum(cycles, streaming))
        return table


def streamed_bytes(plan: Plan) -> int:
    """Bytes of constants that a plan brings from far away at every inference."""
    far = {memory.name for memory in plan.target.memories if memory.is_far}
    constants = [b for b in plan.program.buffers.values() if b.role is Role.CONSTANT and not b.memory]
    return sum(b.bytes for b in constants if plan.fetched.get(b.name, FOR_EVER) != FOR_EVER or plan.residences.get(b.name) in far)


class CountedStages:
    """The costs of stages where a target does not say how long things take: one for every multiply-accumulate and every byte moved.

    There is one memory, so all constants stay where they are.
    """

    def __init__(self, graph: Graph, levels: Levels, target: Target) -> None:
        self.levels = levels
        level = {graph.nodes[position].name: i for i, row in enumerate(levels.layers) for position in row}
        self.work = np.zeros(levels.depth)
        for call in assemble_program("stage", graph, target.kernels).calls:
            if call.node.name in level:
                self.work[level[call.node.name]] += call.geometry.macs() + sum(
                    operand.access_elements for operand in call.operands.values()
                )

    def overflow(self, stage: int, first: int, end: int) -> int:
        """Bytes of constants that do not fit the stage's chip: none, as no memory is looked at here."""
        return 0

    def tables(self, stages: int) -> Sequence[Table]:
        """Counts by first level and the one behind the last, for every stage."""
        depth, crossing = self.levels.depth, np.array(self.levels.crossing, float)
        table = np.full((depth, depth + 1), math.inf)
        for first in range(depth):
            table[first, first + 1 :] = np.cumsum(self.work[first:]) + crossing[first] * (first > 0)
        table[:, 1:depth] += crossing[1:depth]
        return [table] * stages


def plan_pipeline_stages(
    graph: Graph, target: Target, chips: int | Literal["auto"], strategy: Balance, topology: Topology, options: Options
) -> Pipeline:
    """Cut a lowered graph into a pipeline of chips of a target; its system's notes say how.

    Raises:
        UsageError, FitError, UnsupportedError: it cannot be cut so.
    """
    levels = levels_of_graph(graph)
    notes = []
    if target.timing is None or not target.paths:
        if strategy in ("cycles", "profile"):
            notes.append(f"target {target.name} does not say how long things take: stages are balanced by products and bytes")
        cut_pipeline = build_pipeline(graph, levels, chips, strategy, CountedStages(graph, levels, target))
        return replace(cut_pipeline, system=replace(cut_pipeline.system, notes=tuple(notes)))
    costs = PlannedStages(graph, levels, target, options, topology)
    cut_pipeline = build_pipeline(graph, levels, chips, strategy, costs)
    if not costs.is_exact:
        notes.append(f"of the cuts that were planned in {costs.rounds} rounds the best was taken; a better one is not excluded")
    for number, ((first, end), cycles) in enumerate(
        zip(stage_segments(cut_pipeline.cuts, levels.depth), costs.times(cut_pipeline.cuts), strict=True)
    ):
        if math.isinf(cycles):
            name = shorten(graph.nodes[levels.layers[first][0]].name)
            raise FitError(
                f"stage {number} of {len(cut_pipeline.cuts) + 1}, from node {name} on, "
                f"has {sum(levels.weights[first:end])} bytes of constants "
                f"and does not fit a chip",
                "Ask for more chips, cut by --balance parameters or cycles, or keep constants far away: --default-memory L3.",
            )
        far = costs.stage(first, end, number).streamed
        resident = sum(levels.weights[first:end]) - far
        notes.append(f"stage {number}: {cycles:.0f} cycles predicted, {resident} bytes of constants kept, {far} streamed")
    return replace(cut_pipeline, system=replace(cut_pipeline.system, notes=tuple(notes)))
