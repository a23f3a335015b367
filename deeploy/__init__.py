"""deeploy: a compiler from quantised ONNX graphs to C for microcontrollers with scratchpad memories instead of caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deeploy.version import VERSION as __version__

if TYPE_CHECKING:
    from deeploy.api import Compiled as Compiled
    from deeploy.api import compile as compile
    from deeploy.midend.machine import Options as Options

__all__ = ["Compiled", "Options", "__version__", "compile"]


def __getattr__(name: str) -> Any:
    """Load the Python interface at first use, so that importing the package stays cheap."""
    if name in ("compile", "Compiled"):
        from deeploy import api

        return getattr(api, name)
    if name == "Options":
        from deeploy.midend.machine import Options

        return Options
    raise AttributeError(f"module 'deeploy' has no attribute {name!r}")
