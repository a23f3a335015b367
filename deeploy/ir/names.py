"""The only way from a name in a model into generated code: identifiers, comments and strings.

Names in a model are hostile: they may hold quotes, newlines, template markers or path separators, be C keywords, be
10 000 characters long, or differ only in punctuation. ``Names`` maps each one to its own short ASCII identifier.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NoReturn

from deeploy.errors import UnsupportedError, shorten

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
# Keywords of C++ alone, types of headers, and macros that compilers define without being asked.
_NO_PARAMETER = re.compile(
    "alignas|alignof|and|and_eq|bitand|bitor|catch|class|compl|concept|constexpr|decltype|delete|explicit|export|friend|mutable|"
    "namespace|new|noexcept|not|not_eq|nullptr|operator|or|or_eq|private|protected|public|requires|template|this|throw|try|typeid|"
    r"typename|using|virtual|xor|xor_eq|\w+_(?:t|cast)|linux|unix|i386|arm|mips|sun|vax|assert|thread_local|static_assert|inputs|outputs"
)
_LONGEST = 32
_LONGEST_STRING = 1000  # bytes; ISO C99, 5.2.4.1, lets compilers refuse strings of more than 4095 characters


def _split_words(name: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9]+", name)


def is_short(name: str) -> bool:
    """Whether ``c_identifier`` keeps all words of ``name``."""
    return len("_".join(_split_words(name))) <= _LONGEST


def c_identifier(name: str) -> str:
    """Return a C identifier that resembles ``name``; distinct names may collide (see ``Names``).

    Of a long name it has the last words, which say most in names that are paths through a model. Converters join the names of what
    they made one node of by semicolons; the first one stands for all.
    """
    words = _split_words(name.split(";")[0]) or _split_words(name)
    text = words.pop()[:_LONGEST] if words else ""
    while words and len(words[-1]) + 1 + len(text) <= _LONGEST:
        text = f"{words.pop()}_{text}"
    if not text or text[0].isdigit():
        text = f"n{text}" if text else "unnamed"
    return f"{text}_" if text in _KEYWORDS else text


def parameter_name(name: str) -> str:
    """Return a name like ``c_identifier`` for a parameter in headers of C and C++: of no macro, type or keyword there."""
    text = c_identifier(name)
    text = c_identifier(text.lower()) if text.isupper() else text
    return f"{text}_array" if _NO_PARAMETER.fullmatch(text) else text


class Names:
    """Hands out identifiers that are unique, compared without case so that they can be file names too."""

    def __init__(self, reserved: tuple[str, ...] = ()) -> None:
        self._taken = {word.lower() for word in reserved}
        self._next: dict[str, int] = {}  # the number to try next, by the name without one

    def unique(self, name: str, part: str = "") -> str:
        """Return an identifier for ``name``, or for a ``part`` of what has that name, that was not handed out before."""
        base = f"{c_identifier(name).rstrip('_')}_{part}" if part else c_identifier(name)
        candidate, number = base, self._next.get(base.lower(), 2)
        while candidate.lower() in self._taken:
            candidate, number = f"{base.rstrip('_')}_{number}", number + 1
        self._next[base.lower()] = number
        self._taken.add(candidate.lower())
        return candidate


def c_comment(name: str, limit: int = 80) -> str:
    """Return ``name`` fit for a C comment or a Makefile: printable ASCII without anything that could end either."""
    text = re.sub(r"[^A-Za-z0-9_ .,:;+=()<>\[\]-]", "_", name)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def c_string(name: str) -> str:
    """Return a C string literal that holds ``name`` in UTF-8; other than printable characters are octal escapes.

    Of a very long name it holds the beginning and a digest, so that distinct names stay distinct.
    """
    safe = set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_ .,:;+-=/()[]<>")
    data = name.encode("utf-8", "surrogatepass")
    if len(data) > _LONGEST_STRING:
        begin = data[: _LONGEST_STRING - 20].decode("utf-8", "ignore").encode()
        data = begin + b"..." + hashlib.sha256(data).hexdigest()[:16].encode()
    return '"' + "".join(chr(b) if b in safe else f"\\{b:03o}" for b in data) + '"'


def is_name(text: str) -> bool:
    """Whether a text can stand in C wherever a name or a part of one can."""
    return re.fullmatch(r"[A-Za-z0-9_]*", text) is not None


class FreeText:
    """A text of a model that is no name in C: templates can compare it; to print it, or a part of it, is an error."""

    def __init__(self, text: str, owner: str) -> None:
        self._text, self._owner = text, owner

    def __eq__(self, other: object) -> bool:
        return self._text == (other._text if isinstance(other, FreeText) else other)

    def __hash__(self) -> int:
        return hash(self._text)

    @property
    def literal(self) -> str:
        """A C string literal that holds the text."""
        return c_string(self._text)

    def _refuse(self, *_: object) -> NoReturn:
        raise UnsupportedError(
            f"{shorten(self._owner)} has the text '{shorten(self._text, 60)}', which would become a part of the C",
            "correct the model, or print it by c_string in the kernel's template",
        )

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()

    __str__ = __format__ = __add__ = __radd__ = __mod__ = __getitem__ = __iter__ = _refuse


def c_literal(text: str | FreeText) -> str:
    """A C string literal that holds a text as templates get it."""
    return text.literal if isinstance(text, FreeText) else c_string(text)


def guard_value(value: Any, owner: str) -> Any:
    """A value as templates get it: texts that are no names are ``FreeText``, in lists and tables, too."""
    if isinstance(value, str):
        return value if is_name(value) else FreeText(value, owner)
    if isinstance(value, list | tuple):
        entries = [guard_value(entry, owner) for entry in value]
        return entries if isinstance(value, list) else tuple(entries)
    return {key: guard_value(entry, owner) for key, entry in value.items()} if isinstance(value, dict) else value
