"""npz files: by their headers first, so that no array is read that is not wanted, is no plain array of numbers, or is too large.

Sizes that an archive states are not trusted: an array is read up to the length that its own header gives, within a limit.
"""

from __future__ import annotations

import lzma
import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from deeploy.errors import UsageError, shorten

MOST_BYTES = 1 << 30  # of all arrays that are read of one file
MOST_SAMPLES = 1 << 24
_MOST_ARRAYS = 100_000
_CHUNK = 1 << 20
_NUMBERS = "iufb"
_AGAIN = "Store numeric arrays with numpy.savez."
# What zipfile and NumPy's reader of headers raise for damaged files; a header is a literal of Python, which has its own errors.
_DAMAGED = (
    *(OSError, EOFError, ValueError, NotImplementedError, RuntimeError, KeyError, TypeError, MemoryError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError),
)


@dataclass(frozen=True)
class Header:
    """An array that a file holds: its place in the archive, shape and element type."""

    member: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    is_fortran: bool

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_headers(path: Path) -> dict[str, Header]:
    """What the arrays of a file are, by name, in its order; nothing else is read of it.

    Raises:
        UsageError: it is no npz, it is damaged, or holds something else than arrays of numbers.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {shorten(str(path))}", "Give the path of an npz file.")
    with _translate_errors(path):
        with path.open("rb") as file:
            if file.read(6) == np.lib.format.MAGIC_PREFIX:
                raise UsageError(f"{shorten(path.name)} is a single array, not an npz", "Store it with numpy.savez.")
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > _MOST_ARRAYS:
                raise UsageError(f"{shorten(path.name)} holds more than {_MOST_ARRAYS} arrays", _AGAIN)
            return {member.filename.removesuffix(".npy"): _header(archive, member.filename) for member in members}


def read_arrays(path: Path, headers: Mapping[str, Header], with_texts: bool = False) -> dict[str, np.ndarray]:
    """The arrays with these headers, which ``read_headers`` found in the file; of numbers, or ``with_texts`` of texts too.

    Raises:
        UsageError: they are larger than is read, or damaged.
    """
    for header in headers.values():
        if header.dtype.kind not in _NUMBERS + "U" * with_texts:
            kind = shorten(str(header.dtype), 40)
            raise UsageError(f"{shorten(path.name)}: array '{shorten(header.member, 40)}' holds {kind}, not numbers", _AGAIN)
    total = sum(header.bytes for header in headers.values())
    if total > MOST_BYTES:
        raise UsageError(
            f"{shorten(path.name)} states arrays of {total} bytes; at most {MOST_BYTES} are read", "Store fewer samples in a file."
        )
    with _translate_errors(path), zipfile.ZipFile(path) as archive:
        return {name: _read_array(archive, header) for name, header in headers.items()}


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Turn what reading a damaged file raises into an error of two lines."""
    try:
        with warnings.catch_warnings():  # headers of old versions of Python 2, names that are there twice
            warnings.simplefilter("ignore")
            yield
    except _DAMAGED as error:
        what = shorten(str(error) or type(error).__name__, 100)
        raise UsageError(f"{shorten(path.name)} is not a readable npz file: {what}", _AGAIN) from error


def _header(archive: zipfile.ZipFile, member: str) -> Header:
    with archive.open(member) as stream:
        shape, is_fortran, dtype = _read_header(stream)
    if any(extent < 0 for extent in shape) or len(shape) > 64:
        raise ValueError(f"array {member} has the shape {shape}")
    return Header(member, shape, dtype, is_fortran)


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version} of the format of arrays is not known")
    return read(stream)


def _read_array(archive: zipfile.ZipFile, header: Header) -> np.ndarray:
    with archive.open(header.member) as stream:
        _read_header(stream)
        data = bytearray()
        while len(data) < header.bytes:
            part = stream.read(min(_CHUNK, header.bytes - len(data)))
            if not part:
                raise EOFError(f"array {header.member} ends after {len(data)} of {header.bytes} bytes")
            data += part
    flat = np.frombuffer(data, header.dtype)
    return flat.reshape(header.shape, order="F" if header.is_fortran else "C")
