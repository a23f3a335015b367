"""Messages between chips: that each is received as it was sent, and that no chips wait for each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from deeploy.certify.memory import CertificateError

_ENTRY = re.compile(r"^    \{(-?\d+), (-?\d+)\}, /\*", re.MULTILINE)


@dataclass(frozen=True)
class CheckedMessage:
    """What a chip sends or receives: the number of the message in its table, and its bytes."""

    is_send: bool
    number: int
    bytes: int


def exchange_messages(chips: Sequence[Sequence[CheckedMessage]], tables: Sequence[str], queue: int) -> None:
    """Let chips send and receive in their order; between two of them ``queue`` messages may wait.

    Args:
        tables: the C of each chip's table of peers and tags.

    Raises:
        CertificateError: a message is received otherwise than it was sent, or not at all.
    """
    ends = [[(int(peer), int(tag)) for peer, tag in _ENTRY.findall(text)] for text in tables]
    waiting: dict[tuple[int, int], list[tuple[int, int]]] = {}
    done = [0] * len(chips)
    is_moving = True
    while is_moving:
        is_moving = False
        for chip, messages in enumerate(chips):
            while done[chip] < len(messages) and _pass_message(chip, messages[done[chip]], ends[chip], waiting, queue):
                done[chip] += 1
                is_moving = True
    stuck = [chip for chip, messages in enumerate(chips) if done[chip] < len(messages)]
    if stuck:
        raise CertificateError(f"chips {', '.join(map(str, stuck))} wait for each other's messages for ever")
    left = [pair for pair, waiting_messages in waiting.items() if waiting_messages]
    if left:
        raise CertificateError(f"chip {left[0][1]} does not receive a message of chip {left[0][0]}")


def _pass_message(
    chip: int, message: CheckedMessage, ends: Sequence[tuple[int, int]], waiting: dict[tuple[int, int], list[tuple[int, int]]], queue: int
) -> bool:
    """Whether a chip can send or receive a message now; then it does."""
    peer, tag = ends[message.number]
    pending = waiting.setdefault((chip, peer) if message.is_send else (peer, chip), [])
    if message.is_send:
        if len(pending) < queue:
            pending.append((tag, message.bytes))
            return True
        return False
    if not pending:
        return False
    if pending[0] != (tag, message.bytes):
        sent = pending[0]
        raise CertificateError(f"chip {chip} receives {message.bytes} bytes with tag {tag}, chip {peer} sends {sent[1]} with tag {sent[0]}")
    del pending[0]
    return True
