"""The page of kinds of layers is what layers.py recorded, and what it says adds up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gvsoc import layers

ROOT = Path(__file__).resolve().parents[2]

RECORDED = json.loads((ROOT / "benchmarks" / "gvsoc" / "layers.json").read_text())
ROWS = [layers.Row(**row) for row in RECORDED["results"]["rows"]]


def test_the_page_is_what_was_recorded() -> None:
    assert (ROOT / "benchmarks" / "gvsoc" / "layers.md").read_text() == layers.page(RECORDED)


def test_every_layer_is_there_in_every_form_on_all_engines() -> None:
    found = {(row.kind, row.form, row.engines) for row in ROWS}
    missing = {(kind, form, engines) for kind in layers.KINDS for form in layers.FORMS for engines in layers.ENGINES} - found
    assert len(found) == len(ROWS) and {(kind.split()[0], form) for kind, form, _ in missing} == {("layer", "QOperator")}


@pytest.mark.parametrize("engines", layers.ENGINES)
def test_nothing_is_faster_than_its_bound(engines: str) -> None:
    shares = [row.share for row in ROWS if row.engines == engines and row.share is not None]
    assert len(shares) > 40 and min(shares) > 0 and max(shares) <= 1
    assert not [row for row in ROWS if engines == "cluster" and row.engines == engines and "neureka" in row.kernel]


def test_the_bound_of_a_depthwise_convolution_is_that_of_its_passes() -> None:
    extents = {"oh": 12, "ow": 12, "k": 64}
    macs = 12 * 12 * 64 * 9
    of_sums, whole = (layers.bound(f"neureka_depthwise{end}", extents, macs) for end in ("_sums", ""))
    assert of_sums is not None and whole is not None
    assert of_sums < whole < 60 and layers.bound("pulp_depthwise", extents, macs) == layers.CORES
    assert layers.bound("neureka_depthwise_all_sums", {**extents, "oh": 6, "ow": 6}, macs // 4) == pytest.approx(of_sums / 4, rel=0.01)
