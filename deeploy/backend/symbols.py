"""Sizes that are known when the code runs: products of C variables, exact enough to be compared.

Templates and their helpers multiply and compare extents and strides. Where a tile's window is not always of one size, these are
``Size`` objects: a constant times C variables. They print as C expressions that bind like a product in parentheses.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """``factor`` times the C variables ``names`` (sorted)."""

    factor: int
    names: tuple[str, ...] = ()

    def __mul__(self, other: Size | int) -> Size | int:
        if isinstance(other, int):
            return plain(Size(self.factor * other, self.names if other else ()))
        return plain(Size(self.factor * other.factor, tuple(sorted(self.names + other.names))))

    __rmul__ = __mul__

    def __str__(self) -> str:
        parts = [*self.names, *([str(self.factor)] if self.factor != 1 or not self.names else [])]
        return parts[0] if len(parts) == 1 else f"({' * '.join(parts)})"


def plain(size: Size) -> Size | int:
    """An int where nothing is unknown."""
    return size if size.names else size.factor


def variable(name: str) -> Size:
    """A C variable as a size."""
    return Size(1, (name,))


def product(sizes: list[Size | int] | tuple[Size | int, ...]) -> Size | int:
    """The product of sizes; 1 for none."""
    result: Size | int = 1
    for size in sizes:
        result = result * size
    return result


def text(*terms: tuple[str, Size | int]) -> str:
    """The C sum of products ``variable * size``; terms times zero vanish, and so does ``* 1``."""
    parts = [name if size == 1 else f"{name} * {size}" for name, size in terms if size != 0 and name != "0"]
    return " + ".join(parts) or "0"
