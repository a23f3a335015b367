"""The order of calls: the one that needs the least memory at once, and the one in which calls of two engines can run side by side.

A call may run when everything is there that it reads, and when nobody reads any more what it overwrites; what talks to other chips or
outlives an inference keeps its order. Among all such orders a beam search looks for the best one: orders grow call by call, or by a
group of calls of which none needs the other; of those that have run the same calls the best one stays, and of the others a few. Memory is
looked for from both ends: from the front, results that are read much later look as good as any; from the end, they come late.
"""

from __future__ import annotations

import copy
import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from deeploy.ir.memo import by_arguments
from deeploy.planning.program import Call, Operand, Program, Role

WIDTH = 16  # orders that grow side by side
MOST_ALIKE = 2  # of these, from the end, with the same peak and the same bytes
MOST_CALLS = 512  # of networks whose order is looked for so widely; of larger ones, fewer orders grow side by side
MOST_ELEMENTS = 1 << 20  # of operands whose elements are compared one by one
MOST_READY = 8  # calls that may run next, of which groups are made: the first ones of the program
LARGEST = 3  # calls of a group


def order_calls(program: Program) -> Program:
    """The program with its calls in an order that needs less memory; itself where none is found."""
    graph = _OrderGraph(program)
    if not graph.is_free:
        return program
    order = _search_both_ends(graph)
    return program if order == list(range(len(program.calls))) else arrange_calls(program, order)


def arrange_calls(program: Program, order: Sequence[int]) -> Program:
    """The program with its calls in another order: the steps that they have now."""
    further = tuple(program.further[step] for step in order) if program.further else ()
    return replace(program, calls=tuple(program.calls[step] for step in order), further=further)


def in_order(program: Program, pairs: Iterable[tuple[int, int]]) -> list[int] | None:
    """The steps of a program, those of each pair (later, earlier) in that order, and otherwise as they are; None where that is a circle."""
    before, done, order = list(_OrderGraph(program).before), 0, list[int]()
    for later, earlier in pairs:
        before[later] |= 1 << earlier
    while len(order) < len(before):
        ready = (step for step, needed in enumerate(before) if not done >> step & 1 and not needed & ~done)
        step = next(ready, None)
        if step is None:
            return None
        order.append(step)
        done |= 1 << step
    return order


@dataclass(frozen=True)
class EngineLoad:
    """Cycles in which a call keeps an accelerator busy, and then cores."""

    jobs: float
    cores: float


def is_free(program: Program) -> bool:
    """Whether the calls of a program could stand in another order."""
    return 2 < len(program.calls) <= MOST_CALLS and _OrderGraph(program).is_free


def side_by_side(program: Program, loads: Sequence[EngineLoad], worth: float) -> list[int] | None:
    """The order in which the most cycles of accelerators and cores are expected to pass at the same time.

    This is list scheduling with engines as resources: what runs next is a call, or a group of calls that are ready together. The calls of a
    group are a flow shop of two machines: jobs one after the other on the accelerator, and what cores do of a call behind its job.

    Args:
        loads: of every call.
        worth: cycles that it has to save more than the order of the program, in which neighbours are groups as well.

    Returns:
        The steps of the program; None where no order saves that much.
    """
    if min(sum(load.jobs for load in loads), sum(load.cores for load in loads)) < worth:
        return None
    graph = _OrderGraph(program)
    search = _Grouping(graph, loads)
    own, best = search.best(is_fixed=True), search.best(is_fixed=False)
    return list(best.order) if own.cycles - best.cycles >= max(worth, 1) else None


@dataclass(frozen=True)
class _Grouped:
    """The calls that have run, in order, the cycles that took, and who may be next."""

    done: int
    order: tuple[int, ...]
    cycles: float
    ready: tuple[int, ...]

    @property
    def rank(self) -> tuple[float, tuple[int, ...]]:
        """Sorts beginnings of an order, best first: by cycles."""
        return self.cycles, self.order


