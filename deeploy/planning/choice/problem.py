"""What there is to choose for a network, a choice, and what that costs: the one place that adds up cycles and bytes of choices.

A call has candidates for every combination of residences of its operands, and for every kernel that may run it. A residence is a memory
by its distance: 0 keeps an activation where most kernels work, 1 in the memory around it, 2 one further out; further numbers are own
memories of other engines. Addresses come later (``packing.addresses``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from deeploy.options import DETERMINISTIC_SECONDS
from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.candidates.instruction_cache import InstanceCode, cache_savings
from deeploy.planning.program import Program, Role

Users = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Search:
    """How hard to search: deterministic seconds, and the relative gap that is good enough."""

    seconds: float = DETERMINISTIC_SECONDS
    gap: float = 1e-4


SEARCH = Search()


@dataclass(frozen=True)
class ConditionalConstant:
    """Bytes that a memory holds for ever if one of some (step, variant) is chosen: constants that only these need."""

    distance: int
    size: int
    users: Users


@dataclass(frozen=True)
class Residence:
    """What there is to choose for a buffer, or for several that share an address: the memory in which it resides.

    Attributes:
        members: the buffers, where they are several: constants that are fetched or pinned together.
        steps: first and last step in which it is alive, or used if it is a constant.
        distances: the memories to choose from, by their distance from the engines' own.
        fetch: cycles to fetch it whole, where its contents come from a far memory (constants); else None.
        users: (step, variant) of the calls that need it, where it is there only if one of them is chosen.
        origin: the memory that holds a constant in any case, where it takes nothing of what there is to choose; a copy in another one
            is pinned there for ever, unless it is fetched at every inference.
    """

    name: str
    size: int
    steps: tuple[int, int]
    distances: tuple[int, ...]
    fetch: int | None = None
    members: tuple[str, ...] = ()
    users: Users = ()
    origin: int | None = None

    @property
    def buffers(self) -> tuple[str, ...]:
        return self.members or (self.name,)


@dataclass(frozen=True)
class ChoiceProblem:
    """What there is to choose: per call its candidates, and per variant and operand the name of the residence, or None."""

    candidates: Sequence[Sequence[Candidate]]
    operands: Sequence[Sequence[Sequence[str | None]]]
    residences: Sequence[Residence]
    capacities: Sequence[int]  # per distance
    shares: Sequence[ConditionalConstant] = ()
    weights: tuple[int, ...] = ()  # how often the cycles of each call count; once by default
    equal_residences: tuple[tuple[str, str], ...] = ()  # pairs of residences that must be equal
    equal_steps: tuple[tuple[int, int], ...] = ()  # pairs of calls that must pick the same candidate
    codes: Sequence[Sequence[InstanceCode]] = ()  # per call and variant; where there are none, nothing is saved by cached instructions
    cached_weights: tuple[int, ...] = ()  # how often what cached instructions save counts; as often as the call's cycles by default
    ahead: tuple[int, ...] = ()  # how many calls before a call its early windows are on their way; one by default

    def start(self, step: int) -> int:
        """The step in which early windows of a call set out."""
        return step - (self.ahead[step] if self.ahead else 1)

    def weight(self, step: int) -> int:
        """How often the cycles of a call count."""
        return self.weights[step] if self.weights else 1

    def cached_weight(self, step: int) -> int:
        """How many calls the saving of cached instructions at ``step`` stands for, where calls repeat."""
        return self.cached_weights[step] if self.cached_weights else self.weight(step)

    def chosen(self, picks: Sequence[int]) -> list[Candidate]:
        """The candidates of these numbers, one for every call."""
        return [row[pick] for row, pick in zip(self.candidates, picks, strict=True)]

    def executed(self, chosen: Sequence[Candidate]) -> list[InstanceCode]:
        """The code of every call when these candidates are chosen."""
        return [self.code(step, candidate) for step, candidate in enumerate(chosen)]

    def code(self, step: int, candidate: Candidate) -> InstanceCode:
        """The code of a call that runs by a certain variant."""
        return self.codes[step][candidate.variant] if self.codes else InstanceCode("")


@dataclass(frozen=True)
class Choice:
    """What was chosen: per call the number of its candidate, per buffer its residence, and which constants are kept or prefetched.

    ``fetched`` maps constants that are fetched at every inference to the step in which that begins. ``cycles`` and ``bound`` are
    the objective and what no choice can go below. Residences that nobody needs are left out.
    """

    picks: tuple[int, ...]
    prefetched: tuple[bool, ...]
    residences: Mapping[str, int]
    fetched: Mapping[str, int]
    cycles: int
    bound: int


def memory_loads(problem: ChoiceProblem, choice: Choice) -> list[list[int]]:
    """Bytes per memory, by its number, and step: residences, constants that are fetched or pinned, windows and scratch."""
    count = len(problem.candidates)
    load = [[0] * count for _ in problem.capacities]
    for residence in problem.residences:
        distance = choice.residences.get(residence.name)
        if distance is None or distance == residence.origin:
            continue
        is_pinned = residence.origin is not None and residence.name not in choice.fetched
        first, last = (0, count - 1) if is_pinned else (choice.fetched.get(residence.name, residence.steps[0]), residence.steps[1])
        for step in range(first, last + 1):
            load[distance][step] += residence.size
    chosen = problem.chosen(choice.picks)
    for share in problem.shares:
        if any(chosen[step].variant == variant for step, variant in share.users):
            load[share.distance] = [taken + share.size for taken in load[share.distance]]
    for step, candidate in enumerate(chosen):
        for distance, size in enumerate(candidate.bytes):
            load[distance][step] += size
        if choice.prefetched[step]:
            for earlier in range(problem.start(step), step):
                load[candidate.engine_memory][earlier] += candidate.prefetchable_bytes
    return load


class Most:
    """The most bytes of residences that could be in a memory in a step."""

    def __init__(self, problem: ChoiceProblem) -> None:
        self.residences = {residence.name: residence for residence in problem.residences}
        change = [[0] * (len(problem.candidates) + 1) for _ in problem.capacities]
        for residence in problem.residences:
            first, last = residence.steps if residence.origin is None else (0, len(problem.candidates) - 1)
            for distance in residence.distances:
                if distance != residence.origin:
                    change[distance][first] += residence.size
                    change[distance][last + 1] -= residence.size
        self.bytes = [list(accumulate(row)) for row in change]

    def __call__(self, step: int, distance: int, elsewhere: Collection[str] = ()) -> int:
        """But those ``elsewhere``, which are named once each."""
        return self.bytes[distance][step] - sum(self._size(self.residences[name], step, distance) for name in elsewhere)

    def _size(self, residence: Residence, step: int, distance: int) -> int:
        is_there = distance in residence.distances and distance != residence.origin
        return residence.size if is_there and (residence.origin is not None or residence.steps[0] <= step <= residence.steps[1]) else 0


def choice_fits(problem: ChoiceProblem, choice: Choice) -> bool:
    """Whether candidates agree with the residences and every memory holds what it should at every step."""
    for step, candidate in enumerate(problem.chosen(choice.picks)):
        names = problem.operands[step][candidate.variant]
        if any(n is not None and choice.residences[n] != distance for n, distance in zip(names, candidate.distances, strict=True)):
            return False
    rows = zip(memory_loads(problem, choice), problem.capacities, strict=True)
    return all(count <= capacity for row, capacity in rows for count in row)


def evaluate_choice(problem: ChoiceProblem, choice: Choice) -> int:
    """Predicted cycles of a choice.

    A call takes less where its instructions are cached, and where its early windows are there. These are waited for as long as they take
    more than the last tile of the call in which they set out; where an accelerator computes that, the first core starts them meanwhile.
    Constants that are fetched are waited for too.
    """
    chosen = problem.chosen(choice.picks)
    codes = problem.executed(chosen)
    savings = cache_savings(codes, chosen)
    total = 0
    for step, candidate in enumerate(chosen):
        total += problem.weight(step) * candidate.cycles - problem.cached_weight(step) * savings[step]
        if choice.prefetched[step]:
            start = problem.start(step)
            hidden = chosen[start].last_tile_cycles - (chosen[start].last_tile_cache_saving if savings[start] else 0)
            gain = candidate.prefetchable_cycles + (candidate.prefetchable_issue if codes[start].is_accelerated else 0)
            total -= problem.weight(step) * min(gain, hidden)
    return total + sum(problem.weight(step) * wait for step, wait in fetch_waits(problem, choice).items())


def fetch_groups(problem: ChoiceProblem, choice: Choice) -> dict[int, list[Residence]]:
    """What is fetched at every inference, by the step that first uses it."""
    groups: dict[int, list[Residence]] = {}
    for residence in sorted(problem.residences, key=lambda residence: residence.steps[0]):
        if residence.name in choice.fetched:
            groups.setdefault(residence.steps[0], []).append(residence)
    return groups


def free_path_cycles(problem: ChoiceProblem, choice: Choice) -> list[int]:
    """Cycles of every call in which the path from the far memory is free."""
    chosen = problem.chosen(choice.picks)
    return [max(0, c.cycles - less - c.far) for c, less in zip(chosen, cache_savings(problem.executed(chosen), chosen), strict=True)]


def fetch_waits(problem: ChoiceProblem, choice: Choice) -> dict[int, int]:
    """Cycles that calls wait for constants, by step: the path moves them in the order in which they are used, while calls leave it free."""
    fetched = fetch_groups(problem, choice)
    waits: dict[int, int] = {}
    now = path = 0
    arrives: dict[int, int] = {}
    for step, cycles in enumerate(free_path_cycles(problem, choice) if fetched else ()):
        for use, residences in fetched.items():
            if choice.fetched[residences[0].name] == step:
                path = arrives[use] = max(path, now) + sum(residence.fetch or 0 for residence in residences)
        if step in fetched:
            waits[step] = max(0, arrives[step] - now)
            now += waits[step]
        now += cycles
    return waits


def least_cycles(problem: ChoiceProblem) -> int:
    """Cycles below which no choice can go: the best candidate of every call, whatever else is chosen."""
    total, cores, last = 0, set[InstanceCode](), set[InstanceCode]()  # what may have run there, and may have run last
    for step, candidates in enumerate(problem.candidates):
        codes = [problem.code(step, c) for c in candidates]
        savings = [c.cache_saving if code in (last if code.is_short else cores) else 0 for c, code in zip(candidates, codes, strict=True)]
        prefetched = [c.prefetchable_cycles + c.prefetchable_issue if step else 0 for c in candidates]
        rows = zip(candidates, savings, prefetched, strict=True)
        total += problem.weight(step) * min((c.cycles - less - soon for c, less, soon in rows), default=0)
        last = set(codes)
        cores = {code for code in codes if not code.is_short} | (cores if any(code.is_short for code in codes) else set())
    return total


def obvious_choice(problem: ChoiceProblem) -> Choice | None:
    """The cheapest candidate of every call, where these fit together and no choice can take fewer cycles; else None."""
    if not all(problem.candidates) or any(residence.fetch is not None or not residence.distances for residence in problem.residences):
        return None
    picks = tuple(min(range(len(row)), key=[(c.cycles, c.bytes) for c in row].__getitem__) for row in problem.candidates)
    residences = {residence.name: residence.distances[0] for residence in problem.residences if not residence.users}
    for step, candidate in enumerate(problem.chosen(picks)):
        names = problem.operands[step][candidate.variant]
        residences |= {name: distance for name, distance in zip(names, candidate.distances, strict=True) if name is not None}
    choice = Choice(picks, (False,) * len(picks), residences, {}, 0, 0)
    cycles = least_cycles(problem)
    return (
        replace(choice, cycles=cycles, bound=cycles)
        if choice_fits(problem, choice) and evaluate_choice(problem, choice) == cycles
        else None
    )


def users_of(program: Program) -> dict[str, Users]:
    """The (step, variant) that need each constant, for those that another choice does without."""
    users: dict[str, list[tuple[int, int]]] = {}
    certain = set()
    for step in range(len(program.calls)):
        variants = [{operand.buffer for operand in call.operands.values()} for call in program.variants(step)]
        certain |= set.intersection(*variants)
        for number, names in enumerate(variants):
            for name in sorted(names):
                users.setdefault(name, []).append((step, number))
    return {b.name: tuple(users[b.name]) for b in program.buffers.values() if b.role is Role.CONSTANT and b.name in {*users} - certain}
