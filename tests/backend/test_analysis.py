"""gcc and cppcheck analyse the C of projects: the network, its kernels, and what runs it on a host."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import deeploy
from tests.e2e import decoders

# File, finding, and why it is none.
KNOWN = {
    ("epilogue.h", "-Wanalyzer-use-of-uninitialized-value"): "a loop over one row, which the analyzer takes for one over none",
    ("epilogue.h", "shiftTooManyBitsSigned"): "gcc and clang repeat the sign; see docs/misra.md",
    ("matmul.c", "legacyUninitvar"): "a loop fills as many elements as another one reads",
    (
        "pulp_multiply.h",
        "-Wanalyzer-use-of-uninitialized-value",
    ): "sums that products with zero points have are copied without them, and not read",
    ("xpulp.h", "uninitvar"): "an instruction in assembly writes it",
    ("xpulp.h", "legacyUninitvar"): "the same, as other versions of cppcheck call it",
    ("levels.c", "-Wanalyzer-malloc-leak"): "memory is kept by an address within it until the program ends, as is a temporary file",
    ("steps.c", "nullPointerRedundantCheck"): "host_violation does not return",
    ("main.c", "IOWithoutPositioning"): "a file is either read or written; a flag says which",
}
ANALYZER = ("gcc", "-std=c11", "-O1", "-fanalyzer", "-S", "-o", "/dev/null")
CPPCHECK = ("cppcheck", "--quiet", "--std=c11", "--error-exitcode=1", "--enable=warning,performance,portability")


def findings(command: Sequence[str], target: str, folder: Path, patterns: Sequence[str]) -> list[str]:
    """What a tool finds in the sources of a step of a language model, beyond ``KNOWN``."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    deeploy.compile(decoders.writer(folder), target, dims={"rows": 1}, context=24).write(folder / "project")
    project = folder / "project"
    includes = {f"-I{path.parent}" for path in project.rglob("*.h") if "bare" not in path.parts and "pmsis" not in path.parts}
    checked = ["-DRT_CHECKED"] if (project / "runtime" / "host").is_dir() else []
    files = sorted(str(path) for pattern in patterns for path in project.glob(pattern))
    assert files
    said = ""
    for group in [files] if command[0] == "cppcheck" else [[file] for file in files]:
        done = subprocess.run([*command, *checked, *sorted(includes), *group], capture_output=True, text=True, check=False)
        assert command[0] == "cppcheck" or done.returncode == 0, done.stderr
        said += done.stderr
    found = re.findall(r"^(\S+?):\d+:\d+: (?:error|warning|performance|portability): (.*) \[(\S+)\]$", said, re.MULTILINE)
    return sorted({f"{path}: {text}" for path, text, kind in found if (Path(path).name, kind) not in KNOWN})


@pytest.mark.parametrize("command", [ANALYZER, CPPCHECK], ids=["analyzer", "cppcheck"])
def test_a_network_is_without_findings(command: Sequence[str], tmp_path: Path) -> None:
    assert findings(command, "generic", tmp_path, ["src/network.c", "runtime/main.c"]) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize("command", [ANALYZER, CPPCHECK], ids=["analyzer", "cppcheck"])
def test_projects_are_without_findings(command: Sequence[str], target: str, tmp_path: Path) -> None:
    assert findings(command, target, tmp_path, ["src/*.c", "src/kernels/*.c", "runtime/*.c", "runtime/host/*.c"]) == []
