"""The digits network as it is emitted for memories of 2 000 and 12 000 bytes: right on the host machine model, and no mutant is."""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from deeploy import api
from deeploy.frontend.quantize import quantize
from deeploy.midend.machine import Options
from deeploy.resources import resource
from tests.hal import mutate

MODEL = resource("kernels").parent / "examples" / "digits" / "digits.onnx"
SAMPLES = 2
MEMORIES = {
    "constants in L2": Options({"l1": 2000}, default_memory="L2"),
    "constants in L3": Options({"l1": 2000}, default_memory="L3"),
    "constants and activations in L3": Options({"l1": 2000, "l2": 12000}, default_memory="L3"),
}
MUTATED = ("src/network.c", "src/network_checks.h")
SAMPLE = 12  # mutants of each project, in the short run


@dataclass(frozen=True)
class Project:
    """A written project, its inputs beside it, and what the reference computes for them."""

    folder: Path
    expected: bytes

    def run(self, mode: str, build: str = "build") -> tuple[int, bool, str]:
        """Status, whether the outputs are right, and the message."""
        binary = self.folder / "network_weights.bin"
        command = [self.folder / build / "application", "network", self.folder / "inputs.bin", self.folder / "outputs.bin", SAMPLES]
        constants = ["--constants", binary] if self.is_far else []
        done = subprocess.run(
            [*map(str, command), *map(str, constants), "--mode", mode, "--repeat", "2"],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return done.returncode, (self.folder / "outputs.bin").read_bytes() == self.expected, done.stderr

    @property
    def is_far(self) -> bool:
        """Whether the constants are a file that the far level holds, and no C arrays."""
        return not (self.folder / "src/network_weights.c").is_file()

    def make(self, *options: str) -> None:
        done = subprocess.run(["make", "-s", "-C", str(self.folder), *options], capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr


@pytest.fixture(scope="module", params=list(MEMORIES.values()), ids=list(MEMORIES))
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("digits")
    images = np.random.default_rng(3).random((16, 1, 8, 8), dtype=np.float32)
    np.savez(folder / "images.npz", image=images)
    quantize(MODEL, folder / "images.npz", folder / "int8.onnx")
    compiled = api.compile(folder / "int8.onnx", "siracusa", options=request.param)
    compiled.write(folder / "project")
    (folder / "project" / "inputs.bin").write_bytes(images[:SAMPLES].tobytes())
    outputs = [compiled.interpret({"image": image[None]}) for image in images[:SAMPLES]]
    return Project(folder / "project", b"".join(array.tobytes() for sample in outputs for array in sample))


@pytest.mark.parametrize(
    "flavour",
    ["", pytest.param("1", marks=pytest.mark.slow), pytest.param("thread", marks=pytest.mark.slow)],
    ids=["plain", "address sanitizer", "thread sanitizer"],
)
def test_it_is_right_whatever_the_adversary_does(project: Project, flavour: str) -> None:
    build = f"build{flavour}"
    project.make(f"BUILD={build}", "CFLAGS=-O1", f"SANITIZE={flavour}")
    for mode in ("early", "late", "random"):
        assert project.run(mode, build) == (0, True, "")


def survivors(project: Project, mutants: list[mutate.Mutant]) -> list[str]:
    """The names of the mutants that run and give right outputs in every mode."""
    alive = []
    originals = {path: (project.folder / path).read_text() for path in MUTATED}
    for mutant in mutants:
        for path, text in mutant.sources.items():
            if text != (project.folder / path).read_text():
                (project.folder / path).write_text(text)
        project.make("BUILD=mutants", "CFLAGS=-O0", "WARNINGS=-w")
        if all(project.run(mode, "mutants")[:2] == (0, True) for mode in ("late", "random", "early")):
            alive.append(mutant.name)
    for path, text in originals.items():
        (project.folder / path).write_text(text)
    return alive


def all_mutants(project: Project) -> list[mutate.Mutant]:
    return list(mutate.mutants({path: (project.folder / path).read_text() for path in MUTATED}, "AT_"))


def test_no_mutant_of_a_sample_survives(project: Project) -> None:
    found = all_mutants(project)
    assert {mutant.name.split(",")[0] for mutant in found} >= {"wait dropped", "transfer dropped", "offset shifted", "ends a step early"}
    assert survivors(project, random.Random(5).sample(found, SAMPLE)) == []


@pytest.mark.slow
def test_no_mutant_survives(project: Project) -> None:
    assert survivors(project, all_mutants(project)) == []
