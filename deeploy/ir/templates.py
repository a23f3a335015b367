"""The templates of a target, translated to Python once: in a process, and, where there is a cache folder, on a machine."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from deeploy.resources import cache_folder, mark_used, write_whole

if TYPE_CHECKING:
    from mako.lookup import TemplateLookup
else:
    # Mako would import Pygments to colour its error pages, which nobody sees here, and all lexers with it.
    highlighter = sys.modules.pop("pygments", None)
    sys.modules["pygments"] = None
    try:
        from mako.lookup import TemplateLookup
    finally:
        del sys.modules["pygments"]
        if highlighter is not None:
            sys.modules["pygments"] = highlighter

import mako

__all__ = ["TemplateLookup", "template_lookup"]


def template_lookup(folders: tuple[Path, ...]) -> TemplateLookup:
    """What finds a template in these folders, by its name; an undefined variable in one is an error."""
    return _make_lookup(folders, _writable_folder(cache_folder("templates")))


@cache
def _make_lookup(folders: tuple[Path, ...], cache: Path | None) -> TemplateLookup:
    def module(filename: str, uri: str) -> str:
        """Where the translation of a template is kept: another file, or another text of it, has another place."""
        del uri
        entry = os.stat(filename)
        what = f"{mako.__version__} {os.path.abspath(filename)} {entry.st_size} {entry.st_mtime_ns}"
        place = f"{cache}/{hashlib.sha256(what.encode()).hexdigest()}.py"
        mark_used(Path(place))
        return place

    where = None if cache is None else module
    paths = [str(folder) for folder in folders]
    return TemplateLookup(paths, strict_undefined=True, modulename_callable=where, module_writer=_write_module)


def _write_module(source: bytes, place: str) -> None:
    with write_whole(Path(place)) as fresh:
        fresh.write_bytes(source)


def _writable_folder(folder: Path | None) -> Path | None:
    try:
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return folder if os.access(folder, os.W_OK | os.X_OK) else None
    except OSError:
        pass
    return None
