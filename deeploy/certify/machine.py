"""The runtime's functions, on memories that hold numbers: what cores, transfers and jobs do, in the order that barriers and waits leave."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypedDict

from deeploy.certify.memory import CertificateError, Memories
from deeploy.certify.proof import ProofCounts
from deeploy.ir.target import Target


class MovedBox(TypedDict):
    """What C says of a box: see ``struct rt_box``."""

    near: int
    far: int
    bytes: int
    axes: int
    count: list[int]
    pitch: list[int]


class CheckedMachine:
    """A machine of a target; ``arenas`` and ``stored_constants`` are the addresses of arenas, and of constants beside them, by memory.

    ``counts`` is what was done, of a network of so many ``layers``.
    """

    def __init__(self, target: Target, layers: int) -> None:
        self.target, self.memories = target, Memories()
        self.counts = ProofCounts(layers)
        self.arenas: dict[str, int] = {}
        self.stored_constants: dict[str, int] = {}
        self.cores = 1
        self.core, self.where = 0, "the beginning"
        self.team: list[list[Callable[[], None]]] | None = None  # what a core of a team does, from barrier to barrier

    @property
    def functions(self) -> dict[str, object]:
        """The functions that emitted C may call (the runtime's, ``memcpy`` and others), by their names in C."""
        names = [name for name in dir(self) if name.startswith("rt_")]
        return {name: getattr(self, name) for name in (*names, "memcpy", "memmove", "slide_part")}

    def alone(self, what: str) -> None:
        """Check that the first core does what is for it alone."""
        if self.core:
            raise CertificateError(f"core {self.core} {what}, which is for the first one")

    def do(self, event: Callable[[], None]) -> None:
        """At once, or when the team that runs comes there."""
        if self.team is None:
            event()
        else:
            self.team[-1].append(event)

    def rt_core(self) -> int:
        return self.core

    def rt_arena(self, level: int) -> int:
        return self.arenas[self.target.memories[level].name]

    def rt_constants(self, level: int) -> int:
        return self.stored_constants[self.target.memories[level].name]

    def rt_enter(self, entry: Callable[[object], int], argument: object) -> int:
        return entry(argument)

    def rt_barrier(self) -> None:
        if self.team is None:
            return
        self.team.append([])

    def rt_fork(self, cores: int, body: Callable[[object], object], argument: object) -> None:
        if self.team is not None or cores > self.cores:
            raise CertificateError(
                f"a team of {cores} cores is forked" + (" inside of a team" if self.team is not None else f" of {self.cores}")
            )
        teams = []
        for core in range(cores):
            self.core, self.team = core, [[]]
            body(argument)
            teams.append(self.team)
        self.team = None
        if len({len(phases) for phases in teams}) > 1:
            raise CertificateError(f"cores come to different numbers of barriers: {[len(phases) - 1 for phases in teams]}")
        self.memories.barrier()
        self.memories.is_team = cores > 1
        for phase in range(len(teams[0])):
            for core, phases in enumerate(teams):
                self.core = core
                for event in phases[phase]:
                    event()
            self.memories.barrier()
        self.core, self.memories.is_team = 0, False

    def rt_wait(self, engine: int, ticket: int) -> None:
        self.alone("waits for transfers")
        self.do(lambda: self.memories.wait((engine, ticket)))

    def rt_job_wait(self, accelerator: object) -> None:
        self.alone("waits for a job")
        self.do(lambda: self.memories.wait(("job", accelerator), True))

    def rt_fetch(self, engine: int, ticket: int, box: MovedBox) -> None:
        self.move(engine, ticket, False, box["near"], box["far"], box["bytes"], box["count"][: box["axes"]], box["pitch"][: box["axes"]])

    def rt_store(self, engine: int, ticket: int, box: MovedBox) -> None:
        self.move(engine, ticket, True, box["near"], box["far"], box["bytes"], box["count"][: box["axes"]], box["pitch"][: box["axes"]])

    def rt_fetch_run(self, engine: int, ticket: int, near: int, far: int, size: int) -> None:
        self.move(engine, ticket, False, near, far, size, [], [])

    def rt_store_run(self, engine: int, ticket: int, near: int, far: int, size: int) -> None:
        self.move(engine, ticket, True, near, far, size, [], [])

    def rt_fetch_rows(self, engine: int, ticket: int, near: int, far: int, size: int, rows: int, pitch: int) -> None:
        self.move(engine, ticket, False, near, far, size, [rows], [pitch])

    def rt_store_rows(self, engine: int, ticket: int, near: int, far: int, size: int, rows: int, pitch: int) -> None:
        self.move(engine, ticket, True, near, far, size, [rows], [pitch])

    def move(
        self, engine: int, ticket: int, is_store: bool, near: int, far: int, size: int, count: Sequence[int], pitch: Sequence[int]
    ) -> None:
        self.alone("starts a transfer")
        path = self.target.paths[engine]
        if not 0 <= ticket < path.tickets:
            raise CertificateError(f"ticket {ticket} of {path.name} is used, which has {path.tickets}")
        counts = (*count, size)
        if not all(counts):
            return

        def begin() -> None:
            self.counts.transfers += 1
            packed = [math.prod(counts[axis + 1 :]) for axis in range(len(counts))]
            inside = self.memories.span(near, counts, packed, "what is moved")
            outside = self.memories.span(far, counts, (*pitch, 1), "what is moved")
            source, goal = (inside, outside) if is_store else (outside, inside)
            label = f"a transfer from {source.region.name} byte {source.low} to {goal.region.name} byte {goal.low}"
            self.memories.begin((engine, ticket), label, [source], [(goal, source.of(source.region.holds).copy())])

        self.do(begin)

    def memcpy(self, to: int, source: int, size: int) -> None:
        self.memmove(to, source, size)

    def memmove(self, to: int, source: int, size: int) -> None:
        if size <= 0:
            return

        def event() -> None:
            places = [self.memories.span(at, (size,), (1,), "what is copied") for at in (source, to)]
            self.memories.read(self.core, places[0], "what is copied")
            self.memories.write(self.core, places[1], "what is copied", places[0].of(places[0].region.holds).copy())

        self.do(event)

    def slide_part(self, line_buffer: int, begin: int, size: int, core: int, cores: int) -> None:
        share = (size // cores + 4) & ~3
        first = core * share
        self.memmove(line_buffer + first, line_buffer + begin + first, min(first + share, size) - first)
