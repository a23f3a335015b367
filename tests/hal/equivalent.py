"""Why a mutant that nothing notices is equivalent to the original, where that can be shown.

* The compiler makes the same machine code of both.
* A number that a kernel is given has no effect: quite other numbers in its place give the same results. The kernel multiplies it by zero,
  as a stride along an axis of one element, or never reads it.
* A wait, or a ticket, is not needed: nothing touches what moves before something else waits for it. The model sees every transfer that
  does, and every store of a core; the address sanitizer sees every load.
* On one side of a number that a kernel is given, all give the same results: a border that no window reaches, or an extent along which
  work is repeated. Or numbers on both sides of a large one do: a bound with room.
* All loads, stores, transfers, jobs, forks and waits are the same ones, in the same order (``trace/trace.c``). What is changed decides
  where a layer works and how often, and not with which values: then it is the same for all inputs.

The trace also tells what kills a mutant: it loads or moves garbage that the original does not.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.hal.mutate import Mutant
from tests.hal.subject import HERE, WRAPPED, Flavour, Subject

_FREE = Flavour("code", ("CFLAGS=-O2", "WARNINGS=-w"))
_UNCHECKED = Flavour("unchecked", ("CFLAGS=-O2 -URT_CHECKED", "WARNINGS=-w", "HOST_CFLAGS=$(ALL_CFLAGS)"))
_OTHERS = (0, 1, 5, 64, 12345)  # in the place of a number
_WAITS = ("wait", "other ticket")
TRACED = 600.0  # seconds that a traced run may take: one that is ended too early proves nothing


class Trace(NamedTuple):
    """Of each of two modes: one number for all events, and the bytes of garbage that are loaded or moved."""

    events: tuple[str, ...]
    garbage: tuple[int, ...]


class Equivalence:
    """Reasons for the mutants of one project; its copy is built in several ways."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.originals = subject.sources()
        self._objects: dict[str, bytes] = {}
        self._tracer: Flavour | None = None

    def reason(self, mutant: Mutant) -> str | None:
        """Why nothing can notice a mutant that the address sanitizer has not noticed either; None where no reason is found."""
        tests = (self._number, self._idle_wait, self._same_trace)
        return next((found for test in tests if (found := test(mutant)) is not None), None)

    # ---- code

    def _object(self, sources: dict[str, str], flavour: Flavour) -> bytes:
        self.subject.write(sources)
        goal = f"build/{flavour.name}/src/{self.subject.entry['name']}.o"
        (self.subject.folder / goal).unlink(missing_ok=True)
        problem = self.subject.make(flavour, goal)
        assert problem is None, problem
        return (self.subject.folder / goal).read_bytes()

    def _is_same(self, mutant: Mutant, flavour: Flavour) -> bool:
        if flavour.name not in self._objects:
            self._objects[flavour.name] = self._object(self.originals, flavour)
        return self._object(dict(mutant.sources), flavour) == self._objects[flavour.name]

    def same_code(self, mutant: Mutant) -> str | None:
        """That the compiler makes the same machine code of a mutant, where it does."""
        if self._is_same(mutant, _FREE):
            return "the same machine code"
        is_table = mutant.path.endswith("_checks.h")
        if self.subject.is_managed and not is_table and self._is_same(mutant, _UNCHECKED):
            return "the same machine code without the model's checks"
        return None

    def is_right_elsewhere(self, mutant: Mutant) -> bool:
        """Whether a mutant computes the outputs as well where all memory is one buffer that lives for ever.

        Then it is not wrong: it only uses memory in another way than the model was told.
        """
        if not self.subject.is_managed:
            return False
        if self._is_same(mutant, _UNCHECKED):
            return True
        sources = dict(mutant.sources)
        table = next(path for path in sources if path.endswith("_checks.h"))
        sources[table] = unwatched(sources[table])
        return self.subject.killed(sources) is None

    # ---- numbers

    def _number(self, mutant: Mutant) -> str | None:
        """Numbers that are given to kernels: others that differ more are tried."""
        if not mutant.old.isdigit() or not _is_given(mutant):
            return None
        old, is_raised = int(mutant.old), mutant.kind == "number raised"
        side = [old + 2, 2 * old + 3, old + 64, old + 12345] if is_raised else [0, 1, old // 2, old - 2]
        around = [old - old // 64, old - 1, old + 1, old + old // 64]
        reasons = (
            ("a number that has no effect on the kernel", list(_OTHERS), 1),
            ("a bound that is not reached, or work that is repeated", side, 2),
            ("a bound with room on both sides", around if old >= 64 else [], 3),
        )
        for reason, others, least in reasons:
            tried = [str(other) for other in dict.fromkeys(others) if other >= 0 and str(other) not in (mutant.old, mutant.new)]
            if len(tried) >= least and all(self.subject.killed(mutant.again(other).sources) is None for other in tried):
                return f"{reason}: {', '.join(tried)} do the same"
        return None

    # ---- waits

    def _idle_wait(self, mutant: Mutant) -> str | None:
        if not mutant.kind.startswith(_WAITS):
            return None
        return "nothing touches what moves before another wait for it: the model and the address sanitizer watch it in all modes"

    # ---- traces

    def _same_trace(self, mutant: Mutant) -> str | None:
        if not self.subject.is_managed or mutant.path.endswith("_checks.h") or (mutant.old.isdigit() and _is_given(mutant)):
            return None
        is_same = self.traces(dict(mutant.sources)).events == self._original.events
        return "the same loads, stores, transfers, forks and waits in the same order" if is_same else None

    def moves_garbage(self, mutant: Mutant) -> str | None:
        """What kills a mutant that loads, or moves, bytes that nothing has written."""
        if not self.subject.is_managed:
            return None
        found, expected = self.traces(dict(mutant.sources)).garbage, self._original.garbage
        return f"garbage: {found} bytes are loaded or moved instead of {expected}" if found > expected else None

    @functools.cached_property
    def _original(self) -> Trace:
        once, again = self.traces(self.originals), self.traces(self.originals)
        assert once == again, "the trace of a program differs from one run to the next"
        return once

    def traces(self, sources: dict[str, str]) -> Trace:
        self.subject.write(sources)
        if self._tracer is None:
            self._tracer = _tracer(self.subject.folder)
        problem = self.subject.make(self._tracer)
        assert problem is None, problem
        said = [self.subject.run(self._tracer, *mode, longest=TRACED)[2] for mode in self.subject.modes[:2]]
        found = [re.findall(r"^trace (\w+) garbage (\d+)$", text, re.MULTILINE) for text in said]
        assert all(found), said
        return Trace(tuple(events for pairs in found for events, _ in pairs), tuple(int(count) for pairs in found for _, count in pairs))


_BLOCK = re.compile(r'^    \{"[^"]+", (\w+), (\d+), (\d+), -?\d+, -?\d+\},\n', re.MULTILINE)


def unwatched(table: str) -> str:
    """The table of blocks with one block for each memory, which holds all of them and lives for ever."""
    ends: dict[str, int] = {}
    for level, begin, size in _BLOCK.findall(table):
        ends[level] = max(ends.get(level, 0), int(begin) + int(size))
    blocks = "".join(f'    {{"all", {level}, 0, {end}, -1, {2**31 - 1}}},\n' for level, end in ends.items())
    first = _BLOCK.search(table)
    assert first is not None
    table = table[: first.start()] + blocks + _BLOCK.sub("", table)[first.start() :]
    return re.sub(r"(BLOCKS = |blocks\[)\d+", rf"\g<1>{len(ends)}", table)


def _is_given(mutant: Mutant) -> bool:
    """Whether the place is an initialiser of a kernel's argument."""
    text = mutant.sources[mutant.path]
    before = text[: mutant.at]
    if max(before.rfind(f" {name} = {{") for name in ("argument", "call")) > before.rfind("\n    };"):
        return True
    return before.rfind("(&(struct ") > before.rfind("});") and "rt_box" not in before[before.rfind("(&(struct ") :].split("{")[0]


def _tracer(folder: Path) -> Flavour:
    """Builds with every load and store counted."""
    counting = folder / "build" / "trace.o"
    compiler = os.environ.get("CC", "gcc")
    command = [compiler, "-std=c11", "-O2", "-DRT_CHECKED", "-Iruntime", "-Iruntime/host", "-Iinclude", "-c"]
    subprocess.run([*command, str(HERE / "trace" / "trace.c"), "-o", str(counting)], cwd=folder, check=True)
    wrapped = " ".join(f"-Wl,--wrap={name}" for name in WRAPPED)
    return Flavour("trace", ("CFLAGS=-O1 -fsanitize=thread", "WARNINGS=-w", f"LDFLAGS=-fno-sanitize=all {counting.resolve()} {wrapped}"))
