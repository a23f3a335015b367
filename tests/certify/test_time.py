"""No branch, loop bound or division of a kernel depends on data, unless the kernel declares that (``data_dependent``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pycparser", reason="needs pycparser (pip install 'deeploy[prove]')")

import deeploy
from deeploy import target as targets
from deeploy.bringup.alone import include_options, write_program
from deeploy.bringup.cases import draw_cases
from deeploy.ir.kernel import Kernel
from deeploy.ir.target import Target
from tests.certify.taint import find_dependences, preprocess
from tests.certify.test_prove import small

TARGET: Target = targets.load("generic")
FAST = ("conv2d", "conv2d_dot", "matmul_dot", "depthwise2d", "table_softmax", "scaled_sum", "integer_div", "clip")
FUNCTIONS = 24  # cases among which are all functions of a kernel that has several
# Where a source is walked that some instances do not run: file and function, and why nothing depends on data there.
EXCUSED = {
    ("binary.c", "combine"): "of its operations, only that of Div divides, which declares it",
    ("reduce.c", "result"): "of its operations, only that of the mean divides, which declares it",
    ("gather.c", "gather_packed"): "both ends of the loop move with the row that is chosen: it has as many rounds",
}


def dependences(kernel: Kernel, folder: Path, changes: Sequence[tuple[str, str]] = ()) -> set[str]:
    """What depends on data in the instances of some cases without floats; ``changes`` are made in their C."""
    cases = draw_cases(kernel, 2)
    if "function" in cases[0].node.attrs:  # one of each
        cases = list({case.node.attrs["function"]: case for case in draw_cases(kernel, FUNCTIONS)}.values())
    drawn = [case for case in cases if not any(t.dtype.is_float for t in (*case.node.operands, *case.node.outputs))]
    if not drawn:
        return set()
    program, found = write_program(kernel, TARGET, drawn, folder), set[str]()
    for name, instance in program.instances.items():
        text = preprocess(folder / f"{name}.c", include_options(kernel, TARGET, program, folder), folder)
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        for kind, place in find_dependences(text, instance.name):
            function, where = place.split(": ")
            is_excused = not kernel.data_dependent and any(where.startswith(file) and function.startswith(start) for file, start in EXCUSED)
            found |= {f"{kind} in {place}"} if kind != "address" and not is_excused else set()
    return found


@pytest.mark.parametrize("kernel", [k for k in TARGET.kernels if k.name in FAST], ids=lambda kernel: kernel.name)
def test_kernels_declare_what_depends_on_data(kernel: Kernel, tmp_path: Path) -> None:
    assert bool(dependences(kernel, tmp_path)) == bool(kernel.data_dependent)


@pytest.mark.slow
def test_all_kernels_declare_what_depends_on_data(tmp_path: Path) -> None:
    undeclared, walked = list[tuple[str, set[str]]](), 0
    for number, kernel in enumerate(TARGET.kernels):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = dependences(kernel, folder)
        if any(folder.iterdir()):
            walked += 1
            undeclared += [(kernel.name, found)] if bool(found) != bool(kernel.data_dependent) else []
    assert undeclared == []
    assert walked > 50


@pytest.mark.parametrize(
    ("name", "before", "after", "kind"),
    [
        (
            "clip",
            "for (int i = 0; i < k->extent[(6 - 1)]; i++) {",
            "for (int i = 0; i < k->extent[5]; i++) { if (x[i] == 0) continue;",
            "branch",
        ),
        ("conv2d_dot", "vector[i] = x[i];", "{ vector[i] = x[i]; while (vector[i] > 9) vector[i]--; }", "loop"),
        ("matmul_dot", "acc[j] += s;", "acc[j] += s / acc[j];", "division"),
        ("depthwise2d", "const int rest = multiplier", "if (acc[0]) return; const int rest = multiplier", "branch"),
    ],
    ids=["clip", "conv2d_dot", "matmul_dot", "depthwise2d"],
)
def test_what_is_seeded_is_found(name: str, before: str, after: str, kind: str, tmp_path: Path) -> None:
    kernel = next(k for k in TARGET.kernels if k.name == name)
    found = dependences(kernel, tmp_path, [(before, after)])
    assert any(text.startswith(f"{kind} in ") for text in found), found


def test_networks_branch_on_no_data(tmp_path: Path) -> None:
    files = deeploy.compile(small(tmp_path)).sources()
    for path, text in files.items():
        if isinstance(text, str) and path.endswith((".c", ".h")):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text, encoding="utf-8")
    text = preprocess(tmp_path / "src/network.c", [f"-I{tmp_path / folder}" for folder in ("include", "kernels/portable", "src")], tmp_path)
    layers = re.findall(r"^static void (layer_\w+)", text, re.MULTILINE)

    def kinds(text: str) -> set[str]:
        return {kind for layer in layers for kind, _ in find_dependences(text, layer, ["inputs", "outputs", "arena"])}

    assert len(layers) == 10 and kinds(text) <= {"function", "address"}  # calls of kernels, and where the arena is
    for branched in (
        re.sub(r"(\*const y = .*;)", r"\1 if (y[0]) return;", text),
        re.sub(r"(\*const x = self->inputs.*;)", r"\1 if (x[0]) return;", text),
    ):
        assert kinds(branched) > {"branch"}
