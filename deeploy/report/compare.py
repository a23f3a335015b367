"""Two projects beside each other: what changed, and why: in a terminal, for scripts, and as a page."""

from __future__ import annotations

from collections.abc import Sequence

from deeploy.documents import Contents, Document
from deeploy.errors import UsageError, shorten
from deeploy.report import markup
from deeploy.report.markup import DASH, MINUS, figures, name, row, scrolled, section, tag, text
from deeploy.report.page import POLICY, STYLE
from deeploy.report.text import align_table, call_instance
from deeploy.report.text import format_number as plain

_MOST = 20  # layers that a terminal lists


def compare_entries(before: Document, after: Document) -> Contents:
    """What differs between the entries of two networks in ``deploy.json``.

    Layers are the same where the names of their nodes are, and their operators; of several such, in their order.

    Raises:
        UsageError: an entry is of several chips.
    """
    for entry in (before, after):
        if "chips" in entry:
            raise UsageError(f"{shorten(entry['model'])} is cut over chips, which are not compared", "Name one with --network chip0.")
    comparison = {
        "before": _entry_head(before),
        "after": _entry_head(after),
        "figures": _compare_totals(before, after),
        "options": _compare_options(before, after),
    }
    return {**comparison, "layers": sorted(_compare_layers(before, after), key=lambda one: -abs(one["change"] or 0))}


def _entry_head(entry: Document) -> Contents:
    return {"model": entry["model"], "target": entry["target"], "layers": len(entry["calls"])}


def _compare_totals(before: Document, after: Document) -> list[Contents]:
    """Cycles, energy and memory of both."""
    rows = [("cycles", before["cycles"], after["cycles"]), ("energy, uJ", before["energy_uj"], after["energy_uj"])]
    for level in dict.fromkeys((*before["memory"], *after["memory"])):
        peaks = [entry["memory"].get(level, {}).get("peak") for entry in (before, after)]
        rows += [(f"peak of {level}, bytes", *peaks)] if any(peaks) else []
    for path in dict.fromkeys((*before["bytes"], *after["bytes"])):
        rows.append((f"moved over {path}, bytes", before["bytes"].get(path), after["bytes"].get(path)))
    return [{"name": title, "before": one, "after": other} for title, one, other in rows if one is not None or other is not None]


def _compare_options(before: Document, after: Document) -> list[Contents]:
    """What the two were compiled with, where that differs."""
    rows = []
    for key in ("cores", "engines", "buffering", "default_memory", "mhz"):
        one, other = ((entry["machine"] or {}).get(key) for entry in (before, after))
        rows += [{"name": key, "before": one, "after": other}] if one != other else []
    for level in dict.fromkeys((*before["memory"], *after["memory"])):
        one, other = (entry["memory"].get(level, {}).get("capacity") for entry in (before, after))
        rows += [{"name": f"{level}, bytes", "before": one, "after": other}] if one != other else []
    return rows


def _compare_layers(before: Document, after: Document) -> list[Contents]:
    """The layers that differ, with what is different of each."""
    ours, theirs = _number_calls(before), _number_calls(after)
    layers = []
    for key in dict.fromkeys((*ours, *theirs)):
        one, other = ours.get(key), theirs.get(key)
        cycles = [call["cycles"] if call is not None else None for call in (one, other)]
        if one is None or other is None:
            reasons = ["only before" if other is None else "only after"]
        else:
            reasons = _explain_layer(before, one, after, other)
        change = None if cycles == [None, None] else (cycles[1] or 0) - (cycles[0] or 0)
        if reasons or change:
            told = reasons or ["instructions or first constants are there earlier, or later"]
            layers.append({"node": key[0], "op": key[1], "before": cycles[0], "after": cycles[1], "change": change, "why": told})
    return layers


def _number_calls(entry: Document) -> dict[tuple[str, str, int], Document]:
    counts: dict[tuple[str, str], int] = {}
    calls_by_name = {}
    for call in entry["calls"]:
        key = call["node"], call["op"]
        counts[key] = counts.get(key, 0) + 1
        calls_by_name[(*key, counts[key])] = call
    return calls_by_name


def _explain_layer(before: Document, one: Document, after: Document, other: Document) -> list[str]:
    """What is different of a layer that both have."""
    changes = []
    if call_instance(one) != call_instance(other):
        changes.append(f"by {call_instance(other)} on {other['engine']} instead of {call_instance(one)} on {one['engine']}")
    if (one["loops"], one["is_double"]) != (other["loops"], other["is_double"]):
        changes.append(f"{_describe_tiles(other)} instead of {_describe_tiles(one)}")
    places = [_operand_places(entry, call) for entry, call in ((before, one), (after, other))]
    for operand in places[0].keys() & places[1].keys():
        if places[0][operand] != places[1][operand]:
            changes.append(f"{operand} in {places[1][operand]} instead of {places[0][operand]}")
    waits = [sum(sum(reasons.values()) for reasons in call.get("stalls", {}).values()) for call in (one, other)]
    if waits[0] != waits[1]:
        changes.append(f"waits {plain(round(waits[1]))} cycles instead of {plain(round(waits[0]))}")
    if one["macs"] != other["macs"]:
        changes.append(f"{plain(other['macs'])} MAC instead of {plain(one['macs'])}")
    return changes


