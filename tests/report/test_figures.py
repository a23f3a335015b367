"""Figures that pages and terminals derive from ``deploy.json``: times, shares of memories, and data for the page's scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeploy.backend.project import read_manifest
from deeploy.options import Options
from deeploy.report import chips, terminal
from deeploy.report.layers import layers_section
from deeploy.report.markup import data
from deeploy.report.memory_map import memory_map
from deeploy.report.sections import bounds_section, headline_cards_of, traffic_section
from tests.e2e.systems import star
from tests.execution.simulation.nets import convolutions
from tests.report.browser import Document

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["</script>", "<!--", "<script", "&lt;", "]]>", "\u2028"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The manifest of a network with tiles; peaks, bounds and capacities all differ, so that none can stand for another."""
    folder = tmp_path_factory.mktemp("one")
    manifest: dict[str, Any] = json.loads(convolutions(folder, Options(memory={"l1": 2500}, default_memory="L3")).files()["deploy.json"])
    for use in manifest["memory"].values():
        if use["capacity"]:
            use["capacity"], use["lower_bound"] = 7 * use["peak"], use["peak"] // 3
    return manifest


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of two chips."""
    path = tmp_path_factory.mktemp("several") / "out"
    star(path.parent, "siracusa", 2).write(path)
    return path


def milliseconds(text: str) -> list[float]:
    return [float(figure) for figure in re.findall(r"(\d+\.\d+) ms", text)]


def test_times_are_cycles_by_the_clock(one: dict[str, Any], several: Path) -> None:
    wanted = one["cycles"] / one["machine"]["mhz"] / 1e3
    for text in (headline_cards_of(one), terminal.report_network(one)):
        assert milliseconds(text) == [pytest.approx(wanted, abs=6e-4)]
    manifest = read_manifest(several)
    wanted = manifest["cycles"] / manifest["machine"]["mhz"] / 1e3
    article = Document((several / "report.html").read_text()).find("article", "id", "system")[0]
    found = {card.all("h3")[0].text: card.all("span")[0].text for card in article.all("div", "class", "card")}
    for text in (found["Cycles"], chips.report_system(manifest).splitlines()[1], chips.summarise_system(manifest, several)):
        assert milliseconds(text)[0] == pytest.approx(wanted, abs=6e-4)


def test_shares_of_memories_are_their_peaks_by_their_capacities(one: dict[str, Any]) -> None:
    used = {level: use for level, use in one["memory"].items() if use["peak"] and use["capacity"]}
    assert len(used) > 1
    shown = {card.all("h3")[0].text: card.all("span")[0].text for card in Document(headline_cards_of(one)).find("div", "class", "card")}
    rows = {line.split()[0]: line for line in terminal.report_network(one).splitlines() if " % " in line and line.split()[0] in used}
    for level in used:
        assert shown[f"{level}, bytes"].startswith("14.3 % of ")
        assert " 14.3 % " in rows[level]
    drawn = [memory_map(level, use, one["buffers"], one["calls"]) for level, use in used.items()]
    assert sum("14.3 % used" in picture for picture in drawn) == sum("<svg" in picture for picture in drawn) > 1


def test_gaps_are_relative_to_what_is_reached(one: dict[str, Any]) -> None:
    """A peak that is thrice its bound has a gap of two thirds."""
    changed = {**one, "prediction": {"cycles": 1000, "bound": 900, "greedy": 1250}, "cycles": 1100}
    rows = {row.children[0].text: row.children[-1].text for row in Document(bounds_section(changed)).find("tr")}
    for level in (level for level, use in one["memory"].items() if use["peak"] and use["capacity"]):
        assert re.fullmatch(r"gap 66\.\d %", rows[f"peak of {level}, bytes"])
    assert rows["cycles of the plan, as the planner counts"] == "gap 10.0 %"
    assert rows["cycles of the greedy plan"] == "gain 20.0 %"
    assert rows["cycles of the plan, walked event by event"] == "+10.0 %"
    assert "gap 10.0 %" in terminal.report_network(changed) and "gain 20.0 %" in terminal.report_network(changed)


def test_busy_and_exposed_are_shares_of_all_cycles(one: dict[str, Any]) -> None:
    changed = {**one, "cycles": 2000, "shares": {**one["shares"], "L2_L1": 100}}
    changed["traffic"] = {path: {**moved, "busy": 500} for path, moved in one["traffic"].items()}
    (row,) = (row.text for row in Document(traffic_section(changed)).find("tr") if row.text.startswith("L2_L1"))
    assert "500 (25.0 %)" in row and "100 (5.0 %)" in row
    (line,) = (line for line in terminal.report_network(changed).splitlines() if line.startswith("L2_L1"))
    assert re.search(r" 25\.0 % +5\.0 % ", line)


def test_rows_of_layers_say_what_the_manifest_does(one: dict[str, Any]) -> None:
    rows = Document(layers_section(one)).find("tr", "data-step")
    assert len(rows) == len(one["calls"]) > 4
    for row, call in zip(rows, one["calls"], strict=True):
        cells = [re.sub(r"(?<=\d)\s(?=\d)", "", cell.attributes.get("data-v", cell.text)) for cell in row.all("td")]
        moved = sum(traffic["in"] + traffic["out"] for traffic in call["traffic"].values())
        assert [int(cells[i]) for i in (5, 6, 7, 8, 12)] == [call["tiles"], call["macs"], call["cycles"], call["cycles"], moved]
        assert row.all("td")[8].text == f"{100 * call['cycles'] / one['cycles']:.1f} %"
        assert cells[9] == (f"{call['macs'] / call['cycles']:.2f}" if call["macs"] else "\u2013")
        assert cells[11] == call["bound"]
    assert any(traffic["in"] and traffic["out"] for call in one["calls"] for traffic in call["traffic"].values())


@given(JSON)
def test_data_in_a_page_comes_back_and_holds_no_markup(contents: Any) -> None:
    element = data("here", contents)
    (script,) = Document(element).find("script")
    assert json.loads(script.own) == contents
    assert not set("<>&") & set(script.own)
    assert element == f'<script type="application/json" id="here">{script.own}</script>'
