"""What chips do to move a tensor between them, as events, and which order of events is fastest on a topology.

There are four kinds of events: a chip computes a piece, sends one, receives what another one has sent, and adds what it has to what has
arrived. An *algorithm* is a list of them in an order in which they can happen. Sums end on the first chip, copies begin there: in groups
of so many as the topology has, again and again (hierarchical); all with the first chip (flat); from neighbour to neighbour in chunks, all
of which move at once (ring). In a copy at once, the chips of a group that have it may become twice as many with every step (doubling).

In a sum, chips compute what they add chunk by chunk as well, so that links move one while cores compute the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from deeploy.ir.topology import AUTO, Ports, Topology
from deeploy.ir.values import Graph

CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # into which tensors may be divided
SMALLEST = 1024  # bytes of a chunk: the latency of shorter messages is as long as they are
SLACK = 0.05  # of the time of a collective, for which no more messages are sent: each costs calls, and code
LARGEST = 65536  # bytes of a message, where chunks can be so small: chips hold some messages that are under way

Piece = tuple[int, ...]  # of a copy or a sum: its chunk, and the level, where rows are divided; of a gathering: chips whose parts they are
Pair = tuple[int, int]  # who sends to whom


@dataclass(frozen=True)
class ComputePiece:
    """A chip computes what it has itself of a piece."""

    chip: int
    piece: Piece


@dataclass(frozen=True)
class Send:
    """A chip sends a piece to another one."""

    chip: int
    target: int
    piece: Piece


@dataclass(frozen=True)
class Receive:
    """A chip receives what another one has sent."""

    sent: Send


@dataclass(frozen=True)
class Add:
    """A chip adds all that has arrived to its own of a piece; what is no sum is put together."""

    chip: int
    piece: Piece


Event = ComputePiece | Send | Receive | Add


def pass_on(source: int, target: int, piece: Piece) -> tuple[Send, Receive]:
    """A piece is sent, and received at once."""
    sent = Send(source, target, piece)
    return sent, Receive(sent)


@dataclass(frozen=True)
class Effort:
    """Seconds that a chip computes: all of a tensor in one call, and what every call takes at the least."""

    whole: float = 0.0
    call: float = 0.0

    def part(self, count: int) -> float:
        """Seconds that one of ``count`` equal parts of the computation takes."""
        return self.call + max(0.0, self.whole - self.call) / count

    def share(self, share: float) -> float:
        """Seconds that a share of the computation, between 0 and 1, takes."""
        return self.call + max(0.0, self.whole - self.call) * share


NONE = Effort()


@dataclass(frozen=True)
class Costs:
    """What a target takes: seconds to send or receive a message, and for the only kernel of a graph."""

    message: float = 0.0
    effort: Callable[[Graph], Effort] = lambda graph: NONE


@dataclass(frozen=True)
class Links:
    """What joins the chips: links between so many, and the seconds that a chip takes to send or to receive a message."""

    topology: Topology
    chips: int
    message: float = 0.0

    def seconds(
        self, events: Iterable[Event], sizes: Callable[[Send], float], efforts: Callable[[ComputePiece | Add], float] = lambda event: 0.0
    ) -> float:
        """When the last chip is done, as every chip has so many ports in either direction and does one thing after the other.

        Args:
            sizes: bytes of a message.
            efforts: seconds that a chip computes for an event.
        """
        free, ports, arrivals = [0.0] * self.chips, Ports(self.topology, self.chips), dict[Send, float]()
        for event in events:
            if isinstance(event, Send):
                free[event.chip] += self.message
                moved = self.topology.seconds(event.chip, event.target, sizes(event), self.chips)
                arrivals[event] = ports.move(event.chip, event.target, moved, free[event.chip])[1]
            elif isinstance(event, Receive):
                free[event.sent.target] = max(free[event.sent.target], arrivals[event.sent]) + self.message
            else:
                free[event.chip] += efforts(event)
        return max(free)


@dataclass(frozen=True)
class Algorithm:
    """A collective: its name, how many chunks the tensor has, and the events."""

    name: str
    chunks: int
    events: tuple[Event, ...]

    @property
    def sends(self) -> list[Send]:
        return [event for event in self.events if isinstance(event, Send)]


def chunk_box(chunk: int, chunks: int, extent: int) -> tuple[int, int]:
    """The indices [begin, end) of a chunk along an axis of ``extent``: in whole words of SIMD units, where there are enough."""
    unit = next(unit for unit in (16, 8, 4, 2, 1) if extent >= unit * chunks or unit == 1)
    begin, end = (number * extent // chunks // unit * unit for number in (chunk, chunk + 1))
    return begin, extent if chunk == chunks - 1 else end


def _order_sum(pairs: Sequence[Pair], chunks: int) -> Iterator[Event]:
    """A sum in an order in which it can happen: a chip that sends computes a chunk right before, one that receives is a chunk ahead, so
    that it computes while others send. What has arrived is added by one call, before it is sent on or when it is complete.
    """
    steps = [(*pair, (chunk,)) for chunk in range(chunks) for pair in pairs]
    sources = {source for source, _ in pairs}
    last = {piece: number for number, (_, target, piece) in enumerate(steps) if target not in sources}
    computed, arrived = set[tuple[int, Piece]](), set[tuple[int, Piece]]()
    for number, (source, target, piece) in enumerate(steps):
        ahead = (min(piece[0] + 1, chunks - 1),)
        for place in ((source, piece), (target, piece), (target, ahead)):
            if place not in computed:
                computed.add(place)
                yield ComputePiece(*place)
        if (source, piece) in arrived:
            yield Add(source, piece)
        yield from pass_on(source, target, piece)
        arrived.add((target, piece))
        if last.get(piece) == number:
            yield Add(target, piece)


def _reduction_ways(members: Sequence[int], group: int, wanted: str) -> dict[str, list[Pair]]:
    """By the name of an algorithm who sends to whom to reach the first member; by doubling only where that is ``wanted``."""
    ways = {
        "hierarchical": _pairs_upwards(members, group),
        "flat": _pairs_upwards(members, max(members) + 1),
        "ring": list(pairwise(reversed(members))),
    }
    if wanted == "doubling":
        ways[wanted] = [(b, a) for level in group_levels(members, group) for own in level for a, b in reversed(list(doubling_pairs(own)))]
    return {
        name: pairs
        for name, pairs in ways.items()
        if not (name == "flat" and pairs == ways["hierarchical"]) and not (name == "ring" and len(members) < 3)
    }


def list_reductions(members: Sequence[int], group: int, chunks: Sequence[int], wanted: str = AUTO) -> Iterator[Algorithm]:
    """Algorithms that add what all members have, up on the first one."""
    ways = _reduction_ways(members, group, wanted)
    return (Algorithm(name, count, tuple(_order_sum(pairs, count))) for count in chunks for name, pairs in ways.items())


def list_spreads(members: Sequence[int], group: int, chunks: Sequence[int], wanted: str = AUTO) -> Iterator[Algorithm]:
    """Algorithms that give all members what the first one has."""
    ways = [
        (name, count, [(target, source) for source, target in reversed(pairs)])
        for count in chunks
        for name, pairs in _reduction_ways(members, group, wanted).items()
    ]
    if group > 2 and 1 in chunks and wanted == AUTO:
        ways.append(
            ("doubling", 1, [pair for level in reversed(group_levels(members, group)) for own in level for pair in doubling_pairs(own)])
        )
    for name, count, pairs in ways:
        yield Algorithm(name, count, tuple(event for chunk in range(count) for pair in pairs for event in pass_on(*pair, (chunk,))))


def doubling_pairs(members: Sequence[int]) -> Iterator[Pair]:
    """Who sends to whom, where the first one of members sends to the one in their middle, and so on in both halves."""
    half = (len(members) + 1) // 2
    if half < len(members):
        yield members[0], members[half]
        yield from doubling_pairs(members[:half])
        yield from doubling_pairs(members[half:])


def group_levels(members: Sequence[int], group: int) -> list[list[list[int]]]:
    """The members by groups; then the first ones of all groups by groups of groups, and so on."""
    levels_found, left, size = list[list[list[int]]](), list(members), 1
    while len(left) > 1:
        size *= max(group, 2)
        groups: dict[int, list[int]] = {}
        for chip in left:
            groups.setdefault(chip // size, []).append(chip)
        levels_found.append(list(groups.values()))
        left = [own[0] for own in groups.values()]
    return levels_found


def _pairs_upwards(members: Sequence[int], group: int) -> list[Pair]:
    """Who sends to whom, where the first members of groups collect, then the first of groups of groups, and so on."""
    return [(chip, own[0]) for level in group_levels(members, group) for own in level for chip in own[1:]]


def fastest_algorithm(
    algorithms: Iterable[Algorithm], bytes_: int, links: Links, product: Effort = NONE, total: Effort = NONE
) -> tuple[Algorithm, float]:
    """The algorithm with the fewest messages of those that end about first, and its seconds; of equals the one that comes first.

    Where the topology names one, it is the only one; where it is the same as ``hierarchical`` between these chips, that.

    Args:
        bytes_: of the whole tensor.
        product: what a chip takes to compute what it adds.
        total: what it takes to add all of it up.
    """

    def seconds(algorithm: Algorithm) -> float:
        chunks = algorithm.chunks
        parts = {ComputePiece: product.part(chunks), Add: total.part(chunks)}
        return links.seconds(algorithm.events, lambda sent: -(-bytes_ // chunks), lambda event: parts[type(event)])

    every, wanted = list(algorithms), links.topology.collective
    named = [one for one in every if one.name == wanted] or [one for one in every if one.name == "hierarchical"]
    timed = [(seconds(algorithm), algorithm) for algorithm in (every if wanted == AUTO else named)]
    limit = min(end for end, _ in timed) * (1 + SLACK)
    end, algorithm = min(((end, algorithm) for end, algorithm in timed if end <= limit), key=lambda entry: len(entry[1].sends))
    return algorithm, end


def chunks_of(extent: int, bytes_: int) -> tuple[int, ...]:
    """Into how many chunks a tensor may be divided along an axis: such that messages are not too large, where that can be."""
    possible = [count for count in CHUNKS if count == 1 or (count <= extent and bytes_ >= count * SMALLEST)]
    return tuple(count for count in possible if -(-bytes_ // count) <= LARGEST) or tuple(possible[-1:])
