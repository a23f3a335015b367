"""Quantised models that are written only if they lose little."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import onnx

from deeploy.quantization.form import Form
from deeploy.quantization.losses import LossComparison, compare_networks
from deeploy.quantization.messages import constant_sizes, too_low
from deeploy.quantization.static import CalibrationSource, Written, scratch_folder, write_quantised


def write_judged(
    source: CalibrationSource, output: Path, form: Form, least: float | None, progress: Callable[[str], object] = lambda stage: None
) -> tuple[Written, LossComparison, tuple[int, int]]:
    """Quantise, compare with the float model, and write the result where every output keeps ``least`` decibel of signal to noise.

    Returns:
        What was written, what it loses, and the bytes of constants before and after.

    Raises:
        AccuracyError: an output keeps less; nothing is written.
        UnsupportedError: onnxruntime cannot quantise or run the model.
    """
    with scratch_folder(output) as folder:
        progress("quantise")
        made = folder / output.name
        written = write_quantised(source, made, form)
        progress("compare with the float model")
        comparison = compare_networks(source, made)
        if least is not None and comparison.signal_to_noise < least:
            raise too_low(comparison, least)
        stored = constant_sizes(source, onnx.load(made))
        os.replace(made, output)
    return written, comparison, stored
