"""The exercises of CONTRIBUTING.md, done on a copy of the tree: what they ask for works, in as many files as the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("deeploy", "targets", "kernels", "templates", "tests", "examples", "pyproject.toml")


class Edit(NamedTuple):
    """``old`` becomes ``new`` wherever it stands in the file."""

    file: str
    old: str
    new: str


class Exercise(NamedTuple):
    edits: tuple[Edit, ...]
    files: int
    is_done: Callable[[Path], bool]


def deeploy(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deeploy", *arguments]
    return subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True)


def hardmax_is_right(tree: Path) -> bool:
    shape = [3, 4, 5]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Hardmax", ["x"], ["y"], axis=1)], "graph", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tree / "hardmax.onnx")
    result = deeploy(tree, "verify", "hardmax.onnx", "--target", "siracusa")
    return result.returncode == 0 and result.stdout.count("y: ok, 100.00% equal") == 2  # the interpreter and onnxruntime


def variant_is_right(tree: Path) -> bool:
    result = deeploy(tree, "target", "check", "siracusa", "--kernel", "pulp_conv2d_threes", "--samples", "4")
    return result.returncode == 0 and re.search(r"pulp_conv2d_threes\s+ok", result.stdout) is not None


def limit_is_kept(tree: Path) -> bool:
    """Whether the walk counts the transfers that the C begins on the model of the machine, which checks the limit."""
    tried = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/simulate/test_walk.py", "-k", "host_model_counts"]
    result = subprocess.run(tried, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True)
    return result.returncode == 0 and "min_row 16" in deeploy(tree, "target", "check", "siracusa", "--kernel", "clip").stdout


HARDMAX = '''@standard("Hardmax", kind="f")
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """One at the first of the largest elements along an axis."""
    places = np.arange(x.shape[axis])
    single = [1 if i == axis % x.rank else n for i, n in enumerate(x.shape)]
    first = x.apply("ArgMax", axis=axis % x.rank, keepdims=1, select_last_index=0, shape=single, dtype=DType.INT64)
    return first.apply("Equal", places.reshape([-1 if i == axis % x.rank else 1 for i in range(x.rank)])).cast(x.dtype)


'''
NORMS = '@standard("LpNormalization", kind="f")'
TYPES = "from deeploy.graph.rewriting import Match, Pass, Result, need, require, standard\n"
PAIRS = '    _few_windows("pulp_conv2d_pairs", 2, "two for every core fit"),'
THREES = '    _few_windows("pulp_conv2d_threes", 3, "three for every core fit"),\n'
TIMED = '[kernel."pulp_conv2d_pairs runs narrow"]'
TIMING = '[kernel."pulp_conv2d_threes"]\ncall = 983\nmac = 0.4\noutput = 0\nprovenance = "a guess"\n\n'
TOO_SHORT = """    if (t->rows > 1 && t->bytes < e->min_row)
        host_violation("Rows are long enough.", "%s: %" PRIu32 " bytes", e->name, t->bytes);
"""
EXERCISES = {
    "operator": Exercise(
        (
            Edit("deeploy/frontend/lower/decompose.py", NORMS, HARDMAX + NORMS),
            Edit("deeploy/frontend/lower/decompose.py", " normalise,", " normalise, hardmax,"),
            Edit("deeploy/frontend/lower/decompose.py", TYPES, TYPES + "from deeploy.graph.types import DType\n"),
        ),
        1,
        hardmax_is_right,
    ),
    "variant": Exercise(
        (Edit("targets/siracusa/kernels.py", PAIRS, THREES + PAIRS), Edit("targets/siracusa/timing.toml", TIMED, TIMING + TIMED)),
        2,
        variant_is_right,
    ),
    "limit": Exercise(
        (
            Edit("deeploy/graph/target.py", "    alignment: int = 1\n    near", "    alignment: int = 1\n    min_row: int = 16\n    near"),
            Edit("deeploy/simulate/boxes.py", "if rows > 1 and run <=", "if rows > 1 and path.min_row <= run <="),
            Edit("kernels/hal/deeploy_rt.h", "    uint32_t max_rows;", "    uint32_t min_row;   /* bytes */\n    uint32_t max_rows;"),
            Edit("kernels/hal/deeploy_box.c", "if (rows > 1 && bytes <=", "if (rows > 1 && bytes >= e->min_row && bytes <="),
            Edit("kernels/hal/deeploy_box.c", "(rows <= e->max_rows &&", "(bytes >= e->min_row && rows <= e->max_rows &&"),
            Edit("kernels/hal/host/transfers.c", '    check_limit(e, "rows,"', TOO_SHORT + '    check_limit(e, "rows,"'),
        ),
        5,
        limit_is_kept,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_can_be_done_as_the_page_says(name: str, tmp_path: Path) -> None:
    exercise = EXERCISES[name]
    for part in COPIED:
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, tmp_path / part)
    assert not exercise.is_done(tmp_path)
    for edit in exercise.edits:
        text = (tmp_path / edit.file).read_text()
        assert edit.old in text, edit
        (tmp_path / edit.file).write_text(text.replace(edit.old, edit.new))
    assert exercise.is_done(tmp_path)
    assert len({edit.file for edit in exercise.edits}) == exercise.files
    numbers = ("no file", "one file", "two files", "three files", "four files", "five files")
    assert re.search(rf"\d\. {name}:[^:]*: {numbers[exercise.files]}", (ROOT / "CONTRIBUTING.md").read_text(), re.IGNORECASE)
