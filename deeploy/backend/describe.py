"""``deploy.json``: what was compiled, where everything lies, and what it costs, for scripts.

Cycles, bytes and energy are those of ``description["timing"]``, which is put together above this module (see
``deeploy.execution.simulation.timing.summarise_run``); they are null where nothing is known of a target's timing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from deeploy.backend.constants import WEIGHTS
from deeploy.documents import Contents, Document
from deeploy.planning.cost import FORMS, requantisation_form
from deeploy.planning.energy import unknown_energy
from deeploy.planning.packing.addresses import Placement
from deeploy.planning.packing.lifetimes import FOR_EVER
from deeploy.planning.plan import Plan, memory_of
from deeploy.planning.planner.bounds import peak_products, plan_bounds
from deeploy.planning.program import Buffer, Program, Role
from deeploy.planning.tiling.fused_group import FusedGroup
from deeploy.schemas import GENERATOR, SCHEMA

_UNKNOWN: Document = {
    "bytes": {},
    "traffic": {},
    "utilisation": {},
    "shares": {},
    "cycles": None,
    "microseconds": None,
    "forks": None,
    "energy_uj": None,
    "energy": {},
}


def describe_project(plans: Mapping[str, Plan], descriptions: Mapping[str, Document], version: str) -> Contents:
    """The contents of ``deploy.json``; with several networks each has an entry of its own under ``networks``."""
    entries = {prefix: _describe_network(prefix, plan, descriptions[prefix], len(plans) == 1) for prefix, plan in plans.items()}
    head: Contents = {"generator": GENERATOR, "version": version, "schema": SCHEMA}
    if len(entries) == 1:
        return head | next(iter(entries.values()))
    return head | {"target": next(iter(plans.values())).target.name, "networks": list(entries.values())}


def _describe_network(prefix: str, plan: Plan, description: Document, is_alone: bool) -> Contents:
    program = plan.program
    timing = description.get("timing") or {}
    prediction = plan.prediction
    return {
        "name": prefix,
        "model": description["model"],
        "target": plan.target.name,
        "machine": _describe_machine(f"{prefix}_weights.bin" if is_alone else WEIGHTS, plan),
        "memory": _describe_memory(plan),
        "inputs": [_describe_port(program, n, d) for n, d in zip(program.inputs, description["inputs"], strict=True)],
        "outputs": [_describe_port(program, n, d) for n, d in zip(program.outputs, description["outputs"], strict=True)],
        **({"pinned": description["pinned"]} if "pinned" in description else {}),
        "calls": [_describe_call(plan, step, timing) for step in range(len(program.calls))],
        "legend": _explain_names(plan),
        "buffers": [_describe_buffer(plan, p) for p in plan.placements],
        **({"fused_groups": [_describe_group(fused_group) for fused_group in plan.fused_groups]} if plan.fused_groups else {}),
        **({"fusion_choices": [asdict(choice) for choice in plan.fusion_choices]} if plan.fusion_choices else {}),
        **({"order": asdict(plan.order)} if plan.order is not None else {}),
        **({"fixed": _describe_fixes(plan)} if plan.machine.fixes else {}),
        **({"arrangements": [asdict(one) for one in plan.arrangements]} if plan.arrangements else {}),
        **describe_dynamic_length(plan),
        **({"requantised": description["requantised"]} if description.get("requantised") else {}),
        **({"stream": description["stream"]} if "stream" in description else {}),
        **({"self_test": description["self_test"]["id"]} if description.get("self_test") else {}),
        "constants": [_describe_constant(plan, b) for b in program.buffers.values() if b.role is Role.CONSTANT],
        "prediction": None if prediction is None else {"cycles": prediction.cycles, "bound": prediction.bound, "greedy": prediction.greedy},
        **({"bounds": asdict(plan_bounds(plan)), "engines": timing["engines"]} if timing else {}),
        **{key: timing.get(key, missing) for key, missing in _UNKNOWN.items()},
        **({"is_estimate": True} if timing and plan.target.timing is not None and plan.target.timing.is_estimate else {}),
        "energy_missing": timing["energy_missing"] if timing else list(unknown_energy(plan)),
    }


def _explain_names(plan: Plan) -> Contents:
    """What words in the names of the plan's kernels, and of the forms of their requantisations, mean."""
    known = {**{name: f"requantises {how}" for name, how in FORMS.items()}, **plan.target.legend}
    used = {word for call in plan.program.calls for word in (*call.kernel.name.split("_"), requantisation_form(call, plan.target))}
    return {word: meaning for word, meaning in known.items() if word in used}


def _describe_memory(plan: Plan) -> Contents:
    """What every memory holds, those included that constants are read from in place."""
    uses = {name: asdict(use) for name, use in memory_of(plan).items()}
    return {name: {key: value for key, value in use.items() if key != "alignment"} for name, use in uses.items()}


