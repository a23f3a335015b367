"""What asks for room in a memory: how much, and from which step to which."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from deeploy.planning.packing.lifetimes import wanted_blocks
from deeploy.planning.tiling.loops import CallTiling, Stream, TileLoop
from deeploy.target import load


@pytest.mark.parametrize(
    ("links", "first"),
    [
        ((None, None, None, None), [0, 0, 1, 2]),
        ((None, "send", "send", None), [0, 0, 0, 0]),  # a Send is over before anything arrives that is fetched while it runs
        ((None, None, "send", None), [0, 0, 1, 1]),
        (("send", "send", "recv", None), [0, 0, 0, 2]),
    ],
)
def test_windows_take_all_their_slots_from_where_their_fetch_begins(links: tuple[str | None, ...], first: list[int]) -> None:
    calls = [SimpleNamespace(name=f"c{i}", kernel=SimpleNamespace(engine="cluster", link=link), scratch={}) for i, link in enumerate(links)]
    program: Any = SimpleNamespace(calls=calls, buffers={})
    early, late = (Stream(name, "L2_L1", 0, 1, 1, depth, 64, False, is_early=depth == 2) for name, depth in (("w", 2), ("x", 1)))
    candidate: Any = SimpleNamespace(tiling=CallTiling((TileLoop("k", 2, 1),), (early, late), None), is_double=True)
    found = wanted_blocks(program, load("siracusa"), [candidate] * 4, {}, [], {})
    for step in range(4):
        windows = {block.buffers[0]: block for block in found["L1"] if block.last == step}
        assert set(windows) == {f"c{step}.w", f"c{step}.x"} and not any(blocks for level, blocks in found.items() if level != "L1")
        assert (windows[f"c{step}.w"].size, windows[f"c{step}.w"].first) == (128, first[step])
        assert (windows[f"c{step}.x"].size, windows[f"c{step}.x"].first) == (64, step)
