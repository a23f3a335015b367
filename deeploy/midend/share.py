"""Several networks on one machine: what outlives inferences lies at one place in the plans of all of them.

Caches of the same name are one cache. The beginning of every memory belongs to what is there for ever: the states of all
networks, and copies of far constants, equal ones once. Above it lies what each network needs while it runs, and constants
beside the arenas, equal ones once. Networks are planned one by one; those that leave too little room for the others are planned again.

A block that is alive in all steps lies above or below every other one, so that it can be moved to the beginning of its memory
without any loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from deeploy.errors import FitError, UsageError, shorten
from deeploy.frontend.states import Known
from deeploy.midend.lifetime import FOR_EVER
from deeploy.midend.pack import Placement
from deeploy.midend.plan import LevelUse, Machine, Plan
from deeploy.midend.program import Program, Role, State, content

_ROUNDS = 8  # of planning again, before it is said that nothing fits

Key = tuple[object, ...]
Again = Callable[[str, Machine], Plan]


@dataclass(frozen=True)
class _Lasting:
    """A block that is there for ever, in bytes of whole alignments, and whose it is first."""

    level: str
    size: int
    owner: str
    buffer: str


def groups(programs: Mapping[str, Program]) -> dict[str, str]:
    """The networks that have states, and for each the first one with the same states.

    Raises:
        UsageError: states of one name that differ, or networks that share only some.
    """
    leads: dict[str, str] = {}
    for name, program in programs.items():
        if program.growth is None:
            continue
        own = {state.past: state for state in program.growth.states}
        for lead in dict.fromkeys(leads.values()):
            other = programs[lead].growth
            assert other is not None
            known = {state.past: state for state in other.states}
            common = [past for past in own if past in known]
            for past in common:
                _check_equal((lead, programs[lead], known[past]), (name, program, own[past]))
            if common and len(common) < max(len(own), len(known)):
                alone = next(past for past in (*own, *known) if past not in common)
                raise UsageError(
                    f"the networks {lead} and {name} share the cache {shorten(common[0])}, but only one of them has {shorten(alone)}",
                    "Networks of one project share all of their caches or none: rename them, or compile two projects.",
                )
            if common:
                leads[name] = lead
        leads.setdefault(name, name)
    return leads


def known_states(programs: Iterable[Program]) -> tuple[Known, ...]:
    """The states of networks, each once."""
    found: dict[str, Known] = {}
    for program in programs:
        for s in program.growth.states if program.growth is not None else ():
            if s.axis is None:
                continue
            stored = program.buffers[s.buffer].dtype
            found.setdefault(s.past, Known(s.past, s.present, s.shape, s.axis, stored, s.scale, s.zero_point))
    return tuple(found.values())


def _check_equal(first: tuple[str, Program, State], second: tuple[str, Program, State]) -> None:
    def described(program: Program, state: State) -> str:
        step = "" if state.scale is None else f", scale {state.scale:g}"
        return f"{program.buffers[state.buffer].dtype.value}{list(state.shape)}{step}"

    texts = [described(program, state) for _, program, state in (first, second)]
    if texts[0] != texts[1] or first[2].axis != second[2].axis or first[2].zero_point != second[2].zero_point:
        raise UsageError(
            f"the cache {shorten(first[2].past)} is {texts[0]} in network {first[0]} and {texts[1]} in network {second[0]}",
            "Caches of one name are one cache: give both networks one --context, and quantise one file with a free number of rows.",
        )


def share(plans: Mapping[str, Plan], again: Again) -> dict[str, Plan]:
    """Plans of networks in one project, with everything that lasts at one place in all of them.

    Args:
        again: plans a network once more, for another machine.

    Raises:
        UsageError: caches of one name that differ.
        FitError: the networks do not fit together.
    """
    leads = groups({name: plan.program for name, plan in plans.items()})
    first = next(iter(plans.values()))
    if first.target.is_flat:
        return _on_flat_memory(plans, leads)
    rooms = {name: {level: use.capacity or 0 for level, use in plan.memory.items()} for name, plan in plans.items()}
    together = _Together(dict(plans), leads, rooms)
    for _ in range(_ROUNDS):
        machines = together.changed()
        if not machines:
            break
        together = replace(
            together, plans={name: again(name, machines[name]) if name in machines else p for name, p in together.plans.items()}
        )
    if not together.changed():
        return together.moved()
    name, level, missing = next(together.misfits(), (next(iter(plans)), first.target.memories[0].name, 0))
    raise FitError(
        f"the networks do not fit together: {level} lacks {missing} bytes for {name} beside what the others keep there",
        f"Give more with --{level.lower()}, or a smaller --context, or compile fewer networks into one project.",
    )


def _on_flat_memory(plans: Mapping[str, Plan], leads: Mapping[str, str]) -> dict[str, Plan]:
    """Networks with the same states get one arena; all others have their own."""
    result = dict(plans)
    for lead in dict.fromkeys(leads.values()):
        members = {name: plans[name] for name in leads if leads[name] == lead}
        if len(members) > 1:
            result |= _Together(members, leads, {}).moved()
    return result


def _aligned(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _is_lasting(plan: Plan, placement: Placement) -> bool:
    return placement.first == FOR_EVER and placement.last >= len(plan.program.calls)


@dataclass(frozen=True)
class _Together:
    """Plans that share one machine; ``leads`` as ``groups`` says, ``rooms`` the bytes of each level that a plan may use."""

    plans: Mapping[str, Plan]
    leads: Mapping[str, str]
    rooms: Mapping[str, Mapping[str, int]]

    def _unit(self, level: str) -> int:
        return next(iter(self.plans.values())).target.memory(level).alignment

    def _key(self, name: str, buffer: str) -> Key:
        program = self.plans[name].program
        state = next((s for s in program.growth.states if s.buffer == buffer), None) if program.growth is not None else None
        return ("state", self.leads[name], state.past) if state is not None else content(program.buffers[buffer])

    def _own(self, name: str) -> dict[tuple[str, Key], Placement]:
        """What a network keeps for ever."""
        plan = self.plans[name]
        return {(p.level, self._key(name, p.buffers[0])): p for p in plan.placements if _is_lasting(plan, p)}

    def lasting(self) -> dict[tuple[str, Key], _Lasting]:
        """What the networks keep for ever in arenas, equal blocks once."""
        found: dict[tuple[str, Key], _Lasting] = {}
        for name in self.plans:
            for (level, key), p in self._own(name).items():
                found.setdefault((level, key), _Lasting(level, _aligned(p.size, self._unit(level)), name, p.buffers[0]))
        return found

    def beside(self, level: str) -> int:
        """Bytes of the constants of all networks beside the arena of a level, equal ones once."""
        if not any(plan.memory[level].constants for plan in self.plans.values()):
            return 0
        constants = (b for plan in self.plans.values() for b in plan.program.buffers.values() if b.role is Role.CONSTANT)
        return sum({content(b): _aligned(b.bytes, self._unit(level)) for b in constants}.values())

    def foreign(self, name: str, level: str) -> int:
        """Bytes of a level that the other networks keep, beyond what this one keeps itself."""
        own = self._own(name)
        blocks = sum(block.size for key, block in self.lasting().items() if key not in own and block.level == level)
        return blocks + self.beside(level) - self.plans[name].memory[level].constants

    def misfits(self) -> Iterator[tuple[str, str, int]]:
        """Networks, the levels that are too small for them beside the others, and by how much."""
        for name, plan in self.plans.items():
            for level, use in plan.memory.items():
                missing = use.peak + self.foreign(name, level) - self.rooms[name][level]
                if missing > 0:
                    yield name, level, missing

    def changed(self) -> dict[str, Machine]:
        """The networks to be planned again, and the machines for them: states where others have them, room for what others keep."""
        result: dict[str, Machine] = {}
        for name, plan in self.plans.items():
            residences = self._residences(name)
            if any(plan.residences[buffer] != level for buffer, level in residences.items()):
                result[name] = replace(plan.machine, residences=residences)
        if result:
            return result
        for name, level, _ in self.misfits():
            machine = result.get(name, self.plans[name].machine)
            room = max(1, self.rooms[name][level] - self.foreign(name, level))
            result[name] = replace(machine, capacities={**machine.capacities, level: room}, residences=self._residences(name))
        return result

    def _residences(self, name: str) -> dict[str, str]:
        """Where the states of a network are resident: where the one of its group has them that appends the fewest rows."""
        growth = self.plans[name].program.growth
        if growth is None:
            return {}
        members = [p for n, p in self.plans.items() if self.leads.get(n) == self.leads[name]]
        lead = min(members, key=lambda p: p.program.growth.rows if p.program.growth is not None else 0)
        assert lead.program.growth is not None
        levels = {state.past: lead.residences[state.buffer] for state in lead.program.growth.states}
        return {state.buffer: levels[state.past] for state in growth.states}

    def moved(self) -> dict[str, Plan]:
        """The plans with their lasting blocks at the beginning of every memory, in one order, and all else above."""
        ends: dict[str, int] = {}
        offsets: dict[tuple[str, Key], int] = {}
        for key, block in self.lasting().items():
            offsets[key] = ends.get(block.level, 0)
            ends[block.level] = offsets[key] + block.size
        result = {}
        for name, plan in self.plans.items():
            placements = self._placements(name, offsets, ends)
            memory = {level: self._use(name, placements, level) for level in plan.memory}
            result[name] = replace(plan, placements=placements, memory=memory)
        return result

    def _placements(self, name: str, offsets: Mapping[tuple[str, Key], int], ends: Mapping[str, int]) -> tuple[Placement, ...]:
        plan, own = self.plans[name], self._own(name)
        result = [replace(p, offset=offsets[key]) for key, p in own.items()]
        taken = {buffer for p in plan.placements for buffer in p.buffers}
        for key, block in self.lasting().items():
            if key not in own:
                label = f"of_{block.owner}_{block.buffer}"
                while label in taken:
                    label += "_"
                taken.add(label)
                result.append(Placement(block.level, offsets[key], block.size, FOR_EVER, len(plan.program.calls), (label,)))
        for p in plan.placements:
            if not _is_lasting(plan, p):
                below = sum(_aligned(q.size, self._unit(p.level)) for q in own.values() if q.level == p.level and q.offset < p.offset)
                result.append(replace(p, offset=ends.get(p.level, 0) + p.offset - below))
        return tuple(result)

    def _use(self, name: str, placements: tuple[Placement, ...], level: str) -> LevelUse:
        """What is used of a level when all networks are there."""
        plan = self.plans[name]
        use, constants = plan.memory[level], self.beside(level)
        own = max((p.offset + p.size for p in plan.placements if p.level == level), default=0)
        peak = max((p.offset + p.size for p in placements if p.level == level), default=0)
        bound = use.lower_bound - use.constants + max(0, peak - own)
        room = use.capacity if plan.target.is_flat else self.rooms[name][level]
        return replace(use, capacity=room, peak=peak + constants, lower_bound=bound + constants, constants=constants)
