"""Where files lie: those that travel beside the Python code (targets, C kernels and templates), and those that are kept from run to run.

In a wheel they are inside the package, in ``deeploy/_data``; in a checkout and in an editable install they are the
folders of the same name at the root of the repository.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

Kind = Literal["targets", "kernels", "templates"]

_PACKAGE = Path(__file__).resolve().parent


def resource(kind: Kind) -> Path:
    """Return the folder of this installation that holds ``kind``."""
    packaged = _PACKAGE / "_data"
    return (packaged if packaged.is_dir() else _PACKAGE.parent) / kind


def cache_folder(kind: Literal["objects", "templates"]) -> Path | None:
    """The folder for what is kept from run to run, in the user's cache folder or in that of ``DEEPLOY_CACHE``; None where this is empty.

    What lies there may be deleted at any time.
    """
    named = os.environ.get("DEEPLOY_CACHE")
    if named is not None:
        return Path(named).absolute() / kind if named else None
    around = os.environ.get("XDG_CACHE_HOME")
    return (Path(around) if around else Path.home() / ".cache") / "deeploy" / kind
