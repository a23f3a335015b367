"""Emitted C and portable kernels keep MISRA's rules but for reasoned deviations (docs/misra.md), and gcc's analyser says nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import deeploy
from tests.certify.test_prove import small

ROOT = Path(__file__).resolve().parents[2]
PORTABLE = ["-U__SSE2__", "-U__gnu_linux__", "-Iinclude", "-Ikernels/portable", "-Isrc"]  # without functions for AVX-512
ALONE = ["--std=c11", "--platform=unix32", "-D__riscv", "-U__x86_64__", "-U__GNUC__", "--suppress=missingIncludeSystem", "--quiet"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["int8", "float"])
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    model = small(folder) if request.param == "int8" else ROOT / "examples/digits/digits.onnx"
    deeploy.compile(model).write(folder / "project")
    return folder / "project"


def sources(project: Path) -> list[str]:
    return [str(path.relative_to(project)) for path in sorted(project.glob("src/**/*.c"))]


def check_rules(project: Path) -> set[str]:
    """The rules that cppcheck and its addon find violated."""
    addon = project.parent / "misra.json"
    addon.write_text(json.dumps({"script": "misra.py", "args": []}), encoding="utf-8")
    given = [f"--addon={addon}", "--enable=warning,portability,performance", "--template={id}", *PORTABLE[2:]]
    done = subprocess.run(["cppcheck", *ALONE, *given, *sources(project)], cwd=project, capture_output=True, text=True, check=True)
    return {line.removeprefix("misra-c2012-") for line in done.stderr.splitlines() if re.fullmatch(r"[\w.-]+", line)}


def listed() -> set[str]:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/misra.md").read_text("utf-8"), re.MULTILINE)
    return {rule for row in rows for rule in row.split(", ")}


@pytest.mark.skipif(shutil.which("cppcheck") is None, reason="needs cppcheck")
def test_every_violated_rule_has_a_reason(project: Path) -> None:
    found = check_rules(project)
    assert len(found) > 10 and found - listed() == set()
    network = project / "src/network.c"
    text = network.read_text("utf-8")
    network.write_text(
        text + "\nint again(int x);\nint again(int x) {\n    if (x > 3) goto end;\n    x++;\nend:\n    return x;\n}\n", "utf-8"
    )
    try:
        assert "15.1" in check_rules(project) - listed()
    finally:
        network.write_text(text, "utf-8")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_analyser_says_nothing(project: Path) -> None:
    flags = ["-std=c11", "-O1", "-fanalyzer", "-Werror", "-c", "-o", "/dev/null", *PORTABLE]
    told = [subprocess.run(["gcc", *flags, path], cwd=project, capture_output=True, text=True, check=False) for path in sources(project)]
    assert [done.stderr for done in told if done.returncode] == []
