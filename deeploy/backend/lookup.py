"""Mako's templates, without the highlighter of its error pages: to import that takes longer than to import the rest."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

__all__ = ["TemplateLookup"]

_HIGHLIGHTER = "mako.ext.pygmentplugin"  # Mako does without where it cannot be imported


def _imported() -> type:
    is_loaded = "mako.exceptions" in sys.modules or _HIGHLIGHTER in sys.modules
    if not is_loaded:
        sys.modules[_HIGHLIGHTER] = None  # type: ignore[assignment]
    try:
        found: type = importlib.import_module("mako.lookup").TemplateLookup
    finally:
        if not is_loaded:
            del sys.modules[_HIGHLIGHTER]
    return found


if TYPE_CHECKING:
    from mako.lookup import TemplateLookup as TemplateLookup
else:
    TemplateLookup = _imported()
