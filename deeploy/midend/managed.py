"""Planning for a machine with several memories: Choose and Place, joined by cuts.

First the constants are all kept in the memory around the engines' own, where reading them costs least. Only when that does not
fit, further homes enter the problem: activations and constants that stay far away and are streamed through, and constants
that are fetched for the calls that use them; large buffers at first, and all of them when that is not enough. A choice that
cannot be packed is forbidden and the problem solved again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum

from deeploy.graph.target import Target
from deeploy.midend.candidates import Candidate, Tiler, with_early
from deeploy.midend.choose import DETERMINISTIC_SECONDS, Choice, Home, Problem, Search, choose
from deeploy.midend.greedy import greedy_cycles
from deeploy.midend.lifetime import FOR_EVER, lifetimes
from deeploy.midend.misfit import Misfit, misfit
from deeploy.midend.pack import Packing
from deeploy.midend.place import Overfull, Placement, place, tenants
from deeploy.midend.plan import LevelUse, Machine, Plan, Prediction
from deeploy.midend.program import Call, Program, Role
from deeploy.midend.reduce import bundled, coarse, settled
from deeploy.midend.repeat import expanded, repetition, shortened

WORTH_STREAMING = 1 / 32  # of the memory around the engines' own
MOST_CANDIDATES = 3000  # of problems that are solved in one piece: those with more may be cut at repetitions or at far homes
LARGE_GAP = 0.01  # that is good enough for those solved in two
MOST_CUTS = 8  # choices that may fail to be packed before the capacity is lowered instead


class Far(IntEnum):
    """Which buffers may live in the far memory and be streamed from there."""

    NONE = 0
    LARGE = 1
    ALL = 2


Solved = tuple[Choice, tuple[Placement, ...], dict[str, Packing], Problem]


class Planner:
    """Builds the problems of one network and turns a choice into a Plan."""

    def __init__(self, program: Program, target: Target, machine: Machine, seconds: float = DETERMINISTIC_SECONDS) -> None:
        self.program = program
        self.target = target
        self.machine = machine
        self.search = Search(seconds)
        engine = target.engines[0]
        self.levels = (engine.memory, *(path.far for path in target.outward(engine.memory)))
        self.io = sum(program.buffers[name].bytes for name in (*program.inputs, *program.outputs))
        self.room = {level: self._room(hop, level) for hop, level in enumerate(self.levels)}
        self.blocks = [b for b in lifetimes(program) if program.buffers[b.buffers[0]].role in (Role.LOCAL, Role.STATE)]
        self.group = {name: block.buffers[0] for block in self.blocks for name in block.buffers}
        self.is_far = target.memory(machine.default_memory).is_far
        self.constants = [b for b in program.buffers.values() if b.role is Role.CONSTANT]
        self.depths = {"auto": (1, 2), "double": (2,), "single": (1,)}[machine.buffering]
        self._tilers: dict[tuple[object, ...], Tiler] = {}
        self._found: dict[tuple[object, ...], list[Candidate]] = {}

    def _room(self, hop: int, level: str) -> int:
        """Bytes of a memory that are the plan's: the caller's arrays lie in the memory next to the engine's own."""
        memory = self.target.memory(level)
        if memory.capacity is None or hop != 1:
            return self.machine.capacities[level]
        return min(self.machine.capacities[level], memory.capacity - memory.reserved - self.io)

    def aligned(self, size: int, hop: int) -> int:
        unit = self.target.memory(self.levels[hop]).alignment
        return -(-size // unit) * unit

    def constant_bytes(self) -> int:
        """Bytes of all constants in the memory next to the engine's own."""
        return sum(self.aligned(b.bytes, 1) for b in self.constants)

    def beside(self, hop: int) -> int:
        """Bytes of constants that lie beside the arena of a memory, for ever."""
        return sum(self.aligned(b.bytes, hop) for b in self.constants) if hop == (2 if self.is_far else 1) else 0

    def capacities(self, far: Far) -> list[int]:
        """Bytes per hop that a choice may fill; with ``Far.NONE``, copies of all far constants are there already."""
        copies = self.constant_bytes() if self.is_far and far is Far.NONE else 0
        return [self.room[level] - self.beside(hop) - (copies if hop == 1 else 0) for hop, level in enumerate(self.levels)]

    def homes(self, far: Far) -> list[Home]:
        """The buffers to be placed, and where they may live."""
        result = []
        for block in self.blocks:
            may_leave = self.is_far and self._may_leave(block.size, far)
            hops = [hop for hop in range(3 if may_leave else 2) if block.size <= self.room[self.levels[hop]]]
            steps = max(block.first, 0), min(block.last, len(self.program.calls) - 1)
            if any(self._is_indirect(step, name) for step in range(steps[0], steps[1] + 1) for name in block.buffers):
                hops = [hop for hop in hops if hop < 2]
            result.append(Home(block.buffers[0], self.aligned(block.size, 1), steps, tuple(hops)))
        return result + (self._far_constants(far) if far and self.is_far else [])

    def _far_constants(self, far: Far) -> list[Home]:
        uses: dict[str, list[int]] = {}
        for step, call in enumerate(self.program.calls):
            for operand in call.operands.values():
                uses.setdefault(operand.buffer, []).append(step)
        path = self.target.paths[1]
        assert self.target.timing is not None
        timing = self.target.timing.paths[path.name]
        large: list[Home] = []
        small: list[Home] = []
        for buffer in self.constants:
            steps = uses[buffer.name]
            commands = max(1, -(-buffer.bytes // path.max_total))
            fetch = int(timing.data(buffer.bytes, 0, commands, False) + commands * timing.issue)
            is_indirect = any(self._is_indirect(step, buffer.name) for step in steps)
            hops = (1, 2) if self._may_leave(buffer.bytes, far) and not is_indirect else (1,)
            home = Home(buffer.name, self.aligned(buffer.bytes, 1), (steps[0], steps[-1]), hops, fetch)
            (large if self._may_leave(buffer.bytes, Far.LARGE) and not is_indirect else small).append(home)
        return large + bundled(small)

    def _may_leave(self, size: int, far: Far) -> bool:
        """Whether a buffer may be streamed from a far memory: first those for which that is better than to hold them whole."""
        return far is Far.ALL or (far is Far.LARGE and size > self.room[self.levels[1]] * WORTH_STREAMING)

    def _is_indirect(self, step: int, buffer: str) -> bool:
        call = self.program.calls[step]
        return any(call.operands[name].buffer == buffer for name in call.geometry.nest.indirect)

    def problem(self, far: Far) -> Problem:
        """What is to be chosen; see ``deeploy.midend.choose``."""
        homes = {home.name: home for home in self.homes(far)}
        bundles = {member: home.name for home in homes.values() if len(home.hops) > 1 for member in home.members}
        candidates, operands = [], []
        for call in self.program.calls:
            names = {name: self._home_of(operand.buffer, homes, bundles) for name, operand in call.operands.items()}
            found: list[Candidate] = []
            distinct = list(dict.fromkeys(home for home in names.values() if home is not None))
            for hops in itertools.product(*(homes[home].hops for home in distinct)):
                given = dict(zip(distinct, hops, strict=True))
                found += self._candidates(call, {name: 1 if home is None else given[home] for name, home in names.items()})
            candidates.append(found)
            operands.append(list(names.values()))
        return Problem(candidates, operands, list(homes.values()), self.capacities(far))

    def _home_of(self, buffer: str, homes: Mapping[str, Home], bundles: Mapping[str, str]) -> str | None:
        name = bundles.get(buffer, self.group.get(buffer, buffer))
        return name if name in homes else None

    def _candidates(self, call: Call, hops: Mapping[str, int]) -> list[Candidate]:
        """The candidates of a call; equal calls share them."""
        key = _kind(call, self.program)
        if key not in self._tilers:
            capacities = self.room
            cores = min(self.machine.cores, self.target.engine(call.kernel.engine).cores)
            self._tilers[key] = Tiler(call, self.program.buffers, self.target, capacities, cores)
        wanted = (key, tuple(hops.values()))
        if wanted not in self._found:
            self._found[wanted] = self._tilers[key].candidates(hops, self.depths)
        return self._found[wanted]

    def plan(self) -> Plan:
        """The plan with the fewest predicted cycles.

        Raises:
            FitError: nothing fits.
        """
        problem = self.problem(Far.NONE)
        solved = self._solve_repeated(problem) if min(problem.capacities) >= 0 else None
        for far in (Far.LARGE, Far.ALL) if self.is_far else ():
            if solved is None:
                problem = self.problem(far)
                solved = self._solve(problem) if sum(map(len, problem.candidates)) <= MOST_CANDIDATES else self._solve_large(problem)
        if solved is None:
            raise misfit(self._misfit())
        return self._finish(*solved)

    def _misfit(self) -> Misfit:
        def at(hop: int, capacity: int) -> Problem:
            planner = Planner(self.program, self.target, self.machine)
            planner.room[self.levels[hop]] = capacity
            return planner.problem(Far.ALL if self.is_far else Far.NONE)

        beside = [self.beside(hop) for hop in range(len(self.levels))]
        room = [self.room[level] for level in self.levels]
        return Misfit(self.program, self.target, self.machine, self.levels, at, beside, room, self.io)

    def _solve_repeated(self, problem: Problem) -> Solved | None:
        """A large problem by its repeated blocks, where it has some; any other in one piece."""
        if sum(map(len, problem.candidates)) <= MOST_CANDIDATES:
            return self._solve(problem)
        hops = {home.name: home.hops for home in problem.homes}
        signatures = [
            (_kind(call, self.program), tuple(None if name is None else hops[name] for name in operands))
            for call, operands in zip(self.program.calls, problem.operands, strict=True)
        ]
        blocks = repetition(signatures)
        short = shortened(problem, blocks) if blocks is not None else None
        first = choose(short, (), replace(self.search, gap=LARGE_GAP)) if short is not None else None
        choice = expanded(problem, blocks, first) if blocks is not None and first is not None else None
        if choice is None:
            return self._solve(problem)
        try:
            placements, packings = self._place(problem, choice)
        except Overfull:
            return self._solve(problem)
        return replace(choice, bound=_least(problem)), placements, packings, problem

    def _solve_large(self, problem: Problem) -> Solved | None:
        """A problem whose far homes are settled first, by a few candidates of each call."""
        first = choose(coarse(problem), (), replace(self.search, gap=LARGE_GAP, probes=False))
        if first is None:
            return self._solve(problem)
        solved = self._solve(settled(problem, first), replace(self.search, gap=LARGE_GAP))
        if solved is None:
            return self._solve(problem)
        choice, placements, packings, reduced = solved
        return replace(choice, bound=_least(problem)), placements, packings, reduced

    def _solve(self, problem: Problem, search: Search | None = None) -> Solved | None:
        """Choose and Place until a choice is packed; None when there is nothing left to choose."""
        search = search or self.search
        forbidden: list[Choice] = []
        while True:
            choice = choose(problem, forbidden, search)
            if choice is None:
                return None
            try:
                placements, packings = self._place(problem, choice)
                return choice, placements, packings, problem
            except Overfull as overfull:
                forbidden.append(choice)
                if len(forbidden) >= MOST_CUTS:
                    forbidden.clear()
                    problem = _tightened(problem, self.levels.index(overfull.level), overfull.error.needed)

    def _place(self, problem: Problem, choice: Choice) -> tuple[tuple[Placement, ...], dict[str, Packing]]:
        tilings = [c.tiling for c in self._chosen(problem, choice)]
        room = {level: self.room[level] - self.beside(hop) for hop, level in enumerate(self.levels)}
        everything = tenants(self.program, self.target, tilings, self._levels_of(problem, choice), self.blocks, self._kept(problem, choice))
        return place(everything, self.target, room)

    def _chosen(self, problem: Problem, choice: Choice) -> list[Candidate]:
        return [
            with_early(candidates[pick], early)
            for candidates, pick, early in zip(problem.candidates, choice.picks, choice.early, strict=True)
        ]

    def _levels_of(self, problem: Problem, choice: Choice) -> dict[str, str]:
        """The level where every buffer is at home."""
        levels = {b.name: self.levels[1] for b in self.constants}
        for home in problem.homes:
            levels |= dict.fromkeys(home.buffers, self.levels[choice.homes[home.name]])
        return levels

    def _kept(self, problem: Problem, choice: Choice) -> dict[str, tuple[int, int]]:
        """The steps in which copies of far constants are there."""
        last = len(self.program.calls)
        if self.is_far and not any(home.fetch is not None for home in problem.homes):
            return {b.name: (FOR_EVER, last) for b in self.constants}
        kept: dict[str, tuple[int, int]] = {}
        for home in problem.homes:
            if home.fetch is not None and choice.homes[home.name] == 1:
                steps = (choice.fetched[home.name], home.steps[1]) if home.name in choice.fetched else (FOR_EVER, last)
                kept |= dict.fromkeys(home.buffers, steps)
        return kept

    def _finish(self, choice: Choice, placements: tuple[Placement, ...], packings: Mapping[str, Packing], problem: Problem) -> Plan:
        chosen = self._chosen(problem, choice)
        homes = self._levels_of(problem, choice)
        level = homes | {name: homes[head] for name, head in self.group.items()}
        fetched = {name: first for name, (first, _) in self._kept(problem, choice).items()}
        prediction = Prediction(choice.cycles, choice.bound, greedy_cycles(problem))
        offered = tuple(tuple(candidates) for candidates in problem.candidates)
        plan = Plan(self.program, self.target, placements, {}, self.machine, tuple(chosen), level, fetched, prediction, offered)
        return replace(plan, memory=self._use(packings))

    def _use(self, packings: Mapping[str, Packing]) -> dict[str, LevelUse]:
        result = {}
        for hop, level in enumerate(self.levels):
            memory, packing = self.target.memory(level), packings[level]
            beside = self.beside(hop)
            result[level] = LevelUse(
                self.room[level],
                memory.alignment,
                packing.peak + beside,
                packing.lower_bound + beside,
                self.io if hop == 1 else 0,
                beside,
                memory.reserved,
            )
        return result


def _least(problem: Problem) -> int:
    """Cycles below which no choice can go: the best candidate of every call, whatever else is chosen."""
    return sum(min(c.cycles - c.early for c in candidates) for candidates in problem.candidates)


def _tightened(problem: Problem, hop: int, needed: int) -> Problem:
    """The problem with less of the capacity that could not be packed."""
    capacities = list(problem.capacities)
    capacities[hop] -= max(16, needed - capacities[hop])
    return replace(problem, capacities=capacities)


def _kind(call: Call, program: Program) -> tuple[object, ...]:
    """What two calls have in common when they have the same candidates."""
    operands = tuple(
        (name, operand.access, program.buffers[operand.buffer].dtype, program.buffers[operand.buffer].role is Role.CONSTANT)
        for name, operand in call.operands.items()
    )
    attrs = tuple(sorted((name, str(value)) for name, value in call.node.attrs.items()))
    scratch = tuple(program.buffers[name].bytes for name in call.scratch.values())
    return id(call.kernel), call.node.epilogue, attrs, operands, scratch, call.geometry.limited


def plan_managed(program: Program, target: Target, machine: Machine, seconds: float = DETERMINISTIC_SECONDS) -> Plan:
    """Plan a network for a machine with several memories.

    Raises:
        FitError: nothing fits; names the call, the buffer, the level and a capacity that would do.
    """
    return Planner(program, target, machine, seconds).plan()
