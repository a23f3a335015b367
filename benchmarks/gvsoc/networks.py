"""Whole networks on GVSoC: compiled, built with the project's own Makefile, simulated, compared with golden outputs, and measured."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.common import MODELS
from benchmarks.gvsoc import dialect, exports
from deeploy import api
from deeploy.backend.project import read_manifest, select_network
from deeploy.driver import verify
from deeploy.errors import DeeployError
from deeploy.execution.runners import gvsoc
from deeploy.options import Options
from deeploy.planning.program import Call
from deeploy.quantization.static import quantize_model

DIALECT, TINY, EXPORTS = MODELS / "dialect" / "Models", MODELS / "mlperf_tiny", MODELS / "hf"
SHAPES, REAL = MODELS / "shapes", MODELS / "real"
STACKED = (TINY, EXPORTS, SHAPES, REAL)  # whose inputs and outputs are several samples


@dataclass(frozen=True)
class Network:
    """A model with its inputs and golden outputs.

    Where there are none, outputs are compared with the interpreter's: of float models, which are quantised first (``is_float``), and
    of those that dialect.py and exports.py make (``folder`` is None).
    """

    name: str
    folder: Path | None = None
    is_float: bool = False


NETWORKS = (
    Network("KeywordSpotting", DIALECT / "MLPerf" / "KeywordSpotting"),
    Network("ImageClassification", DIALECT / "MLPerf" / "ImageClassification"),
    Network("VisualWakeWords"),
    Network("AnomalyDetection"),
    Network("CNN_Linear2", DIALECT / "CNN_Linear2"),
    Network("EEGFormer"),
    Network("miniMobileNet", DIALECT / "miniMobileNet"),
    Network("microLlama1", DIALECT / "microLlama" / "INT8" / "microLlama1"),
    Network("microLlama64", DIALECT / "microLlama" / "INT8" / "microLlama64"),
    Network("ic_int8_qdq_pc", TINY / "ic_int8_qdq_pc"),
    Network("ic_int8_qdq_pt", TINY / "ic_int8_qdq_pt"),
    Network("kws_int8_qdq_pc", TINY / "kws_int8_qdq_pc"),
    Network("kws_int8_qdq_pt", TINY / "kws_int8_qdq_pt"),
    Network("ad_int8_qdq_pc", TINY / "ad_int8_qdq_pc"),
    Network("vww_int8_qdq", TINY / "vww_fp32", is_float=True),
    Network("ad_fp32", TINY / "ad_fp32"),
    Network("kws_fp32", TINY / "kws_fp32"),
    Network("ic_fp32", TINY / "ic_fp32"),
    Network("bert_int8", EXPORTS / "bert_tiny_int8"),
    Network("bert_qdq", EXPORTS / "bert_tiny_fp32", is_float=True),
    Network("llama_int8", EXPORTS / "llama_tiny_int8"),
    Network("vit_int8"),
    Network("mobilevit_int8"),
    Network("matchbox", SHAPES / "matchbox"),
    Network("mbv3", SHAPES / "mbv3"),
    Network("zoo", SHAPES / "zoo"),
    Network("conformer", REAL / "q_conformer_qdq_u8"),
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
    """What was found for a network: cycles of one inference, its layers, whether all outputs are right, bytes of code.

    Layers are measured in an inference of their own, which takes longer by what that costs.
    """

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


def results(words: list[str], options: Options | None = None, target: str = "siracusa") -> Iterator[Result | tuple[str, DeeployError]]:
    """Every network that has one of ``words`` in its name (none: all), in order; a failure with the network's name."""
    for network in NETWORKS:
        if words and not any(word.lower() in network.name.lower() for word in words):
            continue
        try:
            yield result(network, options or Options(), target)
        except DeeployError as error:
            yield network.name, error


def result(network: Network, options: Options, target: str = "siracusa") -> Result:
    """What ``measure`` finds of a network.

    Raises:
        DeeployError: anything fails.
    """
    with tempfile.TemporaryDirectory(prefix="deeploy-gvsoc-") as scratch:
        return measure(network.name, *files(network, Path(scratch)), options, target)[0]


