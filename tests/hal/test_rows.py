"""Rows of two transfers that share a byte, as the host machine model finds them, against sets of addresses."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deeploy.resources import resource

Rows = tuple[int, int, int, int]  # begin, bytes, rows, pitch

ROWS = st.tuples(st.integers(64, 160), st.integers(1, 12), st.integers(1, 9), st.integers(0, 24))


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Rows, Rows], bool]:
    library = tmp_path_factory.mktemp("rows") / "rows.so"
    hal = resource("kernels") / "hal"
    flags = ("-std=c11", "-O1", "-shared", "-fPIC", "-DRT_CHECKED", f"-I{hal}", f"-I{hal / 'host'}")
    sources = [Path(__file__).parent / "box" / "share.c"]
    sources += [path for path in sorted((hal / "host").glob("*.c")) if path.name not in ("flight.c", "main.c")]
    subprocess.run([os.environ.get("CC", "gcc"), *flags, *map(str, sources), "-o", str(library)], check=True)
    code = ctypes.CDLL(str(library))
    code.rows_share.argtypes = [ctypes.c_uint64] * 8
    return lambda a, b: bool(code.rows_share(*a, *b))


def addresses(rows: Rows) -> set[int]:
    begin, size, count, pitch = rows
    return {begin + row * pitch + at for row in range(count) for at in range(size)}


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=ROWS, b=ROWS)
@example(a=(64, 4, 9, 8), b=(68, 4, 9, 8))  # two halves of the same rows
@example(a=(64, 4, 9, 8), b=(67, 4, 9, 8))
@example(a=(64, 1, 1, 0), b=(64, 1, 9, 0))
def test_rows_share_a_byte_exactly_when_their_addresses_do(share: Callable[[Rows, Rows], bool], a: Rows, b: Rows) -> None:
    assert share(a, b) == bool(addresses(a) & addresses(b))
    assert share(b, a) == share(a, b)
