"""A second model of the links between chips, which shares no code with the compiler's, and what it says of the end of an inference.

It reads what was emitted: of ``deploy.json`` the bytes of messages and the cycles that each call takes besides waiting for other chips, of
``chips/K/src/messages.c`` who talks to whom in which order, and the topology file. It imports nothing of the compiler.

The compiler's walk reserves ports for a message as a whole, in the order in which messages are sent. Here packets are what moves, hop by
hop, stored and forwarded; each takes a port at both ends while it passes, and of those that wait at a port the one that was sent first
goes on, if the other end is free. The first packet of a message pays the latency of each link.

    make bench NAME='link_simulation OUT [--topology FILE] [--packet BYTES]'
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import re
import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

PACKET = 256  # bytes
SIRACUSA = Path(__file__).resolve().parents[1] / "targets" / "siracusa" / "topology.toml"
Document = Mapping[str, Any]
Message = tuple[int, int, int]  # sender, receiver and tag


@dataclass(frozen=True)
class Step:
    """What a chip does on its own for so many cycles, then perhaps sends or receives a message."""

    cycles: float
    kind: str = ""
    peer: int = 0
    tag: int = 0


@dataclass(frozen=True)
class Packet:
    """A part of a message on its way: the chips that it still has to reach; ``number`` orders packets by when they were sent."""

    number: int
    route: list[int]
    bytes: int
    is_first: bool
    is_last: bool
    message: Message


@dataclass
class Chip:
    """A chip as it runs: the steps that are left, and packets that wait to leave it, by their message."""

    steps: deque[Step]
    waiting: dict[Message, deque[Packet]] = field(default_factory=dict)
    sending: int = 0
    receiving: int = 0
    blocked: Step | None = None
    end: float = 0.0


def steps_of(entry: Document, messages: str) -> Iterator[Step]:
    """What a chip does, by its entry of ``deploy.json`` and its table of messages in C."""
    partners = iter(re.findall(r"\{(\d+), (\d+)\}, /\* (Send|Recv) \*/", messages))
    for call in entry["calls"]:
        own = call["cycles"] - sum(call["stalls"].get("link", {}).values())
        if call["op"] in ("Send", "Recv"):
            peer, tag, kind = next(partners)
            assert kind == call["op"]
            yield Step(own, kind, int(peer), int(tag))
        else:
            yield Step(own)


class Links:
    """What the topology file says: which chips have a link, and what it takes."""

    def __init__(self, topology: Document, chips: int, hertz: float) -> None:
        self.ports = topology["system"].get("ports", 1)
        self.queue = topology["system"].get("queue", 2)
        kinds = {name: (hertz / link["bytes_per_second"], link["latency"] * hertz) for name, link in topology["link"].items()}
        self.costs: dict[tuple[int, int], tuple[float, float]] = {}  # cycles of a byte, and to the first one
        groups = topology.get("groups")
        members, size = list(range(chips)), groups["chips"] if groups else 1
        while groups and len(members) > 1:
            for begin in range(0, len(members), size):
                for pair in itertools.permutations(members[begin : begin + size], 2):
                    self.costs[pair] = kinds[groups["link"]]
            members = members[::size]
        for pair in topology.get("pair", ()):
            a, b = pair["chips"]
            self.costs[a, b] = self.costs[b, a] = kinds[pair["link"]]
        self.chips = chips

    def route(self, source: int, target: int) -> list[int]:
        """The chips of a shortest way, without the first one."""
        ways = deque([[source]])
        seen = {source}
        while ways:
            way = ways.popleft()
            if way[-1] == target:
                return way[1:]
            for other in range(self.chips):
                if (way[-1], other) in self.costs and other not in seen:
                    seen.add(other)
                    ways.append([*way, other])
        raise ValueError(f"no way from chip {source} to chip {target}")


class Simulation:
    """One inference, event by event."""

    def __init__(self, steps: list[deque[Step]], sizes: Mapping[Message, int], links: Links, packet: int) -> None:
        self.chips = [Chip(own) for own in steps]
        self.sizes, self.links, self.packet = sizes, links, packet
        self.under_way: dict[tuple[int, int], int] = {}  # messages that were sent and not received
        self.arrived: set[Message] = set()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.now = 0.0

    def run(self) -> float:
        """The cycle in which the last chip is done."""
        for chip in range(len(self.chips)):
            self.go_on(chip)
        while self.events:
            self.now, _, event = heapq.heappop(self.events)
            event()
        stuck = [number for number, chip in enumerate(self.chips) if chip.steps or chip.blocked]
        assert not stuck, f"chips {stuck} wait for ever"
        return max(chip.end for chip in self.chips)

    def after(self, cycles: float, event: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + cycles, next(self.numbers), event))

    def go_on(self, number: int) -> None:
        """A chip works up to its next message, or its end."""
        chip, cycles = self.chips[number], 0.0
        while chip.steps:
            step = chip.steps.popleft()
            cycles += step.cycles
            if step.kind:
                self.after(cycles, partial(self.exchange, number, step))
                return
        chip.end = self.now + cycles

    def exchange(self, number: int, step: Step) -> None:
        """Hand a message over or take one, or wait until that can be."""
        chip = self.chips[number]
        sender, receiver = (number, step.peer) if step.kind == "Send" else (step.peer, number)
        message, pair = (sender, receiver, step.tag), (sender, receiver)
        if step.kind == "Send":
            if self.under_way.get(pair, 0) >= self.links.queue:
                chip.blocked = step
                return
            self.under_way[pair] = self.under_way.get(pair, 0) + 1
            self.split(message)
            self.serve()
        elif message not in self.arrived:
            chip.blocked = step
            return
        else:
            self.under_way[pair] -= 1
        chip.blocked = None
        self.go_on(number)
        other = self.chips[step.peer]
        if other.blocked and other.blocked.peer == number and other.blocked.kind != step.kind and step.kind == "Recv":
            self.exchange(step.peer, other.blocked)

    def split(self, message: Message) -> None:
        """Packets of a message, at its sender."""
        left, is_first, route = self.sizes[message], True, self.links.route(*message[:2])
        while left > 0:
            count = min(left, self.packet)
            left -= count
            self.wait(message[0], Packet(next(self.numbers), route, count, is_first, left == 0, message))
            is_first = False

    def wait(self, place: int, packet: Packet) -> None:
        self.chips[place].waiting.setdefault(packet.message, deque()).append(packet)

    def serve(self) -> None:
        """Begin every packet that has a port at both ends, in the order in which they were sent; those of a message follow each other."""
        ready = sorted((line[0].number, place, message) for place, chip in enumerate(self.chips) for message, line in chip.waiting.items())
        for _, place, message in ready:
            chip, target = self.chips[place], self.chips[self.chips[place].waiting[message][0].route[0]]
            if chip.sending >= self.links.ports or target.receiving >= self.links.ports:
                continue
            packet = chip.waiting[message].popleft()
            if not chip.waiting[message]:
                del chip.waiting[message]
            chip.sending += 1
            target.receiving += 1
            byte, latency = self.links.costs[place, packet.route[0]]
            self.after(packet.bytes * byte + latency * packet.is_first, partial(self.arrive, packet, place))

    def arrive(self, packet: Packet, source: int) -> None:
        """A packet is at the next chip: it goes on, or a message is complete."""
        target = packet.route[0]
        self.chips[source].sending -= 1
        self.chips[target].receiving -= 1
        if len(packet.route) > 1:
            self.wait(target, replace(packet, route=packet.route[1:]))
        elif packet.is_last:
            self.arrived.add(packet.message)
            waits = self.chips[target].blocked
            if waits and waits.kind == "Recv" and (waits.peer, target, waits.tag) == packet.message:
                self.exchange(target, waits)
        self.serve()


def simulate(manifest: Document, tables: list[str], topology: Document, packet: int = PACKET) -> float:
    """Cycles of one inference.

    Args:
        manifest: ``deploy.json``.
        tables: of every chip the text of ``src/messages.c``.
        topology: the topology file.
        packet: bytes that move at once.
    """
    clock = topology["system"].get("mhz", manifest["machine"]["mhz"]) * 1e6
    sizes = {(m["from"], m["to"], m["tag"]): m["bytes"] for m in manifest["messages"]}
    steps = [deque(steps_of(entry, table)) for entry, table in zip(manifest["chips"], tables, strict=True)]
    return Simulation(steps, sizes, Links(topology, len(steps), clock), packet).run()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("project", type=Path, metavar="OUT", help="a project of several chips")
    parser.add_argument("--topology", type=Path, default=SIRACUSA, metavar="FILE", help="that of Siracusa by default")
    parser.add_argument("--packet", type=int, default=PACKET, metavar="BYTES")
    args = parser.parse_args(arguments)
    manifest = json.loads((args.project / "deploy.json").read_text())
    tables = [(args.project / "chips" / str(entry["chip"]) / "src" / "messages.c").read_text() for entry in manifest["chips"]]
    cycles = simulate(manifest, tables, tomllib.loads(args.topology.read_text()), args.packet)
    print(f"{manifest['cycles']} cycles by the compiler, {cycles:.0f} by packets: {100 * (cycles / manifest['cycles'] - 1):+.2f} %")
