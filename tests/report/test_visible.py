"""What people see of reports: nothing too wide, clipped or faint, on a phone and on a desktop, light and dark; and of 500 layers enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deeploy.midend.machine import Options
from deeploy.report.blocks import blocks, labels
from deeploy.report.compare import compare
from deeploy.report.compare import page as compared
from deeploy.report.page import page
from tests.e2e.systems import star
from tests.report.browser import measured, shown
from tests.simulate.nets import convolutions

MOST_BYTES = 1_500_000
COPIES = 100


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The files of a small network, with its manifest."""
    files = convolutions(tmp_path_factory.mktemp("small"), Options({"l1": 2500, "l2": 14000}, default_memory="L3")).files()
    return {"page": str(files["report.html"]), "manifest": json.loads(files["deploy.json"])}


@pytest.fixture(scope="module")
def large(small: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a network that is ``COPIES`` times that one, with long names."""
    one = small["manifest"]
    calls, buffers = [], []
    for copy in range(COPIES):
        prefix, offset = f"/model/layers.{copy}/block/", copy * len(one["calls"])
        calls += [{**call, "node": f"{prefix}{call['node']}", "name": f"{call['name']}_{copy}"} for call in one["calls"]]
        moved = {"first": lambda b, o=offset: b["first"] + o, "last": lambda b, o=offset: b["last"] + o}
        buffers += [{**b, **{key: change(b) for key, change in moved.items()}} for b in one["buffers"]]
    return {**one, "calls": calls, "buffers": buffers, "cycles": one["cycles"] * COPIES}


def clean(found: dict[str, Any]) -> None:
    assert found["overflow"] <= 0 and found["wide"] == []
    assert found["poor"] == [] and found["clipped"] == []
    assert found["texts"] > 5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_report_fits_its_window(small: dict[str, Any], tmp_path: Path, width: int, theme: str) -> None:
    found = measured(small["page"], tmp_path, width, theme)
    clean(found)
    assert found["labels"] > 8


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1280, "light")])
def test_a_comparison_and_the_chips_do_as_well(
    small: dict[str, Any], large: dict[str, Any], tmp_path: Path, width: int, theme: str
) -> None:
    clean(measured(compared(compare(small["manifest"], large), ("one", "other"), "0"), tmp_path, width, theme))
    clean(measured(str(star(tmp_path, "siracusa", 2).files()["report.html"]), tmp_path, width, theme))


def test_500_layers_are_folded(large: dict[str, Any], tmp_path: Path) -> None:
    text = page(large, {}, {})
    count = len(large["calls"])
    assert count >= 500 and len(text.encode()) < MOST_BYTES
    found = measured(text, tmp_path, 1280, "light")
    clean(found)
    assert found["rows"] < count / 20
    (group,) = found["groups"]
    assert f"{COPIES} equal blocks of {count // COPIES} layers" in group
    assert len(set(labels(large["calls"]))) == count
    assert all(len(label) < len(call["node"]) for label, call in zip(labels(large["calls"]), large["calls"], strict=True))
    assert blocks(large["calls"])[-1] == COPIES - 1


def test_rows_are_filtered_and_grouped(large: dict[str, Any], tmp_path: Path) -> None:
    script = """
        const tools = document.querySelector('.tools.rows'), field = tools.querySelector('input'), choice = tools.querySelector('select');
        field.value = 'layers.42/';
        field.dispatchEvent(new Event('input'));
    """
    document = shown(page(large, {}, {}), tmp_path, script)
    rows = document.find("table", "id", "layers-network")[0].all("tr", "data-step")
    assert len(rows) == len(large["calls"]) // COPIES
    script = """
        const choice = document.querySelector('.tools.rows select');
        choice.value = 'op';
        choice.dispatchEvent(new Event('change'));
        document.querySelector('tr.group').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
    """
    table = shown(page(large, {}, {}), tmp_path, script).find("table", "id", "layers-network")[0]
    operators = {call["op"] for call in large["calls"]}
    groups = table.all("tr", "class", "group")
    assert len(groups) == len(operators) > 1
    first = groups[0].attributes["data-key"]
    assert len(table.all("tr", "data-step")) == sum(call["op"] == first for call in large["calls"])


def test_rectangles_are_reached_by_keys(small: dict[str, Any], tmp_path: Path) -> None:
    script = """
        const first = document.querySelector('svg.map g.block');
        first.focus();
        first.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
        const blocks = [...document.querySelectorAll('svg.map g.block')];
        document.documentElement.dataset.reached = String(blocks.indexOf(document.activeElement));
    """
    document = shown(small["page"], tmp_path, script)
    assert document.find("html")[0].attributes["data-reached"] == "1"
    assert document.find("div", "id", "tip")[0].text.count("bytes") >= 1


def test_the_graph_has_a_box_for_every_layer(small: dict[str, Any], tmp_path: Path) -> None:
    document = shown(small["page"], tmp_path)
    (graph,) = document.find("div", "id", "graph-network")
    boxes = graph.all("g", "class", "block")
    assert [int(box.attributes["data-step"]) for box in boxes] == list(range(len(small["manifest"]["calls"])))
    assert len(graph.all("path", "class", "edge")) >= len(boxes) - 1
    for box, call in zip(boxes, small["manifest"]["calls"], strict=True):
        assert call["op"] in box.all("text")[0].text
