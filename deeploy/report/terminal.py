"""What ``deeploy report`` prints of a compiled network: cycles, levels, paths, a picture of every memory, layers."""

from __future__ import annotations

from collections.abc import Sequence

from deeploy.documents import Document
from deeploy.errors import shorten
from deeploy.report import advice
from deeploy.report.fusion import group_lines
from deeploy.report.text import (
    align_table,
    call_instance,
    format_number,
    headline_text,
    of_peak,
    size_lines,
    sizes_of_layers,
    stream_lines,
    tell_second,
    time_at,
)

_WIDTH = 64  # characters of the memory picture
_MOST_LAYERS = 40  # that are all listed; of more only the slowest
_SLOWEST = 20
_NAMED = 12  # buffers of a memory picture that are named


def report_network(entry: Document, advised: Sequence[Document] | None = None, verbose: bool = True) -> str:
    """One network, of which ``entry`` is the part of ``deploy.json`` and ``advised`` what would help.

    Without ``verbose`` a line per thing: time, advice, memories, layers. With it also transfers, bounds, pictures of memories, and
    groups of layers that are computed together.
    """
    macs = sum(call["macs"] for call in entry["calls"])
    lines = [headline_text(entry)]
    lacking = [f"  energy is not known of: {', '.join(entry['energy_missing'])}"] if entry.get("energy_missing") else []
    if entry["cycles"] is not None:
        lines += [*_time_lines(entry, macs, verbose), *lacking, "", *advice.advice_lines(advised, verbose)]
    elif verbose:
        lines += lacking
    lines += [*size_lines(entry), *stream_lines(entry), "", _memory_table(entry), ""]
    if verbose:
        lines += [*([_path_table(entry), ""] if entry["cycles"] is not None and entry["traffic"] else []), *_draw_arenas(entry), ""]
    lines += [*_layer_rows(entry), *_legend_lines(entry), *(group_lines(entry) if verbose else []), ""]
    if verbose and (measured := sizes_of_layers(entry)):
        shown = [(shorten(layer, 40), *figures) for layer, *figures in measured[:_MOST_LAYERS]]
        more = f"of {len(measured)} layers; deploy.json lists all" if len(shown) < len(measured) else ""
        lines += [align_table(("layer", "code, bytes", "constants", "arena", "stack"), shown), *([more] if more else []), ""]
    lines += [_arrangement_table(entry), ""] if verbose and "arrangements" in entry else []
    for kind in ("inputs", "outputs"):
        lines += [f"{kind[:-1]} {shorten(p['name'])}: {p['type']}{p['shape']}" for p in entry[kind]]
    return "\n".join([*lines, *([] if verbose else ["", "--verbose shows transfers, memories over time and more; report.html shows all."])])


