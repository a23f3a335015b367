"""What ``compile``, ``report``, ``inspect`` and ``targets`` print."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deeploy.documents import Contents, Document
from deeploy.errors import quote_words, shorten

if TYPE_CHECKING:
    from deeploy.ir.nodes import Tensor
    from deeploy.ir.target import Target
    from deeploy.ir.values import Graph

_FIGURE = re.compile(r"-|infinite|none|-?[\d ]+(\.\d+)?( ?%| dB)?")


def align_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows in aligned columns; numbers to the right."""
    cells = [[str(c) for c in row] for row in rows]
    widths = [max(len(h), *(len(r[i]) for r in cells)) if cells else len(h) for i, h in enumerate(head)]
    right = [all(_FIGURE.fullmatch(r[i]) for r in cells) for i in range(len(head))]
    lines = []
    for row in ([*head], *cells):
        lines.append("  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip())
    return "\n".join(lines)


def format_number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}".replace(",", " ")


def clock_mhz(entry: Document) -> float:
    """The clock that makes time of a network's cycles: a system's may be another than that of one chip."""
    machine = entry["machine"]
    return float(machine["mhz"]) if machine is not None else round(entry["cycles"] / (entry["microseconds"] or 1.0), 1)


def time_at(entry: Document) -> str:
    """The time of an inference, the clock that makes it of cycles, and whether these are an estimate."""
    estimate = ", an estimate from instructions: no machine was measured" if entry.get("is_estimate") else ""
    return f"{entry['microseconds'] / 1000:.3f} ms at {clock_mhz(entry):g} MHz{estimate}"


def tell_second(second: Document) -> str:
    """What a second of signal takes."""
    energy = "" if second["energy_uj"] is None else f", {second['energy_uj']:.1f} uJ for each second of signal"
    return f"{second['mhz']:.2f} MHz, a duty cycle of {second['duty_cycle']:.1%}{energy}"


def call_instance(call: Document) -> str:
    """The kernel of a call, and the form in which cores requantise in it."""
    return f"{call['kernel']} {call['form']}".rstrip()


def of_peak(entry: Document, call: Document) -> str:
    """The share of what its engine could multiply and accumulate at most that a call reaches."""
    peak = entry["machine"]["peaks"].get(call["engine"]) if entry["machine"] is not None else None
    return f"{100 * call['macs'] / call['cycles'] / peak:.1f} %" if peak and call["macs"] and call["cycles"] else "-"


def headline_text(entry: Document) -> str:
    """A network, its target, and how much it computes."""
    layers = len(entry["calls"])
    macs = format_number(sum(call["macs"] for call in entry["calls"]))
    return f"{shorten(entry['model'])} for {entry['target']}: {layers} layer{'s' * (layers != 1)}, {macs} MAC"


def summarise_project(manifest: Document, folder: Path) -> str:
    """What ``deeploy compile`` prints of a project."""
    lines = []
    for entry in manifest.get("networks") or [manifest]:
        lines.append(headline_text(entry))
        if entry["cycles"] is not None:
            lines.append(f"  {format_number(entry['cycles'])} cycles, {time_at(entry)}")
        generated = sorted({call["op"] for call in entry["calls"] if call.get("generator")})
        if generated:
            lines.append(f"  by the fallback: {', '.join(shorten(op, 40) for op in generated)}")
        for name, use in entry["memory"].items():
            lines.append(f"  {name}: {_format_memory(use)}")
        lines += requantised_lines(entry)
    return "\n".join([*lines, *(f"  {line}" for line in size_lines(manifest)), f"written to {folder}"])


