"""The most multiply-accumulates in a cycle that the kernels of an engine can reach: on layers without end, products alone being counted.

A share of this peak says how much of an engine a layer uses. Set-up, borders, requantisation and transfers are what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping

from deeploy.graph.nest import Kind
from deeploy.midend import cost
from deeploy.midend.plan import Plan
from deeploy.midend.program import Call

_ENDLESS = 2**12 * 3**4 * 5 * 7  # a multiple of the steps in which kernels take dimensions


def peaks(plan: Plan) -> Mapping[str, float]:
    """MAC in a cycle, by the name of the engine: of the fastest kernel that any layer of the network could run by there."""
    found: dict[str, float] = {}
    for step, call in enumerate(plan.program.calls):
        for variant in plan.variants[step] if plan.variants else (call,):
            reached = _without_end(variant, plan)
            if reached:
                engine = variant.kernel.engine
                found[engine] = max(found.get(engine, 0.0), round(reached, 2))
    return found


def _without_end(call: Call, plan: Plan) -> float:
    """MAC in a cycle of a call whose dimensions, but those of windows, are endless; 0 where it multiplies nothing."""
    nest, extents = call.geometry.nest, call.geometry.extents
    inside = {
        dim.name for access in nest.reads.values() for axis in access.axes for dims in [list(axis.dims())] if len(dims) > 1 for dim in dims
    }
    kinds = {dim.name: dim.kind for dim in nest.iterated()}
    windows = {name for name, kind in kinds.items() if kind is Kind.REDUCTION and name in inside}
    if not call.geometry.macs():
        return 0.0
    work = cost.work(call, plan.target)
    counted = {name for _, steps in work.terms for name in steps}
    repeated = set(kinds) - windows - counted  # along these a kernel is called again for every index
    endless = {name for name in counted & set(kinds) - windows if extents[name] > 1}
    size = {name: _ENDLESS if name in endless else 1 if name in repeated else extent for name, extent in extents.items()}
    cycles = float(work.cycles(lambda dim, step: float(cost.steps(size[dim], step)) if step else 1.0))
    macs = 1.0
    for name in kinds:
        macs *= size[name]
    cores = min(plan.machine.cores, plan.target.engine(call.kernel.engine).cores)
    return macs / cycles * cores / float(work.slower(cores)) if cycles else 0.0