def _format_share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _time_lines(entry: Document, macs: int, verbose: bool) -> list[str]:
    """Cycles, what they are spent on, and how far they are from proven limits."""
    cycles, shares = entry["cycles"], entry["shares"]
    words = {"compute": "computing", "overhead": "forks and set-up", "issue": "starting transfers"}
    spent = ", ".join(f"{words.get(key, f'waiting for {key}')} {_format_share(count, cycles)}" for key, count in shares.items() if count)
    rate = f"{macs / cycles:.2f} MAC/cycle" if cycles else ""
    joules = "" if entry["energy_uj"] is None else f", {entry['energy_uj']:.1f} uJ"
    lines = [f"{format_number(cycles)} cycles, {time_at(entry)}, {rate}{joules}", f"  {spent}"]
    if (second := (entry.get("stream") or {}).get("second")) is not None:
        lines.append(f"  of the stream: {tell_second(second)}")
    engines = entry.get("engines")
    if engines is not None and engines["hidden"] is not None:
        together = (
            f"overlap for {format_number(engines['both'])} cycles, {100 * engines['hidden']:.1f} % of the shorter one"
            if engines["both"]
            else "do not overlap"
        )
        each = (
            f" (accelerators work for {format_number(engines['accelerators'])}, cores compute for {format_number(engines['cores'])})"
            if verbose
            else ""
        )
        lines.append(f"  accelerators and cores {together}{each}")
    if (fixed := entry.get("fixed")) is not None and fixed["cycles_free"] is not None:
        named = ", ".join(f"{shorten(fix['of'], 40)}.{fix['what']}={shorten(fix['value'], 40)}" for fix in fixed["fixes"])
        lines.append(f"  fixed by you: {named}; {format_number(fixed['cycles_free'])} cycles where nothing is fixed")
    prediction = entry["prediction"]
    if prediction is not None:
        planned, bound, greedy = prediction["cycles"], prediction["bound"], prediction["greedy"]
        gap = _format_share(planned - bound, planned)
        count = f"the planner counts {format_number(planned)} cycles for this plan, and proved that no plan with these kernels"
        lines.append(f"  {count} takes fewer than {format_number(bound)} (gap {gap})")
        if verbose and entry["machine"] is not None:
            gain = f"{format_number(greedy)}, gain {_format_share(greedy - planned, greedy)}" if greedy is not None else "does not fit"
            lines.append(f"  greedy plan: {gain}")
    least = {**entry.get("bounds", {}).get("compute", {}), **entry.get("bounds", {}).get("traffic", {})}
    if verbose and any(least.values()):
        name = max(least, key=lambda one: least[one])
        lines.append(
            f"  {name} alone needs at least {format_number(least[name])} cycles for these layers ({_format_share(least[name], cycles)})"
        )
    return lines


def _memory_table(entry: Document) -> str:
    """The memories, their peaks and what bounds them."""
    rows = []
    for name, use in entry["memory"].items():
        share = _format_share(use["peak"], use["capacity"]) if use["capacity"] else "-"
        figures = (
            format_number(use["peak"]),
            format_number(use["lower_bound"]),
            format_number(use["capacity"]),
            share,
            format_number(use["constants"]),
            format_number(use["io"]),
        )
        rows.append((name, *figures))
    return align_table(("memory, bytes", "peak", "lower bound", "capacity", "used", "constants", "inputs and outputs"), rows)


def _arrangement_table(entry: Document) -> str:
    """What other limits of memory would give."""
    rows = [(format_number(one["bytes"]), format_number(one["calls"]), format_number(one["moved"])) for one in entry["arrangements"]]
    return align_table(("memory of layers, bytes", "calls added", "bytes moved"), rows)


def _path_table(entry: Document) -> str:
    """What every transfer path moves, and what that costs."""
    rows = []
    for path, moved in entry["traffic"].items():
        busy, exposed = _format_share(moved["busy"], entry["cycles"]), _format_share(entry["shares"][path], entry["cycles"])
        counts = (format_number(moved["in"]), format_number(moved["out"]), format_number(moved["transfers"]))
        rows.append((path, *counts, busy, exposed, f"{entry['energy'][path]:.2f}"))
    rows.append(
        ("cores", "-", "-", "-", _format_share(entry["shares"]["compute"], entry["cycles"]), "-", f"{entry['energy']['cores']:.2f}")
    )
    others = [name for name in entry["energy"] if name != "cores" and name not in entry["traffic"]]
    rows += [(name, "-", "-", "-", "-", "-", f"{entry['energy'][name]:.2f}") for name in others]
    return align_table(("path", "bytes in", "bytes out", "transfers", "busy", "exposed", "uJ"), rows)


