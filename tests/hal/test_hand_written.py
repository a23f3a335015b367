"""Mistakes of ``tests.hal.hand_written`` are noticed by the host model and outputs alone, without a sanitizer, or change nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tests.hal.hand_written import CHANGES, NETWORKS, Change
from tests.hal.mutants import judge, subject_of
from tests.hal.subject import Subject

SLOW = ("address sanitizer", "thread sanitizer", "garbage")  # what notices mistakes only where somebody asks for it
Make = Callable[[str], Subject]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The project of a network, built once."""

    @cache
    def made(name: str) -> Subject:
        folder = tmp_path_factory.mktemp(name)
        return subject_of(NETWORKS[name](folder), folder / "project")

    return made


@pytest.mark.share(0.06)
@pytest.mark.parametrize(
    ("name", "change"), [pytest.param(name, change, id=f"{name}: {change.what}") for name, row in CHANGES.items() for change in row]
)
def test_a_mistake_is_noticed(name: str, change: Change, project: Make) -> None:
    subject = project(name)
    (verdict,) = judge(subject, [change.mutant(subject.sources())])
    assert verdict.is_explained and not (verdict.killed or "").startswith(SLOW), verdict.killed
    assert not (verdict.killed or "").startswith("compiler"), verdict.killed
