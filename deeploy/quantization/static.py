"""Static quantisation of a float ONNX model: a thin wrapper of onnxruntime's, with QDQ output.

What is decided here is only what surrounds the quantiser: that the model is of an opset whose DequantizeLinear has an
axis, which slices of the calibration arrays make one sample, and that an output file is whole or absent. Scales and
zero points are onnxruntime's; weights are symmetric int8
(or of 4 bits, ``deeploy.quantization.weights``), biases int32. Where scales are to be powers of two, they are
onnxruntime's, rounded up. Where it fails, simpler forms are tried, to say what works.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
from onnx import numpy_helper

from deeploy.errors import ModelError, UnsupportedError, UsageError, shorten
from deeploy.frontend import without_branches
from deeploy.frontend.ends import fix_dims, name_dims
from deeploy.frontend.load import opset_version, read_model
from deeploy.frontend.pins import Pinned, Value, pin
from deeploy.frontend.unknown import check_known
from deeploy.quantization import masks, recurrent, weights
from deeploy.quantization.form import DEFAULT, Form
from deeploy.quantization.magnitudes import magnitudes
from deeploy.quantization.samples import Sample, calibration_samples, inputs_of

_PREPARED = "prepared.onnx"  # the float model as it is quantised, beside the result
_LOWEST_OPSET = 13  # the first whose QuantizeLinear and DequantizeLinear take one scale per channel


# What is tried where onnxruntime fails: the options that say so, and what they change.
_SIMPLER: tuple[tuple[str, Callable[[Form], Form]], ...] = (
    ("--per-tensor", lambda form: replace(form, per_channel=False)),
    ("--activations uint8", lambda form: replace(form, activations="uint8")),
    ("--method minmax", lambda form: replace(form, method="minmax")),
    ("--per-tensor --activations uint8 --method minmax", lambda form: Form(per_channel=False, activations="uint8", keep=form.keep)),
)


def quantize(
    float_model: Path,
    calibration: Path,
    output: Path,
    form: Form = DEFAULT,
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
        UsageError: onnxruntime is missing; the calibration data or the output path cannot be used; the model does not have what
            ``form``, ``dims`` or ``pins`` name.
        ModelError: the model cannot be read, or is quantised already.
        UnsupportedError: onnxruntime cannot quantise or run the model.
    """
    quantiser()
    model, samples = read(float_model, calibration, dims or {}, pins or {})
    check_output(output)
    write_quantised(model, float_model.name, samples, output, form)
    return len(samples)


def read(float_model: Path, calibration: Path, dims: Mapping[str, int], pins: Mapping[str, Value]) -> tuple[onnx.ModelProto, list[Sample]]:
    """A float model and its samples; arguments and errors are those of ``quantize``."""
    model, pinned = _load(float_model, dims, pins)
    return model, calibration_samples(inputs_of(model), calibration, pinned)


def write_quantised(model: onnx.ModelProto, name: str, samples: Sequence[Sample], output: Path, form: Form) -> tuple[weights.Narrowed, ...]:
    """Quantise a model that ``read`` returned; see ``quantize``. Returns what was found of weights, where the form has some of 4 bits."""
    quantizer = quantiser()
    _check_names(model, form)
    found: list[weights.Narrowed] = []
    if form.weights < weights.BITS:
        model = _converted(model, name, weights.OPSET)
    try:
        with tempfile.TemporaryDirectory(prefix=".quantize-", dir=output.parent) as folder, quiet():
            result = Path(folder) / "quantised.onnx"
            try:
                _run(quantizer, model, samples, result, form)
            except failures() as error:
                raise unsupported("quantise", name, error, _working(quantizer, model, samples, result, form)) from error
            if form.weights < weights.BITS:
                prepared = onnx.load(result.with_name(_PREPARED))
                narrow, found = weights.narrowed(onnx.load(result), prepared, name, samples, form, tensors)
                onnx.save(narrow, result)
            os.replace(result, output)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}", "give -o a file in a directory that you may write to") from error
    return tuple(found)


