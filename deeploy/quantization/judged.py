"""Quantised models that are written only if they lose little."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from deeploy.options.texts import PinnedValue
from deeploy.quantization.form import Form
from deeploy.quantization.losses import compare_networks
from deeploy.quantization.messages import too_low
from deeploy.quantization.run import load_quantiser
from deeploy.quantization.static import check_output, read_source, scratch_folder, write_quantised


def quantise_at_least(
    least: float,
    float_model: Path,
    calibration: Path,
    output: Path,
    form: Form,
    dims: Mapping[str, int] | None,
    pins: Mapping[str, PinnedValue] | None,
    stream: str | None,
) -> None:
    """Quantise as ``quantize_model`` does, and write the model where every output keeps ``least`` decibel of signal to noise.

    Raises:
        AccuracyError: an output keeps less; nothing is written.
        UsageError, ModelError, UnsupportedError: as ``quantize_model``.
    """
    load_quantiser()
    check_output(output)
    with scratch_folder(output) as folder:
        source = read_source(float_model, calibration, dims or {}, pins or {}, None, stream)
        made = folder / output.name
        write_quantised(source, made, replace(form, least=least))
        comparison = compare_networks(source, made)
        if comparison.signal_to_noise < least:
            raise too_low(comparison, least)
        os.replace(made, output)
