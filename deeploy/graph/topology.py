"""How chips are joined: links between pairs of chips and what a transfer over them takes, read from a TOML file (docs/chips.md)."""

from __future__ import annotations

import itertools
import tomllib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from deeploy.errors import TargetError, UsageError, shorten


@dataclass(frozen=True)
class Link:
    """One kind of link, in one direction: bytes per second, seconds to the first byte, picojoule per byte."""

    name: str
    bytes_per_second: float
    latency: float
    pj_per_byte: float


@dataclass(frozen=True)
class Member:
    """What one chip has that others have more of: bytes of arenas by the memory's name in small letters, cores, engines; None: as the
    target."""

    capacities: Mapping[str, int] = field(default_factory=dict)
    cores: int | None = None
    engines: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class Topology:
    """Which chips are joined, and by what.

    Attributes:
        group: chips of a group, 0 where there are none; ``group_link`` joins them, and leaders among each other.
        pairs: kinds of further links by the two chips that they join, the smaller number first.
        ports: messages that a chip can send at once, and as many that it can receive.
        queue: messages that may wait between a sender and a receiver.
        mhz: the clock of the chips.
        members: chips that have less than the target says, by number.
    """

    links: Mapping[str, Link]
    group: int = 0
    group_link: str = ""
    pairs: Mapping[tuple[int, int], str] = field(default_factory=dict)
    ports: int = 1
    queue: int = 2
    mhz: float = 100.0
    members: Mapping[int, Member] = field(default_factory=dict)

    def joined(self, a: int, b: int) -> Link | None:
        """The link between two chips, None where they have none."""
        pair = self.pairs.get((min(a, b), max(a, b)))
        if pair is not None:
            return self.links[pair]
        if a == b or self.group < 2:
            return None
        size = 1  # chips that one member of a group stands for
        while a % size == 0 and b % size == 0:
            if a // (size * self.group) == b // (size * self.group):
                return self.links[self.group_link]
            size *= self.group
        return None

    def neighbours(self, chip: int, chips: int) -> tuple[int, ...]:
        """The chips below ``chips`` that have a link to ``chip``."""
        return tuple(other for other in range(chips) if self.joined(chip, other) is not None)

    def route(self, a: int, b: int, chips: int) -> tuple[int, ...] | None:
        """The chips on a shortest way from ``a`` to ``b``, both included; the lowest numbers of several; None where there is none."""
        before = _before(self, chips, a)
        if b not in before:
            return None
        way = [b]
        while way[-1] != a:
            way.append(before[way[-1]])
        return tuple(reversed(way))

    def seconds(self, a: int, b: int, count: int, chips: int) -> float:
        """Seconds of one message of ``count`` bytes: it passes through the chips on its way as it arrives.

        Raises:
            UsageError: no way leads there.
        """
        links = self.way(a, b, chips)
        return sum(link.latency for link in links) + count * max(1 / link.bytes_per_second for link in links)

    def way(self, a: int, b: int, chips: int) -> tuple[Link, ...]:
        """The links of a message's route.

        Raises:
            UsageError: no way leads there.
        """
        route = self.route(a, b, chips)
        if route is None:
            raise UsageError(f"no links lead from chip {a} to chip {b}", "Join them in the topology file (docs/chips.md).")
        return tuple(link for one, two in itertools.pairwise(route) if (link := self.joined(one, two)) is not None)


@cache
def _before(topology: Topology, chips: int, start: int) -> Mapping[int, int]:
    """The chip before each one on a shortest way from ``start``, breadth first."""
    found = {start: start}
    waiting = deque([start])
    while waiting:
        chip = waiting.popleft()
        for other in topology.neighbours(chip, chips):
            if other not in found:
                found[other] = chip
                waiting.append(other)
    return found


def load_topology(file: Path, base: Topology | None = None) -> Topology:
    """Read a topology file; one that only says in what chips differ is about chips that are joined as those of ``base``.

    Raises:
        UsageError: there is no such file.
        TargetError: it is no TOML, an entry is missing, lacks its provenance or makes no sense.
    """
    data = _read(file)
    if base is not None and set(data) == {"chip"}:
        return replace(base, members=_members(file, data))
    for name, entry in _entries(data):
        if not isinstance(entry, dict) or not entry.get("provenance"):
            raise TargetError(f"{file.name}: entry {shorten(name)} does not say where its figures are from", "Give it a provenance.")
    try:
        return _topology(file, data)
    except KeyError as error:
        raise TargetError(f"{file.name}: the entry {error} is missing", "docs/chips.md lists what a topology file holds.") from error
    except (TypeError, ValueError) as error:
        raise TargetError(
            f"{file.name}: an entry has the wrong type: {shorten(str(error))}", "docs/chips.md lists what a topology file holds."
        ) from error


