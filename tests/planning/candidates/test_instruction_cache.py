"""Which instructions are cached when a call begins."""

from __future__ import annotations

import pytest

from deeploy.planning.candidates.instruction_cache import InstanceCode, is_cached

CODES = {
    "a": InstanceCode("a"),
    "b": InstanceCode("b"),
    "X": InstanceCode("X", is_accelerated=True),
    "Y": InstanceCode("Y", is_accelerated=True),
    "s": InstanceCode("s", is_link=True),
    "r": InstanceCode("r", is_link=True),
}


@pytest.mark.parametrize(
    ("calls", "cached"),
    [
        ("aaba", [False, True, False, False]),
        ("aXaXYa", [False, False, True, False, False, True]),  # starting an accelerator leaves what the cores ran
        ("XXaX", [False, True, False, False]),  # and is cached behind itself only
        ("assa", [False, False, True, True]),
        ("srsXs", [False] * 5),
        ("aXb", [False] * 3),
    ],
)
def test_short_calls_leave_what_was_there(calls: str, cached: list[bool]) -> None:
    codes = [CODES[call] for call in calls]
    assert [is_cached(codes[: step + 1], step) for step in range(len(codes))] == cached
