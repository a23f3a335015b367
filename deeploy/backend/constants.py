"""Constants and descriptors of a network: the same for every kind of machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deeploy.backend.calls import c_float, c_int
from deeploy.graph import names
from deeploy.graph.types import DType
from deeploy.midend.plan import Plan
from deeploy.midend.program import Buffer, Role

ALIGNMENT = 16  # bytes, of every constant in weights.bin
_TYPES = {t: f"DEEPLOY_{t.name}" for t in DType}


@dataclass(frozen=True)
class Constant:
    """One constant as the weights templates see it; ``offset`` is in bytes in the binary file."""

    name: str
    tensor: str
    type: str
    elements: int
    offset: int
    values: str


def constants(prefix: str, buffers: Any, memory: str = "") -> list[Constant]:
    """The constants that lie in a memory for good, or all others, in the order of the program."""
    result = []
    offset = 0
    for buffer in buffers:
        if buffer.role is Role.CONSTANT and buffer.memory == memory:
            name = f"{prefix}_{buffer.name}"
            result.append(Constant(name, names.comment(buffer.tensor), buffer.dtype.c, max(1, buffer.data.size), offset, _values(buffer)))
            offset += -(-buffer.bytes // ALIGNMENT) * ALIGNMENT
    return result


def _values(buffer: Buffer) -> str:
    assert buffer.data is not None
    flat = buffer.data.ravel().tolist() or [0]
    convert = c_float if buffer.dtype.is_float else c_int if buffer.dtype in (DType.INT32, DType.INT64) else _plain
    texts = [convert(value) for value in flat]
    return ",\n".join("    " + ", ".join(texts[i : i + 16]) for i in range(0, len(texts), 16))


def _plain(value: int) -> str:
    return f"{int(value)}u" if value > 2**31 - 1 else str(int(value))


def blob(buffers: Any, memory: str = "") -> bytes:
    """The constants that lie in a memory for good, or all others, as ``constants``: little endian, at multiples of ALIGNMENT bytes."""
    parts = []
    for buffer in buffers:
        if buffer.role is Role.CONSTANT and buffer.memory == memory:
            data = np.ascontiguousarray(buffer.data, buffer.data.dtype.newbyteorder("<")).tobytes()
            parts.append(data + bytes(-len(data) % ALIGNMENT))
    return b"".join(parts)


def context(prefix: str, plan: Plan, description: Mapping[str, Any], version: str) -> dict[str, Any]:
    """What the templates of a network are told on every kind of machine.

    Args:
        prefix: begins the network's names in C.
        description: what is known of its tensors beyond the plan (see ``deeploy.backend.describe``).
    """
    program = plan.program
    return {
        "prefix": prefix,
        "version": version,
        "model": names.comment(str(description["model"])),
        "constants": constants(prefix, program.buffers.values()),
        "inputs": [descriptor(program.buffers[n], d) for n, d in zip(program.inputs, description["inputs"], strict=True)],
        "outputs": [descriptor(program.buffers[n], d) for n, d in zip(program.outputs, description["outputs"], strict=True)],
        "macs": sum(call.geometry.macs() for call in program.calls),
        "growth": program.growth,
    }


def stored_bytes(buffers: Any, memory: str = "") -> int:
    """The length of ``blob``."""
    return sum(-(-b.bytes // ALIGNMENT) * ALIGNMENT for b in buffers if b.role is Role.CONSTANT and b.memory == memory)


def descriptor(buffer: Buffer, description: Mapping[str, Any]) -> dict[str, Any]:
    scale, zero = description.get("scale"), description.get("zero_point")
    return {
        "name": names.string(buffer.tensor),
        "type": _TYPES[buffer.dtype],
        "shape": buffer.shape,
        "bytes": buffer.bytes,
        "scale": c_float(1.0 if scale is None else scale),
        "zero_point": 0 if zero is None else zero,
    }
