"""Choose: one candidate for every call and a residence for every buffer, so that the network takes the fewest cycles.

Problem (``choice.problem``). The bytes of all residences, windows and scratch alive in one step may not exceed a memory's capacity,
together with the constants that only the chosen kernels need.

Model (CP-SAT). One literal per candidate, exactly one per call; one per residence of a buffer, tied to the candidates that assume
it; a linear capacity constraint per memory and step; the sum of predicted cycles is minimised. A candidate whose first
constants are fetched early is a literal of its own that takes bytes in the step before, or from before the Sends in front of it on. A
call is cheaper behind one that runs the same instructions (``candidates.cached``): literals say so where the choice decides what ran
before. Constants that come from a far memory and are no longer streamed than at once may stay for ever, or be fetched for their first
use, before or during the call before.

Bound. The solver's own; where residences are chosen first, that of a choice without early windows, less the most that these could save.
Addresses are not in the model: what cannot be packed comes back as a cut (``packing.addresses``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from deeploy.errors import FitError
from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.candidates.instruction_cache import InstanceCode
from deeploy.planning.choice.dominance import undominated_numbers
from deeploy.planning.choice.problem import SEARCH, Choice, ChoiceProblem, Residence, Search, Users, evaluate_choice, least_cycles
from deeploy.planning.packing.solver import cp_model, new_solver, solve_model

# Candidates with early windows. Four networks in little memory, which have more, take 0 to 0.2 % more cycles when residences are chosen
# before early windows; the solver takes a sixth and a sixteenth of the time for two of them (benchmarks/README.md#compile-time).
MANY_PREFETCHABLE = 600

Held = cp_model.LinearExpr | int  # 0, 1, or an expression that is one of them


class _CacheSaving(NamedTuple):
    """Whether the instructions of a call are cached; then: cycles saved, of these in the last tile, and while the far path is free."""

    holds: cp_model.LinearExpr
    cycles: int
    last_tile: int
    free: int


class _ChoiceModel:
    def __init__(self, problem: ChoiceProblem) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        self.pick: list[list[cp_model.IntVar]] = []
        self.load: list[list[list[tuple[cp_model.IntVar, int]]]] = [[[] for _ in problem.candidates] for _ in problem.capacities]
        self.cycles: list[list[tuple[cp_model.IntVar, int]]] = []
        self.cache_saving: list[list[_CacheSaving]] = [[] for _ in problem.candidates]
        self.begun: list[list[tuple[cp_model.LinearExpr, int]]] = [[] for _ in problem.candidates]
        self.prefetched: list[list[cp_model.IntVar | None]] = []
        self.waits: list[tuple[cp_model.IntVar, int]] = []
        self.residence: dict[str, dict[int, cp_model.IntVar]] = {}
        self.fetched: dict[str, cp_model.IntVar] = {}
        self.ahead: dict[int, cp_model.IntVar] = {}
        self.used: dict[Users, cp_model.IntVar] = {}
        self.lasting: list[list[tuple[cp_model.IntVar, int]]] = [[] for _ in problem.capacities]  # there in every step
        self._residences()
        self._calls()
        self._users()
        self._cache_savings()
        self._begun()
        self._late()
        self._fetches()
        self._equalities()
        self.always = [self._total(terms) for terms in self.lasting]

    def _residences(self) -> None:
        for residence in self.problem.residences:
            literals = {distance: self.model.new_bool_var(f"{residence.name}@{distance}") for distance in residence.distances}
            self.residence[residence.name] = literals
            if residence.users:
                self.model.add(sum(literals.values()) == self._used(residence.users))
            else:
                self.model.add_exactly_one(literals.values())
            for distance, literal in literals.items():
                if residence.origin is None:
                    for step in range(residence.steps[0], residence.steps[1] + 1):
                        self.load[distance][step].append((literal, residence.size))
                elif distance != residence.origin and residence.fetch is None:
                    self.lasting[distance].append((literal, residence.size))

    def _calls(self) -> None:
        for step, (candidates, operands) in enumerate(zip(self.problem.candidates, self.problem.operands, strict=True)):
            picks = [self.model.new_bool_var(f"{step}.{i}") for i in range(len(candidates))]
            prefetched: list[cp_model.IntVar | None] = []
            cycles = [(pick, candidate.cycles) for pick, candidate in zip(picks, candidates, strict=True)]
            self.model.add_exactly_one(picks)
            for i, (pick, candidate) in enumerate(zip(picks, candidates, strict=True)):
                for distance, count in enumerate(candidate.bytes):
                    if count:
                        self.load[distance][step].append((pick, count))
                prefetched.append(None)
                if step and self.problem.start(step) < step and candidate.prefetchable_cycles:
                    literal = self.model.new_bool_var(f"{step}.{i}.early")
                    self.model.add_implication(literal, pick)
                    prefetched[i] = literal
                    cycles.append((literal, -candidate.prefetchable_cycles))
                    for earlier in range(self.problem.start(step), step):
                        self.load[candidate.engine_memory][earlier].append((literal, candidate.prefetchable_bytes))
            self._tie(picks, candidates, operands)
            self.pick.append(picks)
            self.prefetched.append(prefetched)
            self.cycles.append(cycles)

    def _used(self, users: Users) -> cp_model.IntVar:
        """Whether one of some (step, variant) is chosen."""
        if users not in self.used:
            self.used[users] = self.model.new_bool_var(f"used {users}")
        return self.used[users]

    def _users(self) -> None:
        """What constants that only some kernels need take for ever; and which of them are there."""
        for share in self.problem.shares:
            self.lasting[share.distance].append((self._used(share.users), share.size))
        for users, literal in self.used.items():
            picks = [[p for p, c in zip(self.pick[s], self.problem.candidates[s], strict=True) if c.variant == a] for s, a in users]
            for group in picks:
                self.model.add(sum(group) <= literal)
            self.model.add(sum(pick for group in picks for pick in group) >= literal)

    def _total(self, terms: Sequence[tuple[cp_model.IntVar, int]]) -> cp_model.LinearExpr | int:
        """The sum of terms as one variable, as it is added to every step."""
        if not terms:
            return 0
        total = self.model.new_int_var(0, sum(size for _, size in terms), "lasting")
        self.model.add(total == _sum_terms(terms))
        return total

    def _cache_savings(self) -> None:
        """What is saved where the instructions of a call are cached."""
        held: Mapping[str, Held] = {}
        ahead = self._worth_holding()
        for step, codes in enumerate(self.problem.codes):
            loads: dict[tuple[InstanceCode, tuple[int, int, int]], list[cp_model.IntVar]] = {}
            for pick, c in zip(self.pick[step], self.problem.candidates[step], strict=True):
                if c.cache_saving:
                    less = max(0, c.cycles - c.far) - max(0, c.cycles - c.cache_saving - c.far)
                    loads.setdefault((codes[c.variant], (c.cache_saving, c.last_tile_cache_saving, less)), []).append(pick)
            for (code, figures), picks in loads.items():
                before = self._ran(step - 1).get(code, 0) if code.is_short else held.get(code.instance, 0)
                is_cached = self._both(_sum_terms([(pick, 1) for pick in picks]), before)
                if not isinstance(is_cached, int):
                    self.cache_saving[step].append(_CacheSaving(is_cached, *figures))
            held = self._held(step, held, ahead[step])

    def _worth_holding(self) -> list[set[str]]:
        """Per step the instances on cores by which a later one may be cheaper, if nothing else runs there before."""
        ahead: list[set[str]] = [set()]
        for codes, candidates in reversed(list(zip(self.problem.codes, self.problem.candidates, strict=False))[1:]):
            kinds = {(codes[c.variant], bool(c.cache_saving)) for c in candidates}
            passed = ahead[-1] if any(code.is_short for code, _ in kinds) else set()
            ahead.append(passed | {code.instance for code, is_cheaper in kinds if is_cheaper and not code.is_short})
        return ahead[::-1]

    def _ran(self, step: int) -> dict[InstanceCode, Held]:
        """The codes that a step may run."""
        uses: dict[InstanceCode, list[tuple[cp_model.IntVar, int]]] = {}
        for pick, c in zip(self.pick[step], self.problem.candidates[step], strict=True) if step >= 0 else ():
            uses.setdefault(self.problem.codes[step][c.variant], []).append((pick, 1))
        return {code: _sum_terms(picks) if len(uses) > 1 else 1 for code, picks in uses.items()}

    def _held(self, step: int, before: Mapping[str, Held], ahead: set[str]) -> dict[str, Held]:
        """What the cores ran last, after a step: what an accelerator runs leaves that as it was. Only of what lies ``ahead``."""
        ran = self._ran(step)
        own = {code.instance: chosen for code, chosen in ran.items() if not code.is_short}
        passes: Held = sum(chosen for code, chosen in ran.items() if code.is_short) if own else 1
        result: dict[str, Held] = {}
        for instance in sorted(ahead & (own.keys() | before.keys())):
            held = before.get(instance, 0)
            is_same = isinstance(held, int) and held == 1 and own.keys() <= {instance}
            result[instance] = 1 if is_same else own.get(instance, 0) + self._both(passes, held)
        return result

    def _both(self, first: Held, second: Held) -> Held:
        """Whether both hold."""
        if isinstance(first, int) or isinstance(second, int):
            number, other = (first, second) if isinstance(first, int) else (second, first)
            return other if number else 0
        literal = self.model.new_bool_var("both")
        self.model.add(literal <= first)
        self.model.add(literal <= second)
        self.model.add(literal >= first + second - 1)
        return literal

    def _begun(self) -> None:
        """What is saved where early windows are started while an accelerator computes, which the first core then need not wait for."""
        for step in range(1, len(self.problem.codes)):
            ran = self._ran(self.problem.start(step))
            started: Held = sum(chosen for code, chosen in ran.items() if code.is_accelerated)
            started = 1 if all(code.is_accelerated for code in ran) else started
            for literal, c in zip(self.prefetched[step], self.problem.candidates[step], strict=True):
                if literal is not None and c.prefetchable_issue:
                    is_begun = self._both(literal, started)
                    if not isinstance(is_begun, int):
                        self.begun[step].append((is_begun, c.prefetchable_issue))

    def _late(self) -> None:
        """Early windows that do not arrive while the last tile of the call in which they set out is computed are waited for."""
        for step, candidates in enumerate(self.problem.candidates):
            saved = [
                (literal, c.prefetchable_cycles)
                for literal, c in zip(self.prefetched[step], candidates, strict=True)
                if literal is not None
            ]
            if not saved:
                continue
            start = self.problem.start(step)
            hidden = [(pick, c.last_tile_cycles) for pick, c in zip(self.pick[start], self.problem.candidates[start], strict=True)]
            begun = sum(cycles * literal for literal, cycles in self.begun[step])
            most = max(c.prefetchable_cycles + c.prefetchable_issue for c in candidates)
            late = self.model.new_int_var(0, most, f"late {step}")
            self.model.add(
                late >= _sum_terms(saved) + begun - _sum_terms(hidden) + sum(w.last_tile * w.holds for w in self.cache_saving[start])
            )
            self.waits.append((late, self.problem.weight(step)))

    def _equalities(self) -> None:
        """What has to be chosen alike (``choice.repeat``)."""
        for first, second in self.problem.equal_residences:
            for distance, literal in self.residence[first].items():
                self.model.add(literal == self.residence[second].get(distance, 0))
        for first_step, second_step in self.problem.equal_steps:
            other = {id(c): i for i, c in enumerate(self.problem.candidates[second_step])}
            for i, candidate in enumerate(self.problem.candidates[first_step]):
                j = other.pop(id(candidate), None)
                self.model.add(self.pick[first_step][i] == (0 if j is None else self.pick[second_step][j]))
                for a, b in [(self.prefetched[first_step][i], None if j is None else self.prefetched[second_step][j])]:
                    if a is not None:
                        self.model.add(a == (0 if b is None else b))
            for j in other.values():
                self.model.add(self.pick[second_step][j] == 0)

    def _tie(self, picks: list[cp_model.IntVar], candidates: Sequence[Candidate], operands: Sequence[Sequence[str | None]]) -> None:
        """A candidate implies the residences that it assumes; the converse holds where every variant has one among its operands."""
        for name in dict.fromkeys(name for names in operands for name in names if name is not None):
            positions = [names.index(name) if name in names else None for names in operands]
            is_certain = None not in positions
            for distance, literal in self.residence[name].items():
                group = []
                for pick, c in zip(picks, candidates, strict=True):
                    position = positions[c.variant]
                    if position is not None and c.distances[position] == distance:
                        group.append(pick)
                if is_certain:
                    self.model.add(sum(group) == literal) if group else self.model.add(literal == 0)
                elif group:
                    self.model.add(sum(group) <= literal)

    def _fetches(self) -> None:
        """Constants from a far memory: kept for ever, fetched for their first use (perhaps a step ahead), or streamed."""
        by_step: dict[int, list[Residence]] = {}
        for residence in self.problem.residences:
            if residence.fetch is not None and 1 in residence.distances:
                by_step.setdefault(residence.steps[0], []).append(residence)
        for step, residences in sorted(by_step.items()):
            ahead = self.model.new_bool_var(f"ahead {step}")
            self.ahead[step] = ahead
            if step == 0 or self.problem.start(step) == step:
                self.model.add(ahead == 0)
            total: list[tuple[cp_model.IntVar, int]] = []
            for residence in residences:
                total.append((self._fetched(residence, step, ahead), residence.fetch or 0))
            most = sum(count for _, count in total)
            wait = self.model.new_int_var(0, most, f"wait {step}")
            self.model.add(wait >= _sum_terms(total) - most * ahead)
            self.model.add(wait >= _sum_terms(total) - (self._free(step - 1) if step else 0))
            self.waits.append((wait, self.problem.weight(step)))

    def _free(self, step: int) -> cp_model.LinearExpr | int:
        """Cycles of a call in which the path from the far memory is free for what the next one needs."""
        rows = zip(self.pick[step], self.problem.candidates[step], strict=True)
        return _sum_terms([(pick, max(0, c.cycles - c.far)) for pick, c in rows]) - sum(w.free * w.holds for w in self.cache_saving[step])

    def _fetched(self, residence: Residence, step: int, ahead: cp_model.IntVar) -> cp_model.IntVar:
        is_resident = self.model.new_bool_var(f"{residence.name} kept")
        fetched = self.model.new_bool_var(f"{residence.name} fetched")
        self.model.add(is_resident + fetched == self.residence[residence.name][1])
        self.lasting[1].append((is_resident, residence.size))
        for used in range(residence.steps[0], residence.steps[1] + 1):
            self.load[1][used].append((fetched, residence.size))
        for prefetched in self.prefetched[step]:  # its window cannot be fetched before it has arrived itself
            if prefetched is not None:
                self.model.add_at_most_one(prefetched, fetched)
        if step:
            both = self.model.new_bool_var(f"{residence.name} ahead")
            self.model.add(both >= fetched + ahead - 1)
            self.load[1][step - 1].append((both, residence.size))
        self.fetched[residence.name] = fetched
        return fetched

    def capacities(self, capacities: Sequence[int]) -> None:
        for distance, capacity in enumerate(capacities):
            most = sum(size for _, size in self.lasting[distance])
            for terms in self.load[distance]:
                if sum(count for _, count in terms) + most > capacity:
                    self.model.add(_sum_terms(terms) + self.always[distance] <= capacity)

    def minimise_cycles(self) -> None:
        terms = [(literal, count * self.problem.weight(step)) for step, row in enumerate(self.cycles) for literal, count in row]
        saved = sum(w.cycles * self.problem.cached_weight(step) * w.holds for step, row in enumerate(self.cache_saving) for w in row)
        begun = sum(cycles * self.problem.weight(step) * literal for step, row in enumerate(self.begun) for literal, cycles in row)
        self.model.minimize(_sum_terms(terms) + _sum_terms(self.waits) - saved - begun)

    def minimise_load(self, distance: int) -> None:
        """Minimise the largest load of one memory instead."""
        peak = self.model.new_int_var(0, 2**40, "peak")
        for terms in self.load[distance]:
            self.model.add(_sum_terms(terms) + self.always[distance] <= peak)
        self.model.minimize(peak)


def _sum_terms(terms: Sequence[tuple[cp_model.IntVar, int]]) -> cp_model.LinearExpr | int:
    return cp_model.LinearExpr.weighted_sum([v for v, _ in terms], [c for _, c in terms]) if terms else 0


def _make_solver(search: Search) -> cp_model.CpSolver:
    solver = new_solver(search.seconds)
    solver.parameters.linearization_level = 2  # without the rows of "exactly one" the relaxation is useless
    solver.parameters.relative_gap_limit = search.gap
    solver.parameters.cp_model_probing_level = 0  # to try every literal before takes half of the time, and finds nothing better
    return solver


def choose_candidates(problem: ChoiceProblem, forbidden: Sequence[Choice] = (), search: Search = SEARCH) -> Choice | None:
    """The cheapest choice that fits every capacity and is none of ``forbidden``; None where there is none.

    Where many candidates have early windows, residences are chosen without these first, and then all else.
    """
    # Once addresses count, smaller candidates may be what fits: then all of them are there.
    numbers = [list(range(len(c))) for c in problem.candidates] if forbidden else undominated_numbers(problem)
    if sum(bool(problem.candidates[step][n].prefetchable_cycles) for step, row in enumerate(numbers) for n in row) <= MANY_PREFETCHABLE:
        return _solve_choice(problem, numbers, forbidden, search)
    first = _solve_choice(problem, numbers, forbidden, search, has_prefetch=False)
    if first is None:
        return None
    alike = [[n for n in row if _agrees_with_choice(problem, step, n, first)] for step, row in enumerate(numbers)]
    choice = _solve_choice(problem, alike, forbidden, search) or first
    saved = 0
    for step, row in enumerate(problem.candidates[1:], 1):
        hidden = max(c.last_tile_cycles for c in problem.candidates[problem.start(step)])
        saved += problem.weight(step) * max(min(c.prefetchable_cycles + c.prefetchable_issue, hidden) for c in row)
    return replace(choice, bound=max(least_cycles(problem), first.bound - saved))


def _agrees_with_choice(problem: ChoiceProblem, step: int, number: int, choice: Choice) -> bool:
    """Whether a candidate has its operands where a choice has them."""
    candidate = problem.candidates[step][number]
    pairs = zip(problem.operands[step][candidate.variant], candidate.distances, strict=True)
    return all(name is None or choice.residences.get(name, distance) == distance for name, distance in pairs)


def _solve_choice(
    whole: ChoiceProblem, numbers: Sequence[Sequence[int]], forbidden: Sequence[Choice], search: Search, has_prefetch: bool = True
) -> Choice | None:
    """The cheapest choice of some candidates of every call, with or without early windows."""
    later = {
        id(c): c if has_prefetch else replace(c, prefetchable_cycles=0, prefetchable_issue=0, prefetchable_bytes=0)
        for row in whole.candidates
        for c in row
    }
    rows = zip(whole.candidates, numbers, strict=True)
    problem = replace(whole, candidates=[[later[id(candidates[n])] for n in row] for candidates, row in rows])
    model = _ChoiceModel(problem)
    model.capacities(problem.capacities)
    for choice in forbidden:
        _forbid_choice(model, numbers, choice)
    model.minimise_cycles()
    solver = _make_solver(search)
    status = solve_model(solver, model.model)
    if status == cp_model.UNKNOWN:
        raise FitError(
            "no plan was found within the solver's budget, and none was ruled out",
            "Raise --seconds, or give the network more memory (--l1, --l2).",
        )
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    picks = tuple(next(i for i, literal in enumerate(literals) if solver.value(literal)) for literals in model.pick)
    chosen = [literals[i] for literals, i in zip(model.prefetched, picks, strict=True)]
    prefetched = tuple(literal is not None and bool(solver.value(literal)) for literal in chosen)
    residences = {
        name: distance for name, literals in model.residence.items() for distance, literal in literals.items() if solver.value(literal)
    }
    steps = {residence.name: residence.steps[0] for residence in problem.residences}
    fetched = {
        name: steps[name] - int(solver.value(model.ahead[steps[name]])) for name, literal in model.fetched.items() if solver.value(literal)
    }
    picks = tuple(row[pick] for row, pick in zip(numbers, picks, strict=True))
    solved = Choice(picks, prefetched, residences, fetched, 0, round(solver.best_objective_bound))
    return replace(solved, cycles=evaluate_choice(whole, solved))


def _forbid_choice(model: _ChoiceModel, numbers: Sequence[Sequence[int]], choice: Choice) -> None:
    """Rules out a choice that could be made of some candidates."""
    if any(pick not in row for pick, row in zip(choice.picks, numbers, strict=True)):
        return
    chosen = [row.index(pick) for pick, row in zip(choice.picks, numbers, strict=True)]
    literals = [picks[i] for picks, i in zip(model.pick, chosen, strict=True)]
    begun = [row[i] for row, i, on in zip(model.prefetched, chosen, choice.prefetched, strict=True) if on]
    literals += [literal for literal in begun if literal is not None]
    literals += [model.residence[name][distance] for name, distance in choice.residences.items()]
    model.model.add_bool_or([literal.negated() for literal in literals])


def smallest_capacity(problem: ChoiceProblem, distance: int, search: Search = SEARCH) -> int | None:
    """The smallest capacity of one memory, the others as they are, for which a choice exists; None where none does."""
    model = _ChoiceModel(problem)
    model.capacities([2**40 if i == distance else capacity for i, capacity in enumerate(problem.capacities)])
    model.minimise_load(distance)
    solver = _make_solver(search)
    status = solve_model(solver, model.model)
    return round(solver.objective_value) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
