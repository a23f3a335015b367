"""Tables of a flatbuffer, read with every offset and length checked: the bytes may be anything.

A table is described by its fields in the order of their slots: ``name:kind`` with an optional default. Kinds are those of numbers
(``i`` int32, ``I`` uint32, ``b`` int8, ``B`` uint8, ``f`` float32, ``q`` int64, ``Q`` uint64), ``s`` for text, ``@TABLE``, and vectors
of these in brackets. ``-`` is a slot that nobody reads. The format: https://flatbuffers.dev/internals.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from deeploy.frontend.schemas import Attributes

_MOST_TABLES = 200_000  # several offsets may lead to one table, so that a small file could hold any number
_NUMBERS = frozenset("iIbBfqQ")


class Flatbuffer:
    """The bytes of a file and the tables in it."""

    def __init__(self, content: bytes, tables: Mapping[str, str]) -> None:
        """Args: the content of a file, and what is said of the fields of every kind of table."""
        self._content, self._tables, self._left = content, tables, _MOST_TABLES

    def read_root(self, kind: str) -> Attributes:
        """The table that the file begins with.

        Raises:
            ValueError: an offset or a length that leads out of the file, or more tables than a model has.
        """
        return self.read_at(self._follow(0), kind)

    def read_at(self, place: int | None, kind: str) -> Attributes:
        """A table at a place, as fields of kind ``u`` hold; all defaults where there is none. It raises as ``read_root``."""
        return self._read_table(place, kind)

    def _number(self, kind: str, place: int) -> Any:
        if not 0 <= place <= len(self._content) - struct.calcsize(f"<{kind}"):
            raise ValueError("an offset leads out of it")
        return struct.unpack_from(f"<{kind}", self._content, place)[0]

    def _follow(self, place: int) -> int:
        return place + int(self._number("I", place))

    def _read_table(self, place: int | None, kind: str) -> Attributes:
        self._left -= 1
        if self._left < 0:
            raise ValueError("it has more tables than any model")
        slots: list[int] = []
        if place is not None:
            begin = place - self._number("i", place)
            count = (self._number("H", begin) - 4) // 2
            slots = [self._number("H", begin + 4 + 2 * slot) for slot in range(max(0, count))]
        fields: Attributes = {}
        for slot, text in enumerate(self._tables[kind].split()):
            name, _, about = text.partition(":")
            code, _, default = about.partition("=")
            offset = slots[slot] if slot < len(slots) else 0
            if name != "-":
                fields[name] = self._read_field(place + offset, code) if offset and place is not None else _absent(code, default)
        return fields

    def _read_field(self, place: int, code: str) -> Any:
        if code in _NUMBERS:
            return self._number(code, place)
        place = self._follow(place)
        if code == "u":
            return place
        if code.startswith("@"):
            return self._read_table(place, code[1:])
        count, begin = int(self._number("I", place)), place + 4
        kind = code.strip("[]")
        if kind.startswith("@"):
            self._number("B", begin + 4 * count - 1)  # all of them are in the file
            return [self._read_table(self._follow(begin + 4 * at), kind[1:]) for at in range(count)]
        if kind == "s":
            return self._vector("B", begin, count).tobytes().decode("utf-8", "replace")
        return self._vector(kind, begin, count)

    def _vector(self, kind: str, begin: int, count: int) -> np.ndarray:
        dtype = np.dtype(kind).newbyteorder("<")
        if begin + count * dtype.itemsize > len(self._content):
            raise ValueError("a list leads out of it")
        return np.frombuffer(self._content[begin : begin + count * dtype.itemsize], dtype)


def _absent(code: str, default: str) -> Any:
    if code in _NUMBERS:
        return float(default or 0) if code == "f" else int(default or 0)
    return "" if code == "s" else None if code == "u" or code.startswith("@") else []
