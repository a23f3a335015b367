"""The nodes of a schedule: what the first core of an engine does for every call, in order, for every tile.

Paths and accelerators are queues that it fills; they work on their own until it waits. All indices, sizes and offsets are expressions
over the number of the tile and over how many rows exist (``deeploy.ir.expr``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from deeploy.ir.expr import Value, Variable, remainder, value_bounds
from deeploy.ir.mentions import mentions
from deeploy.ir.nest import Part, Window
from deeploy.planning.program import Call
from deeploy.planning.tiling.loops import CallTiling, Division

TILE = "t"  # the variable that counts tiles
CORE = "rt_core()"  # the number of the calling core

Purpose = Literal["in", "out", "early", "constants"]
TICKETS: Mapping[Purpose, int] = {"in": 0, "out": 1, "early": 2}  # of a call's own transfers


@dataclass(frozen=True)
class Address:
    """A place in a memory: ``offset`` bytes behind where a block of the plan, an array of the caller or a constant begins.

    ``level`` is the memory of a block of the plan, and empty for what lies outside of the arenas or in a memory of its own.
    """

    block: str
    offset: Value = 0
    level: str = ""

    def __str__(self) -> str:
        return (
            f"{self.level}:{self.block}" * bool(self.level)
            + self.block * (not self.level)
            + (f" + {self.offset}" if self.offset != 0 else "")
        )


@dataclass(frozen=True)
class Axis:
    """An outer axis of a box: ``count`` runs that are ``pitch`` bytes apart on the far side."""

    count: Value
    pitch: Value


@dataclass(frozen=True)
class Box:
    """What one transfer moves: runs of bytes along axes, outermost first; on the near side they lie one after the other."""

    run: Value
    axes: tuple[Axis, ...] = ()

    def __str__(self) -> str:
        return f"{self.run} bytes" + "".join(f" x {axis.count} every {axis.pitch}" for axis in reversed(self.axes))


@dataclass(frozen=True)
class Token:
    """What transfers are waited for by: all that were begun on a path under the same ticket."""

    path: str
    purpose: Purpose
    ticket: int

    def __str__(self) -> str:
        return f"{self.path} {self.purpose}"


@dataclass(frozen=True)
class Move:
    """Begins to move a box between two memories: to the near one, or away from it.

    ``owner`` is the step of the call that the operand or constant is for.
    """

    token: Token
    is_store: bool
    near: Address
    far: Address
    box: Box
    owner: int
    label: str

    def __str__(self) -> str:
        to, source = (self.far, self.near) if self.is_store else (self.near, self.far)
        return f"{'store' if self.is_store else 'fetch'} {self.label}: {to} <- {source}, {self.box} ({self.token})"


@dataclass(frozen=True)
class ShiftRows:
    """Moves what stays in a line buffer to its beginning, and makes room behind it: ``bytes`` from the offset ``begin`` on.

    Every core of a team moves a part: what is moved does not overlap with where it goes.
    """

    line_buffer: Address
    begin: Value
    bytes: Value

    def __str__(self) -> str:
        return f"slide {self.line_buffer} <- {self.line_buffer} + {self.begin}, {self.bytes} bytes"


@dataclass(frozen=True)
class Wait:
    """Goes on when all transfers under a token are complete.

    ``step`` is that of the call whose whole constants they are, where it is another one.
    """

    token: Token
    step: int | None = None

    def __str__(self) -> str:
        return f"wait {self.token}"


@dataclass(frozen=True)
class Condition:
    """A comparison of an expression with a number."""

    left: Value
    relation: Literal["==", "!=", "<", ">="]
    right: int

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


@dataclass(frozen=True)
class Guard:
    """Runs ``body`` only where all conditions hold."""

    conditions: tuple[Condition, ...]
    body: tuple[Node, ...]


def list_turns(call: Call, rows: Value) -> list[Condition]:
    """What holds of the rows behind an inference in which a call runs."""
    first = [Condition(rows, "<", call.first + 1)] if call.first is not None else []
    return [Condition(remainder(rows, call.period), "==", 0), *first]


def guard_nodes(conditions: Sequence[Condition], body: Sequence[Node]) -> list[Node]:
    """The body where conditions hold; without those that always do, and nothing where one never does."""
    left: list[Condition] = []
    for condition in conditions:
        low, high = value_bounds(condition.left)
        if condition.relation in ("<", ">="):
            always, never = high < condition.right, low >= condition.right
            always, never = (always, never) if condition.relation == "<" else (never, always)
        else:
            is_it, is_not = low == high == condition.right, not low <= condition.right <= high
            always, never = (is_it, is_not) if condition.relation == "==" else (is_not, is_it)
        if never:
            return []
        if not always:
            left.append(condition)
    return [Guard(tuple(left), tuple(body))] if left and body else list(body)


def merge_guards(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, with neighbouring guards of the same conditions as one."""
    merged_nodes: list[Node] = []
    for node in nodes:
        last = merged_nodes[-1] if merged_nodes else None
        if isinstance(node, Guard) and isinstance(last, Guard) and node.conditions == last.conditions:
            merged_nodes[-1] = Guard(node.conditions, (*last.body, *node.body))
        else:
            merged_nodes.append(node)
    return merged_nodes


