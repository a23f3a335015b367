"""The Program: an ordered list of kernel calls on typed buffers; and which buffers may share an address as one is written over another."""

from __future__ import annotations

import builtins
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from deeploy.ir.expr import Value, quotient, remainder
from deeploy.ir.interface import Bound
from deeploy.ir.types import DType
from deeploy.operators.views import Access

FEW_BYTES = 64  # of a constant that stands for itself


class Role(Enum):
    """Who owns a buffer, and how long its contents live."""

    INPUT = "input"  # the caller's, read only
    OUTPUT = "output"  # the caller's, written by the network
    LOCAL = "local"  # an activation in the arena
    STATE = "state"  # outlives an inference, updated in place
    CONSTANT = "constant"  # weights and tables
    SCRATCH = "scratch"  # working memory of one call


@dataclass(frozen=True, eq=False)
class Buffer:
    """A run of elements in some memory; ``name`` is a unique C identifier, ``tensor`` the graph's name.

    A constant with a ``memory`` lies there for good, where its kernel wants it (``Kernel.resident``); all others are the plan's to place.
    """

    name: str
    tensor: str
    role: Role
    dtype: DType
    shape: tuple[int, ...]
    data: np.ndarray | None = None
    memory: str = ""

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.bytes

    @cached_property
    def digest(self) -> builtins.bytes:
        """What stands for the values of a constant."""
        assert self.data is not None
        return digest_values(self.data)


def digest_values(data: np.ndarray) -> bytes:
    """The values of an array where they are few, else their hash, so that comparing and keeping large constants takes no copies."""
    if data.nbytes <= FEW_BYTES:
        return data.tobytes()
    return hashlib.sha256(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data).digest()


def constant_content(buffer: Buffer) -> tuple[object, ...]:
    """What constants have in common that are stored once."""
    return "constant", buffer.dtype, buffer.bytes, buffer.digest


@dataclass(frozen=True)
class Operand:
    """What a call sees of a buffer; ``step`` elements further for every row that exists when the code runs.

    What has ``turns`` (of so many inferences each, so many of them) moves on by a step with every turn, and then is where it began.
    """

    buffer: str
    access: Access
    step: int = 0
    turns: tuple[int, int] | None = None

    def moved(self, past: Value) -> Value:
        """By how many elements it has moved where so many rows exist."""
        return (past if self.turns is None else remainder(quotient(past, self.turns[0]), self.turns[1])) * self.step

    def moved_elements(self, past: int) -> int:
        """``moved``, where that is a number."""
        elements = self.moved(past)
        assert isinstance(elements, int)
        return elements

    @property
    def shape(self) -> tuple[int, ...]:
        return self.access.shape

    @property
    def access_elements(self) -> int:
        """How many elements of the buffer the call sees."""
        return math.prod(self.access.shape)

    def elements(self) -> np.ndarray:
        """The indices of these in the buffer, in the order in which the call sees them."""
        indices = np.full((), self.access.offset, np.int64)
        for size, stride in zip(self.access.shape, self.access.strides, strict=True):
            indices = np.add.outer(indices, np.arange(size, dtype=np.int64) * stride)
        return indices.ravel()


@dataclass(frozen=True, eq=False)
class Call(Bound):
    """One kernel on its operands; ``name`` is a unique C identifier derived from the node's name.

    It runs in every inference, or in every n-th one, of which ``period`` is the n; or in the first ones of a sequence, ``first`` of them.
    """

    operands: Mapping[str, Operand]
    name: str
    scratch: Mapping[str, str]  # scratch name -> buffer
    period: int = 1
    first: int | None = None

    @property
    def turns(self) -> tuple[int, int | None]:
        """In which inferences it runs."""
        return self.period, self.first

    def runs(self, rows: int) -> bool:
        """Whether it runs in an inference behind which states have so many rows."""
        return rows % self.period == 0 and (self.first is None or rows <= self.first)

    @cached_property
    def known(self) -> dict[object, Any]:
        """What was worked out of the call and holds as long as it does (``cost``)."""
        return {}


