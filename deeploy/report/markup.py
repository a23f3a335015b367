"""Pieces of HTML: everything that comes from a model is escaped here, once."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from deeploy.errors import shorten

THIN = "\u202f"  # narrow no-break space, between groups of digits
DASH, MINUS = "\u2013", "\u2212"


class Html(str):
    """Text in which everything is escaped already: it is not escaped again."""

    __slots__ = ()


def text(value: object) -> Html:
    """A value as HTML text."""
    return value if isinstance(value, Html) else Html(escape(str(value), quote=True))


def name(value: str, limit: int = 64) -> Html:
    """A name that a model gave, printable, on one line, as HTML text."""
    return text(shorten(value, limit))


def number(value: float | None, digits: int = 0) -> str:
    """A number with its digits in groups of three; a dash where there is none."""
    return DASH if value is None else f"{value:,.{digits}f}".replace(",", THIN)


def percent(part: float, whole: float) -> str:
    """A share, with one decimal."""
    return f"{100 * part / whole:.1f}{THIN}%" if whole else DASH


def tag(element: str, *children: str, **attributes: object) -> str:
    """An element around children that are HTML already; ``_`` in names of attributes is ``-``, one at the end is dropped."""
    inside = "".join(f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items() if value is not None)
    return f"<{element}{inside}>{''.join(children)}</{element}>"


def row(cells: Iterable[str], cell: str = "td", **attributes: object) -> str:
    """A row of a table."""
    return tag("tr", *(c if c.startswith(f"<{cell}") else tag(cell, c) for c in cells), **attributes)


def figures(*cells: str) -> list[str]:
    """Cells of a row that hold numbers."""
    return [tag("td", cell, class_="n") for cell in cells]


def table(heads: Sequence[str], rows: Iterable[str], identifier: str, class_: str = "plain wide") -> str:
    """A table with one row of headings."""
    return tag("table", tag("thead", row(heads, "th")), tag("tbody", *rows), class_=class_, id=identifier)


def scrolled(*children: str) -> str:
    """What may be wider than the page."""
    return tag("div", *children, class_="scroll")


def section(title: str, *body: str, note: str = "") -> str:
    """A titled part of the page."""
    about = tag("p", text(note), class_="note") if note else ""
    return tag("section", tag("h2", text(title)), about, *body)


def header(title: str, on: str, facts: Iterable[str]) -> str:
    """The head of an article: a name from a model, what it is for as HTML, and facts."""
    line = tag("p", " \u00b7 ".join(facts), class_="facts")
    return tag("header", tag("h1", name(title, 90), tag("span", on, class_="on")), line, class_="head")


def cards(entries: Iterable[tuple[str, str, str]]) -> str:
    """The figures that people ask for first: a title, the figure, and what is to be said of it."""
    return tag("div", *(tag("div", tag("h3", text(a)), tag("b", b), tag("span", c), class_="card") for a, b, c in entries), class_="cards")


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """What colours mean: the class of each, and words as HTML."""
    return tag("ul", *(tag("li", tag("i", class_=kind), words) for kind, words in entries), class_="legend")


def shares(parts: Iterable[tuple[str, str, float]], whole: float, unit: str = "") -> tuple[str, str]:
    """A bar of parts of a whole and its legend: the class of each part, its words, how many there are."""
    given = list(parts)
    drawn = []
    for kind, words, part in given:
        drawn.append(tag("i", class_=kind, style=f"width:{100 * part / whole:.3f}%", title=f"{words}: {number(part)}{unit}"))
    shown = [(kind, f"{text(words)} {tag('b', percent(part, whole))}") for kind, words, part in given]
    return tag("div", *drawn, class_="bar"), legend(shown)


def page(title: str, style: str, policy: str, *body: str) -> str:
    """A page that reads no file and no network; ``policy`` is what a browser is to enforce of that."""
    head = tag(
        "head",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", title),
        tag("style", style),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{head}{tag("body", *body)}</html>\n'


def packed(identifier: str, contents: Any) -> str:
    """JSON inside a page as ``data``, compressed: explanations repeat themselves, and are ten times smaller like this."""
    shrunk = zlib.compress(json.dumps(contents, separators=(",", ":")).encode(), 9)
    return f'<script type="application/octet-stream" id="{text(identifier)}">{base64.b64encode(shrunk).decode()}</script>'


def data(identifier: str, contents: Any) -> str:
    """JSON inside a page: nothing in it can end the element that holds it."""
    encoded = json.dumps(contents, separators=(",", ":"))
    for sign in "<>&":
        encoded = encoded.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="{text(identifier)}">{encoded}</script>'
