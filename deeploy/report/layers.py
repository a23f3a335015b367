"""The table of layers: what runs each of them, how it is cut, what it costs, and what holds it back."""

from __future__ import annotations

from deeploy.documents import Document
from deeploy.planning.cost import FORMS
from deeploy.report.blocks import layer_labels, repeated_blocks
from deeploy.report.markup import DASH, name, number, percent, row, scrolled, section, table, tag, text
from deeploy.report.sections import share_class, share_names
from deeploy.report.text import call_instance, of_peak

_HEADS = {
    "#": "position in the schedule",
    "layer": "the node it comes from",
    "operator": "",
    "kernel": "the C that computes it, and how its cores requantise",
    "engine": "what runs it",
    "tiles": "how many parts it is computed in",
    "MAC": "multiply-accumulates",
    "cycles": "from its begin to its end",
    "share": "of the inference, and what it is spent on",
    "MAC/cycle": "",
    "of peak": "share of the most multiply-accumulates that the engine reaches in a cycle",
    "bound by": "what is busiest on its behalf",
    "bytes moved": "on all paths",
}
_NUMBERS = {"#", "tiles", "MAC", "cycles", "MAC/cycle", "of peak", "bytes moved"}


def layers_section(entry: Document) -> str:
    """The section with one row per call."""
    is_timed = entry["cycles"] is not None
    timed = {"cycles", "share", "MAC/cycle", "of peak", "bound by", "bytes moved"}
    heads = {head: about for head, about in _HEADS.items() if is_timed or head not in timed}
    calls = entry["calls"]
    told = zip(layer_labels(calls), repeated_blocks(calls), strict=True)
    rows = [_layer_row(entry, step, call, is_timed, *about) for (step, call), about in zip(enumerate(calls), told, strict=True)]
    shown = table([_table_head(head, about) for head, about in heads.items()], rows, f"layers-{entry['name']}", "layers wide")
    why = " Click a row, or press Enter on it, to see why it is so; arrow keys move." if is_timed else ""
    legend = "; ".join(f"{word}: {meaning}" for word, meaning in entry.get("legend", {}).items())
    note = f"Click a heading to sort.{why}{f' In names of kernels, {legend}.' if legend else ''}"
    return section("Layers", _table_tools(entry), scrolled(shown), note=note)


def _table_tools(entry: Document) -> str:
    """A filter of the rows, and what they are grouped by; blocks where a network repeats some."""
    groups = [("", "all layers"), ("op", "by operator"), ("engine", "by engine"), ("kernel", "by kernel")]
    groups += [("block", "repeated blocks folded")] if any(block is not None for block in repeated_blocks(entry["calls"])) else []
    options = [tag("option", words, value=value) for value, words in groups]
    filter_ = tag("label", "Filter ", '<input type="search" placeholder="name, operator, kernel">')
    return tag("div", filter_, tag("label", "Group ", tag("select", *options)), tag("output", ""), class_="tools rows")


def _table_head(head: str, about: str) -> str:
    return tag("th", tag("button", text(head), type="button"), title=about or None, class_="n" if head in _NUMBERS else None)


def _layer_row(entry: Document, step: int, call: Document, is_timed: bool, label: str, block: int | None) -> str:
    loops = ", ".join(f"{dim} {trips} x {tile}" for dim, trips, tile in call["loops"])
    about = f"{loops or 'one tile'}{'; two buffers' if call['is_double'] else ''}"
    tiles = tag("td", number(call["tiles"]), tag("small", " ⇄") if call["is_double"] else "", class_="n", title=about, data_v=call["tiles"])
    cells = [
        tag("td", str(step), class_="n"),
        tag("td", name(label, 40), title=name(call["node"], 200)),
        tag("td", name(call["op"], 24), tag("small", " fallback") if call.get("generator") else ""),
        tag("td", text(call_instance(call)), title=_describe_kernel(call), class_="kernel"),
        tag("td", text(call["engine"])),
        tiles,
        tag("td", number(call["macs"]), class_="n"),
    ]
    if is_timed:
        cells += _timed_cells(entry, call)
    groups = {"data_op": call["op"], "data_engine": call["engine"], "data_kernel": call_instance(call), "data_block": block}
    return row(cells, data_step=step, data_cycles=call["cycles"], **groups)


def _describe_kernel(call: Document) -> str:
    """Where the C of a call comes from, and how it requantises, in words."""
    form = FORMS.get(call["form"], "")
    made = f"C from {call['generator']}" if call.get("generator") else f"kernels/{call['source']}"
    return f"{made}{f'; requantises {form}' if form else ''}"


def _timed_cells(entry: Document, call: Document) -> list[str]:
    cycles = call["cycles"]
    moved = sum(t["in"] + t["out"] for t in call["traffic"].values())
    rate = call["macs"] / cycles if cycles else 0.0
    waits = {path: sum(reasons.values()) for path, reasons in call["stalls"].items()}
    parts = {"compute": call["compute"], "overhead": call["overhead"], "issue": call["issue"], **waits}
    words = share_names(entry)
    widest = max(c["cycles"] for c in entry["calls"]) or 1
    bar = [
        tag("i", class_=share_class(key), style=f"width:{100 * count / widest:.1f}%", title=f"{words[key]}: {number(count)}")
        for key, count in parts.items()
        if count
    ]
    return [
        tag("td", number(cycles), class_="n"),
        tag("td", tag("div", *bar, class_="mini"), tag("small", percent(cycles, entry["cycles"])), class_="share", data_v=cycles),
        tag("td", number(rate, 2) if call["macs"] else DASH, class_="n"),
        tag("td", of_peak(entry, call).replace("-", DASH), class_="n"),
        tag("td", tag("span", text(call["bound"]), class_=f"bound {share_class(call['bound'])}")),
        tag("td", number(moved), class_="n"),
    ]
