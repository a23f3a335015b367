"""``deploy.json``: what was compiled, where everything lies, and what it costs, for scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deeploy.midend.plan import Plan
from deeploy.midend.program import Buffer, Role

SCHEMA = 1
GENERATOR = "deeploy"


def describe(plans: Mapping[str, Plan], descriptions: Mapping[str, Mapping[str, Any]], version: str) -> dict[str, Any]:
    """The contents of ``deploy.json``; with several networks each has an entry of its own under ``networks``."""
    entries = {prefix: _network(prefix, plan, descriptions[prefix]) for prefix, plan in plans.items()}
    head: dict[str, Any] = {"generator": GENERATOR, "version": version, "schema": SCHEMA}
    if len(entries) == 1:
        return head | next(iter(entries.values()))
    return head | {"target": next(iter(plans.values())).target.name, "networks": list(entries.values())}


def _network(prefix: str, plan: Plan, description: Mapping[str, Any]) -> dict[str, Any]:
    program = plan.program
    return {
        "name": prefix,
        "model": description["model"],
        "target": plan.target.name,
        "machine": _machine(prefix, plan),
        "memory": {
            name: {
                "capacity": use.capacity,
                "peak": use.peak,
                "lower_bound": use.lower_bound,
                "io": use.io,
                "reserved": use.reserved,
                "constants": use.constants,
            }
            for name, use in plan.memory.items()
        },
        "inputs": [_port(program.buffers[n], d) for n, d in zip(program.inputs, description["inputs"], strict=True)],
        "outputs": [_port(program.buffers[n], d) for n, d in zip(program.outputs, description["outputs"], strict=True)],
        "calls": [
            {
                "name": call.name,
                "node": call.node.name,
                "op": call.node.op,
                "kernel": call.kernel.name,
                "engine": call.kernel.engine,
                "macs": call.geometry.macs(),
                "tiles": plan.tiling(step).tiles if plan.calls else 1,
                "cycles": None,
                "operands": {name: operand.buffer for name, operand in call.operands.items()},
            }
            for step, call in enumerate(program.calls)
        ],
        "buffers": [
            {"name": "=".join(p.buffers), "level": p.level, "offset": p.offset, "bytes": p.size, "first": p.first, "last": p.last}
            for p in plan.placements
        ],
        "constants": [{"name": b.name, "tensor": b.tensor, "bytes": b.bytes} for b in program.buffers.values() if b.role is Role.CONSTANT],
        "bytes": {},
        "cycles": None,
        "energy_uj": None,
    }


def _machine(prefix: str, plan: Plan) -> dict[str, Any] | None:
    """What the plan could use of a machine with managed memories; None on a flat one."""
    machine = plan.machine
    if machine is None:
        return None
    is_far = plan.target.memory(machine.default_memory).is_far
    return {
        "cores": machine.cores,
        "buffering": machine.buffering,
        "default_memory": machine.default_memory,
        "constants": f"{prefix}_weights.bin" if is_far else None,
    }


def _port(buffer: Buffer, description: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": buffer.tensor, "type": buffer.dtype.value, "shape": list(buffer.shape), **description}