@dataclass(frozen=True)
class Loop:
    """Does ``body`` for every value of a variable from 0 on."""

    variable: Variable
    trips: int
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Do:
    """Runs a procedure of a layer; ``tile`` is what its variable stands for. ``step`` is the layer's, where it is another one."""

    step: int
    procedure: str
    tile: Value

    def __str__(self) -> str:
        return f"{self.procedure} of call {self.step}, tile {self.tile}"


@dataclass(frozen=True)
class Compute:
    """Runs the kernel on a tile: every core of a team its part, behind a barrier; or sets an accelerator up, which works on its own."""

    step: int
    tile: Value

    def __str__(self) -> str:
        return f"compute tile {self.tile}"


@dataclass(frozen=True)
class PostProcess:
    """Every core of a team makes its part of the outputs of the sums that an accelerator left of a tile, behind a barrier.

    Where a kernel forks teams itself, so does this.
    """

    step: int
    tile: Value

    def __str__(self) -> str:
        return f"post-processing of tile {self.tile}"


@dataclass(frozen=True)
class Finish:
    """Goes on when the job of an accelerator is done."""

    step: int
    accelerator: str
    tile: Value

    def __str__(self) -> str:
        return f"wait for {self.accelerator}"


@dataclass(frozen=True)
class Barrier:
    """Every core of the team goes on when all have come here: what they computed is complete, and what they read may change."""

    def __str__(self) -> str:
        return "barrier"


Node = Move | ShiftRows | Wait | Guard | Loop | Do | Compute | Finish | PostProcess | Barrier


@dataclass(frozen=True)
class OperandView:
    """What the kernel sees of an operand, in the part of one core: where it begins, its window and its strides in elements."""

    address: Address
    element: Value  # index of the first element behind the address
    axes: tuple[Window, ...]
    strides: tuple[Value, ...]


@dataclass(frozen=True)
class TileWork:
    """What every core of a team does in a tile.

    Attributes:
        cores: of the team.
        tile: iterations of every dimension of the nest in the tile.
        division: the dimensions that are divided over the cores, and into how many parts.
        parts: the part of the domain that the calling core computes, of the dimensions that are not whole.
        empty: counts of iterations; where one of them is not positive there is nothing to do.
    """

    cores: int
    tile: Mapping[str, Value]
    division: Division
    parts: Mapping[str, Part]
    operands: Mapping[str, OperandView]
    empty: tuple[Value, ...]


