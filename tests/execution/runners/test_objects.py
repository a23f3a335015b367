"""Objects of earlier builds: taken where nothing of what makes them has changed, and only there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deeploy.errors import BuildError
from deeploy.execution.runners import host
from deeploy.execution.runners.processes import run_make
from deeploy.options import Options
from tests.execution.simulation.nets import perceptron

MAKEFILE = """BUILD ?= build
all: $(BUILD)/application
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo $< >> compiled
	$(CC) $(CFLAGS) -Iinclude -MMD -c $< -o $@
$(BUILD)/application: $(BUILD)/src/a.o $(BUILD)/main.o
	$(CC) $^ -o $@
-include $(BUILD)/src/a.d
"""


def project(folder: Path) -> Path:
    """A program that prints a number of a header."""
    for name, text in {
        "Makefile": MAKEFILE,
        "include/number.h": "#define NUMBER 7\n",
        "include/more.h": '#include "number.h"\nint number(void);\n',
        "src/a.c": '#include "more.h"\nint number(void) { return NUMBER; }\n',
        "main.c": '#include <stdio.h>\nint number(void);\nint main(void) { return printf("%d", number()) < 0; }\n',
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def printed(folder: Path, **how: str) -> tuple[str, list[str]]:
    """What the program prints, and the sources that were compiled for it."""
    (folder / "compiled").unlink(missing_ok=True)
    application = host.build_application(folder, **how)  # type: ignore[arg-type]
    text = subprocess.run([application], capture_output=True, text=True, check=True).stdout
    return text, sorted((folder / "compiled").read_text().split()) if (folder / "compiled").exists() else []


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEEPLOY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_only_what_is_new_is_compiled(tmp_path: Path) -> None:
    assert printed(project(tmp_path / "one")) == ("7", ["main.c", "src/a.c"])
    second = project(tmp_path / "two")
    assert printed(second) == ("7", [])
    (second / "include" / "number.h").write_text("#define NUMBER 8\n")
    assert printed(second) == ("8", ["src/a.c"]), "make knows of the header, since what it wrote of it is kept too"
    third = project(tmp_path / "three")
    (third / "include" / "number.h").write_text("#define NUMBER 9\n")
    assert printed(third) == ("9", ["src/a.c"])
    assert printed(project(tmp_path / "four"), flags="-O0")[1] == ["main.c", "src/a.c"]
    other = project(tmp_path / "five")
    (other / "Makefile").write_text(MAKEFILE + "$(BUILD)/src/a.o: override CFLAGS += -DMORE\n")
    assert printed(other)[1] == ["src/a.c"]
    same = project(tmp_path / "six")
    (same / "Makefile").write_text(MAKEFILE + "BYTES_OF_THIS_NETWORK := 7\n")
    assert printed(same) == ("7", [])


@pytest.mark.parametrize("kind", [".d", ".o"])
def test_a_half_that_was_removed_alone_is_made_again_and_hides_no_other(kind: str, tmp_path: Path, cache: Path) -> None:
    """An object and what it depends on are two files, and either may have been removed as what was not used for longest."""
    assert printed(project(tmp_path / "one"))[1] == ["main.c", "src/a.c"]
    halves = sorted((cache / "objects").glob(f"*{kind}"))
    assert len(halves) == 2
    for number, half in enumerate(halves):
        half.unlink()
        assert len(printed(project(tmp_path / f"without {number}"))[1]) == 1
        assert half.is_file() and printed(project(tmp_path / f"with {number}")) == ("7", [])


def test_what_describes_an_object_is_kept_with_it(tmp_path: Path, cache: Path) -> None:
    """Other programs than the host's have a folder of their own, and what the compiler says of stacks lies beside its objects."""

    def compiled(name: str) -> list[str]:
        folder = project(tmp_path / name)
        (folder / "Makefile").write_text(MAKEFILE.replace("BUILD", "QEMU_BUILD"))
        run_make(folder, ["QEMU_BUILD=build/there", "CC=gcc", "CFLAGS=-O1 -fcallgraph-info=su", "all"], BuildError)
        assert "number" in (folder / "build" / "there" / "src" / "a.ci").read_text()
        return sorted((folder / "compiled").read_text().split()) if (folder / "compiled").exists() else []

    assert compiled("one") == ["main.c", "src/a.c"] and compiled("two") == []
    for description in (cache / "objects").glob("*.ci"):
        description.unlink()
    assert compiled("three") == ["main.c", "src/a.c"]


def test_files_that_the_assembler_puts_in_are_always_read(tmp_path: Path) -> None:
    """Large constants are such files: their C is the same whatever they hold."""
    text = '__asm__(".globl number\\n.pushsection .rodata\\nnumber: .incbin \\"number.bin\\"\\n.popsection");\n'
    for value in b"78":
        folder = project(tmp_path / chr(value))
        (folder / "src" / "a.c").write_text(text)
        (folder / "main.c").write_text("#include <stdio.h>\nextern const char number;\nint main(void) { return putchar(number) < 0; }\n")
        (folder / "number.bin").write_bytes(bytes([value]))
        assert printed(folder)[0] == chr(value)


def test_networks_share_the_model_of_the_machine(tmp_path: Path, cache: Path) -> None:
    """Though the Makefile of each says how much of L1 is left beside it."""
    for number, l1 in enumerate((2_000, 40_000)):
        folder = tmp_path / str(number)
        folder.mkdir()
        perceptron(folder, Options(memory={"l1": l1})).write(folder / "project")
        host.build_application(folder / "project")
    makefiles = {path.read_text() for path in tmp_path.glob("*/project/Makefile")}
    rules = [path.read_text() for path in (cache / "objects").glob("*.d")]
    assert len(makefiles) == 2 and sum("runtime/host/steps.c" in rule for rule in rules) == 1


def test_another_compiler_makes_other_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed(project(tmp_path / "one"))
    compiler = tmp_path / "mygcc"
    compiler.write_text('#!/bin/sh\nexec gcc "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert printed(project(tmp_path / "two"))[1] == ["main.c", "src/a.c"]


def test_without_a_cache_everything_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("", "/proc/nowhere"):
        monkeypatch.setenv("DEEPLOY_CACHE", place)
        for number in range(2):
            assert printed(project(tmp_path / f"{number}{len(place)}")) == ("7", ["main.c", "src/a.c"])
