"""A correct network on the host machine model: right in every mode, and everything about it is counted and shown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.hal import bench


@pytest.mark.share(0.25)
@pytest.mark.parametrize("mode", bench.MODES)
@pytest.mark.parametrize("flavour", bench.FLAGS)
def test_a_correct_network_is_right_whatever_the_adversary_does(flavour: str, mode: str) -> None:
    application = bench.build(flavour)
    for seed in range(5):
        assert bench.run(application, mode, seed, repeat=3) == bench.Run(0, "", True)


def test_equal_seeds_make_equal_runs(tmp_path: Path) -> None:
    """A race between two cores ends as the seed says, every time."""
    application = bench.build("plain", (("k->part[core] = 0;", "k->part[core] = rt_core() ? 0 : k->part[1] & 1;"),))
    outcomes = set()
    for seed in range(12):
        runs = {bench.run(application, "random", seed) for _ in range(3)}
        assert len(runs) == 1
        outcomes |= runs
    assert len(outcomes) > 1


def test_counters(tmp_path: Path) -> None:
    file = tmp_path / "counters.json"
    for mode in ("late", "random", "early"):
        assert bench.run(bench.build(), mode, options=["--counters", str(file)]).is_right
        counters = json.loads(file.read_text())
        outstanding = [counters["engines"][name].pop("outstanding") for name in ("L2_L1", "L3_L2")]
        assert outstanding == {"late": [3, 2], "early": [0, 0]}.get(mode, outstanding)
        assert counters == {
            "machine": "small",
            # 8 windows of x, 8 tiles of y, w; y once, back once and the output once, in runs of 128 bytes
            "engines": {
                "L2_L1": {"transfers": 26, "rows": 50, "bytes_to_near": 1164, "bytes_to_far": 768, "waits": 20},
                "L3_L2": {"transfers": 12, "rows": 12, "bytes_to_near": 384, "bytes_to_far": 384, "waits": 2},
            },
            "levels": {
                "L1": {"capacity": 1024, "planned": 656, "touched": 656},
                "L2": {"capacity": 4096, "planned": 784, "touched": 784},
                "L3": {"capacity": 8192, "planned": 416, "touched": 416},
            },
            "forks": 9,
            "barriers": 8,
            "bytes_before_step_0": 12,
            "step_bytes": [768, 1152, 768],
        }


def test_snapshots_show_memory_at_the_end_of_every_step(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.bin"
    assert bench.run(bench.build(), repeat=2, options=["--snapshot", str(file)]).is_right
    data = file.read_bytes()
    head = np.frombuffer(data, np.uint32, 5)
    assert head.tolist() == [3, 656, 784, 416, 384]
    y, output = bench.expected()
    record = 4 + int(head[1:].sum())
    assert len(data) == 20 + 3 * record
    for step in range(3):
        shown = data[20 + step * record :][:record]
        assert int.from_bytes(shown[:4], "little") == step
        l1, l2, l3, out = np.split(np.frombuffer(shown[4:], np.int8), np.cumsum(head[1:4]))
        assert l2[:12].tolist() == bench.CONSTANTS[16:28].tolist()
        assert (l2[16:400].tolist() == y[0].tolist()) == (step < 2)
        assert (l2[400:].tolist() == y[0].tolist()) == (step > 0)
        assert (l3[32:].tolist() == y[0].tolist()) == (step == 1)
        assert (l1[272:].tolist() == output[0].tolist()) == (step == 2)
        assert (out.tolist() == output[0].tolist()) == (step == 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "never"], "--mode is early, late or random"),
        (["--speed", "1"], "there is no such option"),
        (["--repeat"], "an option lacks its value"),
        (["--constants", "/nowhere"], "the file of constants cannot be read"),
    ],
)
def test_wrong_options_are_refused(options: list[str], message: str) -> None:
    result = bench.run(bench.build(), options=options)
    assert (result.status, result.message) == (1, message + "\n")


def test_constants_must_have_the_size_that_the_machine_states(tmp_path: Path) -> None:
    for size, message in ((127, "the file of constants is too short"), (129, "the file of constants is longer than the constants")):
        (tmp_path / "constants.bin").write_bytes(bytes(size))
        result = bench.run(bench.build(), options=["--constants", str(tmp_path / "constants.bin")])
        assert (result.status, result.message) == (1, message + "\n")
