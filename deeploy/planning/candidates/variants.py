"""Which of the variants of a call a plan may choose from: all but those that another one replaces whatever the plan is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from deeploy.planning.candidates.tiler import PLENTY, Tiler
from deeploy.planning.program import Call, Program, narrow_variants

FAR_OFF = 2  # times as many cycles: what no plan is likely to want


def prune_variants(program: Program, tiler: Callable[[Call], Tiler], kind: Callable[[Call], object]) -> Program:
    """The program without the variants of its calls that are never better than another one; the order of preference stays.

    Args:
        kind: what calls have in common that are tiled alike.
    """
    known: dict[tuple[object, ...], tuple[int, ...]] = {}
    numbers = []
    for step in range(len(program.calls)):
        variants = program.variants(step)
        key = tuple(map(kind, variants))
        if key not in known:
            known[key] = _undominated_variants([tiler(variant) for variant in variants]) if len(variants) > 1 else (0,)
        numbers.append(known[key])
    return narrow_variants(program, numbers)


def _undominated_variants(variants: Sequence[Tiler]) -> tuple[int, ...]:
    """The numbers of the variants that no other one replaces; of several that replace each other, the first."""
    remaining = sorted(range(len(variants)), key=lambda number: variants[number].whole.min())  # what replaces most is found first
    for number in reversed(range(len(variants))):
        rivals = (other for other in remaining if other != number and is_never_better(variants[number], variants[other]))
        if any(other < number or not is_never_better(variants[other], variants[number]) for other in rivals):
            remaining.remove(number)
    return tuple(sorted(remaining))


def is_never_better(one: Tiler, other: Tiler) -> bool:
    """Whether another variant of the call on the same engine is better in any plan that matters.

    The other one is better if it is ``FAR_OFF`` times as fast, and finds room for a tile where this one does. It is also better if it
    needs no more scratch memory, may be cut wherever this one may, stores no more constants, and takes no more cycles. Tiles by which
    this one takes more than ``FAR_OFF`` times its best are not looked at.
    """
    if one.engine is not other.engine or one.stored.keys() != other.stored.keys():
        return False
    if one.call.geometry.nest.accumulated and not other.call.geometry.nest.accumulated and other.least * PLENTY <= one.plenty:
        return True  # what is not cut takes little room
    mine, theirs = one.whole, other.whole
    if theirs.min() * FAR_OFF <= mine.min() and (other.least <= one.plenty or other.least <= one.least):
        return True
    is_alike = one.choices == other.choices
    if (
        one.call.geometry.extents != other.call.geometry.extents
        or one.windows.keys() != other.windows.keys()
        or any(other.dims.get(name, 0) == 0 or multiple % other.dims[name] for name, multiple in one.dims.items())
        or any(other.stored[memory] > size for memory, size in one.stored.items())
        or np.any((other.scratch if is_alike else other.scratch_of(one.size)) > one.scratch)
    ):
        return False
    theirs = theirs if is_alike else other.computing(one.size, one.tiles)
    near = mine <= FAR_OFF * mine.min()
    return bool(np.all((theirs <= mine)[near]) and np.all((theirs - other.cold <= mine - one.cold)[near]))
