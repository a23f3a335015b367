"""Samples of large matrices of tests: ``make test`` runs a part of each, ``make test-full`` all of it.

Of a parametrised test in a file of ``SHARES``, or with the mark ``share``, that share of its cases is drawn by a seed (``--draw``;
``all``: every case), the others are marked ``slow``. Where cases are products of several parameters, every value of every parameter is
in at least one case that is drawn. The seed is the same in every ``make test``, so that a commit passes or fails whoever tests it. CI
runs, beside it, some of what is slow, drawn by the commit (``--most``, ``--minutes``), of every test one case before a second one: what
a change breaks in a case that is seldom drawn is found some commits later. These run in the order they are drawn in, so that whatever
the time is enough for is a sample of all folders; the others keep the order of their files, so that fixtures are built once.

Projects that are written are certified in a share of the tests (``CERTIFIED``), drawn in the same way, and in all tests that work with
certificates: proving takes a fifth of the time of a small network, whose C most of them build and run besides.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import ModuleType
from unittest import mock

import pytest

# Files and folders of tests, and the share of each parametrised test's cases that `make test` runs. Lists of what a user can get wrong
# are not sampled: each of their cases has a message of its own.
SHARES = {
    "tests/e2e/test_co_planned.py": 0.4,
    "tests/bringup/test_check.py": 0.2,
    "tests/frontend/lower/test_constructs.py": 0.1,
    "tests/frontend/lower/test_dialect_functions.py": 0.25,
    "tests/frontend/expand/test_expansion.py": 0.34,
    "tests/hal/test_npu.py": 0.34,
    "tests/operators": 0.12,
    "tests/random/test_random.py": 0.25,
    "tests/schemas/test_schemas.py": 0.5,
    "tests/execution/simulation/test_walk.py": 0.2,
    "tests/targets": 0.12,
}
PRODUCTS = {"tests/e2e": 0.25}  # those of which only products of several parameters are sampled, and no lists
CERTIFIED = 0.25  # of the tests that do not name certificates
Case = tuple[str, frozenset[tuple[str, int]]]  # its name, and its parameters with the numbers of their values
EVERYTHING = "all"  # the seed that draws every case
_BEGIN = time.monotonic()
_seeds = ["0"]  # the last one is that of ``--draw``


def share_of(path: str, is_product: bool = False) -> float:
    """The share of the cases of a parametrised test in the file ``path``, below the root of the repository; 1 where all are run."""
    shares = {**SHARES, **(PRODUCTS if is_product else {})}
    return next((share for place, share in shares.items() if path == place or path.startswith(f"{place}/")), 1.0)


def order(name: str, seed: str) -> bytes:
    """Where a case stands among the others of its test, by the seed."""
    return hashlib.sha256(f"{seed}\0{name}".encode()).digest()


def is_drawn(name: str, share: float) -> bool:
    """Whether a test does what it does for a share of its cases only, and the seed drew ``name``."""
    return _seeds[-1] == EVERYTHING or int.from_bytes(order(name, _seeds[-1])[:8]) < share * 2**64


def is_product(cases: Sequence[Case]) -> bool:
    """Whether the cases of a test are more than the values of any of its parameters."""
    values = {value for _, own in cases for value in own}
    return len(cases) > max(Counter(name for name, _ in values).values(), default=0)


def drawn(cases: Sequence[Case], share: float, seed: str) -> set[str]:
    """The names of the cases that are run.

    Args:
        cases: the name of each, and its parameters with the numbers of their values.
    """
    left = sorted(cases, key=lambda case: order(case[0], seed))
    values = frozenset(value for _, own in cases for value in own)
    covers = is_product(cases)
    wanted = math.ceil(share * len(cases))
    chosen: set[str] = set()
    seen: set[tuple[str, int]] = set()
    while left and (len(chosen) < wanted or (covers and not seen >= values)):
        best = max(left, key=lambda case: len(case[1] - seen)) if covers and not seen >= values else left[0]
        left.remove(best)
        chosen.add(best[0])
        seen |= best[1]
    return chosen


def _cases(group: Sequence[pytest.Item]) -> list[Case]:
    """The cases of a test; values are told apart by what they print, since pytest numbers calls instead of values in ``indices``."""
    numbers: dict[tuple[str, str], int] = {}
    cases = []
    for item in group:
        own = [(name, repr(value)) for name, value in item.callspec.params.items()]  # type: ignore[attr-defined]
        cases.append((item.nodeid, frozenset((name, numbers.setdefault((name, text), len(numbers))) for name, text in own)))
    return cases


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--draw", default="0", metavar="SEED", help="seed of samples of large matrices of tests, or all")
    parser.addoption("--most", type=int, metavar="COUNT", help="run at most so many of the tests that are selected, drawn by the seed")
    parser.addoption("--minutes", type=float, metavar="COUNT", help="skip the tests that have not begun after so many minutes")


def pytest_configure(config: pytest.Config) -> None:
    _seeds.append(config.getoption("draw"))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterable[None]:
    """Mark what is not drawn as slow, before ``-m`` selects; then draw of what is left."""
    seed = config.getoption("draw")
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if hasattr(item, "callspec"):
            groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, group in groups.items():
        cases = _cases(group)
        own = group[0].get_closest_marker("share")
        share = own.args[0] if own is not None else share_of(name.partition("::")[0], is_product(cases))
        if share < 1 and seed != EVERYTHING:
            run = drawn(cases, share, seed)
            for item in group:
                if item.nodeid not in run:
                    item.add_marker("slow")
    yield
    most = config.getoption("most")
    if most is not None:
        items.sort(key=lambda item: order(item.nodeid, seed))
        _take_turns(items)
        config.hook.pytest_deselected(items=items[most:])
        del items[most:]


def _take_turns(items: list[pytest.Item]) -> None:
    """One case of every test first, then a second one of those that have more, and so on: a test of one case is drawn as often."""
    count: Counter[str] = Counter()
    turns = {}
    for item in items:
        test = item.nodeid.partition("[")[0]
        turns[item] = count[test]
        count[test] += 1
    items.sort(key=lambda item: turns[item])


def names_certificates(module: ModuleType) -> bool:
    """Whether a file of tests uses something of ``deeploy.certify``, or of a module of tests that does."""
    places = {getattr(value, "__module__", None) or getattr(value, "__name__", "") for value in vars(module).values()}
    return any(place.startswith("deeploy.certify") or place.endswith(("proofs", "mutants", "memories", "seeded")) for place in places)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterable[None]:
    """Write projects without a certificate in the tests that are not drawn; where the compiler is not loaded yet, it stays so."""
    with ExitStack() as stack:
        if not is_drawn(f"certificate of {item.nodeid}", CERTIFIED) and not names_certificates(item.module):  # type: ignore[attr-defined]
            for module, kind in (("deeploy.driver.project", "CompiledProject"), ("deeploy.driver.distributed", "Distributed")):
                if module in sys.modules:
                    loaded = getattr(sys.modules[module], kind)
                    stack.enter_context(mock.patch.object(loaded, "certify", lambda self, files, is_exhaustive=False: []))
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what would begin too late; what began ends, so that its failure counts."""
    minutes = item.config.getoption("minutes")
    if minutes is not None and time.monotonic() - _BEGIN > 60 * minutes:
        pytest.skip(f"{minutes:g} minutes are over")