def _describe_tiles(call: Document) -> str:
    loops = ", ".join(f"{dim} {trips} x {tile}" for dim, trips, tile in call["loops"]) or "one tile"
    return f"{loops}{' in two buffers' if call['is_double'] else ''}"


def _operand_places(entry: Document, call: Document) -> dict[str, str]:
    """The memory that every operand is read from or written to."""
    levels = {single: buffer["level"] for buffer in entry["buffers"] for single in buffer["name"].split("=")}
    levels |= {constant["name"]: constant.get("read_from", "") for constant in entry["constants"]}
    return {operand: levels[buffer] for operand, buffer in sorted(call["operands"].items()) if levels.get(buffer)}


def _format_change(one: float | None, other: float | None) -> str:
    return f"{100 * (other - one) / one:+.1f} %" if one and other is not None else "-"


def describe_comparison(comparison: Document, names: tuple[str, str]) -> str:
    """``compare_entries`` for a terminal; ``names`` are what the two projects are called."""
    heads = [
        f"{shorten(comparison[side]['model'])} for {comparison[side]['target']} ({comparison[side]['layers']} layers)"
        for side in ("before", "after")
    ]
    lines = [f"A {names[0]}: {heads[0]}", f"B {names[1]}: {heads[1]}", ""]
    rows = [
        (f["name"], _format_cell(f["before"]), _format_cell(f["after"]), _format_change(f["before"], f["after"]))
        for f in comparison["figures"]
    ]
    lines += [align_table(("", "A", "B", "change"), rows), ""]
    if comparison["options"]:
        lines += [
            align_table(
                ("compiled with", "A", "B"),
                [(o["name"], _format_cell(o["before"]), _format_cell(o["after"])) for o in comparison["options"]],
            ),
            "",
        ]
    shown: Sequence[Document] = comparison["layers"][:_MOST]
    if not shown:
        return "\n".join([*lines, "no layer differs"])
    cells = [
        (shorten(c["node"], 40), _format_cell(c["before"]), _format_cell(c["after"]), _format_cell(c["change"]), "; ".join(c["why"]))
        for c in shown
    ]
    lines.append(align_table(("layer", "A", "B", "change", "why"), cells))
    more = len(comparison["layers"]) - len(shown)
    return "\n".join([*lines, *([f"and {more} layers that change less"] if more else [])])


def _format_cell(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return plain(round(value)) if float(value).is_integer() or abs(value) >= 1000 else f"{value:.2f}"
    return "-" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def comparison_page(comparison: Document, names: tuple[str, str], version: str) -> str:
    """``compare_entries`` as a page of its own, without scripts."""
    sides = [f"{letter}: {text(title)}" for letter, title in zip("AB", names, strict=True)]
    head = markup.header(f"{comparison['before']['model']} {DASH} {comparison['after']['model']}", "", sides)
    rows = [_figure_section(f, _format_change(f["before"], f["after"])) for f in comparison["figures"]]
    body = [section("Figures", scrolled(markup.table(("", "A", "B", "change"), rows, "figures")))]
    if comparison["options"]:
        rows = [
            row((tag("td", text(o["name"])), *figures(text(_format_cell(o["before"])), text(_format_cell(o["after"])))))
            for o in comparison["options"]
        ]
        body.append(section("Compiled with", scrolled(markup.table(("", "A", "B"), rows, "options"))))
    layers = [_name_layer(one) for one in comparison["layers"]]
    table_ = markup.table(("layer", "A", "B", "change", "why"), layers, "layers", "wide reasons")
    shown = scrolled(table_) if layers else tag("p", "No layer differs.")
    body.append(section("Layers that differ", shown, note="Cycles; the largest change first."))
    top = tag("nav", tag("b", "deeploy"), tag("span", f"version {text(version)}"))
    return markup.page(f"comparison {DASH} deeploy", STYLE, POLICY, top, tag("main", tag("article", head, *body)))


def _figure_section(comparison: Document, change: str) -> str:
    sign = "better" if change.startswith("-") and change != "-" else "worse" if change.startswith("+") and change != "+0.0 %" else ""
    cells = [tag("td", text(_format_cell(comparison[side])), class_="n") for side in ("before", "after")]
    return row((tag("td", text(comparison["name"])), *cells, tag("td", text(change.replace("-", MINUS)), class_=f"n {sign}".strip())))


def _name_layer(one: Document) -> str:
    change = one["change"] or 0
    sign = "better" if change < 0 else "worse" if change > 0 else ""
    cells = [tag("td", text(_format_cell(one[side])), class_="n") for side in ("before", "after")]
    cells.append(tag("td", text(_format_cell(one["change"]).replace("-", MINUS)), class_=f"n {sign}".strip()))
    title = tag("td", name(one["node"], 48), tag("small", f" {text(one['op'])}"), title=name(one["node"], 200))
    return row((title, *cells, tag("td", text("; ".join(one["why"])))))
