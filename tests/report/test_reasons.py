"""Why a layer is as it is: what is kept of a plan, what the commands print, and how names are found."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deeploy
from deeploy.cli import main
from deeploy.errors import UsageError
from deeploy.options import Options
from deeploy.report import explain_layer as why
from deeploy.report import terminal
from deeploy.report.reasons import explain_calls
from tests.execution.simulation.nets import compile_nodes, convolutions, node, perceptron
from tests.report.browser import shown


@pytest.fixture(scope="module")
def compilation(tmp_path_factory: pytest.TempPathFactory) -> deeploy.Compiled:
    return convolutions(tmp_path_factory.mktemp("why"), Options(memory={"l1": 2500, "l2": 14000}, default_memory="L3"))


@pytest.fixture(scope="module")
def project(compilation: deeploy.Compiled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project") / "out"
    compilation.write(folder)
    return folder


def test_candidates_are_those_of_the_plan(compilation: deeploy.Compiled, project: Path) -> None:
    plan = compilation.plan
    told = json.loads((project / "explain.json").read_text())["networks"]["network"]
    assert told["levels"] == ["L1", "L2", "L3", "WM"]
    for step, entry in enumerate(told["calls"]):
        offered, chosen = plan.offered[step], plan.calls[step]
        assert entry["considered"] == len(set(offered)) > 0
        (one,) = [way for way in entry["candidates"] if way["chosen"]]
        assert (one["bytes"], one["verdict"]) == (list(chosen.bytes), "chosen")
        saved = chosen.prefetchable_cycles if any(s.is_prefetchable for s in chosen.tiling.streams) else 0
        assert one["cycles"] == chosen.cycles - saved
        assert one["loops"] == (", ".join(f"{p.dim} {p.trips} x {p.tile}" for p in chosen.tiling.loops) or "one tile")
        cycles = [way["cycles"] for way in entry["candidates"]]
        others = len(plan.variants[step]) - 1  # kernels, the best way of each
        assert cycles == sorted(cycles) and len(cycles) <= 9 + others
        assert {operand["name"] for operand in entry["operands"]} == set(plan.program.calls[step].operands)
    assert json.loads((project / "deploy.json").read_text())["calls"][0]["name"] == told["calls"][0]["name"]


def test_what_does_not_fit_really_does_not(compilation: deeploy.Compiled) -> None:
    """Free bytes are those that no other placement takes in the step."""
    plan = compilation.plan
    manifest = json.loads(compilation.files()["deploy.json"])
    found = 0
    for step, entry in enumerate(explain_calls(plan, manifest)["calls"]):
        for way in entry["candidates"]:
            lack = re.search(r"it needs ([\d ]+) bytes of (\w+), ([\d ]+) are free in step (\d+)", way["verdict"])
            if lack is None:
                continue
            found += 1
            need, free = (int(lack[i].replace(" ", "")) for i in (1, 3))
            level = lack[2]
            own = f"{plan.program.calls[step].name}."
            alive = [p for p in plan.placements if p.level == level and p.first <= step <= p.last and not p.buffers[0].startswith(own)]
            assert int(lack[4]) == step and need > free
            capacity = plan.memory[level].capacity
            assert capacity is not None and free == capacity - plan.memory[level].constants - sum(p.size for p in alive)
    assert found > 3


def test_a_buffer_finds_room_where_it_does_in_all_of_its_steps(compilation: deeploy.Compiled) -> None:
    """What is said to be free for it is free in the fullest step of its life, beside this call's own windows."""
    plan = compilation.plan
    manifest = json.loads(compilation.files()["deploy.json"])
    uneven = 0
    for step, entry in enumerate(explain_calls(plan, manifest)["calls"]):
        own = f"{plan.program.calls[step].name}."
        for way in entry["candidates"]:
            told = re.search(r"\w+ needs ([\d ]+) bytes of (\w+) in steps (\d+) to (\d+), ([\d ]+) are free", way["verdict"])
            if told is None:
                continue
            use = plan.memory[told[2]]
            assert use.capacity is not None
            others = [p for p in plan.placements if p.level == told[2] and not p.buffers[0].startswith(own)]
            taken = [sum(p.size for p in others if p.first <= s <= p.last) for s in range(int(told[3]), int(told[4]) + 1)]
            assert int(told[5].replace(" ", "")) == max(0, use.capacity - use.constants - max(taken)) < int(told[1].replace(" ", ""))
            uneven += max(taken) > taken[0]
    assert uneven > 0


