"""Where the expressions of a schedule can reach, as formulas for z3: each index, offset and size that is printed, for all tiles.

Every procedure is taken for all tiles of its call, every core and every number of rows. What runs it has to stay inside of its tiles,
under the conditions around it. Blocks of the plan end where their tensors end, or where what was placed for windows ends.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import z3

from deeploy.ir.expr import Atom, Maximum, Named, Product, Quotient, Remainder, Value, Variable
from deeploy.planning.plan import Plan
from deeploy.schedule import Schedule
from deeploy.schedule.ir import (
    TILE,
    Address,
    Compute,
    Condition,
    Do,
    Finish,
    Guard,
    Layer,
    Loop,
    Move,
    Node,
    OperandView,
    PostProcess,
    ShiftRows,
)

Ranges = Mapping[str, tuple[int, int]]  # the first and the last value of variables by name
_COMPARE: Mapping[str, Any] = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge}


@dataclass
class Terms:
    """Expressions as terms of z3, of which ``limits`` are the ranges of the variables, whose own ones are narrowed by ``ranges``."""

    ranges: Ranges
    limits: list[Any] = field(default_factory=list)
    known: dict[Atom, Any] = field(default_factory=dict)
    steps: list[Any] = field(default_factory=list)

    def term(self, value: Value) -> Any:
        """A value as a term; what C computes on the way to it is noted in ``steps``."""
        if isinstance(value, int):
            return z3.IntVal(value)
        total = value.affine()
        result: Any = z3.IntVal(0)
        for atom, factor in sorted(total.terms, key=lambda term: term[1] < 0):  # as they are printed, the constant first or last
            share = self._atom(atom) * factor
            result = result + share
            self.steps += [share, result, result + total.constant]
        return result + total.constant

    def _atom(self, atom: Atom) -> Any:
        if atom not in self.known:
            self.known[atom] = self._translate(atom)
        return self.known[atom]

    def _translate(self, atom: Atom) -> Any:
        if isinstance(atom, Variable):
            number = z3.Int(atom.name)
            low, high = self.ranges.get(atom.name, (atom.low, atom.high))
            self.limits += [number >= low, number <= high]
            return number
        if isinstance(atom, Named):
            return self.term(atom.value)
        if isinstance(atom, Quotient):
            return self.term(atom.inner) / atom.divisor  # z3 divides by positive numbers towards minus infinity, too
        if isinstance(atom, Remainder):
            return self.term(atom.inner) % atom.divisor
        if isinstance(atom, Product):
            product = reduce(lambda a, b: a * b, map(self._atom, atom.factors))
            self.steps.append(product)
            return product
        assert isinstance(atom, Maximum)
        left, right = self.term(atom.left), self.term(atom.right)
        return z3.If(left <= right, left, right) if atom.is_least else z3.If(left >= right, left, right)


@dataclass(frozen=True)
class Obligation:
    """``holds`` has to be true wherever all ``limits`` are."""

    what: str
    limits: Sequence[Any]
    holds: Any

    def refute(self, seconds: int = 60) -> str:
        """Values of variables for which it does not hold, or that z3 does not know; nothing where it is proved."""
        solver = z3.Solver()
        solver.set("timeout", seconds * 1000)
        solver.add(*self.limits, z3.Not(self.holds))
        found = solver.check()
        return "" if found == z3.unsat else f"{self.what}: {solver.model() if found == z3.sat else 'not known'}"


def _stay_inside(begin: Any, end: Any, size: int) -> Any:
    return z3.And(begin >= 0, begin <= end, end <= size)


def _stay_in_type(what: str, terms: Terms) -> Obligation:
    """What C computes on the way fits into ``int32_t``, under no condition: parts with names are computed in front of conditions."""
    return Obligation(f"{what} in 32 bits", terms.limits, z3.And([z3.And(step >= -(2**31), step < 2**31) for step in terms.steps]))


class Extents:
    """The obligations of a schedule of a plan."""

    def __init__(self, plan: Plan, schedule: Schedule) -> None:
        self.plan = plan
        self.schedule = schedule

    def obligations(self) -> Iterator[Obligation]:
        """All of them."""
        for layer in self.schedule.layers:
            yield from self.of_layer(layer)
        yield from self._walk(self.schedule.initialise, "the initialisation", 0, {})

    def of_layer(self, layer: Layer) -> Iterator[Obligation]:
        """Those of one call: its procedures for all of its tiles, what runs them, and its kernel."""
        ranges = {TILE: (0, layer.tiling.tiles - 1)}
        for name, procedure in layer.procedures.items():
            yield from self._walk(procedure, f"{name} of {layer.call.name}", layer.step, ranges)
        yield from self._walk(layer.body, layer.call.name, layer.step, ranges)
        yield from self._compute(layer, ranges)

    # ---- nodes

    def _walk(
        self, nodes: Sequence[Node], where: str, step: int, ranges: Ranges, conditions: Sequence[Condition] = ()
    ) -> Iterator[Obligation]:
        for node in nodes:
            terms, what = Terms(ranges), f"{where}: {node}"
            if isinstance(node, Guard):
                _hold_conditions(terms, node.conditions)
                yield _stay_in_type(f"{where}: conditions", terms)
                yield from self._walk(node.body, where, step, ranges, (*conditions, *node.conditions))
            elif isinstance(node, Loop):
                yield from self._walk(node.body, where, step, {**ranges, node.variable.name: (0, node.trips - 1)}, conditions)
            elif isinstance(node, Do | Compute | Finish | PostProcess):
                tile, tiles = terms.term(node.tile), self.schedule.layers[node.step].tiling.tiles
                yield _stay_in_type(what, terms)
                yield Obligation(what, _hold_conditions(terms, conditions), _stay_inside(tile, tile + 1, tiles))
            elif isinstance(node, Move):
                yield from self._move(node, what, ranges, conditions)
            elif isinstance(node, ShiftRows):
                begin, size = terms.term(node.begin), terms.term(node.bytes)
                yield _stay_in_type(what, terms)
                is_inside = z3.And(size >= 0, _stay_inside(begin, begin + size, self.size(node.line_buffer, step)))
                yield Obligation(what, _hold_conditions(terms, conditions), is_inside)

    def _move(self, move: Move, what: str, ranges: Ranges, conditions: Sequence[Condition]) -> Iterator[Obligation]:
        """Both ends of a transfer, where it moves anything; counts and distances are never negative."""
        terms = Terms(ranges)
        run, counts = terms.term(move.box.run), [terms.term(axis.count) for axis in move.box.axes]
        pitches = [terms.term(axis.pitch) for axis in move.box.axes]
        sizes = [run, *counts]
        near, far = terms.term(move.near.offset), terms.term(move.far.offset)
        yield _stay_in_type(what, terms)
        limits = _hold_conditions(terms, conditions)
        yield Obligation(f"{what}, sizes", limits, z3.And([size >= 0 for size in (*sizes, *pitches)]))
        limits = [*limits, *(size > 0 for size in sizes)]
        packed = reduce(lambda a, b: a * b, sizes)
        spread = reduce(lambda a, b: a + b, [(count - 1) * pitch for count, pitch in zip(counts, pitches, strict=True)], run)
        yield Obligation(f"{what}, near", limits, _stay_inside(near, near + packed, self.size(move.near, move.owner)))
        yield Obligation(f"{what}, far", limits, _stay_inside(far, far + spread, self.size(move.far, move.owner)))

    # ---- kernels

    def _compute(self, layer: Layer, ranges: Ranges) -> Iterator[Obligation]:
        """What the kernel sees of its operands, in the part of every core that has one."""
        for name, view in layer.work.operands.items():
            operand = layer.call.operands.get(name)
            unit = 4 if operand is None else self.plan.program.buffers[operand.buffer].dtype.bytes
            yield from self._view(f"{name} of {layer.call.name}", view, unit, layer, ranges)
        if layer.sums is not None:
            terms = Terms(ranges)
            begin = terms.term(layer.sums.offset)
            yield Obligation(f"sums of {layer.call.name}", terms.limits, _stay_inside(begin, begin + 1, self.size(layer.sums, layer.step)))

    def _view(self, what: str, view: OperandView, unit: int, layer: Layer, ranges: Ranges) -> Iterator[Obligation]:
        terms = Terms(ranges)
        first = last = terms.term(view.element)
        counts = [terms.term(window.count) for window in view.axes]
        for count, stride in zip(counts, view.strides, strict=True):
            if isinstance(stride, int) and stride < 0:
                first = first + (count - 1) * stride
            else:
                last = last + (count - 1) * terms.term(stride)
        begin = terms.term(view.address.offset)
        limits = [*(terms.term(number) > 0 for number in layer.work.empty), *(count > 0 for count in counts)]
        yield _stay_in_type(what, terms)
        is_inside = _stay_inside(begin + first * unit, begin + (last + 1) * unit, self.size(view.address, layer.step))
        yield Obligation(what, [*limits, *terms.limits], is_inside)

    # ---- sizes

    def size(self, address: Address, step: int) -> int:
        """The bytes of a block: of its tensor, or of what was placed for windows, line buffers and tiles."""
        buffer = self.plan.program.buffers.get(address.block.removesuffix(" far"))
        if not address.level:
            assert buffer is not None
            return buffer.bytes
        (placed,) = {p.size for p in self.plan.placements if address.block in p.buffers and p.level == address.level}
        group = next((group for group in self.plan.fused_groups if group.first <= step <= group.last), None)
        is_part = group is not None and address.block in {*group.line_buffers, *group.tile_buffers}
        return placed if buffer is None or is_part else min(placed, buffer.bytes)


def _hold_conditions(terms: Terms, conditions: Sequence[Condition]) -> list[Any]:
    """The conditions under which a node runs, and the ranges of all variables in its terms."""
    held = [_COMPARE[condition.relation](terms.term(condition.left), condition.right) for condition in conditions]
    return [*held, *terms.limits]


def find_overhanging(plan: Plan) -> list[str]:
    """What was placed behind the end of its memory's arena."""
    return [f"{p.level}: {p.buffers}" for p in plan.placements if p.offset < 0 or p.offset + p.size > plan.memory[p.level].peak]
