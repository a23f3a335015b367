"""Damage to files that are read beside models: npz, TOML, JSON."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.random.choices import Choices
from tests.random.damage import HOSTILE, NUMBERS, of_bytes

_NUMBER = re.compile(r"(?<=[=\[, ])-?\d[\d_.eE+-]*")
_TEXT = re.compile(r'"[^"\n]*"')
_KEY = re.compile(r"^[\w.]+(?= *=)", re.MULTILINE)
_TABLE = re.compile(r"^\[+[^\]\n]+\]+", re.MULTILINE)
TOKENS = (
    "inf",
    "-inf",
    "nan",
    "1e400",
    "0",
    "-1",
    "1e9",
    "1" + "0" * 40,
    '"text"',
    "true",
    "[]",
    "{}",
    "[1, 2]",
    '""',
    "1979-05-27",
    "0.5",
)


def of_npz(c: Choices, arrays: Mapping[str, np.ndarray]) -> bytes:
    """An archive that is damaged, or whose arrays are not what they should be."""
    kind = c.pick(["bytes", "bytes", "bytes", "arrays", "arrays", "header", "header", "member", "bomb", "text"])
    changed = {name: _changed(c, array) if kind == "arrays" else array for name, array in arrays.items()}
    if kind == "arrays" and c.chance(3):
        changed = dict(list(changed.items())[1:]) if c.chance(2) else changed | {c.pick(["more", "x" * 500, "../x"]): np.zeros(2)}
    data = io.BytesIO()
    np.savez(data, allow_pickle=True, **changed)  # objects may be in it: reading them must be refused
    if kind == "bytes":
        return of_bytes(c, data.getvalue())
    if kind == "text":
        return c.pick([b"", b"PK", b"hello", b"\x93NUMPY", data.getvalue()[:30], b"{}"])
    if kind == "arrays":
        return data.getvalue()
    return _archive(c, arrays, kind)


def _changed(c: Choices, array: np.ndarray) -> Any:
    kind = c.pick(["same", "type", "rank", "extent", "value", "object", "text", "complex", "bool", "stack", "empty"])
    if kind == "type":
        return array.astype(c.pick([np.float64, np.int64, np.uint8, np.float16, np.int8]))
    if kind == "rank":
        return array[None] if c.chance(2) else array.reshape(-1)
    if kind == "extent":
        return np.zeros([n + 1 for n in array.shape], array.dtype)
    if kind == "value" and array.size:
        copy = array.astype(np.float64)
        copy.reshape(-1)[0] = c.pick([np.nan, np.inf, 1e300, -1e9, 0.5])
        return copy
    if kind == "object":
        return np.array([{}], object)
    if kind == "text":
        return np.full(array.shape, "a")
    if kind == "complex":
        return array.astype(complex)
    if kind == "bool":
        return array.astype(bool)
    if kind == "stack":
        return np.stack([array] * c.integer(1, 3))
    return array[:0] if kind == "empty" and array.ndim else array


def _archive(c: Choices, arrays: Mapping[str, np.ndarray], kind: str) -> bytes:
    """A zip file by hand: a header that claims what is not there, a member of another name, more data than there is room for."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED if kind == "bomb" or c.chance(2) else zipfile.ZIP_STORED) as archive:
        for position, (name, array) in enumerate(arrays.items()):
            body = array.tobytes()
            shape, order, descr = str(tuple(array.shape)), "False", f"'{array.dtype.str}'"
            if kind == "header" and position == 0:
                what = c.pick(["shape", "descr", "order", "all", "version"])
                if what in ("shape", "all"):
                    shape = c.pick(
                        [f"({2**50},)", f"({2**70},)", "(-1,)", "(1.5,)", "None", "(" * 200, "'a'", f"({2**31}, {2**31})", "(True,)"]
                    )
                if what in ("descr", "all"):
                    descr = c.pick(["'|O'", "'<f16'", "'<U1000000000'", "[('a', '<f4')]", "'|V8'", "1", "'nonsense'", "'>f4'"])
                if what == "order":
                    order = c.pick(["True", "None", "1"])
            text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
            text += b" " * (-(len(text) + 11) % 64) + b"\n"
            version = b"\x09\x09" if kind == "header" and c.chance(10) else b"\x01\x00"
            member = c.pick([name, f"{name}/x", "", "/abs", "a" * 1000]) if kind == "member" else name
            archive.writestr(f"{member}.npy", b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + body)
        if kind == "bomb":
            size = 2**29
            text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({size},), }}".encode()
            text += b" " * (-(len(text) + 11) % 64) + b"\n"
            with archive.open("zz_more.npy", "w") as file:
                file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
                for _ in range(size >> 22 if c.chance(2) else 1):
                    file.write(bytes(2**22))
    return data.getvalue()


def of_toml(c: Choices, text: str) -> bytes:
    """Numbers, texts, keys, tables and lines changed."""
    for _ in range(c.weighted([(4, 1), (2, 2), (1, 4)])):
        kind = c.pick(["number", "number", "number", "text", "key", "table", "line", "repeat", "nest", "bytes", "hostile"])
        if kind == "bytes":
            return of_bytes(c, text.encode())
        if kind == "number":
            text = _replaced(c, text, _NUMBER, c.pick(TOKENS))
        elif kind == "text":
            text = _replaced(c, text, _TEXT, c.pick(TOKENS))
        elif kind == "key":
            text = _replaced(c, text, _KEY, c.pick(["nonsense", "a.b.c", '"ü"', "a." * 2000 + "b"]))
        elif kind == "table":
            text = _replaced(c, text, _TABLE, c.pick(["[nonsense]", "[[nonsense]]", "[link]", "[memory]", "[system.x]"]))
        elif kind == "hostile":
            text = _replaced(c, text, _TEXT, json.dumps(c.pick(HOSTILE)))
        else:
            lines = text.splitlines()
            place = c.integer(0, max(0, len(lines) - 1))
            if kind == "line" and lines:
                del lines[place]
            elif kind == "repeat" and lines:
                lines.insert(place, lines[place])
            else:
                lines.insert(place, "deep = " + "[" * c.pick([10, 5000]))
            text = "\n".join(lines)
    return text.encode()


def _replaced(c: Choices, text: str, pattern: re.Pattern[str], new: str) -> str:
    found = list(pattern.finditer(text))
    if not found:
        return text
    match = c.pick(found)
    return text[: match.start()] + new + text[match.end() :]


def of_json(c: Choices, text: str) -> bytes:
    """Values of a JSON file removed or replaced anywhere, or its text damaged."""
    if c.chance(5):
        return of_bytes(c, text.encode())
    data = json.loads(text)
    for _ in range(c.weighted([(4, 1), (2, 2), (1, 4)])):
        data = _damaged(c, data)
    return json.dumps(data).encode()


def _damaged(c: Choices, value: Any) -> Any:
    """The value with something wrong somewhere inside it."""
    if isinstance(value, dict) and value and not c.chance(20):
        key = c.pick(sorted(value))
        if c.chance(6):
            return {k: v for k, v in value.items() if k != key}
        return value | {key: _damaged(c, value[key])}
    if isinstance(value, list) and value and not c.chance(20):
        place = c.integer(0, len(value) - 1)
        if c.chance(6):
            return [*value[:place], *value[place + 1 :]]
        return [*value[:place], _damaged(c, value[place]), *value[place + 1 :]]
    nested: Any = []
    for _ in range(500):
        nested = [nested]
    return c.pick([None, True, "text", 1.5, [], {}, nested, float("nan"), float("inf"), 10**40, *NUMBERS, *HOSTILE])
