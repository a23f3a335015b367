"""The order of calls in which a network on a flat machine needs the least memory at once.

A call may run when everything is there that it reads, and when nobody reads any more what it overwrites; what talks to other chips or
outlives an inference keeps its order. Among all such orders a beam search looks for the one with the least peak: orders grow call by call;
of those that have run the same calls the best one stays, and of the others a few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeploy.midend.program import Call, Operand, Program, Role

WIDTH = 16  # orders that grow side by side
MOST_CALLS = 512  # of networks whose order is looked for
MOST_ELEMENTS = 1 << 20  # of operands whose elements are compared one by one


def ordered(program: Program) -> Program:
    """The program with its calls in an order that needs less memory; itself where none is found."""
    if len(program.calls) > MOST_CALLS:
        return program
    graph = _Graph(program)
    if all(graph.before[step] >> (step - 1) & 1 for step in range(1, len(program.calls))):
        return program  # there is no other order
    order = _search(graph)
    if order == list(range(len(program.calls))):
        return program
    further = tuple(program.further[step] for step in order) if program.further else ()
    return replace(program, calls=tuple(program.calls[step] for step in order), further=further)


class _Graph:
    """Which calls come before which, and what they need while they run."""

    def __init__(self, program: Program) -> None:
        self.before = [0] * len(program.calls)  # sets of steps, as bits
        self.buffers: list[list[str]] = []
        touched: dict[str, list[tuple[int, Operand, bool]]] = {}
        fixed = 0
        for step, call in enumerate(program.calls):
            named = [(name, operand) for name, operand in call.operands.items() if program.buffers[operand.buffer].data is None]
            for name, operand in named:
                for other, seen, is_written in touched.get(operand.buffer, ()):
                    if (is_written or name in call.writes) and _meet(operand, seen):
                        self.before[step] |= 1 << other
            if _is_fixed(program, call):
                self.before[step] |= fixed
                fixed |= 1 << step
            for name, operand in named:
                touched.setdefault(operand.buffer, []).append((step, operand, name in call.writes))
            self.buffers.append([name for name in _named(call) if program.buffers[name].role in (Role.LOCAL, Role.SCRATCH)])
        self.users = {
            name: sum(1 << step for step, names in enumerate(self.buffers) if name in names) for row in self.buffers for name in row
        }
        self.bytes = {name: program.buffers[name].bytes for name in self.users}
        self.behind = [[later for later, needed in enumerate(self.before) if needed >> step & 1] for step in range(len(self.before))]


def _named(call: Call) -> list[str]:
    return list(dict.fromkeys([*(operand.buffer for operand in call.operands.values()), *call.scratch.values()]))


def _is_fixed(program: Program, call: Call) -> bool:
    """Whether a call sends, receives, or works on a state."""
    return call.kernel.link is not None or any(program.buffers[o.buffer].role is Role.STATE for o in call.operands.values())


def _meet(a: Operand, b: Operand) -> bool:
    """Whether two operands have elements of their buffer in common."""
    ends = [
        (o.access.offset, o.access.offset + sum((n - 1) * s for n, s in zip(o.access.shape, o.access.strides, strict=True))) for o in (a, b)
    ]
    if a.step or b.step or any(stride < 0 for o in (a, b) for stride in o.access.strides):
        return True
    if ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]:
        return False
    if max(a.access_elements, b.access_elements) > MOST_ELEMENTS:
        return True
    return bool(np.intersect1d(a.elements(), b.elements()).size)


@dataclass(frozen=True)
class _Begun:
    """The calls that have run, in order; bytes that are there behind the last one, the most that there were, and who may be next."""

    done: int
    order: tuple[int, ...]
    bytes: int
    peak: int
    ready: tuple[int, ...]


def _search(graph: _Graph) -> list[int]:
    """The best order that is found; that of the program where none is better."""
    count = len(graph.before)
    begin = own = _Begun(0, (), 0, 0, tuple(step for step in range(count) if not graph.before[step]))
    for step in range(count):
        own = _grown(graph, own, step)
    beam: Sequence[_Begun] = [begin]
    for _ in range(count):
        found: dict[int, _Begun] = {}
        for begun in beam:
            for step in begun.ready:
                one = _grown(graph, begun, step)
                if one.done not in found or _rank(one) < _rank(found[one.done]):
                    found[one.done] = one
        beam = sorted(found.values(), key=_rank)[:WIDTH]
    best = min(beam, key=_rank, default=own)
    return list(best.order if best.peak < own.peak else own.order)


def _rank(begun: _Begun) -> tuple[int, int, tuple[int, ...]]:
    return begun.peak, begun.bytes, begun.order


def _grown(graph: _Graph, begun: _Begun, step: int) -> _Begun:
    """A call more."""
    names, done = graph.buffers[step], begun.done | 1 << step
    during = begun.bytes + sum(graph.bytes[name] for name in names if not graph.users[name] & begun.done)
    left = during - sum(graph.bytes[name] for name in names if not graph.users[name] & ~done)
    following = [later for later in graph.behind[step] if not graph.before[later] & ~done]
    ready = (*(other for other in begun.ready if other != step), *following)
    return _Begun(done, (*begun.order, step), left, max(begun.peak, during), ready)
