"""Limits of flash, RAM and stack: a program that keeps them, or the error that says what the smallest one takes.

The planner limits the arena alone. What lies beside it is known once the program is built: where that is too much, the network is planned
again with what is left for the arena, and at last with the smallest arena. What an error quotes was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from deeploy.driver.plan import over_budget
from deeploy.driver.project import CompiledProject
from deeploy.errors import FitError
from deeploy.options import Options

Compile = Callable[[Options], CompiledProject]


def compile_within_budgets(compile_with: Compile, options: Options) -> CompiledProject:
    """The project of a compilation, with the sizes of its program where limits ask for them.

    Raises:
        FitError: the program takes more than a limit.
        UsageError, BuildError: there is no cross compiler that would tell.
    """
    if not options.budgets:
        return compile_with(options)
    if (room := options.budgets.get("ram")) is None:
        return _check_budget(_measure_size(compile_with, options), options)
    project: CompiledProject | None = None
    with suppress(FitError):
        project = _measure_size(compile_with, options)
        if (sizes := project.sizes) is not None and sizes.ram > room > sizes.ram - sizes.arena:
            left = min(room - (sizes.ram - sizes.arena), options.capacities.get("ram", room))
            project = _measure_size(compile_with, replace(options, memory={**options.memory, "ram": left}))
    if project is not None and project.sizes is not None and project.sizes.ram <= room:
        return _check_budget(project, options)
    return _check_budget(_measure_size(compile_with, replace(options, ram=None, objective="ram")), options)


def _measure_size(compile_with: Compile, options: Options) -> CompiledProject:
    project = compile_with(options)
    return replace(project, sizes=project.measure(options.budgets or ("ram",)))


def _check_budget(project: CompiledProject, options: Options) -> CompiledProject:
    if project.sizes is not None:
        project.sizes.check(options.budgets, partial(over_budget, project.largest))
    return replace(project, budgets=options.budgets)
