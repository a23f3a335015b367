"""How chips are joined: links between pairs of chips and what a transfer over them takes, read from a TOML file (docs/chips.md)."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from deeploy.documents import Document, read_document
from deeploy.errors import TargetError, UsageError, shorten
from deeploy.schemas import KINDS

_KIND = "topology.toml"
AUTO = "auto"
Collective = Literal["auto", "hierarchical", "flat", "ring", "doubling"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)


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
        mhz: the clock of the chips in place of the target's; None: as the target says.
        members: chips that have less than the target says, by number.
        collective: the algorithm by which partial sums are added up and tensors copied, of those that there are; ``auto``: the fastest.
        has_gathers: where that is faster, inputs may be put together in place of partial sums, and rows divided among all chips.
    """

    links: Mapping[str, Link]
    group: int = 0
    group_link: str = ""
    pairs: Mapping[tuple[int, int], str] = field(default_factory=dict)
    ports: int = 1
    queue: int = 2
    mhz: float | None = None
    members: Mapping[int, Member] = field(default_factory=dict)
    collective: str = AUTO
    has_gathers: bool = True

    def find_link(self, a: int, b: int) -> Link | None:
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
        return tuple(other for other in range(chips) if self.find_link(chip, other) is not None)

    def route(self, a: int, b: int, chips: int) -> tuple[int, ...] | None:
        """The chips on a shortest way from ``a`` to ``b``, both included; the lowest numbers of several; None where there is none."""
        before = _chips_before(self, chips, a)
        if b not in before:
            return None
        way = [b]
        while way[-1] != a:
            way.append(before[way[-1]])
        return tuple(reversed(way))

    def seconds(self, a: int, b: int, count: float, chips: int) -> float:
        """Seconds of one message of ``count`` bytes: it passes through the chips on its way as it arrives.

        Raises:
            UsageError: no way leads there.
        """
        links = self.links_between(a, b, chips)
        return sum(link.latency for link in links) + count * max(1 / link.bytes_per_second for link in links)

    def links_between(self, a: int, b: int, chips: int) -> tuple[Link, ...]:
        """The links of a message's route.

        Raises:
            UsageError: no way leads there.
        """
        route = self.route(a, b, chips)
        if route is None:
            raise UsageError(f"no links lead from chip {a} to chip {b}", "Join them in the topology file (docs/chips.md).")
        return tuple(link for one, two in itertools.pairwise(route) if (link := self.find_link(one, two)) is not None)


class Ports:
    """The ports of all chips over time. A message takes one of its sender's and one of its receiver's; one that passes through other chips
    takes one of theirs in either direction as well. It goes on while it arrives, or waits there until a port is free.
    """

    def __init__(self, topology: Topology, chips: int) -> None:
        self.topology = topology
        self.chips = chips
        self._sending = [[0.0] * topology.ports for _ in range(chips)]
        self._receiving = [[0.0] * topology.ports for _ in range(chips)]

    def move(self, source: int, target: int, duration: float, earliest: float) -> tuple[float, float]:
        """When a message begins and ends, at ``earliest`` or when ports are free.

        Raises:
            UsageError: no way leads there.
        """
        self.topology.links_between(source, target, self.chips)
        route = self.topology.route(source, target, self.chips) or ()
        begins = [earliest]
        for one, two in itertools.pairwise(route):
            taken = self._sending[one], self._receiving[two]
            begins.append(max(begins[-1], *map(min, taken)))
            for ports in taken:
                ports[ports.index(min(ports))] = begins[-1] + duration
        return begins[1], begins[-1] + duration


@cache
def _chips_before(topology: Topology, chips: int, start: int) -> Mapping[int, int]:
    """The chip before each one on a shortest way from ``start``, breadth first."""
    previous = {start: start}
    waiting = deque([start])
    while waiting:
        chip = waiting.popleft()
        for other in topology.neighbours(chip, chips):
            if other not in previous:
                previous[other] = chip
                waiting.append(other)
    return previous


def load_topology(file: Path, base: Topology | None = None) -> Topology:
    """Read a topology file; one that only says in what chips differ is about chips that are joined as those of ``base``.

    Raises:
        UsageError: there is no such file.
        TargetError: it is not what its schema says, or its entries do not agree; the entry is named.
    """
    data = read_document(file, _KIND, TargetError)
    chosen = data.get("collectives", {})
    algorithm, has_gathers = chosen.get("algorithm", AUTO), chosen.get("gathers", True)
    if base is not None and set(data) <= {"chip", "collectives"}:
        return replace(base, members=_parse_members(file, data), collective=algorithm, has_gathers=has_gathers)
    if missing := [name for name in ("system", "link") if name not in data]:
        raise _topology_error(file, f"{missing[0]} is missing")
    system, groups = data["system"], data.get("groups")
    links = {
        name: Link(name, float(e["bytes_per_second"]), float(e["latency"]), float(e["pj_per_byte"])) for name, e in data["link"].items()
    }
    return Topology(
        links,
        groups["chips"] if groups else 0,
        groups["link"] if groups else "",
        _link_pairs(file, data),
        system["ports"],
        system["queue"],
        float(system["mhz"]) if "mhz" in system else None,
        _parse_members(file, data),
        algorithm,
        has_gathers,
    )


def load_members(file: Path) -> Mapping[int, Member]:
    """What a topology file says of single chips, by number.

    Raises:
        UsageError, TargetError: as ``load_topology``.
    """
    return _parse_members(file, read_document(file, _KIND, TargetError))


def _topology_error(file: Path, what: str) -> TargetError:
    return TargetError(f"{shorten(str(file), 160)}: {what}", KINDS[_KIND].remedy)


def _link_pairs(file: Path, data: Document) -> dict[tuple[int, int], str]:
    """The kinds of links by the two chips that they join; every link that is named is there, and every chip can be reached by one."""
    routes: dict[tuple[int, int], str] = {}
    for number, entry in enumerate(data.get("pair", [])):
        pair = min(entry["chips"]), max(entry["chips"])
        if pair[0] == pair[1] or pair in routes:
            raise _topology_error(file, f"pair[{number}].chips is {entry['chips']}, and a pair joins two different chips, once")
        routes[pair] = entry["link"]
    named = [(f"pair[{number}].link", link) for number, link in enumerate(routes.values())]
    named += [("groups.link", data["groups"]["link"])] if "groups" in data else []
    for where, link in named:
        if link not in data["link"]:
            raise _topology_error(file, f"{where} is {shorten(link, 40)}, and there is no table link.{shorten(link, 40)}")
    if not named:
        raise _topology_error(file, "it joins no chips: it has neither groups nor pair")
    return routes


def _parse_members(file: Path, data: Document) -> Mapping[int, Member]:
    """The entries ``[[chip]]``."""
    members_by_chip: dict[int, Member] = {}
    for number, entry in enumerate(data.get("chip", [])):
        if entry["chip"] in members_by_chip:
            raise _topology_error(file, f"chip[{number}].chip is {entry['chip']}, which an entry before has")
        engines, capacities = entry.get("engines"), {name.lower(): size for name, size in entry.get("memory", {}).items()}
        members_by_chip[entry["chip"]] = Member(capacities, entry.get("cores"), None if engines is None else tuple(engines))
    return members_by_chip
