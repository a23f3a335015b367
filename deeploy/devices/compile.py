"""Models planned for targets without code: pipelines of devices, with what each stage holds and how long it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deeploy.backend import project
from deeploy.devices.plan import DevicePlan, plan_devices
from deeploy.documents import Contents
from deeploy.driver.lower import Clock, lowered_for_chips
from deeploy.driver.partition import balance_of, check_cut
from deeploy.driver.request import Cut, Request
from deeploy.errors import UsageError
from deeploy.ir.target import Target
from deeploy.ir.topology import load_members
from deeploy.schemas import GENERATOR, PLAN


@dataclass(frozen=True, eq=False)
class Planned:
    """A pipeline of a target for which no code is made: memory and times only."""

    plan: DevicePlan
    model: str
    target: str
    notes: tuple[str, ...]

    def contents(self) -> Contents:
        """The plan as the document that ``plan.json`` holds."""
        why = f"target {self.target} is for planning only: no code is made"
        return {"generator": GENERATOR, "model": self.model, "target": self.target, "planning": why, **self.plan.contents()}

    def write(self, folder: str | Path, further: Mapping[str, str] | None = None) -> None:
        """Write ``plan.json`` and ``further`` files, in place of an older project of ours; see ``deeploy.backend.project``."""
        project.write_project(Path(folder), {PLAN: json.dumps(self.contents(), indent=1) + "\n", **(further or {})})


def plan_pipeline(model: Path, target: Target, cut: Cut, request: Request) -> Planned:
    """Plan a pipeline for a target with a ``device``.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    if cut.partition != "pipeline":
        raise UsageError(f"target {target.name} is for planning pipelines only", "Say --partition pipeline.")
    if target.device is None:
        raise UsageError(f"target {target.name} describes no device to plan pipelines for", "Compile for it: deeploy.chips.compile.")
    request.check()
    request.check_exact("a target for planning only")
    request.clocked(target)
    check_cut(cut)
    balance = balance_of(cut)
    members = load_members(cut.topology) if cut.topology is not None else {}
    clock = Clock(request.on_stage)
    lowered = lowered_for_chips(clock, model, target, request)
    result = clock("partition", plan_devices, lowered.graph, target, cut.chips, balance, request.options, members)
    return Planned(result, model.name, target.name, (*lowered.notes, *result.notes))
