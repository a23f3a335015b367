"""Inputs that many operators read: one copy, where a machine has a memory of its own for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.backend import project
from deeploy.execution.runners import host
from deeploy.execution.simulation.walk import walk_plan
from deeploy.options import Options
from tests.e2e import decoders
from tests.execution.simulation.nets import compile_nodes, node


def sums(folder: Path, readers: int, columns: int, target: str = "siracusa") -> deeploy.Compiled:
    """An input that is added again and again, with a function between the sums."""
    nodes, x = [], "x"
    for number in range(readers):
        nodes += [node("Add", f"{x} m", f"a{number}"), node("Tanh", f"a{number}", "y" if number == readers - 1 else f"t{number}")]
        x = f"t{number}"
    return compile_nodes(folder, nodes, {"x": [4, columns], "m": [columns]}, {"y": [4, columns]}, {}, Options(), target)


@pytest.mark.parametrize(
    ("readers", "columns", "target", "copies"),
    [(3, 64, "siracusa", 1), (2, 64, "siracusa", 0), (3, 1024, "siracusa", 1), (3, 1025, "siracusa", 0), (3, 64, "generic", 0)],
)
def test_short_inputs_with_many_readers_are_copied_once(tmp_path: Path, readers: int, columns: int, target: str, copies: int) -> None:
    calls = sums(tmp_path, readers, columns, target).network.program.calls
    assert sum(call.node.op == "Copy" for call in calls) == copies
    assert sum(call.operands.get("b", call.operands["y"]).buffer == "m" for call in calls if call.node.op == "Add") == readers * (
        1 - copies
    )


def test_the_copy_is_what_was_given_and_moves_once(tmp_path: Path) -> None:
    whole = sums(tmp_path, 4, 64)
    assert walk_plan(whole.plan).traffic["L2_L1"].bytes_in == 4 * (4 * 64 + 64)
    whole.write(tmp_path / "out")
    sample = [np.random.default_rng(1).normal(size=shape).astype(np.float32) for shape in ((4, 64), (64,))]
    got = host.Host().run(tmp_path / "out", project.read_manifest(tmp_path / "out"), [sample]).outputs[0]
    np.testing.assert_allclose(got[0], whole.interpret(sample)[0], atol=1e-5)


def test_a_mask_that_grows_is_copied_as_far_as_it_goes(tmp_path: Path) -> None:
    """Three layers read the mask; the rows that do not exist yet are nonsense on the host model."""
    path = decoders.decoder(tmp_path, layers=3)
    whole = deeploy.compile(path, "siracusa", context=6)
    assert [call.node.op for call in whole.network.program.calls].count("Copy") >= 1
    steps = decoders.steps(6, 1, 6)
    whole.write(tmp_path / "out")
    entry = project.read_manifest(tmp_path / "out")
    samples = [[step[port["name"]] for port in entry["inputs"]] for step in steps]
    got = host.Host().run(tmp_path / "out", entry, samples, sequence=True).outputs[0]
    np.testing.assert_allclose(got, [y[0] for y in whole.interpret_sequence(steps)], atol=1e-5)
