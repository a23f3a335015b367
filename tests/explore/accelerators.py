"""Accelerators for tests: complete hardware files as data, small enough to reason about."""

from __future__ import annotations

import copy
from typing import Any

from deeploy.explore.hardware import Hardware, parse_hardware

_DATA: dict[str, Any] = {
    "name": "test",
    "pes": 64,
    "widths": {"weight": 8, "input": 8, "output": 8, "partial": 16},
    "registers": {"weight": 1, "input": 1, "output": 1, "pj_per_bit": 0.0, "provenance": "chosen for tests"},
    "energy": {"mac_pj": 0.0, "provenance": "chosen for tests"},
    "memory": [
        {
            "name": name,
            "operands": [name],
            "bandwidth": 1000000,
            "capacity": 1 << 20,
            "read_pj_per_bit": 1.0,
            "write_pj_per_bit": 1.0,
            "provenance": "chosen for tests",
        }
        for name in ("weight", "input", "output")
    ],
}


def data(**bandwidths: float) -> dict[str, Any]:
    """A hardware file with a memory per operand; ``bandwidths`` in bits per cycle."""
    result = copy.deepcopy(_DATA)
    for memory in result["memory"]:
        memory["bandwidth"] = bandwidths.get(memory["name"], memory["bandwidth"])
    return result


def shared(pes: int, bandwidth: float) -> Hardware:
    """One memory for all operands."""
    result = data()
    memory = {**result["memory"][0], "name": "top", "operands": ["weight", "input", "output"], "bandwidth": bandwidth}
    return parse_hardware({**result, "pes": pes, "memory": [memory]}, "shared")


def separate(pes: int = 64, **bandwidths: float) -> Hardware:
    """A memory per operand."""
    return parse_hardware({**data(**bandwidths), "pes": pes}, "separate")
