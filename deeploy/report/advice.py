"""What would help a network, as ``explain.json`` has it: on a page, in a terminal, and for one layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deeploy.documents import Contents, Document, read_document
from deeploy.errors import shorten
from deeploy.report.markup import MINUS, THIN, name, number, section, tag, text
from deeploy.report.text import format_number as plain
from deeploy.schemas import REASONS

_LAYERS = 3  # that an entry names in a terminal
_NONE = "No change that is known here would save a hundredth of the cycles."
_UNKNOWN = "deeploy advise OUT plans the changes that could help."
_NOTE = "Each gain is the difference of two plans, with one change alone. Gains do not add up."


def read_advice(project: Path) -> Mapping[str, Sequence[Document]]:
    """The advice of every network of a project; none where nothing was planned."""
    if not (project / REASONS).is_file():
        return {}
    networks = read_document(project / REASONS, REASONS)["networks"]
    return {name: entry["advice"] for name, entry in networks.items() if "advice" in entry}


def advice_lines(advice_entries: Sequence[Document] | None, verbose: bool = True) -> list[str]:
    """The ranked list for a terminal, with ``verbose`` its reasons and layers too; how to get one where there is none."""
    if advice_entries is None:
        return [f"what would help: {_UNKNOWN}"]
    if not advice_entries:
        return ["what would help: " + _NONE[0].lower() + _NONE[1:]]
    rows = ["what would help, each change alone:"]
    for place, entry in enumerate(advice_entries, 1):
        gain = f": -{100 * entry['share']:.1f} % ({plain(entry['gain'])} cycles)" if entry["gain"] else ""
        rows.append(f"  {place}. {entry['title']}{gain}")
        if not verbose and entry["kind"] != "quantise":
            continue
        rows.append(f"     {entry['why']}.")
        shown = [f"{shorten(layer['node'], 32)} (-{plain(layer['gain'])}, {layer['text']})" for layer in entry["layers"][:_LAYERS]]
        more = len(entry["layers"]) - len(shown)
        rows += [f"     {'; '.join(shown)}{f'; and {more} more' if more else ''}"] if shown else []
    return rows


def of_layer(advice_entries: Sequence[Document], layer: str) -> list[Contents]:
    """The entries that would make a layer faster, with its own part of the gain; ``layer`` is its name in C."""
    fields = ("kind", "title", "why", "options")
    return [
        {**{key: entry[key] for key in fields}, "gain": part["gain"], "text": part["text"]}
        for entry in advice_entries
        for part in entry["layers"]
        if part["name"] == layer
    ]


def layer_lines(advice_entries: Sequence[Document]) -> list[str]:
    """``of_layer`` for a terminal."""
    shown = [f"  {entry['title']}: -{plain(entry['gain'])} cycles ({entry['text']})" for entry in advice_entries]
    return ["", "  what would help this layer (each change alone):", *(f"  {line}" for line in shown)] if shown else []


def advice_section(advice_entries: Sequence[Document] | None) -> str:
    """The section that the page of a network opens with."""
    if not advice_entries:
        return section("What would help", tag("p", text(_UNKNOWN if advice_entries is None else _NONE)))
    return section("What would help", tag("ol", *map(_advice_item, advice_entries), class_="advice"), note=_NOTE)


def _advice_item(entry: Document) -> str:
    gain = [tag("b", f"{MINUS}{100 * entry['share']:.1f}{THIN}%", class_="gain")] if entry["gain"] else []
    head = (*gain, tag("span", text(entry["title"]), class_="change"))
    layers = [
        tag("li", tag("b", name(layer["node"], 48)), f" {MINUS}{number(layer['gain'])} cycles, {text(layer['text'])}")
        for layer in entry["layers"]
    ]
    more = tag(
        "details", tag("summary", f"{len(layers)} layer{'s' * (len(layers) != 1)}, {number(entry['gain'])} cycles"), tag("ul", *layers)
    )
    return tag("li", *head, tag("p", f"{text(entry['why'])}. {text(entry['how'])}"), *([more] if layers else []))
