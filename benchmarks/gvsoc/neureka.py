"""Cycles of N-EUREKA's jobs on GVSoC, operands in L1, weights in L1 or in the weight memory; and what the planner expects.

    make bench NAME=gvsoc/neureka

Every result is compared with NumPy, bit for bit. Measured is the fourth of four equal calls, from working out the registers to
the end of the wait. ``expected`` is the closed form of neureka_model.py among the tests. Exit status 1 when a result differs or nothing
can be simulated.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.common import record
from benchmarks.gvsoc.layer import SimulationError, runtime, simulate
from deeploy.target import load
from targets.siracusa.npu import EngineLayer, Mode
from tests.targets.siracusa import neureka_model as model
from tests.targets.siracusa.neureka_jobs import HAL, ROOT, SOURCES, Case, case, headers, split

BYTES, ROOM = 160 * 1024, 64 * 1024  # of a job and of its result
SIRACUSA = load("siracusa")
REPEATS = 4
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
COLUMNS = "{:<40}{:>12}{:>10}{:>10}{:>10}{:>10}{:>10}"


@dataclass(frozen=True)
class Job:
    """What is measured: a case, and whether its pixels are the rows of a product of matrices."""

    name: str
    case: Case
    is_linear: bool = False

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.case.tile.height * self.case.tile.width * self.case.weights.size

    @property
    def expected(self) -> int:
        """Cycles, as the planner expects them."""
        t, layer = self.case.tile, self.case.layer
        if self.is_linear:
            return model.linear_cycles(layer, t.height * t.width, t.channels_in, t.channels_out)
        return model.cycles(layer, t.height, t.width, t.channels_in, t.channels_out)


def convolution(mode: Mode, size: tuple[int, int], channels: int, filters: int, **layer: Any) -> Job:
    pads = (0, 0, 0, 0) if mode is Mode.POINTWISE else (1, 1, 1, 1)
    made = case(EngineLayer(mode, **{"shift": 12, "scale_bits": 16, **layer}), *size, channels, filters, pads)
    options = " ".join(f"{name[0]}{value}" for name, value in layer.items())
    return Job(f"{mode.name.lower()} {size[0]}x{size[1]}x{channels} to {filters} {options}".strip(), made)


def linear(rows: int, channels: int, filters: int) -> Job:
    made = case(EngineLayer(Mode.POINTWISE, "s8", "s8", scale_bits=16, shift=12), 1, rows, channels, filters)
    return Job(f"linear {channels} to {filters}, {rows} rows", made, True)


LAYERS = (
    convolution(Mode.POINTWISE, (1, 1), 8, 8),
    convolution(Mode.POINTWISE, (12, 12), 64, 64),
    convolution(Mode.POINTWISE, (12, 12), 64, 64, scale_bits=8),
    convolution(Mode.POINTWISE, (12, 12), 64, 64, scale_bits=32),
    convolution(Mode.POINTWISE, (24, 24), 128, 64),
    convolution(Mode.POINTWISE, (25, 5), 64, 64),
    convolution(Mode.POINTWISE, (7, 13), 65, 33, shift=None),
    convolution(Mode.POINTWISE, (9, 9), 40, 40, y_type="s32"),
    convolution(Mode.DENSE, (6, 6), 28, 32),
    convolution(Mode.DENSE, (12, 12), 64, 64),
    convolution(Mode.DENSE, (32, 32), 16, 16),
    convolution(Mode.DENSE, (7, 13), 30, 40),
    convolution(Mode.DENSE, (16, 16), 32, 32, y_type="s32"),
    convolution(Mode.DEPTHWISE, (12, 12), 28, 28),
    convolution(Mode.DEPTHWISE, (24, 24), 56, 56),
    convolution(Mode.DEPTHWISE, (25, 5), 64, 64),
    convolution(Mode.DEPTHWISE, (7, 7), 30, 30, y_type="s32"),
)
WIDTHS = tuple(
    convolution(mode, (12, 12), channels, channels, bits=bits, weight_offset=-(2 ** (bits - 1)))
    for mode, channels in ((Mode.DENSE, 64), (Mode.DEPTHWISE, 56), (Mode.POINTWISE, 64))
    for bits in range(2, 9)
)
LINEAR = tuple(linear(rows, *shape) for shape in ((64, 256), (256, 64)) for rows in SEQUENCES)


def build(folder: Path) -> Path:
    """The network that runs a job."""
    includes = f"{HAL} {headers(folder)} {ROOT / 'kernels' / 'neureka'}"
    sources = " ".join(map(str, [*SOURCES, runtime(SIRACUSA)["SIMULATED"] / "main.c"]))
    values = {**runtime(SIRACUSA), "BUILD": folder, "SOURCES": sources, "INCLUDES": includes}
    values["DEFINES"] = f"-DJOB_BYTES={BYTES} -DJOB_ROOM={ROOM}"
    command = ["make", "-s", "-f", str(runtime(SIRACUSA)["BARE"] / "bare.mk"), *(f"{name}={value}" for name, value in values.items())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SimulationError(done.stderr)
    return folder / "application.elf"


def measure(jobs: list[Job]) -> list[int]:
    """Cycles of every job.

    Raises:
        SimulationError: no simulator, or a result that differs.
    """
    with tempfile.TemporaryDirectory(prefix="deeploy-neureka-") as scratch:
        folder = Path(scratch)
        program = build(folder)
        blobs = [job.case.blob(REPEATS, BYTES, 0 if job.is_linear else 1) for job in jobs]
        (folder / "inputs.bin").write_bytes(b"".join(blobs))
        simulate(program, folder, SIRACUSA)
        ys, cycles = split((folder / "outputs.bin").read_bytes(), [job.case for job in jobs], ROOM)
    for job, y in zip(jobs, ys, strict=True):
        if y != job.case.expected():
            raise SimulationError(f"{job.name}: outputs differ")
    return cycles


def with_weights_apart(job: Job) -> Job:
    """The same with weights in the weight memory."""
    return replace(job, case=replace(job.case, layer=replace(job.case.layer, in_weight_memory=True)))


def main(arguments: Sequence[str]) -> int:
    jobs = [*LAYERS, *WIDTHS, *LINEAR]
    apart = [with_weights_apart(job) for job in jobs]
    try:
        cycles = measure([*jobs, *apart])
    except SimulationError as error:
        print(error, file=sys.stderr)
        return 1
    near, far = cycles[: len(jobs)], cycles[len(jobs) :]
    rows = [
        {"case": a.name, "macs": a.macs, "l1": n, "l1_expected": a.expected, "weight_memory": f, "weight_memory_expected": b.expected}
        for a, b, n, f in zip(jobs, apart, near, far, strict=True)
    ]
    errors = [measured - job.expected for job, measured in zip([*jobs, *apart], cycles, strict=True)]
    relative = [abs(error) / measured for error, measured in zip(errors, cycles, strict=True)]
    fit = {"median": statistics.median(errors), "least": min(errors), "most": max(errors), "largest_relative": max(relative)}
    record(rows=rows, error_in_cycles=fit)
    print(COLUMNS.format("job, all cycles", "MAC", "L1", "expected", "weights", "expected", "MAC/cycle"))
    for job, row, measured in zip(jobs, rows, far, strict=True):
        print(COLUMNS.format(*row.values(), f"{job.macs / measured:.0f}"))
    print(f"measured - expected: median {fit['median']:.0f}, {fit['least']} to {fit['most']} cycles, at most {100 * max(relative):.1f} %")
    return 0
