"""Where files lie: those that travel beside the Python code (targets, C kernels and templates), and those that are kept from run to run.

In a wheel they are inside the package, in ``deeploy/_data``; in a checkout and in an editable install they are the
folders of the same name at the root of the repository.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

Kind = Literal["targets", "kernels", "templates"]
CacheKind = Literal["documents", "objects", "projects", "templates"]

MOST_BYTES = 200_000_000  # of all that is kept, where DEEPLOY_CACHE_BYTES says no other limit
_UNIT = 1000  # bytes of which each is a byte of the file that counts what was written since the folders were measured
_WRITTEN = "written"

_PACKAGE = Path(__file__).resolve().parent


def resource(kind: Kind) -> Path:
    """Return the folder of this installation that holds ``kind``."""
    packaged = _PACKAGE / "_data"
    return (packaged if packaged.is_dir() else _PACKAGE.parent) / kind


def cache_root() -> Path | None:
    """The folder of all that is kept from run to run: the user's, or that of ``DEEPLOY_CACHE``; None where this is empty.

    What lies there may be deleted at any time.
    """
    named = os.environ.get("DEEPLOY_CACHE")
    if named is not None:
        return Path(named).absolute() if named else None
    around = os.environ.get("XDG_CACHE_HOME")
    return (Path(around) if around else Path.home() / ".cache") / "deeploy"


def cache_folder(kind: CacheKind) -> Path | None:
    """The folder for what is kept of one kind; None where nothing is kept."""
    root = cache_root()
    return root and root / kind


@contextlib.contextmanager
def write_whole(target: Path) -> Iterator[Path]:
    """A path to write ``target`` at, which is there whole or not at all; other processes may write the same one.

    Of a file in the cache, what was not used for longest goes where the cache becomes too large.
    """
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        yield fresh
        size = fresh.stat().st_size
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
    root = cache_root()
    if root is not None and target.is_relative_to(root):
        with contextlib.suppress(OSError):
            _count_written(root, size)


def mark_used(path: Path) -> None:
    """Note that a file of the cache was used now; when it was changed stays, by which Python knows whether its translation is of it."""
    with contextlib.suppress(OSError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def cached_files(root: Path) -> dict[Path, os.stat_result]:
    """The files that are kept: those in the folders of every kind, and no others that lie in a folder that the user named."""
    entries = {}
    for kind in get_args(CacheKind):
        for path in (root / kind).rglob("*"):
            with contextlib.suppress(OSError):  # what another process removed
                entry = path.lstat()
                if not stat.S_ISDIR(entry.st_mode):
                    entries[path] = entry
    return entries


def prune_cache(root: Path, most_bytes: int) -> None:
    """Remove what was not used for longest until no more than ``most_bytes`` are kept."""
    total = 0
    for path, entry in sorted(cached_files(root).items(), key=lambda item: -max(item[1].st_atime_ns, item[1].st_mtime_ns)):
        total += entry.st_size
        if total > most_bytes:
            path.unlink(missing_ok=True)
    (root / _WRITTEN).unlink(missing_ok=True)


def _count_written(root: Path, size: int) -> None:
    """Measure the cache once a tenth of its limit was written: to measure it at every file takes longer than to write one.

    What is kept is then cut to nine tenths, which the next tenth may be added to. A cache without a count was never measured.
    """
    named = os.environ.get("DEEPLOY_CACHE_BYTES", "")
    most_bytes = int(named) if named.isdecimal() else MOST_BYTES
    mark = root / _WRITTEN
    is_measured = mark.exists()
    with mark.open("ab") as file:
        file.write(b"." * (size // _UNIT + 1))
        written = file.tell() * _UNIT
    if not is_measured or written > most_bytes // 10:
        prune_cache(root, most_bytes - most_bytes // 10)
        mark.touch()
