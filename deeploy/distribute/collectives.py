"""Sums and copies over many chips as single messages, and which algorithm is fastest on a topology.

An *algorithm* is a list of steps: a chip sends a chunk of a tensor to another one, which adds it to its own (reduce), or keeps it (spread).
In groups of so many as the topology has, again and again (hierarchical); all with the first chip (flat); from neighbour to neighbour in
chunks, all of which move at once (ring). In a copy at once, the chips
of a group that have it may become twice as many with every step (doubling).

In a sum, chips compute what they add chunk by chunk as well, so that links move one while cores compute the next (``script``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import onnx_graphsurgeon as gs

from deeploy.graph.topology import Ports, Topology

CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # into which tensors may be divided
SMALLEST = 1024  # bytes of a chunk: the latency of shorter messages is as long as they are
SLACK = 0.05  # of the time of a collective, for which no more messages are sent: each costs calls, and code
LARGEST = 65536  # bytes of a message, where chunks can be so small: chips hold some messages that are under way


@dataclass(frozen=True)
class Step:
    """One message: ``chunk`` of the tensor from ``source`` to ``target``."""

    source: int
    target: int
    chunk: int


@dataclass(frozen=True)
class Piece:
    """A chip computes what it has itself of a chunk."""

    chip: int
    chunk: int


@dataclass(frozen=True)
class Total:
    """A chip adds all that has arrived of a chunk to its own."""

    chip: int
    chunk: int


@dataclass(frozen=True)
class Effort:
    """Seconds that a chip computes: all of a tensor in one call, and what every call takes at the least."""

    whole: float = 0.0
    call: float = 0.0

    def part(self, count: int) -> float:
        """One of so many equal parts."""
        return self.call + max(0.0, self.whole - self.call) / count


@dataclass(frozen=True)
class Work:
    """What chips do for a collective besides the links: seconds to send or receive a message; to compute what each adds; to add that."""

    message: float = 0.0
    product: Effort = Effort()
    total: Effort = Effort()


@dataclass(frozen=True)
class Costs:
    """What a target takes: seconds to send or receive a message, and for the only kernel of a graph."""

    message: float = 0.0
    effort: Callable[[gs.Graph], Effort] = lambda graph: Effort()


@dataclass(frozen=True)
class Algorithm:
    """A collective: its name, how many chunks the tensor has, and the messages in an order in which they can happen."""

    name: str
    chunks: int
    steps: tuple[Step, ...]

    def box(self, chunk: int, extent: int) -> tuple[int, int]:
        """The indices [begin, end) of a chunk along an axis of ``extent``: in whole words of SIMD units, where there are enough."""
        unit = next(unit for unit in (16, 8, 4, 2, 1) if extent >= unit * self.chunks or unit == 1)
        begin, end = (chunk * extent // self.chunks // unit * unit for chunk in (chunk, chunk + 1))
        return begin, extent if chunk == self.chunks - 1 else end


def script(algorithm: Algorithm) -> Iterator[Piece | Step | Total]:
    """A sum in an order in which it can happen: a chip that sends computes a chunk right before, one that receives is a chunk ahead, so
    that it computes while others send. What has arrived is added by one call, before it is sent on or when it is complete.
    """
    made: set[tuple[int, int]] = set()
    arrived: set[tuple[int, int]] = set()
    sources = {step.source for step in algorithm.steps}
    last = {step.chunk: number for number, step in enumerate(algorithm.steps) if step.target not in sources}
    for number, step in enumerate(algorithm.steps):
        ahead = min(step.chunk + 1, algorithm.chunks - 1)
        for place in ((step.source, step.chunk), (step.target, step.chunk), (step.target, ahead)):
            if place not in made:
                made.add(place)
                yield Piece(*place)
        if (step.source, step.chunk) in arrived:
            yield Total(step.source, step.chunk)
        yield step
        arrived.add((step.target, step.chunk))
        if last.get(step.chunk) == number:
            yield Total(step.target, step.chunk)


def reductions(members: Sequence[int], group: int, chunks: Sequence[int]) -> Iterator[Algorithm]:
    """Algorithms that add what all members have, up on the first one."""
    back = list(reversed(members))
    for count in chunks:
        for steps, name in ((_up(members, group), "hierarchical"), (_up(members, max(members) + 1), "flat")):
            if name == "hierarchical" or steps != _up(members, group):
                yield Algorithm(name, count, tuple(Step(a, b, c) for c in range(count) for a, b in steps))
        if len(members) > 2:
            yield Algorithm("ring", count, tuple(Step(a, b, c) for c in range(count) for a, b in pairwise(back)))


def spreads(members: Sequence[int], group: int, chunks: Sequence[int]) -> Iterator[Algorithm]:
    """Algorithms that give all members what the first one has."""
    for algorithm in reductions(members, group, chunks):
        if algorithm.name == "ring":
            pairs = list(pairwise(members))
            yield Algorithm("ring", algorithm.chunks, tuple(Step(a, b, c) for c in range(algorithm.chunks) for a, b in pairs))
        else:
            down = list(reversed(_up(members, group if algorithm.name == "hierarchical" else max(members) + 1)))
            yield Algorithm(algorithm.name, algorithm.chunks, tuple(Step(b, a, c) for c in range(algorithm.chunks) for a, b in down))
    if group > 2 and 1 in chunks:
        pairs = [pair for level in reversed(levels(members, group)) for own in level for pair in doubling(own)]
        yield Algorithm("doubling", 1, tuple(Step(a, b, 0) for a, b in pairs))


def doubling(members: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Who sends to whom, where the first one of members sends to the one in their middle, and so on in both halves."""
    half = (len(members) + 1) // 2
    if half < len(members):
        yield members[0], members[half]
        yield from doubling(members[:half])
        yield from doubling(members[half:])


