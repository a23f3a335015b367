"""What every command of one process does again is done once: targets are found and checked."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@cache
def up() -> None:
    """Keep what cannot change between two cases: targets of this repository, and those of packages.

    For processes of their own: what is kept stays in the modules of the compiler.
    """
    from deeploy.target import _find

    load = _find._from_folder
    known: dict[Path, Any] = {}

    def found(folder: Path) -> Any:
        if folder not in known and folder.is_relative_to(ROOT / "targets"):
            known[folder] = load(folder)
        return known[folder] if folder in known else load(folder)

    for name, value in (("_from_folder", found), ("_entry_points", cache(_find._entry_points))):
        setattr(_find, name, value)
