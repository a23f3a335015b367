"""What ``compile``, ``report``, ``inspect`` and ``targets`` print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import shorten
from deeploy.graph.target import Target

_WIDTH = 64  # characters of the memory picture


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows in aligned columns; numbers to the right."""
    cells = [[str(c) for c in row] for row in rows]
    widths = [max(len(h), *(len(r[i]) for r in cells)) if cells else len(h) for i, h in enumerate(head)]
    right = [all(r[i].replace(" ", "").lstrip("-").isdigit() or r[i] == "-" for r in cells) for i in range(len(head))]
    lines = []
    for row in ([*head], *cells):
        lines.append("  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip())
    return "\n".join(lines)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}".replace(",", " ")


def summary(manifest: Mapping[str, Any], folder: Path) -> str:
    """A few lines after a compilation."""
    lines = []
    for entry in manifest.get("networks") or [manifest]:
        macs = sum(call["macs"] for call in entry["calls"])
        lines.append(f"{entry['model']} for {entry['target']}: {len(entry['calls'])} layers, {_number(macs)} MAC")
        for name, use in entry["memory"].items():
            lines.append(f"  {name}: {_memory(use)}")
    return "\n".join([*lines, f"written to {folder}"])


def _memory(use: Mapping[str, Any]) -> str:
    capacity = f" of {_number(use['capacity'])}" if use["capacity"] else ""
    return (
        f"peak {_number(use['peak'])} bytes{capacity} (lower bound {_number(use['lower_bound'])}), "
        f"constants {_number(use['constants'])}, inputs and outputs {_number(use['io'])}"
    )


def cycles(totals: Sequence[int], layers: Sequence[tuple[str, int]]) -> list[str]:
    """Cycles that a simulator counted: of every layer of the first sample, and of all of it."""
    rows = [(shorten(name, 40), _number(count), f"{count / totals[0]:.1%}") for name, count in layers]
    return [_table(("layer", "cycles", "share"), rows), f"{_number(totals[0])} cycles"]


def report(entry: Mapping[str, Any]) -> str:
    """Memory, layers and buffers of one network."""
    macs = sum(call["macs"] for call in entry["calls"])
    lines = [f"{entry['model']} for {entry['target']}: {len(entry['calls'])} layers, {_number(macs)} MAC", ""]
    lines += [f"{name}: {_memory(use)}" for name, use in entry["memory"].items()]
    lines += ["", *_picture(entry), ""]
    rows = [(shorten(c["node"], 40), shorten(c["op"], 20), c["kernel"], c["engine"], _number(c["macs"])) for c in entry["calls"]]
    lines.append(_table(("layer", "operator", "kernel", "engine", "MAC"), rows))
    lines.append("")
    for kind in ("inputs", "outputs"):
        lines += [f"{kind[:-1]} {shorten(p['name'])}: {p['type']}{p['shape']}" for p in entry[kind]]
    return "\n".join(lines)


def _picture(entry: Mapping[str, Any]) -> list[str]:
    """The arena over time: a column per step, a row per slice of addresses, a letter per buffer."""
    lines: list[str] = []
    steps = len(entry["calls"])
    for level, use in entry["memory"].items():
        blocks = [b for b in entry["buffers"] if b["level"] == level and b["bytes"]]
        if not blocks or not use["peak"]:
            continue
        columns, rows = min(steps, _WIDTH), min(12, len(blocks) + 2)
        grid = [["."] * columns for _ in range(rows)]
        for index, block in enumerate(blocks):
            letter = chr(ord("A") + index % 26) if index % 52 < 26 else chr(ord("a") + index % 26)
            first_row = block["offset"] * rows // use["peak"]
            last_row = max(first_row, ((block["offset"] + block["bytes"]) * rows - 1) // use["peak"])
            for row in range(first_row, min(rows, last_row + 1)):
                for column in range(block["first"] * columns // steps, block["last"] * columns // steps + 1):
                    grid[row][column] = letter
        lines.append(f"{level}, addresses downwards (0 to {_number(use['peak'])}), steps to the right:")
        lines += ["  " + "".join(row) for row in grid]
    return lines


def contents(graph: gs.Graph) -> dict[str, Any]:
    """What a normalised graph holds, for ``inspect``."""

    def port(tensor: gs.Tensor) -> dict[str, Any]:
        return {"name": tensor.name, "type": np.dtype(tensor.dtype).name, "shape": [int(n) for n in tensor.shape]}

    constants = {id(t): t for node in graph.nodes for t in node.inputs if isinstance(t, gs.Constant)}
    operators = Counter(f"{node.domain}:{node.op}" if node.domain else node.op for node in graph.nodes)
    return {
        "opset": graph.opset,
        "nodes": len(graph.nodes),
        "operators": dict(sorted(operators.items())),
        "inputs": [port(t) for t in graph.inputs],
        "outputs": [port(t) for t in graph.outputs],
        "constants": len(constants),
        "constant_bytes": sum(int(t.values.nbytes) for t in constants.values()),
    }


def describe_model(entry: Mapping[str, Any]) -> str:
    """``contents`` for people."""
    lines = [
        f"opset {entry['opset']}, {entry['nodes']} nodes after folding,"
        f" {entry['constants']} constants ({_number(entry['constant_bytes'])} bytes)"
    ]
    for kind in ("inputs", "outputs"):
        lines += [f"{kind[:-1]} {shorten(p['name'])}: {p['type']}{p['shape']}" for p in entry[kind]]
    lines += ["", _table(("operator", "nodes"), list(entry["operators"].items()))]
    return "\n".join(lines)


def target_contents(target: Target, detailed: bool) -> dict[str, Any]:
    """What a target offers, for ``targets``."""
    entry: dict[str, Any] = {"name": target.name, "summary": target.summary}
    if detailed:
        entry["memories"] = [{"name": m.name, "capacity": m.capacity, "alignment": m.alignment} for m in target.memories]
        entry["passes"] = [p.name for p in target.passes]
        entry["kernels"] = [
            {
                "name": k.name,
                "operator": k.op,
                "engine": k.engine,
                "types": {operand: sorted(t.value for t in types) for operand, types in k.types.items()},
                "epilogues": [" + ".join(stages) or "none" for stages in k.epilogues],
            }
            for k in target.kernels
        ]
    return entry


def describe_target(entry: Mapping[str, Any]) -> str:
    """``target_contents`` for people."""
    lines = [f"{entry['name']}: {entry['summary']}"]
    for memory in entry.get("memories", []):
        lines.append(f"  memory {memory['name']}: {_number(memory['capacity'])} bytes, alignment {memory['alignment']}")
    if "passes" in entry:
        lines.append(f"  passes: {', '.join(entry['passes'])}")
        rows = []
        for kernel in entry["kernels"]:
            types = "; ".join(f"{name} {' '.join(found)}" for name, found in kernel["types"].items())
            rows.append((kernel["operator"], kernel["name"], kernel["engine"], types, ", ".join(kernel["epilogues"])))
        lines += ["", _table(("operator", "kernel", "engine", "types", "epilogues"), rows)]
    return "\n".join(lines)