def load_members(file: Path) -> Mapping[int, Member]:
    """What a topology file says of single chips, by number.

    Raises:
        UsageError, TargetError: as ``load_topology``.
    """
    return _members(file, _read(file))


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError as error:
        raise UsageError(f"there is no topology file {shorten(str(file))}", "Give the path of a TOML file (docs/chips.md).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TargetError(f"{shorten(str(file))} is no TOML: {shorten(str(error))}", "docs/chips.md shows a topology file.") from error


def _members(file: Path, data: Mapping[str, Any]) -> Mapping[int, Member]:
    """The entries ``[[chip]]``."""
    found: dict[int, Member] = {}
    entries = data.get("chip", [])
    for entry in entries if isinstance(entries, list) else [entries]:
        number = entry.get("chip") if isinstance(entry, dict) else None
        if not isinstance(number, int) or not _is_count(number, 0) or number in found:
            raise TargetError(f"{file.name}: an entry [[chip]] has no number of its own", "Write chip = NUMBER, from 0 on, once for each.")
        unknown = sorted(set(entry) - {"chip", "memory", "cores", "engines"})
        if unknown:
            raise TargetError(f"{file.name}: chip {number} has no {shorten(unknown[0])}", "Say memory, cores or engines.")
        memory, cores, engines = entry.get("memory", {}), entry.get("cores"), entry.get("engines")
        is_right = (
            isinstance(memory, dict) and all(_is_count(size, 0) for size in memory.values()) and (cores is None or _is_count(cores, 1))
        )
        if not is_right or not (engines is None or (isinstance(engines, list) and all(isinstance(name, str) for name in engines))):
            raise TargetError(
                f"{file.name}: chip {number} has entries of the wrong type",
                'Write memory = { L2 = BYTES }, cores = NUMBER, engines = ["NAME"] (docs/chips.md).',
            )
        capacities = {name.lower(): size for name, size in memory.items()}
        found[number] = Member(capacities, cores, None if engines is None else tuple(engines))
    return found


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _entries(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What has to state its origin: the system, every kind of link, the groups."""
    links = data.get("link") if isinstance(data.get("link"), dict) else {}
    found = [(f"link.{name}", entry) for name, entry in (links or {}).items()]
    return found + [(name, data[name]) for name in ("system", "groups") if name in data]


def _topology(file: Path, data: Mapping[str, Any]) -> Topology:
    system, groups = data["system"], data.get("groups", {})
    links = {
        name: Link(name, float(e["bytes_per_second"]), float(e["latency"]), float(e["pj_per_byte"])) for name, e in data["link"].items()
    }
    pairs = {(int(min(e["chips"])), int(max(e["chips"]))): str(e["link"]) for e in data.get("pair", ()) if len(e["chips"]) == 2}
    group = int(groups["chips"]) if groups else 0
    found = Topology(
        links,
        group,
        str(groups["link"]) if groups else "",
        pairs,
        int(system["ports"]),
        int(system["queue"]),
        float(system["mhz"]),
        _members(file, data),
    )
    unknown = {*pairs.values(), *([found.group_link] if groups else [])} - set(links)
    problems = [
        (bool(unknown), f"there is no link {shorten(next(iter(unknown), ''))}"),
        (len(pairs) != len(data.get("pair", ())) or any(a == b or a < 0 for a, b in pairs), "a pair joins two different chips, once"),
        (bool(groups) and group < 2, "a group has at least two chips"),
        (any(link.bytes_per_second <= 0 or link.latency < 0 or link.pj_per_byte < 0 for link in links.values()), "a figure is negative"),
        (found.ports < 1 or found.queue < 1 or found.mhz <= 0, "ports, queue and mhz are positive"),
        (not groups and not pairs, "it joins no chips: it has neither groups nor pairs"),
    ]
    for is_wrong, what in problems:
        if is_wrong:
            raise TargetError(f"{file.name}: {what}", "Correct the file; docs/chips.md lists what it holds.")
    return found
