"""What is said of a quantised network: what stayed in float and why, and a warning where too little is left of an output."""

from __future__ import annotations

import onnx
from onnx import numpy_helper

from deeploy.errors import AccuracyError, shorten
from deeploy.frontend.structure import read_names
from deeploy.quantization.form import LEAST
from deeploy.quantization.losses import Judged, LossComparison
from deeploy.quantization.noise import format_ratio
from deeploy.quantization.recurrent import table_bytes
from deeploy.quantization.static import CalibrationSource, Written
from deeploy.report.text import format_number

_SHOWN = 8
_REMEDY = (
    "Calibrate with more typical samples, pass --float-share 1 to leave more in float, or leave nodes in float with --keep NODE "
    "(the worst layers are in the table)."
)


def describe_result(source: CalibrationSource, written: Written) -> list[str]:
    """Sentences about states, Concats and tensors."""
    lines = []
    if source.states:
        pairs = ", ".join(f"{shorten(past, 40)}={shorten(present, 40)}" for past, present in source.states.items())
        lines.append(f"states: {pairs}; samples are steps of one sequence (say otherwise with --state)")
    if written.apart:
        nodes = ", ".join(shorten(name, 40) for name in written.apart)
        lines.append(f"in float, so that every operand keeps a scale of its own: {nodes}")
    if written.float_tensors:
        lines.append(f"in float, since 8 bits do not hold their values ({100 * written.share:.1f} % of all):")
        lines += [f"  {shorten(str(tensor), 160)}" for tensor in written.float_tensors[:_SHOWN]]
        lines += [f"  and {len(written.float_tensors) - _SHOWN} more"] * (len(written.float_tensors) > _SHOWN)
    return lines


def constant_sizes(source: CalibrationSource, quantised: onnx.ModelProto) -> tuple[int, int]:
    """The bytes of all constants in float and quantised, with the tables of recurrent layers."""
    return _constant_bytes(source.model), _constant_bytes(quantised) + table_bytes(quantised.graph)


def compare_sizes(floats: int, quantised: int) -> str:
    """A sentence about the bytes of constants."""
    larger = " (larger: scales, zero points and tables take more than the weights save)" if quantised > floats else ""
    return f"constants: {format_number(floats)} bytes in float, {format_number(quantised)} quantised{larger}"


def _constant_bytes(model: onnx.ModelProto) -> int:
    read = {name for node in model.graph.node for name in read_names(node)}
    stored = [tensor for tensor in model.graph.initializer if tensor.name in read]
    nodes = [node for node in model.graph.node if node.op_type == "Constant" and node.output[0] in read]
    made = [attribute.t for node in nodes for attribute in node.attribute if attribute.HasField("t")]
    return sum(numpy_helper.to_array(tensor).nbytes for tensor in (*stored, *made))


def warn_of_loss(comparison: LossComparison) -> list[str]:
    """A sentence where less than 20 dB are left of an output."""
    worst = _worst_output(comparison)
    return [] if worst is None else warning_of(worst.label, worst.signal_to_noise)


def warning_of(label: str, decibel: float) -> list[str]:
    """A warning where the signal-to-noise ratio of the output ``label``, in decibel, is too low; else nothing."""
    if decibel >= LEAST:
        return []
    errors = f"errors of {100 * 10 ** (-decibel / 20):.0f} % of its size" if decibel > -LEAST else "errors much larger than it is"
    return [
        f"warning: {shorten(label, 100)} has a signal-to-noise ratio of {format_ratio(decibel)}: {errors}, "
        f"so that the quantised network computes something else than the float one. {_REMEDY}"
    ]


def too_low(comparison: LossComparison, least: float) -> AccuracyError:
    """The error that ``--at-least`` asks for."""
    worst = _worst_output(comparison)
    label = "the outputs" if worst is None else worst.label
    return AccuracyError(
        f"{shorten(label, 100)}: signal to noise {format_ratio(comparison.signal_to_noise)}, "
        f"less than --at-least {least:g}; nothing is written",
        _REMEDY,
    )


def _worst_output(comparison: LossComparison) -> Judged | None:
    return min((part for part in comparison.parts if part.is_output), key=lambda part: part.signal_to_noise, default=None)
