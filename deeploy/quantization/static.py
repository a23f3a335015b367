"""Static quantisation of a float ONNX model: a thin wrapper of onnxruntime's, with QDQ output.

What is decided here is only what surrounds the quantiser: that the model is of an opset whose DequantizeLinear has an
axis, which slices of the calibration arrays make one sample, and that an output file is whole or absent. Scales and
zero points are onnxruntime's: the minimum and maximum that each tensor takes over the samples; weights are symmetric int8,
biases int32. Where scales are to be powers of two, they are onnxruntime's, rounded up.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np
import onnx
from onnx import numpy_helper

from deeploy.errors import ModelError, UnsupportedError, UsageError, shorten
from deeploy.frontend import without_branches
from deeploy.frontend.arrays import without_pinned
from deeploy.frontend.ends import fix_dims, name_dims
from deeploy.frontend.load import opset_version, read_model
from deeploy.frontend.npz import read_arrays, read_headers
from deeploy.frontend.pins import Pinned, Value, pin

Sample = dict[str, np.ndarray]  # inputs by name
_LOWEST_OPSET = 13  # the first whose QuantizeLinear and DequantizeLinear take one scale per channel
_NOT_AN_NPZ = "--calibrate takes an .npz with one array per input of the model, samples stacked on the first axis"


@dataclass(frozen=True)
class Form:
    """How a network is quantised.

    Attributes:
        per_channel: one scale per output channel of a weight instead of one per weight.
        activations: element type of the activations.
        symmetric: the zero point of every activation is that of its type's middle.
        powers: every scale is a power of two.
    """

    per_channel: bool = True
    activations: Literal["int8", "uint8"] = "int8"
    symmetric: bool = False
    powers: bool = False

    def __str__(self) -> str:
        parts = (self.activations, "per channel" if self.per_channel else "per tensor")
        return ", ".join((*parts, *["symmetric"] * self.symmetric, *["scales of 2^n"] * self.powers))


@dataclass(frozen=True)
class _Input:
    """A graph input: its element type and its shape, None where a dimension is symbolic."""

    name: str
    dtype: np.dtype
    shape: tuple[int | None, ...]


def quantize(
    float_model: Path,
    calibration: Path,
    output: Path,
    form: Form = Form(),
    dims: Mapping[str, int] | None = None,
    pins: Mapping[str, Value] | None = None,
) -> int:
    """Quantise a float model and write it, weights and activations in 8 bits, as QDQ ONNX.

    Args:
        float_model: the float ONNX file.
        calibration: an npz with one array per input, by name when all names are there, else by position. An array has the
            shape of its input (one sample), one more leading axis, or a leading axis that is a multiple of the input's (a
            symbolic one counts as 1).
        output: where the quantised model goes; replaced as a whole or left alone.
        form: how it is quantised.
        dims: extents of symbolic dimensions, which the quantised model has then.
        pins: values of inputs that become constants.

    Returns:
        The number of samples used.

    Raises:
        UsageError: onnxruntime is missing, or the calibration data or the output path cannot be used.
        ModelError: the model cannot be read, or is quantised already.
        UnsupportedError: onnxruntime cannot quantise or run the model.
    """
    _onnxruntime()
    model, pinned = load(float_model, dims or {}, pins or {})
    samples = calibration_samples(inputs_of(model), calibration, pinned)
    check_output(output)
    write_quantised(model, float_model.name, samples, output, form)
    return len(samples)


def write_quantised(model: onnx.ModelProto, name: str, samples: Sequence[Sample], output: Path, form: Form) -> None:
    """Quantise a model that ``load`` returned; see ``quantize``."""
    quantizer = _onnxruntime()
    try:
        with tempfile.TemporaryDirectory(prefix=".quantize-", dir=output.parent) as folder, _quiet():
            result = Path(folder) / "quantised.onnx"
            _run(quantizer, model, samples, result, form)
            os.replace(result, output)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}", "give -o a file in a directory that you may write to") from error
    except _failures() as error:
        raise _unsupported("quantise", name, error) from error


def check_output(output: Path) -> None:
    """Raise UsageError where no file can be written."""
    if output.is_dir() or not output.parent.is_dir():
        problem = "it is a directory" if output.is_dir() else "its directory does not exist"
        raise UsageError(f"cannot write {output}: {problem}", "give -o a file in an existing directory")


def _unsupported(verb: str, name: str, error: Exception) -> UnsupportedError:
    """What is said where onnxruntime fails with a model."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return UnsupportedError(
        f"onnxruntime cannot {verb} {shorten(name)}: {shorten(lines[-1], 200)}",
        "check that onnxruntime runs the float model on the calibration data",
    )


