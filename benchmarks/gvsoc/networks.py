"""Whole networks on GVSoC: compiled, built with the project's own Makefile, simulated, compared with golden outputs, and measured."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import MODELS

from deeploy import api, verify
from deeploy.backend import gvsoc
from deeploy.errors import DeeployError
from deeploy.frontend.quantize import quantize
from deeploy.midend.machine import Options

DIALECT, TINY = MODELS / "dialect" / "Models", MODELS / "mlperf_tiny"


@dataclass(frozen=True)
class Network:
    """A model with its inputs and golden outputs; ``is_float`` ones are quantised first, and have no golden outputs."""

    name: str
    folder: Path
    is_float: bool = False


NETWORKS = (
    Network("KeywordSpotting", DIALECT / "MLPerf" / "KeywordSpotting"),
    Network("ImageClassification", DIALECT / "MLPerf" / "ImageClassification"),
    Network("VisualWakeWords", TINY / "vww_fp32", is_float=True),
    Network("AnomalyDetection", TINY / "ad_int8_qdq_pc"),
    Network("CNN_Linear2", DIALECT / "CNN_Linear2"),
    Network("miniMobileNet", DIALECT / "miniMobileNet"),
    Network("microLlama1", DIALECT / "microLlama" / "INT8" / "microLlama1"),
    Network("microLlama64", DIALECT / "microLlama" / "INT8" / "microLlama64"),
    Network("ic_int8_qdq_pc", TINY / "ic_int8_qdq_pc"),
    Network("ic_int8_qdq_pt", TINY / "ic_int8_qdq_pt"),
    Network("kws_int8_qdq_pc", TINY / "kws_int8_qdq_pc"),
    Network("kws_int8_qdq_pt", TINY / "kws_int8_qdq_pt"),
)


@dataclass(frozen=True)
class Layer:
    """Cycles of a layer, predicted and measured."""

    name: str
    kernel: str
    macs: int
    predicted: float
    measured: int

    @property
    def error(self) -> float:
        """Of the prediction, relative to what was measured."""
        return self.predicted / self.measured - 1 if self.measured else 0.0


@dataclass(frozen=True)
class Result:
    """What was found for a network: cycles of one inference, its layers, whether all outputs are right, bytes of code."""

    name: str
    predicted: float
    measured: int
    layers: tuple[Layer, ...]
    is_right: bool
    text: int

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return sum(layer.macs for layer in self.layers)


def results(words: list[str], options: Options | None = None) -> Iterator[Result | tuple[str, DeeployError]]:
    """Every network that has one of ``words`` in its name (none: all), in order; a failure with the network's name."""
    for network in NETWORKS:
        if words and not any(word.lower() in network.name.lower() for word in words):
            continue
        try:
            yield result(network, options or Options({}))
        except DeeployError as error:
            yield network.name, error


def result(network: Network, options: Options) -> Result:
    """Compile, build, simulate and compare one inference: the first after the start, with cold instruction caches.

    Raises:
        DeeployError: any of it fails.
    """
    with tempfile.TemporaryDirectory(prefix="deeploy-gvsoc-") as scratch:
        folder = Path(scratch)
        model = _quantised(network, folder) if network.is_float else network.folder / "network.onnx"
        inputs, golden = (_first(network.folder / f"{name}.npz", folder) for name in ("inputs", "outputs"))
        compiled = api.compile(model, "siracusa", inputs=inputs, options=options)
        compiled.write(folder / "project")
        verdict = verify.run_project(folder / "project", inputs, None if network.is_float else golden, on="gvsoc")
        if network.is_float:
            with np.load(inputs) as arrays:
                wanted = compiled.interpret(list(arrays.values()))
            is_right = all(np.array_equal(got[0], want) for got, want in zip(verdict.outputs, wanted, strict=True))
        else:
            is_right = all(comparison.passed for _, comparison in verdict.comparisons)
        text = text_bytes(folder / "project" / "build" / "bare" / "application.elf")
    run, measured = compiled.network.predicted, dict(verdict.layers)
    assert run is not None, "siracusa has a timing"
    calls = compiled.plan.program.calls
    layers = tuple(
        Layer(c.name, call.kernel.name, call.geometry.macs(), c.cycles, measured.get(c.name, 0))
        for c, call in zip(run.calls, calls, strict=True)
    )
    return Result(network.name, run.cycles, verdict.cycles[0], layers, is_right, text)


def build(network: Network, folder: Path) -> int:
    """Compile and build only; returns the bytes of instructions.

    Raises:
        DeeployError: either fails.
    """
    model = _quantised(network, folder) if network.is_float else network.folder / "network.onnx"
    api.compile(model, "siracusa", inputs=_first(network.folder / "inputs.npz", folder)).write(folder / "project")
    return text_bytes(gvsoc.build(folder / "project", "network") / "application.elf")


def _quantised(network: Network, folder: Path) -> Path:
    """The float model in 8 bits, as QDQ ONNX."""
    quantize(network.folder / "network.onnx", network.folder / "inputs.npz", folder / "int8.onnx")
    return folder / "int8.onnx"


def _first(arrays: Path, folder: Path) -> Path:
    """A file with the first of the samples that ``arrays`` stacks; ``arrays`` itself where it holds one."""
    if "mlperf_tiny" not in arrays.parts:
        return arrays
    with np.load(arrays) as file:
        np.savez(folder / arrays.name, **{name: array[0] for name, array in file.items()})
    return folder / arrays.name


def text_bytes(program: Path) -> int:
    """Bytes of instructions of a program, its start-up and runtime included."""
    done = subprocess.run(["riscv64-unknown-elf-size", "-A", program], capture_output=True, text=True, check=True)
    return sum(int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith(".text"))
