"""What passes make of graphs, as text: cases of ``passes/*.txt``, a file for each family of rules.

A case is a title behind ``#``, a model in the text form of the onnx package, ``-- PASS`` or ``-- PASS TARGET``, and the graph behind that
pass. ``UPDATE=1 make test`` writes what comes out now into the files, for a review to read.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest

from deeploy import target as registry
from deeploy.driver.lower import graph_after
from deeploy.frontend.lower import passes
from deeploy.ir import rewriting
from deeploy.options import Options
from tests.command import deeploy_cli

FOLDER = Path(__file__).parent / "passes"
IR_VERSION, OPSET = 10, 17


class Case(NamedTuple):
    file: Path
    title: str
    model: str
    step: str
    target: str
    printed: str

    @property
    def text(self) -> str:
        behind = self.step if self.target == "generic" else f"{self.step} {self.target}"
        return f"# {self.title}\n{self.model}-- {behind}\n{self.printed}"


def read_cases(file: Path) -> list[Case]:
    found = []
    for part in re.split(r"^# ", file.read_text(), flags=re.MULTILINE)[1:]:
        title, rest = part.split("\n", 1)
        model, after = re.split(r"^-- ", rest, flags=re.MULTILINE)
        line, printed = after.split("\n", 1)
        step, target = [*line.rsplit(" ", 1), "generic"][:2] if line.rsplit(" ", 1)[-1] in registry.names() else (line, "generic")
        found.append(Case(file, title, model, step, target, printed))
    return found


CASES = [case for file in sorted(FOLDER.glob("*.txt")) for case in read_cases(file)]


def write(case: Case, folder: Path) -> Path:
    others = '"com.microsoft" : 1, "qonnx.custom_op.general" : 2, "deeploy.tflite" : 1'
    head = f'<ir_version: {IR_VERSION}, opset_import: ["" : {OPSET}, {others}]>\n'
    onnx.save(onnx.parser.parse_model(head + case.model), folder / "m.onnx")
    return folder / "m.onnx"


def printed(case: Case, folder: Path) -> str:
    return str(graph_after(write(case, folder), registry.load(case.target), case.step, Options()))


@pytest.mark.parametrize("case", CASES, ids=[f"{case.file.stem}: {case.title}" for case in CASES])
def test_a_pass_makes_this_of_a_graph(case: Case, tmp_path: Path) -> None:
    now = printed(case, tmp_path)
    if os.environ.get("UPDATE"):
        case.file.write_text(
            case.file.read_text().replace(case.text, case._replace(printed=now + "\n" * case.printed.endswith("\n\n")).text)
        )
        return
    assert now.strip() == case.printed.strip()


def test_every_case_is_read() -> None:
    assert len(CASES) == sum(line.startswith("# ") for file in FOLDER.glob("*.txt") for line in file.read_text().splitlines()) >= 20


def test_titles_say_different_things() -> None:
    titles = [(case.file.stem, case.title) for case in CASES]
    assert len(set(titles)) == len(titles)


FIRST = {case.step: case for case in reversed(CASES)}


def test_every_rule_is_applied_in_a_case_of_its_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, applied, apply = set[tuple[str, str]](), set[str](), rewriting._apply_rule

    def watched(rule: rewriting.Rule, match: rewriting.Match) -> rewriting.Result:
        result = apply(rule, match)
        if result is not None:
            applied.add(f"{rule.name} of {sorted(rule.ops)}")
        return result

    monkeypatch.setattr(rewriting, "_apply_rule", watched)
    for case in CASES:
        applied.clear()
        printed(case, tmp_path)
        shown |= {(case.step, name) for name in applied}
    rules = {(step.name, f"{rule.name} of {sorted(rule.ops)}") for step in passes(has_near_memory=True) for rule in step.rules}
    assert rules - shown == set()


@pytest.mark.parametrize("step", [step.name for step in passes(has_near_memory=True)])
def test_the_command_prints_the_graph_behind_a_pass(step: str, tmp_path: Path) -> None:
    case = FIRST[step]
    done = deeploy_cli("inspect", write(case, tmp_path), "--after", step, "--target", case.target)
    assert (done.returncode, done.stdout.strip()) == (0, case.printed.strip())
