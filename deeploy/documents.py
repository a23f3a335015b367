"""TOML and JSON files: read within limits, and valid by their JSON Schema before anything else looks at them.

``read_document`` is the only way from such a file into the compiler. What a schema cannot say, as that two tables agree, is left to the
reader of the document, which then needs no checks of types, ranges and presence.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeploy.errors import DeeployError, UsageError, shorten
from deeploy.resources import cache_folder, mark_used, write_whole
from deeploy.schemas import KINDS, SCHEMAS
from deeploy.schemas.agree import value_agrees

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

_MOST_BYTES = {"toml": 1 << 20, "json": 1 << 28}
_DEEPEST = 32  # tables and lists inside each other; no schema allows more
_LONG = 1 << 14  # characters
_MOST_PARTS = 200  # dots of a line in TOML outside of which keys are only found in generated files: reading them takes quadratic time

Path_ = Sequence[str | int]
Document = Mapping[str, Any]  # what a JSON or TOML file holds, or a table of it; its schema says what lies where
Contents = dict[str, Any]  # a document while it is put together


def read_document(file: Path, kind: str, error: type[DeeployError] = UsageError) -> Contents:
    """The contents of ``file``, which agree with the schema of ``kind`` (a key of ``deeploy.schemas.SCHEMAS``).

    Raises:
        UsageError: the file is not there or cannot be read.
        DeeployError: of the class ``error``: it is too large, not UTF-8, not well formed, or not what the schema says; table and field
            are named.
    """
    text = _read_text(file, kind, error)
    place = _cache_path(text, kind)
    known = _read_cached(place)
    if known is not None:
        return known
    document = check_document(_parse_toml(text, file, kind, error), kind, str(file), error, text)
    _write_cached(place, document)
    return document


def _cache_path(text: str, kind: str) -> Path | None:
    """Where the contents of a long file in TOML are kept: to read and to check one takes a tenth of a short compilation."""
    folder = cache_folder("documents") if kind.endswith("toml") and len(text) >= _LONG else None
    what = "\0".join([kind, json.dumps(SCHEMAS[kind]), sys.version, str(Path(__file__).stat().st_mtime_ns), text])
    return folder and folder / f"{hashlib.sha256(what.encode()).hexdigest()}.json"


def _read_cached(place: Path | None) -> Contents | None:
    """What is kept there; None where nothing is, or nothing that can be read."""
    try:
        data = json.loads(place.read_text(encoding="utf-8")) if place is not None else None
    except (OSError, ValueError):
        return None
    if place is None or not isinstance(data, dict):
        return None
    mark_used(place)
    return data


def _write_cached(place: Path | None, data: Contents) -> None:
    if place is not None:
        with contextlib.suppress(OSError), write_whole(place) as fresh:
            fresh.write_text(json.dumps(data), encoding="utf-8")


def load_document(file: Path, kind: str, error: type[DeeployError] = UsageError) -> tuple[Contents, str]:
    """The contents of ``file``, a table, which the schema has not seen yet; and its text.

    Raises:
        DeeployError: as ``read_document``.
    """
    text = _read_text(file, kind, error)
    return _parse_toml(text, file, kind, error), text


def _parse_toml(text: str, file: Path, kind: str, error: type[DeeployError]) -> Contents:
    data = _parse_json(text, file, kind, error)
    if not isinstance(data, dict):
        raise error(f"{shorten(str(file), 160)} holds {_shorten_value(data)}, not a table", KINDS[kind].remedy)
    return data


def check_document(data: Any, kind: str, file: str, error: type[DeeployError] = UsageError, text: str = "") -> Contents:
    """``data``, which was read from ``file``, as the schema of ``kind`` wants it.

    Raises:
        DeeployError: as ``read_document``.
    """
    remedy = KINDS[kind].remedy
    if (problem := _find_implausible(data)) is not None:
        raise error(f"{_locate_field(file, text, problem[0])}: {_name_path(problem[0])} {problem[1]}", remedy)
    if value_agrees(data, SCHEMAS[kind], SCHEMAS[kind]):
        result: Contents = data
        return result
    wrong = min(_make_validator(kind).iter_errors(data), key=_rank_error, default=None)
    if wrong is not None:
        path, what = _explain_error(wrong)
        raise error(f"{_locate_field(file, text, path)}: {what}", remedy)
    result = data
    return result


def _read_text(file: Path, kind: str, error: type[DeeployError]) -> str:
    name, remedy = shorten(str(file), 160), KINDS[kind].remedy
    if not file.is_file():
        raise UsageError(f"there is no {KINDS[kind].called} {name}", remedy)
    most = _MOST_BYTES[kind.rpartition(".")[2]]
    try:
        with file.open("rb") as stream:
            data = stream.read(most + 1)
    except OSError as problem:
        raise UsageError(f"{name} cannot be read: {problem.strerror}", "Check the permissions of the file.") from problem
    if len(data) > most:
        raise error(f"{name} has more than {most} bytes", remedy)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise error(f"{name} is not UTF-8 text (byte {problem.start})", remedy) from problem


def _parse_json(text: str, file: Path, kind: str, error: type[DeeployError]) -> Any:
    name, remedy = shorten(str(file), 160), KINDS[kind].remedy
    language = kind.rpartition(".")[2].upper()
    long = next((i for i, line in enumerate(text.splitlines(), 1) if line.count(".") > _MOST_PARTS), None) if language == "TOML" else None
    if long is not None:
        raise error(f"{name}:{long}: the line has more than {_MOST_PARTS} dots", remedy)
    try:
        return tomllib.loads(text) if language == "TOML" else json.loads(text)
    except RecursionError as problem:
        raise error(f"{name} nests tables or lists more than {_DEEPEST} deep", remedy) from problem
    except ValueError as problem:  # of both languages, and of numbers with thousands of digits
        raise error(f"{name} is not valid {language}: {shorten(str(problem), 120)}", remedy) from problem


def _find_implausible(data: Any) -> tuple[Path_, str] | None:
    """A place that is too deep, a number that is not finite or a text that is not Unicode; None where all is well."""
    waiting: list[tuple[Path_, Any]] = [((), data)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return path, f"is {value}, not a finite number"
        if isinstance(value, str) and not _is_unicode(value):
            return path, "is not Unicode text"
        inner: Iterator[tuple[str | int, Any]] = iter(())
        if isinstance(value, dict):
            bad = next((key for key in value if not _is_unicode(key)), None)
            if bad is not None:
                return path, f"has the field {shorten(bad, 40)}, which is not Unicode text"
            inner = iter(value.items())
        elif isinstance(value, list):
            inner = iter(enumerate(value))
        elif value is not None and not isinstance(value, str | int | float):
            return path, "is a date or time, which no field is"
        inner_entries = [((*path, key), entry) for key, entry in inner]
        if inner_entries and len(path) >= _DEEPEST:
            return path[:3], f"nests tables or lists more than {_DEEPEST} deep"
        waiting += inner_entries
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@cache
def _make_validator(kind: str) -> Validator:
    import jsonschema  # only here: its import takes about 0.15 s

    strict = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    made: Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=strict)(SCHEMAS[kind])
    return made


def _rank_error(wrong: ValidationError) -> tuple[bool, bool, int, str]:
    """Fields that are not known first, which may be misspelt, then wrong ones, then those that are missing; from the top down."""
    return wrong.validator == "required", wrong.validator != "additionalProperties", len(wrong.absolute_path), str(wrong.json_path)


_KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def _describe_types(value: Any, wanted: Any) -> str:
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    return f"is {_shorten_value(value)}, not {' or '.join(_KINDS[name] for name in names)}"


# What is wrong with a value, by the word of the schema that it breaks.
_PROBLEMS: Mapping[str, Callable[[Any, Any], str]] = {
    "type": _describe_types,
    "const": lambda value, wanted: f"is {_shorten_value(value)}, not {_shorten_value(wanted)}",
    "enum": lambda value, wanted: f"is {_shorten_value(value)}, not one of {', '.join(map(str, wanted))}",
    "minimum": lambda value, least: f"is {_shorten_value(value)}, less than {least}",
    "exclusiveMinimum": lambda value, least: f"is {_shorten_value(value)}, not more than {least}",
    "maximum": lambda value, most: f"is {_shorten_value(value)}, more than {most}",
    "minLength": lambda value, least: "is empty",
    "maxLength": lambda value, most: f"has {len(value)} characters, more than {most}",
    "pattern": lambda value, pattern: f"is {_shorten_value(value)}, which is empty or has other characters than names may have",
    "minItems": lambda value, least: f"has {len(value)} entries, fewer than {least}",
    "maxItems": lambda value, most: f"has {len(value)} entries, more than {most}",
    "minProperties": lambda value, least: f"has {len(value)} entries, fewer than {least}",
    "maxProperties": lambda value, most: f"has {len(value)} entries, more than {most}",
    "uniqueItems": lambda value, _: "names something twice",
}


def _explain_error(wrong: ValidationError) -> tuple[Path_, str]:
    """The place of what is wrong, and the sentence about it."""
    path: Path_ = tuple(wrong.absolute_path)
    value, wanted, word = wrong.instance, wrong.validator_value, str(wrong.validator)
    if word == "required":
        lost = next(name for name in wanted if name not in value)
        return path, f"{_name_path((*path, lost))} is missing"
    if word == "additionalProperties":
        known = wrong.schema.get("properties", {}) if isinstance(wrong.schema, Mapping) else {}
        strange = next(name for name in value if name not in known)
        return (*path, strange), f"{_name_path((*path, strange))} is not a field; fields here: {', '.join(known)}"
    if word in _PROBLEMS:
        return path, f"{_name_path(path)} {_PROBLEMS[word](value, wanted)}"
    return path, f"{_name_path(path)} is not as the schema says: {shorten(wrong.message, 120)}"


def _shorten_value(value: Any) -> str:
    """A value in a message: short, and nothing of what is inside of tables and lists."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else shorten(str(value), 40)


def _name_path(path: Path_) -> str:
    """``link.fast.latency``, ``memory[2].name``; the document where the path is empty."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{shorten(part, 40)}" for part in path[:6]]
    return "".join(parts).removeprefix(".") or "the document"


def _locate_field(file: str, text: str, path: Path_) -> str:
    """``FILE``, or ``FILE:LINE`` of the heading of the innermost table in TOML that the path leads into."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    for length in range(len(path), 0, -1):
        *tables, last = path[:length]
        number = last if isinstance(last, int) else 0
        names = [part for part in (tables if isinstance(last, int) else [*tables, last]) if isinstance(part, str)]
        heading = ".".join(names)
        quoted = ".".join([*names[:-1], f'"{names[-1]}"']) if names else ""
        wanted = {f"[[{heading}]]"} if isinstance(last, int) else {f"[{heading}]", f"[{quoted}]", f"[{quoted}]".replace('"', "'")}
        line_numbers = [i for i, line in enumerate(lines, 1) if line in wanted]
        if number < len(line_numbers):
            return f"{shorten(file, 160)}:{line_numbers[number]}"
    return shorten(file, 160)


def digest_of(path: Path) -> str:
    """SHA-256 of a file's contents, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
