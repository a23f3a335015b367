"""Where the files lie that travel beside the Python code: targets, C kernels and templates.

In a wheel they are inside the package, in ``deeploy/_data``; in a checkout and in an editable install they are the
folders of the same name at the root of the repository.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

Kind = Literal["targets", "kernels", "templates"]

_PACKAGE = Path(__file__).resolve().parent


def resource(kind: Kind) -> Path:
    """Return the folder of this installation that holds ``kind``."""
    packaged = _PACKAGE / "_data"
    return (packaged if packaged.is_dir() else _PACKAGE.parent) / kind
