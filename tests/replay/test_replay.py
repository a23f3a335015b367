"""The comparison of two trees: equal ones are equal, and what is seeded into one of them is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.replay.__main__ import Replay, is_renamed
from tests.replay.corpus import ROOT, Case, cases
from tests.replay.worker import plain

MODEL = ROOT / "examples" / "digits" / "digits.onnx"
CASES = [
    Case("digits@duo", lambda: (MODEL.read_bytes(), [])),
    Case("refused@duo", lambda: (b"no model", [])),
    Case("without a model@duo", lambda: (None, [])),
]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of the same compiler, in which a target has another name."""
    folder = tmp_path_factory.mktemp("changed")
    (folder / "deeploy").symlink_to(ROOT / "deeploy")
    shutil.copytree(ROOT / "examples" / "targets", folder / "examples" / "targets")
    file = folder / "examples" / "targets" / "duo" / "deeploy_duo" / "target.py"
    text = file.read_text()
    assert text.count('name="duo"') == 1
    file.write_text(text.replace('name="duo"', 'name="pair"'))
    return folder


def test_what_is_seeded_is_found_unless_it_is_a_declared_renaming(
    changed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Replay(ROOT, changed, tmp_path / "kept", tmp_path, {}).run(CASES) == (1, "replay: 1 of 2 cases differ")
    found = capsys.readouterr().out
    assert found.startswith("digits@duo: exit status 0; ")
    assert '"duo"' in found and '"pair"' in found
    again = Replay(tmp_path / "nothing", changed, tmp_path / "kept", tmp_path, {"duo": "pair"})  # BASE is not compiled again
    assert again.run(CASES) == (0, "replay: equal, 2 cases")
    assert capsys.readouterr().out == ""


def test_versions_and_comments_in_c_do_not_count() -> None:
    one = b'/* by deeploy 1.2.0 */\n\nint a = 1; // one\nchar *b = "/* // 1.2.0";\n'
    assert plain("a.c", one, "1.2.0") == b'int a = 1;\nchar *b = "/* // 1.2.0";\n'
    assert plain("a.json", b'{"version": "1.2.0", "x": "1.2.0"}', "1.2.0") == b'{"version": "VERSION", "x": "1.2.0"}'


def test_the_corpus_has_one_order_and_every_configuration() -> None:
    names = [case.name for case in cases()]
    assert names == [case.name for case in cases()] and len({*names}) == len(names)
    assert len({name.rpartition("@")[2] for name in names[:200]}) > 8


@pytest.mark.parametrize(
    ("one", "two", "is_same"),
    [
        ('int a = f(a, "x\\"y");', 'int b = g(b, "z");', True),
        ("a + a", "a + b", False),
        ("a + b", "c + c", False),
        ("a = 1", "a = 2", False),
        ("a = 1", "a = 1;", False),
        ("a", "1", False),
    ],
)
def test_names_may_differ_one_to_one(one: str, two: str, is_same: bool) -> None:
    assert is_renamed(one, two) == is_same
