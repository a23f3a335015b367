"""A network's own C under the optimiser, which sees more: ``run`` and ``verify`` leave it out, those who build a project do not."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import deeploy
from deeploy.options import Options
from tests.e2e import decoders
from tests.execution.simulation import nets

Make = Callable[[Path], deeploy.Compiled]
NETWORKS: dict[str, Make] = {
    "tiles": lambda folder: nets.convolutions(folder, Options(memory={"l1": 3_000})),
    "tiles, far constants": lambda folder: nets.perceptron(folder, Options(memory={"l1": 2_000, "l2": 20_000}, default_memory="L3")),
    "states, flat": lambda folder: deeploy.compile(decoders.writer(folder), dims={"rows": 1}, context=24),
    "states": lambda folder: deeploy.compile(decoders.writer(folder), "siracusa", dims={"rows": 1}, context=24),
}


@pytest.mark.share(0.4)
@pytest.mark.parametrize("level", ["-O2", "-O3"])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_compiles_without_a_warning(tmp_path: Path, name: str, level: str) -> None:
    NETWORKS[name](tmp_path).write(tmp_path / "project")
    sources = [path.relative_to(tmp_path / "project") for path in (tmp_path / "project" / "src").glob("*.c")]
    assert any(path.name == "network.c" for path in sources)
    objects = [f"build/{path.with_suffix('.o')}" for path in sources]
    command = ["make", "-s", "-C", tmp_path / "project", f"CFLAGS={level}", *objects]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
