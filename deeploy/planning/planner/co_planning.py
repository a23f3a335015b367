"""Several networks on one machine: what outlives inferences lies at one place in the plans of all of them.

Problem. Networks run one after the other, with plans of their own. What is there for ever has one address in all of them: states, caches of
one name being one cache, and copies of far constants, equal ones once. Constants beside the arenas are stored once as well.

Model. In the packing problem (``packing.addresses``) of all networks, one behind the other in time, what is there for ever lives
throughout, and the rest falls into one part for each network. So the beginning of every memory belongs to what is there for ever, and above
it every network keeps its own packing, with nothing lost. Networks that then take too much are planned again with less room.

Bound. That of each network, and the bytes that the others keep for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from deeploy.errors import FitError, UsageError, shorten
from deeploy.frontend.states import KnownState
from deeploy.planning.packing.addresses import Placement
from deeploy.planning.packing.lifetimes import FOR_EVER
from deeploy.planning.plan import Machine, Plan
from deeploy.planning.program import Program, Role, State, constant_content

_ROUNDS = 9  # of looking whether networks fit, and of planning again those that do not

Key = tuple[str, object]  # a level, and what is the same there
Again = Callable[[str, Machine], Plan]


def state_groups(programs: Mapping[str, Program]) -> dict[str, str]:
    """The networks that have states, and for each the first one with the same states.

    Raises:
        UsageError: states of one name that differ, or networks that share only some.
    """
    leads: dict[str, str] = {}
    for name, program in programs.items():
        if program.dynamic_length is None:
            continue
        own = {state.past: state for state in program.states}
        for lead in dict.fromkeys(leads.values()):
            known = {state.past: state for state in programs[lead].states}
            common = [past for past in own if past in known]
            for past in common:
                _check_equal((lead, programs[lead], known[past]), (name, program, own[past]))
            alone = [past for past in (*own, *known) if past not in common]
            if common and alone:
                raise UsageError(
                    f"the networks {lead} and {name} share the cache {shorten(common[0])}, but only one of them has {shorten(alone[0])}",
                    "Networks of one project share all of their caches or none: rename them, or compile two projects.",
                )
            if common:
                leads[name] = lead
        leads.setdefault(name, name)
    return leads


def known_states(programs: Iterable[Program]) -> tuple[KnownState, ...]:
    """The growing states of all networks, those of one name once."""
    states: dict[str, KnownState] = {}
    for program in programs:
        for s in program.states:
            if s.axis is not None:
                stored = program.buffers[s.buffer].dtype
                states.setdefault(s.past, KnownState(s.past, s.present, s.shape, s.axis, stored, s.scale, s.zero_point))
    return tuple(states.values())


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


def share_plans(plans: Mapping[str, Plan], again: Again) -> dict[str, Plan]:
    """Plans of networks in one project, with everything that lasts at one place in all of them.

    On a flat machine, networks with the same states have one arena, and all others their own.

    Args:
        again: plans a network once more, for another machine.

    Raises:
        UsageError: caches of one name that differ.
        FitError: the networks do not fit together.
    """
    leads = state_groups({name: plan.program for name, plan in plans.items()})
    target = next(iter(plans.values())).target
    usable_bytes = {name: {level: use.capacity for level, use in plan.memory.items()} for name, plan in plans.items()}
    if target.is_flat:
        members = [[name for name in leads if leads[name] == lead] for lead in dict.fromkeys(leads.values())]
        together = [_CoPlanned({name: plans[name] for name in names}, leads, usable_bytes) for names in members if len(names) > 1]
        return dict(plans) | {name: plan for one in together for name, plan in one.moved().items()}
    joint = _CoPlanned(plans, leads, usable_bytes)
    for _ in range(_ROUNDS):
        machines = joint.changed()
        if not machines:
            return joint.moved()
        joint = replace(joint, plans={name: again(name, machines[name]) if name in machines else p for name, p in joint.plans.items()})
    name, level, missing = next(joint.infeasible(), (next(iter(plans)), target.memories[0].name, 0))
    raise FitError(
        f"the networks do not fit together: {level} lacks {missing} bytes for {name} beside what the others keep there",
        f"Give more with --{level.lower()}, or a smaller --context, or compile fewer networks into one project.",
    )


@dataclass(frozen=True)
class _CoPlanned:
    """Plans that share one machine; ``leads`` as ``state_groups`` says.

    ``rooms`` are the bytes of each level that a plan may use (None: any).
    """

    plans: Mapping[str, Plan]
    leads: Mapping[str, str]
    usable_bytes: Mapping[str, Mapping[str, int | None]]

    def _aligned(self, size: int, level: str) -> int:
        unit = next(iter(self.plans.values())).target.memory(level).alignment
        return -(-size // unit) * unit

    @cached_property
    def own(self) -> Mapping[str, Mapping[Key, Placement]]:
        """The buffers of each network that are resident after initialisation, with their places."""
        own_places: dict[str, dict[Key, Placement]] = {}
        for name, plan in self.plans.items():
            states = {state.buffer: (self.leads[name], state.past) for state in plan.program.states}
            lasting = [p for p in plan.placements if p.first == FOR_EVER and p.last >= len(plan.program.calls)]
            own_places[name] = {
                (p.level, states.get(p.buffers[0]) or constant_content(plan.program.buffers[p.buffers[0]])): p for p in lasting
            }
        return own_places

    @cached_property
    def lasting(self) -> Mapping[Key, tuple[str, Placement]]:
        """What the networks keep for ever in arenas, equal blocks once, and whose it is first."""
        lasting_places: dict[Key, tuple[str, Placement]] = {}
        for name, own in self.own.items():
            for key, placement in own.items():
                lasting_places.setdefault(key, (name, placement))
        return lasting_places

    def resident_bytes(self, level: str) -> int:
        """Bytes of the constants of all networks beside the arena of a level, equal ones once."""
        constants = (b for plan in self.plans.values() for b in plan.program.buffers.values() if b.role is Role.CONSTANT)
        is_used = any(plan.memory[level].constants for plan in self.plans.values())
        return sum({constant_content(b): self._aligned(b.bytes, level) for b in constants}.values()) if is_used else 0

    def foreign(self, name: str, level: str) -> int:
        """Bytes of a level that the other networks keep, beyond what this one keeps itself."""
        others = [p for key, (_, p) in self.lasting.items() if key not in self.own[name] and p.level == level]
        return sum(self._aligned(p.size, level) for p in others) + self.resident_bytes(level) - self.plans[name].memory[level].constants

    def infeasible(self) -> Iterator[tuple[str, str, int]]:
        """Networks, the levels that are too small for them beside the others, and by how much."""
        for name, plan in self.plans.items():
            for level, use in plan.memory.items():
                room = self.usable_bytes[name][level]
                missing = 0 if room is None else use.peak + self.foreign(name, level) - room
                if missing > 0:
                    yield name, level, missing

    def changed(self) -> dict[str, Machine]:
        """The networks to be planned again, and the machines for them: states where others have them, room for what others keep."""
        machines = {name: replace(plan.machine, residences=self._residences(name)) for name, plan in self.plans.items()}
        apart = [n for n, m in machines.items() if any(self.plans[n].residences[buffer] != level for buffer, level in m.residences.items())]
        if apart:
            return {name: machines[name] for name in apart}
        infeasible = list(self.infeasible())
        for name, level, missing in infeasible:
            room = max(1, self.plans[name].memory[level].peak - missing)
            machines[name] = replace(machines[name], capacities={**machines[name].capacities, level: room})
        return {name: machines[name] for name, _, _ in infeasible}

    def _residences(self, name: str) -> dict[str, str]:
        """Where the states of a network are resident: where the one of its group has them that appends the fewest rows."""
        rows = {
            plan: plan.program.dynamic_length.rows
            for n, plan in self.plans.items()
            if plan.program.dynamic_length and self.leads[n] == self.leads.get(name)
        }
        lead = min(rows, key=rows.__getitem__, default=self.plans[name])
        levels = {state.past: lead.residences[state.buffer] for state in lead.program.states}
        return {state.buffer: levels[state.past] for state in self.plans[name].program.states}

    def moved(self) -> dict[str, Plan]:
        """The plans with their lasting blocks at the beginning of every memory, in one order, and all else above."""
        ends: dict[str, int] = {}
        offsets: dict[Key, int] = {}
        for key, (_, block) in self.lasting.items():
            offsets[key] = ends.get(block.level, 0)
            ends[block.level] = offsets[key] + self._aligned(block.size, block.level)
        result = {}
        for name, plan in self.plans.items():
            more = {level: self.foreign(name, level) for level in plan.memory}
            memory = {
                level: replace(
                    use,
                    capacity=self.usable_bytes[name][level],
                    peak=use.peak + more[level],
                    lower_bound=use.lower_bound + more[level],
                    constants=self.resident_bytes(level),
                )
                for level, use in plan.memory.items()
            }
            result[name] = replace(plan, placements=self._placements(name, offsets, ends), memory=memory)
        return result

    def _placements(self, name: str, offsets: Mapping[Key, int], ends: Mapping[str, int]) -> tuple[Placement, ...]:
        plan, own = self.plans[name], self.own[name]
        result = [replace(p, offset=offsets[key]) for key, p in own.items()]
        taken = {buffer for p in plan.placements for buffer in p.buffers}
        for key, (owner, block) in self.lasting.items():
            if key not in own:
                label = f"of_{owner}_{block.buffers[0]}"
                while label in taken:
                    label += "_"
                taken.add(label)
                size = self._aligned(block.size, block.level)
                result.append(Placement(block.level, offsets[key], size, FOR_EVER, len(plan.program.calls), (label,)))
        for p in plan.placements:
            if p not in own.values():
                below = sum(self._aligned(q.size, q.level) for q in own.values() if q.level == p.level and q.offset < p.offset)
                result.append(replace(p, offset=ends.get(p.level, 0) + p.offset - below))
        return tuple(result)
