"""A project whose C is changed and run: built with make, in every mode of the host machine model, with outputs compared bit for bit."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.backend import project
from deeploy.backend.project import select_network
from deeploy.execution.runners.runner import write_samples
from deeploy.ir.types import DType

HERE = Path(__file__).parent
MODES = (("late", 1), ("random", 1), ("early", 1), ("random", 2))
FLAT = (("", 0),)
WRAPPED = (
    "host_new_poison",
    "host_poison",
    "host_open",
    "rt_start",
    "rt_wait",
    "rt_job",
    "rt_job_wait",
    "rt_fork",
    "rt_barrier",
    "memcpy",
    "memmove",
    "memset",
)
LONGEST = 30.0  # seconds that a run of a mutant may take


@dataclass(frozen=True)
class Flavour:
    """A way to build: variables of make, and its folder."""

    name: str
    variables: tuple[str, ...]


PLAIN = Flavour("plain", ("CFLAGS=-O1", "WARNINGS=-w"))
ASAN = Flavour("asan", ("CFLAGS=-O1", "WARNINGS=-w", "SANITIZE=1"))
THREADS = Flavour("threads", ("CFLAGS=-O1", "WARNINGS=-w", "SANITIZE=thread"))


@dataclass(frozen=True)
class Subject:
    """A written project of one network on one chip; ``samples`` are steps of a sequence where it has states."""

    folder: Path
    entry: Mapping[str, Any]
    samples: Sequence[Sequence[np.ndarray]]

    @classmethod
    def of(cls, folder: Path, samples: Sequence[Sequence[np.ndarray]] | None = None) -> Subject:
        """A project and its inputs: without ``samples``, two random ones, the least and the greatest values."""
        entry = select_network(project.read_manifest(folder))
        subject = cls(folder, entry, samples if samples is not None else inputs_of(entry))
        write_samples(folder / "inputs.bin", entry, subject.samples)
        return subject

    @property
    def is_managed(self) -> bool:
        return self.entry["machine"] is not None

    @property
    def modes(self) -> Sequence[tuple[str, int]]:
        return MODES if self.is_managed else FLAT

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that the compiler wrote for the network: its code, and what the host model is told of its plan."""
        name = self.entry["name"]
        files = (f"src/{name}.c", f"src/{name}_checks.h")
        return tuple(path for path in files if (self.folder / path).is_file())

    def sources(self) -> dict[str, str]:
        return {path: (self.folder / path).read_text() for path in self.paths}

    def copied(self, folder: Path) -> Subject:
        """The same project in another folder, with all that is built."""
        shutil.copytree(self.folder, folder)
        return Subject(folder, self.entry, self.samples)

    def write(self, sources: Mapping[str, str]) -> None:
        """Write those of the sources that differ from what is there, so that make builds no others."""
        for path, text in sources.items():
            if (self.folder / path).read_text() != text:
                (self.folder / path).write_text(text)

    def make(self, flavour: Flavour, goal: str = "all") -> str | None:
        """Build it; the first line of what the compiler says, where that fails."""
        command = ["make", "-s", "-j2", "-C", str(self.folder), f"BUILD=build/{flavour.name}", *flavour.variables, goal]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else next((line for line in done.stderr.splitlines() if "error" in line), "make failed")

    def run(self, flavour: Flavour, mode: str = "", seed: int = 0, longest: float = LONGEST) -> tuple[str | None, bytes, str]:
        """What stopped the program, its outputs, and all that it said."""
        name, sink = self.entry["name"], self.folder / "outputs.bin"
        sink.unlink(missing_ok=True)
        command = [f"build/{flavour.name}/application", name, "inputs.bin", sink.name, str(len(self.samples))]
        is_sequence = "context" in self.entry
        if self.is_managed:
            command += ["--mode", mode, "--seed", str(seed), *(["--sequence", "1"] if is_sequence else ["--repeat", "2"])]
            constants = self.entry["machine"]["constants"]
            command += ["--constants", constants] if constants is not None else []
        else:
            command += ["0", *(["--sequence"] if is_sequence else [])]
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
        try:
            done = subprocess.run(command, cwd=self.folder, capture_output=True, timeout=longest, check=False, env=environment)
        except subprocess.TimeoutExpired:
            return f"it does not end within {longest:g} s", b"", ""
        said = done.stderr.decode(errors="replace")
        if done.returncode:
            lines = [line for line in said.splitlines() if line.strip()]
            told = next((line for line in lines if "host model" in line or "ERROR" in line or "error" in line), f"status {done.returncode}")
            return told[:160], b"", said
        return None, sink.read_bytes(), said

    @functools.cached_property
    def outputs(self) -> bytes:
        """What the original computes; the same in every mode."""
        problem = self.make(PLAIN)
        assert problem is None, problem
        found = {self.run(PLAIN, *mode)[:2] for mode in self.modes}
        assert len(found) == 1, found
        stopped, outputs = found.pop()
        assert stopped is None, stopped
        return outputs

    def killed(self, sources: Mapping[str, str], flavour: Flavour = PLAIN) -> str | None:
        """What notices that the sources are others; None where nothing does."""
        expected = self.outputs
        self.write(sources)
        refused = self.make(flavour)
        if refused is not None:
            return f"compiler: {refused[-120:]}"
        for mode in self.modes:
            stopped, outputs, _ = self.run(flavour, *mode)
            if stopped is not None:
                return stopped
            if outputs != expected:
                return f"outputs differ{f' in mode {mode[0]}' if mode[0] else ''}"
        return None


def inputs_of(entry: Mapping[str, Any]) -> list[list[np.ndarray]]:
    """Two random samples, and those of the least and the greatest values; of a network with states, steps up to its context."""
    random = np.random.default_rng(0)
    types = [(DType(port["type"]), tuple(port["shape"])) for port in entry["inputs"]]
    samples = []
    for end in (None, None, 0, 1):
        sample = []
        for dtype, shape in types:
            low, high = (-4.0, 4.0) if dtype.is_float else (max(dtype.range[0], -128), min(dtype.range[1], 255))
            values = np.full(shape, (low, high)[end]) if end is not None else random.uniform(low, high + (not dtype.is_float), shape)
            sample.append((values if dtype.is_float else np.floor(np.minimum(values, high))).astype(dtype.numpy))
        samples.append(sample)
    return samples[: entry["context"] // entry["rows"]] if "context" in entry else samples
