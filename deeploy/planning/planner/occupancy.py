"""What lies in every memory in every step of a plan, and how many bytes are free beside it."""

from __future__ import annotations

from deeploy.planning.packing.addresses import Placement
from deeploy.planning.plan import Plan

ENDLESS = 2**40  # bytes of a memory without a capacity


class Occupancy:
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
        self.own: dict[str, list[Placement]] = {}
        scratch = {name: call.name for call in plan.program.calls for name in call.scratch.values()}
        for placement in plan.placements:
            name = placement.buffers[0]
            self.own.setdefault(scratch.get(name, name.rsplit(".", 1)[0] if "." in name else ""), []).append(placement)

    def free(self, level: str, step: int, call: str) -> int:
        """Bytes of a memory that ``call`` may use in a step: those that nothing but its own windows and scratch memory takes."""
        use, own = self.plan.memory[level], self.own.get(call, [])
        others = sum(p.size for p in self.alive[level][step] if p not in own)
        return (use.capacity or ENDLESS) - use.constants - others
