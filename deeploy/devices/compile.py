"""Models planned for targets without code: pipelines of devices, with what each stage holds and how long it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deeploy.backend import project
from deeploy.devices.plan import DevicePlan, plan_devices
from deeploy.documents import Contents
from deeploy.driver.lower import Stopwatch, check_options, lowered_for_chips
from deeploy.driver.partition import check_cut
from deeploy.errors import UsageError
from deeploy.ir.target import Target
from deeploy.ir.topology import load_members
from deeploy.options import Options
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


def plan_pipeline(model: Path, target: Target, options: Options) -> Planned:
    """Plan a pipeline for a target with a ``device``.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    if options.partition != "pipeline":
        raise UsageError(f"target {target.name} is for planning pipelines only", "Say --partition pipeline.")
    if target.device is None:
        raise UsageError(f"target {target.name} describes no device to plan pipelines for", "Compile for it: deeploy.chips.compile.")
    check_options(options)
    options.check_exact("a target for planning only")
    if (given := next((name for name in ("package", "self_test") if getattr(options, name) is not None), None)) is not None:
        raise UsageError(f"--{given.replace('_', '-')}: no code is made for target {target.name}", "Leave it out, or name another target.")
    options.set_clock(target)
    chips = check_cut(options)
    members = load_members(options.topology) if options.topology is not None else {}
    stopwatch = Stopwatch(options.on_stage)
    lowered = lowered_for_chips(stopwatch, model, target, options)
    result = stopwatch("partition", plan_devices, lowered.graph, target, chips, options.balance, options, members)
    return Planned(result, model.name, target.name, (*lowered.notes, *result.notes))
