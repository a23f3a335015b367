"""Static allocation: an address for every buffer of a memory, decided from lifetimes and sizes.

Problem. Every block lives from step `first` to step `last` and occupies a contiguous range of addresses for all of that time. Blocks that
live at the same time must not share an address. Find the packing with the smallest peak, or any packing within a capacity.

Model. A block is a rectangle, lifetime by addresses, that moves along the addresses only; offsets are multiples of the alignment, and a
block occupies its size rounded up to it (also in the peak), so rectangles stay on one grid. Blocks of no size touch nothing.

Bound. At every step the live blocks lie above one another: the largest sum of live sizes, or the end of a pinned block above it, is a
lower bound of the peak. It is not always reached. Greedy orders are tried first and return at once when they reach it; otherwise a beam
search and an exact one take turns within deterministic budgets (``deeploy.midend.pack_solve``). Nothing depends on the clock, on the
number of cores or on the order of the input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from deeploy.errors import FitError, UsageError, shorten
from deeploy.midend.pack_instance import Instance, sections
from deeploy.midend.pack_solve import Work, solve


@dataclass(frozen=True)
class Block:
    """A buffer: ``size`` bytes, live in the steps ``first`` to ``last`` inclusive; ``fixed`` pins its offset in bytes."""

    name: str
    first: int
    last: int
    size: int
    fixed: int | None = None


@dataclass(frozen=True)
class Packing:
    """An offset in bytes for every block, by name.

    ``peak`` is the end of the highest block and ``lower_bound`` what no packing can go below, both in bytes and rounded up to the
    alignment. ``status`` is ``optimal`` when the two are equal, ``feasible`` otherwise. ``work`` is what the searches cost.
    """

    offsets: Mapping[str, int]
    peak: int
    lower_bound: int
    status: Literal["optimal", "feasible"]
    work: Work = field(default_factory=Work)


class PackError(FitError):
    """Blocks that do not fit a capacity.

    Attributes:
        step: the first step with the largest load.
        blocks: names of the blocks that live then, largest first.
        needed: a capacity in bytes that does suffice.
        proven: whether no packing within the capacity exists; otherwise none was found.
    """

    def __init__(self, what: str, remedy: str, *, step: int, blocks: tuple[str, ...], needed: int, proven: bool) -> None:
        super().__init__(what, remedy)
        self.step = step
        self.blocks = blocks
        self.needed = needed
        self.proven = proven


def pack(blocks: Sequence[Block], alignment: int = 1, capacity: int | None = None, effort: float = 1.0) -> Packing:
    """Return offsets for ``blocks`` with the smallest peak found or, given a ``capacity``, the first packing found that fits it.

    Args:
        blocks: buffers with distinct names.
        alignment: bytes; every offset is a multiple of it.
        capacity: bytes of the memory, or None to minimise the peak.
        effort: factor on the budgets of the searches; 0 leaves the greedy orders.

    Raises:
        PackError: the blocks do not fit the capacity, or no packing that fits was found.
        UsageError: a pinned offset is not aligned, or two pinned blocks overlap.
        ValueError: a block that is none: negative size or offset, ends before it begins, a name used twice.
    """
    _check(blocks, alignment)
    solid = sorted((b for b in blocks if b.size > 0), key=lambda b: (b.first, b.last, -b.size, b.fixed is None, b.fixed or 0, b.name))
    offsets = {b.name: b.fixed or 0 for b in blocks if b.size == 0}
    instance, unit = _instance(solid, alignment)
    bound = instance.bound
    if capacity is not None and bound * unit > capacity:
        raise _too_small(solid, instance, unit, alignment, capacity, effort)
    goal = bound if capacity is None else capacity // unit
    outcome = solve(instance, goal, effort)
    found, bound = outcome.offsets, outcome.bound
    peak = instance.peak(found)
    if capacity is not None and peak > goal:
        raise _not_found(solid, peak * unit, bound * unit, alignment, capacity)
    offsets |= {block.name: offset * unit for block, offset in zip(solid, found, strict=True)}
    ordered = {b.name: offsets[b.name] for b in sorted(blocks, key=lambda b: (b.first, b.last, b.name))}
    return Packing(ordered, peak * unit, bound * unit, "optimal" if peak == bound else "feasible", outcome.work)


def _check(blocks: Sequence[Block], alignment: int) -> None:
    """Refuse what is no packing problem."""
    if alignment < 1:
        raise ValueError(f"alignment {alignment} is less than one byte")
    if len({block.name for block in blocks}) != len(blocks):
        raise ValueError("two blocks share a name")
    for block in blocks:
        if block.size < 0 or block.last < block.first or (block.fixed is not None and block.fixed < 0):
            raise ValueError(f"not a block: {block}")
        if block.fixed is not None and block.fixed % alignment:
            raise UsageError(
                f"block '{shorten(block.name)}' is pinned to offset {block.fixed}, not a multiple of the alignment of {alignment} bytes",
                "Pin it to an aligned offset, or choose a smaller alignment.",
            )
    pinned = sorted((block.fixed, block.name, block) for block in blocks if block.fixed is not None and block.size)
    for i, (offset, _, upper) in enumerate(pinned):
        for _, _, lower in pinned[:i]:
            if (lower.fixed or 0) + lower.size > offset and lower.first <= upper.last and upper.first <= lower.last:
                raise UsageError(
                    f"blocks '{shorten(lower.name)}' and '{shorten(upper.name)}' are pinned to addresses that overlap while both live",
                    f"Move one of them: they take {lower.size} bytes at {lower.fixed} and {upper.size} bytes at {upper.fixed}.",
                )


def _instance(solid: Sequence[Block], alignment: int) -> tuple[Instance, int]:
    """Restate the blocks in sections and units; returns the instance and the bytes of a unit."""
    sizes = [-(-block.size // alignment) * alignment for block in solid]
    unit = math.gcd(*sizes, *(block.fixed for block in solid if block.fixed)) or alignment
    ranges = sections([(block.first, block.last) for block in solid])
    instance = Instance(
        lo=tuple(lo for lo, _ in ranges),
        hi=tuple(hi for _, hi in ranges),
        size=tuple(size // unit for size in sizes),
        pinned=tuple(None if block.fixed is None else block.fixed // unit for block in solid),
    )
    return instance, unit


def _worst(solid: Sequence[Block], alignment: int) -> tuple[int, int, list[Block]]:
    """The first step with the largest load, that load in bytes, and its blocks, largest first."""

    def live(step: int) -> list[Block]:
        return [block for block in solid if block.first <= step <= block.last]

    def load(step: int) -> int:
        return sum(-(-block.size // alignment) * alignment for block in live(step))

    step = max(sorted({block.first for block in solid}), key=load)
    return step, load(step), sorted(live(step), key=lambda block: (-block.size, block.name))


def _listed(blocks: Sequence[Block], limit: int = 6) -> str:
    """Names and sizes of the largest blocks."""
    names = [f"'{shorten(block.name)}' ({block.size})" for block in blocks[:limit]]
    return ", ".join(names) + (f" and {len(blocks) - limit} more" if len(blocks) > limit else "")


def _too_small(solid: Sequence[Block], instance: Instance, unit: int, alignment: int, capacity: int, effort: float) -> PackError:
    """The error when the lower bound alone exceeds the capacity; packs without a capacity to name one that would do."""
    outcome = solve(instance, instance.bound, effort)
    peak, bound = instance.peak(outcome.offsets), outcome.bound
    step, load, live = _worst(solid, alignment)
    if load > capacity:
        what = f"step {step} needs {load} bytes at once, {capacity} are there; live then: {_listed(live)}"
    else:
        top = max((block for block in solid if block.fixed is not None), key=lambda block: ((block.fixed or 0) + block.size, block.name))
        what = f"block '{shorten(top.name)}' of {top.size} bytes is pinned to offset {top.fixed}, beyond the {capacity} bytes there are"
    smallest = "The smallest capacity that would do is" if peak == bound else "A capacity that would do is"
    remedy = f"{smallest} {peak * unit} bytes; or shrink these blocks or their lifetimes."
    return PackError(what, remedy, step=step, blocks=tuple(block.name for block in live), needed=peak * unit, proven=True)


def _not_found(solid: Sequence[Block], peak: int, bound: int, alignment: int, capacity: int) -> PackError:
    """The error when every step fits alone but no packing was found; all values in bytes."""
    step, load, live = _worst(solid, alignment)
    proven = bound > capacity
    reason = "no packing exists" if proven else "no packing was found"
    what = f"{reason} within {capacity} bytes, the best takes {peak}; the largest load is {load} bytes at step {step}: {_listed(live)}"
    more = "" if proven else ", or raise the effort"
    remedy = f"A capacity of {peak} bytes would do; or shrink these blocks or their lifetimes{more}."
    return PackError(what, remedy, step=step, blocks=tuple(block.name for block in live), needed=peak, proven=proven)
