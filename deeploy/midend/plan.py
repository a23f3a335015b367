"""The Plan: where every buffer lies, at which level, and for how long.

For a machine with one flat memory, the plan is a static arena: local buffers and scratch are packed by lifetime and
address (``deeploy.midend.pack``), constants are read-only data, inputs and outputs belong to the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from deeploy.graph.target import Target
from deeploy.midend.lifetime import Lifetime, lifetimes
from deeploy.midend.pack import Block, pack
from deeploy.midend.program import Program, Role


@dataclass(frozen=True)
class Placement:
    """``size`` bytes at ``offset`` of a level's arena, from step ``first`` to ``last``; shared by ``buffers``."""

    level: str
    offset: int
    size: int
    first: int
    last: int
    buffers: tuple[str, ...]


@dataclass(frozen=True)
class LevelUse:
    """Bytes of one memory level: the arena's peak and its lower bound, the caller's arrays, constants, reserved."""

    capacity: int | None
    alignment: int
    peak: int
    lower_bound: int
    io: int
    constants: int
    reserved: int = 0


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything needed to emit a program for a target."""

    program: Program
    target: Target
    placements: tuple[Placement, ...]
    memory: Mapping[str, LevelUse]

    @cached_property
    def offsets(self) -> Mapping[str, int]:
        """Offset of every local and scratch buffer in its arena, in bytes."""
        return {name: p.offset for p in self.placements for name in p.buffers}

    def __str__(self) -> str:
        rows = [f"plan {self.program.name} for {self.target.name}"]
        for name, use in self.memory.items():
            rows.append(f"  {name}: peak {use.peak} of lower bound {use.lower_bound}, io {use.io}, constants {use.constants}")
        for p in sorted(self.placements, key=lambda p: (p.first, p.offset)):
            rows.append(f"  {p.level}+{p.offset}: {'='.join(p.buffers)} {p.size} bytes, steps {p.first}..{p.last}")
        return "\n".join(rows)


def plan(program: Program, target: Target) -> Plan:
    """Place every buffer of ``program`` in the memory of ``target``.

    Raises:
        FitError: the arena does not fit the level's capacity.
    """
    level = target.memories[0]
    blocks = lifetimes(program)
    packing = pack([_block(b) for b in blocks], level.alignment, level.capacity)
    placements = tuple(Placement(level.name, packing.offsets[b.buffers[0]], b.size, b.first, b.last, b.buffers) for b in blocks)
    io = sum(program.buffers[name].bytes for name in (*program.inputs, *program.outputs))
    constants = sum(b.bytes for b in program.buffers.values() if b.role is Role.CONSTANT)
    use = LevelUse(level.capacity, level.alignment, packing.peak, packing.lower_bound, io, constants)
    return Plan(program, target, placements, {level.name: use})


def _block(lifetime: Lifetime) -> Block:
    return Block(lifetime.buffers[0], lifetime.first, lifetime.last, lifetime.size)
