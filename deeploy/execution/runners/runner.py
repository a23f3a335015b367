"""What runs a project: one protocol for this host, simulators, emulators and boards, and what all of them read and write.

A project is run by parts, one for each chip; that of a single chip has one part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from deeploy.documents import Document
from deeploy.errors import UsageError
from deeploy.ir.types import DType

Samples = Sequence[Sequence[np.ndarray]]  # per sample one array per input, in the order of the graph


@dataclass(frozen=True)
class Result:
    """What came of a run.

    Attributes:
        outputs: by position, each stacked over the samples.
        cycles: of each sample, ``layers`` of each layer of the first one, by name; where a simulator counts them.
        nanoseconds: median of one inference, where it was measured.
        mhz: of the clock whose cycles they are, where a board says so.
        counters: what the host model counted of every chip's last inference, where asked for.
    """

    outputs: list[np.ndarray]
    cycles: tuple[int, ...] = ()
    layers: tuple[tuple[str, int], ...] = ()
    nanoseconds: float | None = None
    mhz: float | None = None
    counters: tuple[Document, ...] = ()


class Runner(Protocol):
    """Builds projects and runs them; its fields say how."""

    def check(self, project: Path, entry: Document) -> None:
        """Raise UsageError where the project does not run there, BuildError where this machine lacks a tool."""

    def build(self, project: Path, entry: Document, sequence: bool = False) -> Sequence[Path]:
        """Build what is run, for separate samples or for those of a sequence; returns the program, or the folder of every chip's.

        Raises:
            BuildError: the sources are rejected.
            FitError: a program is larger than the memory of its chip.
        """

    def run(self, project: Path, entry: Document, samples: Samples, sequence: bool = False) -> Result:
        """Check, build, and run one inference per sample; with ``sequence``, samples are steps of one sequence.

        Raises:
            BuildError, FitError: see ``build``; or a program fails, hangs or is killed.
        """


class SelfTests(Protocol):
    """A runner that runs the self-test of a project."""

    def self_test(self, project: Path, entry: Document) -> str:
        """Build the project's self-test and run it; what it prints."""


def self_test_macro(entry: Document) -> str:
    """The option of a C compiler that makes a program run the self-test of a network."""
    return f"-DSELF_TEST={entry['name']}_test"


class Snapshots(Protocol):
    """A runner that shows what memory holds while a program runs."""

    def snapshots(self, project: Path, entry: Document, sample: Sequence[np.ndarray]) -> bytes:
        """What memory holds after every layer of an inference, one behind the other.

        On a flat machine that is the arena and all outputs. Where there are several memories, it is what the host model writes
        (``kernels/hal/snapshots.h``).

        Raises:
            DeeployError: see ``Runner.run``.
        """


@dataclass(frozen=True)
class ChipPart:
    """The part of one chip: its entry, the folder of what belongs to it alone, and its share of the samples."""

    chip: int
    entry: Document
    folder: Path
    samples: Samples

    @property
    def constants(self) -> Path | None:
        """The file of its far constants, where it has one."""
        name = self.entry["machine"] and self.entry["machine"]["constants"]
        return self.folder / name if name is not None else None


def project_parts(project: Path, entry: Document, samples: Samples) -> list[ChipPart]:
    """The parts of a project that are run: one per chip, each with its own inputs of every sample."""
    if "chips" not in entry:
        return [ChipPart(0, entry, project, samples)]
    positions = {port["name"]: index for index, port in enumerate(entry["inputs"])}
    return [
        ChipPart(
            chip, own, project / "chips" / str(chip), [[sample[positions[port["name"]]] for port in own["inputs"]] for sample in samples]
        )
        for chip, own in enumerate(entry["chips"])
    ]


def gather_outputs(entry: Document, outputs: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
    """The outputs of a project, of those of its parts."""
    if "chips" not in entry:
        return outputs[0]
    names = [[port["name"] for port in own["outputs"]] for own in entry["chips"]]
    return [outputs[port["chip"]][names[port["chip"]].index(port["name"])] for port in entry["outputs"]]


def write_samples(path: Path, network: Document, samples: Samples) -> None:
    """Write all inputs of all samples one after the other, as applications read them."""
    with path.open("wb") as file:
        file.writelines(sample_bytes(network, sample) for sample in samples)


def sample_bytes(network: Document, sample: Sequence[np.ndarray]) -> bytes:
    """All inputs of a sample one after the other."""
    types = [DType(port["type"]).numpy for port in network["inputs"]]
    return b"".join(np.ascontiguousarray(array, dtype).tobytes() for array, dtype in zip(sample, types, strict=True))


def output_bytes(ports: Sequence[Document], samples: int) -> int:
    """Bytes of all outputs of all samples."""
    sizes: list[int] = [math.prod(port["shape"]) * DType(port["type"]).bytes for port in ports]
    return samples * sum(sizes)


def split_outputs(data: bytes, ports: Sequence[Document], samples: int) -> list[np.ndarray]:
    """Undo the concatenation of all outputs of all samples.

    Raises:
        UsageError: it has another length.
    """
    wanted = output_bytes(ports, samples)
    if len(data) != wanted:
        raise UsageError(f"the program wrote {len(data)} bytes of outputs, and deploy.json says {wanted}", "Compile the project again.")
    record = np.dtype([(f"f{i}", DType(port["type"]).numpy, tuple(port["shape"])) for i, port in enumerate(ports)])
    records = np.frombuffer(data, record, samples) if data else np.zeros(samples, record)
    return [records[name].copy() for name in record.names or ()]
