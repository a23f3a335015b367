"""Which names the text mentions that expressions are printed into: what has to be declared in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from deeploy.ir.expr import PRINTED, Atom, Named, Variable


@dataclass
class Mentions:
    """The variables and named parts that were printed."""

    atoms: dict[Atom, None] = field(default_factory=dict)

    def names(self) -> set[str]:
        """Their names, and those of all that the values of named parts mention."""
        return {inner.name for atom in self.atoms for inner in atom.atoms() if isinstance(inner, Variable | Named)}

    def parts(self) -> list[Named]:
        """The named parts, and those that their values mention: each behind those that it needs."""
        ordered: dict[Named, None] = {}

        def add(part: Named) -> None:
            if part not in ordered:
                for inner in part.value.atoms():
                    if isinstance(inner, Named):
                        add(inner)
                ordered[part] = None

        for atom in self.atoms:
            if isinstance(atom, Named):
                add(atom)
        return list(ordered)


@contextmanager
def mentions() -> Iterator[Mentions]:
    """Notes the variables and named parts that are printed inside."""
    noted, around = Mentions(), PRINTED.get()
    token = PRINTED.set(noted.atoms)
    try:
        yield noted
    finally:
        PRINTED.reset(token)
        if around is not None:
            around.update(noted.atoms)
