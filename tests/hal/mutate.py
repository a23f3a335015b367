"""Mutants of generated C, one hazard each: made from the text alone, so that they work for any network that is emitted.

    for mutant in mutants({"network.c": text, "network_checks.h": text}):
        ...                                           # write mutant.sources, build, run; something must notice

A mutant that nothing can notice is equivalent to the original, which a test has to argue for, mutant by mutant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

_WAIT = re.compile(r"\brt_wait\([^;]*\);")
_MOVE = re.compile(r"\brt_(?:fetch|store)(?:_run|_rows)?\([^;]*\);")
_OFFSET = re.compile(r"^ +([A-Z]\w*) = (\d+)(?=,?(?: |\n))", re.MULTILINE)
_BLOCK = re.compile(r'(\{"([^"]+)", \w+, \w+, \w+, )(-?\d+), (-?\d+)\}')
_FOR_EVER = 2**31 - 1  # the last step of what outlives an inference
_TURN = re.compile(r"\b(t(?: / \d+)?) % 2\b")


@dataclass(frozen=True)
class Mutant:
    """All sources, one of them changed."""

    name: str
    sources: Mapping[str, str]


def _each(sources: Mapping[str, str], kind: str, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str]) -> Iterator[Mutant]:
    """One mutant per match; ``replace`` gives the new text."""
    for path, source in sources.items():
        for match in pattern.finditer(source):
            line = source.count("\n", 0, match.start()) + 1
            text = source[: match.start()] + replace(match) + source[match.end() :]
            yield Mutant(f"{kind}, {path}:{line}: {match[0][:60]}", {**sources, path: text})


def drop_waits(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Every wait left out."""
    return _each(sources, "wait dropped", _WAIT, lambda match: "(void)0;")


def drop_moves(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Every transfer of a box left out."""
    return _each(sources, "transfer dropped", _MOVE, lambda match: "(void)0;")


def shift_offsets(sources: Mapping[str, str], names: str = "", distance: int = 16) -> Iterator[Mutant]:
    """Every enumerator whose name begins with ``names``, an offset in some arena, moved up by ``distance`` bytes."""
    pattern = re.compile(_OFFSET.pattern.replace("[A-Z]", f"(?:{names})" if names else "[A-Z]", 1), re.MULTILINE)
    return _each(sources, "offset shifted", pattern, lambda match: f"    {match[1]} = {int(match[2]) + distance}")


def shorten_lifetimes(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Every block one step shorter: at its end, at its beginning, or moved where it lives for a single step.

    What outlives the inference is gone before its first step.
    """

    def later(match: re.Match[str]) -> str:
        first, last = int(match[3]), int(match[4])
        return f"{match[1]}{first + 1}, {max(first + 1, last)}}}"

    def earlier(match: re.Match[str]) -> str:
        first, last = int(match[3]), int(match[4])
        if last == _FOR_EVER:
            return f"{match[1]}{first}, -1}}"
        return f"{match[1]}{max(-1, min(first, last - 1))}, {max(-1, last - 1)}}}"

    yield from _each(sources, "begins a step late", _BLOCK, later)
    yield from _each(sources, "ends a step early", _BLOCK, earlier)


def swap_windows(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Every choice between two windows or tickets turned around."""
    return _each(sources, "other window", _TURN, lambda match: f"(1 - {match[0]})")


def mutants(sources: Mapping[str, str], offsets: str = "") -> Iterator[Mutant]:
    """All of them."""
    yield from drop_waits(sources)
    yield from drop_moves(sources)
    yield from shift_offsets(sources, offsets)
    yield from shorten_lifetimes(sources)
    yield from swap_windows(sources)