class _Grouping:
    """A search for groups of calls of two engines."""

    def __init__(self, graph: _OrderGraph, loads: Sequence[EngineLoad]) -> None:
        self.graph = graph
        self.loads = loads

    def best(self, is_fixed: bool) -> _Grouped:
        """The fewest cycles that are best_by_calls: of the order of the program, or of any."""
        count = len(self.loads)
        begin = _Grouped(0, (), 0.0, tuple(step for step in range(count) if not self.graph.before[step]))
        best_by_calls: list[dict[int, _Grouped]] = [{} for _ in range(count + 1)]  # by how many calls have run, and which
        best_by_calls[0][0] = begin
        for number in range(count):
            for begun in sorted(best_by_calls[number].values(), key=lambda one: one.rank)[:WIDTH]:
                for group in self._fixed(begun) if is_fixed else self._groups(begun):
                    one = self._grown(begun, group)
                    known = best_by_calls[number + len(group)].get(one.done)
                    if known is None or one.rank < known.rank:
                        best_by_calls[number + len(group)][one.done] = one
        return min(best_by_calls[count].values(), key=lambda one: one.rank)

    def _fixed(self, begun: _Grouped) -> Iterator[tuple[int, ...]]:
        """The next calls of the program that are ready together."""
        first = len(begun.order)
        for last in range(first, min(first + LARGEST, len(self.loads))):
            if last not in begun.ready:
                return
            yield tuple(range(first, last + 1))

    def _groups(self, begun: _Grouped) -> Iterator[tuple[int, ...]]:
        """Single calls, and those that save something together."""
        ready = sorted(begun.ready)[:MOST_READY]
        yield from ((step,) for step in ready)
        for size in range(2, LARGEST + 1):
            for group in itertools.combinations(ready, size):
                if self._cycles(group) < sum(self._cycles((step,)) for step in group):
                    yield group

    @by_arguments
    def _cycles(self, group: tuple[int, ...]) -> float:
        """Those of a group by Johnson's rule: first what occupies the accelerator for a shorter time than cores, shortest jobs first."""
        own = [self.loads[step] for step in group]
        ahead = sorted((load for load in own if load.jobs < load.cores), key=lambda load: load.jobs)
        after = sorted((load for load in own if load.jobs >= load.cores), key=lambda load: -load.cores)
        jobs, cores = 0.0, 0.0
        for load in (*ahead, *after):
            jobs += load.jobs
            cores = max(cores, jobs) + load.cores if load.cores else cores
        return max(jobs, cores)

    def _grown(self, begun: _Grouped, group: tuple[int, ...]) -> _Grouped:
        """A group more."""
        done, ready = begun.done, [step for step in begun.ready if step not in group]
        for step in group:
            done |= 1 << step
            ready += [later for later in self.graph.after[step] if not self.graph.before[later] & ~done]
        return _Grouped(done, (*begun.order, *group), begun.cycles + self._cycles(group), tuple(ready))


