"""One network as C: its schedule printed, the numbers of its plan, and its constants.

Where there are transfers, every call becomes a few functions: what moves for tile ``t``, what every core computes in it, and the loop that
keeps transfers and computing side by side. Where a tile lies follows from ``t`` by division; there are no tables. Where there are none, a
call is a call.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from itertools import groupby

from deeploy.backend.constants import (
    ALIGNMENT,
    WEIGHTS,
    SharedConstants,
    constant_symbol,
    constants_in,
    pack_constants,
    stored_bytes,
    template_context,
)
from deeploy.backend.instance import CONSTANTS, POSITION, SELF, instance_fields_of, used_levels
from deeploy.backend.layers import Outside, Printer, offset_macro
from deeploy.documents import Contents, Document
from deeploy.frontend.states import LOSS, RATE
from deeploy.ir import names
from deeploy.ir.interface import Instance
from deeploy.ir.templates import TemplateLookup
from deeploy.planning.packing.lifetimes import FOR_EVER
from deeploy.planning.plan import Plan
from deeploy.planning.program import Role
from deeploy.schedule import build_schedule
from deeploy.schedule.build import far_name
from deeploy.schedule.ir import Layer, Move

LAST = 2**31 - 1
_COMMENT = re.compile(r"/\*@.*?\*/\n|/\*.*?\*/", re.DOTALL)


def emit_network(
    prefix: str,
    plan: Plan,
    lookup: TemplateLookup,
    instances: dict[str, Instance],
    description: Document,
    version: str,
    common: SharedConstants,
    has_contracts: bool = False,
) -> dict[str, str | bytes]:
    """The files of one network; kernel instances it needs are added to ``instances``."""
    program, target = plan.program, plan.target
    is_far, is_flat = _is_far(plan), target.is_flat
    resident = {m.name: constants_in(prefix, program.buffers.values(), m.name) for m in target.memories}
    stored = (common.store.constants[prefix], *resident.values())
    outside = _list_outside(prefix, plan, {k.name: k.far for constants in stored for k in constants})
    schedule = build_schedule(plan)
    printer = Printer(schedule, program, outside, describe_places(plan), target, lookup, instances, common.project, has_contracts)
    near_blocks = list(dict.fromkeys(node.near.block for node in schedule.initialise if isinstance(node, Move)))
    values = template_context(prefix, plan, description, version, common) | {
        "layers": [printer.layer(layer.step) for layer in schedule.layers],
        "has_fused_groups": bool(plan.fused_groups) and is_flat,
        "has_strings": any(fused_group.line_buffers for fused_group in plan.fused_groups) or (is_flat and bool(plan.fetched)),
        "is_far": is_far,
        "is_flat": is_flat,
        "resident": [name for name, names in resident.items() if names],
        "outer": "" if is_flat else target.outward(target.engines[0].memory)[0].far,
        "default": plan.machine.default_memory,
        "fields": instance_fields_of(common.isomorphic[prefix]),
        "levels": used_levels([plan]),
        "has_owner": program.dynamic_length is not None and not is_flat,
        "tickets": printer.tickets(),
        "early": sorted((layer.call.name for layer in schedule.layers if "early" in layer.procedures), reverse=True),
        "has_tiles": any(layer.team and layer.cores == 1 and layer.tiling.tiles > 1 for layer in schedule.layers),
        "sections": [(section, _group_layers(schedule.layers[section.first : section.last + 1])) for section in schedule.sections],
        "initialise": _print_copies(prefix, plan) if is_flat else printer.initialise(),
        "near_constants": [] if is_far else [constant_symbol(prefix, name) for name in near_blocks],
        "arena_bytes": common.arenas[prefix] if is_flat else 0,
        "alignment": target.memories[0].alignment if is_flat else 1,
        "offsets": sorted((offset, offset_macro(name)) for name, offset in plan.offsets.items()),
        "steps_refused": "" if is_flat else "transfers for a layer begin before the one in front of it ends",
        "test": description.get("self_test"),
        "blocks": _list_blocks(plan),
        "steps": len(program.calls),
        **_describe_learning(plan),
    }
    templates = {f"include/{prefix}.h": "network.h.mako", f"src/{prefix}.c": "network.c.mako"}
    templates |= {} if is_flat else {f"src/{prefix}_checks.h": "checks.h.mako"}
    templates |= {f"src/{prefix}_test.c": "network_test.c.mako"} if values["test"] else {}
    files: dict[str, str | bytes] = {path: lookup.get_template(name).render(**values) for path, name in templates.items()}
    read_by = version + _COMMENT.sub("", str(files[f"src/{prefix}.c"])) + repr(instances)
    code = 0 if values["has_messages"] else zlib.crc32(read_by.encode())
    return files | constant_files(prefix, plan, lookup, description, version, common, code)


def _describe_learning(plan: Plan) -> Contents:
    """Where the states of a network that learns lie, as C says it, with their bytes; and whether its ports are those of a training step.

    There are none where a state grows, or lies where only transfer engines reach it.
    """
    states, buffers, first = plan.program.states, plan.program.buffers, plan.target.memories[0].name
    levels = [first if plan.target.is_flat else plan.residences[state.buffer] for state in states]
    is_near = all(state.axis is None for state in states) and not any(plan.target.memory(level).is_far for level in levels)
    wording = repr([(s.past, buffers[s.buffer].dtype.value, s.shape) for s in states])
    places = [
        (f"self->{level.lower()} + {offset_macro(state.buffer)}", buffers[state.buffer].bytes)
        for state, level in zip(states, levels, strict=True)
    ]
    ports = {buffers[name].tensor: buffers[name] for name in plan.program.inputs}
    is_step = RATE in ports and ports[RATE].shape == (1,) and [buffers[name].tensor for name in plan.program.outputs] == [LOSS]
    learns = any(state.has_value for state in states)
    return {
        "weights": places if learns and is_near else [],
        "weights_layout": zlib.crc32(wording.encode()),
        "is_training_step": learns and is_step,
        "rate": RATE,
    }


def _print_copies(prefix: str, plan: Plan) -> list[str]:
    """What copies constants to the arena of a flat machine."""
    base, buffers = used_levels([plan])[0].lower(), plan.program.buffers
    return [
        f"memcpy((void *)({SELF}->{base} + {offset_macro(name)}), {constant_symbol(prefix, name)}, {buffers[name].bytes});"
        for name in plan.fetched
    ]


def _name_group(layer: Layer) -> str:
    """What the function of a layer runs: the layer, or a fused group that ends with it and measures its calls tile by tile."""
    return "group" if "tile" in layer.procedures else "layer"


def _group_layers(layers: Sequence[Layer]) -> list[tuple[bool, list[tuple[int, str, str]]]]:
    """Neighbouring calls that the first core runs alone, or all cores of a team: numbers, names and what their functions run.

    Calls of a fused group, but the last one, have no function.
    """
    groups = groupby((layer for layer in layers if layer.body), key=lambda layer: layer.cores == 1)
    return [(is_alone, [(layer.step, layer.call.name, _name_group(layer)) for layer in group]) for is_alone, group in groups]


def _is_far(plan: Plan) -> bool:
    """Whether constants lie where only transfers reach them."""
    return not plan.target.is_flat and plan.target.memory(plan.machine.default_memory).is_far


def constant_files(
    prefix: str, plan: Plan, lookup: TemplateLookup, description: Document, version: str, common: SharedConstants, code: int = 0
) -> dict[str, str | bytes]:
    """The files of one network that hold its constants, by their paths.

    Args:
        code: a number of the C that reads them, which stands behind them; equal for chips of a system, whose C is each other's.
    """
    files: dict[str, str | bytes] = {}
    own = common.store.blobs[prefix]
    if plan.target.is_flat:
        own += code.to_bytes(4, "little")
        own += zlib.crc32(own).to_bytes(4, "little") + bytes(ALIGNMENT - 8)
    if not _is_far(plan):
        values = template_context(prefix, plan, description, version, common)
        has_own = values["embedded"] and not pack_loaded(plan, b"")  # or the binary file holds others
        values["embedded"] = hashlib.sha256(own).hexdigest() if has_own else ""
        values |= {"is_flat": plan.target.is_flat, "code": code, "weights_bytes": len(own)}
        for kind in ("h", "c"):
            files[f"src/{prefix}_weights.{kind}"] = lookup.get_template(f"weights.{kind}.mako").render(**values)
    files[f"{prefix}_weights.bin"] = pack_loaded(plan, common.store.blobs[prefix]) or own
    if _is_far(plan) and len(common.store.blobs) > 1:
        files[WEIGHTS] = common.store.blob
    return files


def pack_loaded(plan: Plan, movable: bytes) -> bytes:
    """The constants that are there before the network is initialised, memory by memory as the machine lists them.

    ``movable`` are those that lie in no memory for good, but in the default one.
    """
    buffers, default = plan.program.buffers.values(), plan.machine.default_memory
    far = {memory.name: movable if memory.is_far and memory.name == default else b"" for memory in plan.target.memories}
    return b"".join(own + pack_constants(buffers, name) for name, own in far.items())


def _list_outside(prefix: str, plan: Plan, offsets: Mapping[str, int]) -> dict[str, Outside]:
    """Where every buffer begins that lies in no arena."""
    program, is_far = plan.program, _is_far(plan)
    result = {}
    for name, buffer in program.buffers.items():
        if program.dynamic_length is not None and name == program.dynamic_length.position:
            result[name] = Outside((SELF, f"->{POSITION}"))
        elif buffer.role is Role.INPUT:
            result[name] = Outside((SELF, f"->inputs[{program.inputs.index(name)}]"))
        elif buffer.role is Role.OUTPUT:
            result[name] = Outside((SELF, f"->outputs[{program.outputs.index(name)}]"))
        elif buffer.memory:
            result[name] = Outside((SELF, f"->{buffer.memory.lower()} + {offsets[constant_symbol(prefix, name)]}"), False)
        elif buffer.role is Role.CONSTANT:
            block, own = far_name(name) if name in plan.fetched else name, constant_symbol(prefix, name)
            result[block] = Outside((SELF, f"->{CONSTANTS} + {offsets[own]}") if is_far else (own,), not is_far)
    return result


def describe_places(plan: Plan) -> dict[str, str]:
    """In which memory each buffer lies, by name, as comments of the emitted C say it."""
    flat = {Role.CONSTANT: "the constants"} if plan.target.is_flat else {}
    place_by_buffer = {}
    for name, buffer in plan.program.buffers.items():
        if plan.program.dynamic_length is not None and name == plan.program.dynamic_length.position:
            place_by_buffer[name] = "the instance"
        elif buffer.role in (Role.INPUT, Role.OUTPUT):
            place_by_buffer[name] = "the caller's array"
        else:
            residence = plan.residences.get(name) or buffer.memory or plan.machine.default_memory
            stored = "the arena" if name in plan.fetched else flat.get(buffer.role, "the arena")
            place_by_buffer[name] = stored if plan.target.is_flat else residence
    return place_by_buffer


def _list_blocks(plan: Plan) -> list[tuple[str, str, int, int, int, int]]:
    """What the host machine model is told of the plan: name (a C string), level, offset, bytes, first and last step.

    What outlives an inference has no last step: another network may come in between, which has more of them.
    """
    placed = sorted(plan.placements, key=lambda p: (p.level, p.offset, p.first))
    end = len(plan.program.calls)
    lasts = {p: LAST if p.first == FOR_EVER and p.last >= end else p.last for p in placed}
    return [(names.c_string("=".join(p.buffers)), p.level, p.offset, p.size, p.first, lasts[p]) for p in placed]


def arena_bytes(plan: Plan, level: str) -> int:
    """What the plan uses of the arena of a memory: its peak without the constants that lie beside it."""
    return plan.memory[level].peak - plan.memory[level].constants


def emit_machine(plan: Plan, arenas: Mapping[str, int], common: SharedConstants, lookup: TemplateLookup) -> dict[str, str | bytes]:
    """The machine's table and the numbers of its memories and transfer engines; none where there are no transfers.

    Args:
        arenas: bytes by memory.
    """
    if plan.target.is_flat:
        return {}
    buffers = plan.program.buffers.values()
    constants = {memory.name: stored_bytes(buffers, memory.name) for memory in plan.target.memories if memory.is_far}
    if plan.machine.default_memory in constants:
        constants[plan.machine.default_memory] += len(common.store.blob)
    values = {"target": plan.target, "arenas": arenas, "cores": plan.machine.cores, "constants": constants}
    return {
        "include/deeploy_machine.h": lookup.get_template("machine.h.mako").render(**values),
        "src/machine.c": lookup.get_template("machine.c.mako").render(**values),
    }
