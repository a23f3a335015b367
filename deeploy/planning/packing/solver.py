"""The solver's Python interface, without the data frames that it imports and that a model need not have: these take longer than to solve.

``cp_model`` is ``ortools.sat.python.cp_model``; it gets pandas when something asks for that.
"""

from __future__ import annotations

import importlib
import sys
from concurrent.futures import Future, wait
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["cp_model", "new_solver", "solve_model"]

_PAUSE = 0.05  # seconds between two attempts to stop a search that may not have begun


class _Late(ModuleType):
    """A module that is imported when an attribute is first asked for."""

    def __getattr__(self, name: str) -> object:
        return getattr(importlib.import_module(self.__name__), name)


def _import_solver() -> ModuleType:
    name = "ortools.sat.python.cp_model"
    if "pandas" in sys.modules or name in sys.modules:
        return importlib.import_module(name)
    stand_in = ModuleType("pandas")
    vars(stand_in).update(Index=object, Series=object)  # which annotations mention
    sys.modules["pandas"] = stand_in
    try:
        module = importlib.import_module(name)
    finally:
        del sys.modules["pandas"]
    vars(module)["pd"] = _Late("pandas")
    return module


if TYPE_CHECKING:
    from ortools.sat.python import cp_model as cp_model
else:
    cp_model = _import_solver()


def new_solver(seconds: float) -> cp_model.CpSolver:
    """A solver that makes the same of a model every time, in at most so many seconds of deterministic time."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = seconds
    solver.parameters.catch_sigint_signal = False  # it would end the search and go on with what was found
    return solver


def solve_model(solver: cp_model.CpSolver, model: cp_model.CpModel) -> cp_model.CpSolverStatus:
    """Solve a model; what a signal raises meanwhile, such as KeyboardInterrupt, ends the search at once.

    Python runs handlers of signals between two steps of the main thread, so the search has a thread of its own.
    """
    status: Future[cp_model.CpSolverStatus] = Future()

    def search() -> None:
        if status.set_running_or_notify_cancel():
            try:
                status.set_result(solver.solve(model))
            except BaseException as error:
                status.set_exception(error)

    try:
        Thread(target=search, daemon=True).start()
        return status.result()
    except BaseException:
        while not (status.cancel() or status.done()):
            solver.stop_search()
            wait([status], _PAUSE)
        raise
