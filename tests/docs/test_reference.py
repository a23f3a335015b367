"""Reference pages say what the declarations say, and the site builds with every link leading somewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deeploy import target as interface
from deeploy.cli.reference import reference_pages
from deeploy.operators.table import OPERATORS
from deeploy.operators.views import VIEWS
from deeploy.target import load
from tests.command import deeploy_cli

ROOT = Path(__file__).resolve().parents[2]
TARGETS = [load("generic"), load("siracusa")]


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return dict(reference_pages(TARGETS))


def test_every_kernel_is_listed_with_its_operator_and_types(written: dict[str, str]) -> None:
    text = written["reference-operators.md"]
    for target in TARGETS:
        for kernel in target.kernels:
            assert re.search(rf"^\| {kernel.op} \| `{kernel.name}` \| {kernel.engine} \|", text, re.MULTILINE), kernel.name
    assert "x: s8 u8" in text and "bias + requantise" in text


def test_every_operator_says_what_it_computes(written: dict[str, str]) -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", written["reference-operators.md"].partition("\n## ")[0], re.MULTILINE))
    assert told.keys() == {*OPERATORS, *VIEWS} and min(map(len, told.values())) > 5
    assert "clip((x*mul + add) >> shift, low, high)" in told["RequantShift"]


def test_every_option_is_listed(written: dict[str, str]) -> None:
    text = written["reference-options.md"]
    for command in ("compile", "run", "verify", "report", "explain", "quantize", "explore", "new-target", "target check"):
        assert f"## deeploy {command}\n" in text
    for option in set(re.findall(r"(--[a-z][\w-]+)", deeploy_cli("compile", "--help").stdout)) - {"--help"}:
        assert f"`{option}`" in text, option


def test_the_runtime_is_that_of_the_header(written: dict[str, str]) -> None:
    header = (ROOT / "kernels" / "hal" / "deeploy_rt.h").read_text()
    functions = set(re.findall(r"^[a-z]\w* \*?(rt_\w+)\(", header.partition("RT_CHECKED")[0], re.MULTILINE))
    functions |= set(re.findall(r"^\w+ (rt_\w+)\(.*\);", header.partition("/* The machine")[0], re.MULTILINE))
    assert len(functions) == 11
    assert {name for name in functions if f"{name}(" not in written["reference-runtime.md"]} == set()


def test_the_interface_and_the_schemas_are_listed(written: dict[str, str]) -> None:
    for name in ("Kernel", "Memory", "load_timing", "Sample"):
        assert name in interface.__all__ and f"## {name}\n" in written["reference-target.md"]
    for name in ("compile", "quantize", "report", "Verdict"):
        assert f"## {name}\n" in written["reference-python.md"]
    for name in ("deploy.json", "timing.toml", "topology.toml", "hardware.toml"):
        assert f"## {name}\n" in written["reference-manifest.md"]


@pytest.mark.slow
def test_the_site_builds_and_links_are_checked(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("no mkdocs: make docs installs it")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable}
    subprocess.run([str(ROOT / ".ci" / "pages"), "build/pages"], cwd=tmp_path, env=environment, check=True)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]  # --quiet would hide warnings from --strict
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    (tmp_path / "build" / "pages" / "limits.md").write_text("[nowhere](nothing.md)\n")
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode != 0
