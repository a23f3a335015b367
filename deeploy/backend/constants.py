"""Constants and descriptors of networks: the same for every kind of machine.

Equal constants of a project are stored once, with the first network that has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np

from deeploy.documents import Contents, Document
from deeploy.ir import names
from deeploy.ir.interface import c_float, c_floats, c_int
from deeploy.ir.templates import TemplateLookup
from deeploy.ir.types import WHOLE, DType
from deeploy.planning.plan import Plan
from deeploy.planning.planner.co_planning import state_groups
from deeploy.planning.program import Buffer, Program, Role, constant_content

WEIGHTS = "weights.bin"  # the far constants of a project with several networks
MOST_TEXT = 1 << 22  # bytes of the constants of a network that are written as C; more are included as they are
ALIGNMENT = 16  # bytes, of every constant in weights.bin
Buffered: TypeAlias = "bytes | memoryview"
_TYPES = {t: f"DEEPLOY_{t.name}" for t in WHOLE}


def constant_symbol(prefix: str, buffer: str) -> str:
    """The C name of a constant: a name of the model's is never one of the network's own (``PREFIX_run``)."""
    return f"{prefix}_constant_{buffer}"


@dataclass(frozen=True)
class Constant:
    """One constant as the templates see it.

    Attributes:
        stored: its name where it is stored, which is ``name`` with the network that is its ``owner``.
        offset: in bytes, in the binary file of its owner; ``far`` in that of all networks.
    """

    name: str
    stored: str
    owner: str
    tensor: str
    type: str
    elements: int
    offset: int
    far: int
    buffer: Buffer

    @property
    def bytes(self) -> int:
        return self.elements * self.buffer.dtype.bytes

    @property
    def values(self) -> str:
        """The elements of the constant as an initialiser in C, in lines."""
        return _print_values(self.buffer)


def constants_in(prefix: str, buffers: Iterable[Buffer], memory: str) -> list[Constant]:
    """The constants of one network that lie in a memory for good, in the order of its program."""
    result = []
    offset = 0
    for buffer in buffers:
        if buffer.data is not None and buffer.role is Role.CONSTANT and buffer.memory == memory:
            name = constant_symbol(prefix, buffer.name)
            elements, tensor = max(1, buffer.data.size), names.c_comment(buffer.tensor)
            result.append(Constant(name, name, prefix, tensor, buffer.dtype.c, elements, offset, offset, buffer))
            offset += -(-buffer.bytes // ALIGNMENT) * ALIGNMENT
    return result


@dataclass(frozen=True)
class Store:
    """The constants of all networks of a project, without those that lie in a memory for good.

    Attributes:
        constants: by network, in the order of its program.
        blobs: binary files by network: what it owns, little endian, each at a multiple of ALIGNMENT bytes.
    """

    constants: Mapping[str, Sequence[Constant]]
    blobs: Mapping[str, bytes]

    @property
    def blob(self) -> bytes:
        """The constants of all networks, one network after the other."""
        return b"".join(self.blobs.values())

    def owned(self, prefix: str) -> list[Constant]:
        return [k for k in self.constants[prefix] if k.owner == prefix]

    def borrowed(self, prefix: str) -> list[Constant]:
        """Constants of the network ``prefix`` that an earlier network of the project defines."""
        return [k for k in self.constants[prefix] if k.owner != prefix]

    def owners(self, prefix: str) -> list[str]:
        """Prefixes of the networks that define the constants of the network ``prefix``; its own where it has none."""
        return list(dict.fromkeys(k.owner for k in self.constants[prefix])) or [prefix]


def collect_constants(programs: Mapping[str, Program]) -> Store:
    """Which constants the networks of a project hold, by prefix, and their bytes: equal ones once, with the first network that has them."""
    unique_constants: dict[object, Constant] = {}
    constants: dict[str, list[Constant]] = {}
    blobs: dict[str, bytes] = {}
    begin = 0
    for prefix, program in programs.items():
        constants[prefix], parts, at = [], list[Buffered](), 0
        for buffer in program.buffers.values():
            if buffer.role is not Role.CONSTANT or buffer.memory:
                continue
            assert buffer.data is not None
            name, key = constant_symbol(prefix, buffer.name), constant_content(buffer)
            if key not in unique_constants:
                elements = max(1, buffer.data.size)
                tensor = names.c_comment(buffer.tensor)
                unique_constants[key] = Constant(name, name, prefix, tensor, buffer.dtype.c, elements, at, begin + at, buffer)
                parts += _pad_bytes(buffer.data)
                at += sum(map(len, parts[-2:]))
            constants[prefix].append(replace(unique_constants[key], name=name, tensor=names.c_comment(buffer.tensor)))
        blobs[prefix] = b"".join(parts)
        begin += at
    return Store(constants, blobs)


def _print_values(buffer: Buffer) -> str:
    assert buffer.data is not None
    flat = buffer.data.ravel().tolist() or [0]
    if buffer.data.dtype.kind == "f":
        texts = c_floats(flat)
    elif buffer.dtype in (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16):
        texts = list(map(str, flat))
    else:
        texts = list(map(c_int if buffer.dtype in (DType.INT32, DType.INT64) else _print_number, flat))
    return ",\n".join("    " + ", ".join(texts[i : i + 16]) for i in range(0, len(texts), 16))


def _print_number(value: int) -> str:
    return f"{int(value)}u" if value > 2**31 - 1 else str(int(value))


def pack_constants(buffers: Iterable[Buffer], memory: str) -> bytes:
    """The constants that lie in a memory for good, as ``constants``: little endian, at multiples of ALIGNMENT bytes."""
    parts = list[Buffered]()
    for buffer in buffers:
        if buffer.data is not None and buffer.role is Role.CONSTANT and buffer.memory == memory:
            parts += _pad_bytes(buffer.data)
    return b"".join(parts)


def _pad_bytes(data: np.ndarray) -> tuple[Buffered, Buffered]:
    """The bytes of a constant, little endian, and what fills them up."""
    ordered = np.ascontiguousarray(data, data.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
    return ordered.data, bytes(-len(ordered) % ALIGNMENT)


class Addition(Protocol):
    """What another package adds to a network: the template of its header knows it as ``generator``."""

    def files(self, lookup: TemplateLookup) -> Mapping[str, str | bytes]:
        """Further sources of C for the project, by their paths in it."""


# Of plans, descriptions and the first networks with the same states, all by network: what is added to some of them.
Additions = Callable[[Mapping[str, Plan], Mapping[str, Document], Mapping[str, str]], Mapping[str, Addition]]


@dataclass(frozen=True)
class SharedConstants:
    """What the networks of a project have in common.

    Attributes:
        project: begins the C names of what all networks use: the prefix of the first one.
        leads: the first network with the same states, of every network that has states.
        alike: of every network, the plans of those with the same states, itself among them.
        arenas: bytes of the flat arena of every network: those that share states share it.
        generators: the networks that write tokens, with the function that does.
    """

    project: str
    store: Store
    leads: Mapping[str, str]
    isomorphic: Mapping[str, Sequence[Plan]]
    arenas: Mapping[str, int]
    generators: Mapping[str, Addition]


def share_constants(plans: Mapping[str, Plan], descriptions: Mapping[str, Document], add: Additions | None = None) -> SharedConstants:
    """What networks share; ``add`` finds those to which a function is added."""
    leads = state_groups({prefix: plan.program for prefix, plan in plans.items()})
    isomorphic = {p: [plan for q, plan in plans.items() if leads.get(q, q) == leads.get(p, p)] for p in plans}
    arenas = {p: max(plan.memory[plan.target.memories[0].name].peak for plan in same_plans) for p, same_plans in isomorphic.items()}
    stored = collect_constants({prefix: plan.program for prefix, plan in plans.items()})
    return SharedConstants(next(iter(plans)), stored, leads, isomorphic, arenas, add(plans, descriptions, leads) if add is not None else {})


def template_context(prefix: str, plan: Plan, description: Document, version: str, common: SharedConstants) -> Contents:
    """What the templates of a network are told on every kind of machine.

    Args:
        prefix: begins the network's names in C.
        description: what is known of its tensors beyond the plan (see ``deeploy.backend.describe``).
    """
    program = plan.program
    lead, own = common.leads.get(prefix, prefix), common.store.blobs[prefix]
    return {
        "prefix": prefix,
        "project": common.project,
        "version": version,
        "model": names.c_comment(str(description["model"])),
        "digest": description.get("digest", ""),
        "stream": description.get("stream"),
        "constants": common.store.owned(prefix),
        "borrowed": common.store.borrowed(prefix),
        "embedded": len(own) > MOST_TEXT,
        "owners": common.store.owners(prefix),
        "lead": lead,
        "generator": common.generators.get(prefix),
        "sharing": [name for name in common.leads if common.leads[name] == lead and name != prefix],
        **_describe_ports(prefix, program, description),
        "macs": sum(call.geometry.macs() for call in program.calls),
        "dynamic_length": program.dynamic_length,
        "has_messages": any(call.kernel.link is not None for call in program.calls),
    }


def stored_bytes(buffers: Iterable[Buffer], memory: str) -> int:
    """Bytes of all constants that lie in ``memory``, each rounded up to the alignment: the length of ``pack_constants``."""
    return sum(-(-b.bytes // ALIGNMENT) * ALIGNMENT for b in buffers if b.role is Role.CONSTANT and b.memory == memory)


def _describe_ports(prefix: str, program: Program, description: Document) -> Contents:
    """The inputs and outputs, each with a C parameter of its own, which is no name that the function with these parameters mentions."""
    sides, taken = {"inputs": program.inputs, "outputs": program.outputs}, names.Names((f"{prefix}_run", f"{prefix}_run_typed"))
    return {
        side: [
            {**_describe_port(program.buffers[n], d), "parameter": taken.unique(names.parameter_name(program.buffers[n].tensor))}
            for n, d in zip(buffers, description[side], strict=True)
        ]
        for side, buffers in sides.items()
    }


def _describe_port(buffer: Buffer, description: Document) -> Contents:
    scale, zero = description.get("scale"), description.get("zero_point")
    return {
        "name": names.c_string(buffer.tensor),
        "type": _TYPES[buffer.dtype],
        "c": buffer.dtype.c,
        "about": names.c_comment(buffer.tensor),
        "shape": buffer.shape,
        "elements": math.prod(buffer.shape),
        "bytes": buffer.bytes,
        "scale": c_float(1.0 if scale is None else scale),
        "zero_point": 0 if zero is None else zero,
    }