def size_lines(manifest: Document) -> list[str]:
    """What the program takes of flash and RAM, where a cross compiler told."""
    sizes = manifest.get("sizes")
    if sizes is None:
        return []
    limits = {name: f" of {format_number(most)}" for name, most in sizes["limits"].items()}
    parts = ("flash", "code", "constants", "ram", "arena", "io", "static", "stack")
    flash, code, constants, ram, arena, io, static, stack = (format_number(sizes[name]) for name in parts)
    states = f" with {format_number(sizes['states'])} of states" if sizes["states"] else ""
    of_flash, of_ram, of_stack = (limits.get(name, "") for name in ("flash", "ram", "stack"))
    return [
        f"flash: {flash} bytes{of_flash}, code {code}, constants {constants} ({sizes['compiler']})",
        f"RAM: {ram} bytes{of_ram}, arena {arena}{states}, inputs and outputs {io}, variables {static}, stack {stack}{of_stack}",
    ]


def stream_lines(entry: Document) -> list[str]:
    """How a network streams: hop, states, products, and of outputs and layers when they are new; nothing of one that does not stream."""
    stream = entry.get("stream")
    if stream is None:
        return []
    states = sum(state["bytes"] for state in entry.get("states", []))
    counts = Counter(call.get("period", 1) for call in entry["calls"] if "first" not in call)
    first = sum("first" in call for call in entry["calls"])
    turns = [f"{counts[period]} {_name_turn(period)}" for period in sorted(counts)]
    layers = ", ".join([*turns, *([f"{first} at the beginning of a sequence alone"] if first else [])])
    mean = "" if stream["cycles"] is None or len(counts) < 2 else f"; {format_number(stream['cycles'])} cycles in the mean"
    products, least, window = (format_number(stream[name]) for name in ("products", "least_products", "window_products"))
    outputs = []
    for output in stream["outputs"]:
        new = "of a window" if output["axis"] is None else f"{output['columns']} columns"
        outputs.append(f"  {shorten(output['name'])}: {new} {_name_turn(output['calls'])}, {output['delay']} columns of the input late")
    return [
        f"stream: {stream['hop']} new columns of {shorten(stream['input'])} in an inference, for a window of {stream['window']}",
        f"  states {format_number(states)} bytes; products {products} of at least {least}, {window} of the window",
        f"  layers: {layers}{mean}",
        *outputs,
        *(
            f"  {shorten(band['node'])} sees {band['before']} columns before, and {band['after']} behind"
            for band in stream.get("bands", [])
        ),
    ]


def _name_turn(period: int) -> str:
    return "in every inference" if period == 1 else f"in one of {period} inferences"


def sizes_of_layers(entry: Document) -> list[tuple[str, ...]]:
    """A row of bytes per layer: code, constants, arena and stack; nothing where no cross compiler told."""
    layers = entry.get("sizes", {}).get("layers", [])
    names = ("code", "constants", "arena", "stack")
    return [(one["name"], *(format_number(one[name]) for name in names)) for one in layers if one["network"] == entry["name"]]


def requantised_lines(entry: Document) -> list[str]:
    """What ``--requantise engine`` costs in equality, layer by layer, and gains in cycles; nothing where all layers are exact."""
    figures = entry.get("requantised")
    if figures is None:
        return []
    layers, cycles, lines = figures["layers"], entry["cycles"], list[str]()
    names = {call["node"]: call["name"] for call in entry["calls"]}
    by = " and ".join(dict.fromkeys(layer["engine"] for layer in layers))
    head = f"  requantised by {by}, within one step: {len(layers)} layers" if layers else "  no layer is requantised otherwise than exactly"
    gain = (
        f"; {format_number(cycles)} cycles predicted, {format_number(figures['cycles'])} exactly"
        if None not in (cycles, figures["cycles"])
        else ""
    )
    if layers:
        heads = ("layer", "sums that differ", "of those not clipped", "outputs that differ")
        rows = [(shorten(names.get(layer["node"], layer["node"]), 40), *differing_shares(layer)) for layer in layers]
        lines = [f"    {line}" for line in align_table(heads, rows).splitlines()]
    exact = ", ".join(shorten(names.get(node, node), 40) for node in figures["exact"])
    return [head + gain, *lines, *([f"  exact, as no constants of an engine keep one step: {exact}"] if exact else [])]


