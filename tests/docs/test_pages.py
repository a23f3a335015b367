"""Every code block of the pages that teach is executed, in order, in an empty folder, as a reader would."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = (
    "getting-started",
    "gallery",
    "concepts",
    "tutorial-operator",
    "tutorial-target",
    "tutorial-chips",
    "tutorial-report",
    "tutorial-firmware",
    "from-pytorch",
    "slow",
    "firmware",
)
BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
SHOWN_ONLY = {"toml", ""}  # parts of files that are not of the page's own
SECONDS = 400


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Language, file and text of every block."""
    return BLOCK.findall((DOCS / f"{page}.md").read_text())


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One in which ``deeploy`` and ``python`` are those of this tree."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, command in (("deeploy", "-m deeploy"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {command} "$@"\n')
        (programs / name).chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}


@pytest.mark.share(0.1)
@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs(page: str, tmp_path: Path, environment: dict[str, str]) -> None:
    if page == "from-pytorch" and importlib.util.find_spec("torch") is None:
        pytest.skip("no torch: install the extra torch")
    emulator = "arm-none-eabi-gcc", "qemu-system-arm"
    tools = {"--toolchain": ("cmake", *emulator), "--on qemu": emulator, "cmake -S": ("cmake",)}  # by what pages say that need them
    text = (DOCS / f"{page}.md").read_text()
    missing = [tool for said, needed in tools.items() if said in text for tool in needed if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"there is no {missing[0]}")
    assert run_blocks(blocks(page), page, tmp_path, environment) > 0


@pytest.mark.gvsoc
def test_a_microphone_on_the_simulated_chip(tmp_path: Path, environment: dict[str, str]) -> None:
    if "GVSOC" not in environment:
        pytest.skip("no GVSoC: GVSOC names none")
    section = (DOCS / "gallery.md").read_text().partition("\n## A microphone\n")[2].partition("\n## ")[0]
    steps = [("bash" if "--on gvsoc" in text else language, file, text) for language, file, text in BLOCK.findall(section)]
    assert run_blocks(steps, "gallery", tmp_path, environment) == 4


@pytest.mark.slow
def test_a_microphone_hears_speech(tmp_path: Path, environment: dict[str, str]) -> None:
    """The example's commands on the host, with words of espeak-ng: scores are high where the word is said, and nowhere else."""
    if shutil.which("espeak-ng") is None:
        pytest.skip("there is no espeak-ng")
    section = (DOCS / "gallery.md").read_text().partition("\n## A microphone\n")[2].partition("\n## ")[0]
    train, commands = (next(text for _, _, text in BLOCK.findall(section) if said in text) for said in ("--speech", "--target cortex_m4"))
    spoken = commands.replace("python examples/wakeword/train.py wake\n", train).replace(
        "run wake/out --stream", "run wake/out --json --stream"
    )
    steps = "".join(line + "\n" for line in spoken.splitlines() if "qemu" not in line)
    assert run_blocks([("bash", "", steps.replace("recording.wav", "recording.wav > scores.json"))], "gallery", tmp_path, environment) == 1
    found = json.loads((tmp_path / "work" / "scores.json").read_text())
    ends = [(call + 1) * found["seconds"] - found["lag"] for call in range(len(found["scores"]))]
    heard = [end for end, (score,) in zip(ends, found["scores"], strict=True) if score > 0.9 and end >= found["window"]]
    said = (2.0, 5.0, 8.2)  # seconds, as the example has them; a word takes 0.7, and the window has as much behind it
    assert all(any(begin < end < begin + 1.4 for end in heard) for begin in said)
    assert all(any(begin < end < begin + 1.4 for begin in said) for end in heard)


def test_speech_needs_a_speaker(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "examples" / "wakeword" / "train.py", tmp_path / "wake", "--speech"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": str(tmp_path)}, check=False)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 2
    assert done.stderr.startswith("--speech: there is no espeak-ng on this machine\nInstall it")


def run_blocks(steps: list[tuple[str, str, str]], page: str, folder: Path, environment: dict[str, str]) -> int:
    """Write the files and run the commands of some blocks of a page; how many blocks were commands."""
    work = folder / "work"
    work.mkdir()
    (work / "examples").symlink_to(ROOT / "examples")  # pages say that they are read in a checkout
    executed = 0
    for language, file, text in steps:
        if file:
            (work / file).parent.mkdir(parents=True, exist_ok=True)
            (work / file).write_text(text)
        elif language == "bash":
            command = ["bash", "-e", "-o", "pipefail", "-c", text]
            done = subprocess.run(command, capture_output=True, text=True, cwd=work, env=environment, timeout=SECONDS, check=False)
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            executed += 1
        else:
            assert language in SHOWN_ONLY, f"a block of {page} is neither a file nor commands"
    return executed


def test_all_pages_with_commands_are_executed() -> None:
    taught = {path.stem for path in DOCS.glob("*.md") if path.stem.startswith("tutorial-")}
    assert taught <= set(PAGES) and len(taught) == 5


def test_an_operator_takes_less_than_60_lines() -> None:
    """Declaration, C, template and reference of the tutorial; the target around them counts too."""
    files = {file: text for _, file, text in blocks("tutorial-operator") if file.startswith("mine/")}
    assert set(files) == {"mine/target.py", "mine/kernels/own/threshold.h", "mine/kernels/own/threshold.c", "mine/templates/threshold.mako"}
    assert sum(len([line for line in text.splitlines() if line.strip()]) for text in files.values()) < 60


def test_named_files_of_the_pages_exist() -> None:
    """Scripts and folders that pages tell the reader to look at."""
    measured = sorted((ROOT / "benchmarks").glob("**/README.md"))
    text = "".join(path.read_text() for path in (*(DOCS / f"{page}.md" for page in PAGES), DOCS / "limits.md", *measured))
    named = set(re.findall(r"[`( ]((?:benchmarks|examples|kernels)/[\w/.]*\w)(?=[`) ])", text))
    assert len(named) > 3
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_figures_of_the_first_pages_are_those_of_the_measured_tables() -> None:
    """Every number in a table of the first pages stands in the tables that a benchmark wrote, which its command is named beside."""
    measured = (DOCS / "compared.md").read_text()
    cells = {cell.strip() for line in measured.splitlines() if line.startswith("|") for cell in line.split("|")}
    for page in (ROOT / "README.md", DOCS / "README.md"):
        text = page.read_text().partition("## ")[0].partition("Three ways on")[0]
        rows = [line for line in text.splitlines() if line.startswith("|") and re.search(r"\d", line.partition("|")[2].partition("|")[2])]
        figures = [cell.strip() for row in rows for cell in row.strip("|").split("|")[1:]]
        assert len(figures) > 20 and set(figures) <= cells
        assert set(re.findall(r"`make bench NAME='?([\w/]+)", text)) == {"compared", "gvsoc/compare"}
