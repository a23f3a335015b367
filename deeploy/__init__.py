"""deeploy: a compiler from quantised ONNX graphs to C for microcontrollers with scratchpad memories instead of caches.

A network goes through these rooms, of which each imports those in front of it alone, and what they share (``errors``,
``documents``, ``schemas``, ``jobs``, ``resources``, ``version``):

* ``ir``: values, nodes and graphs, element types, loop nests and maps, expressions, kernels, machines and topologies.
* ``options``: what a user may ask of a compilation, stated once.
* ``operators``: the operators that kernels are declared on: nests, NumPy references, how constants are stored.
* ``frontend``: ONNX in: checked at the border, folded, normalised, lowered to integers.
* ``target``: what a package with a target imports, and how targets are found.
* ``partition``: cuts of a network over several chips.
* ``planning``: kernels, tiles, addresses and order, by constraint programming.
* ``schedule``: what every thread of control computes, moves and waits for, made from a plan.
* ``certify``: whether printed C does what the graph says, for all inputs; it imports ``ir`` and ``operators`` alone.
* ``backend``: C from schedules, and projects on disk.
* ``execution``: projects run and predicted: runners, simulation, and the comparison of outputs.
* ``report``: pages, pictures and texts of a project.
* ``fallback``: generated C for operators that have no kernel.
* ``driver``: a compilation, a verification and an evaluation as a whole.

Beside them stand ``advice``, ``bringup`` (help for new targets), ``devices`` (plans for devices without code), ``explore``
(accelerators to build), ``generation`` (of text), ``quantization`` (of float models) and ``training`` (steps that learn, as graphs). On top
of all are the interfaces ``api`` (with ``chips``), ``cli`` and ``sweeps``, which runs many command lines; nobody else imports what stands
beside.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deeploy.version import VERSION as __version__

if TYPE_CHECKING:
    from deeploy import api as api
    from deeploy import chips as chips
    from deeploy import errors as errors
    from deeploy.api import AudioFeatures as AudioFeatures
    from deeploy.api import Compiled as Compiled
    from deeploy.api import Form as Form
    from deeploy.api import advise as advise
    from deeploy.api import compile as compile
    from deeploy.api import evaluate as evaluate
    from deeploy.api import frontend_audio as frontend_audio
    from deeploy.api import inspect as inspect
    from deeploy.api import quantize as quantize
    from deeploy.api import sweep as sweep
    from deeploy.api import train_graph as train_graph
    from deeploy.api import verify as verify
    from deeploy.options import Options as Options

_MODULES = ("api", "chips", "errors")
__all__ = [
    "AudioFeatures",
    "Compiled",
    "Form",
    "Options",
    "__version__",
    "advise",
    "api",
    "chips",
    "compile",
    "errors",
    "evaluate",
    "frontend_audio",
    "inspect",
    "quantize",
    "sweep",
    "train_graph",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Load the Python interface at first use, so that importing the package stays cheap; ``deeploy.api`` has all of it."""
    if name in _MODULES:
        return import_module(f"deeploy.{name}")
    if name == "Options":
        from deeploy.options import Options

        return Options
    if name in __all__:
        from deeploy import api

        return getattr(api, name)
    raise AttributeError(f"module 'deeploy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