def differing_shares(layer: Document) -> tuple[str, str, str]:
    """The shares of a layer that differ: of the sums that can occur, of those that are not clipped, and of the outputs measured."""
    inside = layer["differ"] / layer["inside"] if layer["inside"] else 0.0
    measured = "-" if layer["measured"] is None else f"{layer['measured']:.3%}"
    return f"{layer['differ'] / layer['sums']:.3%}", f"{inside:.3%}", measured


def _format_memory(use: Document) -> str:
    capacity = f" of {format_number(use['capacity'])}" if use["capacity"] else ""
    return (
        f"peak {format_number(use['peak'])} bytes{capacity} (lower bound {format_number(use['lower_bound'])}), "
        f"constants {format_number(use['constants'])}, inputs and outputs {format_number(use['io'])}"
    )


def counted_cycles(totals: Sequence[int], layers: Sequence[tuple[str, int]]) -> list[str]:
    """Cycles that a simulator counted: of every layer of the first sample, and of all of it."""
    rows = [(shorten(name, 40), format_number(count), f"{count / totals[0]:.1%}") for name, count in layers]
    return [align_table(("layer", "cycles", "share"), rows), f"{format_number(totals[0])} cycles"]


def graph_contents(graph: Graph) -> Contents:
    """What a normalised graph holds, for ``inspect``."""

    def port(tensor: Tensor) -> Contents:
        return {"name": tensor.name, "type": tensor.dtype.numpy.name, "shape": list(tensor.shape)}

    constants = [tensor.data for tensor in graph.readers if tensor.data is not None]
    operators = Counter(f"{node.domain}:{node.op}" if node.domain else node.op for node in graph.nodes)
    return {
        "opset": graph.opset,
        "nodes": len(graph.nodes),
        "operators": dict(sorted(operators.items())),
        "inputs": [port(t) for t in graph.inputs],
        "outputs": [port(t) for t in graph.outputs],
        "constants": len(constants),
        "constant_bytes": sum(values.nbytes for values in constants),
    }


def describe_model(entry: Document) -> str:
    """``graph_contents`` for people."""
    state = "as the file has them" if entry.get("flags") else "after folding"
    lines = [
        f"opset {entry['opset']}, {entry['nodes']} nodes {state}, "
        f"{entry['constants']} constants ({format_number(entry['constant_bytes'])} bytes)"
    ]
    for kind in ("inputs", "outputs"):
        lines += [f"{kind[:-1]} {shorten(p['name'])}: {p['type']}{p['shape']}" for p in entry[kind]]
    lines += ["", align_table(("operator", "nodes"), list(entry["operators"].items()))]
    if entry.get("integers"):
        lines += ["", "floats that hold integers only: compiled as integers, unless a sample or --dialect standard says otherwise"]
    if entry.get("flags"):
        lines += ["", f"dimensions without an extent; compile with: {quote_words(entry['flags'])}"]
    return "\n".join(lines)


def target_contents(target: Target, detailed: bool) -> Contents:
    """What a target offers, for ``targets``."""
    entry: Contents = {"name": target.name, "summary": target.summary}
    if detailed:
        entry["serves"] = list(target.serves)
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
            if target.device is None  # of a target without code they only say what layers compute
        ]
    return entry


def describe_target(entry: Document) -> str:
    """``target_contents`` for people."""
    lines = [f"{entry['name']}: {entry['summary']}"]
    if entry.get("serves"):
        lines.append(f"  for: {', '.join(entry['serves'])}")
    for memory in entry.get("memories", []):
        lines.append(f"  memory {memory['name']}: {format_number(memory['capacity'])} bytes, alignment {memory['alignment']}")
    if "passes" in entry:
        lines.append(f"  passes: {', '.join(entry['passes'])}")
        rows = []
        for kernel in entry["kernels"]:
            types = "; ".join(f"{name} {' '.join(type_names)}" for name, type_names in kernel["types"].items())
            rows.append((kernel["operator"], kernel["name"], kernel["engine"], types, ", ".join(kernel["epilogues"])))
        lines += ["", align_table(("operator", "kernel", "engine", "types", "epilogues"), rows)] if rows else []
    return "\n".join(lines)