def measure(
    name: str,
    model: Path,
    inputs: Path,
    golden: Path | None,
    options: Options,
    target: str = "siracusa",
    requantise: Literal["exact", "engine"] = "exact",
) -> tuple[Result, Sequence[Call]]:
    """Compile, build, simulate and compare one inference: the first after the start, with cold instruction caches; with the plan's calls.

    Raises:
        DeeployError: any of it fails.
    """
    with tempfile.TemporaryDirectory(prefix="deeploy-gvsoc-") as scratch:
        folder = Path(scratch)
        compiled = api.compile(model, target, inputs=inputs, **options.given(), requantise=requantise)
        compiled.write(folder / "project")
        verdict = verify.run_project(folder / "project", inputs, golden, on="gvsoc")
        is_right = all(comparison.passed for _, comparison in verdict.comparisons)
        entry = select_network(read_manifest(folder / "project"))
        with np.load(inputs) as arrays:
            sample = list(arrays.values())
        if golden is None:
            is_right = all(np.array_equal(got[0], want) for got, want in zip(verdict.outputs, compiled.interpret(sample), strict=True))
        whole = gvsoc.Gvsoc(has_layers=False).run(folder / "project", entry, [sample])
        is_same = all(np.array_equal(a, b) for a, b in zip(whole.outputs, verdict.outputs, strict=True))
        text = text_bytes(folder / "project" / "build" / "whole" / "application.elf")
    run, measured = compiled.network.predicted, dict(verdict.layers)
    assert run is not None, "targets for GVSoC have timings"
    calls = compiled.plan.program.calls
    layers = tuple(
        Layer(c.name, call.kernel.name, call.geometry.macs(), c.cycles, measured.get(c.name, 0))
        for c, call in zip(run.calls, calls, strict=True)
    )
    return Result(name, run.cycles, whole.cycles[0], layers, is_right and is_same, text), calls


def build(network: Network, folder: Path) -> int:
    """Compile and build only; returns the bytes of instructions.

    Raises:
        DeeployError: either fails.
    """
    model, inputs, _ = files(network, folder)
    api.compile(model, "siracusa", inputs=inputs).write(folder / "project")
    return text_bytes(gvsoc.build_network(folder / "project", "network", gvsoc.WHOLE) / "application.elf")


def files(network: Network, folder: Path) -> tuple[Path, Path, Path | None]:
    """The model, one sample of inputs, and the golden outputs if there are any; what has to be made is written into ``folder``."""
    if network.folder is None:
        (dialect.NETWORKS | exports.NETWORKS)[network.name](folder)
        return folder / "network.onnx", folder / "inputs.npz", None
    if network.is_float:
        quantize_model(network.folder / "network.onnx", network.folder / "inputs.npz", folder / "int8.onnx")
        return folder / "int8.onnx", _first(network.folder / "inputs.npz", folder), None
    inputs = _first(network.folder / "inputs.npz", folder)
    if network.folder.parent in (SHAPES, REAL):  # outputs, where there are some, are those of onnxruntime's own order of operations
        return network.folder / "network.onnx", inputs, None
    return network.folder / "network.onnx", inputs, _first(network.folder / "outputs.npz", folder)


def _first(arrays: Path, folder: Path) -> Path:
    """A file with the first of the samples that ``arrays`` stacks; ``arrays`` itself where it holds one."""
    if arrays.parents[1] not in STACKED:
        return arrays
    with np.load(arrays) as file:
        np.savez(folder / arrays.name, **{name: array[0] for name, array in file.items()})
    return folder / arrays.name


def text_bytes(program: Path) -> int:
    """Bytes of instructions of a program, its start-up and runtime included."""
    done = subprocess.run(["riscv64-unknown-elf-size", "-A", program], capture_output=True, text=True, check=True)
    return sum(int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith(".text"))
