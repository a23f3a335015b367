"""What a schedule does in one inference, node by node: loops unrolled, guards decided, procedures entered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from deeploy.ir.expr import Environment, Value, evaluate_value
from deeploy.ir.memo import by_arguments
from deeploy.schedule.ir import (
    TILE,
    Barrier,
    Compute,
    Condition,
    Do,
    Finish,
    Guard,
    Layer,
    Loop,
    Move,
    Node,
    PostProcess,
    Schedule,
    ShiftRows,
    Wait,
)

_COMPARED = {"==": np.equal, "!=": np.not_equal, "<": np.less, ">=": np.greater_equal}


class Table:
    """The values of a layer's expressions in every tile, or in every round of a loop; each is computed for all of them at once."""

    def __init__(self, layer: Layer, values: Mapping[str, int], loop: Loop | None = None) -> None:
        self.layer = layer
        self.count = layer.tiling.tiles if loop is None else loop.trips
        self.values: Environment = {**values, TILE if loop is None else loop.variable.name: np.arange(self.count)}
        self._arrays: dict[int, np.ndarray] = {}
        self._known: dict[int, Sequence[int]] = {}
        self._held: dict[int, Sequence[bool]] = {}

    def array(self, value: Value) -> np.ndarray:
        """The value of an expression in every tile, as an array."""
        if id(value) not in self._arrays:
            values = evaluate_value(value, self.values)
            whole = isinstance(values, np.ndarray) and values.shape == (self.count,)
            self._arrays[id(value)] = values if whole else np.broadcast_to(values, self.count)
        return self._arrays[id(value)]

    def column(self, value: Value) -> Sequence[int]:
        """The value of an expression in every tile, as a list of whole numbers."""
        if isinstance(value, int):
            return [value] * self.count
        if id(value) not in self._known:
            self._known[id(value)] = self.array(value).tolist()
        return self._known[id(value)]

    def at(self, value: Value, tile: int) -> int:
        """The value of an expression in one tile."""
        return value if isinstance(value, int) else self.column(value)[tile]

    def rows(self, values: Sequence[Value]) -> np.ndarray:
        """Values in all tiles: a row per tile, a column per value."""
        matrix = np.empty((self.count, len(values)), np.int64)
        for number, value in enumerate(values):
            matrix[:, number] = value if isinstance(value, int) else self.array(value)
        return matrix

    def holds(self, guard: Guard) -> Sequence[bool]:
        """Whether all conditions of a guard hold, in all tiles."""
        if id(guard) not in self._held:
            first, *others = (self._compared(condition) for condition in guard.conditions)
            for other in others:
                first &= other
            self._held[id(guard)] = first.tolist()
        return self._held[id(guard)]

    def _compared(self, condition: Condition) -> np.ndarray:
        compared: np.ndarray = _COMPARED[condition.relation](self.array(condition.left), condition.right)
        return compared


class Event(NamedTuple):
    """A move, a wait, a barrier, or the begin or end of computing, in a tile of the layer that ``table`` belongs to."""

    node: Move | ShiftRows | Wait | Compute | Finish | PostProcess | Barrier
    tile: int
    table: Table


class Unrolled:
    """One inference of a schedule, where variables other than the tile have the given values."""

    def __init__(self, schedule: Schedule, values: Mapping[str, int]) -> None:
        self.schedule = schedule
        self.values = values

    @by_arguments
    def table(self, step: int) -> Table:
        """The values of the expressions of a call."""
        return Table(self.schedule.layers[step], self.values)

    def events(self, step: int) -> Iterator[Event]:
        """What the call of a step does in one inference, event by event, in order."""
        yield from self._events(self.schedule.layers[step].body, 0, self.table(step))

    def _events(self, nodes: Sequence[Node], tile: int, table: Table) -> Iterator[Event]:
        for node in nodes:
            if isinstance(node, Guard):
                if table.holds(node)[tile]:
                    yield from self._events(node.body, tile, table)
            elif isinstance(node, Loop):
                rounds = table if node.variable.name == TILE else Table(table.layer, self.values, node)
                for number, active in enumerate(_loop_rounds(node, rounds)):
                    yield from self._events(active, number, rounds)
            elif isinstance(node, Do):
                body = self.schedule.layers[node.step].procedures[node.procedure]
                yield from self._events(body, table.at(node.tile, tile), self.table(node.step))
            elif isinstance(node, Compute | Finish | PostProcess):
                yield Event(node, table.at(node.tile, tile), self.table(node.step))
            else:
                yield Event(node, tile, table)


def _loop_rounds(loop: Loop, table: Table) -> list[list[Node]]:
    """The nodes of a loop that run in each round: of a guard, its body where the guard holds."""
    rounds: list[list[Node]] = [[] for _ in range(loop.trips)]
    for node in loop.body:
        if isinstance(node, Guard):
            for number in compress(range(loop.trips), table.holds(node)):
                rounds[number] += node.body
        else:
            for nodes in rounds:
                nodes.append(node)
    return rounds
