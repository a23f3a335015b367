"""Names in messages: on one line, printable, and no longer than they may be."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeploy import errors
from deeploy.errors import DeeployError, NoKernelError, make_printable, shorten


@given(st.text(), st.integers(5, 40))
def test_shortened_names_are_printable_and_no_longer_than_the_limit(name: str, limit: int) -> None:
    found = shorten(name, limit)
    assert len(found) <= limit and found.isascii() and (found.isprintable() or not found)
    whole = shorten(name, 10**6)
    assert found == whole if len(whole) <= limit else found == f"{whole[: (limit - 3) // 2]}...{whole[-((limit - 3) // 2) :]}"


@pytest.mark.parametrize(("text", "shown"), [("a\nb", "a\nb"), ("\x1b[2J", "\\x1b[2J"), ("µ", "µ"), ("\u202e\r\t", "\\u202e\\r\\t")])
def test_terminals_are_written_printable_text_alone(text: str, shown: str) -> None:
    assert make_printable(text) == shown


def test_advice_is_added_to_a_remedy() -> None:
    assert (
        str(NoKernelError("no kernel", "Use another target.").also("say --fallback")) == "no kernel\nUse another target, or say --fallback."
    )


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name[0].isupper()])
def test_errors_reach_another_process_whole(name: str) -> None:
    kind = getattr(errors, name)
    found = pickle.loads(pickle.dumps(kind("what is wrong", "what to do")))
    assert type(found) is kind and isinstance(found, DeeployError) and str(found) == "what is wrong\nwhat to do"
