"""Verification: the generated C against the interpreter, onnxruntime, and golden outputs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.api import Compiled
from deeploy.backend import host, project
from deeploy.errors import UsageError
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.graph.types import DType
from deeploy.report.compare import Comparison, compare
from deeploy.simulate.interpreter import outputs as interpreted

Samples = list[list[np.ndarray]]
_RANDOM_SAMPLES = 4


@dataclass(frozen=True)
class Verdict:
    """What was compared; each comparison comes with what it was compared against."""

    comparisons: list[tuple[str, Comparison]]
    outputs: list[np.ndarray]  # per output, stacked over samples
    names: list[str]
    samples: int
    stacked: bool
    notes: list[str]

    def save(self, path: Path) -> None:
        """Write the outputs by name; without the axis of samples where the inputs had none."""
        arrays = {name: array if self.stacked else array[0] for name, array in zip(self.names, self.outputs, strict=True)}
        with path.open("wb") as file:
            np.savez(file, **arrays)


def run_project(
    folder: Path,
    inputs: Path,
    expect: Path | None = None,
    tolerance: float | None = None,
    sanitize: bool = False,
    network: str | None = None,
) -> Verdict:
    """Run a project on the host and compare its outputs with golden ones, where given."""
    entry = host.select_network(project.read_manifest(folder), network)
    samples, stacked, notes = _load(inputs, entry["inputs"])
    result = host.run(folder, entry, samples, sanitize)
    comparisons = []
    if expect is not None:
        golden, more = _golden(expect, entry["outputs"], len(samples) if stacked else None)
        notes += more
        comparisons = _all(entry, result.outputs, golden, tolerance, expect.name)
    return Verdict(comparisons, result.outputs, [p["name"] for p in entry["outputs"]], len(samples), stacked, notes)