@dataclass(frozen=True)
class Layer:
    """One call: procedures that move what a tile needs, and the program of the first core, which runs them.

    Attributes:
        accelerator: what works on while the first core goes on; None where cores compute.
        team: cores that do the post-processing of a tile; 0 where there is none.
        begins_at_barrier: the call before may still be computed when this one begins, until the barrier of its first tile.
        sums: the slot in which the first part of a tile leaves what its post-processing reads; None where there is none.
        procedures: by name, over the variable ``TILE``.
        body: what runs the call; that of the last call of a fused group runs all of them, and the others have none.
        others: the largest team of the calls that the body runs besides its own.
        partial: how many tiles, one behind the other, add up to the same outputs, which the last of them makes of the sums.
    """

    step: int
    call: Call
    tiling: CallTiling
    is_double: bool
    accelerator: str | None
    team: int
    sums: Address | None
    procedures: Mapping[str, tuple[Node, ...]]
    work: TileWork
    body: tuple[Node, ...]
    begins_at_barrier: bool = False
    others: int = 1
    partial: int = 1

    @property
    def cores(self) -> int:
        """The team that runs the call; 1 where the first core alone does, or forks teams itself."""
        return 1 if self.call.kernel.forks else max(self.work.cores if self.accelerator is None else 1, self.team, self.others)

    def __str__(self) -> str:
        loops = ", ".join(f"{loop.trips} x {loop.tile} of {loop.dim}" for loop in self.tiling.loops) or "one tile"
        engine = f"on {self.work.cores} cores" if self.accelerator is None else f"by {self.accelerator}"
        engine += f", then on {self.team} cores" * bool(self.team)
        lines: list[str] = []
        with mentions() as noted:
            for name, body in self.procedures.items():
                lines += [f"  {name}({TILE if self.tiling.tiles > 1 and name != 'early' else ''}):", *_print_nodes(body, 4, self.step)]
            lines += _print_nodes(self.body, 2, self.step)
        parts = dict.fromkeys(f"    {part.name} = {part.value}" for part in noted.parts())
        head = f"call {self.step} {self.call.name}: {self.call.kernel.name}, {loops}, {engine}"
        return "\n".join([head, *lines, *(["  where"] if parts else []), *parts])


@dataclass(frozen=True)
class Section:
    """Neighbouring calls that one team runs: it is forked before the first of them, and joined behind the last; one core is no team.

    All cores run the programs of the calls. What a program computes is for all of them, the rest for the first core alone, as are whole
    calls that need no team.
    """

    first: int
    last: int
    cores: int

    def __str__(self) -> str:
        calls = f"call {self.first}" if self.first == self.last else f"calls {self.first} to {self.last}"
        return f"{calls}, on a team of {self.cores} cores" if self.cores > 1 else f"{calls}, on the first core"


@dataclass(frozen=True, eq=False)
class Schedule:
    """What one network does: before the first inference, and in every one; see the module.

    Attributes:
        sections: which calls one team runs, in order; every call is in one of them.
    """

    name: str
    initialise: tuple[Node, ...]
    layers: tuple[Layer, ...]
    sections: tuple[Section, ...]

    def __str__(self) -> str:
        lines = [
            f"schedule {self.name}",
            *(["before the first inference:", *_print_nodes(self.initialise, 2, 0)] if self.initialise else []),
        ]
        for section in self.sections:
            lines += [f"{section}:", *map(str, self.layers[section.first : section.last + 1])]
        return "\n".join(lines)


def _print_nodes(nodes: Sequence[Node], indent: int, step: int) -> Iterator[str]:
    """Nodes as text, in a call of the given step: what is computed of another one says of which."""
    blank = " " * indent
    for node in nodes:
        if isinstance(node, Guard):
            yield f"{blank}if {' and '.join(map(str, node.conditions))}:"
            yield from _print_nodes(node.body, indent + 2, step)
        elif isinstance(node, Loop):
            yield f"{blank}for {node.variable} in 0..{node.trips - 1}:"
            yield from _print_nodes(node.body, indent + 2, step)
        else:
            own = node.step if isinstance(node, Compute | Finish | PostProcess) else step
            yield f"{blank}{node}" + f" of call {own}" * (own != step)
