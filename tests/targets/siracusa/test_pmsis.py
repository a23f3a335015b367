"""Siracusa with the PULP SDK: what a project brings for it, what it says when the environment is incomplete, and that it is right."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from deeploy import api
from deeploy.execution.runners.runner import sample_bytes
from deeploy.options import Options
from deeploy.quantization.static import quantize_model

from .conftest import ROOT, SECONDS, absent

PMSIS = ROOT / "targets" / "siracusa" / "runtime" / "pmsis"
HAL = Path(__file__).parent / "hal"
STOCK, SDK = (Path(__file__).parent / name for name in ("stock", "sdk"))
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
SAMPLES = 2
ENVIRONMENT = ("PULP_SDK_HOME", "RULES_DIR", "PULPOS_TARGET", "PULP_RISCV_GCC_TOOLCHAIN")
OTHERS = ("PULP_RISCV_GCC_TOOLCHAIN_CI", "PULP_RUNTIME_GCC_TOOLCHAIN")

# What the application of the interface's test expects of a runtime, on the SDK.
SHIM_H = """#include <stdint.h>
#define bare_set_up sdk_set_up
void sdk_set_up(void);
int controller_main(void);
void print_text(const char *text);
void print_number(int32_t number);
"""
SHIM_C = """#include "pmsis.h"
#include "bare.h"
void print_text(const char *text) { printf("%s", text); }
void print_number(int32_t number) { printf("%d", (int)number); }
static void run_all(void) { pmsis_exit(controller_main()); }
int main(void) { return pmsis_kickoff((void *)run_all); }
"""

# Rules that show what they were given, as far as the SDK's documentation names it.
RULES = """
BUILDDIR = $(CURDIR)/BUILD
TARGET_BUILD_DIR = $(BUILDDIR)
GAPY_CMD = gvsoc --target=siracusa --work-dir=$(TARGET_BUILD_DIR)
all:: ; @printf '%s\\n' 'APP=$(APP)' 'APP_SRCS=$(APP_SRCS)' 'APP_CFLAGS=$(APP_CFLAGS)' 'HYPERRAM=$(CONFIG_HYPERRAM)' 'GAPY_CMD=$(GAPY_CMD)'
build: ; @echo built
"""


def make(folder: Path, environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Make the project in ``folder`` with nothing of the SDK in the environment but what is given."""
    rest = {name: value for name, value in os.environ.items() if name not in (*ENVIRONMENT, *OTHERS, "GVSOC", "MAKEFLAGS")}
    command = ["make", "-s", "-C", str(folder), "PLATFORM=pulp-sdk", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**rest, **environment}, timeout=2 * SECONDS)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the quantised digits network and images for it."""
    folder = tmp_path_factory.mktemp("images")
    np.savez(folder / "images.npz", image=np.random.default_rng(3).random((16, 1, 8, 8), dtype=np.float32))
    quantize_model(DIGITS, folder / "images.npz", folder / "int8.onnx")
    return folder


@pytest.fixture(scope="module")
def project(images: Path) -> Path:
    api.compile(images / "int8.onnx", "siracusa").write(images / "project")
    return images / "project"


@pytest.fixture
def complete(tmp_path: Path) -> dict[str, str]:
    """An environment that lacks nothing, with an SDK that only shows what it is given."""
    compiler, launcher = tmp_path / "gcc" / "bin" / "riscv32-unknown-elf-gcc", tmp_path / "launcher"
    for file in (tmp_path / "rules" / "pmsis_rules.mk", compiler, launcher):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(RULES if file.suffix else "#!/bin/sh\n")
        file.chmod(0o755)
    values = (str(tmp_path), str(tmp_path / "rules"), "siracusa", str(tmp_path / "gcc"))
    return {**dict(zip(ENVIRONMENT, values, strict=True)), "GVSOC": str(launcher)}


def test_a_project_brings_what_the_sdk_builds(project: Path, complete: dict[str, str]) -> None:
    for file in PMSIS.iterdir():
        assert (project / "runtime" / "pmsis" / file.name).read_bytes() == file.read_bytes()
    done = make(project, complete)
    assert done.returncode == 0, done.stderr
    shown = dict(line.split("=", 1) for line in done.stdout.splitlines())
    sources = shown["APP_SRCS"].split()
    assert len(set(sources)) == len(sources) and all((project / source).is_file() for source in sources)
    assert {"src/network.c", "src/machine.c", "runtime/deeploy_box.c"} <= set(sources)
    assert {source.removeprefix("runtime/pmsis/") for source in sources if "pmsis" in source} == {f.name for f in PMSIS.glob("*.c")}
    folders = [word[2:] for word in shown["APP_CFLAGS"].split() if word.startswith("-I")]
    assert {"include", "runtime", "runtime/pmsis"} <= set(folders) and all((project / folder).is_dir() for folder in folders)
    used = json.loads((project / "deploy.json").read_text())["memory"]["L1"]["peak"]
    assert f"-DL1_RESERVED_BYTES={256 * 1024 - used}" in shown["APP_CFLAGS"].split()
    assert shown["HYPERRAM"] == "1"
    assert shown["GAPY_CMD"] == f"{complete['GVSOC']} --target=siracusa --work-dir={project / 'build'}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"PULP_SDK_HOME": "", "RULES_DIR": ""}, "PULP_SDK_HOME and RULES_DIR are not set"),
        ({"RULES_DIR": ""}, "PULP_SDK_HOME and RULES_DIR are not set"),
        ({"RULES_DIR": "/nowhere"}, "RULES_DIR is /nowhere, where there is no pmsis_rules.mk"),
        ({"PULPOS_TARGET": "pulp"}, "the PULP SDK is set up for 'pulp', not for siracusa"),
        ({"PULP_RISCV_GCC_TOOLCHAIN": ""}, "PULP_RISCV_GCC_TOOLCHAIN is not set"),
        ({"PULP_RISCV_GCC_TOOLCHAIN": "/nowhere"}, "there is no /nowhere/bin/riscv32-unknown-elf-gcc"),
        ({"GVSOC": "/nowhere/gvsoc"}, "the launcher /nowhere/gvsoc cannot be run"),
    ],
)
def test_it_says_what_is_missing(project: Path, complete: dict[str, str], change: dict[str, str], message: str) -> None:
    done = make(project, {**complete, **change}, "all")
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert f"*** PLATFORM=pulp-sdk: {message}" in done.stderr


def test_it_builds_without_a_launcher(project: Path, complete: dict[str, str]) -> None:
    done = make(project, {**complete, "GVSOC": "/nowhere/gvsoc"}, "build")
    assert (done.returncode, done.stdout) == (0, "built\n")


@pytest.fixture(scope="module")
def sdk() -> dict[str, str]:
    """The environment of a real SDK, with a launcher; where there is no PULP toolchain, a stock gcc takes its place."""
    values = {name: os.environ.get(name, "") for name in ENVIRONMENT}
    if not values["PULP_RISCV_GCC_TOOLCHAIN"] and shutil.which("riscv64-unknown-elf-gcc"):
        values["PULP_RISCV_GCC_TOOLCHAIN"] = str(STOCK)
    missing = [name for name, value in values.items() if not value]
    if missing:
        pytest.skip(f"no PULP SDK and toolchain: {', '.join(missing)} not set; source configs/siracusa.sh in the SDK")
    launcher = os.environ.get("GVSOC") or shutil.which("gvsoc")
    if launcher is None:
        absent("no GVSoC: build github.com/gvsoc/gvsoc for target siracusa, then set GVSOC to its launcher or add it to PATH")
    return {**values, "GVSOC": launcher}


def numbers(lines: list[str], word: str) -> list[list[str]]:
    return [line.split()[1:] for line in lines if line.startswith(f"{word} ")]


@pytest.mark.gvsoc
def test_every_function_of_the_interface_on_the_sdk(sdk: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bare.h").write_text(SHIM_H)
    (tmp_path / "console.h").write_text("")
    (tmp_path / "shim.c").write_text(SHIM_C)
    sources = " ".join(map(str, [*sorted(HAL.glob("*.c")), tmp_path / "shim.c"]))
    includes = f"{tmp_path} {ROOT / 'kernels' / 'hal'}"
    done = make(
        tmp_path, sdk, "-f", str(PMSIS / "pmsis.mk"), f"PMSIS={PMSIS}", f"SOURCES={sources}", f"INCLUDES={includes}", "build", "run"
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, lines[-10:]
    checks = [line for line in lines if line.startswith("check ")]
    assert [line for line in checks if not line.endswith(" ok")] == []
    assert len(checks) == 2 * len(set(checks)) and len(checks) >= 50, "every check, each of the two times"
    assert "checks that do not hold: 0" in lines


@pytest.mark.gvsoc
@pytest.mark.parametrize("far", [False, True], ids=["constants in L2", "constants and activations in L3"])
def test_digits_are_right_on_the_sdk(sdk: dict[str, str], images: Path, tmp_path: Path, far: bool) -> None:
    options = Options(memory={"l1": 2000, "l2": 12000}, default_memory="L3") if far else Options()
    compiled = api.compile(images / "int8.onnx", "siracusa", **options.given())
    compiled.write(tmp_path / "project")
    with np.load(images / "images.npz") as file:
        samples = file["image"][:SAMPLES]
    (tmp_path / "project" / "build").mkdir()
    (tmp_path / "project" / "build" / "inputs.bin").write_bytes(samples.tobytes())
    done = make(tmp_path / "project", sdk, "all", "run")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines[-10:], done.stderr)
    expected = b"".join(array.tobytes() for image in samples for array in compiled.interpret({"image": image[None]}))
    assert (tmp_path / "project" / "build" / "outputs.bin").read_bytes() == expected
    totals, layers, stacks = numbers(lines, "total"), numbers(lines, "layer"), numbers(lines, "stack")
    assert [total[0] for total in totals] == [str(i) for i in range(SAMPLES)] and len(stacks) == 8
    for sample, cycles in totals:
        inside = sum(int(layer[3]) for layer in layers if layer[0] == sample)
        assert 0.8 * int(cycles) < inside < int(cycles)


@pytest.mark.gvsoc
def test_inputs_of_a_wrong_length_are_an_error_on_the_sdk(sdk: dict[str, str], images: Path, tmp_path: Path) -> None:
    api.compile(images / "int8.onnx", "siracusa").write(tmp_path / "project")
    (tmp_path / "project" / "build").mkdir()
    for contents in (b"", b"short"):
        (tmp_path / "project" / "build" / "inputs.bin").write_bytes(contents)
        done = make(tmp_path / "project", sdk, "build", "run")
        assert done.returncode != 0
        assert "error: inputs.bin holds no whole number of samples" in done.stdout.splitlines()


@pytest.mark.gvsoc
@pytest.mark.parametrize("name", ["MLPerf/KeywordSpotting", "MLPerf/ImageClassification", "microLlama/INT8/microLlama1"])
def test_networks_are_right_on_the_sdk(sdk: dict[str, str], shared_models: Path, tmp_path: Path, name: str) -> None:
    """With the accelerator, against the interpreter bit for bit."""
    model = shared_models / "dialect" / "Models" / name
    compiled = api.compile(model / "network.onnx", "siracusa", inputs=model / "inputs.npz", memory={"l1": 64_000})
    compiled.write(tmp_path / "project")
    with np.load(model / "inputs.npz") as file:
        sample = list(file.values())
    (tmp_path / "project" / "build").mkdir()
    entry = json.loads((tmp_path / "project" / "deploy.json").read_text())
    (tmp_path / "project" / "build" / "inputs.bin").write_bytes(sample_bytes(entry, sample))
    done = make(tmp_path / "project", sdk, "DEFINES=", "all", "run")
    assert done.returncode == 0, (done.stdout.splitlines()[-10:], done.stderr)
    expected = b"".join(array.tobytes() for array in compiled.interpret(sample))
    assert (tmp_path / "project" / "build" / "outputs.bin").read_bytes() == expected


def test_a_stock_compiler_takes_the_place_of_the_pulp_one(tmp_path: Path) -> None:
    """Options, built-in functions and instructions of the PULP toolchain are understood."""
    if shutil.which("riscv64-unknown-elf-gcc") is None:
        absent("no riscv64-unknown-elf-gcc")
    compiler = STOCK / "bin" / "riscv32-unknown-elf-gcc"
    (tmp_path / "builtins.c").write_text(
        "int main(void) { return __builtin_pulp_ClusterId() + (int)__builtin_pulp_binsert(1, ~6, 3, 6, 1)"
        " + __builtin_pulp_bextract(0xf0, 4, 4); }"
    )
    (tmp_path / "wait.S").write_text(
        "p.elw t0, 0x80(s2)\np.lw x12, t0(x11)\np.sw x12,t0(x11)\np.bsetr x12,x12,x10\np.beqimm t5, 0, 1f\n1:\n"
    )
    for source in ("builtins.c", "wait.S"):
        command = [compiler, "-march=rv32imcxgap9", "-mPE=8", "-Werror", "-MMD", "-c", tmp_path / source, "-o", tmp_path / f"{source}.o"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
    shown = subprocess.run(["riscv64-unknown-elf-objdump", "-d", tmp_path / "wait.S.o"], capture_output=True, text=True, check=True).stdout
    assert all(word in shown for word in ("08096283", "2055f603", "00c5e2a3", "80a64633"))


def test_the_runtime_compiles_against_the_declarations_of_the_sdk(project: Path) -> None:
    """With stand-in headers, which say what the SDK declares of what is used."""
    folders = [SDK, project / "include", project / "runtime"]
    flags = ["-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-int-to-pointer-cast", "-Wno-pointer-to-int-cast"]
    for source in sorted((project / "runtime" / "pmsis").glob("*.c")):
        command = ["gcc", *flags, *(f"-I{folder}" for folder in folders), source]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
