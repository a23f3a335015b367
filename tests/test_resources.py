"""What is kept from run to run: never more than its limit, by all that write there, and what was used last stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deeploy.resources import cache_folder, cached_files, mark_used, prune_cache, write_whole
from tests.command import deeploy_cli

LIMIT = 100_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEEPLOY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DEEPLOY_CACHE_BYTES", str(LIMIT))
    return tmp_path / "cache"


def size_of(root: Path) -> int:
    return sum(entry.st_size for entry in cached_files(root).values())


def test_no_more_is_kept_than_the_limit_and_what_was_used_last_stays(cache: Path) -> None:
    used = cache / "objects" / "used"
    for number in range(300):
        with write_whole(used if number == 0 else cache / ("objects", "projects")[number % 2] / str(number)) as fresh:
            fresh.write_bytes(bytes(2_500))
        if number:
            changed = used.stat().st_mtime_ns
            os.utime(cache / ("objects", "projects")[number % 2] / str(number), (number, number))
            mark_used(used)
            assert used.stat().st_mtime_ns == changed
        assert size_of(cache) <= LIMIT
    names = {path.name for path in cached_files(cache)} - {"used"}
    assert used.exists() and len(names) > 20 and names == {str(number) for number in range(300 - len(names), 300)}


def test_what_was_kept_before_there_was_a_limit_goes_at_the_first_file(cache: Path) -> None:
    (cache / "templates" / "inner").mkdir(parents=True)
    (cache / "templates" / "inner" / "old").write_bytes(bytes(2 * LIMIT))
    with write_whole(cache / "documents" / "new") as fresh:
        fresh.write_bytes(b"1")
    assert [path.name for path in cached_files(cache)] == ["new"]


def test_other_files_in_the_folder_that_a_user_names_stay(cache: Path) -> None:
    (cache / "objects").mkdir(parents=True)
    for path in (cache / "mine", cache / "objects" / "a"):
        path.write_bytes(bytes(LIMIT))
    prune_cache(cache, 0)
    assert (cache / "mine").exists() and not (cache / "objects" / "a").exists()


def test_the_doctor_measures_and_clears_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cache_folder("projects")
    assert folder is not None
    folder.mkdir(parents=True)
    (folder / "a.zip").write_bytes(bytes(1_500_000))
    assert f"{cache}, 1.5 MB" in deeploy_cli("doctor").stdout
    assert f"{cache}, 0.0 MB" in deeploy_cli("doctor", "--clear-cache").stdout and not cached_files(cache)
    monkeypatch.setenv("DEEPLOY_CACHE", "")
    assert "unset DEEPLOY_CACHE" in deeploy_cli("doctor", "--clear-cache").stdout