def _check_names(model: onnx.ModelProto, form: Form) -> None:
    """Raise UsageError where nodes are named that the model does not have."""
    known = {node.name for node in model.graph.node}
    for option, names in (("--keep", form.keep), ("--int16", form.wide)):
        for name in names:
            if name not in known:
                listed = ", ".join(shorten(node.name) for node in model.graph.node[:5])
                raise UsageError(f"{option} {shorten(name)}: the model has no such node", f"Its first nodes are {listed}.")


def _working(quantizer: ModuleType, model: onnx.ModelProto, samples: Sequence[Sample], result: Path, form: Form) -> str:
    """The options by which onnxruntime does quantise a model; empty: none of those that are tried."""
    for options, change in _SIMPLER:
        if change(form) != form:
            with contextlib.suppress(*failures()):
                _run(quantizer, model, samples, result, change(form))
                return options
    return ""


def check_output(output: Path) -> None:
    """Raise UsageError where no file can be written."""
    if output.is_dir() or not output.parent.is_dir():
        problem = "it is a directory" if output.is_dir() else "its directory does not exist"
        raise UsageError(f"cannot write {output}: {problem}", "give -o a file in an existing directory")


def unsupported(verb: str, name: str, error: Exception, working: str = "") -> UnsupportedError:
    """What is said where onnxruntime fails with a model; ``working`` are options with which it does not."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return UnsupportedError(
        f"onnxruntime cannot {verb} {shorten(name)}: {shorten(lines[-1], 200)}",
        f"It can with {working}." if working else "check that onnxruntime runs the float model on the calibration data",
    )


def quantiser() -> ModuleType:
    """onnxruntime's package of that name; raises UsageError where it is missing."""
    try:
        from onnxruntime import quantization
    except ImportError as error:
        raise UsageError("quantisation needs onnxruntime, which is not installed", "pip install 'deeploy-compiler[quantize]'") from error
    module: ModuleType = quantization
    return module


def failures() -> tuple[type[Exception], ...]:
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


def _load(path: Path, dims: Mapping[str, int], pins: Mapping[str, Value]) -> tuple[onnx.ModelProto, tuple[Pinned, ...]]:
    """Read a float model and bring it to an opset that can hold scales per channel; inputs that are pinned are constants of it.

    Args:
        dims, pins: as ``quantize`` takes them.

    Nodes without names get some, by which onnxruntime and options know them.
    """
    what = shorten(path.name)
    model = read_model(path)
    name_dims(model.graph, dims)
    pinned = pin(model, pins, dims)
    check_known(model.graph, None)
    model = without_branches(model, dims)
    fix_dims(model.graph, dims)
    if not model.graph.node:
        raise ModelError(f"{what} holds a graph without operators", "give a complete .onnx file")
    for node in model.graph.node:
        if "QuantizeLinear" in node.op_type or "QLinear" in node.op_type:
            raise ModelError(f"{what} is quantised already: node {shorten(node.name)} is a {node.op_type}", "compile it as it is")
    taken = {node.name for node in model.graph.node}
    for number, node in enumerate(model.graph.node):
        node.name = node.name or next(name for n in count(number) if (name := f"{node.op_type}_{n}") not in taken)
        taken.add(node.name)
    return _converted(model, what, _LOWEST_OPSET), pinned


def _converted(model: onnx.ModelProto, name: str, lowest: int) -> onnx.ModelProto:
    """The model in an opset that is no older than ``lowest``."""
    opset = opset_version(model)
    if opset >= lowest:
        return model
    try:
        return onnx.version_converter.convert_version(model, lowest)
    except (RuntimeError, ValueError) as error:
        raise UnsupportedError(
            f"{shorten(name)} is of opset {opset} and cannot be converted: {shorten(str(error))}",
            f"export the model with opset {lowest} or newer",
        ) from error