@dataclass(frozen=True)
class State:
    """What was an input ``past`` and an output ``present`` of the model: one buffer that grows along an axis, or is written anew (None).

    ``scale`` and ``zero_point`` are those of the rows, where the model says them. A state with ``has_value`` begins with one of the file.
    """

    past: str
    present: str
    buffer: str
    shape: tuple[int, ...]
    axis: int | None
    scale: float | None = None
    zero_point: int | None = None
    has_value: bool = False


@dataclass(frozen=True)
class DynamicLength:
    """The states of a network hold at most ``context`` rows; every inference appends ``rows``. States that do not grow count inferences.

    ``position`` is the buffer that the emitted code gives the number of rows before the inference, where a call reads it. A network
    that ``begins`` reads no rows but its own: its inferences are possible where there are none before them.
    """

    context: int
    rows: int
    states: tuple[State, ...]
    position: str | None = None
    begins: bool = False

    @property
    def resumed(self) -> int | None:
        """Where positions go on behind the last one, far from the first, of a network that only counts inferences; None of others."""
        return None if any(state.axis is not None for state in self.states) else self.context // 2


@dataclass(frozen=True, eq=False)
class Program:
    """One network, ready to be planned.

    ``inputs`` and ``outputs`` name buffers in the order of the graph; ``tensors`` says where the tensors of the graph lie.
    ``dynamic_length`` describes what outlives an inference, ``dynamic_axes`` the axes of tensors that only have as many rows as exist.
    ``further`` are other variants of each call, by other kernels on the same activations; their constants and scratch memory
    are among the buffers until one way is chosen (``choose_variants``).
    """

    name: str
    buffers: Mapping[str, Buffer]
    calls: tuple[Call, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Operand]
    dynamic_length: DynamicLength | None = None
    dynamic_axes: Mapping[str, frozenset[int]] = field(default_factory=dict)
    further: tuple[tuple[Call, ...], ...] = ()

    def variants(self, step: int) -> tuple[Call, ...]:
        """The call of a step and its other variants, by the number that candidates carry."""
        return (self.calls[step], *(self.further[step] if self.further else ()))

    @property
    def states(self) -> tuple[State, ...]:
        """The states of the network: buffers that outlive an inference."""
        return self.dynamic_length.states if self.dynamic_length is not None else ()

    @cached_property
    def period(self) -> int:
        """After how many inferences the same calls run again."""
        return math.lcm(*(call.period for call in self.calls))

    @property
    def is_float(self) -> bool:
        """Whether it computes floats, and no activation has 8 or 16 bits: it was never quantised."""
        written = {self.buffers[call.operands[name].buffer] for call in self.calls for name in call.writes}
        is_quantised = any(b.role is not Role.OUTPUT and b.dtype.is_integer and b.dtype.bits <= 16 for b in written)
        return not is_quantised and any(b.dtype is DType.FLOAT32 for b in written)

    def __str__(self) -> str:
        lines = [f"program {self.name}"]
        for buffer in self.buffers.values():
            lines.append(f"  {buffer.role.value:8} {buffer.name}: {buffer.dtype.value}{list(buffer.shape)}")
        for call in self.calls:
            operands = ", ".join(f"{name}={_print_operand(operand)}" for name, operand in call.operands.items())
            lines.append(f"  {call.name}: {call.kernel.name}({operands})")
        return "\n".join(lines)


def calls_ahead(calls: Sequence[Call], step: int) -> int:
    """How many calls before a call its first constants may be on their way: one, or as many more as there are Sends in front of it.

    A Send is over before anything has arrived that is fetched while it runs. None, where the call before runs in other inferences.
    """
    if step and calls[step - 1].turns != calls[step].turns:
        return 0
    start = step - 1
    while start > 0 and calls[start].kernel.link == "send":
        start -= 1
    return step - max(start, 0)


