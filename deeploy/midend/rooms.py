"""What lies in every memory in every step of a plan, and how many bytes are free beside it."""

from __future__ import annotations

from deeploy.midend.pack import Placement
from deeploy.midend.plan import Plan

ENDLESS = 2**40  # bytes of a memory without a capacity


class Rooms:
    """The memories of a plan, step by step: put together once for all calls.

    Attributes:
        alive: by memory and step, the placements that are there.
        own: by the name of a call, its windows and its scratch memory.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        steps = len(plan.program.calls)
        self.alive: dict[str, list[list[Placement]]] = {level: [[] for _ in range(steps)] for level in plan.memory}
        for placement in plan.placements:
            for step in range(max(0, placement.first), min(placement.last, steps - 1) + 1):
                self.alive[placement.level][step].append(placement)
        self._taken = {level: [sum(p.size for p in inside) for inside in self.alive[level]] for level in self.alive}
        self.own: dict[str, list[Placement]] = {}
        scratch = {name: call.name for call in plan.program.calls for name in call.scratch.values()}
        for placement in plan.placements:
            name = placement.buffers[0]
            self.own.setdefault(scratch.get(name, name.rsplit(".", 1)[0] if "." in name else ""), []).append(placement)

    def taken(self, level: str, step: int, call: str) -> int:
        """Bytes of a memory's arena that anything but the windows and the scratch memory of ``call`` takes in a step."""
        own = sum(p.size for p in self.own.get(call, []) if p.level == level and p.first <= step <= p.last)
        return self._taken[level][step] - own

    def free(self, level: str, step: int, call: str) -> int:
        """Bytes of a memory that ``call`` may use in a step: those that nothing else takes."""
        use = self.plan.memory[level]
        return (use.capacity or ENDLESS) - use.constants - self.taken(level, step, call)
