"""deeploy: a compiler from quantised ONNX graphs to C for microcontrollers with scratchpad memories instead of caches."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deeploy.version import VERSION as __version__

if TYPE_CHECKING:
    from deeploy import api as api
    from deeploy import chips as chips
    from deeploy import errors as errors
    from deeploy.api import Compiled as Compiled
    from deeploy.api import Form as Form
    from deeploy.api import compile as compile
    from deeploy.api import inspect as inspect
    from deeploy.api import quantize as quantize
    from deeploy.api import sweep as sweep
    from deeploy.planning.planner.machine import Options as Options

_MODULES = ("api", "chips", "errors")
__all__ = ["Compiled", "Form", "Options", "__version__", "api", "chips", "compile", "errors", "inspect", "quantize", "sweep"]


def __getattr__(name: str) -> Any:
    """Load the Python interface at first use, so that importing the package stays cheap; ``deeploy.api`` has all of it."""
    if name in _MODULES:
        return import_module(f"deeploy.{name}")
    if name == "Options":
        from deeploy.planning.planner.machine import Options

        return Options
    if name in __all__:
        from deeploy import api

        return getattr(api, name)
    raise AttributeError(f"module 'deeploy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
