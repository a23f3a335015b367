"""Targets that contradict themselves: every error names the file and the line, what is wrong, and what to do."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

from deeploy.errors import TargetError
from deeploy.target import _find as find
from deeploy.target import load, load_timing, names, origin, problems

HEAD = """from dataclasses import replace
from pathlib import Path
from deeploy.target import DmaPath, Engine, Memory, Map, Nest, Operator, load, load_timing, parallel, types
HERE = Path(__file__).parent
GENERIC = load("generic")
L1 = Memory("L1", 65536, alignment=8, base=0x1000_0000)
L2 = Memory("L2", 524288, alignment=8, base=0x2000_0000)
PATH = DmaPath("L2_L1", "L1", "L2", max_bytes=65535, max_rows=64, max_total=65535, max_pitch=65535)
ENGINE = Engine("core", "L1")
OWN = Operator("Own", ("x",), lambda node: NEST, lambda node, x: x).kernel("own", "mine/own.c",
    types={"x": types("s8"), "y": types("s8")}, template="copy.mako")
NEST = Nest(reads={"x": Map(*parallel("i"))}, writes={"y": Map(*parallel("i"))})
MANAGED = replace(GENERIC, name="mine", memories=(L1, L2), paths=(PATH,), engines=(ENGINE,), default_memory="L2",
    runtime=(), kernel_folders=(HERE, *GENERIC.kernel_folders))
