"""MLPerf Tiny's networks on microcontrollers (docs/microcontrollers.md): instructions under QEMU, flash, RAM, by target.

    make bench NAME='microcontrollers [TARGET ...] [--cmsis-nn DIR] [--kernels] [--write]'

Instructions are those of one inference at -O3, conversions from and to floats included, counted by the plugin in ``benchmarks/qemu``.
Outputs have to equal the interpreter's. ``--cmsis-nn`` builds CMSIS-NN's sources in that folder for the Cortex-M targets, and counts
what its functions take of the same layers, called by hand (``cmsis_nn.py``); without it, figures of an earlier run stand beside ours.
``--kernels`` lists the functions that take most; ``--write`` puts the tables into the page.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import deeploy
from benchmarks import cmsis_nn
from benchmarks.common import MODELS, ROOT, replace_table, table
from deeploy.backend.project import read_manifest
from deeploy.execution.runners.runner import write_samples
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.ir.types import DType
from deeploy.quantization.static import quantize_model

PAGE = ROOT / "docs" / "microcontrollers.md"
TINY = MODELS / "mlperf_tiny"
NETWORKS = {"ic": "ic_int8_qdq_pc", "kws": "kws_int8_qdq_pc", "vww": "vww_fp32", "ad": "ad_int8_qdq_pc"}
TARGETS = ("cortex_m4", "cortex_m55", "rv32imc", "rv32gcv")
# What --cmsis-nn counted with CMSIS-NN 99f736a6.
CMSIS_NN = {
    "cortex_m4": {"ic": 29_858_448, "kws": 7_842_863, "vww": 24_711_579, "ad": 579_277},
    "cortex_m55": {"ic": 4_805_693, "kws": 1.78e6, "vww": 6.42e6, "ad": 147_094},
}
MOST_CODE = 40_000  # bytes of flash that were to be enough beside the weights
MOST_SHOWN = 12  # functions of a network


@dataclass(frozen=True)
class Row:
    """What a network takes on a target; ``fused_groups`` is the arena with the least memory, functions are the costliest ones."""

    network: str
    target: str
    instructions: int
    code: int
    constants: int
    arena: int
    fused_groups: int
    stack: int
    weights: int  # of the ONNX file: what is dequantised there, weights and biases
    reference: float | None  # CMSIS-NN's instructions
    functions: tuple[tuple[int, str], ...]

    @property
    def cells(self) -> tuple[str, ...]:
        others = f"{self.reference / 1e6:.2f} M" if self.reference else "-"
        share = f"{self.instructions / self.reference:.2f}" if self.reference else "-"
        sizes = (self.code, self.constants, self.arena, self.fused_groups, self.stack)
        return (
            self.target,
            self.network,
            f"{self.instructions / 1e6:.2f} M",
            others,
            share,
            *(f"{size:,}".replace(",", " ") for size in sizes),
            f"{(self.code + self.constants) / (self.weights + MOST_CODE):.2f}",
        )


LAST = "flash of weights + 40 KB"
HEADS = ("target", "network", "instructions", "CMSIS-NN", "of it", "code", "constants", "arena", "fused", "stack", LAST)


def model_of(network: str, folder: Path) -> Path:
    """The int8 network: MLPerf Tiny's, or the float one quantised with its samples."""
    source = TINY / NETWORKS[network]
    if not NETWORKS[network].endswith("fp32"):
        return source / "network.onnx"
    quantize_model(source / "network.onnx", source / "inputs.npz", folder / f"{network}.onnx")
    return folder / f"{network}.onnx"


