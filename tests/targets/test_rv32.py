"""The generic target's C on a 32-bit RISC-V: built by a stock gcc with the project's own Makefile, run under QEMU."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.backend.project import read_manifest
from deeploy.execution.runners.runner import split_outputs, write_samples
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.ir.types import DType
from deeploy.quantization.static import quantize_model

ROOT = Path(__file__).resolve().parents[2]
APPLICATION = Path(__file__).parent / "rv32" / "application.c"
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
GCC = "riscv64-unknown-elf-gcc"
QEMU = "qemu-riscv32"
PICOLIBC = Path("/usr/lib/picolibc/riscv64-unknown-elf")
TOOLS = {GCC: "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf", QEMU: "qemu-user"}
SECONDS = 300

DIALECT = ["CNN_Linear2", "miniMobileNet", "MLPerf/ImageClassification", "MLPerf/KeywordSpotting", "CCT/Int/ICCT"]
QUANTISED = ["ad_int8_qdq_pc", "ic_int8_qdq_pc", "ic_int8_qop_pc", "kws_int8_qdq_pt", "kws_int8_qop_pt", "kws_int8_ref"]


@dataclass(frozen=True)
class Machine:
    """How code is compiled and linked, and the processor that runs it, which traps what it lacks.

    gcc has a library for few sets of extensions; the one that is linked holds no instruction that the processor lacks.
    """

    compile: str
    link: str
    abi: str
    cpu: str


INTEGER = Machine("rv32imc", "rv32im", "ilp32", "rv32,f=false,d=false,a=false")
FLOAT = Machine("rv32imfc", "rv32imf", "ilp32f", "rv32,d=false,a=false")


@pytest.fixture(scope="session", autouse=True)
def tools() -> None:
    for tool, packages in TOOLS.items():
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}: install Debian's {packages}")
    if not PICOLIBC.is_dir():
        pytest.skip("no picolibc: install Debian's picolibc-riscv64-unknown-elf")


def build(project: Path, machine: Machine) -> Path:
    """The program: the library that the project's Makefile makes, warnings being errors, and the application around it."""
    flags = f"-march={machine.compile} -mabi={machine.abi} -isystem {PICOLIBC / 'include'}"
    command = ["make", "-s", "-C", str(project), "lib", f"CC={GCC} {flags}", "AR=riscv64-unknown-elf-ar", "CFLAGS=-O2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    program = project / "build" / "program"
    library = PICOLIBC / "lib" / machine.link / machine.abi
    command = [GCC, *flags.split(), "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{project / 'include'}", "-c", str(APPLICATION)]
    subprocess.run([*command, "-o", f"{program}.o"], check=True)
    command = [GCC, f"-march={machine.link}", f"-mabi={machine.abi}", "-nostdlib", "-Wl,--no-warn-rwx-segments", f"{program}.o"]
    libraries = [str(project / "build" / "libnetwork.a"), f"-L{library}", "-lm", "-lc", "-lgcc"]
    subprocess.run([*command, *libraries, "-o", str(program)], check=True)
    return program


def run(program: Path, machine: Machine, given: Path) -> bytes:
    with given.open("rb") as file:
        done = subprocess.run([QEMU, "-cpu", machine.cpu, str(program)], stdin=file, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check(compiled: deeploy.Compiled, folder: Path, samples: list[list[np.ndarray]], machine: Machine) -> list[np.ndarray]:
    """Compare the outputs with the interpreter's: every bit of integers, and of floats where no float arithmetic is before them."""
    compiled.write(folder)
    manifest = read_manifest(folder)
    write_samples(folder / "inputs.bin", manifest, samples)
    data = run(build(folder, machine), machine, folder / "inputs.bin")
    got = split_outputs(data, manifest["outputs"], len(samples))
    assert len(data) == sum(array.nbytes for array in got)
    for index, port in enumerate(manifest["outputs"]):
        want = np.stack([compiled.interpret(sample)[index] for sample in samples])
        if port["equality"] in ("float", "softmax") and DType(port["type"]).is_float:
            np.testing.assert_allclose(got[index], want, rtol=1e-5, atol=1e-5)
        else:
            assert got[index].tobytes() == want.astype(DType(port["type"]).numpy).tobytes(), port["name"]
    return got


def samples_of(compiled: deeploy.Compiled, path: Path, folder: Path) -> list[list[np.ndarray]]:
    """Two samples of the file at most."""
    compiled.write(folder)
    return load_arrays(path, [Expected.of(port) for port in read_manifest(folder)["inputs"]], "input").samples[:2]


@pytest.mark.parametrize("name", DIALECT)
def test_dialect_networks(name: str, shared_models: Path, tmp_path: Path) -> None:
    model = shared_models / "dialect" / "Models" / name
    compiled = deeploy.compile(model / "network.onnx", inputs=model / "inputs.npz", dialect="integer")
    samples = samples_of(compiled, model / "inputs.npz", tmp_path / "out")
    got = check(compiled, tmp_path / "out", samples, INTEGER)
    with np.load(model / "outputs.npz") as golden:
        for array, want in zip(got, golden.values(), strict=True):
            np.testing.assert_array_equal(array[0].astype(np.int64), want.astype(np.int64))


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_networks(name: str, shared_models: Path, tmp_path: Path) -> None:
    model = shared_models / "mlperf_tiny" / name
    compiled = deeploy.compile(model / "network.onnx")
    check(compiled, tmp_path / "out", samples_of(compiled, model / "inputs.npz", tmp_path / "out"), INTEGER)


def test_a_float_network(shared_models: Path, tmp_path: Path) -> None:
    model = shared_models / "mlperf_tiny" / "ad_fp32"
    compiled = deeploy.compile(model / "network.onnx")
    check(compiled, tmp_path / "out", samples_of(compiled, model / "inputs.npz", tmp_path / "out"), FLOAT)


@pytest.mark.parametrize("machine", [INTEGER, FLOAT], ids=["rv32imc", "rv32imfc"])
def test_digits(machine: Machine, tmp_path: Path) -> None:
    """The network of the example, quantised with images of noise, on such images."""
    images = np.random.default_rng(0).uniform(0, 1, (20, 1, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "images.npz", image=images)
    quantize_model(DIGITS, tmp_path / "images.npz", tmp_path / "int8.onnx")
    compiled = deeploy.compile(tmp_path / "int8.onnx")
    got = check(compiled, tmp_path / "out", [[image[None]] for image in images], machine)
    assert len(np.unique(got[0])) > 30
