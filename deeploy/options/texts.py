"""What the texts of options mean: sizes, whole numbers, and pairs of names and values."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from deeploy.errors import UsageError, shorten

if TYPE_CHECKING:  # which is slow to import
    from collections.abc import Sequence

    import numpy as np

PinnedValue: TypeAlias = "float | Sequence[float] | np.ndarray"  # one number for all elements, or all of them
Size: TypeAlias = int | str  # bytes, or a text such as "64k" or "1M"

MOST_EXTENT, MOST_CHIPS, MOST_SECONDS, MOST_BYTES = 2**31 - 1, 1024, 366 * 24 * 3600, 2**50
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


@dataclass(frozen=True)
class StreamAxis:
    """The axis of an input that never ends, how many new columns each inference takes (None: the fewest), and how many come a second."""

    input: str
    axis: int
    hop: int | None
    rate: int | None = None

    def __str__(self) -> str:
        return f"{self.input}.{self.axis}" + (f"={self.hop}" if self.hop is not None else "") + (f"@{self.rate}" if self.rate else "")


def parse_stream(text: str) -> StreamAxis:
    """INPUT.AXIS[=HOP][@RATE]; the name may itself hold dots and equals signs."""
    match = re.fullmatch(r"(.+)\.(-?[0-9]{1,3})(?:=([1-9][0-9]{0,8}))?(?:@([1-9][0-9]{0,8}))?", text, re.DOTALL)
    if match is None:
        raise UsageError(
            f"--stream {shorten(text, 60)} is not of the form INPUT.AXIS[=HOP][@RATE]", "For example: --stream audio.1=320@16000"
        )
    hop, rate = (None if number is None else int(number) for number in match.groups()[2:])
    return StreamAxis(match[1], int(match[2]), hop, rate)


def parse_pairs(texts: list[str] | None, option: str, example: str = "input=VALUE") -> dict[str, str]:
    """Parse repeated NAME=VALUE options; the name may itself hold an equals sign."""
    result = {}
    for text in texts or []:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option} {shorten(text, 60)} is not of the form NAME=VALUE", f"For example: {option} {example}")
        result[name] = value
    return result


def parse_dims(texts: list[str] | None, option: str = "--dim") -> dict[str, int]:
    """The extents of symbolic dimensions, by name."""
    pairs = parse_pairs(texts, option)
    return {name: parse_whole(value, f"{option} {shorten(name, 60)}=", 1, MOST_EXTENT, "--dim batch=1") for name, value in pairs.items()}


def parse_pins(texts: list[str] | None, option: str = "--pin") -> dict[str, PinnedValue]:
    """The values of inputs that are pinned, by name."""
    pins: dict[str, PinnedValue] = {}
    for name, text in parse_pairs(texts, option).items():
        try:
            pins[name] = [_parse_number(part.strip().lower()) for part in text.split(",")]
        except ValueError as error:
            told = f"{option} {shorten(name, 60)}={shorten(text, 60)}"
            raise UsageError(f"{told}: that is neither a number nor numbers with commas between", "For example: --pin sr=16000") from error
    return pins


def _parse_number(text: str) -> float:
    return {"true": 1, "false": 0}[text] if text in ("true", "false") else int(text) if text.lstrip("+-").isdigit() else float(text)


def parse_fixes(texts: list[str] | None, option: str) -> dict[str, str]:
    """What is fixed, by what it is about; nothing is fixed twice."""
    pairs = parse_pairs(texts, option, "conv1.engine=cluster")
    for first, second in itertools.combinations(dict.fromkeys(texts or []), 2):
        if first.rpartition("=")[0] == second.rpartition("=")[0]:
            raise UsageError(f"--fix {shorten(first, 60)} and --fix {shorten(second, 60)} contradict each other", "Leave one of them out.")
    return pairs


def parse_whole(text: str, option: str, least: int, most: int, example: str) -> int:
    """A whole number from ``least`` to ``most`` that an option gives.

    Raises:
        UsageError: it is something else.
    """
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    if not is_number or not least <= int(text) <= most:
        raise UsageError(f"{option}{shorten(text, 60)}: that is not a whole number from {least} to {most}", f"For example: {example}")
    return int(text)


def parse_chips(text: str) -> int | Literal["auto"]:
    """The number of chips, or ``auto``."""
    return "auto" if text == "auto" else parse_whole(text, "--chips ", 1, MOST_CHIPS, "--chips 4, or --chips auto")


def parse_size(size: Size, option: str, least: int = 0) -> int:
    """A size in bytes: a whole number, or one with k, M or G behind it (``64k`` is 65536).

    Raises:
        UsageError: it is something else, or less than ``least``.
    """
    text = str(size).strip().lower().removesuffix("ib").removesuffix("b")
    number, unit = (text[:-1], text[-1]) if text and text[-1] in "kmg" else (text, "")
    is_number = number.isascii() and number.isdigit() and len(number) < 20
    byte_count = int(number) * _UNITS[unit] if is_number else -1
    if not least <= byte_count <= MOST_BYTES:
        raise UsageError(
            f"{option}{shorten(str(size), 60)}: that is no size from {least} to {MOST_BYTES} bytes", f"For example: {option}64000, or 64k"
        )
    return byte_count


def check_seconds(value: float | None, option: str) -> None:
    """Refuse what is no time: no number, infinite, not above 0 or longer than a year."""
    if value is not None and not 0 < value <= MOST_SECONDS:
        raise UsageError(f"{option} {value:g} is not a number above 0, up to {MOST_SECONDS}", f"For example: {option} 10")
