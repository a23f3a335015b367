"""Parts of a tensor, each of which a chip has, put together on the first chip or on all of them.

Parts are put one behind the other as they pass, in the order of chips, so that a message carries all that a chip has. In groups, and in
groups of groups: to the first chip, the first ones of groups collect. To all, the chips of a group exchange what they have, then the
first ones of groups do; what others lack then goes back to them, to twice as many with every step.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import pairwise

from deeploy.partition.collectives import Add, Event, Links, Pair, Piece, Receive, Send, doubling_pairs, group_levels, pass_on

Way = Callable[[Sequence[int], int, Container[int]], Iterator[Event]]


def to_first(members: Sequence[int], group: int, owners: Container[int]) -> Iterator[Event]:
    """Parts of all members on their way to the first one; ``owners`` are those that have one."""
    has = _own_pieces(members, owners)
    for level in _gather_levels(members, group):
        for own in level:
            yield from (event for chip in own[1:] if has[chip] for event in pass_on(chip, own[0], has[chip]))
            has[own[0]] = _all_pieces(has, own)


def to_all(members: Sequence[int], group: int, owners: Container[int], least: int = 0) -> Iterator[Event]:
    """Parts of all members on their way to all of them; below level ``least``, the first ones of groups collect them.

    A chip that sends back what others lack puts all together first.
    """
    has, levels = _own_pieces(members, owners), _gather_levels(members, group)
    every = _all_pieces(has, members)
    for number, level in enumerate(levels):
        pairs = [pair for own in level for pair in _gather_rounds(own) if number >= least or pair[1] == own[0]]
        sends = [Send(*pair, has[pair[0]]) for pair in pairs if has[pair[0]]]
        yield from sends
        yield from map(Receive, sends)
        for own in level:
            has |= dict.fromkeys(own if number >= least else own[:1], _all_pieces(has, own))
    for number, level in reversed(list(enumerate(levels[:-1]))):
        for own in level:
            lacking = tuple(part for part in every if part not in has[own[-1]] or number < least) if len(own) > 1 else ()
            places = [every.index(part) for part in lacking]
            if any(b - a > 1 for a, b in pairwise(places)):
                lacking = every
            yield from (event for pair in doubling_pairs(own) if lacking for event in (Add(pair[0], every), *pass_on(*pair, lacking)))


def by_leaders(members: Sequence[int], group: int, owners: Container[int]) -> Iterator[Event]:
    """Gathers parts on all chips; only the leaders of the largest groups exchange what they have, which takes few messages."""
    yield from to_all(members, group, owners, len(_gather_levels(members, group)) - 1)


def _own_pieces(members: Sequence[int], owners: Container[int]) -> dict[int, Piece]:
    return {chip: (chip,) if chip in owners else () for chip in members}


def _gather_levels(members: Sequence[int], group: int) -> list[list[list[int]]]:
    """Groups of members, and of their first ones; all at once where the topology has no groups."""
    return group_levels(members, group if group > 1 else max(members) + 1)


def _all_pieces(has: Mapping[int, Piece], own: Sequence[int]) -> Piece:
    return tuple(sorted(part for chip in own for part in has[chip]))


def _gather_rounds(own: Sequence[int]) -> Iterator[Pair]:
    """Who sends to whom, such that in each round every chip sends to another one."""
    for distance in range(1, len(own)):
        yield from ((chip, own[(place + distance) % len(own)]) for place, chip in enumerate(own))


def gather_seconds(way: Way, sizes: Mapping[int, int], links: Links) -> float:
    """When the last of all chips has what it should; ``sizes`` are the bytes of parts, by chip."""
    events = way(range(links.chips), links.topology.group, sizes)
    return links.seconds(events, lambda sent: sum(sizes[part] for part in sent.piece))
