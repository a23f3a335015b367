"""The only way from a name in a model into generated code: identifiers, comments and strings.

Names in a model are hostile: they may hold quotes, newlines, template markers or path separators, be C keywords, be
10 000 characters long, or differ only in punctuation. ``Names`` maps each one to its own short ASCII identifier.
"""

from __future__ import annotations

import hashlib
import re

_KEYWORDS = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "main",
        "asm",
        "typeof",
        "bool",
        "true",
        "false",
        "NULL",
        "errno",
        "stdin",
        "stdout",
        "stderr",
        "signal",
    ]
)
_LONGEST = 32
_LONGEST_STRING = 1000  # bytes; ISO C99, 5.2.4.1, lets compilers refuse strings of more than 4095 characters


def identifier(name: str) -> str:
    """Return a C identifier that resembles ``name``; distinct names may collide (see ``Names``)."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[: _LONGEST + 1]
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 9].rstrip("_") + "_" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    if not text or text[0].isdigit():
        text = f"n{text}" if text else "unnamed"
    return f"{text}_" if text in _KEYWORDS else text


class Names:
    """Hands out identifiers that are unique, compared without case so that they can be file names too."""

    def __init__(self, reserved: tuple[str, ...] = ()) -> None:
        self._taken = {word.lower() for word in reserved}

    def unique(self, name: str) -> str:
        """Return an identifier for ``name`` that was not handed out before."""
        base = identifier(name)
        candidate, number = base, 2
        while candidate.lower() in self._taken:
            candidate, number = f"{base.rstrip('_')}_{number}", number + 1
        self._taken.add(candidate.lower())
        return candidate


def comment(name: str, limit: int = 80) -> str:
    """Return ``name`` fit for a C comment or a Makefile: printable ASCII without anything that could end either."""
    text = re.sub(r"[^A-Za-z0-9_ .,:;+=()<>\[\]-]", "_", name)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def string(name: str) -> str:
    """Return a C string literal that holds ``name`` in UTF-8; other than printable characters are octal escapes.

    Of a very long name it holds the beginning and a digest, so that distinct names stay distinct.
    """
    safe = set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_ .,:;+-=/()[]<>")
    data = name.encode("utf-8", "surrogatepass")
    if len(data) > _LONGEST_STRING:
        begin = data[: _LONGEST_STRING - 20].decode("utf-8", "ignore").encode()
        data = begin + b"..." + hashlib.sha256(data).hexdigest()[:16].encode()
    return '"' + "".join(chr(b) if b in safe else f"\\{b:03o}" for b in data) + '"'
