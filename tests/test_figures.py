"""The cycles and bytes of some networks are those of the table; what costs more says why there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.figures import TABLE, TOLERANCE, Figures, compiler, computed, risen

DATA = json.loads(TABLE.read_text())
KNOWN: dict[str, Figures] = DATA["figures"]
CODE = "bytes of code"


@pytest.mark.filterwarnings("ignore")
def test_networks_cost_what_the_table_says(tmp_path: Path) -> None:
    """Cheaper ones are written down, too: the next commit is compared with them (``make figures``)."""
    left_out = set() if compiler() == DATA["compiler"] else {CODE}
    known, now = [
        {case: {n: v for n, v in row.items() if n not in left_out} for case, row in rows.items()} for rows in (KNOWN, computed(tmp_path))
    ]
    assert len(known) > 15
    assert {case: set(row) for case, row in now.items()} == {case: set(row) for case, row in known.items()}
    assert (risen(known, now), risen(now, known)) == ([], [])


def test_what_rises_is_found() -> None:
    before = {"net @ chip": {"cycles": 1000, "bytes of L1": 100}}
    assert risen(before, {"net @ chip": {"cycles": 1011, "bytes of L1": 100}}) == [("net @ chip", "cycles", 1000, 1011)]
    assert risen(before, {"net @ chip": {"cycles": 1010, "bytes of L1": 90}}) == []
    assert TOLERANCE < 0.02


def test_every_rise_has_a_reason() -> None:
    assert [row for row in DATA["risen"] if len(row["why"].split()) < 4 or row["case"] not in KNOWN] == []
