"""Run an emitted project under QEMU: build it for the board with the project's own Makefile, feed it files, read its outputs.

A target whose projects have ``runtime/qemu/qemu.mk`` (``kernels/semihosting`` brings it) and set its variables in their Makefile can
do this: ``make qemu`` builds the program and ``make run-qemu`` runs it, reading ``inputs.bin`` and writing ``outputs.bin``.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.backend import host
from deeploy.backend.project import read_manifest
from deeploy.errors import BuildError, DeeployError, FitError, UsageError, shorten
from deeploy.graph.types import DType

SECONDS = 600.0  # wall time after which a run is taken to hang
_OVERFLOW = re.compile(r"(region .* overflowed.*)$", re.MULTILINE)
_TOOL = re.compile(r"^(?:QEMU_CC|QEMU_RUN) *:?= *(\S+)", re.MULTILINE)
_PACKAGES = {
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
    "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
    "qemu-system-riscv32": "qemu-system-misc",
}
FIT = "Leave more of the memory to inputs and outputs with a smaller arena (--memory), or use a network that needs less."


def run(
    project: Path,
    network: Mapping[str, Any],
    samples: Sequence[Sequence[np.ndarray]],
    seconds: float = SECONDS,
    sequence: bool = False,
) -> list[np.ndarray]:
    """Outputs by position, stacked over samples.

    Raises:
        UsageError: the project is for a target that does not run there.
        BuildError: tools are missing, or the program fails or hangs.
        FitError: the program with its arenas and arrays is larger than the board's memory.
    """
    if not (project / "runtime" / "qemu" / "qemu.mk").is_file():
        raise UsageError(f"--on qemu: target {network['target']} does not run there", "Compile for a target that does, or leave --on out.")
    for tool in dict.fromkeys(("make", *_TOOL.findall((project / "Makefile").read_text(encoding="utf-8")))):
        if shutil.which(tool) is None:
            raise BuildError(f"{tool} is not installed", f"Install it (on Debian: apt-get install {_PACKAGES.get(tool, tool)}).")
    manifest = read_manifest(project)
    names = [entry["name"] for entry in manifest.get("networks") or [manifest]]
    folder = f"build/qemu/{network['name']}{'_sequence' * sequence}"
    defines = f"-DNETWORK={names.index(network['name'])}{' -DSEQUENCE' * sequence}"
    make = ["make", "-s", "-j2", "-C", str(project), f"QEMU_BUILD={folder}", f"DEFINES={defines}"]
    _build([*make, "qemu"], project)
    work = project / folder
    host.write_samples(work / "inputs.bin", network, samples)
    (work / "outputs.bin").unlink(missing_ok=True)
    _execute([*make, "run-qemu"], seconds)
    data = (work / "outputs.bin").read_bytes() if (work / "outputs.bin").is_file() else b""
    size = sum(math.prod(port["shape"]) * DType(port["type"]).bytes for port in network["outputs"])
    if len(data) != size * len(samples):
        raise BuildError(f"the program left {len(data)} bytes of outputs instead of {size * len(samples)}", "Report this with the model.")
    return host.split(data, network["outputs"], len(samples))


def _build(command: Sequence[str], project: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8", errors="replace")
    if done.returncode:
        text = done.stdout + done.stderr
        overflow = _OVERFLOW.search(text)
        if overflow is not None:
            raise FitError(f"the program for the board does not fit: {overflow[1]}", FIT)
        first = next((line for line in text.splitlines() if "error" in line or "undefined" in line), text.strip() or "make says nothing")
        raise BuildError(
            f"the project in {project} does not build for the board: {shorten(first, 300)}", f"See all of it: {' '.join(command)}"
        )


def _execute(command: Sequence[str], seconds: float) -> None:
    """Run the emulator; the program prints ``error:`` where it fails."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        encoding="utf-8",
    )
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"the run did not end within {seconds:g} seconds", "Give it more with --time-limit, or fewer samples.") from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # make has started the emulator as a process of its own
            process.wait()
    if process.returncode:
        raise _failure(text)


def _failure(text: str) -> DeeployError:
    said = next((line.partition("error: ")[2] for line in text.splitlines() if line.startswith("error: ")), None)
    if said is not None and "no room" in said:
        return FitError(f"the program does not fit the board: {said}", FIT)
    return BuildError(
        f"the program failed under QEMU: {shorten(said or text.strip() or 'it printed nothing', 300)}",
        "Run it on the host first: deeploy run without --on.",
    )
