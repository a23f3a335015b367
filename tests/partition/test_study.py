"""The study of many chips runs as published, and its figures keep to what the paper and the bounds of the machine say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from benchmarks import inference_over_chips


@pytest.mark.slow
def test_a_block_of_a_language_model_on_eight_chips(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """More than eight times faster than one chip, whose L3 is busy most of the time; within the paper's time and energy."""
    inference_over_chips.main(["--only", "llama", "--chips", "8", "--block", "--plots", str(tmp_path)])
    text = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    rows = {int(cells[1]): dict(zip(lines[0], cells, strict=True)) for cells in lines[2:]}
    assert set(rows) == {1, 8}
    cycles = {count: float(row["ms"]) * 1e3 * inference_over_chips.MHZ for count, row in rows.items()}
    assert cycles[1] > 8 * cycles[8] > 8 * 525e3 / 8  # superlinear, and above what the weights take through 8 bytes a cycle
    assert float(rows[8]["ms"]) < 0.54 and float(rows[8]["mJ"]) < 0.64  # milliseconds and millijoules of the paper
    assert (rows[1]["weights"], rows[8]["weights"]) == ("streamed", "double-buffered")
    bound = re.search(r"1 chips: .*\n +L3: bytes over bandwidth \(1.00 B/cycle\) (\d+) k cycles, .* busy ([\d.]+) % longer", text)
    assert bound is not None and 0.75 < float(bound[1]) * 1e3 / cycles[1] <= 1
    assert float(bound[2]) < 10  # the baseline's L3 is used as well as it can be
    pictures = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert pictures == ["llama.svg", "llama_energy.svg"]
    assert all(xml.parse(tmp_path / name).getroot().tag.endswith("svg") for name in pictures)
