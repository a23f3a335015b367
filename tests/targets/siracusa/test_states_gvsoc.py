"""Networks with states on GVSoC: every position is what the interpreter computes, and what the host machine model counts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import deeploy
from deeploy.cli import app
from tests.e2e import decoders
from tests.targets.siracusa.conftest import Simulate

CONTEXT, ROWS = 12, 4


@pytest.mark.gvsoc
@pytest.mark.parametrize("name", ["prompt", "step"])
def test_a_sequence_of_one_of_two_networks(simulate: Simulate, tmp_path: Path, name: str) -> None:
    """Of a project that writes, too: its function for that is built for a controller without floating point."""
    path = decoders.writer(tmp_path)
    dims = {"prompt:rows": ROWS, "step:rows": 1}
    compiled = deeploy.compile({"prompt": path, "step": path}, "siracusa", dims=dims, context=CONTEXT)
    compiled.write(tmp_path / "out")
    rows = ROWS if name == "prompt" else 1
    ids = np.random.default_rng(2).integers(0, 40, (CONTEXT // rows, 1, rows))
    np.savez(tmp_path / "in.npz", ids=ids)
    files = ["--inputs", str(tmp_path / "in.npz"), "--save", str(tmp_path / "got.npz")]
    result = CliRunner().invoke(app, ["run", str(tmp_path / "out"), "--on", "gvsoc", "--network", name, "--sequence", *files])
    assert result.exit_code == 0, result.output or result.exception
    alone = deeploy.compile(path, "siracusa", dims={"rows": rows}, context=CONTEXT)
    want = [y[0] for y in alone.interpret_sequence([{"ids": one} for one in ids])]
    np.testing.assert_array_equal(np.load(tmp_path / "got.npz")["scores"], np.stack(want))
    assert [n["name"] for n in json.loads((tmp_path / "out" / "deploy.json").read_text())["networks"]] == ["prompt", "step"]
