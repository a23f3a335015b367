"""The notebook in ``examples`` runs from its top to its bottom, and shows what it says."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "digits"


@pytest.mark.slow
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("sklearn")
    monkeypatch.chdir(FOLDER)
    monkeypatch.syspath_prepend(str(FOLDER))
    cells = json.loads((FOLDER / "notebook.ipynb").read_text())["cells"]
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for source in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
        *before, last = ast.parse(source).body
        exec(compile(ast.Module(before, []), "notebook", "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), names))
        else:
            exec(compile(ast.Module([last], []), "notebook", "exec"), names)
    operators, nodes, compiled, advice, cycles, passed, _ = shown
    assert operators["Conv"] == 3 and nodes > 20 and "plan" in names["stages"]
    assert "What would help" in compiled._repr_html_() and repr(compiled).startswith("<Compiled model.onnx for siracusa")
    assert advice and cycles[0] > cycles[1] > 0 and passed is True
    assert min(dict(names["accuracy"].values).values()) > 0.95
