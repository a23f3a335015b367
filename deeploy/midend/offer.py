"""Which of the variants of a call a plan may choose from: all but those that another one replaces whatever the plan is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deeploy.midend.candidates import Tiler
from deeploy.midend.program import Call, Program, narrowed


def offered(program: Program, tiler: Callable[[Call], Tiler], kind: Callable[[Call], object]) -> Program:
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
            known[key] = _worth([tiler(variant) for variant in variants]) if len(variants) > 1 else (0,)
        numbers.append(known[key])
    return narrowed(program, numbers)


def _worth(variants: Sequence[Tiler]) -> tuple[int, ...]:
    """The numbers of the variants that no other one replaces; of several that replace each other, the first."""
    kept = list(range(len(variants)))
    for number in reversed(range(len(variants))):
        rivals = [other for other in kept if other != number and variants[number].is_never_better(variants[other])]
        if any(other < number or not variants[other].is_never_better(variants[number]) for other in rivals):
            kept.remove(number)
    return tuple(kept)
