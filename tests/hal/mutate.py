"""Mutants of generated C, one defect each: made from the text alone, so that they work for any network that is emitted.

    for mutant in mutants({"network.c": text, "network_checks.h": text}):
        ...                                           # write mutant.sources, build, run; something must notice

A mutant that nothing can notice is equivalent to the original; ``tests.hal.mutants`` runs mutants of any model, and says of those that
survive why they are equivalent, where that can be shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

_WAIT = re.compile(r"\brt_(?:job_)?wait\([^;]*\);")
_MOVE = re.compile(r"\brt_(?:fetch|store)(?:_run|_rows)?\([^;]*\);")
_TICKET = re.compile(r"(\brt_(?:wait|fetch|store|fetch_run|store_run|fetch_rows|store_rows)\(\w+, )(\w+)(?=[,)])")
_BARRIER = re.compile(r"\brt_barrier\(\);")
_TEAM = re.compile(r"\brt_fork\([^;]*\);")
_OFFSET = re.compile(r"^ +([A-Z]\w*) = (\d+)(?=,?(?: |\n))", re.MULTILINE)
_ADDRESS = re.compile(r"\bAT_\w+")
_BLOCK = re.compile(r'(\{"([^"]+)", \w+, \w+, \w+, )(-?\d+), (-?\d+)\}')
_FOR_EVER = 2**31 - 1  # the last step of what outlives an inference
_TURN = re.compile(r"\b(t(?: / \d+)?) % 2\b")
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_COMPARED = re.compile(r" (<=|>=|==|<|>) ")
_DIFFERENCE = re.compile(r"(?<=[(= ])([\w]+) - ([\w]+)(?=[;,) ])")
_LIMIT = re.compile(r"\b(smaller|larger)(?=\()")
_POINTERS = re.compile(r"(\.\w+ = )([a-z]\w*)(, \.\w+ = )([a-z]\w*)(?=[,}])")
_FUNCTION = re.compile(r"^(?:static|TILED_LAYER) [^;=\n]*\) \{\n(.*?)^\}$", re.MULTILINE | re.DOTALL)
_TEXT = re.compile(r"/\*.*?\*/|^#[^\n]*|\"[^\"\n]*\"|\bRT_STEP\([^;]*;|\(void\)\w+;", re.MULTILINE | re.DOTALL)
_OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!="}


@dataclass(frozen=True)
class Mutant:
    """All sources, one of them changed: in ``path`` from ``at`` on, ``old`` became ``new``. ``kind`` is what was done."""

    kind: str
    path: str
    at: int
    old: str
    new: str
    sources: Mapping[str, str]

    @property
    def name(self) -> str:
        original = self.sources[self.path][: self.at]
        return f"{self.kind}, {self.path}:{original.count(chr(10)) + 1}: {_line(self.old)} -> {_line(self.new)}"

    def again(self, new: str) -> Mutant:
        """The same place with another text."""
        text = self.sources[self.path]
        changed = text[: self.at] + new + text[self.at + len(self.new) :]
        return Mutant(self.kind, self.path, self.at, self.old, new, {**self.sources, self.path: changed})


def _line(text: str) -> str:
    return " ".join(text.split())[:60]


Replace = Callable[[re.Match[str]], str]


def _each(sources: Mapping[str, str], kind: str, pattern: re.Pattern[str], replace: Replace, inside: bool = False) -> Iterator[Mutant]:
    """One mutant per match; ``replace`` gives the new text. ``inside``: only in code of functions that nobody calls from outside."""
    for path, source in sources.items():
        seen = code(source) if inside else source
        for match in pattern.finditer(seen):
            begin, end = match.span()
            old, new = source[begin:end], replace(match)
            if new != old:
                yield Mutant(kind, path, begin, old, new, {**sources, path: source[:begin] + new + source[end:]})


def code(source: str) -> str:
    """The text with blanks for all that is no code of a layer: comments, tables, and entry points, which check their caller."""
    blank = list(re.sub(r"[^\n]", " ", source))
    for match in _FUNCTION.finditer(source):
        blank[match.start(1) : match.end(1)] = match[1]
    return _TEXT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), "".join(blank))


def drop_waits(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Every wait left out."""
    return _each(sources, "wait dropped", _WAIT, lambda match: "(void)0;")


