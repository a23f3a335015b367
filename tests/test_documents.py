"""Long TOML files are kept as they were read: the same contents, never those of another text, and none that were wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deeploy.documents import read_document
from deeploy.errors import TargetError
from deeploy.resources import resource

TIMING = resource("targets") / "siracusa" / "timing.toml"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what is kept."""
    monkeypatch.setenv("DEEPLOY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "documents"


def test_contents_are_the_same_from_the_cache(kept: Path, tmp_path: Path) -> None:
    first = read_document(TIMING, "timing.toml")
    (file,) = kept.glob("*.json")
    file.write_text(json.dumps({**first, "kernel": {}}), encoding="utf-8")
    assert read_document(TIMING, "timing.toml")["kernel"] == {}  # it is read from there
    other = tmp_path / "timing.toml"
    other.write_text(TIMING.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    assert read_document(other, "timing.toml") == first and len(list(kept.glob("*.json"))) == 2


@pytest.mark.parametrize("damage", ["", "{", "[1]"])
def test_a_damaged_cache_is_as_good_as_none(kept: Path, damage: str) -> None:
    first = read_document(TIMING, "timing.toml")
    (file,) = kept.glob("*.json")
    file.write_text(damage, encoding="utf-8")
    assert read_document(TIMING, "timing.toml") == first


def test_what_is_wrong_is_not_kept(kept: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "timing.toml"
    wrong.write_text(TIMING.read_text(encoding="utf-8").replace("mhz = ", "mhz = -"), encoding="utf-8")
    for _ in range(2):
        with pytest.raises(TargetError, match="mhz"):
            read_document(wrong, "timing.toml", TargetError)
    assert not list(kept.glob("*.json"))


def test_nothing_is_kept_where_the_cache_is_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPLOY_CACHE", "")
    monkeypatch.chdir(tmp_path)
    assert read_document(TIMING, "timing.toml")["machine"]["clock"]["mhz"] > 0
    assert not list(tmp_path.rglob("*"))
