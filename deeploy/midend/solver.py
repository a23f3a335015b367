"""The solver's Python interface, without the data frames that it imports and that a model need not have: these take longer than to solve.

``cp_model`` is ``ortools.sat.python.cp_model``; it gets pandas when something asks for that.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["cp_model"]


class _Late(ModuleType):
    """A module that is imported when an attribute is first asked for."""

    def __getattr__(self, name: str) -> object:
        return getattr(importlib.import_module(self.__name__), name)


def _imported() -> ModuleType:
    name = "ortools.sat.python.cp_model"
    if "pandas" in sys.modules or name in sys.modules:
        return importlib.import_module(name)
    stand_in = ModuleType("pandas")
    vars(stand_in).update(Index=object, Series=object)  # which annotations mention
    sys.modules["pandas"] = stand_in
    try:
        found = importlib.import_module(name)
    finally:
        del sys.modules["pandas"]
    vars(found)["pd"] = _Late("pandas")
    return found


if TYPE_CHECKING:
    from ortools.sat.python import cp_model as cp_model
else:
    cp_model = _imported()
