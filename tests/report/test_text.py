"""Tables and figures of terminals."""

from __future__ import annotations

import pytest

from deeploy.report.text import align_table, counted_cycles, format_number, of_peak


def test_numbers_are_aligned_to_the_right_and_texts_to_the_left() -> None:
    rows = [("a", 1, "x", "-"), ("bcd", 1000, "yy", "12.5 %")]
    assert align_table(("name", "n", "t", "share"), rows).splitlines() == [
        "name     n  t    share",
        "a        1  x        -",
        "bcd   1000  yy  12.5 %",
    ]
    assert align_table(("name", "n"), []) == "name  n"
    assert [format_number(value) for value in (None, 0, 999, 1000, -1234567)] == ["-", "0", "999", "1 000", "-1 234 567"]


def test_cycles_are_those_of_the_first_sample() -> None:
    """Of two samples; layers are counted in the first one alone."""
    lines, total = counted_cycles([2000, 1000], [("first", 500), ("second", 1500)])
    assert [line.split() for line in lines.splitlines()[1:]] == [["first", "500", "25.0%"], ["second", "1", "500", "75.0%"]]
    assert total == "2 000 cycles"


@pytest.mark.parametrize(
    ("engine", "macs", "cycles", "shown"),
    [("cores", 800, 100, "50.0 %"), ("npu", 800, 100, "-"), ("cores", 0, 100, "-"), ("cores", 8, 0, "-")],
)
def test_the_share_of_a_peak(engine: str, macs: int, cycles: int, shown: str) -> None:
    assert of_peak({"machine": {"peaks": {"cores": 16}}}, {"engine": engine, "macs": macs, "cycles": cycles}) == shown
    assert of_peak({"machine": None}, {"engine": engine, "macs": macs, "cycles": cycles}) == "-"
