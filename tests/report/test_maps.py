"""Memory maps of every target, as a browser draws them: blocks lie in their own memory, apart, in colours that the legend has."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import deeploy
from deeploy.cli import app
from deeploy.options import Options
from deeploy.report import memory_map
from deeploy.target import load, names
from tests.advice.test_advise import one_convolution
from tests.execution.simulation import nets
from tests.report.browser import Document, Element, shown

TARGETS = [name for name in names() if load(name).device is None]
BOTTOM = memory_map.TOP + memory_map.HEIGHT
GAP = 1.1  # pixels by which what is thinner than one is drawn too high


def compiled_page(folder: Path, target: str) -> dict[str, Any]:
    """A network's page, with constants, activations and scratch memory."""
    nets.convolutions(folder, Options())  # writes the model
    files = deeploy.compile(folder / "model.onnx", target).files()
    return {"page": str(files["report.html"]), "manifest": json.loads(files["deploy.json"])}


def rectangle(block: Element) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a block."""
    held = block.all("rect")[0].attributes
    x, y, width, height = (float(held[key]) for key in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def check_map(figure: Element, use: dict[str, Any], buffers: list[dict[str, Any]], constants: int, legend: set[str]) -> int:
    """Look at one memory's picture; returns how many blocks it has."""
    blocks, beside = figure.all("g", "class", "block"), figure.all("g", "class", "beside")
    assert len(blocks) == len(buffers)
    assert len(beside) <= 1 and (constants > 0 or not beside), "no constants are drawn where none lie"
    if not blocks and not beside:
        assert f"{constants:,} bytes of constants".replace(",", " ") in figure.text
        return 0
    corners = [rectangle(block) for block in (*blocks, *beside)]
    (bottom,) = (float(line.attributes["y1"]) for line in figure.all("line", "class", "base"))
    (peak,) = (float(line.attributes["y1"]) for line in figure.all("line", "class", "peak"))
    assert bottom == BOTTOM
    for left, top, right, low in corners:
        assert left >= memory_map.LEFT and right <= float(figure.all("line", "class", "base")[0].attributes["x2"]) + 1
        assert peak - GAP <= top < low <= bottom + GAP, "a block lies in its own memory"
    for one, other in combinations(corners, 2):
        assert min(min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])) < GAP, "one covers another"
    per_byte = (bottom - peak) / use["peak"]
    for (_, _, _, low), buffer in zip(corners, buffers, strict=False):
        assert bottom - low == pytest.approx(per_byte * buffer["offset"], abs=GAP)
    kinds = {word for block in (*blocks, *beside) for word in block.all("rect")[0].attributes["class"].split() if "tint" not in word}
    assert {f"kind-{kind}" for kind in kinds} <= legend, "every colour is explained"
    marks = figure.all("text", "class", "capacity")
    is_tight = use["capacity"] is not None and use["peak"] > memory_map.TIGHT * use["capacity"]
    assert all(("tight" in mark.attributes["class"]) == is_tight for mark in marks), "only what is nearly full is a warning"
    return len(corners)


@pytest.mark.share(0.4)
@pytest.mark.parametrize("target", TARGETS)
def test_memory_maps_of_every_target(target: str, tmp_path: Path) -> None:
    project = compiled_page(tmp_path, target)
    page: Document = shown(project["page"], tmp_path)
    manifest, drawn = project["manifest"], 0
    (section,) = (part for part in page.find("section") if part.all("h2")[0].text == "Memory")
    legend = {entry.attributes["class"] for entry in section.all("ul", "class", "legend")[0].all("i")}
    for level, use in manifest["memory"].items():
        stored = [constant for constant in manifest["constants"] if constant.get("stored") == level]
        buffers = [buffer for buffer in manifest["buffers"] if buffer["level"] == level and buffer["bytes"]]
        for figure in page.find("figure", "id", f"map-network-{level}"):
            drawn += check_map(figure, use, buffers, use["constants"] if stored else 0, legend)
    assert drawn >= 3
    assert any(part.text == "What would help" for part in page.find("h2"))


def test_constants_lie_where_explain_says_that_they_do(tmp_path: Path) -> None:
    """In the memory of an accelerator, around the engines', and in the flash from which a microcontroller reads them in place."""
    path, memories = one_convolution(tmp_path, 128), set[str]()
    for target in ("siracusa", "rv32imc"):
        deeploy.compile(path, target).write(tmp_path / target)
        manifest = json.loads((tmp_path / target / "deploy.json").read_text())
        stored = {constant["name"]: constant["stored"] for constant in manifest["constants"]}
        assert set(stored.values()) <= set(manifest["memory"])
        for call in manifest["calls"]:
            (found,) = deeploy_explain(tmp_path / target, call["name"])
            for operand in found["operands"]:
                buffer = call["operands"][operand["name"]]
                if buffer in stored:
                    assert operand["where"].startswith(f"constant in {stored[buffer]}")
                    memories.add(stored[buffer])
    assert memories >= {"WM", "FLASH"}


def deeploy_explain(project: Path, layer: str) -> Any:
    """What ``deeploy explain`` says of a layer."""
    return json.loads(CliRunner().invoke(app, ["explain", str(project), layer, "--json"], catch_exceptions=False).stdout)


def test_a_memory_that_is_nearly_full_is_a_warning_and_no_other() -> None:
    buffers = [{"name": "a", "kind": "local", "level": "near", "offset": 0, "bytes": 1000, "first": 0, "last": 0}]
    for capacity, is_tight in ((1010, True), (1500, False), (140_000, False), (None, False)):
        use = {"capacity": capacity, "peak": 1000, "lower_bound": 1000, "constants": 0}
        drawn = memory_map.memory_map("near", use, buffers, [{"node": "first"}])
        assert ("tight" in drawn) == is_tight, capacity
