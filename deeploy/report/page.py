"""``report.html``: one page that shows a project to a person, with all it needs inside.

The page reads no file and no network; a policy in its head forbids it. What is drawn in Python (memory maps, tables, bars)
is there without scripts; the timeline is drawn by a script from data in the page, since it can be zoomed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deeploy.documents import Document
from deeploy.report import chips, markup, sections
from deeploy.report.advice import advice_section
from deeploy.report.fusion import groups_section, taken_groups
from deeploy.report.graph import graph_section
from deeploy.report.layers import layers_section
from deeploy.report.markup import DASH, MINUS, data, legend, name, packed, scrolled, section, tag, text
from deeploy.report.memory_map import memory_map

_ASSETS = Path(__file__).parent / "assets"
STYLE = (_ASSETS / "report.css").read_text(encoding="utf-8")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_KINDS = {"local": "activations", "window": "windows of tiles", "constant": "constants", "state": "state", "scratch": "scratch"}
_BUTTONS = (
    ("+", "in", "zoom in"),
    (MINUS, "out", "zoom out"),
    ("\u25c0", "left", "earlier"),
    ("\u25b6", "right", "later"),
    ("all", "all", "the whole inference"),
)
_EVENTS = {
    "compute": "computing",
    "overhead": "fork, set-up",
    "issue": "starting transfers",
    "wait": "waiting",
    "in": "fetch",
    "out": "store",
    "many": "many, drawn as one",
}


def report_page(
    manifest: Document,
    timelines: Mapping[str, Document],
    explanations: Mapping[str, Document],
    rows: Sequence[chips.Rows] = (),
) -> str:
    """The page: an article for each network; or one for the system, and one for each chip with code of its own.

    Args:
        manifest: the contents of ``deploy.json``.
        timelines: by network or ``chipK``, see ``deeploy.execution.simulation.timeline``; none where nothing is known of time.
        explanations: in the same way, see ``deeploy.report.reasons``; none on a flat machine.
        rows: of every chip of a system, see ``deeploy.execution.simulation.joint``.
    """
    entries, links, title = manifest.get("networks") or [manifest], list[tuple[str, str]](), str(manifest.get("model"))
    if "chips" in manifest:
        leads = sorted(set(manifest["code"]))
        entries = [{**manifest["chips"][k], "name": f"chip{k}", "model": f"{title}, chip {_name_code(manifest['code'], k)}"} for k in leads]
        links = [("system", "system"), *((f"chip{chip}", f"chip {chip}") for chip in leads)]
    elif len(entries) > 1:
        links, title = [(entry["name"], entry["name"]) for entry in entries], ", ".join(str(entry["model"]) for entry in entries)
    articles = [chips.system_section(manifest, rows)] if "chips" in manifest else []
    articles += [network_article(entry, timelines.get(entry["name"]), explanations.get(entry["name"])) for entry in entries]
    return page_of_articles(title, links, articles, str(manifest["version"]))


def _name_code(code: Sequence[int], lead: int) -> str:
    same = code.count(lead)
    return str(lead) if same == 1 else f"{lead} and {same - 1} more like it"


def page_of_articles(title: str, links: Sequence[tuple[str, str]], articles: Sequence[str], version: str, style: str = "") -> str:
    """A page of articles; ``links`` are names of articles and what they are called, ``style`` is added to the style of all pages."""
    theme = tag("button", "\u25d0", type="button", id="theme", title="light or dark")
    anchors = [tag("a", name(words), href=f"#{target}") for target, words in links]
    top = tag("nav", tag("b", "deeploy"), *anchors, tag("span", f"version {text(version)}"), theme)
    script = tag("script", (_ASSETS / "report.js").read_text(encoding="utf-8"))
    return markup.page(f"{name(title)} {DASH} deeploy", STYLE + style, POLICY, top, tag("main", *articles), script)


def network_article(entry: Document, timeline: Document | None, explanation: Document | None) -> str:
    """All that is shown of one network; ``entry`` is its part of ``deploy.json``."""
    told = explanation.get("advice") if explanation is not None else None
    parts = [sections.network_heading(entry), advice_section(told) if told or entry["cycles"] is not None else ""]
    parts += [sections.headline_cards_of(entry), sections.spent_bar(entry)]
    parts += [
        _timeline_section(entry),
        layers_section(entry),
        groups_section(entry),
        graph_section(entry),
        _memory_section(entry),
        sections.sizes_section(entry),
    ]
    parts += [sections.stream_section(entry), sections.arrangements_section(entry), sections.bounds_section(entry)]
    parts += [sections.requantised_section(entry), sections.traffic_section(entry)]
    if timeline is not None:
        together = [[fused_group["first"], fused_group["last"], fused_group["tiles"]] for fused_group in taken_groups(entry)]
        parts.append(data(f"timeline-data-{entry['name']}", {**timeline, "groups": together}))
    if explanation is not None and explanation["calls"]:
        calls = [{key: value for key, value in call.items() if key != "schedule"} for call in explanation["calls"]]
        parts.append(packed(f"explain-data-{entry['name']}", {"levels": explanation["levels"], "calls": calls}))
    return tag("article", *parts, id=entry["name"], data_network=entry["name"])


def _timeline_section(entry: Document) -> str:
    if entry["cycles"] is None:
        return ""
    buttons = [tag("button", label, type="button", data_do=do, title=title) for label, do, title in _BUTTONS]
    colours = legend((f"event-{kind}", text(words)) for kind, words in _EVENTS.items())
    tools = tag("div", *buttons, tag("output", ""), class_="tools")
    drawing = tag("div", class_="timeline", id=f"timeline-{entry['name']}", tabindex=0)
    note = "Double click on a layer to see it alone; drag or arrows to move, + and - or, after a click, the wheel to zoom."
    return section("Timeline", tools, drawing, colours, note=note)


def _memory_section(entry: Document) -> str:
    maps = []
    for level, use in entry["memory"].items():
        is_stored = any(constant.get("stored") == level for constant in entry["constants"])
        drawn = memory_map(level, use if is_stored else {**use, "constants": 0}, entry["buffers"], entry["calls"])
        if drawn:
            maps.append(tag("figure", tag("figcaption", text(level)), scrolled(drawn), id=f"map-{entry['name']}-{level}"))
    kinds = {buffer["kind"] for buffer in entry["buffers"] if buffer["bytes"]}
    kinds |= {"constant"} if any('class="beside"' in drawn for drawn in maps) else set()
    shown = {kind: words for kind, words in _KINDS.items() if kind in kinds}
    colours = legend((f"kind-{kind}", text(words)) for kind, words in shown.items())
    note = "Every rectangle is a buffer: its addresses upwards, the steps in which it is alive to the right. Hover, or move by arrow keys."
    return section("Memory", colours, *maps, note=note)
