"""What is said of a quantised network: what stayed in float and why, and a warning where too little is left of an output."""

from __future__ import annotations

import onnx
from onnx import numpy_helper

from deeploy.errors import AccuracyError, shorten
from deeploy.frontend.structure import reads
from deeploy.quantization.form import LEAST
from deeploy.quantization.losses import Comparison, Judged
from deeploy.quantization.recurrent import table_bytes
from deeploy.quantization.static import Source, Written
from deeploy.report.text import number

_SHOWN = 8
_REMEDY = (
    "Calibrate with more typical samples, pass --float-share 1 to leave more in float, or leave nodes in float with --keep NODE "
    "(the worst layers are in the table)."
)


def describe(source: Source, written: Written) -> list[str]:
    """Sentences about states, Concats and tensors."""
    found = []
    if source.states:
        pairs = ", ".join(f"{shorten(past, 40)}={shorten(present, 40)}" for past, present in source.states.items())
        found.append(f"states: {pairs}; samples are steps of one sequence (say otherwise with --state)")
    if written.apart:
        nodes = ", ".join(shorten(name, 40) for name in written.apart)
        found.append(f"in float, so that every operand keeps a scale of its own: {nodes}")
    if written.kept:
        found.append(f"in float, since 8 bits do not hold their values ({100 * written.share:.1f} % of all):")
        found += [f"  {shorten(str(tensor), 160)}" for tensor in written.kept[:_SHOWN]]
        found += [f"  and {len(written.kept) - _SHOWN} more"] * (len(written.kept) > _SHOWN)
    return found


def sizes(source: Source, quantised: onnx.ModelProto) -> tuple[int, int]:
    """The bytes of all constants in float and quantised, with the tables of recurrent layers."""
    return _bytes(source.model), _bytes(quantised) + table_bytes(quantised.graph)


def compare_sizes(floats: int, quantised: int) -> str:
    """A sentence about the bytes of constants."""
    larger = " (larger: scales, zero points and tables take more than the weights save)" if quantised > floats else ""
    return f"constants: {number(floats)} bytes in float, {number(quantised)} quantised{larger}"


def _bytes(model: onnx.ModelProto) -> int:
    stored = [*model.graph.initializer, *(a.t for node in model.graph.node if node.op_type == "Constant" for a in node.attribute)]
    read = {name for node in model.graph.node for name in reads(node)}
    return sum(numpy_helper.to_array(tensor).nbytes for tensor in stored if tensor.name in read or not tensor.name)


def warning(found: Comparison) -> list[str]:
    """A sentence where less than 20 dB are left of an output."""
    worst = _worst(found)
    if worst is None or worst.signal_to_noise >= LEAST:
        return []
    return [
        f"warning: {shorten(worst.label, 100)} has a signal-to-noise ratio of {worst.signal_to_noise:.1f} dB: errors of "
        f"{100 * 10 ** (-worst.signal_to_noise / 20):.0f} % of its size, so that the quantised network computes something else than "
        f"the float one. {_REMEDY}"
    ]


def too_low(found: Comparison, least: float) -> AccuracyError:
    """The error that ``--at-least`` asks for."""
    worst = _worst(found)
    label = "the outputs" if worst is None else worst.label
    return AccuracyError(
        f"{shorten(label, 100)}: signal to noise {found.signal_to_noise:.1f} dB, less than --at-least {least:g}; nothing is written",
        _REMEDY,
    )


def _worst(found: Comparison) -> Judged | None:
    return min((part for part in found.parts if part.is_output), key=lambda part: part.signal_to_noise, default=None)
