"""Reports of several chips: what they do together, on a page and in a terminal; the page shows each different chip as a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deeploy.documents import Document
from deeploy.errors import shorten
from deeploy.report.markup import THIN, cards, figures, header, legend, number, percent, row, scrolled, section, shares, table, tag, text
from deeploy.report.text import align_table as aligned
from deeploy.report.text import format_number as plain
from deeploy.report.text import time_at

_WIDTH, _LABEL, _ROW, _GAP = 1080, 74, 9, 5  # of the picture: pixels in all, for names, per row, between chips
_MOST_ROWS = 24  # chips whose paths are drawn too

Rows = Mapping[str, Sequence[tuple[str, float, float]]]

_LEGEND = {
    "compute": ("share-compute", "computing"),
    "overhead": ("share-overhead", "set-up, starting transfers"),
    "wait": ("share-wait", "waiting for memory"),
    "link": ("share-issue", "waiting for chips"),
    "in": ("event-in", "fetch"),
    "out": ("event-out", "store"),
}


def system_section(manifest: Document, rows: Sequence[Rows]) -> str:
    """What the chips of a system do together.

    Args:
        manifest: the contents of ``deploy.json``.
        rows: of every chip, see ``deeploy.execution.simulation.joint``; none where nothing is known of time.
    """
    parts = [_system_heading(manifest), _system_cards(manifest), _spent_section(manifest)]
    if rows:
        parts.append(_joint_picture(manifest, rows))
    return tag("article", *parts, _chip_lines(manifest), _stream_section(manifest), id="system")


def _system_heading(manifest: Document) -> str:
    facts = [f"{len(manifest['chips'])} chips, {len(set(manifest['code']))} of them different", f"{len(manifest['messages'])} messages"]
    facts += [f"{number(manifest['machine']['mhz'])} MHz"] if manifest["machine"] else []
    on = f" on {len(manifest['chips'])} times {text(manifest['target'])}"
    return header(manifest["model"], on, [*facts, *map(text, manifest["notes"])])


def _system_cards(manifest: Document) -> str:
    sent = sum(message["bytes"] for message in manifest["messages"])
    macs = sum(call["macs"] for call in manifest["calls"])
    figures = [("Chip to chip, bytes", number(sent), f"{len(manifest['messages'])} messages")]
    if manifest["cycles"] is not None:
        microjoule, waiting = manifest["energy_uj"], manifest["waiting_uj"]
        figures = [
            (
                "Cycles",
                number(manifest["cycles"]),
                f"{number(manifest['microseconds'] / 1000, 3)} ms at {number(manifest['machine']['mhz'])} MHz",
            ),
            ("MAC/cycle", number(macs / manifest["cycles"], 2), "all chips together"),
            ("Energy", f"{number(microjoule, 1)} \u00b5J", f"{number(microjoule + waiting, 1)} with cores on that wait"),
            ("Energy by delay", number(manifest["edp_uj_ms"], 2), "\u00b5J ms"),
            *figures,
        ]
    for level, use in manifest["memory"].items():
        if use["peak"]:
            of = f"of {number(use['capacity'])}" if use["capacity"] else "peak"
            figures.append((f"{level}, bytes", number(use["peak"]), f"{of}, chip {use['chip']}"))
    return cards(figures)


def mean_breakdown(manifest: Document) -> dict[str, float]:
    """Cycles of the mean chip: computing, waiting for each memory path, and for other chips, ends included."""
    shares = dict(manifest["shares"])
    cycles_by_cause = {"computing": sum(shares.pop(key, 0) for key in ("compute", "overhead", "issue"))}
    cycles_by_cause |= {f"waiting for {path}": cycles for path, cycles in shares.items() if path != "link"}
    cycles_by_cause["waiting for chips"] = max(0, manifest["cycles"] - sum(cycles_by_cause.values()))
    return cycles_by_cause


def _spent_section(manifest: Document) -> str:
    if not manifest["cycles"]:
        return ""
    colours = {"computing": "share-compute", "waiting for chips": "share-issue"}
    parts = [(colours.get(words, "share-wait"), words, cycles) for words, cycles in mean_breakdown(manifest).items()]
    note = "Of the mean chip; what computing hides is not counted. Computing includes set-up and the start of transfers."
    return section("Where the cycles go", *shares(parts, manifest["cycles"]), note=note)


def _joint_picture(manifest: Document, rows: Sequence[Rows]) -> str:
    """One picture of all chips over time."""
    shown = [{"cores": own["cores"]} if len(rows) > _MOST_ROWS else own for own in rows]
    scale = (_WIDTH - _LABEL) / max(manifest["cycles"], 1)
    drawn, top = [], 4
    for chip, own in enumerate(shown):
        drawn.append(tag("text", f"chip {chip}", x=0, y=top + _ROW, font_size=10, fill="currentColor"))
        for path, bars in own.items():
            for kind, start, end in bars:
                title = tag("title", f"chip {chip}, {text(path)}: {_LEGEND[kind][1]}, {number(start)} to {number(end)}")
                width = f"{max((end - start) * scale, 0.3):.2f}"
                place = {"x": f"{_LABEL + start * scale:.2f}", "y": top, "width": width, "height": _ROW - 1}
                drawn.append(tag("rect", title, class_=_LEGEND[kind][0], **place))
            top += _ROW
        top += _GAP
    picture = tag("svg", *drawn, viewBox=f"0 0 {_WIDTH} {top}", width="100%", id="joint", role="img")
    what = "the cores" if len(rows) > _MOST_ROWS else "the cores, then the paths " + ", ".join(list(rows[0])[1:])
    note = f"One inference. Rows of every chip: {what}. trace.json shows the same in all detail (ui.perfetto.dev)."
    return section("All chips", legend(_LEGEND.values()), scrolled(picture), note=note)


def _chip_lines(manifest: Document) -> str:
    """A line per chip."""
    sent, received = _moved_bytes(manifest)
    paths = list(manifest["chips"][0]["bytes"])
    heads = ("chip", "as chip", "layers", "MAC", "constants", *(f"{p}, bytes" for p in paths), "sent", "received", "cycles", "waits")
    lines = []
    for chip, entry in enumerate(manifest["chips"]):
        cycles = entry["cycles"]
        cells = [
            number(len(entry["calls"])),
            number(sum(call["macs"] for call in entry["calls"])),
            number(sum(constant["bytes"] for constant in entry["constants"])),
            *(number(entry["bytes"].get(path)) for path in paths),
            number(sent[chip]),
            number(received[chip]),
            number(cycles),
            percent(entry["shares"].get("link", 0), cycles) if cycles else "",
        ]
        label = tag("td", tag("b", str(chip)))
        lines.append(row((label, *figures(str(manifest["code"][chip]), *cells))))
    return section("Chips", scrolled(table(heads, lines, "chips")), note="Waits: the share of its cycles in which a chip waits for others.")


def _moved_bytes(manifest: Document) -> tuple[list[int], list[int]]:
    """Bytes that every chip sends, and that it receives."""
    sent, received = [0] * len(manifest["chips"]), [0] * len(manifest["chips"])
    for message in manifest["messages"]:
        sent[message["from"]] += message["bytes"]
        received[message["to"]] += message["bytes"]
    return sent, received


def _stream_section(manifest: Document) -> str:
    stream = manifest.get("stream")
    if not stream:
        return ""
    idle = [row((tag("td", f"chip {chip}"), *figures(percent(part, 1)))) for chip, part in enumerate(stream["idle"])]
    pace = (
        f"An output every {number(stream['interval'])} cycles, {number(stream['per_second'], 1)}{THIN}a second; "
        f"one input alone takes {number(stream['latency'])} cycles."
    )
    return section("Streams of inputs", tag("p", pace), table(("stage", "idle"), idle, "stream", "plain"))


def summarise_system(manifest: Document, folder: Path) -> str:
    """What ``deeploy compile`` prints of a project for several chips."""
    macs = sum(call["macs"] for call in manifest["calls"])
    count = len(manifest["chips"])
    lines = [f"{manifest['model']} for {count} x {manifest['target']} ({len(set(manifest['code']))} different), {plain(macs)} MAC"]
    for level, use in manifest["memory"].items():
        of = f" of {plain(use['capacity'])}" if use["capacity"] else ""
        lines.append(f"  {level}: peak {plain(use['peak'])} bytes{of} on chip {use['chip']}, constants {plain(use['constants'])}")
    sent = sum(message["bytes"] for message in manifest["messages"])
    lines.append(f"  links: {plain(sent)} bytes in {len(manifest['messages'])} messages")
    if manifest["cycles"] is not None:
        lines.append(f"  predicted: {_predicted_line(manifest)}")
    return "\n".join([*lines, f"written to {folder}"])


def _predicted_line(manifest: Document) -> str:
    delay = f"{manifest['energy_uj']:.1f} uJ, EDP {manifest['edp_uj_ms']:.3f} uJ ms"
    return f"{plain(manifest['cycles'])} cycles, {time_at(manifest)}, {delay}"


def report_system(manifest: Document) -> str:
    """What ``deeploy report`` prints of a project for several chips."""
    sent, received = _moved_bytes(manifest)
    lines = [f"{shorten(manifest['model'])} for {len(manifest['chips'])} x {manifest['target']}, {len(manifest['messages'])} messages"]
    if manifest["cycles"] is not None:
        lines.append(_predicted_line(manifest))
        lines.append("  " + ", ".join(f"{words} {100 * n / manifest['cycles']:.1f} %" for words, n in mean_breakdown(manifest).items()))
        lines.append("  bytes: " + ", ".join(f"{path} {plain(count)}" for path, count in manifest["bytes"].items()))
        lines.append("  energy, uJ: " + ", ".join(f"{part} {microjoule:.2f}" for part, microjoule in manifest["energy"].items()))
        if manifest["energy_missing"]:
            lines.append(f"  energy is not known of: {', '.join(manifest['energy_missing'])}")
    if manifest.get("stream"):
        stream = manifest["stream"]
        pace = f"an output every {plain(stream['interval'])} cycles, {stream['per_second']:.1f} a second"
        idle = ", ".join(f"{100 * part:.0f} %" for part in stream["idle"])
        lines += [f"  {pace}; one input alone takes {plain(stream['latency'])} cycles", f"  idle, by stage: {idle}"]
    rows = []
    for chip, entry in enumerate(manifest["chips"]):
        cycles = plain(entry["cycles"]) if entry["cycles"] is not None else "-"
        constants = plain(sum(constant["bytes"] for constant in entry["constants"]))
        figures = (plain(len(entry["calls"])), constants, plain(sent[chip]), plain(received[chip]), cycles)
        rows.append((str(chip), str(manifest["code"][chip]), *figures))
    return "\n".join([*lines, "", aligned(("chip", "as", "layers", "constants", "sent", "received", "cycles"), rows)])
