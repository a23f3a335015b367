"""Windows of every kind, in memories one and two levels away: the emitted C is right however late or early transfers land."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.backend import project
from deeploy.backend.project import select_network
from deeploy.execution.runners import host
from deeploy.options import Options
from deeploy.planning.plan import Buffering
from deeploy.schedule import build_schedule
from tests.execution.simulation import nets

SLOTS = (r"\+ t % 2 \* \d+", r"\+ t / \d+ % 2 \* \d+")  # that change with every tile, that stay for several
STORED_TWICE = (r"wait L2_L1 out\n +wait L3_L2 out\n +unstage of",)  # out of two slots in L2
STORED_ONCE = (r"if t % ([2-9]|\d\d+) == \d+:\n +unstage of call \d+, tile t\n +wait L3_L2 out",)  # out of one, for several tiles
WHOLE = (r"store of call \d+, tile 0\n +wait L2_L1 out",)  # one tile

# Each with what its schedule has to contain.
CASES: list[tuple[Callable[[Path, Options], deeploy.Compiled], int, int, Buffering, tuple[str, ...]]] = [
    (nets.convolutions, 2500, 14_000, "double", SLOTS + STORED_TWICE),
    (nets.filters, 2500, 6000, "double", SLOTS + STORED_TWICE),
    (nets.transposed, 4000, 6000, "single", STORED_ONCE),
    (nets.perceptron, 60_000, 30_000, "single", WHOLE),
]


@pytest.mark.share(0.5)
@pytest.mark.parametrize(("build", "l1", "l2", "buffering", "kinds"), CASES, ids=[case[0].__name__ for case in CASES])
def test_the_c_is_right_under_an_adversary(
    build: Callable[[Path, Options], deeploy.Compiled], l1: int, l2: int, buffering: Buffering, kinds: tuple[str, ...], tmp_path: Path
) -> None:
    compiled = build(tmp_path, Options(memory={"l1": l1, "l2": l2}, buffering=buffering, default_memory="L3"))
    compiled.write(tmp_path / "out")
    text = str(build_schedule(compiled.plan))
    assert [kind for kind in kinds if not re.search(kind, text)] == []
    entry = select_network(project.read_manifest(tmp_path / "out"))
    random = np.random.default_rng(3)
    sample = [random.uniform(0.1, 1, port["shape"]).astype(np.float32) for port in entry["inputs"]]
    for got, wanted in zip(host.Host().run(tmp_path / "out", entry, [sample]).outputs, compiled.interpret(sample), strict=True):
        np.testing.assert_allclose(got[0], wanted, rtol=1e-5, atol=1e-5)