class _Reader:
    """Feeds onnxruntime's calibrator one sample at a time (its ``CalibrationDataReader`` protocol)."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._next = iter(samples)

    def get_next(self) -> Sample | None:
        return next(self._next, None)


def _run(quantizer: ModuleType, model: onnx.ModelProto, samples: Sequence[Sample], result: Path, form: Form) -> None:
    """Optimise (constants and batch normalisation are folded), calibrate and quantise in the folder of ``result``."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, prepared = result.with_name("float.onnx"), result.with_name(_PREPARED)
    onnx.save(model, source)
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    ready = onnx.load(prepared)
    every = ready.graph
    masks.bound(every)
    onnx.save(ready, prepared)
    kind = {"int8": quantizer.QuantType.QInt8, "uint8": quantizer.QuantType.QUInt8, "int16": quantizer.QuantType.QInt16}[form.activations]
    fixed = {**recurrent.states(quantizer, every), **(_wide(quantizer, prepared, form, kind) if form.wide else {})}
    limits: dict[str, list[dict[str, object]]] = {
        name: [{"rmin": np.array(low, np.float32), "rmax": np.array(high, np.float32), **(fixed.get(name, [{}])[0])}]
        for name, (low, high) in masks.ranges(ready, result.name, samples, tensors).items()
    }
    options: dict[str, object] = {"ActivationSymmetric": form.symmetric, "TensorQuantOverrides": {**fixed, **limits}}
    for turn in range(1 + form.powers):
        with recurrent.layers_are_quantised(form.per_channel):
            quantizer.quantize_static(
                prepared,
                result,
                _Reader(samples),
                quant_format=quantizer.QuantFormat.QDQ,
                per_channel=form.per_channel,
                activation_type=kind,
                weight_type=quantizer.QuantType.QInt8,
                nodes_to_exclude=[*form.keep, *recurrent.carriers(every), *magnitudes(every)],
                calibrate_method=getattr(quantizer.CalibrationMethod, {"minmax": "MinMax"}.get(form.method, form.method.capitalize())),
                extra_options=options,
            )
        if form.powers and turn == 0:
            options["TensorQuantOverrides"] = {**_powers(onnx.load(result), {tensor.name for tensor in every.initializer}), **fixed}


def _wide(quantizer: ModuleType, model: Path, form: Form, kind: object) -> dict[str, list[dict[str, object]]]:
    """The outputs of nodes that have 16 bits, and where they are converted, as onnxruntime takes them."""
    from onnxruntime.quantization.execution_providers.qnn.mixed_precision_overrides_utils import MixedPrecisionTensorQuantOverridesFixer
    from onnxruntime.quantization.tensor_quant_overrides import TensorQuantOverridesHelper

    loaded = onnx.load(model)
    outputs = [name for node in loaded.graph.node if node.name in form.wide for name in node.output]
    helper = TensorQuantOverridesHelper({name: [{"quant_type": quantizer.QuantType.QInt16}] for name in outputs})
    MixedPrecisionTensorQuantOverridesFixer.create_from_model(helper, loaded, kind).apply(kind, form.symmetric)
    found: dict[str, list[dict[str, object]]] = helper.get_dict()
    return found


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


def tensors(model: onnx.ModelProto, name: str, names: Sequence[str], samples: Sequence[Sample]) -> Iterator[list[np.ndarray]]:
    """These tensors of a model for every sample, as onnxruntime computes them.

    Raises:
        UnsupportedError: it cannot run the model.
    """
    import onnxruntime

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # or tensors would be gone
    try:
        with quiet():
            session = onnxruntime.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for sample in samples:
            with quiet():  # not while the values are used
                values = session.run(list(names), sample)
            yield values
    except failures() as error:
        raise unsupported("run", name, error) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence onnxruntime: its log, its quantiser's messages, and NumPy's warnings inside them."""
    import onnxruntime

    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    onnxruntime.set_default_logger_severity(4)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        onnxruntime.set_default_logger_severity(2)
        logging.disable(previous)
