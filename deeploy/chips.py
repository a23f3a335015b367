"""The Python interface for several chips: ``deeploy.chips.compile`` and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from deeploy.api import Answers, speak_python
from deeploy.devices.compile import Planned, plan_pipeline
from deeploy.driver.compile import build, compile_chips, select_target
from deeploy.driver.distributed import Distributed
from deeploy.driver.models import Model, model_file
from deeploy.ir.target import Target
from deeploy.options import Exact, Options

__all__ = ["CompiledChips", "Distributed", "Options", "Planned", "build", "compile", "plan"]


@dataclass(frozen=True, eq=False, repr=False)
class CompiledChips(Distributed, Answers):
    """What ``compile`` returns: a network that is cut over several chips, and the model that it was made of.

    It has ``memory``, ``cycles``, ``energy``, ``layers``, ``run``, ``verify``, ``evaluate``, ``explain``, ``report`` and ``write``, as
    what is compiled for one chip.
    """

    given: Model = ""
    example_inputs: Sequence[object] | None = None
    exact: Exact = "tflite"

    @property
    def source(self) -> tuple[Model | None, Sequence[object] | None]:
        return self.given, self.example_inputs

    @property
    def cycles(self) -> float | None:
        """Predicted cycles of an inference on all chips; None where the target has no timing."""
        return None if self.predicted is None else self.predicted.cycles


@speak_python
def compile(model: Model, target: str | Path | Target, chips: int | Literal["auto"], **options: Any) -> CompiledChips:
    """Compile an ONNX, TFLite or .pt2 file, an ``onnx.ModelProto`` or a PyTorch module for several chips.

    Args:
        options: as ``deeploy.Options`` describes them; ``fallback``, ``fix`` and ``package`` are for one chip alone.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    wanted = Options(target, chips=chips, **options)
    with model_file(model, wanted.example_inputs) as path:
        made = compile_chips(path, select_target(wanted), wanted)
    values = {each.name: getattr(made, each.name) for each in fields(made)}
    return CompiledChips(**values, given=model, example_inputs=wanted.example_inputs, exact=wanted.exact)


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
