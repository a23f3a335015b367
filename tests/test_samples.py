"""Samples of large matrices: what ``make test`` runs of them, and that nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from tests import samples
from tests.samples import PRODUCTS, SHARES, drawn, is_drawn, is_product, order, share_of

ROOT = Path(__file__).resolve().parents[1]
MATRIX = [(f"{a}-{b}", frozenset({("a", a), ("b", b)})) for a, b in product(range(12), range(4))]
LIST = [(str(at), frozenset({("case", at)})) for at in range(40)]


@pytest.mark.parametrize("seed", ["0", "1", "a commit"])
def test_every_value_of_every_parameter_is_drawn(seed: str) -> None:
    chosen = drawn(MATRIX, 0.1, seed)
    assert {name.split("-")[0] for name in chosen} == {str(a) for a in range(12)}
    assert {name.split("-")[1] for name in chosen} == {str(b) for b in range(4)}
    assert len(chosen) == 12


def test_shares_of_lists_are_rounded_up_and_follow_the_seed() -> None:
    assert len(drawn(LIST, 0.25, "0")) == 10 and len(drawn(LIST[:1], 0.01, "0")) == 1
    assert drawn(LIST, 0.25, "0") == drawn(list(reversed(LIST)), 0.25, "0") != drawn(LIST, 0.25, "1")
    assert len(drawn(MATRIX, 0.5, "0")) == 24


def test_shares_of_what_a_test_does_follow_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [str(number) for number in range(1000)]
    chosen = {}
    for seed in ("1", "2", samples.EVERYTHING):
        monkeypatch.setattr(samples, "_seeds", [seed])
        chosen[seed] = {name for name in names if is_drawn(name, 0.25)}
    assert 200 < len(chosen["1"]) < 300 and chosen["1"] != chosen["2"] and len(chosen[samples.EVERYTHING]) == 1000


def test_seeds_reach_every_case() -> None:
    for cases, share in ((LIST, 0.25), (MATRIX, 0.1)):
        assert set().union(*(drawn(cases, share, str(seed)) for seed in range(60))) == {name for name, _ in cases}


def test_what_has_shares_exists() -> None:
    assert [place for place in (*SHARES, *PRODUCTS) if not (ROOT / place).exists()] == []
    assert is_product(MATRIX) and not is_product(LIST)
    assert share_of("tests/e2e/test_states.py", True) < 1 == share_of("tests/e2e/test_states.py")
    assert share_of("tests/operators/test_conv.py") < 1 == share_of("tests/test_samples.py") == share_of("tests/operators_too.py")


@cache
def _collected(*options: str, file: str = "tests/operators/test_rotate.py") -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", file, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_a_share_that_a_test_names_is_kept_and_late_tests_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "import pytest\n@pytest.mark.share(0.1)\n@pytest.mark.parametrize('n', range(30))\ndef test_n(n: int) -> None:\n    assert n >= 0\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-p", "tests.samples"]

    def said(*options: str) -> str:
        done = subprocess.run([*command, tmp_path, *options], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "3 passed, 27 deselected" in said("-m", "not slow")
    assert "30 passed" in said("--draw", "all") and "27 skipped" in said("-m", "slow", "--minutes", "0")


def test_what_is_not_drawn_is_slow() -> None:
    everything, quick, slow = (set(_collected(*options)) for options in ((), ("-m", "not slow"), ("-m", "slow")))
    assert quick | slow == everything and not quick & slow and len(quick) < len(everything) / 2


def test_what_is_drawn_runs_in_the_order_of_the_draw() -> None:
    """Whatever the time is enough for comes from all folders, and one case of every test comes before a second one."""
    everything = _collected()
    many, few = (_collected("--most", str(most), "--draw", "1") for most in (99, 3))
    turns = {name.partition("[")[0]: 0 for name in everything}
    order_of_case = {}
    for name in sorted(everything, key=lambda name: order(name, "1")):
        test = name.partition("[")[0]
        order_of_case[name] = turns[test], order(name, "1")
        turns[test] += 1
    assert many == sorted(everything, key=lambda name: order_of_case[name])[:99] and few == many[:3]
    assert len({name.partition("[")[0] for name in many[: len(turns)]}) == len(turns) > 1


def test_products_of_real_tests_are_told_from_lists() -> None:
    quick = set(_collected("-m", "not slow", file="tests/e2e/test_states.py"))
    product = {name.partition("[")[2] for name in quick if "test_every_position" in name}
    assert len(product) < 16 and {name.rstrip("]").split("-")[2] for name in product} == {"generic", "siracusa", "tight", "far"}
    whole = _collected(file="tests/e2e/test_states.py")
    assert {name for name in whole if "test_wrong_declarations" in name} <= quick