def _layer_rows(entry: Document) -> list[str]:
    """A row per layer, or for the slowest of many."""
    calls: Sequence[Document] = entry["calls"]
    if entry["cycles"] is None:
        rows = [(shorten(c["node"], 40), _describe_operator(c), call_instance(c), c["engine"], format_number(c["macs"])) for c in calls]
        return [align_table(("layer", "operator", "kernel", "engine", "MAC"), rows)]
    shown = calls if len(calls) <= _MOST_LAYERS else sorted(calls, key=lambda c: -int(c["cycles"]))[:_SLOWEST]
    heads = ("layer", "operator", "kernel", "engine", "tiles", "MAC", "cycles", "share", "MAC/cycle", "of peak", "bound by")
    lines = [align_table(heads, [_layer_cells(entry, call) for call in shown])]
    if len(shown) < len(calls):
        rest = sum(c["cycles"] for c in calls) - sum(c["cycles"] for c in shown)
        lines.append(f"and {len(calls) - len(shown)} faster layers with {format_number(rest)} cycles; report.html lists all")
    return lines


def _legend_lines(entry: Document) -> list[str]:
    """What words in the names of the kernels above mean."""
    return [f"  {word}: {meaning}" for word, meaning in entry.get("legend", {}).items()]


def _describe_operator(call: Document) -> str:
    """A call's operator, and whether its C was generated."""
    return f"{shorten(call['op'], 20)}{' (fallback)' if call.get('generator') else ''}"


def _layer_cells(entry: Document, call: Document) -> tuple[str, ...]:
    rate = f"{call['macs'] / call['cycles']:.2f}" if call["macs"] and call["cycles"] else "-"
    tiles = f"{format_number(call['tiles'])}{' x2' if call['is_double'] else '   '}"
    share = _format_share(call["cycles"], entry["cycles"])
    names = (shorten(call["node"], 40), _describe_operator(call), call_instance(call), call["engine"])
    return (*names, tiles, format_number(call["macs"]), format_number(call["cycles"]), share, rate, of_peak(entry, call), call["bound"])


def _draw_arenas(entry: Document) -> list[str]:
    """The arenas over time: a column per step, a row per slice of addresses, a letter per buffer."""
    lines: list[str] = []
    steps = len(entry["calls"])
    for level in entry["memory"]:
        blocks = [b for b in entry["buffers"] if b["level"] == level and b["bytes"]]
        height = max((b["offset"] + b["bytes"] for b in blocks), default=0)
        if not blocks or not steps:
            continue
        columns, rows = min(steps, _WIDTH), min(12, len(blocks) + 2)
        grid = [["."] * columns for _ in range(rows)]
        for index, block in enumerate(blocks):
            letter = _buffer_letter(index)
            first_row = block["offset"] * rows // height
            last_row = max(first_row, ((block["offset"] + block["bytes"]) * rows - 1) // height)
            first, last = max(0, block["first"]), min(steps - 1, block["last"])
            for row in range(first_row, min(rows, last_row + 1)):
                for column in range(first * columns // steps, last * columns // steps + 1):
                    grid[row][column] = letter
        lines.append(f"{level}, addresses downwards (0 to {format_number(height)}), steps to the right:")
        lines += ["  " + "".join(row) for row in grid]
        lines += _letter_lines(blocks)
    return lines


def _buffer_letter(index: int) -> str:
    return chr(ord("A") + index % 26) if index % 52 < 26 else chr(ord("a") + index % 26)


def _letter_lines(blocks: Sequence[Document]) -> list[str]:
    """What the letters of a picture mean: the largest buffers, in the order of their letters."""
    largest = sorted(sorted(range(len(blocks)), key=lambda index: -blocks[index]["bytes"])[:_NAMED])
    cells = [
        f"{_buffer_letter(index)} {shorten(blocks[index]['name'].split('=')[0], 34)} {format_number(blocks[index]['bytes'])}"
        for index in largest
    ]
    more = len(blocks) - len(largest)
    width = max(map(len, cells))
    rows = ["   ".join(cell.ljust(width) for cell in cells[at : at + 2]).rstrip() for at in range(0, len(cells), 2)]
    return [f"    {row}" for row in rows] + ([f"    and {more} smaller ones"] if more else [])
