"""The errors a user can cause, and the exit status each one ends with.

Every message has two parts: what is wrong with which node or option, and what to do about it.
"""

from __future__ import annotations

import difflib
import re
import shlex
import signal
from collections.abc import Iterable

__all__ = [
    "AccuracyError",
    "BuildError",
    "DeeployError",
    "FitError",
    "ModelError",
    "NoKernelError",
    "TargetError",
    "UnsupportedError",
    "UsageError",
    "make_printable",
    "quote_words",
    "shorten",
    "suggest",
]


_LONGEST_NAME = 200  # letters of names that are compared with others: hostile ones take long


class DeeployError(Exception):
    """Base of all errors that are the input's fault, never the compiler's.

    Args:
        what: what is wrong, naming the node, tensor or option.
        remedy: what the user can do about it.
    """

    exit_status = 2

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}\n{self.remedy}"

    def __reduce__(self) -> tuple[type[DeeployError], tuple[str, str]]:
        """Worker processes hand errors over as what they were made of."""
        return type(self), (self.what, self.remedy)


class UsageError(DeeployError):
    """An option, a path or an input array that cannot be used."""


class ModelError(DeeployError):
    """A model that cannot be read or is not valid."""


class UnsupportedError(DeeployError):
    """A valid model, or a part of one, that the compiler or the target does not handle."""


class NoKernelError(UnsupportedError):
    """Nodes that no kernel of the target runs."""

    def also(self, advice: str) -> NoKernelError:
        """This error with one more thing that the user can do."""
        return NoKernelError(self.what, f"{self.remedy.removesuffix('.')}, or {advice}.")


class TargetError(DeeployError):
    """A target description that is incomplete or contradicts itself."""


class BuildError(DeeployError):
    """The C toolchain is missing, or failed on an emitted project."""


class FitError(DeeployError):
    """What does not fit the memory of the target."""

    exit_status = 3


class AccuracyError(DeeployError):
    """A quantised network that loses more than was allowed; nothing is written."""

    exit_status = 1


class Stopped(SystemExit):
    """A signal ended the command; exit status as shells have it, and what is being written is removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number).name


def shorten(name: str, limit: int = 80) -> str:
    """Return ``name`` printable on one line: control characters escaped, cut in the middle beyond ``limit``."""
    text = name.encode("unicode_escape").decode("ascii")
    if len(text) <= limit:
        return text
    keep = (limit - 3) // 2
    return f"{text[:keep]}...{text[-keep:]}"


def make_printable(text: str) -> str:
    """Return ``text`` with everything escaped but line breaks and characters that terminals print: no file may write to them."""
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def describe_cause(error: BaseException) -> str:
    """The first line of what another library says first: that of the error behind all others, without colours."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return shorten(lines[0] if lines else type(error).__name__, 200)


def suggest(name: str, known: Iterable[str], option: str = "") -> str:
    """A question with a blank behind it, where a known name is nearly the one that was given; nothing where none is.

    Args:
        option: stands in front of the name, with a blank behind it.
    """
    by_letters = {each.lower(): each for each in known if len(each) <= _LONGEST_NAME}
    near = difflib.get_close_matches(name[:_LONGEST_NAME].lower(), by_letters, 1)
    return f"Did you mean {option}{shorten(by_letters[near[0]])}? " if near else ""


def quote_words(words: Iterable[str]) -> str:
    """Words as they are typed to a shell, such as bash or zsh: what cannot be printed is escaped, and very long ones are cut."""
    return " ".join(shlex.quote(word) if word.isprintable() else f"$'{_escape(word)}'" for word in (each[:_LONGEST_NAME] for each in words))


def _escape(word: str) -> str:
    data = word.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b"\\'" else f"\\x{byte:02x}" for byte in data)
