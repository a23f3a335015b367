"""Whether time depends on data: one inference on random and extreme inputs, in cycles of GVSoC and in instructions under QEMU.

Inputs are zeros, all at the least and at the largest value, alternating between both, and random; floats from -1000 to 1000. GVSoC counts
the cycles of an inference from the start of the machine, with the same memory state for all inputs; QEMU counts instructions. What varies
is named (functions in QEMU, layers in GVSoC), and has to be of kernels that the certificate lists.

    make bench NAME='spread [--target TARGET ...] [--random N] [--write] [FOLDER ...]'

A folder has a ``network.onnx``. Without one, MLPerf Tiny and networks of other kinds in shared/models beside the repository are taken, of
which GVSoC runs some.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import deeploy
from benchmarks.common import MODELS, ROOT, Table, replace_table, table
from benchmarks.microcontrollers import TINY, counted
from benchmarks.models import settings
from deeploy.backend.project import read_manifest, select_network
from deeploy.documents import Document
from deeploy.errors import DeeployError
from deeploy.execution.runners.gvsoc import Gvsoc, find_launcher
from deeploy.execution.runners.runner import write_samples
from deeploy.ir.types import DType
from deeploy.schemas import CERTIFICATE

PAGE = ROOT / "docs" / "trust.md"
FEW = (
    *(TINY / name for name in ("ad_int8_qdq_pc", "ic_int8_qdq_pc", "kws_int8_qdq_pc")),
    MODELS / "dialect/Models/MLPerf/ImageClassification",
)
MORE = (TINY / "kws_int8_ref", *(MODELS / name for name in ("shapes/matchbox", "shapes/zoo", "hf/bert_tiny_int8", "real/q_gru_qdq")))
TARGETS = ("siracusa", "cortex_m4", "cortex_m55")
RANGE = 1000.0  # of floats, to both sides
MOST_INDEX = 99  # of inputs of more than 16 bits, which choose rows of tables
HEADS = ("network", "target", "least", "most", "spread", "what varies", "listed")


@dataclass(frozen=True)
class Spread:
    """What inferences took.

    Attributes:
        counts: cycles or instructions, of each sample.
        parts: the same of functions or layers, each with the kernels that it may be of.
    """

    counts: Sequence[int]
    parts: Mapping[str, tuple[Sequence[int], frozenset[str]]]

    @property
    def share(self) -> float:
        """Of the most that is beyond the least."""
        return 1 - min(self.counts) / max(self.counts)

    def find_varying(self) -> dict[str, frozenset[str]]:
        """Parts whose count varies, with their kernels."""
        return {name: kernels for name, (counts, kernels) in self.parts.items() if max(counts) > min(counts)}


def draw_samples(ports: Sequence[Document], count: int) -> list[list[np.ndarray]]:
    """Extreme samples, and so many random ones."""
    generator, samples = np.random.default_rng(1), list[list[np.ndarray]]()
    for kind in range(4 + count):
        sample = []
        for port in ports:
            dtype, shape = DType(port["type"]), tuple(port["shape"])
            low, high = (-RANGE, RANGE) if dtype.is_float else dtype.range if dtype.bits <= 16 else (0, MOST_INDEX)
            extremes = (np.zeros(shape), np.full(shape, low), np.full(shape, high), np.resize([low, high], shape))
            values = extremes[kind] if kind < 4 else generator.uniform(low, high + (not dtype.is_float), shape)
            sample.append((values if dtype.is_float else np.floor(values)).astype(dtype.numpy))
        samples.append(sample)
    return samples


def count_instructions(project: Path, manifest: Document, samples: Sequence[Sequence[np.ndarray]], plugin: Path) -> Spread:
    """Of inferences under QEMU, also by function."""
    folder = project / "build" / "count"
    folder.mkdir(parents=True)
    runs = []
    for sample in samples:
        write_samples(folder / "inputs.bin", manifest, [sample])
        runs.append({name: number for number, name in counted(project, plugin)})
    definers: dict[str, set[str]] = {}
    for compiled in (folder / "src" / "kernels").glob("*.o"):
        symbols = subprocess.run(["nm", compiled], capture_output=True, text=True, check=True).stdout
        for name in re.findall(r" [tT] (\S+)$", symbols, re.MULTILINE):
            definers.setdefault(name, set()).add(compiled.stem)
    names = dict.fromkeys(name for run in runs for name in run)
    parts = {name: ([run.get(name, 0) for run in runs], frozenset(definers.get(name, ()))) for name in names}
    return Spread([sum(run.values()) for run in runs], parts)


def count_cycles(project: Path, manifest: Document, samples: Sequence[Sequence[np.ndarray]], calls: Mapping[str, str]) -> Spread:
    """Of inferences in GVSoC, each from the start; by layer where they differ. ``calls`` are the kernels of layers."""
    entry = select_network(manifest)
    counts = [Gvsoc(has_layers=False).run(project, entry, [sample]).cycles[0] for sample in samples]
    parts: dict[str, list[int]] = {}
    for sample in samples if len(set(counts)) > 1 else ():
        for name, cycles in Gvsoc().run(project, entry, [sample]).layers:
            parts.setdefault(name, []).append(cycles)
    return Spread(counts, {name: (cycles, frozenset({calls.get(name, name)})) for name, cycles in parts.items()})


def is_listed(kernels: frozenset[str], listed: Sequence[str]) -> bool:
    """Whether a part may be of a kernel that a certificate lists; what no kernel defines is of the C library, which listed ones call."""
    return bool(listed) and (not kernels or any(name in kernel for name in listed for kernel in kernels))


def measure_network(folder: Path, target: str, count: int, plugin: Path) -> tuple[list[str], bool]:
    """The cells of a row, and whether only what the certificate lists depends on data."""
    dims, pins = settings(folder)
    compiled = deeploy.compile(folder / "network.onnx", target, dims=dims, pins=pins)
    time = json.loads(compiled.files()[CERTIFICATE])["time"]
    listed = sorted({kernel["kernel"] for kernel in time["kernels"]})
    with tempfile.TemporaryDirectory(prefix="deeploy-spread-") as scratch:
        project = Path(scratch) / "project"
        compiled.write(project)
        manifest = read_manifest(project)
        samples = draw_samples(manifest["inputs"], count)
        if target == "siracusa":
            found = count_cycles(project, manifest, samples, {call.name: call.kernel.name for call in compiled.plan.program.calls})
        else:
            found = count_instructions(project, manifest, samples, plugin)
    varying = found.find_varying()
    wrong = [name for name, kernels in varying.items() if not is_listed(kernels, listed)]
    is_right = not wrong and (not found.share or not time["is_constant"])
    named = ", ".join(sorted({_name_kernel(name, kernels, listed) for name, kernels in varying.items()}))
    cells = [folder.name, target, str(min(found.counts)), str(max(found.counts)), f"{found.share:.2%}", named, ", ".join(listed)]
    return cells, is_right


def _name_kernel(part: str, kernels: frozenset[str], listed: Sequence[str]) -> str:
    """The listed kernel of a part, else the part's own name."""
    return next((name for name in listed if any(name in kernel for kernel in kernels)), part)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, default=())
    parser.add_argument("--target", action="append", choices=TARGETS, help="all of them by default")
    parser.add_argument("--random", type=int, default=3, metavar="N", help="random samples beside the extreme ones")
    parser.add_argument("--write", action="store_true", help="put the table into docs/trust.md")
    given = parser.parse_args(words)
    if shutil.which("qemu-system-arm") is None:
        sys.exit("qemu-system-arm is not installed")
    find_launcher()
    rows, failed = Table("{:<20} {:<11} {:>9} {:>9} {:>7}  {:<34} {}", *HEADS), 0
    with tempfile.TemporaryDirectory() as scratch:
        plugin = Path(scratch) / "count.so"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", str(ROOT / "benchmarks" / "qemu" / "count.c"), "-o", str(plugin)], check=True)
        for target in given.target or TARGETS:
            for folder in given.folders or (FEW if target == "siracusa" else (*FEW, *MORE)):
                try:
                    cells, is_right = measure_network(folder, target, given.random, plugin)
                except DeeployError as error:
                    cells, is_right = [folder.name, target, "", "", "", error.what[:60], ""], True
                failed += not is_right
                rows.add(*cells, note="" if is_right else "  NOT LISTED")
    if given.write:
        replace_table(PAGE, "spread", table(HEADS, [_as_cells(row) for row in rows.rows]))
    return int(failed > 0)


def _as_cells(row: Mapping[str, Any]) -> list[str]:
    return [str(row[head]) for head in HEADS]
