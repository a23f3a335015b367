"""What all runners read and write: samples by chip, outputs by model, and projects that a runner does not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeploy.driver.verify import make_runner
from deeploy.errors import BuildError, UsageError
from deeploy.execution.runners import gvsoc, host, qemu
from deeploy.execution.runners.runner import Result, Runner, gather_outputs, project_parts, split_outputs, write_samples

X, Y = {"name": "x", "type": "f32", "shape": [2]}, {"name": "y", "type": "s8", "shape": []}
ALONE: dict[str, Any] = {"name": "network", "target": "generic", "machine": None, "inputs": [X, Y], "outputs": [Y]}
CHIPS = [
    {**ALONE, "inputs": [Y], "outputs": [X], "machine": {"constants": "w.bin"}},
    {**ALONE, "inputs": [Y, X], "outputs": [Y], "machine": {"constants": None}},
]
SYSTEM: dict[str, Any] = {**ALONE, "chips": CHIPS, "outputs": [{**Y, "chip": 1}, {**X, "chip": 0}], "messages": []}
SAMPLES = [[np.array([1, 2], np.float32), np.array(3, np.int8)], [np.array([4, 5], np.float32), np.array(6, np.int8)]]


def test_a_chip_alone_is_one_part() -> None:
    (part,) = project_parts(Path("out"), ALONE, SAMPLES)
    assert (part.entry, part.folder, part.samples, part.constants) == (ALONE, Path("out"), SAMPLES, None)
    arrays = [np.zeros(2)]
    assert gather_outputs(ALONE, [arrays]) is arrays


def test_chips_get_the_inputs_that_they_have_and_give_the_outputs_that_they_hold() -> None:
    first, second = project_parts(Path("out"), SYSTEM, SAMPLES)
    assert (first.folder, first.constants, second.constants) == (Path("out/chips/0"), Path("out/chips/0/w.bin"), None)
    assert [[array.tolist() for array in sample] for sample in first.samples] == [[3], [6]]
    assert [[array.tolist() for array in sample] for sample in second.samples] == [[3, [1.0, 2.0]], [6, [4.0, 5.0]]]
    x, y = np.zeros((2, 2)), np.ones(2)
    got = gather_outputs(SYSTEM, [[x], [y]])
    assert got[0] is y and got[1] is x


def test_samples_are_written_one_after_the_other_and_outputs_taken_apart(tmp_path: Path) -> None:
    write_samples(tmp_path / "in", ALONE, SAMPLES)
    data = (tmp_path / "in").read_bytes()
    assert data == b"".join(array.tobytes() for sample in SAMPLES for array in sample)
    for position, array in enumerate(split_outputs(data, [X, Y], 2)):
        assert array.dtype == SAMPLES[0][position].dtype
        np.testing.assert_array_equal(array, np.stack([sample[position] for sample in SAMPLES]))
    with pytest.raises(UsageError, match=r"wrote 3 bytes of outputs, and deploy\.json says 18"):
        split_outputs(b"abc", [X, Y], 2)
    assert [array.shape for array in split_outputs(b"", [{**X, "shape": [0, 2]}], 3)] == [(3, 0, 2)]


@pytest.mark.parametrize(
    ("own", "entry", "words"),
    [
        (host.Mpi(), ALONE, "--on mpi: a single chip"),
        (host.Mpi(Path("none")), SYSTEM, "there is no hostfile none"),
        (gvsoc.Gvsoc(), ALONE, "target generic does not run there"),
        (gvsoc.Gvsoc(), SYSTEM, "several chips of target generic do not run there"),
        (qemu.Qemu(), ALONE, "target generic does not run there"),
        (qemu.Qemu(), SYSTEM, "several chips do not run there"),
    ],
)
def test_a_runner_says_why_it_cannot_run_a_project(own: Runner, entry: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        own.check(tmp_path, entry)
    assert raised.value.remedy
    with pytest.raises(UsageError, match=words):
        own.run(tmp_path, entry, SAMPLES)


def test_every_runner_takes_a_limit_of_time() -> None:
    assert {name: type(make_runner(name)) for name in ("host", "mpi", "gvsoc", "qemu")} == {
        "host": host.Host,
        "mpi": host.Mpi,
        "gvsoc": gvsoc.Gvsoc,
        "qemu": qemu.Qemu,
    }
    for name in ("host", "mpi", "gvsoc", "qemu"):
        assert make_runner(name, time_limit=7.0).seconds == 7.0  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", range(len(host.ADVERSARIES)))
def test_outputs_that_change_under_one_adversary_are_an_error(mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    name, seed = host.ADVERSARIES[mode]

    def executed(program: Path, project: Path, entry: Any, samples: Any, options: list[str], seconds: float) -> Result:
        changed = options[:4] == ["--mode", name, "--seed", str(seed)]
        return Result([np.array([7, 8 + changed], np.int8)])

    monkeypatch.setattr(host, "build_application", lambda *_: Path("application"))
    monkeypatch.setattr(host, "execute_application", executed)
    with pytest.raises(BuildError, match=f"output y changes with what the machine does not promise .mode {name}, seed {seed}"):
        host.Host().run(Path("out"), {**ALONE, "machine": {}}, SAMPLES)
    assert host.Host().run(Path("out"), ALONE, SAMPLES).outputs[0].tolist() == [7, 8]
