"""Plans of several programs at the same time, by the workers of ``deeploy.jobs``.

A worker loads the target itself. Programs and plans are sent without what objects remember of themselves; the target, the machine and
kernels are sent as their places, so that a plan that comes back is of the same kernels as one that was made here.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from copyreg import __newobj__  # type: ignore[attr-defined]
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from deeploy.ir.kernel import Kernel
from deeploy.ir.target import Target
from deeploy.jobs import in_order
from deeploy.options import Options
from deeploy.planning.plan import Machine, Plan
from deeploy.planning.program import Program
from deeploy.target import load
from deeploy.target._find import place_of

WORTH = 150  # calls of all programs, below which starting workers takes longer than they save
Make = Callable[[int, Program, Target, Machine, Options], Plan]
Task = tuple[int, Program, Target, Machine, Options]  # with the number of the chip
Places = Mapping[str, object]


def plan_apart(make: Make, tasks: Sequence[Task]) -> Iterator[Plan]:
    """The plans that a function of a module makes of the tasks, in their order.

    Raises:
        DeeployError: of the first task that has none.
    """
    given = [_pack_task(make, task) for task in tasks] if len(tasks) > 1 and sum(len(task[1].calls) for task in tasks) >= WORTH else [None]
    if None in given:
        yield from (make(*task) for task in tasks)
        return
    for task, plan in zip(tasks, in_order(_make_sent_plan, [one for one in given if one is not None]), strict=True):
        yield _unpickle_task(plan, _shared_places(task[2], task[3])) if plan is not None else make(*task)


@dataclass(frozen=True)
class _Sent:
    """A task for a worker: the folder of the target and what is other than there, and the rest as it is pickled."""

    make: Make
    folder: Path
    changed: Mapping[str, object]
    machine: Machine
    rest: bytes


def _pack_task(make: Make, task: Task) -> _Sent | None:
    """A task as it is sent; None where the target has kernels of its own, or kernels that cannot be found in it."""
    number, program, target, machine, options = task
    folder = place_of(target)
    if folder is None:
        return None
    known = load(folder)
    names = [field.name for field in fields(Target) if field.name not in ("kernels", "passes")]
    changed = {name: getattr(target, name) for name in names if getattr(target, name) != getattr(known, name)}
    rest = _pickle_task((number, program, options), _shared_places(target, machine))
    return _Sent(make, folder, changed, machine, rest) if rest is not None else None


def _make_sent_plan(sent: _Sent) -> bytes | None:
    """The plan of a task, where a worker makes it; None where it cannot be sent."""
    target = replace(load(sent.folder), **sent.changed)  # type: ignore[arg-type]
    places = _shared_places(target, sent.machine)
    number, program, options = _unpickle_task(sent.rest, places)
    return _pickle_task(sent.make(number, program, target, sent.machine, options), places)


def _shared_places(target: Target, machine: Machine) -> Places:
    """What is sent as its name: the target, the machine, and every kernel by where it is in the target."""
    stored_places: dict[str, object] = {"target": target, "machine": machine}
    waiting = [(str(number), kernel) for number, kernel in enumerate(target.kernels)]
    while waiting:
        place, kernel = waiting.pop()
        stored_places[place] = kernel
        parts = [*(phase.kernel for phase in kernel.phases), *([kernel.post_processing.kernel] if kernel.post_processing else [])]
        waiting += [(f"{place}.{number}", part) for number, part in enumerate(parts)]
    return stored_places


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, places: Places) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.places = {id(stored): place for place, stored in places.items()}

    def persistent_id(self, value: object) -> str | None:
        if isinstance(value, Kernel) and id(value) not in self.places:
            raise pickle.PicklingError(value.name)
        return self.places.get(id(value))

    def reducer_override(self, value: object) -> Any:
        """Pickles a dataclass as its fields, without what functions have cached in it."""
        if isinstance(value, type) or not is_dataclass(value):
            return NotImplemented
        values = {field.name: getattr(value, field.name) for field in fields(value)}
        return __newobj__, (type(value),), values if hasattr(value, "__dict__") else (None, values)


class _UnitReader(pickle.Unpickler):
    def __init__(self, data: bytes, places: Places) -> None:
        super().__init__(io.BytesIO(data))
        self.places = places

    def persistent_load(self, place: str) -> object:
        return self.places[place]


def _pickle_task(what: object, places: Places) -> bytes | None:
    file = io.BytesIO()
    try:
        _Writer(file, places).dump(what)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return None
    return file.getvalue()


def _unpickle_task(data: bytes, places: Places) -> Any:
    return _UnitReader(data, places).load()
