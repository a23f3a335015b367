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

from tests.models import save_graph

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
    save_graph(graph, tree / "hardmax.onnx")
    result = deeploy(tree, "verify", "hardmax.onnx", "--target", "siracusa")
    return result.returncode == 0 and result.stdout.count("y: ok, 100.00% equal") == 2  # the interpreter and onnxruntime


HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "my.domain" : 1]> '
TRIED = """
import sys
import numpy as np
import onnx
import deeploy
onnx.save(onnx.parser.parse_model(sys.argv[1]), "m.onnx")
rng = np.random.default_rng(1)
{code}
np.testing.assert_allclose(deeploy.compile("m.onnx").run(inputs)[0], expected, atol=1e-5)
"""


def computes(model: str, code: str) -> Callable[[Path], bool]:
    """Whether a model, in the text form of the onnx package, computes what Python code that gives it ``inputs`` says is ``expected``."""

    def is_done(tree: Path) -> bool:
        command = [sys.executable, "-c", TRIED.format(code=code), HEAD + model]
        return subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True).returncode == 0

    return is_done


def negations_are_gone(tree: Path) -> bool:
    model = "g (float[2] x) => (float[2] y) { a = Neg(x) b = Neg(a) y = Exp(b) }"
    onnx.save(onnx.parser.parse_model(HEAD + model), tree / "m.onnx")
    return "Neg" not in deeploy(tree, "inspect", "m.onnx", "--after", "decompose").stdout


def variant_is_right(tree: Path) -> bool:
    result = deeploy(tree, "target", "check", "siracusa", "--kernel", "pulp_conv2d_threes", "--samples", "4")
    return result.returncode == 0 and re.search(r"pulp_conv2d_threes\s+ok", result.stdout) is not None


def limit_is_kept(tree: Path) -> bool:
    """Whether the walk counts the transfers that the C begins on the model of the machine, which checks the limit."""
    tried = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/execution/simulation/test_walk.py",
        "-k",
        "host_model_counts",
    ]
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
SUM = '''@declares("BiasAdd", rank=1)
def biased_sum(x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    """The sum of two tensors and of an element for each column."""
    return x + bias + skip


'''
DISTANCES = '''@declares("CDist", "metric: string euclidean|sqeuclidean")
def distances(a: Tensor, b: Tensor, *, metric: str = "") -> Tensor:
    """The distance between every row of one matrix and every row of another one."""
    d = a.reshape([a.shape[0], 1, a.shape[1]]) - b
    squares = (d * d).reduce("Sum", 2, keepdims=0)
    return squares if metric == "sqeuclidean" else squares.apply("Sqrt")


'''
UNIT = '''@declares("MinimalGatedUnit", domain="my.domain", rank=2)
def minimal_unit(x: Tensor, weights: Tensor, recurrence: Tensor) -> Tensor:
    """The last state: h becomes h + f * (tanh(W x + U (f * h)) - h), where f is the sigmoid of W x + U h."""
    h, products = constant(np.zeros((1, recurrence.shape[0]), np.float32)), x @ weights
    for step in range(x.shape[0]):
        p = products.cut(0, step, step + 1)
        f = (p + h @ recurrence).apply("Sigmoid")
        h = h + f * ((p + (f * h) @ recurrence).apply("Tanh") - h)
    return h


'''
STATES = """
inputs = x, w, u = [rng.standard_normal(shape).astype(np.float32) for shape in ((5, 2), (2, 3), (3, 3))]
expected = np.zeros((1, 3))
for p in x @ w:
    f = 1 / (1 + np.exp(-(p + expected @ u)))
    expected = expected + f * (np.tanh(p + (f * expected) @ u) - expected)
"""
QUANTISED_TANH = '    "QLinearTanh": vendor_record(4, 5, _one_scale, form=QuantisedForm("Tanh")),\n'
TWICE = '''@standard("Neg", kind="f")
def twice(x: Tensor) -> Result:
    """What is negated twice is what it was."""
    return need(x.made_by("Neg")).operands[0]


'''
NORMS = '@standard("LpNormalization", kind="f")'
TYPES = "from deeploy.ir.rewriting import Match, Pass, Result, need, require, standard\n"
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
            Edit("deeploy/frontend/lower/decompose.py", " decompose_normalisation,", " decompose_normalisation, hardmax,"),
            Edit("deeploy/frontend/lower/decompose.py", TYPES, TYPES + "from deeploy.ir.types import DType\n"),
        ),
        1,
        hardmax_is_right,
    ),
    "elementwise": Exercise(
        (Edit("deeploy/frontend/expand/products.py", '@declares("BiasGelu"', f'{SUM}@declares("BiasGelu"'),),
        1,
        computes(
            "g (float[2,3] x, float[3] b, float[2,3] s) => (float[2,3] y) { y = com.microsoft.BiasAdd(x, b, s) }",
            "inputs = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3), (3,), (2, 3))]; expected = sum(inputs)",
        ),
    ),
    "irregular": Exercise(
        (
            Edit("deeploy/frontend/expand/indexing.py", '@expands("Compress")', f'{DISTANCES}@expands("Compress")'),
            Edit("deeploy/frontend/expand/indexing.py", "Results, expands", "Results, declares, expands"),
        ),
        1,
        computes(
            'g (float[3,4] a, float[2,4] b) => (float[3,2] y) { y = com.microsoft.CDist <metric = "euclidean"> (a, b) }',
            "inputs = a, b = [rng.standard_normal((n, 4)).astype(np.float32) for n in (3, 2)]; "
            "expected = np.linalg.norm(a[:, None] - b, axis=2)",
        ),
    ),
    "recurrent": Exercise(
        (Edit("deeploy/frontend/expand/recurrent.py", "@expands(*_STEPS)", f"{UNIT}@expands(*_STEPS)"),),
        1,
        computes("g (float[5,2] x, float[2,3] w, float[3,3] u) => (float[1,3] y) { y = my.domain.MinimalGatedUnit(x, w, u) }", STATES),
    ),
    "quantised form": Exercise(
        (Edit("deeploy/frontend/vendors.py", '    "QLinearSigmoid"', f'{QUANTISED_TANH}    "QLinearSigmoid"'),),
        1,
        computes(
            "g (uint8[2,3] x) => (uint8[2,3] y) <float s = {0.0625}, uint8 z = {128}, float t = {0.0078125}>"
            "{ y = com.microsoft.QLinearTanh(x, s, z, t, z) }",
            "inputs = [rng.integers(0, 256, (2, 3)).astype(np.uint8)]; "
            "expected = np.clip(np.rint(np.tanh((inputs[0] - 128.0) / 16) * 128) + 128, 0, 255)",
        ),
    ),
    "rewrite": Exercise(
        (
            Edit("deeploy/frontend/lower/decompose.py", NORMS, TWICE + NORMS),
            Edit("deeploy/frontend/lower/decompose.py", " decompose_normalisation,", " decompose_normalisation, twice,"),
        ),
        1,
        negations_are_gone,
    ),
    "variant": Exercise(
        (Edit("targets/siracusa/kernels.py", PAIRS, THREES + PAIRS), Edit("targets/siracusa/timing.toml", TIMED, TIMING + TIMED)),
        2,
        variant_is_right,
    ),
    "limit": Exercise(
        (
            Edit("deeploy/ir/target.py", "    alignment: int = 1\n    near", "    alignment: int = 1\n    min_row: int = 16\n    near"),
            Edit("deeploy/execution/simulation/boxes.py", "if rows > 1 and run <=", "if rows > 1 and path.min_row <= run <="),
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
