"""Pieces of HTML: everything that comes from a model is escaped here, once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

from deeploy.errors import shorten

THIN = "\u202f"  # narrow no-break space, between groups of digits
DASH, MINUS = "\u2013", "\u2212"


def text(value: object) -> str:
    """A value as HTML text."""
    return escape(str(value), quote=True)


def name(value: str, limit: int = 64) -> str:
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


def data(identifier: str, contents: Any) -> str:
    """JSON inside a page: nothing in it can end the element that holds it."""
    encoded = json.dumps(contents, separators=(",", ":"))
    for sign in "<>&":
        encoded = encoded.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="{text(identifier)}">{encoded}</script>'
