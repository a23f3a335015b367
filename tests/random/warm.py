"""What every command of one process does again is done once: targets checked, templates compiled, the command line's options collected."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from mako.lookup import TemplateLookup

ROOT = Path(__file__).resolve().parents[2]


@cache
def up() -> None:
    """Keep what cannot change between two cases: targets of this repository, their templates, the command line.

    For processes of their own: what is kept stays in the modules of the compiler.
    """
    from typer.main import get_command

    from deeploy import cli
    from deeploy.backend import chips, emit
    from deeploy.target import _find

    load, lookups = _find._from_folder, cache(lambda folders: TemplateLookup(list(folders), strict_undefined=True))
    known: dict[Path, Any] = {}

    def found(folder: Path) -> Any:
        if folder not in known and folder.is_relative_to(ROOT / "targets"):
            known[folder] = load(folder)
        return known[folder] if folder in known else load(folder)

    def lookup(folders: list[str], strict_undefined: bool) -> TemplateLookup:
        assert strict_undefined
        return lookups(tuple(folders))

    owners: list[tuple[Any, str, Any]] = [
        (_find, "_from_folder", found),
        (_find, "_points", cache(_find._entry_points)),
        (emit, "TemplateLookup", lookup),
        (chips, "TemplateLookup", lookup),
        (cli, "app", get_command(cli.app)),
    ]
    for owner, name, value in owners:
        setattr(owner, name, value)
