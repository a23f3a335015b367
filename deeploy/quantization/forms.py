"""Forms of quantisation, tried on a target: how fast each runs there, and how much of the float model's accuracy it keeps.

A target says which forms suit its kernels by what its plans cost: every form is quantised, planned and run by onnxruntime.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deeploy.documents import Contents
from deeploy.driver.compile import compile_networks
from deeploy.errors import DeeployError, UnsupportedError, UsageError
from deeploy.ir.target import Target
from deeploy.options import Options
from deeploy.quantization.form import Form
from deeploy.quantization.losses import compare_networks
from deeploy.quantization.noise import format_ratio
from deeploy.quantization.static import CalibrationSource, check_output, read_source, scratch_folder, write_quantised
from deeploy.report.text import align_table, format_number

FORMS = (
    Form(),
    Form(activations="uint8"),
    Form(symmetric=True),
    Form(per_channel=False),
    Form(per_channel=False, symmetric=True),
    Form(symmetric=True, powers=True),
)


@dataclass(frozen=True)
class Trial:
    """What became of a form.

    Attributes:
        cycles: predicted, of one inference.
        signal_to_noise: of the worst output of floats over the calibration samples, in decibel.
        agreement: share of rows of outputs whose largest element is the float model's; None where rows have one element.
        refused: why it cannot be quantised or compiled; then the figures are 0.
    """

    form: Form
    cycles: int = 0
    signal_to_noise: float = 0.0
    agreement: float | None = None
    refused: str = ""

    def contents(self) -> Contents:
        """The trial as a document for ``--json``: cycles, signal-to-noise ratio in decibel, agreement."""
        head: Contents = {"form": str(self.form)}
        if self.refused:
            return {**head, "refused": self.refused}
        return {**head, "cycles": self.cycles, "signal_to_noise": self.signal_to_noise, "agreement": self.agreement}


def quantize_for(
    target: Target,
    float_model: Path,
    calibration: Path,
    output: Path,
    loss: float,
    options: Options,
    states: Mapping[str, str] | None = None,
    on_form: Callable[[str], None] | None = None,
) -> tuple[list[Trial], Trial]:
    """Quantise a float model in the form that a target runs in the fewest cycles, of those that lose little accuracy.

    Args:
        float_model, calibration, output, states: as ``deeploy.quantization.static.quantize_model`` takes them.
        loss: decibel of signal to noise that the form may lose beside the most accurate one.
        options: how the network will be compiled.
        on_form: called with every form before it is tried.

    Returns:
        What became of every form, and the one that was written.

    Raises:
        UsageError: the target has no cycles to choose by, or files cannot be used.
        UnsupportedError: no form can be compiled.
    """
    if target.timing is None:
        raise UsageError(
            f"target {target.name} has no timing, which --for needs to compare quantisation schemes",
            "Name a target with timing, or leave --for out.",
        )
    check_output(output)
    source = read_source(float_model, calibration, options.dims, options.pins, states)
    options = replace(options, dims={}, pins={})  # the model has neither symbolic dimensions nor pinned inputs any more
    with scratch_folder(output) as folder:
        trials = []
        for number, form in enumerate(FORMS):
            if on_form is not None:
                on_form(str(form))
            trials.append(_try_form(form, source, folder / f"{number}.onnx", target, options))
        best = choose_trial(trials, loss)
        if best is None:
            raise UnsupportedError(
                f"no form of {float_model.name} compiles for {target.name}: {trials[0].refused}", "Compile the float model."
            )
        os.replace(folder / f"{trials.index(best)}.onnx", output)
    return trials, best


def summarise_trials(trials: Sequence[Trial], best: Trial) -> str:
    """The trials side by side, as a table."""
    rows = []
    for trial in trials:
        share = "-" if trial.agreement is None else f"{100 * trial.agreement:.1f} %"
        figures = (format_number(trial.cycles), format_ratio(trial.signal_to_noise), share, "chosen" if trial is best else "")
        rows.append((str(trial.form), *(("-", "-", "-", trial.refused) if trial.refused else figures)))
    return align_table(("form", "predicted cycles", "signal to noise", "same top-1 as float", ""), rows)


def choose_trial(trials: Sequence[Trial], loss: float) -> Trial | None:
    """The fastest of the trials that lose at most ``loss`` decibel beside the most accurate; the earlier of equal ones."""
    accepted = [trial for trial in trials if not trial.refused]
    most = max((trial.signal_to_noise for trial in accepted), default=0.0)
    return min((trial for trial in accepted if trial.signal_to_noise >= most - loss), key=lambda trial: trial.cycles, default=None)


def _try_form(form: Form, source: CalibrationSource, result: Path, target: Target, options: Options) -> Trial:
    try:
        write_quantised(source, result, form)
        run = compile_networks({"network": result}, target, options).network.predicted
        comparison = compare_networks(source, result)
    except DeeployError as error:
        return Trial(form, refused=error.what)
    return Trial(form, round(run.cycles) if run is not None else 0, comparison.signal_to_noise, comparison.agreement)