def levels(members: Sequence[int], group: int) -> list[list[list[int]]]:
    """The members by groups; then the first ones of all groups by groups of groups, and so on."""
    found, left, size = list[list[list[int]]](), list(members), 1
    while len(left) > 1:
        size *= max(group, 2)
        groups: dict[int, list[int]] = {}
        for chip in left:
            groups.setdefault(chip // size, []).append(chip)
        found.append(list(groups.values()))
        left = [own[0] for own in groups.values()]
    return found


def _up(members: Sequence[int], group: int) -> list[tuple[int, int]]:
    """Who sends to whom, where the first members of groups collect, then the first of groups of groups, and so on."""
    return [(chip, own[0]) for level in levels(members, group) for own in level for chip in own[1:]]


class Timeline:
    """Seconds at which chips are done with what they were given to do in order, and links with what they move.

    Args:
        message: seconds that a chip takes to send or to receive.
    """

    def __init__(self, topology: Topology, chips: int, message: float) -> None:
        self.topology = topology
        self.chips = chips
        self.message = message
        self.free = [0.0] * chips
        self.ports = Ports(topology, chips)

    def compute(self, chip: int, seconds: float) -> None:
        self.free[chip] += seconds

    def send(self, source: int, target: int, bytes_: float) -> float:
        """When a message arrives."""
        self.free[source] += self.message
        return self.ports.move(source, target, self.topology.seconds(source, target, bytes_, self.chips), self.free[source])[1]

    def receive(self, chip: int, arrival: float) -> None:
        self.free[chip] = max(self.free[chip], arrival) + self.message


def seconds(algorithm: Algorithm, bytes_: int, topology: Topology, chips: int, work: Work, is_sum: bool) -> float:
    """When the last chip is done, as every chip has so many ports in either direction and does one thing after the other.

    Args:
        bytes_: of the whole tensor.
    """
    line = Timeline(topology, chips, work.message)
    for event in script(algorithm) if is_sum else algorithm.steps:
        if isinstance(event, Step):
            line.receive(event.target, line.send(event.source, event.target, -(-bytes_ // algorithm.chunks)))
        else:
            line.compute(event.chip, (work.product if isinstance(event, Piece) else work.total).part(algorithm.chunks))
    return max(line.free)


def fastest(
    algorithms: Iterator[Algorithm], bytes_: int, topology: Topology, chips: int, work: Work, is_sum: bool
) -> tuple[Algorithm, float]:
    """The algorithm with the fewest messages of those that end about first, and its seconds; of equals the one that comes first."""
    timed = [(seconds(algorithm, bytes_, topology, chips, work, is_sum), algorithm) for algorithm in algorithms]
    limit = min(end for end, _ in timed) * (1 + SLACK)
    end, algorithm = min(((end, algorithm) for end, algorithm in timed if end <= limit), key=lambda entry: len(entry[1].steps))
    return algorithm, end


def chunks_of(extent: int, bytes_: int) -> tuple[int, ...]:
    """Into how many chunks a tensor may be divided along an axis: such that messages are not too large, where that can be."""
    possible = [count for count in CHUNKS if count == 1 or (count <= extent and bytes_ >= count * SMALLEST)]
    return tuple(count for count in possible if -(-bytes_ // count) <= LARGEST) or tuple(possible[-1:])