def choose_variants(program: Program, numbers: Sequence[int]) -> Program:
    """The program with one variant of each call, without what only the other variants need."""
    return narrow_variants(program, [(number,) for number in numbers])


def narrow_variants(program: Program, numbers: Sequence[Sequence[int]]) -> Program:
    """The program with some of the variants of each call, of which the first is its own; without what only the others need."""
    variants = [tuple(program.variants(step)[number] for number in row) for step, row in enumerate(numbers)]
    remaining = {name for row in variants for call in row for name in _name_buffers(call)}
    offered = {name for step in range(len(variants)) for call in program.variants(step) for name in _name_buffers(call)}
    own = (Role.CONSTANT, Role.SCRATCH)
    buffers = {n: b for n, b in program.buffers.items() if b.role not in own or n in remaining or n not in offered}
    others = tuple(row[1:] for row in variants) if any(len(row) > 1 for row in variants) else ()
    return replace(program, calls=tuple(row[0] for row in variants), buffers=buffers, further=others)


def _name_buffers(call: Call) -> list[str]:
    return [*(operand.buffer for operand in call.operands.values()), *call.scratch.values()]


def _print_operand(operand: Operand) -> str:
    access = operand.access
    return operand.buffer if access.is_dense and not access.offset else f"{operand.buffer}+{access.offset}{list(access.strides)}"


def buffer_spans(program: Program) -> dict[str, tuple[int, int]]:
    """First and last step of every local and scratch buffer that is used."""
    spans: dict[str, tuple[int, int]] = {}
    for step, call in enumerate(program.calls):
        for name in (*(o.buffer for o in call.operands.values()), *call.scratch.values()):
            if program.buffers[name].role in (Role.LOCAL, Role.SCRATCH):
                spans[name] = (spans.get(name, (step, step))[0], step)
    return spans


def united_buffers(program: Program) -> dict[int, tuple[str, str]]:
    """The buffers (written, read) that share an address since the call of a step writes the one over the other."""
    alive = buffer_spans(program)
    owner_by_buffer: dict[int, tuple[str, str]] = {}
    for step, call in enumerate(program.calls):
        for y, x in overwritten_pairs(program, call):
            if alive.get(x, (0, -1))[1] == step and alive.get(y, (-1, 0))[0] == step:
                owner_by_buffer[step] = (y, x)
                break
    return owner_by_buffer


def overwritten_pairs(program: Program, call: Call) -> list[tuple[str, str]]:
    """The pairs of buffers of which the call may write the first over the second."""
    pairs = (_overwritten_pair(program, call, output, source) for output, source in call.kernel.overwrites)
    return [pair for pair in pairs if pair is not None]


def _overwritten_pair(program: Program, call: Call, output: str, source: str) -> tuple[str, str] | None:
    """The buffers behind (output, source) when the call may write the one over the other."""
    y, x = call.operands.get(output), call.operands.get(source)
    if y is None or x is None or y.buffer == x.buffer:
        return None
    result, origin = program.buffers[y.buffer], program.buffers[x.buffer]
    if result.role is not Role.LOCAL or origin.role is not Role.LOCAL:
        return None
    if not (_covers_buffer(y, result) and _covers_buffer(x, origin)) or result.bytes != origin.bytes:
        return None
    if result.dtype.bytes != origin.dtype.bytes:
        return None  # more elements that are shorter: one that is broadcast would be overwritten before its last use
    maps = call.geometry.nest.maps()
    if output in maps and source in maps and maps[output].axes != maps[source].axes:
        return None  # a tile would overwrite what another one still reads
    others = [o for name, o in call.operands.items() if name not in (output, source) and o.buffer == x.buffer]
    return (y.buffer, x.buffer) if all(o.access == x.access for o in others) else None


def _covers_buffer(operand: Operand, buffer: Buffer) -> bool:
    """Whether the operand is all of its buffer, in order."""
    access = operand.access
    return access.is_dense and access.offset == 0 and math.prod(access.shape) == math.prod(buffer.shape)
