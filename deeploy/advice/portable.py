"""Layers that take much of a network in portable C, or on one core, where a target has faster kernels for others like them.

Such a layer is named with its part of the cycles, and with what the faster kernel that misses least would need. Nobody has planned the
network with that kernel: there is no gain to promise.
"""

from __future__ import annotations

from collections.abc import Iterator

from deeploy.documents import Contents
from deeploy.driver.project import Unit
from deeploy.ir.target import Target
from deeploy.planning.binding.kernels import closest_needs

MUCH = 0.1  # of all cycles: what a layer takes that is named
PORTABLE = "portable/"  # the folder of kernels in C for every machine


def slow_layers(unit: Unit, target: Target) -> Iterator[Contents]:
    """The layers of a unit, those with the most cycles first."""
    plan, timings = unit.network.plan, unit.run.calls if unit.run is not None else ()
    for step, timing in sorted(enumerate(timings), key=lambda one: -one[1].cycles):
        call, share = plan.program.calls[step], timing.cycles / (unit.cycles or 1.0)
        engine = target.engine(call.kernel.engine)
        if share < MUCH:
            return
        is_alone = engine.cores > 1 and not engine.accelerator and plan.tiling(step).division is None and not call.kernel.forks
        is_portable = call.kernel.source.startswith(PORTABLE)
        others = [k for k in target.kernels if (k.op, k.engine) == (call.node.op, engine.name) and not k.source.startswith(PORTABLE)]
        closest_kernel = closest_needs(others, call.node, call.kernel) if is_portable else None
        if not is_alone and closest_kernel is None:
            continue
        places = " on one core" * is_alone + " in portable C" * is_portable
        reasons = [f"Kernel {closest_kernel[0].name} would need {'; '.join(closest_kernel[1])}"] if closest_kernel is not None else []
        reasons += ["No dimension of it can be divided over the cores"] * is_alone
        yield {
            "kind": "kernel",
            "title": f"{call.name} runs{places}: {share:.0%} of the network",
            "why": ". ".join(reasons),
            "how": "Its part of the predicted cycles; no plan without it was made.",
            "options": [],
            "gain": 0,
            "share": share,
            "layers": [],
        }
