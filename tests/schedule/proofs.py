"""The C that is printed of a plan, or of a schedule that was changed, compared with the graph (``deeploy.certify``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

import deeploy
from deeploy.backend import network as emission
from deeploy.certify import CertificateError
from deeploy.driver import project as driver
from deeploy.planning.plan import Plan
from deeploy.schedule import Schedule


def emitted(compiled: deeploy.Compiled, plan: Plan | None = None, schedule: Schedule | None = None) -> Mapping[str, str | bytes]:
    """The files of a network: of its plan or of another one, with the schedule of the plan or with another one."""
    ((name, network),) = compiled.networks.items()
    assert network.graph is not None  # or nothing is certified
    changed = replace(compiled, networks={name: replace(network, plan=plan or compiled.plan)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_walk_plan", lambda plan: None)  # nothing is predicted of what may be wrong
        if schedule is not None:
            patch.setattr(emission, "build_schedule", lambda plan: schedule)
        return changed.sources()


def prove(compiled: deeploy.Compiled, plan: Plan | None = None) -> None:
    """Certify the C of a network, of its plan or of another one.

    Raises:
        CertificateError: it does not do what the graph says.
    """
    ((name, network),) = compiled.networks.items()
    changed = replace(compiled, networks={name: replace(network, plan=plan or compiled.plan)})
    changed.certify(emitted(changed))


def refuse(compiled: deeploy.Compiled, plans: Iterable[Plan]) -> int:
    """Check that the C of no other plan is certified; returns how many there are."""
    count = 0
    for plan in plans:
        with pytest.raises(CertificateError):
            prove(compiled, plan)
        count += 1
    return count


def verdicts(compiled: deeploy.Compiled, mutants: Iterable[Schedule]) -> list[bool]:
    """Of each mutant of a schedule that gives other C than the plan, whether it is certified, as the C of the plan is."""
    right, found = emitted(compiled), list[bool]()
    compiled.certify(right)
    for mutant in mutants:
        files = emitted(compiled, schedule=mutant)
        if files != right:
            try:
                compiled.certify(files)
            except CertificateError:
                found.append(False)
            else:
                found.append(True)
    return found


def refuse_schedules(compiled: deeploy.Compiled, mutants: Iterable[Schedule]) -> int:
    """Check that the C of no mutant of a schedule is certified; returns how many give other C than the plan."""
    found = verdicts(compiled, mutants)
    assert not any(found), f"mutant {found.index(True)} of {len(found)} is certified"
    return len(found)
