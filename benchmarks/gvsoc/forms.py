"""Cases of a kernel with every form of the epilogue: those that are aimed at, by the form that the compiler finds in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.gvsoc.layer import Case, node
from deeploy.operators import requantise


def wide(case: Case) -> Case:
    """The case with a requantisation that only 64 bits hold: one channel's multiplier is negative."""
    operands = dict(case.operands)
    mul = operands["mul"].astype(np.int64) << 18
    operands["mul"] = np.where(np.arange(mul.size) == 0, -mul, mul).astype(np.int32)
    operands["add"] = operands["add"].astype(np.int64) << 18
    attrs = {**case.attrs, "shift": case.attrs["shift"] + 18}
    return Case(f"{case.name} in 64 bits", case.op, case.variables, operands, case.y, attrs)


def far(case: Case) -> Case:
    """The case with steps so far from zero that a factor of two parts has no room for them."""
    operands = dict(case.operands)
    mul, add = operands.pop("mul"), operands.pop("add")
    bias = np.full(mul.size, 1 << 19, np.int32)
    operands |= {"bias": bias, "mul": mul, "add": add - bias.astype(np.int64) * mul}
    return Case(f"{case.name} far from zero", case.op, case.variables, operands, case.y, {**case.attrs, "epilogue": ("bias", "requantise")})


def _form(case: Case) -> str:
    found = requantise.of_node(node(case))
    return found.form if found is not None else ""


class Forms(Mapping[str, Sequence[Case]]):
    """The shapes with all forms of the epilogue, by the word of the instance: the form that is found, where others were aimed at.

    The entry without a word is of sums as they are. Cases are made when one is asked for: to say which form a case has takes long.
    """

    def __init__(self, make: Callable[..., Case], shapes: Sequence[Any]) -> None:
        self.make, self.shapes = make, shapes

    @cached_property
    def cases(self) -> Mapping[str, Sequence[Case]]:
        """All of them."""
        make, by_form = self.make, dict[str, list[Case]](narrow=[], split=[], high=[])
        for shape in self.shapes:
            few, many = make(shape, "narrow"), make(shape, "high")
            for case in (few, make(shape, "split"), many if _form(many) == "high" else far(make(shape, "split"))):
                if _form(case) in by_form:
                    by_form[_form(case)].append(case)
        plain, wider = [make(shape, "plain") for shape in self.shapes], [wide(make(shape, "narrow")) for shape in self.shapes]
        return {**by_form, "": plain, "wide": wider}

    def __getitem__(self, form: str) -> Sequence[Case]:
        return self.cases[form]

    def __iter__(self) -> Iterator[str]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)
