"""``report.html`` in a real browser: tables, drawings and texts are there, and hostile names do no harm."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.options import Options
from deeploy.report.memory_map import memory_map
from tests.execution.simulation.nets import convolutions, perceptron
from tests.models import save_graph
from tests.report.browser import Document, shown

HOSTILE = '</script><script>document.title="broken"</script><img src=x onerror=alert(1)>"\'&\u2028'


def spaced(value: float) -> str:
    """As the page writes numbers, after spaces of all kinds became one."""
    return f"{value:,.0f}".replace(",", " ")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A network with far constants and tiles: its page and its manifest."""
    folder = tmp_path_factory.mktemp("page")
    files = convolutions(folder, Options(memory={"l1": 2500, "l2": 14000}, default_memory="L3")).files()
    return {"page": str(files["report.html"]), "manifest": json.loads(files["deploy.json"])}


@pytest.fixture(scope="module")
def page(project: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Document:
    return shown(project["page"], tmp_path_factory.mktemp("browser"))


def test_headline_figures(project: dict[str, Any], page: Document) -> None:
    manifest = project["manifest"]
    cards = {card.all("h3")[0].text: card.all("b")[0].text for card in page.find("div", "class", "card")}
    assert cards["Cycles"] == spaced(manifest["cycles"])
    assert cards["Energy"] == f"{manifest['energy_uj']:.1f} \u00b5J"
    assert cards["L1, bytes"] == spaced(manifest["memory"]["L1"]["peak"])
    (title,) = page.find("h1")
    assert title.text == "model.onnx on siracusa"
    legend = page.find("ul", "class", "legend")[0]
    compute = 100 * manifest["shares"]["compute"] / manifest["cycles"]
    assert legend.all("li")[0].text == f"computing {compute:.1f} %"


def test_a_row_per_layer(project: dict[str, Any], page: Document) -> None:
    (table,) = page.find("table", "id", "layers-network")
    rows = table.all("tr", "data-step")
    calls = project["manifest"]["calls"]
    assert len(rows) == len(calls) > 4
    for row, call in zip(rows, calls, strict=True):
        cells = [cell.text for cell in row.all("td")]
        assert cells[3] == f"{call['kernel']} {call['form']}".strip()
        assert cells[4] == call["engine"] and cells[5].split()[0] == str(call["tiles"])
        assert cells[6:8] == [spaced(call["macs"]), spaced(call["cycles"])]
        assert cells[11] == call["bound"]
        assert cells[9] == (f"{call['macs'] / call['cycles']:.2f}" if call["macs"] else "\u2013")


def test_a_rectangle_per_buffer_with_name_size_and_steps(project: dict[str, Any], page: Document) -> None:
    manifest = project["manifest"]
    for level in ("L1", "L2"):
        (figure,) = page.find("figure", "id", f"map-network-{level}")
        blocks = figure.all("g", "class", "block")
        placed = [b for b in manifest["buffers"] if b["level"] == level and b["bytes"]]
        assert len(blocks) == len(placed) > 3
        titles = [block.all("title")[0].text for block in blocks]
        for title, buffer in zip(titles, placed, strict=True):
            assert f"{spaced(buffer['bytes'])} bytes at {spaced(buffer['offset'])} to" in title
        largest = max(placed, key=lambda b: b["bytes"])
        assert any(largest["name"].split("=")[0][:20] in title for title in titles)
        marks = " ".join(mark.text for mark in figure.all("text", "class", "mark"))
        assert f"peak = lower bound {spaced(manifest['memory'][level]['peak'])}" in marks
        assert spaced(manifest["memory"][level]["capacity"]) in marks
    assert "constants, beside the arena" in page.find("figure", "id", "map-network-L3")[0].text


def test_rectangles_lie_where_their_buffers_do(project: dict[str, Any], page: Document) -> None:
    """Buffers that are alive at once do not overlap in the drawing, and sizes are to scale."""
    (figure,) = page.find("figure", "id", "map-network-L1")
    boxes = []
    placed = [b for b in project["manifest"]["buffers"] if b["level"] == "L1" and b["bytes"]]
    for block, buffer in zip(figure.all("g", "class", "block"), placed, strict=True):
        held = block.all("rect")[0].attributes
        x, y, w, h = (float(held[key]) for key in ("x", "y", "width", "height"))
        boxes.append((x, y, x + w, y + h))
        if h > 2:
            assert h / buffer["bytes"] == pytest.approx(300 / (1.06 * project["manifest"]["memory"]["L1"]["capacity"]), rel=0.2, abs=0.02)
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            overlap = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
            assert min(overlap) < 0.9


def test_the_timeline_is_drawn(project: dict[str, Any], page: Document) -> None:
    (timeline,) = page.find("div", "id", "timeline-network")
    calls = timeline.all("rect", "class", "call")
    assert len(calls) == len([c for c in project["manifest"]["calls"] if c["cycles"]])
    for lane in ("event-compute", "event-in", "event-out", "event-wait"):
        assert timeline.all("rect", "class", lane), lane
    compute = timeline.all("rect", "class", "event-compute")[0].all("title")[0].text
    assert re.fullmatch(r"compute \S+ \S.*, tile 0 [\d ]+ cycles \([\d.]+ \u00b5s\) from [\d ]+ on", compute)
    assert {text.text for text in timeline.all("text", "class", "tick")} >= {"layers", "cluster", "L2_L1", "L3_L2"}


def test_zooming_shows_one_layer(project: dict[str, Any], tmp_path: Path) -> None:
    script = """
        const box = document.querySelector('.timeline'), first = box.querySelectorAll('rect.call')[2].getBoundingClientRect();
        box.dispatchEvent(new MouseEvent('dblclick', { clientX: first.left + first.width / 2, clientY: first.top }));
    """
    document = shown(project["page"], tmp_path, script)
    (timeline,) = document.find("div", "id", "timeline-network")
    calls = [call.all("title")[0].text for call in timeline.all("rect", "class", "call")]
    assert 1 <= len(calls) <= 3 and any(call.startswith(project["manifest"]["calls"][2]["name"]) for call in calls)
    first, last = re.findall(r"[\d ]+(?= to| cycles)", document.find("output")[0].text)[:2]
    shown_cycles = int(last.replace(" ", "")) - int(first.replace(" ", "") or 0)
    assert shown_cycles == pytest.approx(1.04 * project["manifest"]["calls"][2]["cycles"], rel=0.1)


def test_hovering_tells_the_title_at_once(project: dict[str, Any], tmp_path: Path) -> None:
    script = """
        const block = document.querySelector('#map-network-L1 .block rect');
        block.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
    """
    document = shown(project["page"], tmp_path, script)
    (tip,) = document.find("div", "id", "tip")
    first = next(b for b in project["manifest"]["buffers"] if b["level"] == "L1" and b["bytes"])
    assert "hidden" not in tip.attributes
    assert tip.text.startswith(f"{first['name']} {first['kind']}, {spaced(first['bytes'])} bytes at {spaced(first['offset'])} to ")


def test_the_theme_can_be_changed(project: dict[str, Any], tmp_path: Path) -> None:
    document = shown(project["page"], tmp_path, "document.getElementById('theme').click();")
    assert document.find("html")[0].attributes["data-theme"] in ("dark", "light")


def test_a_heading_sorts(project: dict[str, Any], tmp_path: Path) -> None:
    document = shown(project["page"], tmp_path, "for (const _ of [1, 2]) document.querySelectorAll('.layers th')[7].click();")
    rows = document.find("table", "id", "layers-network")[0].all("tr", "data-step")
    steps = [int(row.attributes["data-step"]) for row in rows]
    cycles = [call["cycles"] for call in project["manifest"]["calls"]]
    assert [cycles[step] for step in steps] == sorted(cycles, reverse=True)


def test_the_page_needs_nothing_from_outside(project: dict[str, Any]) -> None:
    assert "default-src &#x27;none&#x27;" in project["page"]
    links = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'\s>)]+)""", project["page"])
    assert [link for link in links if not link.startswith(("#", "data:"))] == []
    assert set(re.findall(r"https?://[^\"'\s<]+", project["page"])) <= {"http://www.w3.org/2000/svg"}


def test_peak_bound_and_capacity_are_lines() -> None:
    use = {"capacity": 1200, "peak": 1000, "lower_bound": 800, "constants": 0}
    buffers = [{"name": "a", "kind": "local", "level": "near", "offset": 0, "bytes": 1000, "first": 0, "last": 1}]
    drawn = memory_map("near", use, buffers, [{"node": "first"}, {"node": "second"}])
    heights = {kind: float(y) for kind, y in re.findall(r'<line class="(\w+)" [^>]*y1="([\d.]+)"', drawn) if kind != "grid"}
    assert heights["capacity"] < heights["peak"] < heights["bound"] < heights["base"]
    per_byte = (heights["base"] - heights["peak"]) / 1000
    assert (heights["base"] - heights["bound"]) / 800 == pytest.approx(per_byte, rel=0.01)
    assert (heights["base"] - heights["capacity"]) / 1200 == pytest.approx(per_byte, rel=0.01)
    for words in ("peak 1\u202f000", "lower bound 800", "capacity 1\u202f200"):
        assert f">{words}</text>" in drawn


def test_a_memory_of_constants_alone_is_a_sentence() -> None:
    use = {"capacity": 5000, "peak": 1234, "lower_bound": 1234, "constants": 1234}
    assert "1\u202f234 bytes of constants, of 5\u202f000" in memory_map("far", use, [], [])
    assert memory_map("empty", {**use, "peak": 0, "constants": 0}, [], []) == ""


def hostile_model(path: Path) -> Path:
    """Names of nodes and tensors that try to leave their place in the page."""
    inputs = [helper.make_tensor_value_info("x" + HOSTILE, TensorProto.FLOAT, [6, 8])]
    outputs = [helper.make_tensor_value_info("y" + HOSTILE, TensorProto.FLOAT, [6, 8])]
    nodes = [
        helper.make_node("Neg", ["x" + HOSTILE], ["h" + HOSTILE], name="first" + HOSTILE),
        helper.make_node("Softmax", ["h" + HOSTILE], ["y" + HOSTILE], name="second" + HOSTILE),
    ]
    graph = helper.make_graph(nodes, HOSTILE, inputs, outputs)
    return save_graph(graph, path)


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_hostile_names_stay_text(target: str, tmp_path: Path) -> None:
    model = hostile_model(tmp_path / "<b>&'model.onnx")
    text = str(deeploy.compile(model, target).files()["report.html"])
    document = shown(text, tmp_path, "document.querySelector('tr[data-step]').click();")
    assert document.find("title")[0].text.startswith("<b>&'model.onnx")
    assert document.find("img") == [] and document.find("h1")[0].all("b") == []
    rows = document.find("table", "id", "layers-network")[0].all("tr", "data-step")
    assert len(rows) == 2 and rows[0].all("td")[1].text.startswith("first</script>")
    told = [element.attributes[key] for element in document.find("td") for key in ("title", "data-tip") if key in element.attributes]
    assert any("<script>" in words for words in told) and not any("&lt;" in words or "&amp;" in words for words in told), "escaped once"


def test_a_flat_target_has_memory_and_layers_but_no_time(tmp_path: Path) -> None:
    text = str(deeploy.compile(hostile_model(tmp_path / "flat.onnx")).files()["report.html"])
    document = shown(text, tmp_path)
    assert [h.text for h in document.find("h2")] == ["What would help", "Layers", "Graph", "Memory", "Against the bounds"]
    assert sum(len(figure.all("g", "class", "block")) for figure in document.find("figure")) == 1
    assert [th.text for th in document.find("table", "id", "layers-network")[0].all("th")] == [
        "#",
        "layer",
        "operator",
        "kernel",
        "engine",
        "tiles",
        "MAC",
    ]


@pytest.mark.slow
def test_several_networks_share_a_page(tmp_path: Path) -> None:
    for name, build in (("one", convolutions), ("two", perceptron)):
        (tmp_path / name).mkdir()
        build(tmp_path / name, Options(memory={"l1": 4000}))
    models = {name: tmp_path / name / "model.onnx" for name in ("one", "two")}
    text = str(deeploy.compile(models, "siracusa", memory={"l1": 4000}).files()["report.html"])
    document = shown(text, tmp_path)
    assert [article.attributes["id"] for article in document.find("article")] == ["one", "two"]
    assert [link.attributes["href"] for link in document.find("nav")[0].all("a")] == ["#one", "#two"]
    for name in ("one", "two"):
        assert document.find("div", "id", f"timeline-{name}")[0].all("rect", "class", "event-compute")
