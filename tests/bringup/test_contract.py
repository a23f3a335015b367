"""The contract test of kernels: every one over the freedom that its declaration gives the planner, and defects that it finds."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from deeploy.bringup import new
from deeploy.bringup.cases import draw_cases
from deeploy.bringup.check import CheckedRow, check_target
from deeploy.bringup.runs import draw_access, element_indices
from deeploy.ir.nest import dense_strides
from deeploy.operators import link
from deeploy.operators.table import OPERATORS
from deeploy.target import Target, load
from tests.command import deeploy_cli

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples" / "targets").glob("*/*/target.py"))
REPLACED = ("lstm", "gru", "rnn", "integer_lstm", "integer_gru", "integer_rnn", "scaled_sum")
GROUPS = ("abc", "defghijklm", "n", "p", "oqrstuvwxyz")  # of kernels by their first letters, that take about as long as each other


def tried(target: Target, names: tuple[str, ...], samples: int, seed: int) -> None:
    """Every kernel but those of links is run, in as many variants as random nodes allow, and equals its reference."""
    findings = check_target(target, names, True, samples, seed)
    assert findings.passed, [row for row in findings.rows if row.status == "failed"]
    alone = sorted(k.name for k in target.kernels if k.name.startswith(names) and not k.link)
    assert sorted(row.name for row in findings.rows if row.part == "kernel" and row.runs) == alone
    contents = findings.contents()
    assert contents["kernels"] == len(alone) <= contents["variants"] <= contents["cases"]
    assert contents["cases"] >= 2 * samples * len(alone)


def test_siracusa_has_the_kernels_of_generic() -> None:
    """So that what is tried there is tried for both; recurrent layers have kernels for teams in their place, a sum one in SIMD."""
    own, portable = (
        {(k.name, k.op, k.source, k.call, json.dumps(sorted((n, sorted(t.value for t in s)) for n, s in k.types.items())))
         for k in load(name).kernels if not (k.link or k.packs or k.name in REPLACED)}
        for name in ("siracusa", "generic")
    )  # fmt: skip
    assert portable <= own and len(portable) > 60
    tried(load("generic"), REPLACED, samples=2, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("name", ["generic", "siracusa", *map(str, EXAMPLES)])
@pytest.mark.parametrize("group", GROUPS)
def test_every_kernel_of_every_target(group: str, name: str, seed: int) -> None:
    tried(load(name), tuple(group), samples=8, seed=seed)


def test_products_that_are_too_large_wrap_around() -> None:
    """Of whole numbers, as those of NumPy; a signed overflow would end the program."""
    tried(load("generic"), ("reduce_prod_wide",), samples=8, seed=0)


def test_a_table_has_elements_that_the_result_holds() -> None:
    (lookup,) = (kernel for kernel in load("generic").kernels if kernel.name == "lookup")
    for case in draw_cases(lookup, 60, 5):
        table, y = case.node.inputs[1], case.node.outputs[0]
        assert table is not None and (table.dtype == y.dtype or y.dtype.holds(*table.dtype.range))
        assert table.dtype.is_float == y.dtype.is_float


class Defect(NamedTuple):
    """A change of a file of the skeleton or of a copy of the compiler's, the kernel that it is in, and what is said."""

    file: str
    old: str
    new: str
    kernel: str
    said: str


STRIDED_MATMUL = ("target.py", "    strided={},\n)\nADD", '    strided={"a": 1, "y": 1},\n)\nADD')
DEFECTS = {
    "a template that takes a strided axis for a packed one": Defect(
        "templates/binary.mako", "a=a, b=b, y=y)", "a=a, b=b, y=replace(y, dense=0))", "sub", "strided"
    ),
    "a template that ignores a stride": Defect(
        "templates/own_matmul.mako", ".y_row = ${y.stride[0]}", ".y_row = ${y.extent[1]}", "own_matmul", "strided"
    ),
    "a kernel that ignores a stride": Defect("kernels/own/own_matmul.c", "m * k->a_row", "m * k->depth", "own_matmul", "strided"),
    "an element between rows": Defect(
        "kernels/own/own_matmul.c",
        "        const A_T *const a =",
        "        if (m + 1 < k->rows) ((Y_T *)k->y)[m * k->y_row + k->columns] = 0;\n        const A_T *const a =",
        "own_matmul",
        "it wrote between or before the elements of y",
    ),
    "an element behind the last one": Defect(
        "kernels/own/own_clip.c", "    for (int i", "    ((Y_T *)k->y)[k->count] = 0;\n    for (int i", "own_clip", "own_clip.c:4"
    ),
    "an element before the first one": Defect(
        "kernels/own/own_clip.c", "    for (int i", "    ((Y_T *)k->y)[-1] = 0;\n    for (int i", "own_clip", "own_clip.c:4"
    ),
    "an input that is changed": Defect(
        "kernels/own/own_matmul.c", "    for (int m", "    *(A_T *)k->a ^= 1;\n    for (int m", "own_matmul", "it wrote into its input a"
    ),
    "an input that is changed behind its last use": Defect(
        "kernels/own/own_clip.c",
        "        ((Y_T",
        "        if (i + 1 == k->count && k->x != k->y) ((X_T *)k->x)[i] ^= 1;\n        ((Y_T",
        "own_clip",
        "it wrote into its input x",
    ),
    "an output that is written before the input is read": Defect(
        "kernels/own/own_clip.c", "        const int32_t", "        ((Y_T *)k->y)[i] = 0;\n        const int32_t", "own_clip", "in place"
    ),
    "words where there are elements": Defect(
        "kernels/own/own_clip.c",
        "    for (int i",
        "    volatile uint32_t word = 0;\n    if (k->count >= 4) word = *(const uint32_t *)k->x;\n    (void)word;\n    for (int i",
        "own_clip",
        "misaligned address",
    ),
    "cores that all do the part of the first": Defect(
        "templates/own_add.mako", ".a = ${a.ptr}", ".a = ${a.ptr} - (${a.first[0]}) * (${a.stride[0]})", "own_add", "own_add.c:"
    ),
    "rows that do not exist yet": Defect(
        "templates/own_clip.mako", "${product(y.extent)}", "${product(y.extent[1:])} * ${y.shape[0]}", "own_clip", "own_clip.c:"
    ),
    "a requantisation by the first channel's factor": Defect(
        "kernels/own/own_matmul.c", "finish(sum, &k->epilogue, n)", "finish(sum, &k->epilogue, 0)", "own_matmul", "instead of"
    ),
    "a last axis of one element": Defect(
        "kernels/own/own_add.c", "const int at = i", "const int at = (k->columns != 1) * i", "own_add", "instead of"
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_defects_are_found(name: str, tmp_path: Path) -> None:
    defect, folder = DEFECTS[name], tmp_path / "chip"
    new.write_skeleton(folder)
    (folder / "templates" / "binary.mako").write_text(
        "<%! from dataclasses import replace %>\\\n" + (ROOT / "templates" / "binary.mako").read_text()
    )
    changes = [defect[:3], *([STRIDED_MATMUL] if defect.kernel == "own_matmul" else [])]
    for file, old, replacement in changes:
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, replacement))
    found = [
        row for row in check_target(load(folder), [defect.kernel], samples=12).rows if row.part == "kernel" and row.name == defect.kernel
    ]
    assert any(row.status == "failed" and defect.said in row.finding for row in found), found