def weights_of(model: Path) -> int:
    """Bytes of the weights and biases of a quantised model, as its file has them."""
    graph = onnx.load(model).graph
    read = {node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    return sum(numpy_helper.to_array(tensor).nbytes for tensor in graph.initializer if tensor.name in read)


def counted(project: Path, plugin: Path, flags: str = "") -> list[tuple[int, str]]:
    """Instructions of the inferences in ``build/count``, by function, the most first."""
    options = ["QEMU_BUILD=build/count", f"QEMU_CFLAGS=-O3 {flags}".rstrip()]
    subprocess.run(["make", "-s", "-C", str(project), *options, "qemu"], check=True)
    (board,) = re.findall(r"^QEMU_RUN := (.*)$", (project / "Makefile").read_text(), re.MULTILINE)
    quiet = ["-display", "none", "-monitor", "none", "-serial", "none", "-semihosting-config", "enable=on,target=native"]
    count = ["-plugin", f"{plugin},from=network_run,to=main", "-d", "plugin", "-D", "counts"]
    command = [*shlex.split(board), *quiet, "-kernel", "application.elf", *count]
    subprocess.run(command, cwd=project / "build" / "count", check=True)
    lines = (project / "build" / "count" / "counts").read_text().splitlines()
    return sorted(((int(line.split()[0]), line.split()[1]) for line in lines), reverse=True)


def measured(network: str, model: Path, target: str, folder: Path, plugin: Path, cmsis: Path | None) -> Row:
    """One sample on a target, and what CMSIS-NN in the folder ``cmsis`` takes of the same layers.

    Raises:
        AssertionError: its outputs differ from the interpreter's.
    """
    compiled = deeploy.compile(model, target)
    compiled.write(folder)
    manifest = read_manifest(folder)
    wanted = [Expected.of(port) for port in manifest["inputs"]]
    samples = load_arrays(TINY / NETWORKS[network] / "inputs.npz", wanted, "input").samples[:1]
    (folder / "build" / "count").mkdir(parents=True)
    write_samples(folder / "build" / "count" / "inputs.bin", manifest, samples)
    functions = counted(folder, plugin)
    results = zip(compiled.interpret(samples[0]), manifest["outputs"], strict=True)
    expected = b"".join(np.asarray(y, DType(port["type"]).numpy).tobytes() for y, port in results)
    assert (folder / "build" / "count" / "outputs.bin").read_bytes() == expected, f"{network} on {target}"
    fused = deeploy.compile(model, target, objective="ram")
    sizes = manifest["sizes"]
    instructions, fused_groups = sum(count for count, _ in functions), fused.plan.memory["RAM"].peak
    figures = sizes["code"], sizes["constants"], sizes["arena"], fused_groups, sizes["stack"], weights_of(model)
    reference = CMSIS_NN.get(target, {}).get(network)
    if cmsis is not None and reference is not None:
        objects = folder.parent / f"cmsis_nn_{target}"
        library = objects / "libcmsis_nn.a" if objects.is_dir() else cmsis_nn.build(cmsis, folder, objects)
        reference = cmsis_nn.count(cmsis, library, compiled.plan, folder, plugin)
    return Row(network, target, instructions, *figures, reference, tuple(functions[:MOST_SHOWN]))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--cmsis-nn", type=Path, metavar="DIR", help="sources of CMSIS-NN, which is built and counted beside")
    parser.add_argument("--kernels", action="store_true", help="the functions that take most")
    parser.add_argument("--write", action="store_true", help="put the table into docs/microcontrollers.md")
    arguments = parser.parse_args(arguments)
    if shutil.which("qemu-system-arm") is None:
        sys.exit("qemu-system-arm is not installed")
    layout = "{:<12}{:<9}{:>13}{:>10}{:>7}{:>9}{:>11}{:>9}{:>13}{:>7}{:>26}"
    print(layout.format(*HEADS))
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        plugin = Path(scratch) / "count.so"
        source = Path(__file__).parent / "qemu" / "count.c"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", str(source), "-o", str(plugin)], check=True)
        models = {network: model_of(network, Path(scratch)) for network in NETWORKS}
        for target in arguments.targets or TARGETS:
            for network, model in models.items():
                rows.append(measured(network, model, target, Path(scratch) / f"{target}_{network}", plugin, arguments.cmsis_nn))
                print(layout.format(*rows[-1].cells), flush=True)
                for count, name in rows[-1].functions if arguments.kernels else ():
                    print(f"    {count:>12,} {name}")
    if arguments.write:
        replace_table(PAGE, "microcontrollers", table(HEADS, [row.cells for row in rows]))
