"""MLPerf Tiny's int8 networks on a Cortex-M4 by several tools (docs/compared.md): instructions under QEMU, RAM, flash, and equality.

    make bench NAME='compared [NETWORK ...] [--onnx2c PROGRAM] [--tflite-micro FOLDER --tflite FOLDER] [--write]'

All run the same program on the same emulated board, compiled by the same gcc at -O3: instructions are those of one inference, RAM is
variables, arena and the deepest stack, flash is code and constants. Inputs and outputs of the caller are not counted. emx-onnx-cgen comes
from its package (extra ``fallback``). ``--onnx2c`` names its program. ``--tflite-micro`` names its sources with the library that its
own Makefile built for ``cortex_m_generic`` with CMSIS-NN, ``--tflite`` the folder with MLPerf Tiny's reference models, whose inputs and
outputs are integers. What is not named keeps its row of the last ``--write``.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

import deeploy
from benchmarks.cmsis_nn import variables
from benchmarks.common import ROOT, read_table, replace_table, table
from benchmarks.microcontrollers import NETWORKS, TINY, counted, model_of
from deeploy.backend.project import read_manifest
from deeploy.execution.runners.runner import write_samples
from deeploy.frontend.arrays import Expected, load_arrays

PAGE = ROOT / "docs" / "compared.md"
TARGET = "cortex_m4"
RAM_BYTES = 4 << 20  # of the emulated board: what others need more than the chip has is measured, not refused
SAMPLES = 4
ARENA_BYTES = 256 << 10  # that TensorFlow Lite Micro may use; what it uses is counted
REFERENCES = {"ic": "pretrainedResnet_quant", "kws": "kws_ref_model", "vww": "vww_96_int8", "ad": "ad01_int8"}
HEADS = ("network", "tool", "instructions", "RAM", "flash", "outputs equal to onnxruntime's")


@dataclass(frozen=True)
class Row:
    """What one tool takes for a network; bytes, and the share of output elements that are the same floats."""

    network: str
    tool: str
    instructions: float
    ram: int
    flash: int
    equal: float | None

    @property
    def cells(self) -> tuple[str, ...]:
        sizes = (f"{size:,}".replace(",", " ") for size in (self.ram, self.flash))
        return (self.network, self.tool, f"{self.instructions / 1e6:.2f} M", *sizes, "-" if self.equal is None else f"{self.equal:.0%}")


@dataclass(frozen=True)
class Bench:
    """A network with what every tool is given: the quantised model, samples, and a project whose runtime and board programs use."""

    network: str
    model: Path
    inputs: np.ndarray
    expected: np.ndarray
    project: Path
    plugin: Path
    scratch: Path

    def run_peer(self, tool: str, objects: Callable[[Path, list[str]], list[str]], entry: str | None, inputs: np.ndarray) -> Row:
        """Instructions, RAM and flash of a program with what ``objects`` compiles into a folder, and the outputs of all samples.

        RAM and flash are those of the program less those of the same program without a network.
        """
        found, runtime = variables(self.project), self.project / "runtime" / "qemu"
        folder = self.scratch / f"{self.network}_{tool}"
        folder.mkdir()
        compiler = shlex.split(found["QEMU_CC"])
        top = {"RAM_BYTES": f"{RAM_BYTES}", "STACK_TOP": f"{0x20000000 + RAM_BYTES:#x}", "FLASH_BYTES": f"{4 << 20}"}
        layout = [
            re.sub(r"^-D(RAM_BYTES|STACK_TOP|FLASH_BYTES)=.*", lambda m: f"-D{m[1]}={top[m[1]]}", w)
            for w in shlex.split(found["QEMU_LAYOUT"])
        ]
        subprocess.run([*compiler, "-E", "-P", "-x", "c", *layout, runtime / "link.ld", "-o", "link.ld"], cwd=folder, check=True)
        includes = [f"-I{path}" for path in (runtime, self.project / "runtime", self.project / "include")]
        sizes = [f"-DINPUT_BYTES={inputs[0].nbytes}", f"-DOUTPUT_BYTES={self.expected[0].nbytes}"]
        harness = [str(Path(__file__).parent / "qemu" / "peer.c"), str(runtime / "semihost.c"), str(runtime / "start.c")]
        flags = ["-O3", "-ffunction-sections", "-fdata-sections", *includes, *sizes]
        link = ["--specs=nosys.specs", "-nostartfiles", "-Wl,--gc-sections", "-Wl,--no-warn-rwx-segments", "-Tlink.ld", "-lm"]
        subprocess.run([*compiler, *flags, "-DEMPTY", *harness, *link, "-o", "empty.elf"], cwd=folder, check=True)
        named = [] if entry is None else [f"-DENTRY={entry}"]
        subprocess.run(
            [*compiler, *flags, *named, *harness, *objects(folder, compiler), *link, "-o", "application.elf"], cwd=folder, check=True
        )
        (folder / "inputs.bin").write_bytes(inputs.tobytes())
        quiet = ["-display", "none", "-monitor", "none", "-serial", "none", "-semihosting-config", "enable=on,target=native"]
        count = ["-plugin", f"{self.plugin},from=network_run,to=main", "-d", "plugin", "-D", "counts"]
        subprocess.run([*shlex.split(found["QEMU_RUN"]), *quiet, "-kernel", "application.elf", *count], cwd=folder, check=True)
        instructions = sum(int(line.split()[0]) for line in (folder / "counts").read_text().splitlines()) / len(inputs)
        own, stack = np.fromfile(folder / "figures.bin", np.uint32).tolist()
        with_network, without = (self._sizes(compiler, folder / name) for name in ("application.elf", "empty.elf"))
        flash, static = (a - b for a, b in zip(with_network, without, strict=True))
        outputs = np.fromfile(folder / "outputs.bin", self.expected.dtype).reshape(self.expected.shape) if entry else None
        equal = None if outputs is None else float(np.mean(np.isclose(outputs, self.expected, rtol=0, atol=1e-6)))
        return Row(self.network, tool, instructions, (own + static - ARENA_BYTES if own else static) + stack, flash, equal)

    @staticmethod
    def _sizes(compiler: list[str], program: Path) -> tuple[int, int]:
        """Bytes in flash and of variables, as binutils' ``size`` counts them."""
        tool = compiler[0].replace("gcc", "size")
        text, data, bss = subprocess.run([tool, program], capture_output=True, text=True, check=True).stdout.splitlines()[1].split()[:3]
        return int(text) + int(data), int(data) + int(bss)


