"""What this machine has of what projects and commands need: compilers, emulators, simulators, boards, Python packages."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from deeploy.documents import Contents
from deeploy.execution.runners.board import find_ports
from deeploy.resources import cache_root, cached_files

_SECONDS = 10  # that a tool may take to tell its version
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Tool:
    """Something that may be there.

    Attributes:
        enables: what it is needed for.
        found: where it is, empty where it is not there; then ``remedy`` says how to get it.
    """

    kind: str
    name: str
    enables: str
    found: str
    version: str
    remedy: str

    def contents(self) -> Contents:
        """The tool as a document for ``--json``."""
        return asdict(self)


# kind, name, what it enables, packages of Debian
_PROGRAMS = (
    ("compiler", "gcc", "building and running projects on this machine (deeploy run, deeploy verify)", "gcc libc6-dev"),
    ("compiler", "make", "building projects with their own Makefile", "make"),
    ("compiler", "cmake", "projects that are packages for CMake (deeploy compile --package cmake)", "cmake"),
    ("compiler", "riscv64-unknown-elf-gcc", "programs for RISC-V chips and boards", "gcc-riscv64-unknown-elf"),
    ("compiler", "clang", "programs for RISC-V chips with vectors", "clang"),
    ("compiler", "arm-none-eabi-gcc", "programs for Arm microcontrollers", "gcc-arm-none-eabi libnewlib-arm-none-eabi"),
    ("compiler", "mpicc", "several chips as processes of this machine (deeploy run --on mpi)", "openmpi-bin libopenmpi-dev"),
    ("emulator", "qemu-system-arm", "Arm boards (deeploy run --on qemu)", "qemu-system-arm"),
    ("emulator", "qemu-system-riscv32", "RISC-V boards (deeploy run --on qemu)", "qemu-system-misc"),
    ("simulator", "gvsoc", "cycles of the chips that it models (deeploy run --on gvsoc)", ""),
    ("programmer", "openocd", "loading programs onto boards over JTAG or SWD", "openocd"),
    ("programmer", "pyocd", "the same for Arm boards", "python3-pyocd"),
    ("programmer", "esptool.py", "loading programs onto boards of Espressif", "esptool"),
)
_PACKAGES = (
    ("onnxruntime", "deeploy quantize; comparisons of deeploy verify and deeploy evaluate", "onnxruntime"),
    ("serial", "boards (deeploy run --on board)", "pyserial"),
    ("torch", "deeploy.compile of a torch.nn.Module", "torch onnxscript"),
    ("onnxscript", "PyTorch's default exporter", "onnxscript"),
    ("ai_edge_litert", "comparisons of TensorFlow Lite files with LiteRT (deeploy verify, deeploy evaluate)", "ai-edge-litert"),
    ("emx_onnx_cgen", "generated C for operators without a kernel (--fallback)", "emx-onnx-cgen"),
)
_CACHE = "compiling the same again sooner"


def examine_tools() -> list[Tool]:
    """Every tool that is known, with where it is."""
    return [*map(_find_program, _PROGRAMS), *_find_boards(), *map(_find_package, _PACKAGES), _measure_cache()]


def _measure_cache() -> Tool:
    """Where the build cache is, and its size."""
    root = cache_root()
    if root is None:
        return Tool("cache", "deeploy", _CACHE, "", "", "unset DEEPLOY_CACHE, or let it name a folder")
    size = sum(entry.st_size for entry in cached_files(root).values())
    return Tool("cache", "deeploy", f"{_CACHE}: {root}, {size / 1e6:.1f} MB, which --clear-cache deletes", str(root), "", "")


def _find_program(row: tuple[str, str, str, str]) -> Tool:
    kind, name, enables, packages = row
    path = shutil.which((os.environ.get("GVSOC") or name) if name == "gvsoc" else name) or ""
    remedy = f"apt-get install {packages}" if packages else "build it (docs/siracusa.md), and let GVSOC name its launcher"
    return Tool(kind, name, enables, path, _tell_version([path, "--version"]) if path and name != "gvsoc" else "", "" if path else remedy)


def _tell_version(command: Sequence[str]) -> str:
    """The version that a program tells."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    numbers = _VERSION.findall((done.stdout or done.stderr).partition("\n")[0])
    return numbers[-1] if numbers else ""


def _find_boards() -> list[Tool]:
    """Boards that are plugged in, by the names that the system gives their serial ports."""
    enables = "programs on a real chip (deeploy run --on board)"
    boards = [Tool("board", port.name, enables, str(port), "", "") for port in find_ports()]
    return boards or [Tool("board", "serial port", enables, "", "", "plug a board in")]


def _find_package(row: tuple[str, str, str]) -> Tool:
    module, enables, packages = row
    spec = importlib.util.find_spec(module)
    try:
        own = version(module.replace("_", "-")) if spec is not None else ""
    except PackageNotFoundError:
        own = ""
    place = str(Path(spec.origin).parent) if spec is not None and spec.origin else ""
    return Tool("package", module, enables, place, own, "" if place else f"pip install {packages}")