@pytest.mark.parametrize("kernel", ["own_matmul", "own_add"])
def test_the_same_without_a_defect(kernel: str, tmp_path: Path) -> None:
    new.write_skeleton(tmp_path / "chip")
    file, old, replacement = STRIDED_MATMUL
    path = tmp_path / "chip" / file
    path.write_text(path.read_text().replace(old, replacement))
    (found,) = [row for row in check_target(load(tmp_path / "chip"), [kernel], samples=8).rows if row.part == "kernel"]
    assert found.status == "ok", found


def test_a_kernel_that_no_sample_fits_is_an_error(tmp_path: Path) -> None:
    new.write_skeleton(tmp_path / "chip")
    path = tmp_path / "chip" / "target.py"
    path.write_text(path.read_text().replace("    requires=same_types,", '    requires=lambda node: "something else",'))
    (found,) = [row for row in check_target(load(tmp_path / "chip"), ["own_clip"]).rows if row.part == "kernel"]
    assert found == CheckedRow("kernel", "own_clip", "failed", 0, found.finding)
    assert "it accepts none of the samples of Clip" in found.finding


@pytest.mark.slow
def test_the_figures_are_printed(tmp_path: Path) -> None:
    command = ("target", "check", "generic", "--kernel", "select", "--samples", "2", "--seed", "7")
    done = deeploy_cli(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    again = deeploy_cli(*command, "--json")
    contents = json.loads(again.stdout)
    (row,) = [row for row in contents["rows"] if row["part"] == "kernel"]
    assert (contents["kernels"], contents["variants"], contents["cases"]) == (1, row["variants"], row["runs"])
    assert (contents["samples"], contents["seed"]) == (2, 7) and row["runs"] > row["variants"] > 1
    assert f"1 kernels, {row['variants']} variants of their C, {row['runs']} cases (2 random nodes each, seed 7)" in done.stdout


def test_a_seed_says_which_nodes() -> None:
    kernel = next(k for k in load("generic").kernels if k.name == "conv2d")
    first, second, other = ([str(case) for case in draw_cases(kernel, 6, seed)] for seed in (1, 1, 2))
    assert first == second != other and len(set(first + other)) == 12


def test_every_operator_that_computes_is_drawn() -> None:
    assert {op for op, operator in OPERATORS.items() if operator.draw} == set(OPERATORS) - {link.SEND, link.RECV}


def test_where_operands_lie() -> None:
    """Trailing axes are packed, no two elements are at one place, and outer axes, orders and offsets vary."""
    rng, seen = random.Random(0), set()
    for _ in range(300):
        shape = tuple(rng.choice((1, 2, 3, 5)) for _ in range(rng.randint(1, 4)))
        dense = rng.randint(0, len(shape))
        access = draw_access(shape, dense, rng)
        assert access.dense_axes() >= dense
        places = element_indices(access)
        assert len(np.unique(places)) == math.prod(shape) and places.min() == access.offset >= 0
        seen |= {("dense", access.is_dense), ("offset", access.offset > 0), ("order", list(access.strides) == sorted(access.strides)[::-1])}
        seen |= {("one", any(n == 1 and s != d for n, s, d in zip(shape, access.strides, dense_strides(shape), strict=True)))}
    assert seen == {(what, value) for what in ("dense", "offset", "order", "one") for value in (False, True)}
