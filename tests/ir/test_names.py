"""Names of a model in generated code: identifiers, comments, strings."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeploy.errors import UnsupportedError
from deeploy.ir.names import FreeText, Names, c_comment, c_literal, c_string, guard_value, is_name

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=80), min_size=1, max_size=20, unique=True))
def test_identifiers_are_valid_short_and_unique(texts: list[str]) -> None:
    names = Names()
    found = [names.unique(text) for text in texts]
    assert all(IDENTIFIER.fullmatch(name) and len(name) <= 56 for name in found)
    assert len({name.lower() for name in found}) == len(texts)


def test_keywords_and_long_names_are_told_apart() -> None:
    names = Names()
    assert names.unique("while") == "while_"
    long = [names.unique("x" * 10_000 + end) for end in "ab"]
    assert long[0] != long[1] and len(long[0]) <= 50
    assert [names.unique(text) for text in ("a/b", "a.b", "A b")] == ["a_b", "a_b_2", "A_b_3"]


@given(st.text(max_size=200))
def test_comments_hold_nothing_that_ends_them(text: str) -> None:
    result = c_comment(text)
    assert len(result) <= 80
    assert not set(result) & set('*/\\\n"$%?@`{}#') and result.isascii()


def test_strings_read_back_as_the_name(tmp_path: Path) -> None:
    hostile = ['quote " backslash \\ newline \n ?" ??/ ${x} %d \x01', "äöü 名前", "a1\x002"]
    source = tmp_path / "strings.c"
    literals = ", ".join(c_string(text) for text in hostile)
    sizes = ", ".join(str(len(text.encode())) for text in hostile)
    source.write_text(
        f"#include <stdio.h>\nint main(void) {{ const char *s[] = {{{literals}}}; const int n[] = {{{sizes}}};\n"
        "for (int i = 0; i < 3; i++) { fwrite(s[i], 1, (unsigned)n[i], stdout); putchar(0xFF); } return 0; }\n"
    )
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", str(source), "-o", str(tmp_path / "strings")], check=True)
    output = subprocess.run([str(tmp_path / "strings")], check=True, capture_output=True).stdout
    assert output.split(b"\xff")[:-1] == [text.encode() for text in hostile]


@given(st.text(max_size=20))
def test_texts_that_are_no_names_can_be_compared_and_not_printed(text: str) -> None:
    (inner,) = guard_value({"a": [text]}, "node n (Op)")["a"]
    assert inner == text and inner != f"{text}x"
    if IDENTIFIER.fullmatch(f"x{text}"):
        assert is_name(text) and inner is text and c_literal(inner) == c_string(text)
        return
    assert isinstance(inner, FreeText) and c_literal(inner) == c_string(text)
    for use in (str, lambda t: f"{t}", lambda t: "PAD_" + t, lambda t: t + "", lambda t: t.upper(), lambda t: t[0], list, lambda t: t % 1):
        with pytest.raises(UnsupportedError, match="would become a part of the C"):
            use(inner)