def prepare(network: str, scratch: Path, plugin: Path) -> Bench:
    """The quantised model of a network, samples, what onnxruntime computes of them, and a project for the target."""
    model = model_of(network, scratch)
    project = scratch / network
    deeploy.compile(model, TARGET).write(project)
    with np.load(TINY / NETWORKS[network] / "inputs.npz") as arrays:
        inputs = np.ascontiguousarray(arrays[arrays.files[0]][:SAMPLES])
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    expected = np.stack([session.run(None, {name: sample})[0] for sample in inputs])
    return Bench(network, model, inputs, expected, project, plugin, scratch)


def measure_deeploy(bench: Bench, objective: str, tool: str) -> Row:
    """Ours, by the program of the project; RAM is the planner's arena, variables, and the bound of the stack."""
    folder = bench.scratch / f"{bench.network}_{objective}"
    compiled = deeploy.compile(bench.model, TARGET, objective=objective)
    compiled.write(folder)
    manifest = read_manifest(folder)
    samples = load_arrays(
        TINY / NETWORKS[bench.network] / "inputs.npz", [Expected.of(port) for port in manifest["inputs"]], "input"
    ).samples
    equal = []
    for sample, expected in zip(samples[:SAMPLES], bench.expected, strict=True):
        (folder / "build" / "count").mkdir(parents=True, exist_ok=True)
        write_samples(folder / "build" / "count" / "inputs.bin", manifest, [sample])
        functions = counted(folder, bench.plugin)
        outputs = np.fromfile(folder / "build" / "count" / "outputs.bin", expected.dtype).reshape(expected.shape)
        equal.append(np.mean(np.isclose(outputs, expected, rtol=0, atol=1e-6)))
    sizes = manifest["sizes"]
    ram = sizes["arena"] + sizes["static"] + sizes["stack"]
    return Row(bench.network, tool, sum(n for n, _ in functions), ram, sizes["code"] + sizes["constants"], float(np.mean(equal)))


def compile_with(compiler: list[str], folder: Path) -> list[str]:
    """``peer.c`` of generated C as an object."""
    command = [*compiler, "-O3", "-w", "-std=gnu11", "-ffunction-sections", "-fdata-sections", "-c", "peer.c", "-o", "peer.o"]
    subprocess.run(command, cwd=folder, check=True)
    return ["peer.o"]


def measure_emx(bench: Bench) -> Row:
    def objects(folder: Path, compiler: list[str]) -> list[str]:
        program = Path(sys.executable).with_name("emx-onnx-cgen")
        limits = ["--large-temp-threshold", "0", "--large-weight-threshold", str(1 << 30)]  # no heap, and all weights in the C
        command = [str(program), "compile", str(bench.model), "peer.c", "--model-name", "peer", *limits]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return compile_with(compiler, folder)

    return bench.run_peer("emx-onnx-cgen", objects, "peer", bench.inputs)


