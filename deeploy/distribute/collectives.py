"""Sums and copies over many chips as single messages, and which way is fastest on a topology.

A *way* is a list of steps: a chip sends a chunk of a tensor to another one, which adds it to its own (reduce), or keeps it (spread).
Three ways exist: in groups of so many as the topology has, again and again (hierarchical); all with the first chip (flat); from
neighbour to neighbour in chunks, all of which move at once (ring).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from deeploy.graph.target import Target
from deeploy.graph.topology import Topology
from deeploy.graph.types import DType

CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # into which tensors may be divided
SMALLEST = 1024  # bytes of a chunk: the latency of shorter messages is as long as they are
LARGEST = 65536  # bytes of a message, where chunks can be so small: chips hold some messages on their way


@dataclass(frozen=True)
class Step:
    """One message: ``chunk`` of the tensor from ``source`` to ``target``; a chip adds what it has of a ``level`` before the next one."""

    source: int
    target: int
    chunk: int
    level: int = 0


@dataclass(frozen=True)
class Software:
    """Seconds that chips spend on a message besides the link's: to send or receive it, and to add what has arrived."""

    message: float = 0.0
    sum: float = 0.0


@dataclass(frozen=True)
class Way:
    """A collective: its name, how many chunks the tensor has, and the messages in an order in which they can happen."""

    name: str
    chunks: int
    steps: tuple[Step, ...]

    def box(self, chunk: int, extent: int) -> tuple[int, int]:
        """The indices [begin, end) of a chunk along an axis of ``extent``."""
        return chunk * extent // self.chunks, (chunk + 1) * extent // self.chunks


def reductions(members: Sequence[int], group: int, chunks: Sequence[int]) -> Iterator[Way]:
    """Ways to add what all members have, up on the first one."""
    back = list(reversed(members))
    for count in chunks:
        for steps, name in ((_up(members, group), "hierarchical"), (_up(members, max(members) + 1), "flat")):
            if name == "hierarchical" or steps != _up(members, group):
                yield Way(name, count, tuple(Step(a, b, c, level) for c in range(count) for a, b, level in steps))
        if len(members) > 2:
            yield Way("ring", count, tuple(Step(a, b, c) for c in range(count) for a, b in pairwise(back)))


def spreads(members: Sequence[int], group: int, chunks: Sequence[int]) -> Iterator[Way]:
    """Ways to give all members what the first one has."""
    for way in reductions(members, group, chunks):
        if way.name == "ring":
            pairs = list(pairwise(members))
            yield Way("ring", way.chunks, tuple(Step(a, b, c) for c in range(way.chunks) for a, b in pairs))
        else:
            down = list(reversed(_up(members, group if way.name == "hierarchical" else max(members) + 1)))
            yield Way(way.name, way.chunks, tuple(Step(b, a, c) for c in range(way.chunks) for a, b, _ in down))


def _up(members: Sequence[int], group: int) -> list[tuple[int, int, int]]:
    """Who sends to whom, by level, where the first members of groups collect, then the first of groups of groups, and so on."""
    steps, left, size, level = list[tuple[int, int, int]](), list(members), 1, 0
    group = max(group, 2)
    while len(left) > 1:
        size *= group
        leaders: dict[int, int] = {}
        for chip in left:
            leader = leaders.setdefault(chip // size, chip)
            if leader != chip:
                steps.append((chip, leader, level))
        left, level = list(leaders.values()), level + 1
    return steps


def seconds(way: Way, bytes_: int, topology: Topology, chips: int, software: Software) -> float:
    """When the last message of a way has arrived and is dealt with, as every chip has so many ports in either direction.

    Args:
        bytes_: of the whole tensor.
        software: seconds that chips spend; a chip does one thing after the other.
    """
    sending: dict[int, list[float]] = {}
    receiving: dict[int, list[float]] = {}
    ready: dict[tuple[int, int], float] = {}
    free: dict[int, float] = {}
    for message in way.steps:
        out = sending.setdefault(message.source, [0.0] * topology.ports)
        into = receiving.setdefault(message.target, [0.0] * topology.ports)
        a, b = out.index(min(out)), into.index(min(into))
        free[message.source] = max(free.get(message.source, 0.0), ready.get((message.source, message.chunk), 0.0)) + software.message
        begin = max(out[a], into[b], free[message.source])
        end = begin + topology.seconds(message.source, message.target, -(-bytes_ // way.chunks), chips)
        out[a] = into[b] = end
        free[message.target] = max(free.get(message.target, 0.0), end) + software.message + software.sum
        ready[message.target, message.chunk] = free[message.target]
    return max(ready.values(), default=0.0)


def fastest(ways: Iterator[Way], bytes_: int, topology: Topology, chips: int, software: Software) -> Way:
    """The way that ends first; of equals the one that comes first."""
    timed = [(seconds(way, bytes_, topology, chips, software), number, way) for number, way in enumerate(ways)]
    return min(timed, key=lambda entry: entry[:2])[2]


def software(target: Target, topology: Topology) -> Software:
    """What a target's timing says of messages and sums; nothing, where it has none."""
    timing = target.timing
    links = [kernel for kernel in target.kernels if kernel.link is not None]
    sums = [kernel for kernel in target.kernels if kernel.op == "Add" and DType.INT32 in kernel.types["a"]]
    if timing is None or not links or not sums:
        return Software()
    message, rate = timing.kernel(links[0].name), timing.kernel(sums[0].name)
    second = topology.mhz * 1e6
    return Software(message.call / second, (rate.call + rate.cold + timing.fork.get(sums[0].engine, 0.0)) / second)


def chunks_of(extent: int, bytes_: int) -> tuple[int, ...]:
    """Into how many chunks a tensor may be divided along an axis: such that messages are not too large, where that can be."""
    possible = [count for count in CHUNKS if count == 1 or (count <= extent and bytes_ >= count * SMALLEST)]
    return tuple(count for count in possible if -(-bytes_ // count) <= LARGEST) or tuple(possible[-1:])
