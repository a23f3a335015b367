"""Where files lie: those that travel beside the Python code (targets, C kernels and templates), and those that are kept from run to run.

In a wheel they are inside the package, in ``deeploy/_data``; in a checkout and in an editable install they are the
folders of the same name at the root of the repository.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

Kind = Literal["targets", "kernels", "templates"]

MOST_BYTES = 1 << 30  # of a folder of what is kept
DAY = 86_400.0  # seconds between two looks at its size

_PACKAGE = Path(__file__).resolve().parent


def resource(kind: Kind) -> Path:
    """Return the folder of this installation that holds ``kind``."""
    packaged = _PACKAGE / "_data"
    return (packaged if packaged.is_dir() else _PACKAGE.parent) / kind


def cache_folder(kind: Literal["documents", "objects", "projects", "templates"]) -> Path | None:
    """The folder for what is kept from run to run, in the user's cache folder or in that of ``DEEPLOY_CACHE``; None where this is empty.

    What lies there may be deleted at any time.
    """
    named = os.environ.get("DEEPLOY_CACHE")
    if named is not None:
        return Path(named).absolute() / kind if named else None
    around = os.environ.get("XDG_CACHE_HOME")
    return (Path(around) if around else Path.home() / ".cache") / "deeploy" / kind


@contextlib.contextmanager
def write_whole(target: Path) -> Iterator[Path]:
    """A path to write ``target`` at, which is there whole or not at all; other processes may write the same one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        yield fresh
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


def prune_folder(folder: Path) -> None:
    """Remove what has not been used for longest, once a day, where a folder of what is kept is too large."""
    mark = folder / "looked"
    if mark.exists() and time.time() - mark.stat().st_mtime < DAY:
        return
    mark.touch()
    entries = sorted(((path.stat(), path) for path in folder.iterdir()), key=lambda entry: -entry[0].st_mtime)
    total = 0
    for used, path in entries:
        total += used.st_size
        if total > MOST_BYTES:
            path.unlink(missing_ok=True)
