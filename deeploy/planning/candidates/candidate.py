"""One way to tile one variant of a call, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from deeploy.planning.tiling.loops import CallTiling


class Tile(Enum):
    """The first tile of a call, as large as any, or the last one."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True)
class Candidate:
    """One variant of a call.

    Attributes:
        distances: per operand, where it comes from or goes to.
        bytes: in the engine's memory, and then in every memory further out: windows and scratch.
        cycles: predicted, when nothing was fetched before the call, and its instructions are not cached.
        prefetchable_cycles: cycles saved when the first windows of constants are there already.
        prefetchable_bytes: of these windows, in the engine's memory.
        prefetchable_issue: further cycles saved where the call before has an accelerator compute: they are started meanwhile.
        last_tile_cycles: of computing the last tile, in which prefetched windows of the next call arrive.
        far: cycles in which its own windows occupy the path from the far memory.
        variant: which variant of the call (``Program.variants``).
        engine_memory: the engine's own memory, as the number that ``distances`` and ``bytes`` count memories by.
        surcharge: of its cycles, those that stand for energy (``Machine.price``) and that nobody waits for.
        cache_saving: cycles saved when its instructions are cached, and ``last_tile_cache_saving`` what the last tile takes less then.
    """

    tiling: CallTiling
    distances: tuple[int, ...]
    bytes: tuple[int, ...]
    cycles: int
    prefetchable_cycles: int
    prefetchable_bytes: int
    last_tile_cycles: int
    far: int
    is_double: bool
    cache_saving: int = 0
    last_tile_cache_saving: int = 0
    prefetchable_issue: int = 0
    variant: int = 0
    engine_memory: int = 0
    surcharge: int = 0

    @cached_property
    def states(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Cycles of the candidate and of its last tile, when its instructions are not cached and when they are."""
        return (self.cycles, self.last_tile_cycles), (self.cycles - self.cache_saving, self.last_tile_cycles - self.last_tile_cache_saving)


class TiledOp(NamedTuple):
    """A call as a call of a fused group has it: cycles of an accelerator, and bytes that move, by path.

    ``busy`` are cycles of the first core, those in which it starts transfers among them, without ``set_up``, those in which it sets tiles
    of an accelerator up, which ``job`` has as well.
    """

    candidate: Candidate
    job: int
    traffic: Mapping[str, int]
    busy: int
    set_up: int


def with_prefetch(candidate: Candidate, is_prefetchable: bool) -> Candidate:
    """The candidate with its constants' first windows fetched before the call, or not."""
    streams = tuple(replace(s, is_prefetchable=s.is_prefetchable and is_prefetchable) for s in candidate.tiling.streams)
    return replace(candidate, tiling=replace(candidate.tiling, streams=streams))
