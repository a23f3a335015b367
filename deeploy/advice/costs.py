"""What the calls of a plan would cost if something were different: other constants, more memory, other engines.

A query leaves the rest of the plan as it is. Tensors stay in the memories where the plan has them, a call gets the bytes that nothing
else takes in its step, and the fastest candidate that fits is taken: by the same formulas as the planner's own, in a few milliseconds for a
call. Planning the network again could only find more, as it may move tensors as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deeploy.midend.candidate import Candidate
from deeploy.midend.candidates import Tiler
from deeploy.midend.cost import kind, words
from deeploy.midend.machine import levels_of
from deeploy.midend.plan import Machine, Plan
from deeploy.midend.program import Buffer, Call, Program, Role
from deeploy.midend.rooms import Rooms

Identity = tuple[str, str]
Wanted = Callable[[Call], bool]
DEPTHS = {"auto": (1, 2), "double": (2,), "single": (1,)}


@dataclass(frozen=True)
class Better:
    """A faster way to run a call of the plan: the call as it would be, its candidate, and the cycles that it takes less."""

    step: int
    call: Call
    candidate: Candidate
    gain: int


def identity(call: Call) -> Identity:
    """What a call has in common with the one that another program of the same network makes of its node.

    The name in C is not that: names that are alike in C get numbers in the order in which they come up, so that a call's own changes when
    a call before it is left out.
    """
    return call.node.name, call.node.op


def _fewest(candidate: Candidate) -> int:
    """The cycles of a candidate whose first windows and instructions are there when it begins."""
    return candidate.cycles - candidate.warm - candidate.early - candidate.early_issue


class Costs:
    """Answers queries about one plan.

    Args:
        cycles: that every call takes in the predicted run of the plan.
    """

    def __init__(self, plan: Plan, cycles: Sequence[float]) -> None:
        self.plan = plan
        self.cycles = cycles
        self.levels = levels_of(plan.target)
        self.rooms = Rooms(plan)
        self.steps = {identity(call): step for step, call in enumerate(plan.program.calls)}
        chained = {step for chain in plan.chains for step in range(chain.first, chain.last + 1)}
        # By the planner's formula, which candidates are compared by; of a call in a chain, the fewest that it takes alone.
        self.now = [min(c.cycles for c in plan.offered[n]) if n in chained else own.cycles for n, own in enumerate(plan.calls)]
        buffers = plan.program.buffers
        self.where = {buffers[name].tensor: level for name, level in plan.residences.items() if name in buffers}
        self._known: dict[tuple[object, ...], list[Candidate]] = {}

    def reach(self, call: Call) -> tuple[str, ...]:
        """The memories of a call's engine: its own, and those further out."""
        own = self.plan.target.engine(call.kernel.engine).memory
        return (own, *(path.far for path in self.plan.target.outward(own)))

    def level(self, step: int, name: str, buffer: Buffer) -> str:
        """The memory in which an operand of a call in a step lies."""
        now = self.plan.program.calls[step].operands.get(name)
        own = None if now is None else self.plan.program.buffers[now.buffer]
        if buffer.role is Role.CONSTANT:
            is_alike = own is not None and own.role is Role.CONSTANT and not own.memory
            return self.plan.residences.get(own.name, self.levels[1]) if own is not None and is_alike else self.levels[1]
        return self.where.get(buffer.tensor, self.levels[1])

    def pairs(self, program: Program) -> list[tuple[int, int]]:
        """The steps of the plan whose calls another program of the same network has too, and the numbers of these calls there."""
        own = {identity(call): number for number, call in enumerate(program.calls)}
        return [(step, own[key]) for key, step in self.steps.items() if key in own]

    def gain(self, step: int, candidate: Candidate) -> int:
        """The most cycles that a candidate saves in the place of a call: as if its first windows and instructions were there already.

        A candidate that the planner's formula finds no faster saves nothing.
        """
        by_formula = self.now[step] - candidate.cycles
        return by_formula if by_formula <= 0 else round(self.cycles[step] - _fewest(candidate))

    def candidates(self, step: int, call: Call, program: Program, machine: Machine, near: bool = False) -> list[Candidate]:
        """The candidates of a call in the place of that of a step.

        Args:
            program: that the call belongs to.
            machine: whose capacities, cores and buffering count.
            near: whether all activations lie in the memory of the engine.
        """
        reach = self.reach(call)
        distances: dict[str, int] = {}
        for name, operand in call.operands.items():
            buffer = program.buffers[operand.buffer]
            level = self.level(step, name, buffer)
            if buffer.memory or (near and buffer.role in (Role.LOCAL, Role.STATE)):
                level = reach[0]
            if level not in reach:
                return []
            distances[name] = reach.index(level)
        room = tuple(sorted(machine.capacities.items()))
        key = (kind(call, program.buffers), words(call), tuple(distances.items()), room, machine.cores, machine.buffering)
        if key not in self._known:
            tiler = Tiler(call, program.buffers, self.plan.target, machine.capacities, machine.cores)
            self._known[key] = tiler.candidates(distances, DEPTHS[machine.buffering])
        return self._known[key]

    def alone(self, call: Call, program: Program, machine: Machine) -> int:
        """The fewest cycles of a call that the plan does not have, whose operands are the caller's or lie in the engine's memory."""
        reach, near = self.reach(call), (Role.LOCAL, Role.STATE, Role.SCRATCH)
        places = {name: 0 if program.buffers[operand.buffer].role in near else 1 for name, operand in call.operands.items()}
        distances = {name: min(place, len(reach) - 1) for name, place in places.items()}
        key = (kind(call, program.buffers), words(call), tuple(distances.items()), tuple(sorted(machine.capacities.items())))
        if key not in self._known:
            tiler = Tiler(call, program.buffers, self.plan.target, machine.capacities, machine.cores)
            self._known[key] = tiler.candidates(distances, DEPTHS[machine.buffering])
        return min(map(_fewest, self._known[key]), default=0)

    def fits(self, step: int, call: Call, candidate: Candidate) -> bool:
        """Whether there is room for a candidate beside all that the plan has in the step."""
        own = self.plan.program.calls[step].name
        rows = zip(self.reach(call), candidate.bytes, strict=False)
        return all(not count or count <= self.rooms.free(level, step, own) for level, count in rows)

    def better(self, program: Program, machine: Machine, wanted: Wanted = lambda call: True, steps: Sequence[int] = ()) -> list[Better]:
        """The calls that would be faster in another program of the same network, by kernels that are ``wanted``."""
        found = []
        for step, number in self.pairs(program):
            if steps and step not in steps:
                continue
            ways = [
                Better(step, variant, candidate, self.gain(step, candidate))
                for variant in program.variants(number)
                if wanted(variant)
                for candidate in self.candidates(step, variant, program, machine)
                if self.fits(step, variant, candidate)
            ]
            best = max(ways, key=lambda way: way.gain, default=None)
            if best is not None and best.gain > 0:
                found.append(best)
        return found

    def loads(self, level: str, near: bool) -> Mapping[int, int]:
        """Bytes of a memory that are taken in every step beside the windows of its call; with ``near``, all activations lie there."""
        plan, calls = self.plan, self.plan.program.calls
        taken = {step: self.rooms.taken(level, step, call.name) + plan.memory[level].constants for step, call in enumerate(calls)}
        if near:
            for placement in plan.placements:
                names = [name for name in placement.buffers if name in plan.program.buffers]
                is_moved = names and plan.program.buffers[names[0]].role in (Role.LOCAL, Role.STATE) and placement.level != level
                for step in range(max(0, placement.first), min(placement.last, len(calls) - 1) + 1) if is_moved else ():
                    taken[step] += placement.size
        return taken