def move_waits(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Every wait exchanged with the statement before or behind it, where that is a call on a line of its own."""
    for order, text in (("earlier", r"^( +)(\w+\([^;{]*\);)(\n +)({wait})"), ("later", r"^( +)({wait})(\n +)(\w+\([^;{]*\);)")):
        pattern = re.compile(text.replace("{wait}", _WAIT.pattern), re.MULTILINE)
        yield from _each(sources, f"wait {order}", pattern, lambda match: f"{match[1]}{match[4]}{match[3]}{match[2]}", True)


def change_tickets(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Every ticket of a transfer or a wait exchanged with the next one."""
    names = {"IN": "OUT", "OUT": "EARLY", "EARLY": "IN"}
    return _each(sources, "other ticket", _TICKET, lambda match: match[1] + names.get(match[2], f"({match[2]} + 1) % 4"), True)


def drop_moves(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Every transfer of a box left out."""
    return _each(sources, "transfer dropped", _MOVE, lambda match: "(void)0;")


def drop_calls(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Every barrier, and everything that a team is started for, left out."""
    yield from _each(sources, "barrier dropped", _BARRIER, lambda match: "(void)0;")
    yield from _each(sources, "team dropped", _TEAM, lambda match: "(void)0;", True)


def shift_offsets(sources: Mapping[str, str], names: str = "", distance: int = 16) -> Iterator[Mutant]:
    """Every enumerator whose name begins with ``names``, an offset in some arena, moved up by ``distance`` bytes."""
    pattern = re.compile(_OFFSET.pattern.replace("[A-Z]", f"(?:{names})" if names else "[A-Z]", 1), re.MULTILINE)
    return _each(sources, "offset shifted", pattern, lambda match: f"    {match[1]} = {int(match[2]) + distance}")


def exchange_addresses(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Every use of an offset replaced by the next one of the table."""
    names = [match[1] for source in sources.values() for match in _OFFSET.finditer(source) if match[1].startswith("AT_")]
    following = dict(zip(names, [*names[1:], *names[:1]], strict=True))
    return _each(sources, "other address", _ADDRESS, lambda match: following.get(match[0], match[0]), True)


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


def change_numbers(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Every number in the code of layers one larger, and one smaller: lengths, strides, bounds, addresses, constants of kernels."""
    yield from _each(sources, "number raised", _NUMBER, lambda match: str(int(match[0]) + 1), True)
    yield from _each(sources, "number lowered", _NUMBER, lambda match: str(max(int(match[0]) - 1, 0)), True)


def change_bounds(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Every comparison with the border on its other side; every limit as the other one."""
    yield from _each(sources, "comparison changed", _COMPARED, lambda match: f" {_OTHER[match[1]]} ", True)
    yield from _each(sources, "limit exchanged", _LIMIT, lambda match: "larger" if match[1] == "smaller" else "smaller", True)


def swap_operands(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """Differences turned around, and pointers that are given to a kernel exchanged with the next one."""
    yield from _each(sources, "operands swapped", _DIFFERENCE, lambda match: f"{match[2]} - {match[1]}", True)
    yield from _each(sources, "pointers swapped", _POINTERS, lambda match: match[1] + match[4] + match[3] + match[2], True)


def mutants(sources: Mapping[str, str], offsets: str = "") -> Iterator[Mutant]:
    """Those of waits, transfers, offsets, lifetimes and windows: a correct network needs every one of them."""
    yield from drop_waits(sources)
    yield from drop_moves(sources)
    yield from shift_offsets(sources, offsets)
    yield from shorten_lifetimes(sources)
    yield from swap_windows(sources)


def every_mutant(sources: Mapping[str, str]) -> Iterator[Mutant]:
    """All kinds; of these, some change nothing."""
    yield from mutants(sources, "AT_")
    yield from move_waits(sources)
    yield from change_tickets(sources)
    yield from drop_calls(sources)
    yield from exchange_addresses(sources)
    yield from change_numbers(sources)
    yield from change_bounds(sources)
    yield from swap_operands(sources)
