"""The page of real models is whole, and the command that writes it does so for any folder."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks import models
from tests.models import save_graph

ROOT = Path(__file__).resolve().parents[2]
STATUS = re.compile(r"(agrees|equals the interpreter)(, constants in L3)?$")


def rows(text: str) -> list[list[str]]:
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return [row for row in found if len(row) == 7 and row[0] != "model"]


def test_every_model_of_the_page_agrees() -> None:
    found = rows((ROOT / "benchmarks" / "models.md").read_text())
    assert len({row[0] for row in found}) >= 14 and {row[1] for row in found} == {"as it is", "int8"}
    assert [row[0] for row in found if not (STATUS.match(row[2]) and STATUS.match(row[4]) and row[5])] == []


def test_a_row_measured(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    random, folder = np.random.default_rng(0), tmp_path / "small"
    folder.mkdir()
    w = numpy_helper.from_array(random.normal(size=(4, 3, 3, 3)).astype(np.float32), "w")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", c, 8, 8]) for n, c in (("x", 3), ("y", 4))]
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [w])
    save_graph(graph, folder / "network.onnx")
    (folder / "dims.json").write_text('{"batch": 1}')
    np.savez(folder / "inputs.npz", x=random.normal(size=(2, 1, 3, 8, 8)).astype(np.float32))
    np.savez(folder / "calib.npz", x=random.normal(size=(4, 3, 8, 8)).astype(np.float32))
    models.main([str(folder), "--write", str(tmp_path / "page.md")])
    found = rows((tmp_path / "page.md").read_text())
    assert [row[:3] for row in found] == [["small", form, "agrees"] for form in ("as it is", "int8")]
    assert all(row[4] == "agrees" and int(row[5].replace(" ", "")) > 1000 for row in found)
