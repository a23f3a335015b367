"""Fused groups in words: layers that are computed together, tile by tile, and why others are not."""

from __future__ import annotations

from collections import Counter

from deeploy.documents import Document
from deeploy.errors import shorten
from deeploy.report.markup import DASH, figures, name, row, scrolled, section, tag, text
from deeploy.report.markup import number as digits
from deeploy.report.markup import table as marked
from deeploy.report.text import align_table, format_number

_WHY = {
    "taken": "taken",
    "cannot be cut": "one of the layers cannot be computed a few rows at a time",
    "read elsewhere": "another layer reads what would stay between them",
    "no room": "it needs more memory than there is",
    "slower": "it does not save enough cycles",
    "more bytes": "it moves no fewer bytes",
    "less saved": "another fused group with these layers saves more",
    "not packed": "no place was found for what it holds",
}
_SHOWN = 24  # groups of layers in a table, those that are taken and those that come closest first


def group_reason(entry: Document, step: int) -> str | None:
    """One sentence on a layer's fused group, or on the one that it comes closest to; None where none was considered.

    Args:
        entry: the network's part of ``deploy.json``.
    """
    choices = [choice for choice in entry.get("fusion_choices", ()) if choice["first"] <= step <= choice["last"]]
    if not choices:
        return None
    choice = min(choices, key=_rank_choice)
    if choice["reason"] == "taken":
        return f"Fused group: computed together from {_group_ends(entry, choice)}, {choice['tiles']} tiles{_group_figures(choice)}."
    return f"Fused group: not computed together from {_group_ends(entry, choice)}: {_WHY[choice['reason']]}{_group_figures(choice)}."


def dynamic_length_reason(entry: Document) -> str | None:
    """The sentence on all layers of a network whose states grow, on a machine with several memories; None of another one."""
    if all(state["axis"] is None for state in entry.get("states", ())):
        return None
    return "Fused group: none: states grow, and a fused group has a number of rows that is known when it is compiled."


def _rank_choice(choice: Document) -> tuple[bool, bool, float]:
    """The order in which fused groups are told: what is taken, then what is possible, by what it saves."""
    saved = choice["cycles_apart"] - choice["cycles_fused"] if choice["cycles_apart"] is not None else 0
    return choice["reason"] != "taken", choice["cycles_apart"] is None, -saved


def _group_ends(entry: Document, choice: Document) -> str:
    first, last = (shorten(entry["calls"][choice[end]]["name"], 48) for end in ("first", "last"))
    return f"{first} to {last}"


def _group_figures(choice: Document) -> str:
    """What the fused group takes, which is an estimate of one that is not taken, and what its layers take one after the other."""
    figures = []
    if choice["cycles_apart"] is not None:
        now, apart = (sum(choice[key].values()) for key in ("bytes_fused", "bytes_apart"))
        about = "" if choice["reason"] == "taken" else "about "
        figures += [
            about + _compare_figures(choice["cycles_fused"], choice["cycles_apart"], "cycles"),
            _compare_figures(now, apart, "bytes moved"),
        ]
    if choice["peak_fused"] is not None:
        figures.append(_compare_figures(choice["peak_fused"], choice["peak_apart"], "bytes of memory"))
    return f" ({', '.join(figures)} one after the other)" if figures else ""


def _compare_figures(now: int, apart: int, unit: str) -> str:
    return f"{format_number(now)} {unit} instead of {format_number(apart)}"


def taken_groups(entry: Document) -> list[Document]:
    """The fused groups that a network's plan has."""
    return [choice for choice in entry.get("fusion_choices", ()) if choice["reason"] == "taken"]


def _group_rows(entry: Document) -> list[Document]:
    """The choices that are worth a line: those of which something was counted, and those that are taken."""
    figure = "cycles_apart" if entry["cycles"] is not None else "peak_fused"
    counted = [one for one in entry.get("fusion_choices", ()) if one["reason"] == "taken" or one[figure] is not None]
    return sorted(sorted(counted, key=_rank_choice)[:_SHOWN], key=lambda choice: (choice["first"], choice["last"]))


def _group_cells(choice: Document) -> list[int | None]:
    """Figures of the layers one after the other, and of the fused group."""
    moved = [sum(choice[key].values()) if choice["cycles_apart"] is not None else None for key in ("bytes_apart", "bytes_fused")]
    return [choice["cycles_apart"], choice["cycles_fused"], *moved, choice["peak_apart"], choice["peak_fused"]]


_HEADS = ("cycles apart", "together", "bytes moved apart", "together", "memory apart", "together")


def _count_others(entry: Document, shown: list[Document]) -> str:
    """How many further fused groups were considered, and why they were not taken."""
    rest = [one for one in entry["fusion_choices"] if one not in shown]
    counts = Counter(_WHY[one["reason"]] for one in rest)
    why = "; ".join(f"{words} ({count})" for words, count in counts.most_common())
    return f" {len(rest)} more were considered: {why}." if rest else ""


def groups_section(entry: Document) -> str:
    """A section of the report: groups of layers that were considered; empty where there are none."""
    shown = _group_rows(entry)
    if not entry.get("fusion_choices"):
        return ""
    cells = [_group_cells(choice) for choice in shown]
    used = [place for place in range(len(_HEADS)) if any(row[place] is not None for row in cells)]
    rows = []
    for choice, values in zip(shown, cells, strict=True):
        who = tag("td", name(_group_ends(entry, choice), 96), class_="names")
        tiles = digits(choice["tiles"]) if choice["tiles"] else DASH
        numbers = figures(tiles, *(digits(values[place]) for place in used))
        why = tag("td", text(_WHY[choice["reason"]]), class_="why")
        rows.append(row((who, *numbers, why), class_="chosen" if choice["reason"] == "taken" else None))
    told = "Layers of a fused group are computed together, a few rows at a time; what is between them is never whole."
    heads = ("layers", "tiles", *(_HEADS[place] for place in used), "")
    return section(
        "Fused groups",
        *([scrolled(marked(heads, rows, f"fused-{entry['name']}", "plain wide fused"))] if rows else []),
        note=f"{told}{_count_others(entry, shown)}",
    )


def group_lines(entry: Document) -> list[str]:
    """The fused groups that were taken, for the terminal."""
    rows = [
        (_group_ends(entry, choice), format_number(choice["tiles"]), *map(format_number, _group_cells(choice)))
        for choice in taken_groups(entry)
    ]
    if not rows:
        return []
    return ["", "fused groups (layers that are computed together):", *align_table(("layers", "tiles", *_HEADS), rows).splitlines()]
