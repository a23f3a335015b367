"""Plans for machines with several memories as C: loops over tiles that fetch, compute and store.

Every call becomes a few functions: what moves for tile ``t``, what every core computes in it, and the loop that keeps
transfers and computing side by side. Where a tile lies follows from ``t`` by division; there are no tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mako.lookup import TemplateLookup

from deeploy.backend import calls as c
from deeploy.backend.constants import Shared, blob, constants, context, stored_bytes
from deeploy.backend.tiles import TiledCall, macro
from deeploy.midend.lifetime import FOR_EVER
from deeploy.midend.plan import Plan
from deeploy.midend.program import Role

WEIGHTS = "weights.bin"  # the far constants of a project with several networks
IN, OUT, EARLY = "0", "1", "2"  # tickets of a call's own transfers: windows in, windows out, first constants of the next call
LAST = 2**31 - 1
KEEP = 2  # ticket of the constants that are fetched once


@dataclass(frozen=True)
class TiledLayer:
    """One call as the template sees it; the lists hold lines of C.

    Attributes:
        accelerator: what works on while the first core goes on: it is waited for where others return; None where cores work.
        group: tiles between two moves of the windows in memories further out; 0 where there are none.
        loads: whole constants that are fetched as the call begins; ``awaited`` those it has to wait for: their ticket.
        following: the next call, when its first windows are fetched while this one runs.
    """

    name: str
    index: int
    header: tuple[str, ...]
    tiles: int
    group: int
    is_double: bool
    cores: int
    closure: str
    accelerator: str | None
    near: str
    far: str | None
    fetches: list[str]
    early: list[str]
    stages: list[str]
    stores: list[str]
    unstages: list[str]
    unstaged_twice: bool
    body: list[str]
    loads: list[str]
    awaited: int | None
    following: str | None


def network(
    prefix: str,
    plan: Plan,
    lookup: TemplateLookup,
    instances: dict[str, c.Instance],
    description: Mapping[str, Any],
    version: str,
    common: Shared,
) -> dict[str, str | bytes]:
    """The files of one network; kernel instances it needs are added to ``instances``."""
    program, target = plan.program, plan.target
    is_far = plan.machine is not None and target.memory(plan.machine.default_memory).is_far
    resident = {m.name: constants(prefix, program.buffers.values(), m.name) for m in target.memories}
    stored = (common.store.constants[prefix], *resident.values())
    addresses = _addresses(prefix, plan, {k.name: k.far for kept in stored for k in kept}, is_far)
    kept = _copies(plan)
    values = context(prefix, plan, description, version, common) | {
        "layers": [_layer(plan, step, addresses, lookup, instances) for step in range(len(program.calls))],
        "is_far": is_far,
        "resident": [name for name, kept in resident.items() if kept],
        "outer": target.outward(target.engines[0].memory)[0].far,
        "default": plan.machine.default_memory if plan.machine else "",
        "levels": [memory.name for memory in target.memories],
        "kept": [load for name in kept for load in _load(plan, name, addresses, KEEP)],
        "kept_paths": list(dict.fromkeys(_path_to(plan, name) for name in kept)),
        "kept_near": [] if is_far else [f"{prefix}_{name}" for name in kept],
        "arena_bytes": 0,
        "alignment": 1,
        "offsets": sorted((offset, macro(name)) for name, offset in plan.offsets.items()),
        "blocks": _blocks(plan),
        "steps": len(program.calls),
    }
    render = {
        f"include/{prefix}.h": "network.h.mako",
        f"src/{prefix}.c": "managed_network.c.mako",
        f"src/{prefix}_checks.h": "checks.h.mako",
    }
    files: dict[str, str | bytes] = {path: lookup.get_template(name).render(**values) for path, name in render.items()}
    return files | constant_files(prefix, plan, lookup, description, version, common)


def constant_files(
    prefix: str, plan: Plan, lookup: TemplateLookup, description: Mapping[str, Any], version: str, common: Shared
) -> dict[str, str | bytes]:
    """Those of the files of one network that hold its constants."""
    is_far = plan.machine is not None and plan.target.memory(plan.machine.default_memory).is_far
    files: dict[str, str | bytes] = {}
    if not is_far:
        values = context(prefix, plan, description, version, common)
        for kind in ("h", "c"):
            files[f"src/{prefix}_weights.{kind}"] = lookup.get_template(f"weights.{kind}.mako").render(**values)
    files[f"{prefix}_weights.bin"] = loaded(plan, common.store.blobs[prefix]) or common.store.blobs[prefix]
    if is_far and len(common.store.blobs) > 1:
        files[WEIGHTS] = common.store.blob
    return files


def loaded(plan: Plan, movable: bytes) -> bytes:
    """The constants that are there before the network is initialised, memory by memory as the machine lists them.

    ``movable`` are those that lie in no memory for good, but in the default one.
    """
    buffers, default = plan.program.buffers.values(), plan.machine.default_memory if plan.machine is not None else ""
    far = {memory.name: movable if memory.is_far and memory.name == default else b"" for memory in plan.target.memories}
    return b"".join(own + blob(buffers, name) for name, own in far.items())


def _addresses(prefix: str, plan: Plan, offsets: Mapping[str, int], is_far: bool) -> dict[str, str]:
    """Where every buffer begins, as a C expression."""
    program = plan.program
    result = {}
    for name, buffer in program.buffers.items():
        if program.growth is not None and name == program.growth.position:
            result[name] = f"(rt_address)&{c.POSITION}"
        elif buffer.role is Role.INPUT:
            result[name] = f"(rt_address)inputs[{program.inputs.index(name)}]"
        elif buffer.role is Role.OUTPUT:
            result[name] = f"(rt_address)outputs[{program.outputs.index(name)}]"
        elif buffer.memory:
            result[name] = f"{buffer.memory.lower()} + {offsets[f'{prefix}_{name}']}"
        elif buffer.role is Role.CONSTANT and name not in plan.fetched:
            result[name] = f"constants + {offsets[f'{prefix}_{name}']}" if is_far else f"(rt_address){prefix}_{name}"
        elif name in plan.offsets and name in plan.homes:
            result[name] = f"{plan.homes[name].lower()} + {macro(name)}"
    for name in plan.fetched:
        result[f"{name} far"] = f"constants + {offsets[f'{prefix}_{name}']}" if is_far else f"(rt_address){prefix}_{name}"
    return result


def _copies(plan: Plan) -> list[str]:
    """The constants of which a copy is made before the first inference, one of those that share theirs."""
    first = {p.buffers: p.buffers[0] for p in plan.placements}
    shared = {name: head for names, head in first.items() for name in names}
    return [name for name, step in plan.fetched.items() if step == FOR_EVER and shared.get(name, name) == name]


def _path_to(plan: Plan, name: str) -> str:
    """The path over which a copy of a constant comes to where it is read."""
    return next(path.name for path in plan.target.paths if path.near == plan.homes[name])


def _load(plan: Plan, name: str, addresses: Mapping[str, str], ticket: int) -> list[str]:
    """Lines that begin to fetch a whole constant."""
    path, count = _path_to(plan, name), plan.program.buffers[name].bytes
    return [f"rt_fetch_run(DMA_{path}, {ticket}, {addresses[name]}, {addresses[f'{name} far']}, {count});"]


def _layer(plan: Plan, step: int, addresses: Mapping[str, str], lookup: TemplateLookup, instances: dict[str, c.Instance]) -> TiledLayer:
    program = plan.program
    call = program.calls[step]
    tiled = TiledCall(plan, step, addresses)
    stored = {name: program.buffers[operand.buffer].dtype for name, operand in call.operands.items()}
    lines, views = tiled.operands()
    function = c.called(call, stored, instances)
    text = c.render(call, function, views, tiled.scratch(), lookup, tiled.counts(), c.message_number(program, step))
    far = tiled.streams(1, False) + tiled.streams(1, True)
    outer = tiled.tiling.loops[: far[0].loops] if far else ()
    group = tiled.tiling.tiles
    for loop in outer:
        group //= loop.trips
    loads = [line for name in plan.loads(step) for line in _load(plan, name, addresses, plan.load_tickets[plan.first_uses[name]])]
    following = plan.followers.get(step)
    return TiledLayer(
        name=call.name,
        index=step,
        header=c.header(call),
        tiles=tiled.tiling.tiles,
        group=group if far else 0,
        is_double=plan.calls[step].is_double,
        cores=tiled.cores,
        closure=f"{tiled.engine.memory.lower()} + {macro(call.name + '.closure')}",
        accelerator=tiled.engine.name if tiled.engine.accelerator else None,
        near=tiled.paths[0].name,
        far=tiled.paths[1].name if len(tiled.paths) > 1 else None,
        fetches=tiled.fetches(0, IN),
        early=tiled.at_tile("0", tiled.early(EARLY)),
        stages=tiled.fetches(1, IN),
        stores=tiled.stores(0, OUT),
        unstages=tiled.stores(1, OUT),
        unstaged_twice=all(s.depth > 1 or s.moves == 1 for s in tiled.streams(1, True)),
        body=tiled.at_tile("*(const int32_t *)argument", tiled.body(lines, text)),
        loads=loads,
        awaited=plan.load_tickets.get(step),
        following=None if following is None else program.calls[following].name,
    )


def _blocks(plan: Plan) -> list[tuple[str, str, int, int, int, int]]:
    """What the host machine model is told of the plan: name, level, offset, bytes, first and last step.

    What outlives an inference has no last step: another network may come in between, which has more of them.
    """
    placed = sorted(plan.placements, key=lambda p: (p.level, p.offset, p.first))
    end = len(plan.program.calls)
    lasts = {p: LAST if p.first == FOR_EVER and p.last >= end else p.last for p in placed}
    return [("=".join(p.buffers), p.level, p.offset, p.size, p.first, lasts[p]) for p in placed]


def arena_bytes(plan: Plan, level: str) -> int:
    """What the plan uses of the arena of a memory: its peak without the constants that lie beside it."""
    return plan.memory[level].peak - plan.memory[level].constants


def machine(plan: Plan, arenas: Mapping[str, int], common: Shared, lookup: TemplateLookup) -> dict[str, str | bytes]:
    """The machine's table and the numbers of its memories and transfer engines; ``arenas`` are bytes by memory."""
    assert plan.machine is not None
    buffers = plan.program.buffers.values()
    beside = {memory.name: stored_bytes(buffers, memory.name) for memory in plan.target.memories if memory.is_far}
    if plan.machine.default_memory in beside:
        beside[plan.machine.default_memory] += len(common.store.blob)
    values = {"target": plan.target, "arenas": arenas, "cores": plan.machine.cores, "beside": beside}
    return {
        "include/deeploy_machine.h": lookup.get_template("machine.h.mako").render(**values),
        "src/machine.c": lookup.get_template("machine.c.mako").render(**values),
    }