def _onnxruntime() -> ModuleType:
    try:
        from onnxruntime import quantization
    except ImportError as error:
        raise UsageError("quantisation needs onnxruntime, which is not installed", "pip install 'deeploy-compiler[quantize]'") from error
    module: ModuleType = quantization
    return module


def _failures() -> tuple[type[Exception], ...]:
    """The exceptions that onnxruntime and its quantiser raise on a model that they cannot handle."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return (
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.NotImplemented,
        state.RuntimeException,
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        KeyError,
        RuntimeError,
        ValueError,
    )


def load(path: Path, dims: Mapping[str, int], pins: Mapping[str, Value]) -> tuple[onnx.ModelProto, tuple[Pinned, ...]]:
    """Read a float model and bring it to an opset that can hold scales per channel; inputs that are pinned are constants of it.

    Args:
        dims, pins: as ``quantize`` takes them.
    """
    what = shorten(path.name)
    model = read_model(path)
    name_dims(model.graph, dims)
    pinned = pin(model, pins, dims)
    model = without_branches(model, dims)
    fix_dims(model.graph, dims)
    if not model.graph.node:
        raise ModelError(f"{what} holds a graph without operators", "give a complete .onnx file")
    for node in model.graph.node:
        if "QuantizeLinear" in node.op_type or "QLinear" in node.op_type:
            raise ModelError(f"{what} is quantised already: node {shorten(node.name)} is a {node.op_type}", "compile it as it is")
    opset = opset_version(model)
    if opset >= _LOWEST_OPSET:
        return model, pinned
    try:
        return onnx.version_converter.convert_version(model, _LOWEST_OPSET), pinned
    except (RuntimeError, ValueError) as error:
        raise UnsupportedError(
            f"{what} is of opset {opset} and cannot be converted: {shorten(str(error))}",
            f"export the model with opset {_LOWEST_OPSET} or newer",
        ) from error


def inputs_of(model: onnx.ModelProto) -> list[_Input]:
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = []
    for value in model.graph.input:
        tensor = value.type.tensor_type
        if value.name not in constants:
            shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
            inputs.append(_Input(value.name, np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)), shape))
    return inputs


def calibration_samples(inputs: Sequence[_Input], path: Path, pinned: Sequence[Pinned]) -> list[Sample]:
    """Return the calibration data as one feed per sample."""
    headers = without_pinned(path, read_headers(path), [entry.name for entry in inputs], pinned)
    if not all(entry.name in headers for entry in inputs):
        if len(headers) < len(inputs):
            raise UsageError(f"{path} has {len(headers)} arrays, the model has {len(inputs)} inputs", _NOT_AN_NPZ)
        headers = dict(zip((entry.name for entry in inputs), headers.values(), strict=False))
    arrays = read_arrays(path, {entry.name: headers[entry.name] for entry in inputs})
    stacks = {entry.name: _stack(entry, arrays[entry.name]) for entry in inputs}
    counts = {name: len(stack) for name, stack in stacks.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{shorten(name)}: {count}" for name, count in counts.items())
        raise UsageError(f"{path} has different numbers of samples for the inputs ({shown})", "stack equally many samples for every input")
    if not all(counts.values()):
        raise UsageError(f"{path} holds no sample", _NOT_AN_NPZ)
    return [{name: stack[index] for name, stack in stacks.items()} for index in range(next(iter(counts.values()), 0))]


def _stack(entry: _Input, array: np.ndarray) -> np.ndarray:
    """Return ``array`` as [samples, *shape of the input], of the input's element type."""
    rank = len(entry.shape)
    sample = entry.shape
    if array.ndim == rank and rank > 0:
        sample = (entry.shape[0] or 1, *array.shape[1:])
    elif array.ndim == rank + 1:
        sample = array.shape[1:]
    fits = array.ndim in (rank, rank + 1) and all(want is None or want == got for want, got in zip(entry.shape, sample, strict=True))
    if not fits or (array.ndim == rank and rank > 0 and array.shape[0] % (sample[0] or 1)):
        want = ",".join("?" if extent is None else str(extent) for extent in entry.shape)
        raise UsageError(
            f"calibration of input {shorten(entry.name)} has shape {list(array.shape)}, the input is [{want}]",
            "give it the input's shape, samples stacked on the first axis or on a new one before it",
        )
    values = array.astype(entry.dtype)
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all() or (entry.dtype.kind in "biu" and not np.array_equal(values, array)):
        raise UsageError(
            f"calibration of input {shorten(entry.name)} has values that {entry.dtype} cannot hold",
            "give finite numbers in the range of the input's type",
        )
    return values.reshape(-1, *sample)


