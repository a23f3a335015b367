"""The order of a chain: its calls clock by clock, and the rows that move in its rings (``deeploy.midend.chain``)."""

from __future__ import annotations

from deeploy.graph.expr import Value, Variable, plain, quotient, remainder
from deeploy.midend.chain import CLOCK, Chain
from deeploy.schedule.ir import Address, Condition, Do, Loop, Node, Slide, guarded


def clocks(chain: Chain) -> Loop:
    """All calls of a chain: in every clock a tile of those that have one then, in the order of the program."""
    clock = Variable(CLOCK, 0, chain.clocks - 1)
    body: list[Node] = []
    for member in chain.members:
        waits, turn = divmod(member.start, member.every)
        conditions = [
            Condition(clock, ">=", member.start),
            Condition(clock, "<", member.start + member.every * member.trips),
            Condition(remainder(clock, member.every), "==", turn),
        ]
        body += guarded(conditions, [Do(member.step, "tile", plain(quotient(clock, member.every) - waits))])
    return Loop(clock, chain.clocks, tuple(body))


def slides(chain: Chain, buffer: str, ring: Address, unit: int, tile: Value) -> list[Node]:
    """What makes room for a tile in a ring of elements of ``unit`` bytes: nothing where it holds one tile, or all rows."""
    if buffer not in chain.rings:
        return []
    one = chain.rings[buffer]
    rows = chain.member(one.producer).rows
    if one.rows == rows:
        return []
    full, moved, row = one.rows // rows, one.tiles * rows, one.pitch * unit
    conditions = [Condition(tile, ">=", full), Condition(remainder(tile, one.tiles), "==", full % one.tiles)]
    return guarded(conditions, [Slide(ring, moved * row, (one.rows - moved) * row)])