def _describe_call(plan: Plan, step: int, timing: Document) -> Contents:
    call = plan.program.calls[step]
    tiling = plan.tiling(step)
    return {
        "name": call.name,
        "node": call.node.name,
        "op": call.node.op,
        "kernel": call.kernel.name,
        "form": requantisation_form(call, plan.target),
        "source": call.kernel.source,
        "generator": call.kernel.generator or None,
        "engine": call.kernel.engine,
        "macs": call.geometry.macs(),
        **({"period": call.period} if call.period > 1 else {}),
        **({"first": call.first} if call.first is not None else {}),
        "tiles": tiling.tiles,
        "loops": [[loop.dim, loop.trips, loop.tile] for loop in tiling.loops],
        "is_double": plan.calls[step].is_double,
        "core_dim": tiling.core_dims,
        "cycles": None,
        **(timing["calls"][step] if timing else {}),
        "operands": {name: operand.buffer for name, operand in call.operands.items()},
    }


def _describe_fixes(plan: Plan) -> Contents:
    """What the user fixed, the calls or the buffer that each is about, and cycles of the plan in which nothing is fixed."""
    fixes = [{"of": fix.subject, "what": fix.what, "value": fix.value, "names": sorted(fix.names)} for fix in plan.machine.fixes]
    return {"fixes": fixes, "cycles_free": plan.free_cycles}


def _describe_group(fused_group: FusedGroup) -> Contents:
    return {
        "first": fused_group.first,
        "last": fused_group.last,
        "time_steps": fused_group.time_steps,
        "line_buffers": [{"buffer": name, "rows": line_buffer.rows} for name, line_buffer in fused_group.line_buffers.items()],
        "slots": [{"buffer": name, "slots": slots.count, "elements": slots.elements} for name, slots in fused_group.tile_buffers.items()],
    }


def _describe_buffer(plan: Plan, placement: Placement) -> Contents:
    name = placement.buffers[0]
    known = plan.program.buffers.get(name)
    is_lasting = placement.first == FOR_EVER and placement.last >= len(plan.program.calls)
    kind = "other network's" if is_lasting else "window"
    kind = known.role.value if known is not None else kind
    return {
        "name": "=".join(placement.buffers),
        "kind": kind,
        "level": placement.level,
        "offset": placement.offset,
        "bytes": placement.size,
        "first": placement.first,
        "last": placement.last,
    }


def _describe_constant(plan: Plan, buffer: Buffer) -> Contents:
    entry: Contents = {"name": buffer.name, "tensor": buffer.tensor, "bytes": buffer.bytes}
    stored = plan.stored(buffer)
    if stored:
        entry |= {"stored": stored, "read_from": plan.residences.get(buffer.name, stored)}
    if buffer.name in plan.fetched:
        entry["fetched"] = plan.fetched[buffer.name]
    return entry


def _describe_machine(weights: str, plan: Plan) -> Contents | None:
    """What the plan could use of a machine with scratchpad memories; None on a flat one."""
    machine, timing = plan.machine, plan.target.timing
    if plan.target.is_flat:
        return None
    is_far = plan.target.memory(machine.default_memory).is_far
    return {
        "cores": machine.cores,
        "engines": list(machine.engines),
        "buffering": machine.buffering,
        "default_memory": machine.default_memory,
        "constants": weights if is_far or any(b.memory for b in plan.program.buffers.values()) else None,
        "mhz": timing.mhz if timing is not None else None,
        "peaks": dict(peak_products(plan)) if timing is not None else {},
        "paths": {path.name: {"near": path.near, "far": path.far} for path in plan.target.paths},
    }


def _describe_port(program: Program, name: str, description: Document) -> Contents:
    """An input or output; ``dynamic_axes`` are the axes that have as many entries as there are rows."""
    buffer = program.buffers[name]
    dynamic_axes = {"dynamic_axes": sorted(program.dynamic_axes.get(buffer.tensor, ()))} if program.dynamic_length is not None else {}
    return {"name": buffer.tensor, "type": buffer.dtype.value, "shape": list(buffer.shape), **dynamic_axes, **description}


def describe_dynamic_length(plan: Plan) -> Contents:
    """What outlives an inference, where something does."""
    dynamic_length = plan.program.dynamic_length
    if dynamic_length is None:
        return {}
    states = []
    for state in dynamic_length.states:
        buffer = plan.program.buffers[state.buffer]
        place = {"buffer": buffer.name, "type": buffer.dtype.value, "bytes": buffer.bytes, "level": plan.residences[state.buffer]}
        states.append({"past": state.past, "present": state.present, "shape": list(state.shape), "axis": state.axis, **place})
    return {"context": dynamic_length.context, "rows": dynamic_length.rows, "states": states}
