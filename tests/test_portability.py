"""What other systems than Linux lack or say otherwise, between the installation and C for one memory: macOS, which no test here runs on."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import deeploy
from deeploy.backend import constants
from deeploy.execution.runners.board import find_ports
from deeploy.execution.runners.processes import run_together
from tests.backend.test_interface import _convolutions

ROOT = Path(__file__).resolve().parents[1]
# Headers of a C library that clang does not bring itself, as far as networks and kernels need them.
HEADERS = {
    "math.h": """#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
double nearbyint(double);
float sqrtf(float), fabsf(float), copysignf(float, float);
""",
    "string.h": """#include <stddef.h>
void *memcpy(void *, const void *, size_t), *memset(void *, int, size_t), *memmove(void *, const void *, size_t);
""",
}
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wmissing-prototypes", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Werror"]


@pytest.mark.skipif(shutil.which("clang") is None, reason="there is no clang")
@pytest.mark.parametrize("machine", ["arm64", "x86_64"])
@pytest.mark.parametrize("is_embedded", [False, True])  # whether constants are a file that the assembler reads
def test_networks_compile_to_mach_o(is_embedded: bool, machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_embedded:
        monkeypatch.setattr(constants, "MOST_TEXT", 64)
    model, out = _convolutions(tmp_path / "m.onnx"), tmp_path / "out"
    deeploy.compile(model, certify=False).write(out)
    assert (".incbin" in (out / "src/network_weights.c").read_text()) is is_embedded
    (tmp_path / "headers").mkdir()
    for name, text in HEADERS.items():
        (tmp_path / "headers" / name).write_text(text)
    flags = [f"--target={machine}-apple-macos11", "-ffreestanding", "-nostdlibinc", "-std=c11", "-O1", *WARNINGS]
    includes = [f"-I{path}" for path in (tmp_path / "headers", out / "include", *out.glob("kernels/*/"))]
    for source in [*out.glob("src/*.c"), *out.glob("src/kernels/*.c")]:
        subprocess.run(["clang", *flags, *includes, "-c", str(source), "-o", str(tmp_path / "one.o")], check=True)
        assert (tmp_path / "one.o").read_bytes()[:4] == b"\xcf\xfa\xed\xfe"


def test_programs_that_ended_cannot_be_ended_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no permission to end a group of processes that have ended; Linux does not find it."""

    def refuse(group: int, number: int) -> None:
        raise PermissionError(group, number)

    monkeypatch.setattr(os, "killpg", refuse)
    (done,) = run_together([[sys.executable, "-c", "import time; time.sleep(1)"]], 0.2)
    assert done.returncode is None


def test_a_system_may_not_limit_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from deeploy import jobs

    def refuse(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    before = jobs._WORKERS.get()
    try:
        jobs._Process(1 << 30, os.getppid())()
        assert jobs._WORKERS.get() == jobs._Workers(1)
    finally:
        jobs._WORKERS.set(before)


def test_serial_lines_have_other_names(tmp_path: Path) -> None:
    (tmp_path / "serial/by-id").mkdir(parents=True)
    for name in ("cu.usbmodem1103", "cu.Bluetooth-Incoming-Port", "tty.usbmodem1103", "serial/by-id/usb-ST"):
        (tmp_path / name).touch()
    assert [path.name for path in find_ports(tmp_path)] == ["cu.usbmodem1103", "usb-ST"]


# What Linux has alone, and the modules in which another way stands beside it.
LINUX = {r"/proc/": {"deeploy/execution/runners/processes.py"}, r"/dev/(?!null)\w": {"deeploy/execution/runners/board.py"}}
ALONE = (r"sched_\w+affinity", r"\bprctl\b", r"pidfd", r"/sys/", r"memfd", r"\bsed -i", r"readlink -f", r"\bnproc\b")
LINUX |= {pattern: set[str]() for pattern in ALONE}


def test_what_is_of_linux_alone_is_where_another_way_is() -> None:
    files = [path for folder in ("deeploy", "targets", "templates", "kernels") for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = {path: path.read_text() for path in files if path.suffix in (".py", ".mako", ".mk", ".sh", ".c", ".h")}
    found = {pattern: {str(path.relative_to(ROOT)) for path, text in texts.items() if re.search(pattern, text)} for pattern in LINUX}
    assert len(texts) > 400
    assert {pattern: places - LINUX[pattern] for pattern, places in found.items() if places - LINUX[pattern]} == {}
