"""Fronts: of many tilings of a call, those that no other one beats in cycles and bytes, and of long fronts some that stand for all."""

from __future__ import annotations

import math
from operator import le
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from deeploy.midend.candidates import Candidate

MOST_KEPT = 16  # candidates per hops

_T = TypeVar("_T")


class Cell(NamedTuple):
    """A combination of tile sizes (by number), an order of loops and a number of slots, measured."""

    bytes: int
    cycles: int
    early: int
    number: int
    order: tuple[str, ...]
    depth: int


def beats(a: Candidate, b: Candidate) -> bool:
    """Whether one takes no more cycles and no more bytes of any memory than another."""
    return a.cycles <= b.cycles and all(map(le, a.bytes, b.bytes))


def cheapest(found: list[Candidate]) -> list[Candidate]:
    """Those that no other beats in cycles and bytes, the cheapest first."""
    kept: list[Candidate] = []
    front: set[tuple[int, ...]] = set()  # what is cheaper needs: a candidate stays where none of it is smaller
    for candidate in sorted(found, key=lambda c: (c.cycles, c.bytes)):
        if not any(all(map(le, sizes, candidate.bytes)) for sizes in front):
            front = {sizes for sizes in front if not all(map(le, candidate.bytes, sizes))} | {candidate.bytes}
            kept.append(candidate)
    return kept


def best_cells(found: list[Cell]) -> list[Cell]:
    """The cells that no other beats in bytes and cycles, or in bytes and cycles less the early ones."""
    kept = set()
    for saved in (0, 1):
        smallest: float = math.inf
        for cell in sorted(found, key=lambda c: (c.cycles - saved * c.early, c.bytes, *c[3:])):
            if cell.bytes < smallest:
                smallest = cell.bytes
                kept.add(cell)
    ordered = sorted(kept, key=lambda c: (c.cycles, c.bytes, *c[3:]))
    sizes = [cell.bytes for cell in ordered]
    return thinned(ordered, sizes.index(min(sizes))) if ordered else []


def thinned(ordered: list[_T], smallest: int) -> list[_T]:
    """At most ``MOST_KEPT`` of a front that begins with the cheapest: half from there on, the others spread, and the smallest."""
    if len(ordered) <= MOST_KEPT:
        return ordered
    half = MOST_KEPT // 2
    rest = [i for i in range(half, len(ordered)) if i != smallest]
    spread = [rest[round(i * (len(rest) - 1) / (half - 2))] for i in range(half - 1)]
    return [ordered[i] for i in sorted({*range(half), *spread, smallest})]
