"""What people see of reports: nothing too wide, clipped or faint, on a phone and on a desktop, light and dark; and of 500 layers enough."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deeploy.cli import app
from deeploy.execution.simulation.timeline import MOST_EVENTS
from deeploy.options import Options
from deeploy.report.blocks import layer_labels, repeated_blocks
from deeploy.report.compare import compare_entries
from deeploy.report.compare import comparison_page as compared
from deeploy.report.page import report_page
from tests.e2e.systems import star
from tests.execution.simulation.nets import convolutions
from tests.report.browser import Document, measured, shown

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MOST_BYTES = 1_500_000
COPIES = 100


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The files of a small network, with its manifest."""
    files = convolutions(tmp_path_factory.mktemp("small"), Options(memory={"l1": 2500, "l2": 14000}, default_memory="L3")).files()
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


def whole(large: dict[str, Any], one: str) -> str:
    """The page of the large network with a timeline and explanations, as many times those of the small one's page."""
    (timeline,), (reasons,) = (Document(one).find("script", "id", f"{kind}-data-network") for kind in ("timeline", "explain"))
    drawn, told = json.loads(timeline.own), json.loads(zlib.decompress(base64.b64decode(reasons.own)))
    cycles, count = drawn["cycles"], len(drawn["calls"])
    calls, events = [], []
    for copy in range(COPIES):
        at = copy * cycles
        calls += [{"name": f"{call['name']}_{copy}", "start": call["start"] + at, "end": call["end"] + at} for call in drawn["calls"]]
        steps = copy * count
        events += [[*e[:2], e[2] + at, e[3], e[4] + steps, e[5] + steps, *e[6:]] for e in drawn["events"][: MOST_EVENTS // COPIES]]
    drawn |= {"cycles": cycles * COPIES, "calls": calls, "events": events}
    told |= {"calls": [call for _ in range(COPIES) for call in told["calls"]]}
    return report_page(large, {"network": drawn}, {"network": {**told, "calls": [{**call, "schedule": ""} for call in told["calls"]]}})


def clean(found: dict[str, Any]) -> None:
    assert found["overflow"] <= 0 and found["wide"] == []
    assert found["poor"] == [] and found["clipped"] == []
    assert found["outside"] == [] and found["overlaps"] == []
    assert found["texts"] > 5


@pytest.mark.share(0.5)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_report_fits_its_window(small: dict[str, Any], tmp_path: Path, width: int, theme: str) -> None:
    found = measured(small["page"], tmp_path, width, theme)
    clean(found)
    assert width < 1280 or found["cut"] == []
    assert found["labels"] > 8


@pytest.mark.share(0.25)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_comparison_and_the_chips_do_as_well(
    small: dict[str, Any], large: dict[str, Any], tmp_path: Path, width: int, theme: str
) -> None:
    clean(measured(compared(compare_entries(small["manifest"], large), ("one", "other"), "0"), tmp_path, width, theme))
    clean(measured(str(star(tmp_path, "siracusa", 2).files()["report.html"]), tmp_path, width, theme))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of an exploration of a network of 108 layers."""
    folder = tmp_path_factory.mktemp("study")
    network, hardware = EXAMPLES / "layers" / "mobilevit_s.json", EXAMPLES / "hardware" / "table3.toml"
    done = CliRunner().invoke(app, ["explore", str(network), "--hardware", str(hardware), "-o", str(folder / "out")])
    assert done.exit_code == 0, done.output
    return (folder / "out" / "report.html").read_text()


@pytest.mark.share(0.25)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_study_does_as_well(study: str, tmp_path: Path, width: int, theme: str) -> None:
    found = measured(study, tmp_path, width, theme)
    clean(found)
    assert found["shapes"] > 90  # a cell per layer and set, a point per set of the front: reached by keys


def test_a_study_shows_figures_by_keys_and_names_that_differ(study: str, tmp_path: Path) -> None:
    script = """
        const cells = [...document.querySelectorAll('svg.map g.block')];
        cells[0].focus();
        cells[0].dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
        document.documentElement.dataset.tip = document.getElementById('tip').textContent;
    """
    document = shown(study, tmp_path, script)
    assert "of the elements" in document.find("html")[0].attributes["data-tip"]
    names = [row.children[0].text for row in document.find("table", "id", "layers")[0].all("tr")[1:]]
    assert len(names) > 40 and len(set(names)) == len(names)
    assert len(study.encode()) < MOST_BYTES


@pytest.mark.parametrize("kind", ["large", "study", "chips"])
def test_pages_are_small(kind: str, small: dict[str, Any], large: dict[str, Any], study: str, tmp_path: Path) -> None:
    if kind == "chips":
        text = str(star(tmp_path, "siracusa", 8).files()["report.html"])
    else:
        text = study if kind == "study" else whole(large, small["page"])
    assert len(text.encode()) < MOST_BYTES


@pytest.mark.slow
def test_500_layers_are_folded(large: dict[str, Any], tmp_path: Path) -> None:
    text = report_page(large, {}, {})
    count = len(large["calls"])
    assert count >= 500 and len(text.encode()) < MOST_BYTES
    found = measured(text, tmp_path, 1280, "light")
    clean(found)
    assert found["rows"] < count / 20
    (group,) = found["groups"]
    assert f"{COPIES} equal blocks of {count // COPIES} layers" in group
    assert len(set(layer_labels(large["calls"]))) == count
    assert all(len(label) < len(call["node"]) for label, call in zip(layer_labels(large["calls"]), large["calls"], strict=True))
    assert repeated_blocks(large["calls"])[-1] == COPIES - 1


@pytest.mark.slow
def test_rows_are_filtered_and_grouped(large: dict[str, Any], tmp_path: Path) -> None:
    script = """
        const tools = document.querySelector('.tools.rows'), field = tools.querySelector('input'), choice = tools.querySelector('select');
        field.value = 'layers.42/';
        field.dispatchEvent(new Event('input'));
    """
    document = shown(report_page(large, {}, {}), tmp_path, script)
    rows = document.find("table", "id", "layers-network")[0].all("tr", "data-step")
    assert len(rows) == len(large["calls"]) // COPIES
    script = """
        const choice = document.querySelector('.tools.rows select');
        choice.value = 'op';
        choice.dispatchEvent(new Event('change'));
        document.querySelector('tr.group').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
    """
    table = shown(report_page(large, {}, {}), tmp_path, script).find("table", "id", "layers-network")[0]
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
