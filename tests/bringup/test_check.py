"""``deeploy target check``: right targets pass, and every kind of mistake in C, template or declaration is found and located."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deeploy.bringup import new
from deeploy.bringup.check import CheckedRow, Findings, check_target
from deeploy.errors import TargetError, UsageError
from deeploy.target import load
from tests.command import deeploy_cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new.write_skeleton(tmp_path / "mychip")
    return tmp_path / "mychip"


def change(path: Path, old: str, replacement: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, replacement))


def row(findings: Findings, name: str) -> CheckedRow:
    (found,) = [row for row in findings.rows if row.part == "kernel" and row.name == name]
    return found


def checked(folder: Path, name: str) -> CheckedRow:
    return row(check_target(load(folder), [name]), name)


# file, what stands there, what replaces it, the kernel, the way it fails, a part of what is said
MISTAKES = {
    "a wrong loop": ("kernels/own/own_matmul.c", "i < k->depth", "i < k->depth - 1", "own_matmul", "whole", "instead of"),
    "a row too many": ("kernels/own/own_matmul.c", "m < k->rows", "m <= k->rows", "own_matmul", "whole", "own_matmul.c:"),
    "a division by zero": ("kernels/own/own_add.c", "at = i", "at = 1 / (k->rows - k->rows) + i", "own_add", "whole", "division by zero"),
    "a type that is too small": ("kernels/own/own_matmul.c", "ACC_T sum", "int8_t sum", "own_matmul", "compile", "may change value"),
    "C that does not compile": ("kernels/own/own_clip.c", "k->count", "k->number", "own_clip", "compile", "own/own_clip.c:4"),
    "a field that is not there": ("templates/own_clip.mako", ".count =", ".number =", "own_clip", "compile", "number"),
    "a template that names nothing": ("templates/own_clip.mako", "attrs, y", "attrs, z", "own_clip", "own_clip.mako", "z"),
    "rows of the whole in a tile": ("templates/own_matmul.mako", "${y.extent[0]}", "${y.shape[0]}", "own_matmul", "tiles", "own_matmul.c:"),
    "a reduction that is cut": ("templates/own_matmul.mako", "${a.extent[1]}", "${b.shape[0]}", "own_matmul", "", ""),
    "a nest that reads too little": ("target.py", '"b": Map(n, k)', '"b": Map(k, n)', "own_matmul", "", ""),
    "a reference of something else": (
        "target.py",
        "elementwise.ADD",
        "elementwise.SUB",
        "own_add",
        "whole",
        "instead of",
    ),
    "rows that may be apart": (
        "target.py",
        "    strided={},\n)\n\nT",
        "    strided={'x': 1, 'y': 1},\n    overwrites=(),\n)\n\nT",
        "own_clip",
        "strided",
        "",
    ),
    "cores that all work for the first": (
        "templates/own_add.mako",
        ".y = ${y.ptr}",
        ".y = ${y.ptr} - (${y.first[0]}) * (${y.stride[0]})",
        "own_add",
        "tiles",
        "own_add.c:",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name: str, folder: Path) -> None:
    file, old, replacement, kernel, way, text = MISTAKES[name]
    change(folder / file, old, replacement)
    found = checked(folder, kernel)
    assert found.status == "failed", found
    assert way in found.finding and text in found.finding, found.finding


@pytest.mark.slow
def test_the_skeleton_passes_and_the_table_says_what_was_done(folder: Path) -> None:
    findings = check_target(load(folder))
    assert findings.passed
    assert {row.name for row in findings.rows if row.part in ("memory", "path")} == {"L1", "L2", "L2_L1"}
    assert row(findings, "own_matmul").runs >= 9 and "types s32 s64 s8" in row(findings, "own_matmul").finding
    assert [r.status for r in findings.rows if r.part == "timing"] == ["ok", "note"]
    assert not [r for r in findings.rows if r.part == "missing"]
    change(folder / "target.py", "kernels=(MATMUL, ADD, CLIP, *GENERIC)", "kernels=(MATMUL, ADD, CLIP)")
    again = folder.parent / "lean"
    folder.rename(again)
    (lacking,) = [r for r in check_target(load(again)).rows if r.part == "missing"]
    assert lacking.status == "note" and "Conv, ConvTranspose" in lacking.finding


@pytest.mark.slow
def test_kernels_that_nobody_measured_are_an_estimate_or_a_failure(folder: Path) -> None:
    (note,) = [r for r in check_target(load(folder), ["own_matmul"]).rows if r.part == "timing" and r.status == "note"]
    target = load(folder)
    assert target.timing is not None
    unmeasured = {kernel.name for kernel in target.kernels if target.timing.own(kernel.name, kernel.engine) is None}
    assert "own_add" in unmeasured
    assert note.finding.startswith(f"an estimate, of {len(unmeasured)} kernels: add")
    timing = folder / "timing.toml"
    timing.write_text(timing.read_text().replace("[kernel.default]", '[kernel."own_add s8"]'))
    again = folder.parent / "measured"
    folder.rename(again)
    target = load(again)
    findings = check_target(target, ["own_matmul"])
    (row,) = [r for r in findings.rows if r.part == "timing" and r.status == "failed"]
    assert not findings.passed and row.finding.startswith("no cycles for every instance of add")
    assert target.timing is not None and target.timing.kernel("own_add", ("s8", "s32")).mac == 5
    assert [target.timing.own(name, "core") is None for name in ("own_matmul", "own_add", "own_clip")] == [False, True, True]
    with pytest.raises(TargetError, match=r"no cycles of kernel own_clip \(s32\)\n.*\[kernel.own_clip\]"):
        target.timing.kernel("own_clip", ("s32",), "core")


def test_operators_of_the_target_bring_samples(folder: Path) -> None:
    change(folder / "target.py", "elementwise.CLIP", "replace(elementwise.CLIP, name='Bound', draw=None)")
    change(folder / "target.py", "from pathlib", "from dataclasses import replace\nfrom pathlib")
    assert "there are no samples of Bound" in checked(folder, "own_clip").finding
    again = folder.parent / "again"
    folder.rename(again)
    sample = "\"own/own_clip.c\",\n    samples=(Sample({'x': (3, 5)}, {'low': -4, 'high': 5}),),"
    change(again / "target.py", '"own/own_clip.c",', sample)
    change(again / "target.py", "    Target,\n", "    Sample,\n    Target,\n")
    found = checked(again, "own_clip")
    assert (found.status, found.runs >= 5) == ("ok", True)


@pytest.mark.slow
def test_kernels_of_the_compiler_pass_where_they_are_asked_for() -> None:
    """A few of every family, on integers and floats; their own tests go further."""
    target = load("generic")
    findings = check_target(target, ["conv2d_dot_grouped", "average_pool2d", "quantize", "integer_rms_norm", "mul", "arg_"])
    assert findings.passed, [r for r in findings.rows if r.status == "failed"]
    assert sum(r.runs > 0 for r in findings.rows) >= 8
    lacking = {kernel.op for kernel in target.kernels if not kernel.link and kernel.operator.draw is None}
    assert lacking.isdisjoint({"Conv", "MatMul", "MaxPool", "Add", "Softmax", "ArgMax"}), "operators that are not drawn"


@pytest.mark.parametrize(
    ("target", "prefix", "kernels"),
    [
        ("cortex_m4", "arm_", {"conv2d", "conv2d_grouped", "depthwise", "matmul", "fourier"}),
        ("rv32gcv", "rvv_", {"conv2d", "conv2d_grouped", "depthwise2d", "matmul"}),
        ("cortex_m55", "helium_", {"conv2d", "conv2d_grouped", "depthwise", "matmul", "sum", "quantize"}),
    ],
)
def test_the_kernels_of_processors_pass(target: str, prefix: str, kernels: set[str]) -> None:
    findings = check_target(load(target), [prefix])
    assert findings.passed, [r for r in findings.rows if r.status == "failed"]
    tried = {r.name: r.runs for r in findings.rows if r.part == "kernel" and r.runs}
    assert set(tried) == {prefix + kernel for kernel in kernels} and min(tried.values()) > 20


def test_names_that_no_kernel_has(folder: Path) -> None:
    with pytest.raises(UsageError, match="no kernel of mychip begins with nothing"):
        check_target(load(folder), ["nothing"])


@pytest.mark.slow
def test_the_command(folder: Path) -> None:
    command = ("target", "check", folder, "--kernel", "own_clip")
    done = deeploy_cli(*command)
    assert done.returncode == 0 and "nothing failed" in done.stdout and "own_clip" in done.stdout, done.stdout + done.stderr
    change(folder / "kernels" / "own" / "own_clip.c", "k->low", "k->high")
    done = deeploy_cli(*command, "--json")
    assert done.returncode == 1
    contents = json.loads(done.stdout)
    assert not contents["passed"] and {r["status"] for r in contents["rows"] if r["name"] == "own_clip"} == {"failed"}
