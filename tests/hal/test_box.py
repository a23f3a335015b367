"""Boxes as the box mover cuts them: within the engine's limits, every byte once, and in the place that NumPy says."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deeploy.execution.simulation.boxes import BoxAxis, box_transfers
from deeploy.ir.target import DmaPath
from deeploy.resources import resource

AXES = 6
NEAR, FAR = 1 << 16, 1 << 20  # where the two sides begin
TICKET = 3

U32 = ctypes.c_uint32
START = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, U32, U32, U32, U32)


@dataclass(frozen=True)
class Limits:
    """What the engine can do, in bytes and rows."""

    max_bytes: int
    max_rows: int
    max_total: int
    max_pitch: int


@dataclass(frozen=True)
class Box:
    """``count`` and ``pitch`` (bytes) per outer axis, outermost first, of runs of ``bytes``."""

    bytes: int
    count: tuple[int, ...]
    pitch: tuple[int, ...]

    def places(self) -> np.ndarray:
        """The offset on the far side of every byte, in the order of the near side; int64."""
        places = np.zeros(1, np.int64)
        for count, pitch in zip(self.count, self.pitch, strict=True):
            places = (places[:, None] + np.arange(count) * pitch).reshape(-1)
        return (places[:, None] + np.arange(self.bytes)).reshape(-1)


@dataclass(frozen=True)
class Transfer:
    """struct rt_transfer"""

    to: int
    source: int
    bytes: int
    rows: int
    to_pitch: int
    from_pitch: int

    def places(self, is_destination: bool) -> np.ndarray:
        begin, pitch = (self.to, self.to_pitch) if is_destination else (self.source, self.from_pitch)
        return (begin + np.arange(self.rows)[:, None] * pitch + np.arange(self.bytes)).reshape(-1)


Mover = Callable[[Limits, Box, bool], list[Transfer]]


@pytest.fixture(scope="module")
def mover(tmp_path_factory: pytest.TempPathFactory) -> Mover:
    """The box mover as a function: the transfers that it starts for a box, fetched or stored."""
    library = tmp_path_factory.mktemp("box") / "box.so"
    hal = resource("kernels") / "hal"
    flags = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC", f"-I{hal}")
    sources = (hal / "deeploy_box.c", Path(__file__).parent / "box" / "recorder.c")
    subprocess.run([os.environ.get("CC", "gcc"), *flags, *map(str, sources), "-o", str(library)], check=True)
    code = ctypes.CDLL(str(library))
    assert code.recorder_axes() >= AXES
    code.recorder_move.argtypes = [ctypes.c_int] * 2 + [ctypes.c_uint64] * 2 + [U32, ctypes.c_int] + [ctypes.POINTER(U32)] * 2
    found: list[Transfer] = []
    tickets = set()

    def start(ticket: int, *fields: int) -> None:
        tickets.add(ticket)
        found.append(Transfer(*fields))

    callback = START(start)

    def move(limits: Limits, box: Box, is_fetch: bool) -> list[Transfer]:
        found.clear()
        axes = len(box.count)
        code.recorder_limits(callback, limits.max_bytes, limits.max_rows, limits.max_total, limits.max_pitch)
        code.recorder_move(is_fetch, TICKET, NEAR, FAR, box.bytes, axes, (U32 * axes)(*box.count), (U32 * axes)(*box.pitch))
        assert tickets <= {TICKET}
        return list(found)

    return move


LIMITS = st.builds(
    Limits,
    max_bytes=st.sampled_from([1, 3, 8, 64, 65535]),
    max_rows=st.sampled_from([1, 2, 5, 65535]),
    max_total=st.sampled_from([4, 17, 100, 131071]),
    max_pitch=st.sampled_from([0, 12, 40, 65535]),
)


@st.composite
def boxes(draw: st.DrawFn, is_apart: bool) -> Box:
    """Any box; with ``is_apart`` no two of its runs share a byte on the far side."""
    size = draw(st.integers(1, 20))
    pitches: list[int] = []
    counts: list[int] = []
    reach = size
    for _ in range(draw(st.integers(0, AXES))):
        count = draw(st.integers(1, 4))
        pitch = reach + draw(st.sampled_from([0, 0, 1, 7])) if is_apart else draw(st.integers(0, 30))
        counts.append(count)
        pitches.append(pitch)
        reach = pitch * (count - 1) + reach if draw(st.booleans()) else pitch * count
    order = draw(st.permutations(range(len(counts))))
    return Box(size, tuple(counts[i] for i in order), tuple(pitches[i] for i in order))


def check(transfers: list[Transfer], limits: Limits, box: Box, is_fetch: bool) -> None:
    """Every transfer keeps the limits, and together they move exactly the box."""
    near, far = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for t in transfers:
        assert 1 <= t.bytes <= limits.max_bytes
        assert 1 <= t.rows <= limits.max_rows
        assert t.bytes * t.rows <= limits.max_total
        near_pitch, far_pitch = (t.to_pitch, t.from_pitch) if is_fetch else (t.from_pitch, t.to_pitch)
        assert t.rows == 1 or (near_pitch == t.bytes and far_pitch <= limits.max_pitch)
        near.append(t.places(is_fetch))
        far.append(t.places(not is_fetch))
    places = box.places()
    order = np.concatenate(near) - NEAR
    assert sorted(order.tolist()) == list(range(places.size))
    assert (places[order] == np.concatenate(far) - FAR).all()


SETTINGS = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SETTINGS
@given(limits=LIMITS, box=boxes(is_apart=False))
def test_fetched_boxes_may_read_anything(mover: Mover, limits: Limits, box: Box) -> None:
    check(mover(limits, box, True), limits, box, True)


@SETTINGS
@given(limits=LIMITS, box=boxes(is_apart=True))
def test_stored_boxes_write_every_byte_once(mover: Mover, limits: Limits, box: Box) -> None:
    check(mover(limits, box, False), limits, box, False)


@SETTINGS
@given(limits=LIMITS, box=boxes(is_apart=True))
def test_the_walk_counts_the_transfers_that_are_started(mover: Mover, limits: Limits, box: Box) -> None:
    path = DmaPath("path", "near", "far", limits.max_bytes, limits.max_rows, limits.max_total, limits.max_pitch)
    axes = [BoxAxis(count, pitch) for count, pitch in zip(box.count, box.pitch, strict=True)]
    counted: Counter[tuple[int, int]] = Counter()
    for batch in box_transfers(path, box.bytes, axes):
        counted[batch.bytes, batch.rows] += batch.count
    assert counted == Counter((t.bytes, t.rows) for t in mover(limits, box, True))


def test_an_engine_without_limits_moves_a_window_at_once(mover: Mover) -> None:
    limits = Limits(65535, 65535, 131071, 65535)
    window = Box(24, (16,), (64,))
    assert mover(limits, window, True) == [Transfer(NEAR, FAR, 24, 16, 24, 64)]
    assert mover(limits, window, False) == [Transfer(FAR, NEAR, 24, 16, 64, 24)]


def test_axes_that_touch_become_one_run(mover: Mover) -> None:
    limits = Limits(65535, 65535, 131071, 65535)
    assert mover(limits, Box(8, (4, 5), (40, 8)), True) == [Transfer(NEAR, FAR, 160, 1, 160, 160)]


@pytest.mark.parametrize("box", [Box(8, (3, 0, 2), (64, 8, 8)), Box(0, (3,), (8,)), Box(0, (), ())])
def test_empty_boxes_move_nothing(mover: Mover, box: Box) -> None:
    assert mover(Limits(8, 8, 64, 64), box, True) == []