def measure_onnx2c(bench: Bench, program: Path) -> Row:
    def objects(folder: Path, compiler: list[str]) -> list[str]:
        with (folder / "peer.c").open("w") as file:
            subprocess.run([str(program.resolve()), str(bench.model)], stdout=file, stderr=subprocess.DEVNULL, check=True)
        return compile_with(compiler, folder)

    return bench.run_peer("onnx2c", objects, "entry", bench.inputs)


def measure_tflite_micro(bench: Bench, sources: Path, models: Path) -> Row:
    (library,) = sources.glob("gen/cortex_m_generic_*cmsis_nn*/lib/libtensorflow-microlite.a")
    (model,) = models.rglob(f"{REFERENCES[bench.network]}.tflite")
    downloads = sources / "tensorflow" / "lite" / "micro" / "tools" / "make" / "downloads"

    def objects(folder: Path, compiler: list[str]) -> list[str]:
        shutil.copy(model, folder / "model.tflite")
        runtime = bench.project / "runtime" / "qemu"
        paths = (sources, downloads / "flatbuffers" / "include", downloads / "gemmlowp", downloads / "ruy", runtime)
        includes = [f"-I{path}" for path in (*paths, bench.project / "runtime", bench.project / "include")]
        flags = [
            "-std=c++17",
            "-fno-exceptions",
            "-fno-rtti",
            "-fno-threadsafe-statics",
            "-DTF_LITE_STATIC_MEMORY",
            "-DTF_LITE_STRIP_ERROR_STRINGS",
        ]
        source = Path(__file__).parent / "qemu" / "tflite_micro.cc"
        cxx = [compiler[0].replace("gcc", "g++"), *compiler[1:], "-O3", *flags, *includes, f"-DARENA_BYTES={ARENA_BYTES}"]
        subprocess.run([*cxx, "-c", str(source), "-o", "peer.o"], cwd=folder, check=True)
        return ["peer.o", str(library), "-lstdc++", "-Wl,--defsym=end=__heap_start"]

    elements = bench.inputs[:1].size
    integers = np.random.default_rng(0).integers(-128, 128, (1, elements), np.int8)
    return bench.run_peer("TensorFlow Lite Micro with CMSIS-NN", objects, None, integers)


def read_rows() -> dict[tuple[str, str], tuple[str, ...]]:
    """The cells of the page's table, by network and tool."""
    return {(row[0], row[1]): row for row in read_table(PAGE, "compared")}


def write_rows(rows: dict[tuple[str, str], tuple[str, ...]]) -> None:
    tools = {"deeploy": 0, "deeploy, least RAM": 1}
    ordered = sorted(rows.values(), key=lambda row: (list(NETWORKS).index(row[0]), tools.get(row[1], 2), row[1]))
    replace_table(PAGE, "compared", table(HEADS, ordered))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--onnx2c", type=Path, metavar="PROGRAM")
    parser.add_argument("--tflite-micro", type=Path, metavar="FOLDER", help="its sources, with the library that they were built to")
    parser.add_argument("--tflite", type=Path, metavar="FOLDER", help="with MLPerf Tiny's reference models")
    parser.add_argument("--write", action="store_true", help="put the table into docs/compared.md")
    arguments = parser.parse_args(arguments)
    if shutil.which("qemu-system-arm") is None:
        sys.exit("qemu-system-arm is not installed")
    layout = "{:<9}{:<38}{:>13}{:>11}{:>11}{:>34}"
    print(layout.format(*HEADS))
    rows = read_rows() if arguments.write else {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        plugin = scratch / "count.so"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", str(Path(__file__).parent / "qemu" / "count.c"), "-o", str(plugin)], check=True)
        for network in arguments.networks or NETWORKS:
            bench = prepare(network, scratch, plugin)
            found = [measure_deeploy(bench, "cycles", "deeploy"), measure_deeploy(bench, "ram", "deeploy, least RAM")]
            if Path(sys.executable).with_name("emx-onnx-cgen").exists():
                found.append(measure_emx(bench))
            if arguments.onnx2c:
                found.append(measure_onnx2c(bench, arguments.onnx2c))
            if arguments.tflite_micro and arguments.tflite:
                found.append(measure_tflite_micro(bench, arguments.tflite_micro.resolve(), arguments.tflite))
            for row in found:
                rows[row.network, row.tool] = row.cells
                print(layout.format(*row.cells), flush=True)
    if arguments.write:
        write_rows(rows)
