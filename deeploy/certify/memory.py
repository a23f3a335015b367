"""What every byte of every memory holds, and who works on it: the memories of a machine, transfers and jobs under way, cores side by side.

A byte holds a number: that of a byte of a tensor, of a constant, or 0 where nothing was put. Transfers and kernels move and make numbers;
no value is ever computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import as_strided

SHIFT = 40  # the bits of an address below the number of its memory


class CertificateError(Exception):
    """The printed C does not do what the graph says."""


class Region:
    """A run of bytes: the arena of a memory, an array of the caller, a constant.

    Attributes:
        holds: the numbers of the bytes.
    """

    def __init__(self, name: str, holds: np.ndarray, is_writable: bool = True) -> None:
        self.name = name
        self.holds = holds
        self.size = len(holds)
        self.is_writable = is_writable
        self.marks = np.zeros(0, np.int8)


class ConstantRegion(Region):
    """A constant of some ``values``, bytes with numbers below 0, ``begin`` of them in front; mostly it is read where it lies."""

    def __init__(self, name: str, values: np.ndarray, begin: int) -> None:
        super().__init__(name, values, False)
        del self.holds
        self.values = values
        self.begin = begin

    def __getattr__(self, name: str) -> np.ndarray:
        if name != "holds":
            raise AttributeError(name)
        self.holds = -np.arange(self.begin, self.begin + self.size, dtype=np.int32)
        return self.holds


@dataclass(frozen=True, eq=False)
class Span:
    """Bytes of a region along axes: ``begin``, counts and distances, the last axis one byte apart; from ``low`` to in front of ``high``."""

    region: Region
    begin: int
    counts: tuple[int, ...]
    steps: tuple[int, ...]
    low: int = field(init=False)
    high: int = field(init=False)

    def __post_init__(self) -> None:
        low = high = self.begin
        for count, step in zip(self.counts, self.steps, strict=True):
            if step < 0:
                low += (count - 1) * step
            else:
                high += (count - 1) * step
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high + 1)

    @property
    def key(self) -> tuple[object, ...]:
        return id(self.region), self.begin, self.counts, self.steps

    def of(self, array: np.ndarray) -> np.ndarray:
        """These bytes of an array that has an element for every byte of the region."""
        size = array.itemsize
        return as_strided(array[self.begin :], self.counts, tuple(step * size for step in self.steps))

    def meets(self, other: Span) -> bool:
        """Whether both spans have a byte in common."""
        if self.region is not other.region or self.low >= other.high or other.low >= self.high:
            return False
        if not self.region.marks.size:
            self.region.marks = np.zeros(self.region.size, np.int8)
        self.of(self.region.marks)[...] = 1
        is_overlapping = bool(other.of(self.region.marks).any())
        self.of(self.region.marks)[...] = 0
        return is_overlapping


@dataclass(eq=False)
class Flight:
    """A transfer or a job that was begun and not yet waited for."""

    label: str
    reads: list[Span]
    writes: list[Span]


@dataclass
class _MemoryAccess:
    cores: set[int]
    span: Span
    label: str
    holds: np.ndarray | None  # what is written; None of what is read


@dataclass
class Memories:
    """The state of all memories while the first core, or a team, runs."""

    regions: dict[int, Region] = field(default_factory=dict)
    flights: dict[object, list[Flight]] = field(default_factory=dict)
    _touched: list[Flight] = field(default_factory=list)  # under way at some time since the last barrier
    _accesses: list[_MemoryAccess] = field(default_factory=list)  # since the last barrier, of a team
    is_team: bool = False

    def add(self, region: Region) -> int:
        """Gives a region an address of its own, and returns that."""
        number = len(self.regions) + 1
        self.regions[number] = region
        return number << SHIFT

    def span(self, address: int, counts: Sequence[int], steps: Sequence[int], what: str) -> Span:
        """Bytes behind an address.

        Raises:
            CertificateError: they are not inside of one memory.
        """
        region = self.regions.get(address >> SHIFT)
        if region is None:
            raise CertificateError(f"{what} is at no address of any memory")
        span = Span(region, address & ((1 << SHIFT) - 1), tuple(counts), tuple(steps))
        if span.low < 0 or span.high > region.size:
            raise CertificateError(f"{what} are bytes {span.low} to {span.high - 1} of {region.name}, which has {region.size}")
        return span

    def read(self, core: int, span: Span, label: str) -> None:
        """Records that a core reads ``span``, which nothing may be writing."""
        self._check(span, label, False)
        self._note(core, span, label, None)

    def write(self, core: int, span: Span, label: str, holds: np.ndarray | int) -> None:
        """Records that a core writes ``span``, which holds the elements ``holds`` from then on."""
        self._put(span, label, holds)
        self._note(core, span, label, span.of(span.region.holds))

    def _put(self, span: Span, label: str, holds: np.ndarray | int) -> None:
        if not span.region.is_writable:
            raise CertificateError(f"{label} writes {span.region.name}")
        self._check(span, label, True)
        span.of(span.region.holds)[...] = holds

    def begin(self, queue: object, label: str, reads: list[Span], makes: Sequence[tuple[Span, np.ndarray | int]]) -> None:
        """A transfer or a job sets out: what it reads and writes belongs to it until it is waited for."""
        flight = Flight(label, reads, [span for span, _ in makes])
        for span in reads:
            self._check(span, label, False)
        for span, holds in makes:
            self._put(span, label, holds)
        self.flights.setdefault(queue, []).append(flight)
        self._touched.append(flight)

    def wait(self, queue: object, is_oldest: bool = False) -> None:
        """All that was begun in a queue is over, or the oldest of it."""
        waiting = self.flights.get(queue, [])
        del waiting[: 1 if is_oldest else len(waiting)]

    def barrier(self) -> None:
        """All cores of a team have come here: checks that what they did since the last one does not depend on their order."""
        accesses, self._accesses = self._accesses, []
        for access in accesses:
            for flight in self._touched if any(access.cores) else ():
                self._apart(access.span, access.label, access.holds is not None, flight)
        self._check_races(accesses)
        self._touched = [flight for waiting in self.flights.values() for flight in waiting]

    def _check(self, span: Span, label: str, is_write: bool) -> None:
        for waiting in self.flights.values():
            for flight in waiting:
                self._apart(span, label, is_write, flight)

    def _apart(self, span: Span, label: str, is_write: bool, flight: Flight) -> None:
        others = [*flight.writes, *flight.reads] if is_write else flight.writes
        if any(span.meets(other) for other in others):
            verb = "is written" if is_write else "is read"
            raise CertificateError(f"{label} {verb} while {flight.label} is under way")

    def _note(self, core: int, span: Span, label: str, holds: np.ndarray | None) -> None:
        if self.is_team:
            self._accesses.append(_MemoryAccess({core}, span, label, None if holds is None else holds.copy()))

    def _check_races(self, accesses: list[_MemoryAccess]) -> None:
        unique: dict[object, _MemoryAccess] = {}
        for access in accesses:
            known = unique.setdefault((access.span.key, access.holds is None), access)
            if not access.cores <= known.cores and access.holds is not None:
                self._equal(known, access)
            known.cores |= access.cores
        regions: dict[int, list[_MemoryAccess]] = {}
        for access in unique.values():
            regions.setdefault(id(access.span.region), []).append(access)
        for accesses_of_region in regions.values():
            for access, other in _near_accesses(accesses_of_region):
                if len(access.cores | other.cores) > 1 and access.span.meets(other.span):
                    if access.holds is None:
                        raise CertificateError(f"{_name_access(access)} is read while {_name_access(other)} is written")
                    self._equal(access, other)

    def _equal(self, one: _MemoryAccess, other: _MemoryAccess) -> None:
        """Cores may write the same bytes only where they write the same."""
        assert one.holds is not None and other.holds is not None
        now = one.span.of(one.span.region.holds)
        if (now != one.holds).any() or (other.span.of(other.span.region.holds) != other.holds).any():
            raise CertificateError(f"{_name_access(one)} and {_name_access(other)} are written to the same place")


def _near_accesses(accesses: list[_MemoryAccess]) -> Iterator[tuple[_MemoryAccess, _MemoryAccess]]:
    """Pairs of an access and one that writes, of which neither ends before the other begins."""
    open_: list[_MemoryAccess] = []
    for access in sorted(accesses, key=lambda each: each.span.low):
        open_ = [other for other in open_ if other.span.high > access.span.low]
        for other in open_:
            if other.holds is not None:
                yield access, other
            elif access.holds is not None:
                yield other, access
        open_.append(access)


def _name_access(access: _MemoryAccess) -> str:
    return f"{access.label} of core{'s' * (len(access.cores) > 1)} {', '.join(map(str, sorted(access.cores)))}"
