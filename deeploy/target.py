"""The public interface for targets: everything that a target imports, and how a target is found.

A target is a folder with a ``target.py`` that defines ``TARGET``. It is found by name in the compiler's ``targets/``, by
path, or through the entry-point group ``deeploy.targets``.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from deeploy.errors import DeeployError, TargetError, UsageError, shorten
from deeploy.graph.array import Array, load_array
from deeploy.graph.kernel import Kernel, Layout, Tiling, permuted, types
from deeploy.graph.nest import MAX, SUM, Map, Nest, coupled, parallel, reduction
from deeploy.graph.nodes import Node, Tensor
from deeploy.graph.rewrite import Pass, Rule, rule
from deeploy.graph.target import API_VERSION, DmaPath, Engine, Memory, PathTiming, Rate, Target, Timing, load_timing
from deeploy.graph.topology import Link, Topology, load_topology
from deeploy.graph.types import DType
from deeploy.resources import resource

__all__ = [
    "API_VERSION",
    "MAX",
    "SUM",
    "Array",
    "DType",
    "DmaPath",
    "Engine",
    "Kernel",
    "Layout",
    "Link",
    "Map",
    "Memory",
    "Nest",
    "Node",
    "Pass",
    "PathTiming",
    "Rate",
    "Rule",
    "Target",
    "Tensor",
    "Tiling",
    "Timing",
    "Topology",
    "coupled",
    "load",
    "load_array",
    "load_timing",
    "load_topology",
    "names",
    "parallel",
    "permuted",
    "reduction",
    "resource",
    "rule",
    "types",
]

_GROUP = "deeploy.targets"


def names() -> list[str]:
    """Names of every target that can be found without a path."""
    builtin = [folder.name for folder in resource("targets").iterdir() if (folder / "target.py").is_file()]
    return sorted({*builtin, *(point.name for point in importlib.metadata.entry_points(group=_GROUP))})


def load(target: str | Path) -> Target:
    """Find a target by name or by the path of its folder.

    Raises:
        UsageError: no such target.
        TargetError: its folder does not define a usable ``TARGET``.
    """
    text = str(target)
    folder = resource("targets") / text
    if text.isidentifier() and (folder / "target.py").is_file():
        return _from_folder(folder)
    if Path(text).is_dir():
        return _from_folder(Path(text).resolve())
    for point in importlib.metadata.entry_points(group=_GROUP):
        if point.name == text:
            return _checked(point.load(), f"entry point {point.value}")
    raise UsageError(f"there is no target {text}", f"Name one of {', '.join(names())}, or the folder of a target (it holds a target.py).")


def _from_folder(folder: Path) -> Target:
    if not (folder / "target.py").is_file():
        raise TargetError(f"{folder} holds no target.py", "Give the folder of a target; its target.py defines TARGET.")
    return _checked(getattr(_package(folder), "TARGET", None), str(folder / "target.py"))


def _package(folder: Path) -> ModuleType:
    """Import ``folder`` as a package, so that its modules can import each other relatively, and return its target.py."""
    package = f"deeploy_target_{folder.name}_{abs(hash(str(folder))):x}"
    if f"{package}.target" not in sys.modules:
        parent = ModuleType(package)
        parent.__path__ = [str(folder)]
        sys.modules[package] = parent
        spec = importlib.util.spec_from_file_location(f"{package}.target", folder / "target.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[f"{package}.target"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:  # whatever a target's own code does, even SystemExit, is the target's mistake
            del sys.modules[f"{package}.target"]
            if isinstance(error, DeeployError | KeyboardInterrupt):
                raise
            raise TargetError(
                f"{folder / 'target.py'} cannot be imported: {type(error).__name__}: {shorten(str(error), 200)}",
                "Correct the target; --debug shows where it fails.",
            ) from error
    return sys.modules[f"{package}.target"]


def _checked(target: object, origin: str) -> Target:
    if not isinstance(target, Target):
        raise TargetError(f"{origin} defines no TARGET of type deeploy.target.Target", "Assign one to the name TARGET.")
    if target.api != API_VERSION:
        raise TargetError(
            f"target {target.name} ({origin}) was written for version {target.api} of the target interface,"
            f" this compiler has {API_VERSION}",
            "Install the compiler it was written for, or port the target.",
        )
    return target
