"""The Python interface for several chips: ``deeploy.chips.compile`` and what it returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deeploy.devices.compile import Planned, plan_pipeline
from deeploy.driver.compile import build, compile_chips, loaded
from deeploy.driver.project import Distributed
from deeploy.driver.request import Cut, Request
from deeploy.graph.target import Target

__all__ = ["Cut", "Distributed", "Planned", "build", "compile", "plan"]


def compile(model: str | Path, target: str | Path | Target, cut: Cut, **choices: Any) -> Distributed:
    """Compile an ONNX model for several chips; ``choices`` are those of ``deeploy.compile`` but for ``fallback``.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    return compile_chips(Path(model), loaded(target), cut, _request(choices))


def plan(model: str | Path, target: str | Path | Target, cut: Cut, **choices: Any) -> Planned:
    """Plan a pipeline for a target with a ``device``, for which no code is made; arguments are those of ``compile``.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    return plan_pipeline(Path(model), loaded(target), cut, _request(choices))


def _request(choices: dict[str, Any]) -> Request:
    return Request(**{name: value for name, value in choices.items() if value is not None})
