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
from deeploy.driver.request import Request

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


def printed(case: Case, folder: Path) -> str:
    head = f'<ir_version: {IR_VERSION}, opset_import: ["" : {OPSET}, "com.microsoft" : 1, "qonnx.custom_op.general" : 2]>\n'
    onnx.save(onnx.parser.parse_model(head + case.model), folder / "m.onnx")
    return str(graph_after(folder / "m.onnx", registry.load(case.target), case.step, Request()))


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
