"""Planning: Choose and Place, joined by cuts.

On a flat machine buffers lie in the only memory, constants are part of the program, and a call is one tile. Where calls may change places
and the network does not fit in the order of the file, the order that needs the least memory at once is tried. Where there are several
memories, the constants are first all kept in the one around the engines' own, where reading them costs least. Only when that does not
fit, or leaves activations so little room that a plan takes more than twice the cycles of computing, further residences enter the
problem: activations and constants that stay far away and are streamed through, and constants that are fetched for the calls that
use them; large buffers at first, and all of them when that is not enough. A choice that cannot be packed is forbidden and the
problem solved again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Literal

from deeploy.errors import FitError
from deeploy.ir.target import Target
from deeploy.options import DETERMINISTIC_SECONDS
from deeploy.planning.candidates.candidate import Candidate, with_prefetch
from deeploy.planning.candidates.instruction_cache import code_of
from deeploy.planning.candidates.priced import price_candidate
from deeploy.planning.candidates.tiler import Tiler
from deeploy.planning.candidates.variants import prune_variants
from deeploy.planning.choice import problem as choices
from deeploy.planning.choice import reduce
from deeploy.planning.choice.greedy import choose_greedily
from deeploy.planning.choice.infeasibility import Relaxed, bound_candidates, explain_infeasibility, explain_unpacked, fewest_bytes
from deeploy.planning.choice.prefetch import prefetch_earlier
from deeploy.planning.choice.problem import Choice, ChoiceProblem, Residence, Search, Users
from deeploy.planning.choice.repeat import expand_choice, find_repetition, shorten_problem
from deeploy.planning.choice.resident_constants import Far, is_near, pinnable_constants
from deeploy.planning.choice.unpriced import remove_prices
from deeploy.planning.cost import candidate_kind
from deeploy.planning.groups.flat_memory import best_of
from deeploy.planning.packing.addresses import Overfull, Packing, Placement, place_wanted
from deeploy.planning.packing.lifetimes import FOR_EVER, block_lifetimes, most_alive, wanted_blocks
from deeploy.planning.plan import UNLIMITED, LevelUse, Machine, Plan, Prediction
from deeploy.planning.planner.fixes import reorder_program, where_fixed
from deeploy.planning.planner.machine import levels_of
from deeploy.planning.program import Buffer, Call, Program, Role, calls_ahead, choose_variants

WORTH_STREAMING = 1 / 32  # of the memory around the engines' own
WORTH_STREAMING_LONG = 1 / 8  # of it, in long networks, where constants can arrive while calls before are computed
WORTH_LEAVING = 1 / 2  # of it, that activations of long networks have to take before any of them may live further out
LONG = 64  # calls of networks that are not long
MOST_CANDIDATES = 3000  # of problems that are solved in one piece: those with more may be cut at repetitions or at far residences
MOST_WAITING = 2  # times the cycles of computing, above which a plan with all constants near is not the only one that is made
LARGE_GAP = 0.01  # that is good enough for those solved in two
MOST_CUTS = 8  # choices that may fail to be packed before the capacity is lowered instead


Solved = tuple[Choice, tuple[Placement, ...], dict[str, Packing], ChoiceProblem]


class Planner:
    """Builds the problems of one network and turns a choice into a Plan."""

    def __init__(
        self,
        program: Program,
        target: Target,
        machine: Machine,
        seconds: float = DETERMINISTIC_SECONDS,
        every: bool = False,
        relaxed: Literal["", "bytes", "far"] = "",
    ) -> None:
        self.given = program
        # Estimates of a flat machine are reported; a choice among its kernels is by the target's order of preference.
        self.is_timed = target.timing is not None and not (target.is_flat and target.timing.is_estimate)
        self.every = every or not self.is_timed  # every variant of a call is offered
        self.relaxed = relaxed  # bytes alone are asked for, in memories that are large enough; "far": as little near as can be
        self.target = target
        self.machine = machine
        self.search = Search(seconds)
        self.levels = levels_of(target)
        self.reach = {
            engine.name: tuple(self.levels.index(level) for level in (engine.memory, *(path.far for path in target.outward(engine.memory))))
            for engine in target.engines
        }
        self.around = 0 if target.is_flat else 1  # the memory in which buffers and constants lie that are nowhere else
        self.io = sum(program.buffers[name].bytes for name in (*program.inputs, *program.outputs))
        self.room = {level: UNLIMITED if relaxed else self._room(distance, level) for distance, level in enumerate(self.levels)}
        self.depths = {"auto": (1, 2), "double": (2,), "single": (1,)}[machine.buffering]
        self._tilers: dict[tuple[object, ...], Tiler] = {}
        self._known_candidates: dict[tuple[object, ...], list[Candidate]] = {}
        if not self.every:
            program = prune_variants(program, lambda call: self._tiler(call, program), lambda call: candidate_kind(call, program.buffers))
        self.program = program
        self.blocks = [b for b in block_lifetimes(program) if program.buffers[b.buffers[0]].role in (Role.LOCAL, Role.STATE)]
        self.group = {name: block.buffers[0] for block in self.blocks for name in block.buffers}
        self.homes = {self.group.get(name, name): fix.value for fix in machine.fixes if fix.what == "memory" for name in fix.names}
        self.is_long = len(program.calls) > LONG
        self.is_far = not target.is_flat and target.memory(machine.default_memory).is_far
        self.far = Far.ALL if self.is_far else Far.NONE  # what may live furthest out
        self.may_pin = is_near(target, machine) and not relaxed
        self.constants = [b for b in program.buffers.values() if b.role is Role.CONSTANT]
        self.users = choices.users_of(program)
        self.overfull: tuple[str, int] | None = None  # the memory for which no addresses were found last, and bytes that would do
        self.tight = set(range(len(program.calls)))  # steps in which what is nearest to the engines may have to leave room

    def _room(self, distance: int, level: str) -> int:
        """Bytes of a memory that are the plan's: the caller's arrays lie in the memory next to the engines' own."""
        memory = self.target.memory(level)
        if memory.capacity is None or distance != 1 or self.target.is_flat:
            return self.machine.capacities[level]
        return min(self.machine.capacities[level], memory.capacity - memory.reserved - self.io)

    def aligned(self, size: int, distance: int) -> int:
        unit = self.target.memory(self.levels[distance]).alignment
        return -(-size // unit) * unit

    def resident_bytes(self, distance: int, program: Program | None = None, far: Far = Far.LARGE) -> int:
        """Bytes of constants that lie beside the arena of a memory, for ever: of a program, or of any that may be chosen."""
        constants = program.buffers.values() if program is not None else (b for b in self.constants if not self.users.get(b.name))
        resident_bytes = (b for b in constants if b.role is Role.CONSTANT and distance in self._resident(b, far))
        return sum(self.aligned(b.bytes, distance) for b in resident_bytes)

    def _resident(self, buffer: Buffer, far: Far) -> tuple[int, ...]:
        """The memories that hold a constant for ever: where it lies, and with ``Far.NONE`` also where a far one is copied to."""
        if self.target.is_flat:
            return ()
        if buffer.memory:
            return (self.levels.index(buffer.memory),)
        return ((1, 2) if far is Far.NONE else (2,)) if self.is_far else (1,)

    def capacities(self, far: Far) -> list[int]:
        """Bytes per distance that a choice may fill beside the constants that it needs in any case."""
        return [self.room[level] - self.resident_bytes(distance, far=far) for distance, level in enumerate(self.levels)]

    def shares(self, far: Far) -> list[choices.ConditionalConstant]:
        """The constants that are there only if a call runs by a certain variant."""
        conditional_bytes: dict[tuple[int, Users], int] = {}
        for buffer in self.constants:
            for distance in self._resident(buffer, far) if self.users.get(buffer.name) else ():
                key = distance, self.users[buffer.name]
                conditional_bytes[key] = conditional_bytes.get(key, 0) + self.aligned(buffer.bytes, distance)
        return [choices.ConditionalConstant(distance, size, users) for (distance, users), size in conditional_bytes.items()]

    def residences(self, far: Far) -> list[Residence]:
        """The buffers to be placed, and where they may live."""
        result = []
        steps_of: dict[str, list[int]] = {}
        for step, call in enumerate(self.program.calls):
            for operand in call.operands.values():
                steps_of.setdefault(operand.buffer, []).append(step)
        load = most_alive(self.blocks, len(self.program.calls))
        is_full = load > self.room[self.levels[self.around]] * WORTH_LEAVING
        leaves = self.is_far and (far is Far.ALL or not self.is_long or is_full)
        for block in self.blocks:
            may_leave = leaves and self._may_leave(block.size, far)
            common = self.reach[self.target.engines[0].name][: 3 if may_leave else 2]
            distances = [distance for distance in common if self.target.is_flat or block.size <= self.room[self.levels[distance]]]
            steps = max(block.first, 0), min(block.last, len(self.program.calls) - 1)
            uses = sorted({step for name in block.buffers for step in steps_of.get(name, ())})
            if any(self._is_indirect(step, name) for step in uses for name in block.buffers):
                distances = [distance for distance in distances if distance < 2]
            distances += [distance for distance in self._private(uses) if block.size <= self.room[self.levels[distance]]]
            wanted = self.machine.residences.get(block.buffers[0]) or self.homes.get(block.buffers[0])
            distances = [distance for distance in distances if wanted in (None, self.levels[distance])]
            if self.tight.isdisjoint(range(steps[0], steps[1] + 1)) and self._work_in(uses) == {*distances[:1]}:
                distances = distances[:1]
            result.append(Residence(block.buffers[0], self.aligned(block.size, self.around), steps, tuple(distances)))
        if self.may_pin:
            result += pinnable_constants(self.program, self.room[self.levels[0]], self.target.memory(self.levels[0]).alignment)
        result += self._far_constants(far) if far and self.is_far else []
        if self.machine.fixes and not self.relaxed:
            is_last = far is Far.ALL or not self.is_far
            result = where_fixed(self.machine.fixes, result, self.group, self.levels, self.around if is_last else None)
        if self.relaxed == "far":
            common = self.reach[self.target.engines[0].name]
            result = [replace(one, distances=tuple([at for at in one.distances if at in common][-1:])) for one in result]
        return result

    def _work_in(self, steps: Sequence[int]) -> set[int]:
        """The own memories of all engines that could run some calls."""
        return {self.reach[call.kernel.engine][0] for step in steps for call in self.program.variants(step)}

    def _private(self, steps: Sequence[int]) -> list[int]:
        """Own memories of further engines that could run all of these calls."""
        able = [{self.reach[call.kernel.engine][0] for call in self.program.variants(step)} for step in steps]
        common = self.reach[self.target.engines[0].name]
        return [distance for distance in range(len(self.levels)) if distance not in common and all(distance in numbers for numbers in able)]

    def _far_constants(self, far: Far) -> list[Residence]:
        uses: dict[str, list[int]] = {}
        for step in range(len(self.program.calls)):
            for operand in (operand for call in self.program.variants(step) for operand in call.operands.values()):
                uses.setdefault(operand.buffer, []).append(step)
        path = self.target.outward(self.levels[0])[1]
        assert self.target.timing is not None
        timing = self.target.timing.paths[path.name]
        large, small = list[Residence](), list[Residence]()
        for buffer in (b for b in self.constants if not b.memory):
            steps = uses[buffer.name]
            commands = max(1, -(-buffer.bytes // path.max_total))
            fetch = int(timing.data(buffer.bytes, 0, False) + timing.latency[0] + commands * timing.issue)
            is_indirect = any(self._is_indirect(step, buffer.name) for step in steps)
            distances = (1, 2) if self._may_leave(buffer.bytes, far) and not is_indirect else (1,)
            users = self.users.get(buffer.name, ())
            residence = Residence(buffer.name, self.aligned(buffer.bytes, 1), (steps[0], steps[-1]), distances, fetch, (), users, 2)
            (large if self._may_leave(buffer.bytes, Far.LARGE) and not is_indirect else small).append(residence)
        return large + reduce.bundle_constants(small)

    def _may_leave(self, size: int, far: Far) -> bool:
        """Whether a buffer may be streamed from a far memory: first those for which that is better than to hold them whole."""
        worth = WORTH_STREAMING_LONG if self.is_long else WORTH_STREAMING
        return far is Far.ALL or (far is Far.LARGE and size > self.room[self.levels[1]] * worth)

    def _is_indirect(self, step: int, buffer: str) -> bool:
        return any(call.operands[name].buffer == buffer for call in self.program.variants(step) for name in call.geometry.nest.indirect)

    def problem(self, far: Far) -> ChoiceProblem:
        """The problem of choosing candidates and residences (``choice.choose``), with constants that may lie as ``far`` says."""
        residences = {residence.name: residence for residence in self.residences(far)}
        bundles = {
            member: residence.name for residence in residences.values() if len(residence.distances) > 1 for member in residence.members
        }
        candidates, operands = [], []
        for step in range(len(self.program.calls)):
            call_candidates: list[Candidate] = []
            named = []
            for number, call in enumerate(self.program.variants(step)):
                names = {name: self._residence_of(operand.buffer, residences, bundles) for name, operand in call.operands.items()}
                distinct = list(dict.fromkeys(residence for residence in names.values() if residence is not None))
                reach = self.reach[call.kernel.engine]
                for distances in itertools.product(
                    *([distance for distance in residences[residence].distances if distance in reach] for residence in distinct)
                ):
                    given = dict(zip(distinct, distances, strict=True))
                    unchosen = {n: reach[0] if self.program.buffers[o.buffer].memory else self.around for n, o in call.operands.items()}
                    call_candidates += self._candidates(
                        call, number, {n: unchosen[n] if residence is None else given[residence] for n, residence in names.items()}
                    )
                named.append(list(names.values()))
            candidates.append(call_candidates)
            operands.append(named)
        starts = tuple(calls_ahead(self.program.calls, step) for step in range(len(candidates)))
        codes = [[code_of(call, self.target) for call in self.program.variants(step)] for step in range(len(candidates))]
        return ChoiceProblem(
            candidates, operands, list(residences.values()), self.capacities(far), self.shares(far), ahead=starts, codes=codes
        )

    def _residence_of(self, buffer: str, residences: Mapping[str, Residence], bundles: Mapping[str, str]) -> str | None:
        name = bundles.get(buffer, self.group.get(buffer, buffer))
        return name if name in residences else None

    def _candidates(self, call: Call, number: int, distances: Mapping[str, int]) -> list[Candidate]:
        """The candidates of a variant of a call; equal calls share them."""
        reach = self.reach[call.kernel.engine]
        wanted = (self._kind(call, self.program), number, tuple(distances.values()))
        if wanted not in self._known_candidates:
            tiler = self._tiler(call, self.program)
            given = {name: reach.index(distance) for name, distance in distances.items()}
            depths = {"single": (1,), "double": (2,)}.get(self.machine.fixed(call.name).get("buffering", ""), self.depths)
            candidates = bound_candidates(tiler, given, min(depths)) if self.relaxed else tiler.candidates(given, depths)
            self._known_candidates[wanted] = [
                self._numbered(price_candidate(tiler, candidate, self.machine.price), number, reach) for candidate in candidates
            ]
        return self._known_candidates[wanted]

    def _tiler(self, call: Call, program: Program) -> Tiler:
        """What tiles a call; equal calls share it."""
        key = self._kind(call, program)
        if key not in self._tilers:
            self._tilers[key] = Tiler(call, program.buffers, self.target, self.room, self.machine.cores, self.machine.tiles(call.name))
        return self._tilers[key]

    def _kind(self, call: Call, program: Program) -> tuple[object, ...]:
        """What equal calls have in common."""
        return *candidate_kind(call, program.buffers), *sorted(self.machine.fixed(call.name).items())

    def _numbered(self, candidate: Candidate, number: int, reach: Sequence[int]) -> Candidate:
        """A candidate that counts memories as all engines do, and not from its own engine outwards.

        Where time was not measured, what comes earlier in the order of preference is taken for faster.
        """
        every = tuple(dict(zip(reach, candidate.bytes, strict=True)).get(distance, 0) for distance in range(len(self.levels)))
        distances = tuple(reach[distance] for distance in candidate.distances)
        cycles = candidate.cycles if self.is_timed else number
        return replace(candidate, distances=distances, bytes=every, cycles=cycles, variant=number, engine_memory=reach[0])

    def plan(self) -> Plan:
        """The plan with the fewest predicted cycles.

        Raises:
            FitError: nothing fits.
        """
        tilers = [[self._tiler(one, self.program) for one in self.program.variants(step)] for step in range(len(self.program.calls))]
        if any(all(tiler.least > tiler.capacities[tiler.engine.memory] for tiler in each) for each in tilers):
            self.check()
        is_home = any(fix.what == "memory" for fix in self.machine.fixes) and self.is_far  # which of the first problems say nothing of
        near = None if is_home else self._solved(Far.NONE)
        least_work = sum(min(float(tiler.whole.min()) for tiler in each) for each in tilers)
        is_slow = near is None or near[0].cycles > MOST_WAITING * least_work  # as where constants leave activations hardly any room
        large = self._solved(Far.LARGE) if self.is_far and is_slow and not is_home else None
        solved = min((one for one in (near, large) if one is not None), key=lambda one: one[0].cycles, default=None)
        if solved is None:
            self.check()
            solved = self._solved(Far.ALL) if self.is_far else None
        if solved is None and not self.every:
            return Planner(self.given, self.target, self.machine, self.search.seconds, every=True).plan()
        if solved is None:
            raise explain_unpacked(self.target, *(self.overfull or (self.levels[0], self.room[self.levels[0]] + 1)), self.room)
        return self._finish(*solved)

    def is_overfull(self) -> bool:
        """Whether constants, or these and the activations of a step, take more than there is, whatever is chosen."""
        shares, capacities = self.shares(self.far), self.capacities(self.far)
        room = [size - fewest_bytes(shares, distance, self.program) for distance, size in enumerate(capacities)]
        near = [size for size, level in zip(room, self.levels, strict=True) if self.is_far or not self.target.memory(level).is_far]
        return min(room) < 0 or most_alive(self.blocks, len(self.program.calls)) > sum(near)

    def _solved(self, far: Far) -> Solved | None:
        """A choice with addresses; None where there is none."""
        if min(self.capacities(far)) < 0:  # beside what is there in any case
            return None
        if not self.target.is_flat:
            self.tight = set()  # all activations are as near as they can, at first
            self.tight = reduce.tight_steps(self.problem(far), 0)
        problem = reduce.without_harmless(self.problem(far))
        if far is Far.NONE:
            return self._solve_repeated(problem)
        return self._solve(problem) if sum(map(len, problem.candidates)) <= MOST_CANDIDATES else self._solve_large(problem)

    def check(self) -> None:
        """Raise ``FitError`` where some memory is too small whatever is chosen, without looking for a plan."""
        if (error := explain_infeasibility(self._relaxed(self.machine, "bytes"))) is not None:
            raise error

    def _relaxed(self, machine: Machine, how: Literal["bytes", "far"] = "far") -> Relaxed:
        planner = Planner(self.given, self.target, machine, every=True, relaxed=how)
        sizes = planner.shares(planner.far), [*map(planner.resident_bytes, range(len(self.levels)))], [*self.room.values()], self.io
        return Relaxed(self.given, self.target, machine, self.levels, partial(planner.problem, planner.far), *sizes, self._relaxed)

    def _solve_repeated(self, problem: ChoiceProblem) -> Solved | None:
        """A large problem by its repeated blocks, where it has some; any other in one piece."""
        if sum(map(len, problem.candidates)) <= MOST_CANDIDATES:
            return self._solve(problem)
        distances = {residence.name: residence.distances for residence in problem.residences}
        signatures = [
            (
                tuple(problem.candidates[step]),  # of equal calls, other ones may be left out where more lies beside them
                *(
                    (candidate_kind(call, self.program.buffers), tuple(None if name is None else distances[name] for name in names))
                    for call, names in zip(self.program.variants(step), problem.operands[step], strict=True)
                ),
            )
            for step in range(len(problem.candidates))
        ]
        blocks = find_repetition(signatures)
        short = shorten_problem(problem, blocks) if blocks is not None else None
        first = reduce.cheapest_choice(short, replace(self.search, gap=LARGE_GAP)) if short is not None else None
        choice = expand_choice(problem, blocks, first) if blocks is not None and first is not None else None
        if choice is None:
            return self._solve(problem)
        try:
            placements, packings = self._place(problem, choice)
        except Overfull:
            return self._solve(problem)
        return replace(choice, bound=choices.least_cycles(problem)), placements, packings, problem

    def _solve_large(self, problem: ChoiceProblem) -> Solved | None:
        """A problem whose far residences are settled first, by a few candidates of each call."""
        few = reduce.coarsen_problem(problem)
        first = reduce.cheapest_choice(few, replace(self.search, gap=LARGE_GAP))
        if first is None:
            return self._solve(problem)
        every = reduce.settle_residences(problem, first)
        bound = choices.least_cycles(problem)
        if first.cycles <= (1 + LARGE_GAP) * bound:
            with suppress(Overfull):
                return *self._placed(every, replace(reduce.restore_choice(first, few, every), bound=bound)), every
        solved = self._solve(every, replace(self.search, gap=LARGE_GAP))
        if solved is None:
            return self._solve(problem)
        choice, placements, packings, reduced = solved
        return replace(choice, bound=bound), placements, packings, reduced

    def _solve(self, problem: ChoiceProblem, search: Search | None = None) -> Solved | None:
        """Choose and Place until a choice is packed; None when there is nothing left to choose."""
        search = search or self.search
        forbidden: list[Choice] = []
        while True:
            choice = reduce.cheapest_choice(problem, search, forbidden)
            if choice is None:
                return None
            try:
                return *self._placed(problem, choice), problem
            except Overfull as overfull:
                self.overfull = overfull.level, overfull.needed
                forbidden.append(choice)
                if len(forbidden) >= MOST_CUTS:
                    forbidden.clear()
                    problem = reduce.tighten_capacity(problem, self.levels.index(overfull.level), overfull.needed)

    def _placed(self, problem: ChoiceProblem, choice: Choice) -> tuple[Choice, tuple[Placement, ...], dict[str, Packing]]:
        """The choice with addresses; its fetches begin as early as there is room, unless that cannot be packed."""
        earlier = prefetch_earlier(problem, choice)
        if earlier is not choice:
            earlier = replace(earlier, bound=min(choice.bound, choices.least_cycles(problem)))
            with suppress(Overfull):
                return earlier, *self._place(problem, earlier)
        return choice, *self._place(problem, choice)

    def _place(self, problem: ChoiceProblem, choice: Choice) -> tuple[tuple[Placement, ...], dict[str, Packing]]:
        program = self._program(problem, choice)
        room = {level: self.room[level] - self.resident_bytes(distance, program) for distance, level in enumerate(self.levels)}
        residences, fetched = self._levels_of(problem, choice, program), self._fetched_steps(problem, choice, program)
        wanted = wanted_blocks(program, self.target, self._chosen(problem, choice), residences, self.blocks, fetched)
        return place_wanted(wanted, self.target, room)

    def _program(self, problem: ChoiceProblem, choice: Choice) -> Program:
        """The program with the calls that were chosen."""
        return choose_variants(self.program, [candidate.variant for candidate in problem.chosen(choice.picks)])

    def _chosen(self, problem: ChoiceProblem, choice: Choice) -> list[Candidate]:
        return [with_prefetch(c, is_prefetched) for c, is_prefetched in zip(problem.chosen(choice.picks), choice.prefetched, strict=True)]

    def _levels_of(self, problem: ChoiceProblem, choice: Choice, program: Program) -> dict[str, str]:
        """The level where every buffer is resident."""
        levels = {b.name: b.memory or self.levels[self.around] for b in program.buffers.values() if b.role is Role.CONSTANT}
        for residence in problem.residences:
            if residence.name in choice.residences:
                levels |= dict.fromkeys(residence.buffers, self.levels[choice.residences[residence.name]])
        return levels

    def _fetched_steps(self, problem: ChoiceProblem, choice: Choice, program: Program) -> dict[str, tuple[int, int]]:
        """The steps in which copies of far constants are there."""
        last = len(program.calls)
        if self.is_far and not any(residence.fetch is not None for residence in problem.residences):
            return {b.name: (FOR_EVER, last) for b in program.buffers.values() if b.role is Role.CONSTANT and not b.memory}
        fetched: dict[str, tuple[int, int]] = {}
        for residence in problem.residences:
            if choice.residences.get(residence.name, residence.origin) != residence.origin and residence.origin is not None:
                steps = (choice.fetched[residence.name], residence.steps[1]) if residence.name in choice.fetched else (FOR_EVER, last)
                fetched |= dict.fromkeys((name for name in residence.buffers if name in program.buffers), steps)
        return fetched

    def _finish(self, choice: Choice, placements: tuple[Placement, ...], packings: Mapping[str, Packing], problem: ChoiceProblem) -> Plan:
        problem, choice = remove_prices(problem, choice)
        program = self._program(problem, choice)
        residences = self._levels_of(problem, choice, program)
        level = residences | {name: residences[head] for name, head in self.group.items()}
        fetched = {name: first for name, (first, _) in self._fetched_steps(problem, choice, program).items()}
        by_hand = choose_greedily(problem) if self.is_timed and not self.target.is_flat else None
        return Plan(
            program,
            self.target,
            placements,
            self._use(packings, program),
            self.machine,
            tuple(self._chosen(problem, choice)),
            level,
            fetched,
            Prediction(choice.cycles, choice.bound, by_hand.cycles if by_hand is not None else None) if self.is_timed else None,
            tuple(tuple(candidates) for candidates in problem.candidates) if self.is_timed else (),
            tuple(self.program.variants(step) for step in range(len(program.calls))),
        )

    def _use(self, packings: Mapping[str, Packing], program: Program) -> dict[str, LevelUse]:
        result = {}
        for distance, level in enumerate(self.levels[:1] if self.target.is_flat else self.levels):
            memory, packing = self.target.memory(level), packings[level]
            resident_bytes = self.resident_bytes(distance, program)
            capacity, io = self.room[level] if memory.capacity is not None else None, self.io if distance == self.around else 0
            peak, bound = packing.peak + resident_bytes, packing.lower_bound + resident_bytes
            result[level] = LevelUse(capacity, memory.alignment, peak, bound, io, resident_bytes, memory.reserved)
        return result


def make_plan(program: Program, target: Target, machine: Machine, seconds: float = DETERMINISTIC_SECONDS) -> Plan:
    """Plan a network.

    Raises:
        FitError: nothing fits; names the call, the buffer, the level and a capacity that would do.
    """
    if not target.is_flat:
        try:
            if (planner := Planner(program, target, machine, every=True)).is_overfull():
                planner.check()
            return Planner(program, target, machine, seconds).plan()
        except FitError:
            other = reorder_program(program, machine)
            if other is program:
                raise
            planner = Planner(other, target, machine, seconds)
            with suppress(FitError):
                planner.check()
                return planner.plan()
            raise
    roomy = replace(machine, capacities=dict.fromkeys(machine.capacities, UNLIMITED))
    plans = [Planner(one, target, roomy, seconds).plan() for one in dict.fromkeys((program, reorder_program(program, machine)))]
    return best_of(plans, machine)