def _steps_of_set(bits: int) -> Iterator[int]:
    """The steps of a set."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


_Touch: TypeAlias = tuple[int, Operand]


class _OrderGraph:
    """Which calls come before which, and what they need while they run."""

    def __init__(self, program: Program) -> None:
        self.before = [0] * len(program.calls)  # sets of steps, as bits
        self.buffers: list[list[str]] = []
        self.users: dict[str, int] = {}
        touched: dict[str, tuple[list[_Touch], list[_Touch]]] = {}  # by those that only read, and by those that write
        fixed = 0
        for step, call in enumerate(program.calls):
            named = [(name, operand) for name, operand in call.operands.items() if program.buffers[operand.buffer].data is None]
            for name, operand in named:
                readers, writers = touched.get(operand.buffer, ((), ()))
                for other, seen in (*readers, *writers) if name in call.writes else writers:
                    if operands_meet(operand, seen):
                        self.before[step] |= 1 << other
            if _is_fixed(program, call):
                self.before[step] |= fixed
                fixed |= 1 << step
            for name, operand in named:
                touched.setdefault(operand.buffer, ([], []))[name in call.writes].append((step, operand))
            self.buffers.append([name for name in _name_buffers(call) if program.buffers[name].role in (Role.LOCAL, Role.SCRATCH)])
            for name in self.buffers[-1]:
                self.users[name] = self.users.get(name, 0) | 1 << step
        self.bytes = {name: program.buffers[name].bytes for name in self.users}
        self.after: list[list[int]] = [[] for _ in self.before]
        for later, needed in enumerate(self.before):
            for step in _steps_of_set(needed):
                self.after[step].append(later)

    def reversed(self) -> _OrderGraph:
        """The calls in the opposite order: what comes first in this one comes last in that one."""
        other = copy.copy(self)
        other.before = [sum(1 << step for step in later) for later in self.after]
        other.after = [list(_steps_of_set(needed)) for needed in self.before]
        return other

    @property
    def is_free(self) -> bool:
        """Whether the calls could run in another order."""
        return not all(self.before[step] >> (step - 1) & 1 for step in range(1, len(self.before)))


def _name_buffers(call: Call) -> list[str]:
    return list(dict.fromkeys([*(operand.buffer for operand in call.operands.values()), *call.scratch.values()]))


def _is_fixed(program: Program, call: Call) -> bool:
    """Whether a call sends, receives, or works on a state."""
    return call.kernel.link is not None or any(program.buffers[o.buffer].role is Role.STATE for o in call.operands.values())


def operands_meet(a: Operand, b: Operand) -> bool:
    """Whether two operands have elements of their buffer in common."""
    ends = [
        (o.access.offset, o.access.offset + sum((n - 1) * s for n, s in zip(o.access.shape, o.access.strides, strict=True))) for o in (a, b)
    ]
    if a.step or b.step or any(stride < 0 for o in (a, b) for stride in o.access.strides):
        return True
    if ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0] or not min(a.access_elements, b.access_elements):
        return False
    if (a.access.is_dense and b.access.is_dense) or max(a.access_elements, b.access_elements) > MOST_ELEMENTS:
        return True
    return bool(np.intersect1d(a.elements(), b.elements()).size)


_Effect: TypeAlias = tuple[int, int]  # bytes that are there for the first time during a call, and for the last time


@dataclass(frozen=True)
class _Begun:
    """The calls that have run, in order; bytes that are there behind the last one, the most that there were, and who may be next.

    These are sorted, by what they do to the bytes.
    """

    done: int
    order: tuple[int, ...]
    bytes: int
    peak: int
    ready: Mapping[_Effect, Sequence[int]]

    @property
    def rank(self) -> tuple[int, int, tuple[int, ...]]:
        """Sorts beginnings of an order, best first: by the peak of bytes."""
        return self.peak, self.bytes, self.order


def _search_both_ends(graph: _OrderGraph) -> list[int]:
    """The better one of the orders that are found from the front and from the end; the second only where the first may not be the best."""
    steps = list(range(len(graph.before)))
    forward = _search_order(graph, steps)
    if forward.peak <= max(sum(graph.bytes[name] for name in buffers) for buffers in graph.buffers):
        return list(forward.order)
    backward = _search_order(graph.reversed(), steps[::-1], MOST_ALIKE)
    return list(forward.order if forward.peak <= backward.peak else backward.order[::-1])


_State: TypeAlias = tuple[int, int, int, int]  # peak, bytes, which of the beam by its order, and the next step


def _choose_states(states: Iterable[_State], width: int, most_alike: int) -> list[_State]:
    """The best ones, of which some have the same peak and bytes, or one kind of calls would fill the beam."""
    if most_alike >= width:
        return heapq.nsmallest(width, states)
    chosen, alike = list[_State](), Counter[tuple[int, int]]()
    for state in sorted(states):
        alike[state[:2]] += 1
        if alike[state[:2]] <= most_alike:
            chosen.append(state)
    return chosen[:width]


def _search_order(graph: _OrderGraph, steps: Sequence[int], most_alike: int = WIDTH) -> _Begun:
    """The best order that is found; that of ``steps`` where none is better.

    Of calls that do the same to the bytes, the first ones alone can be among the best orders, as many as there are of these.
    """
    count = len(graph.before)
    own = begin = _Begun(0, (), 0, 0, _sort_ready(graph, 0, {}, [step for step in range(count) if not graph.before[step]]))
    for step in steps:
        own = _grow_prefix(graph, own, step)
    width = max(1, min(WIDTH, WIDTH * MOST_CALLS // count))
    beam: Sequence[_Begun] = [begin]
    for _ in range(count):
        states: dict[int, _State] = {}
        beam = sorted(beam, key=lambda begun: begun.order)
        for number, begun in enumerate(beam):
            for (more, less), steps in begun.ready.items():
                peak, left = max(begun.peak, begun.bytes + more), begun.bytes + more - less
                for step in steps[:width]:
                    done, one = begun.done | 1 << step, (peak, left, number, step)
                    if done not in states or one < states[done]:
                        states[done] = one
        beam = [_grow_prefix(graph, beam[number], step) for _, _, number, step in _choose_states(states.values(), width, most_alike)]
    best = min(beam, key=lambda begun: begun.rank, default=own)
    return best if best.peak < own.peak else own


def _call_effect(graph: _OrderGraph, done: int, step: int) -> _Effect:
    """What a call does to the bytes, when others have run."""
    users = [(graph.users[name], graph.bytes[name]) for name in graph.buffers[step]]
    after = done | 1 << step
    return sum(size for used, size in users if not used & done), sum(size for used, size in users if not used & ~after)


def _sort_ready(
    graph: _OrderGraph, done: int, ready: Mapping[_Effect, Sequence[int]], steps: Iterable[int]
) -> dict[_Effect, Sequence[int]]:
    """Who may be next, with some more calls."""
    steps_by_effect: dict[_Effect, list[int]] = {}
    for step in steps:
        steps_by_effect.setdefault(_call_effect(graph, done, step), []).append(step)
    return {**ready, **{effect: sorted([*ready.get(effect, ()), *more]) for effect, more in steps_by_effect.items()}}


def _grow_prefix(graph: _OrderGraph, begun: _Begun, step: int) -> _Begun:
    """A call more."""
    more, less = _call_effect(graph, begun.done, step)
    done, during = begun.done | 1 << step, begun.bytes + more
    changed = {step, *(user for name in graph.buffers[step] for user in _steps_of_set(graph.users[name] & ~done))}
    ready = {}
    for effect, steps in begun.ready.items():
        left = steps if changed.isdisjoint(steps) else [other for other in steps if other not in changed]
        if left:
            ready[effect] = left
    following = {later for later in graph.after[step] if not graph.before[later] & ~done}
    following |= {other for other in changed if other != step and not graph.before[other] & ~done}
    return _Begun(done, (*begun.order, step), during - less, max(begun.peak, during), _sort_ready(graph, done, ready, following))
