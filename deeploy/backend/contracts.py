"""Contracts in ACSL in front of layers: what a layer may read and write of the arena and of the caller's arrays.

Frama-C's Eva shows that they hold wherever a layer is called (docs/trust.md). Constants are arrays of their own, and need none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deeploy.backend.instance import SELF
from deeploy.schedule.ir import OperandView


@dataclass(frozen=True)
class ReachedOperand:
    """An operand in the arena or in an array of the caller: a pointer to it in C, its window, and whether it is written."""

    pointer: str
    view: OperandView
    is_written: bool

    @property
    def last(self) -> int | None:
        """The last element that is reached behind the pointer; None where that depends on the rows of states."""
        last = self.view.element
        for axis, stride in zip(self.view.axes, self.view.strides, strict=True):
            if not isinstance(axis.count, int) or not isinstance(stride, int):
                return None
            last = last + (axis.count - 1) * stride
        return last if isinstance(last, int) else None


def print_contract(operands: Iterable[ReachedOperand]) -> list[str]:
    """The contract of a layer's function; none where what it reaches depends on the rows of states."""
    required, written = [f"requires \\valid_read({SELF});"], list[str]()
    for operand in operands:
        if operand.last is None:
            return []
        required.append(f"requires \\valid{'' if operand.is_written else '_read'}(({operand.pointer}) + (0 .. {operand.last}));")
        written += [f"({operand.pointer})[0 .. {operand.last}]"] if operand.is_written else []
    clauses = [*required, f"assigns {', '.join(written) or chr(92) + 'nothing'};"]
    return [f"{'  @' if number else '/*@'} {clause}{' */' * (clause is clauses[-1])}" for number, clause in enumerate(clauses)]
