"""Fused groups in the report, in explanations and in the timeline: what was taken and why, and what was not, with the figures of the
plan."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.backend import project
from deeploy.report import explain_layer as why
from deeploy.report import terminal
from deeploy.report.text import format_number
from tests.models import save_graph
from tests.report.browser import Document, shown
from tests.schedule.test_managed_fused_groups import Quantised


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chains")
    one = Quantised()
    y = one.block(one.conv("x", 3, 8, 3, 2), 8)
    model = one.save(folder / "model.onnx", y, [1, 3, 56, 40], [1, 8, 28, 20])
    deeploy.compile(model, target="siracusa", memory={"l1": 28_000}, objective="traffic").write(folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def entry(out: Path) -> Any:
    return project.select_network(project.read_manifest(out))


def test_explanations_name_the_chain_and_what_it_saves(out: Path, entry: Any) -> None:
    """A layer of a fused group says what that takes instead; another one why it is in none; both with the plan's own figures."""
    taken = [choice for choice in entry["fusion_choices"] if choice["reason"] == "taken"]
    assert taken
    inside = {step: choice for choice in taken for step in range(choice["first"], choice["last"] + 1)}
    told = 0
    for step, call in enumerate(entry["calls"]):
        (found,) = why.find_explanations(out, entry, call["name"])
        sentences = [reason for reason in found["reasons"] if reason.startswith("Fused group: ")]
        assert len(sentences) <= 1
        if step in inside:
            choice = inside[step]
            assert "not computed" not in sentences[0]
            for figure in (choice["cycles_fused"], choice["cycles_apart"], sum(choice["bytes_fused"].values()), choice["peak_fused"]):
                assert format_number(figure) in sentences[0]
        elif sentences:
            told += 1
            assert re.match(r"Fused group: not computed together from \w+ to \w+: [a-z]", sentences[0]), sentences[0]
    assert told, "a layer outside of the chains says why"


def test_layers_of_a_network_whose_states_grow_say_why_they_are_in_no_chain(tmp_path: Path) -> None:
    sizes = {"x": [1, 2, 1, 8], "past": [1, 2, 7, 8], "y": [1, 2, 8, 8], "present": [1, 2, 8, 8]}
    ends = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in sizes.items()}
    nodes = [helper.make_node("Concat", ["past", "x"], ["present"], axis=-2), helper.make_node("Sigmoid", ["present"], ["y"])]
    graph = helper.make_graph(nodes, "grows", [ends["x"], ends["past"]], [ends["y"], ends["present"]])
    save_graph(graph, tmp_path / "model.onnx")
    deeploy.compile(tmp_path / "model.onnx", "siracusa", states={"past": "present"}).write(tmp_path / "out")
    entry = project.select_network(project.read_manifest(tmp_path / "out"))
    for call in entry["calls"]:
        (found,) = why.find_explanations(tmp_path / "out", entry, call["name"])
        assert sum(reason.startswith("Fused group: none: states grow") for reason in found["reasons"]) == 1


def test_the_report_lists_chains(out: Path, entry: Any) -> None:
    """The page has a row for each group of which cycles were counted, and the terminal's report one for each that was taken."""
    source = (out / "report.html").read_text(encoding="utf-8")
    (table,) = Document(source).find("table", "id", f"fused-{entry['name']}")
    (body,) = table.all("tbody")
    counted = [choice for choice in entry["fusion_choices"] if choice["cycles_apart"] is not None]
    assert len(body.all("tr")) == min(len(counted), 24) and not any(cell.text == "\u2013" for cell in body.all("td")[2:4])
    taken = [choice for choice in entry["fusion_choices"] if choice["reason"] == "taken"]
    assert len(body.all("tr", "class", "chosen")) == len(taken)
    lines = terminal.report_network(entry).splitlines()
    rows = lines[lines.index("fused groups (layers that are computed together):") + 2 :][: len(taken)]
    for row, choice in zip(rows, taken, strict=True):
        assert row.startswith(entry["calls"][choice["first"]]["name"]) and format_number(choice["cycles_fused"]) in row


def test_the_timeline_draws_chains(out: Path, entry: Any, tmp_path: Path) -> None:
    """A band over the layers of every chain, from the first layer's start to the last one's end."""
    source = (out / "report.html").read_text(encoding="utf-8")
    (data,) = Document(source).find("script", "id", f"timeline-data-{entry['name']}")
    chains = json.loads(data.text)["groups"]
    assert chains == [[c["first"], c["last"], c["tiles"]] for c in entry["fusion_choices"] if c["reason"] == "taken"]
    document = shown(source, tmp_path)
    drawn = [_ends(rect.attributes) for rect in document.find("rect", "class", "group")]
    calls = [_ends(rect.attributes) for rect in document.find("rect", "class", "call")]
    assert len(drawn) == len(chains) and len(calls) == len(entry["calls"])
    for (first, last, _), (left, right) in zip(chains, drawn, strict=True):
        assert abs(left - calls[first][0]) < 1 and abs(right - calls[last][1]) < 1


def _ends(rect: dict[str, str]) -> tuple[float, float]:
    """Where a rectangle begins and ends."""
    return float(rect["x"]), float(rect["x"]) + float(rect["width"])
