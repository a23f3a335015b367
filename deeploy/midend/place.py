"""Place: an address for everything that a choice puts into each memory.

Every memory is a packing problem of its own (``deeploy.midend.pack``): buffers resident there for as long as they are alive,
windows and scratch for the step of their call, windows that are filled early from the step before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deeploy.graph.target import Target
from deeploy.midend.candidate import Candidate
from deeploy.midend.chain import Chain
from deeploy.midend.lifetime import Lifetime
from deeploy.midend.pack import Block, PackError, Packing, pack
from deeploy.midend.program import Program, ahead, content

SHORT = 0.02  # of the packer's budget, to lower a peak that fits anyway; on a flat machine the peak is what counts


@dataclass(frozen=True)
class Placement:
    """``size`` bytes at ``offset`` of a level's arena, from step ``first`` to ``last``; shared by ``buffers``.

    Windows are named ``CALL.OPERAND``; the window of an operand in a memory further out
    ends in ``@LEVEL``.
    """

    level: str
    offset: int
    size: int
    first: int
    last: int
    buffers: tuple[str, ...]


def window_name(call: str, operand: str, level: str, engine_level: str) -> str:
    """The name of a window's block."""
    return f"{call}.{operand}" if level == engine_level else f"{call}.{operand}@{level}"


@dataclass(frozen=True)
class Tenant:
    """What asks for room in a memory."""

    level: str
    size: int
    first: int
    last: int
    buffers: tuple[str, ...]


def tenants(
    program: Program,
    target: Target,
    candidates: Sequence[Candidate],
    residences: Mapping[str, str],
    blocks: Sequence[Lifetime],
    kept: Mapping[str, tuple[int, int]],
    chains: Sequence[Chain] = (),
) -> list[Tenant]:
    """Everything that needs an address.

    Args:
        residences: the level of every lifetime's first buffer.
        blocks: lifetimes of local buffers.
        kept: first and last step of the copies of far constants.
        chains: calls that run side by side, so that what each of them has is there during all of them.
    """
    result = [Tenant(residences[b.buffers[0]], b.size, b.first, b.last, b.buffers) for b in blocks if b.buffers[0] in residences]
    copies: dict[object, list[str]] = {}
    for name, steps in kept.items():
        copies.setdefault((residences[name], steps, content(program.buffers[name])), []).append(name)
    for names in copies.values():
        result.append(Tenant(residences[names[0]], program.buffers[names[0]].bytes, *kept[names[0]], tuple(names)))
    for step, (call, candidate) in enumerate(zip(program.calls, candidates, strict=True)):
        tiling = candidate.tiling
        inner = target.engine(call.kernel.engine).memory
        first, last = next(((c.first, c.last) for c in chains if c.first <= step <= c.last), (step, step))
        for stream in tiling.streams:
            level = next(path.near for path in target.paths if path.name == stream.path)
            name = window_name(call.name, stream.operand, level, inner)
            begin = step - ahead(program.calls, step) if stream.is_early else first
            result.append(Tenant(level, stream.bytes * stream.depth, begin, last, (name,)))
        tile = {**call.geometry.extents, **tiling.sizes} if call.scratch else {}
        for key, name in call.scratch.items():
            size = int(call.kernel.scratch[key].total(call.node, tile)) * call.kernel.slots(key, candidate.is_double and tiling.tiles > 1)
            result.append(Tenant(inner, size, first, last, (name,)))
    return result


def place(everything: Sequence[Tenant], target: Target, capacities: Mapping[str, int]) -> tuple[tuple[Placement, ...], dict[str, Packing]]:
    """Pack every memory.

    Raises:
        Overfull: a memory's tenants do not fit, or no packing was found.
    """
    placements: list[Placement] = []
    packings: dict[str, Packing] = {}
    for memory in target.memories[:1] if target.is_flat else target.memories:
        inside = [t for t in everything if t.level == memory.name]
        blocks = [Block(t.buffers[0], t.first, t.last, t.size) for t in inside]
        try:
            packing = _lowest(blocks, memory.alignment, capacities[memory.name], 1.0 if target.is_flat else SHORT)
        except PackError as error:
            raise Overfull(memory.name, error) from error
        packings[memory.name] = packing
        placements += [Placement(t.level, packing.offsets[t.buffers[0]], t.size, t.first, t.last, t.buffers) for t in inside]
    return tuple(placements), packings


def _lowest(blocks: Sequence[Block], alignment: int, capacity: int, effort: float) -> Packing:
    """A packing within the capacity, and as low as a search finds."""
    packing = pack(blocks, alignment, effort=effort)
    return packing if packing.peak <= capacity else pack(blocks, alignment, capacity)


class Overfull(Exception):
    """A memory that cannot be packed; ``error`` says which step and how many bytes would do."""

    def __init__(self, level: str, error: PackError) -> None:
        super().__init__(level)
        self.level = level
        self.error = error
