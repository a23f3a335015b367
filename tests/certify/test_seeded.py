"""Seeded defects of the compiler: what they change, and that certificates find those that matter."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.certify.seeded import FILES, ROOT, Bench, Seed, drawn, reached, seeds

SOURCE = '''
def work(count: int = 3, *, low: bool = False) -> list[int]:
    """Text with 1 number."""
    if low and count > 2:
        raise ValueError(f"{count + 1}")
    return [max(at - 1, 0) for at in range(count) if at % 2]
'''
CHANGED = {
    "constant raised": ["4", "3", "2", "1", "3"],
    "constant lowered": ["2", "1", "0", "-1", "1"],
    "comparison changed": ["(count >= 2)"],
    "operator exchanged": ["(at + 1)"],
    "operands swapped": ["(1 - at)", "(2 % at)"],
    "condition dropped": ["(count > 2)", "low"],
    "limit exchanged": ["min"],
    "always": ["True", "True"],
    "never": ["False"],
}


def test_every_kind_changes_one_expression() -> None:
    made: dict[str, list[str]] = {}
    for seed in seeds("work.py", SOURCE):
        made.setdefault(seed.kind, []).append(seed.new)
        changed = seed.applied(SOURCE)
        assert changed != SOURCE and len(changed) == len(SOURCE) + len(seed.new) - len(seed.old)
        ast.parse(changed)
    assert {kind: sorted(new) for kind, new in made.items()} == {kind: sorted(new) for kind, new in CHANGED.items()}


def test_all_files_are_drawn_alike() -> None:
    every = [Seed("always", file, line, 0, "", "") for file in FILES for line in range(20)]
    assert set(Counter(seed.file for seed in drawn(every, 2 * len(FILES), 1)).values()) == {2}
    assert all((ROOT / file).is_file() for file in FILES)


@pytest.mark.slow
def test_no_defect_of_a_sample_is_missed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    fates = [bench.judge(seed, str(number)) for number, seed in enumerate(drawn(reached(bench), 2 * len(FILES), 1))]
    assert [str(fate.seed) for fate in fates if fate.fate in ("missed", "stumbled")] == []
    assert Counter(fate.fate for fate in fates)["killed"] > 2
