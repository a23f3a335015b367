"""The page that compares every figure of the papers with ours: no row without a verdict, no verdict without its reason."""

from __future__ import annotations

import pytest

from benchmarks import papers
from benchmarks.papers import Row


def test_every_figure_has_a_verdict_and_stands_on_the_page() -> None:
    found = papers.rows()
    every = [row for rows in found.values() for row in rows]
    assert len(every) >= 70 and len(found) >= 4
    assert [row.item for row in every if not row.verdict] == []
    assert [row.item for row in every if row.verdict.startswith("differs") and len(row.why) < 10] == []
    text = papers.PAGE.read_text()
    assert [row.item for row in every if f"| {row.item} |" not in text] == []


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row("time", "", 10.0, 10.9, "less"), "reproduced"),
        (Row("time", "", 10.0, 8.0, "less"), "exceeded"),
        (Row("gain", "", 10.0, 12.0, "more"), "exceeded"),
        (Row("gain", "", 10.0, 8.0, "more", "why"), "differs: why"),
        (Row("gain", "", 10.0, 8.0, "more"), ""),
        (Row("time", "", 10.0, 12.0, "less"), ""),
        (Row("ratio", "", 10.0, 20.0, why="why"), "differs: why"),
        (Row("bytes", "", 0.0, 0.0), "reproduced"),
        (Row("bytes", "", 0.0, 1.0, why="why"), "differs: why"),
        (Row("word", "", "resident", "resident"), "reproduced"),
        (Row("word", "", "resident", "streamed"), ""),
        (Row("silicon", "", "measured", None, why="none"), "not covered: none"),
        (Row("silicon", "", "measured", None), ""),
    ],
)
def test_a_verdict_follows_from_both_figures(row: Row, verdict: str) -> None:
    assert row.verdict == verdict


def test_a_conclusion_that_the_page_does_not_state_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page was worded anew, so what it says now has to be read: no verdict follows from words that are missing."""
    monkeypatch.setattr(papers, "CONCLUSIONS", (("gains", "nine", r"of all accelerators, none gain in (\w+)"),))
    with pytest.raises(SystemExit, match=r"exploration\.md says nothing like"):
        list(papers.exploration())


def test_a_cell_is_found_by_the_first_cells_of_its_row_and_what_is_not_there_is_named() -> None:
    assert float(papers.cell("study-chips.md", "mJ", ("MobileBERT, S 268", "4"))) > 0
    with pytest.raises(SystemExit, match="no row MobileBERT, S 268"):
        papers.cell("study-chips.md", "mJ", ("MobileBERT, S 268", "3"))
