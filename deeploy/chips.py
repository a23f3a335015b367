"""The Python interface for several chips: ``deeploy.chips.compile`` and what it returns."""

from __future__ import annotations

from pathlib import Path

from deeploy.devices.compile import Planned, plan_pipeline
from deeploy.driver.compile import build, compile_chips, load_target
from deeploy.driver.project import Distributed
from deeploy.driver.request import Cut, Request
from deeploy.ir.target import Target
from deeploy.planning.planner.machine import Options

__all__ = ["Cut", "Distributed", "Options", "Planned", "Request", "build", "compile", "plan"]


def compile(model: str | Path, target: str | Path | Target, cut: Cut, request: Request | None = None) -> Distributed:
    """Compile an ONNX model for several chips.

    Args:
        request: options, as those of ``deeploy.compile``; ``fallback`` is for one chip alone.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    return compile_chips(Path(model), load_target(target), cut, request or Request())


def plan(model: str | Path, target: str | Path | Target, cut: Cut, request: Request | None = None) -> Planned:
    """Plan a pipeline for a target with a ``device``, for which no code is made; arguments are those of ``compile``.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    return plan_pipeline(Path(model), load_target(target), cut, request or Request())
