"""Instructions that are still cached when a call begins: those of the call before it.

A cache for instructions holds little more than one kernel. Calls that start an accelerator, and those that send or receive, are short: they
leave there what the cores ran before them, and are cached themselves behind the same one only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deeploy.ir.target import Target
from deeploy.planning import cost
from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.program import Call


@dataclass(frozen=True)
class InstanceCode:
    """What a call executes: which instance of a kernel, and whether that only starts an accelerator, or a message."""

    instance: str
    is_accelerated: bool = False
    is_link: bool = False

    @property
    def is_short(self) -> bool:
        """Whether it leaves in the cache what was there."""
        return self.is_accelerated or self.is_link


def code_of(call: Call, target: Target) -> InstanceCode:
    """The kernel instance that a call leaves in the instruction cache, and whether it runs on cores."""
    last = call.parts[-1]  # what stays in the cache
    instance = " ".join((last.kernel.name, *sorted(cost.instance_words(last))))
    return InstanceCode(instance, bool(target.engine(last.kernel.engine).accelerator), call.kernel.link is not None)


def is_cached(codes: Sequence[InstanceCode], step: int) -> bool:
    """Whether the instructions of a call are there when it begins, given the codes of all calls up to it."""
    own = codes[step]
    before = next((codes[s] for s in range(step - 1, -1, -1) if own.is_short or not codes[s].is_short), None)
    return before is not None and before.instance == own.instance


def cache_savings(codes: Sequence[InstanceCode], candidates: Sequence[Candidate]) -> list[int]:
    """Cycles that every call of a network takes less because its instructions are there."""
    return [candidate.cache_saving if is_cached(codes, step) else 0 for step, candidate in enumerate(candidates)]