"""

# the line that defines TARGET, the line that the error names (counted in the file), what it says
BROKEN: dict[str, tuple[str, int | None, str]] = {
    "overlap": (
        "TARGET = replace(MANAGED, memories=(\n    L1,\n    Memory('L2', 524288, alignment=8, base=0x1000_8000)))",
        7,
        r"L1 \(0x10000000 to 0x10010000\) and L2 \(0x10008000 to 0x10088000\) overlap",
    ),
    "two memories": ("TARGET = replace(MANAGED, memories=(L1, L2, L1))", 6, "two memories have the name L1"),
    "reserved": ("TARGET = replace(MANAGED, memories=(replace(L1, reserved=65536), L2))", 6, "65536 of the 65536 bytes"),
    "alignment": ("TARGET = replace(MANAGED, memories=(replace(L1, alignment=12), L2))", 6, "alignment 12 of memory L1"),
    "path to nowhere": ("TARGET = replace(MANAGED, paths=(replace(PATH, far='L3'),))", 8, "path L2_L1 connects L1 and L3"),
    "limit": ("TARGET = replace(MANAGED, paths=(replace(PATH, max_rows=0),))", 8, "a limit of path L2_L1 is below 1"),
    "tickets": ("TARGET = replace(MANAGED, paths=(replace(PATH, tickets=1),))", 8, "path L2_L1 has 1 tickets"),
    "circle": ("TARGET = replace(MANAGED, paths=(PATH, replace(PATH, name='B', near='L2', far='L1')))", None, "lead in a circle"),
    "no engine": ("TARGET = replace(MANAGED, engines=())", None, "paths and no engine"),
    "engine nowhere": ("TARGET = replace(MANAGED, engines=(Engine('core', 'L9'),))", 9, "engine core works in L9"),
    "default": ("TARGET = replace(MANAGED, default_memory='L1')", None, "default_memory is 'L1'"),
    "unknown engine": ("TARGET = replace(MANAGED, kernels=(replace(GENERIC.kernels[0], engine='npu'),))", None, "it runs on npu"),
    "no C": ("TARGET = replace(MANAGED, kernels=(OWN,))", 10, "kernel own: there is no C file mine/own.c"),
    "no template": ("TARGET = replace(GENERIC, kernels=(replace(OWN, source='portable/copy.c', template='no.mako'),))", 10, "no.mako"),
    "operand": ("TARGET = replace(GENERIC, kernels=(replace(OWN, source='portable/copy.c', strided={'z': 0}),))", 10, "operand z"),
    "stage": ("TARGET = replace(GENERIC, kernels=(replace(OWN, source='portable/copy.c', epilogues=(('relu',),)),))", 10, "epilogue relu"),
    "Makefile": ("TARGET = replace(GENERIC, build='none.mako')", 15, "there is no template none.mako of a Makefile"),
    "runtime": ("TARGET = replace(GENERIC, runtime=(HERE / 'rt',))", None, "rt does not exist"),
    "raises": ("TARGET = 1 // 0", 15, "ZeroDivisionError"),
    "syntax": ("TARGET = (", 15, "SyntaxError"),
}


def write(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "target.py").write_text(HEAD + text + "\n")
    return folder


def test_the_head_alone_is_right(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", "TARGET = replace(MANAGED, kernels=tuple(k for k in GENERIC.kernels))")
    assert load(folder).name == "mine"
    assert origin(folder) == folder


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_named_with_file_and_line(name: str, tmp_path: Path) -> None:
    text, line, message = BROKEN[name]
    folder = write(tmp_path / "mine", text)
    with pytest.raises(TargetError, match=message) as error:
        load(folder)
    assert str(folder / "target.py") in error.value.what
    assert line is None or f"target.py:{line}: " in error.value.what, error.value.what
    assert error.value.remedy


def test_all_problems_are_found_at_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", "TARGET = replace(MANAGED, memories=(L1, L1), kernels=(OWN,))")
    with pytest.raises(TargetError, match=r"and \d more: deeploy target check"):
        load(folder)
    good = load("generic")
    assert problems(good, origin("generic")) == []


C = {
    "void KERNEL(const struct other *k) {}": ("own.c:3", "KERNEL takes other, the declaration says struct own"),
    "void own_kernel(const struct own *k) {}": ("own.c:1", "the file defines no function KERNEL"),
}


@pytest.mark.parametrize("function", C)
def test_c_that_does_not_match_its_declaration(function: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", "TARGET = replace(GENERIC, kernels=(OWN,), kernel_folders=(HERE, *GENERIC.kernel_folders))")
    (folder / "mine").mkdir()
    (folder / "mine" / "own.h").write_text("struct own { const void *x; void *y; };\n")
    (folder / "mine" / "own.c").write_text(f'#include "own.h"\n\n{function}\n')
    where, message = C[function]
    with pytest.raises(TargetError, match=re.escape(message)) as error:
        load(folder)
    assert f"{folder}/mine/{where}: " in error.value.what
    (folder / "mine" / "own.h").unlink()
    with pytest.raises(TargetError, match=r"there is no C file|no header own\.h|KERNEL"):
        load(folder)


TIMING = """[machine.clock]
mhz = 100
tile = 1
provenance = "data sheet"
[engine.core]
fork = 0
core_mw = 1
provenance = "data sheet"
[path.L2_L1]
issue = 1
latency = [1, 1]
row = 1
byte = [1, 1]
pj_per_byte = 1
provenance = "data sheet"
[kernel.default]
call = 1
mac = 1
output = 1
provenance = "data sheet"
"""


def test_timing_states_where_it_is_from(tmp_path: Path) -> None:
    file = tmp_path / "timing.toml"
    file.write_text(TIMING)
    assert load_timing(file).paths["L2_L1"].row == 1
    for line, entry in ((1, "machine.clock"), (5, "engine.core"), (9, "path.L2_L1"), (16, "kernel.default")):
        (broken,) = [part for part in re.split(r"^\[", TIMING, flags=re.MULTILINE) if part.startswith(entry)]
        file.write_text(TIMING.replace(broken, broken.replace('provenance = "data sheet"\n', "")))
        with pytest.raises(TargetError, match=re.escape(f"timing.toml:{line}: {entry}.provenance is missing")):
            load_timing(file)
    file.write_text(TIMING.replace("mac = 1\n", ""))
    with pytest.raises(TargetError, match=r"timing\.toml:16: kernel\.default\.mac is missing"):
        load_timing(file)
    file.write_text("[machine\n")
    with pytest.raises(TargetError, match=r"timing\.toml is not valid TOML: .*line 1"):
        load_timing(file)


def test_timing_and_target_agree(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", "TARGET = replace(MANAGED, timing=load_timing(HERE / 'timing.toml'))")
    (folder / "timing.toml").write_text(TIMING)
    timing = load(folder).timing
    assert timing is not None and timing.mhz == 100
    (folder / "timing.toml").write_text(TIMING.replace("[path.L2_L1]", "[path.L3_L2]"))
    with pytest.raises(TargetError, match="the timing names the path L3_L2"):
        load(write(tmp_path / "again", f"TARGET = replace(MANAGED, timing=load_timing(Path({str(folder / 'timing.toml')!r})))"))


def point(name: str, value: str) -> importlib.metadata.EntryPoint:
    return importlib.metadata.EntryPoint(name, value, "deeploy.targets")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of modules on the path, which entry points name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def listed(group: str) -> list[importlib.metadata.EntryPoint]:
        assert group == "deeploy.targets"
        points = [("outside_good", "good:TARGET"), ("outside_bad", "bad:TARGET"), ("generic", "good:TARGET"), ("twin", "good:TARGET")]
        return [point(*entry) for entry in [*points, ("twin", "bad:TARGET"), ("lost", "good:NOTHING")]]

    monkeypatch.setattr(find.importlib.metadata, "entry_points", listed)
    (tmp_path / "good.py").write_text(HEAD + "TARGET = replace(GENERIC, name='outside_good')\n")
    (tmp_path / "bad.py").write_text("import deeploy\nTARGET = {}['missing']\n")
    return tmp_path


def test_targets_of_other_packages(installed: Path) -> None:
    find_generic = find._builtin_targets()["generic"]
    assert "outside_good" in names()
    with pytest.raises(TargetError, match=r"2 targets have the name generic: .*generic/target\.py, good:TARGET of another package"):
        load("generic")
    with pytest.raises(TargetError, match="2 targets have the name twin: good:TARGET of another package, bad:TARGET of another package"):
        load("twin")
    (installed / "good.py").write_text((installed / "good.py").read_text().replace('load("generic")', f'load("{find_generic}")'))
    assert load("outside_good").name == "outside_good"
    assert origin("outside_good") == installed
    with pytest.raises(TargetError, match=r"bad\.py:2: KeyError: 'missing'") as error:
        load("outside_bad")
    assert "the entry point outside_bad = bad:TARGET of another package" in error.value.what
    with pytest.raises(TargetError, match=r"the entry point lost = good:NOTHING .*AttributeError"):
        load("lost")


@pytest.mark.parametrize("command", ["compile", "verify", "inspect", "targets", "target check"])
def test_the_help_says_that_the_python_of_a_folder_is_run(command: str) -> None:
    from tests.command import deeploy_cli

    shown = " ".join(deeploy_cli(*command.split(), "--help").stdout.replace("│", " ").split())
    assert ("a target.py, which is executed" in shown) is (command != "inspect")
