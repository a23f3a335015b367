"""What rules make of a streamed axis, and what they refuse, as text: cases of the files beside this one.

A case is one of ``tests/frontend/test_passes.py``, behind ``-- INPUT.AXIS[=HOP] [window]``, and the graph of a call with the delay, the
new columns and the period of every output; or the two lines of the error. ``UPDATE=1`` writes what comes out now.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deeploy.errors import DeeployError
from deeploy.frontend import import_model
from deeploy.frontend.streaming import stream_graph
from deeploy.frontend.streaming.rules import RULES
from deeploy.options.texts import parse_stream
from tests.frontend.test_passes import Case, read_cases, write

FOLDER = Path(__file__).parent
CASES = [case for file in sorted(FOLDER.glob("*.txt")) for case in read_cases(file)]


def print_streamed(case: Case, folder: Path) -> str:
    wanted, *mode = case.step.split()
    try:
        streamed = stream_graph(import_model(write(case, folder)), parse_stream(wanted), mode == ["window"])
    except DeeployError as error:
        return f"{error}\n"
    outputs = [
        f"{out.name}: axis {out.axis}, {out.columns} columns, delay {out.delay}, new in one of {out.calls} calls"
        for out in streamed.stream.outputs
    ]
    heads = [f"window: {', '.join(streamed.stream.heads)}"] if streamed.stream.heads else []
    return "\n".join([str(streamed.graph).rstrip(), *outputs, *heads, ""])


@pytest.mark.parametrize("case", CASES, ids=[f"{case.file.stem}: {case.title}" for case in CASES])
def test_a_stream_makes_this_of_a_graph(case: Case, tmp_path: Path) -> None:
    now = print_streamed(case, tmp_path)
    if os.environ.get("UPDATE"):
        case.file.write_text(case.file.read_text().replace(case.text, case._replace(printed=now).text))
        return
    assert now.strip() == case.printed.strip()


def test_every_rule_has_a_case() -> None:
    text = "".join(case.model for case in CASES)
    by_rule = {rule: [op for op, one in RULES.items() if one is rule] for rule in RULES.values()}
    assert not [rule.__name__ for rule, ops in by_rule.items() if not any(f"{op} (" in text or f"{op} <" in text for op in ops)]