def test_more_memory_takes_the_bound_away(tmp_path: Path) -> None:
    def tile(l1: int) -> str:
        result = compile_nodes(
            tmp_path, [node("Neg", "x", "y")], {"x": [16, 64]}, {"y": [16, 64]}, {}, Options(memory={"l1": l1}), "siracusa"
        )
        return str(json.loads(result.files()["explain.json"])["networks"]["network"]["calls"][0]["reasons"][1])

    assert "more memory would not help this layer" in tile(64000)
    assert "one tile" not in tile(3000).split(".")[0]


def test_operands_say_where_they_live(tmp_path: Path) -> None:
    result = perceptron(tmp_path, Options(memory={"l1": 4000, "l2": 14000}, default_memory="L3"))
    entries = json.loads(result.files()["explain.json"])["networks"]["network"]["calls"]
    where = [operand["where"] for entry in entries for operand in entry["operands"]]
    assert any(re.match(r"constant in L3, copied to L2, fetched in step \d+; window of", text) for text in where)
    assert any(re.match(r"constant in L3, copied to L2, stays there after init", text) for text in where)
    assert any(re.match(r"the caller's, in L2; window of [\d x ]+ bytes in L1, (fetched|stored) (once|\d+ times)", text) for text in where)
    assert any(text == "lies in L1; used in place" for text in where)


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of the command line."""
    monkeypatch.setattr("sys.argv", ["deeploy", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_the_command_prints_one_layer(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, _ = run(capsys, monkeypatch, "explain", str(project), "c_node")
    assert status == 0
    assert out.startswith("c_node (Conv), step 2 of ")
    for word in ("Engine: cluster", "Tile: ", "Residence: ", "Time: ", "candidates", "chosen"):
        assert word in out
    status, out, _ = run(capsys, monkeypatch, "explain", str(project), "c_node", "--json")
    (entry,) = json.loads(out)
    assert (status, entry["step"], entry["node"]) == (0, 2, "c_node")


def test_an_unknown_layer_is_two_lines_with_near_names(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, err = run(capsys, monkeypatch, "explain", str(project), "c_nod")
    assert status == 2
    assert err.splitlines() == ["error: model.onnx has no layer c_nod", "Did you mean c_node?"]
    status, _, err = run(capsys, monkeypatch, "explain", str(project), "\u2028" + "?" * 300)
    assert status == 2 and len(err.splitlines()) == 2 and "deeploy report" in err and len(err) < 250


def test_a_project_without_its_explanations_says_so(project: Path, compilation: deeploy.Compiled, tmp_path: Path) -> None:
    manifest = json.loads((project / "deploy.json").read_text())
    with pytest.raises(UsageError, match="there is no file of explanations"):
        why.find_explanations(tmp_path, manifest, "c_node")


def test_a_flat_target_is_explained_from_its_manifest(tmp_path: Path) -> None:
    chain = [node("Neg", "x", "a"), node("MatMul", "a w", "y")]
    result = compile_nodes(tmp_path, chain, {"x": [4, 8]}, {"y": [4, 5]}, {"w": [8, 5]}, Options(), "generic")
    assert json.loads(result.files()["explain.json"])["networks"]["network"]["calls"] == []
    (entry,) = why.find_explanations(tmp_path, json.loads(result.files()["deploy.json"]), "y_node")
    text = why.describe_explanation(entry)
    assert "one flat memory" in text and "128 bytes at 0 of arena, steps 0 to 1" in text and "constant, 160 bytes" in text


def test_buffers_that_share_an_address_are_found_by_all_of_their_names(tmp_path: Path) -> None:
    chain = [node("Neg", "x", "a"), node("Exp", "a", "b"), node("MatMul", "b w", "y")]
    manifest = json.loads(
        compile_nodes(tmp_path, chain, {"x": [4, 8]}, {"y": [4, 5]}, {"w": [8, 5]}, Options(), "generic").files()["deploy.json"]
    )
    assert [buffer["name"] for buffer in manifest["buffers"]] == ["a=b"]
    for name in ("a_node", "b_node", "y_node"):
        (entry,) = why.find_explanations(tmp_path, manifest, name)
        assert any(operand["where"] == "128 bytes at 0 of arena, steps 0 to 2" for operand in entry["operands"]), name


def test_the_report_prints_the_essentials(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = json.loads((project / "deploy.json").read_text())
    status, out, _ = run(capsys, monkeypatch, "report", str(project), "--verbose")
    assert status == 0
    lines = out.splitlines()
    assert lines[1].startswith(f"{manifest['cycles']:,} cycles".replace(",", " ")) and lines[1].endswith(f"{manifest['energy_uj']:.1f} uJ")
    greedy = manifest["prediction"]["greedy"]
    assert f"greedy plan: {greedy:,}".replace(",", " ") in lines[4]
    rows = {line.split()[0]: line for line in lines if line.strip()}
    use = manifest["memory"]["L1"]
    assert f"{use['peak']:,}".replace(",", " ") in rows["L1"] and f"{use['capacity']:,}".replace(",", " ") in rows["L1"]
    for path, count in manifest["bytes"].items():
        moved = manifest["traffic"][path]
        assert moved["in"] + moved["out"] == count
        assert f"{moved['in']:,}".replace(",", " ") in rows[path]
    for call in manifest["calls"]:
        assert any(call["node"][:12] in line and f"{call['cycles']:,}".replace(",", " ") in line for line in lines)
    status, out, _ = run(capsys, monkeypatch, "report", str(project), "--json")
    printed = json.loads(out)
    assert (status, [*printed]) == (0, [*manifest, "advice"]) and {**manifest, "advice": printed["advice"]} == printed


def test_of_many_layers_only_the_slowest_are_listed(project: Path) -> None:
    manifest: dict[str, Any] = json.loads((project / "deploy.json").read_text())
    calls = [{**manifest["calls"][0], "node": f"layer{i}", "cycles": i} for i in range(50)]
    text = terminal.report_network({**manifest, "calls": calls})
    assert "layer49" in text and "layer30" in text and "layer29" not in text
    assert f"and 30 faster layers with {sum(range(30))} cycles" in text


@pytest.mark.slow
def test_a_click_on_a_row_says_why(project: Path, tmp_path: Path) -> None:
    page = (project / "report.html").read_text()
    document = shown(page, tmp_path, "document.querySelector('.layers tr[data-step=\"1\"]').click();")
    (row,) = document.find("tr", "class", "why")
    told = json.loads((project / "explain.json").read_text())["networks"]["network"]["calls"][1]
    for reason in told["reasons"]:
        assert re.sub(r"\s+", " ", reason) in row.text
    assert [chosen.all("td")[-1].text for chosen in row.all("tr", "class", "chosen")] == ["chosen"]
    twice = "const row = document.querySelector('.layers tr[data-step=\"1\"]'); row.click(); row.click();"
    assert shown(page, tmp_path, twice).find("tr", "class", "why") == []


def test_without_offers_there_is_nothing_to_explain(compilation: deeploy.Compiled) -> None:
    network = replace(compilation.network, plan=replace(compilation.plan, offered=()))
    told = json.loads(deeploy.Compiled({"network": network}, {}).files()["explain.json"])["networks"]["network"]
    assert told["calls"] == []
