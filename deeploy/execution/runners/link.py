"""Talks with a program on a board over a serial line; ``kernels/semihosting/board/link.c`` is the other side and shows what messages are.

Every request waits for its answer. One that does not come in time, or comes damaged, is asked for again; the board knows requests
by their numbers, so that none is done twice.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from deeploy.errors import BuildError, DeeployError, FitError, shorten

HELLO, WRITE, RUN, READ, CYCLES, SNAPSHOT = range(1, 7)
ANSWER, FAILURE = 0x80, 0xFF
MOST = 512  # bytes of the content of a message
_BEGIN = b"\xd7"
_HEAD = struct.Struct("<BBH")
_CHECK = struct.Struct("<I")
_FACTS = struct.Struct("<7I")
_LONG = struct.Struct("<Q")
_PROTOCOL = 1
_ANEW, _SNAPSHOTS = 1, 2
_TRIES = 5
_PATIENCE = 2.0  # seconds for the answer to a request that needs no time


class Line(Protocol):
    """A serial line, as pyserial has it."""

    timeout: float | None

    def read(self, size: int = 1) -> bytes:
        """Up to ``size`` bytes; fewer when none came for ``timeout`` seconds."""

    def write(self, data: bytes, /) -> int | None:
        """Sends bytes to the board."""


class NoAnswer(Exception):
    """The board did not answer, or what it sent was damaged every time."""


@dataclass(frozen=True)
class Facts:
    """What a program says of itself: its protocol, its number, its clock, and the bytes and layers of its network."""

    protocol: int
    program: int
    hertz: int
    input_bytes: int
    output_bytes: int
    arena_bytes: int
    layers: int


@dataclass(frozen=True)
class Ran:
    """An inference: its cycles, and the snapshots of its layers where these were asked for."""

    cycles: int
    snapshots: bytes


class HostLine:
    """The host's side of a line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._number = time.monotonic_ns() & 0xFF

    def hello(self, tries: int = _TRIES) -> Facts:
        """Ask a program what it is.

        Raises:
            NoAnswer: nothing, or something else, is at the other end.
            BuildError: the program failed before, or speaks another protocol.
        """
        facts = Facts(*_FACTS.unpack(self._ask(HELLO, b"", tries=tries)))
        if facts.protocol != _PROTOCOL:
            raise BuildError(
                f"the program on the board speaks protocol {facts.protocol}, this is {_PROTOCOL}", "Compile the project again."
            )
        return facts

    def write(self, data: bytes) -> None:
        """Sends the inputs of one inference to the board, all of them behind each other."""
        for start in range(0, len(data), MOST - 4):
            self._ask(WRITE, _CHECK.pack(start) + data[start : start + MOST - 4])

    def run(self, is_anew: bool, seconds: float, has_snapshots: bool = False) -> Ran:
        """One inference, which may take ``seconds``; ``is_anew`` says that states begin anew with it."""
        for _ in range(_TRIES):
            parts: dict[int, bytes] = {}
            answer = self._ask(RUN, bytes([_ANEW * is_anew | _SNAPSHOTS * has_snapshots]), seconds, parts=parts, tries=2)
            snapshots = b"".join(parts[start] for start in sorted(parts))
            if all(snapshots[start:].startswith(part) for start, part in parts.items()):
                (cycles,) = _LONG.unpack(answer)
                return Ran(cycles, snapshots)
        raise NoAnswer

    def read(self, count: int) -> bytes:
        """Reads all outputs of the last inference from the board: ``count`` bytes."""
        return b"".join(self._ask(READ, struct.pack("<II", at, min(MOST, count - at))) for at in range(0, count, MOST))

    def cycles(self, layers: int) -> list[int]:
        """Cycles that each layer took in the last inference, as the board's timer counted them."""
        return [_LONG.unpack(self._ask(CYCLES, _CHECK.pack(layer)))[0] for layer in range(layers)]

    def _ask(
        self, kind: int, content: bytes, seconds: float | None = None, tries: int = _TRIES, parts: dict[int, bytes] | None = None
    ) -> bytes:
        """Send a request until its answer comes; ``parts`` receives what comes before the answer, by its place."""
        self._number = (self._number + 1) & 0xFF
        body = _HEAD.pack(kind, self._number, len(content)) + content
        for attempt in range(tries):
            if attempt:  # the board may wait for the rest of a message of which a byte was lost
                self._line.write(bytes(MOST + 16))
            self._line.write(_BEGIN + body + _CHECK.pack(zlib.crc32(body)))
            for got, number, answer in self._messages(_PATIENCE if seconds is None else seconds):
                if number != self._number:
                    continue
                if got == FAILURE:
                    raise _link_failure(answer.decode(errors="replace"))
                if got == ANSWER | kind:
                    return answer
                if got == ANSWER | SNAPSHOT and parts is not None:
                    parts[_CHECK.unpack(answer[:4])[0]] = answer[4:]
        raise NoAnswer

    def _messages(self, seconds: float) -> Iterator[tuple[int, int, bytes]]:
        """Messages as they come, until none came for some seconds; damaged ones are left out."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._line.timeout = left
            if self._line.read(1) != _BEGIN:
                continue
            self._line.timeout = _PATIENCE
            head = self._line.read(_HEAD.size)
            if len(head) < _HEAD.size:
                continue
            kind, number, count = _HEAD.unpack(head)
            if count > MOST:
                continue
            content, check = self._line.read(count), self._line.read(_CHECK.size)
            if len(content) == count and check == _CHECK.pack(zlib.crc32(head + content)):
                yield kind, number, content
                end = time.monotonic() + seconds


def _link_failure(said: str) -> DeeployError:
    if "no room" in said:
        return FitError(
            f"the program does not fit the board: {shorten(said, 200)}", "Use a smaller arena (--memory), or a network that needs less."
        )
    return BuildError(f"the program on the board says: {shorten(said, 200)}", "Run it on the host first: deeploy run without --on.")
