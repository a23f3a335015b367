"""Several chips on the simulator, one process each: outputs bit for bit those of the interpreter, and failures with names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.transformer_models import Shape, decoder
from deeploy import chips
from deeploy.backend.project import read_manifest
from deeploy.driver.verify import run_project
from deeploy.errors import BuildError, UsageError
from deeploy.execution.runners import gvsoc
from deeploy.options import Options
from deeploy.planning.program import Role
from tests.e2e.systems import samples, star

from .conftest import Simulate


@pytest.mark.gvsoc
@pytest.mark.parametrize("options", [Options(engines=("cluster",)), Options(default_memory="L3")], ids=["cluster", "far constants"])
def test_chips_compute_what_the_interpreter_does(simulate: Simulate, tmp_path: Path, options: Options) -> None:
    """Also chips without inputs of their own, which are not told how many samples there are."""
    system = star(tmp_path, "siracusa", 3, options=options)
    system.write(tmp_path / "out")
    given = samples(2, 96)
    found = gvsoc.Gvsoc().run(tmp_path / "out", read_manifest(tmp_path / "out"), given).outputs
    for sample, expected in enumerate(system.references(given)):
        assert np.array_equal(found[0][sample], expected[0])


@pytest.mark.gvsoc
def test_a_block_of_a_decoder_on_four_chips(simulate: Simulate, tmp_path: Path) -> None:
    """Its weights are cut over them."""
    onnx.save(decoder(Shape(64, 128, 4, 1, 8)), tmp_path / "model.onnx")
    options = Options(engines=("cluster",))
    compiled = chips.compile(tmp_path / "model.onnx", "siracusa", 4, dialect="integer", **options.given())
    compiled.write(tmp_path / "out")
    numbers = np.random.default_rng(5)
    given = {name: numbers.integers(-100, 100, shape) for name, (_, shape) in compiled.shapes.items() if name in names(compiled)}
    np.savez(tmp_path / "inputs.npz", **given)
    verdict = run_project(tmp_path / "out", tmp_path / "inputs.npz", on="gvsoc")
    (expected,) = compiled.references([[given[port.name] for port in compiled.inputs]])
    assert np.array_equal(verdict.outputs[0][0], expected[0]) and expected[0].std() > 5


def names(compiled: chips.Distributed) -> set[str]:
    return {port.name for port in compiled.inputs}


@pytest.mark.gvsoc
def test_a_chip_that_fails_is_named(simulate: Simulate, tmp_path: Path) -> None:
    """It says which message it waited for; the others do not go on."""
    system = star(tmp_path, "siracusa", 2)
    system.write(tmp_path / "out")
    messages = tmp_path / "out" / "chips" / "1" / "src" / "messages.c"
    text = messages.read_text()
    messages.write_text(text.replace("}, /* Recv */", " + 7}, /* Recv */"))
    assert messages.read_text() != text
    with pytest.raises(BuildError, match=r"chip 1: .* chip 1, which waits for chip 0: it sent another message"):
        gvsoc.Gvsoc().run(tmp_path / "out", read_manifest(tmp_path / "out"), samples(1, 64))


def test_other_targets_and_platforms_say_what_there_is(tmp_path: Path) -> None:
    for target, words in (("generic", "there is no other platform"), ("siracusa", "make -f chips/K/chip.mk")):
        folder = tmp_path / target
        folder.mkdir()
        star(folder, target, 2).write(folder / "out")
        done = subprocess.run(["make", "-C", folder / "out", "PLATFORM=bare"], capture_output=True, text=True, check=False)
        assert done.returncode and words in done.stderr
    with pytest.raises(UsageError, match="several chips of target generic do not run there"):
        gvsoc.Gvsoc().run(tmp_path / "generic" / "out", read_manifest(tmp_path / "generic" / "out"), samples(1, 64))


@pytest.mark.skipif(shutil.which("riscv64-unknown-elf-gcc") is None, reason="no compiler for the chip")
def test_each_chip_builds_alone(tmp_path: Path) -> None:
    """With the constants and messages of its own, and the code of the first chip that is like it."""
    system = star(tmp_path, "siracusa", 3)
    system.write(tmp_path / "out")
    assert system.leads == (0, 1, 1)
    assert any(b.role is Role.CONSTANT for b in system.plans[2].program.buffers.values())
    options = ["-f", "chips/2/chip.mk", "BUILD=build/2", "all"]
    subprocess.run(["make", "-s", "-C", tmp_path / "out", *options], capture_output=True, check=True)
    assert (tmp_path / "out" / "build" / "2" / "application.elf").is_file()
