"""The Python interface for several chips: ``deeploy.chips.compile`` and what it returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from deeploy.api import speak_python
from deeploy.devices.compile import Planned, plan_pipeline
from deeploy.driver.compile import build, compile_chips, select_target
from deeploy.driver.distributed import Distributed
from deeploy.ir.target import Target
from deeploy.options import Options

__all__ = ["Distributed", "Options", "Planned", "build", "compile", "plan"]


@speak_python
def compile(model: str | Path, target: str | Path | Target, chips: int | Literal["auto"], **options: Any) -> Distributed:
    """Compile an ONNX model for several chips.

    Args:
        options: as ``deeploy.Options`` describes them; ``fallback``, ``fix`` and ``package`` are for one chip alone.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    wanted = Options(target, chips=chips, **options)
    return compile_chips(Path(model), select_target(wanted), wanted)


@speak_python
def plan(model: str | Path, target: str | Path | Target, chips: int | Literal["auto"], **options: Any) -> Planned:
    """Plan a pipeline for a target with a ``device``, for which no code is made; arguments are those of ``compile``.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    wanted = Options(target, chips=chips, **{"partition": "pipeline", **options})
    return plan_pipeline(Path(model), select_target(wanted), wanted)


def __dir__() -> list[str]:
    return sorted(__all__)