class _Reader:
    """Feeds onnxruntime's calibrator one sample at a time (its ``CalibrationDataReader`` protocol)."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._next = iter(samples)

    def get_next(self) -> Sample | None:
        return next(self._next, None)


def _run(quantizer: ModuleType, model: onnx.ModelProto, samples: Sequence[Sample], result: Path, form: Form) -> None:
    """Optimise (constants and batch normalisation are folded), calibrate and quantise in the folder of ``result``."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, prepared = result.with_name("float.onnx"), result.with_name("prepared.onnx")
    onnx.save(model, source)
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    options: dict[str, object] = {"ActivationSymmetric": form.symmetric}
    for turn in range(1 + form.powers):
        quantizer.quantize_static(
            prepared,
            result,
            _Reader(samples),
            quant_format=quantizer.QuantFormat.QDQ,
            per_channel=form.per_channel,
            activation_type={"int8": quantizer.QuantType.QInt8, "uint8": quantizer.QuantType.QUInt8}[form.activations],
            weight_type=quantizer.QuantType.QInt8,
            extra_options=options,
        )
        if form.powers and turn == 0:
            options["TensorQuantOverrides"] = _powers(onnx.load(result), {tensor.name for tensor in onnx.load(prepared).graph.initializer})


def _powers(model: onnx.ModelProto, constants: Set[str]) -> dict[str, list[dict[str, object]]]:
    """The parameters of every activation and weight with its scales rounded up to powers of two, as onnxruntime takes them."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    found: dict[str, list[dict[str, object]]] = {}
    for node in model.graph.node:
        name = node.input[0].removesuffix("_quantized").removesuffix("_QuantizeLinear_Input")  # of a weight, and of an output
        is_weight = node.op_type == "DequantizeLinear" and name in constants and values[node.input[0]].dtype == np.int8
        if node.op_type != "QuantizeLinear" and not is_weight:
            continue
        scales, zeros = np.atleast_1d(values[node.input[1]]), np.atleast_1d(values[node.input[2]])
        rounded = np.exp2(np.ceil(np.log2(scales))).astype(scales.dtype)
        axis = {"axis": onnx.helper.get_node_attr_value(node, "axis")} if scales.size > 1 else {}
        found[name] = [{"scale": np.array(scale), "zero_point": np.array(zero), **axis} for scale, zero in zip(rounded, zeros, strict=True)]
    return found


def run_model(model: bytes, name: str, samples: Sequence[Sample]) -> list[np.ndarray]:
    """Every output of a model, stacked over the samples, as onnxruntime computes it.

    Raises:
        UsageError: onnxruntime is missing.
        UnsupportedError: it cannot run the model, or outputs of samples differ in shape.
    """
    _onnxruntime()
    import onnxruntime

    try:
        with _quiet():
            session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
            return [np.stack(column) for column in zip(*(session.run(None, sample) for sample in samples), strict=True)]
    except _failures() as error:
        raise _unsupported("run", name, error) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence onnxruntime: its log, its quantiser's messages, and NumPy's warnings inside them."""
    import onnxruntime

    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    onnxruntime.set_default_logger_severity(4)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        onnxruntime.set_default_logger_severity(2)
        logging.disable(previous)
