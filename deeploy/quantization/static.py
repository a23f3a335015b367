"""Static quantisation of a float ONNX model: a thin wrapper of onnxruntime's, with QDQ output.

What is decided here is only what surrounds the quantiser: that the model is of an opset whose DequantizeLinear has an
axis, which slices of the calibration arrays make one sample, and that an output file is whole or absent. Scales and
zero points are onnxruntime's; weights are symmetric int8
(or of 4 bits, ``deeploy.quantization.weights``), biases int32. Where scales are to be powers of two, they are
onnxruntime's, rounded up. Where it fails, simpler forms are tried, to say what works.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from deeploy.documents import Contents
from deeploy.errors import ModelError, UnsupportedError, UsageError, shorten, suggest
from deeploy.frontend import import_model, without_branches
from deeploy.frontend.graph_io import fix_dims, name_dims
from deeploy.frontend.load import opset_version, read_model
from deeploy.frontend.lower.affine import fold_model
from deeploy.frontend.pins import Pinned, pin_inputs
from deeploy.frontend.schemas import ONNX_FAILURES
from deeploy.frontend.unknown import check_known
from deeploy.options.texts import PinnedValue
from deeploy.quantization import masks, recurrent, weights
from deeploy.quantization.form import DEFAULT, Form
from deeploy.quantization.magnitudes import magnitude_nodes
from deeploy.quantization.parts import TensorPart, kept_apart, parts_of
from deeploy.quantization.rescue import FloatTensor, rescue_network
from deeploy.quantization.run import load_quantiser, run_tensors, runtime_failures, silence_runtime, unsupported_model
from deeploy.quantization.samples import Sample, calibration_samples, inputs_of
from deeploy.quantization.streams import measure_recording, states_of, unroll_samples

_BINS = 512  # of the histogram of a tensor; 128 steps may cover a quarter of its range and more
_PREPARED = "prepared.onnx"  # the float model as it is quantised, beside the result
_LOWEST_OPSET = 13  # the first whose QuantizeLinear and DequantizeLinear take one scale per channel


# What is tried where onnxruntime fails: the options that say so, and what they change.
_SIMPLER: tuple[tuple[str, Callable[[Form], Form]], ...] = (
    ("--per-tensor", lambda form: replace(form, per_channel=False)),
    ("--activations uint8", lambda form: replace(form, activations="uint8")),
    ("--method minmax", lambda form: replace(form, method="minmax")),
    ("--per-tensor --activations uint8 --method minmax", lambda form: Form(per_channel=False, activations="uint8", keep=form.keep)),
)


def quantize_model(
    float_model: Path,
    calibration: Path,
    output: Path,
    form: Form = DEFAULT,
    dims: Mapping[str, int] | None = None,
    pins: Mapping[str, PinnedValue] | None = None,
    states: Mapping[str, str] | None = None,
    stream: str | None = None,
) -> int:
    """Quantise a float model and write it, weights and activations in 8 bits, as QDQ ONNX.

    Args:
        float_model: the float ONNX file.
        calibration: an npz with one array per input, as ``deeploy.frontend.arrays.load_arrays`` reads it; those of states may be
            absent, which begin with zeros then.
        output: where the quantised model goes; replaced as a whole or left alone.
        form: how it is quantised.
        dims: extents of symbolic dimensions, which the quantised model has then.
        pins: values of inputs that become constants.
        states: outputs by the inputs that they are in the next sample; None: those whose names say so.
        stream: an input and its axis that never ends, where the samples are consecutive windows of a recording.

    Returns:
        The number of samples used, or of steps of a sequence.

    Raises:
        UsageError: onnxruntime is missing; the calibration data or the output path cannot be used; the model does not have what
            ``form``, ``dims`` or ``pins`` name.
        ModelError: the model cannot be read, or is quantised already.
        UnsupportedError: onnxruntime cannot quantise or run the model.
    """
    load_quantiser()
    source = read_source(float_model, calibration, dims or {}, pins or {}, states, stream)
    check_output(output)
    write_quantised(source, output, form)
    return len(source.samples)


@dataclass(frozen=True)
class CalibrationSource:
    """A float model as it is quantised.

    Attributes:
        name: of its file.
        samples: inputs by name; the steps of one sequence where there are states.
        states: outputs by the inputs that they are in the next step.
        ranges: limits of tensors that samples alone do not show, by name.
    """

    model: onnx.ModelProto
    name: str
    samples: list[Sample]
    states: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @cached_property
    def parts(self) -> list[TensorPart]:
        """The parts of the network's outputs whose loss is judged by itself."""
        return parts_of(self.model, self.name, self.samples, self.states)


@dataclass(frozen=True)
class Written:
    """What was found of weights, where the form has some of 4 bits; the nodes of Concats that stay in float; and tensors that do."""

    weights: tuple[weights.Narrowed, ...] = ()
    apart: tuple[str, ...] = ()
    float_tensors: tuple[FloatTensor, ...] = ()
    share: float = 0.0

    def contents(self, states: Mapping[str, str]) -> Contents:
        """What stayed in float, and what 4 bits cost, as a document for ``--json``."""
        weights = {"weights": [weight.contents() for weight in self.weights]} if self.weights else {}
        float_tensors = [asdict(tensor) for tensor in self.float_tensors]
        return {
            **weights,
            "states": dict(states),
            "float_concats": list(self.apart),
            "float_tensors": float_tensors,
            "float_share": self.share,
        }


def read_source(
    float_model: Path,
    calibration: Path,
    dims: Mapping[str, int],
    pins: Mapping[str, PinnedValue],
    states: Mapping[str, str] | None = None,
    stream: str | None = None,
) -> CalibrationSource:
    """A float model and its samples; arguments and errors are those of ``quantize_model``."""
    model, pinned = _load_float_model(float_model, dims, pins)
    pairs = states_of(model, states)
    samples = calibration_samples(inputs_of(model), calibration, pinned, pairs)
    name, ranges = float_model.name, dict[str, tuple[float, float]]()
    if stream is not None:
        ranges = measure_recording(import_model(float_model, dims, None, pins), name, samples, stream)
    return CalibrationSource(model, name, unroll_samples(model, name, samples, pairs) if pairs else samples, pairs, ranges)


def write_quantised(source: CalibrationSource, output: Path, form: Form = DEFAULT) -> Written:
    """Quantise a model that ``read_source`` returned; see ``quantize_model``."""
    quantizer = load_quantiser()
    model, name, samples = source.model, source.name, source.samples
    _check_names(model, form)
    narrowed: list[weights.Narrowed] = []
    if form.weights < weights.BITS:
        model = _convert_opset(model, name, weights.OPSET)
    with scratch_folder(output) as folder:
        with silence_runtime():
            result = folder / "quantised.onnx"
            apart = kept_apart(model.graph, source.parts, source.states)
            whole = replace(form, keep=(*form.keep, *apart))
            try:
                _run_quantiser(quantizer, model, samples, result, whole, source.ranges)
            except runtime_failures() as error:
                raise unsupported_model("quantise", name, error, _find_working_options(quantizer, model, samples, result, whole)) from error
            prepared = onnx.load(result.with_name(_PREPARED))
            better = rescue_network(onnx.load(result), prepared, samples, source.states, source.parts, form.least, form.float_share)
            if form.weights < weights.BITS:
                narrow, narrowed = weights.narrow_network(better.model, prepared, name, samples, form, run_tensors)
                onnx.save(narrow, result)
            elif better.float_tensors:
                onnx.save(better.model, result)
        os.replace(result, output)
    return Written(tuple(narrowed), tuple(apart), better.float_tensors, better.share)


def _check_names(model: onnx.ModelProto, form: Form) -> None:
    """Raise UsageError where nodes are named that the model does not have."""
    known = {node.name for node in model.graph.node}
    for option, names in (("--keep", form.keep), ("--int16", form.wide)):
        for name in names:
            if name not in known:
                listed = ", ".join(shorten(node.name) for node in model.graph.node[:5])
                near = suggest(name, known, f"{option} ")
                raise UsageError(f"{option} {shorten(name)}: the model has no such node", f"{near}Its first nodes are {listed}.")


def _find_working_options(quantizer: ModuleType, model: onnx.ModelProto, samples: Sequence[Sample], result: Path, form: Form) -> str:
    """The options by which onnxruntime does quantise a model; empty: none of those that are tried."""
    for options, change in _SIMPLER:
        if change(form) != form:
            with contextlib.suppress(*runtime_failures()):
                _run_quantiser(quantizer, model, samples, result, change(form))
                return options
    return ""


@contextlib.contextmanager
def scratch_folder(output: Path) -> Iterator[Path]:
    """A folder beside the output, which is removed in the end."""
    try:
        with tempfile.TemporaryDirectory(prefix=".quantize-", dir=output.parent) as folder:
            yield Path(folder)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}", "give -o a file in a directory that you may write to") from error


def check_output(output: Path) -> None:
    """Raise UsageError where no file can be written."""
    if output.is_dir() or not output.parent.is_dir():
        problem = "it is a directory" if output.is_dir() else "its directory does not exist"
        raise UsageError(f"cannot write {output}: {problem}", "give -o a file in an existing directory")


def _load_float_model(path: Path, dims: Mapping[str, int], pins: Mapping[str, PinnedValue]) -> tuple[onnx.ModelProto, tuple[Pinned, ...]]:
    """Read a float model and bring it to an opset that can hold scales per channel; inputs that are pinned are constants of it.

    Args:
        dims, pins: as ``quantize_model`` takes them.

    Nodes without names get some, by which onnxruntime and options know them.
    """
    what = shorten(path.name)
    model = read_model(path)
    name_dims(model.graph, dims)
    pinned = pin_inputs(model, pins, dims)
    check_known(model.graph, None)
    model = without_branches(model, dims)
    fix_dims(model.graph, dims)
    if not model.graph.node:
        raise ModelError(f"{what} holds a graph without operators", "give a complete .onnx file")
    for node in model.graph.node:
        if "QuantizeLinear" in node.op_type or "QLinear" in node.op_type:
            raise ModelError(f"{what} is quantised already: node {shorten(node.name)} is a {node.op_type}", "compile it as it is")
    _check_known(model, what)
    names, seen = {node.name for node in model.graph.node}, set[str]()
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:  # the rounds of a loop are nodes of one name
            stem = node.name or node.op_type
            node.name = next(name for n in count(number) if (name := f"{stem}_{n}") not in names)
            names.add(node.name)
        seen.add(node.name)
    return _convert_opset(model, what, _LOWEST_OPSET), pinned


def _check_known(model: onnx.ModelProto, what: str) -> None:
    """Raise UnsupportedError where onnxruntime has no operator of a name and domain, and the model brings none."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    known = {(schema.domain, schema.name) for schema in get_all_operator_schema()}
    known |= {(function.domain, function.name) for function in model.functions}
    used = [("" if node.domain == "ai.onnx" else node.domain, node.op_type) for node in model.graph.node]
    unknown = [f"{shorten(op, 40)} of domain {shorten(domain or 'ai.onnx', 60)}" for domain, op in used if (domain, op) not in known]
    if unknown:
        raise UnsupportedError(
            f"{what}: onnxruntime does not know the operator {', '.join(list(dict.fromkeys(unknown))[:5])}",
            "Export the model with operators of the ONNX standard; nodes that quantise already are not quantised again.",
        )


def _convert_opset(model: onnx.ModelProto, name: str, lowest: int) -> onnx.ModelProto:
    """The model in an opset that is no older than ``lowest``."""
    opset = opset_version(model)
    if opset >= lowest:
        return model
    try:
        return onnx.version_converter.convert_version(model, lowest)
    except ONNX_FAILURES as error:
        raise UnsupportedError(
            f"{shorten(name)} is of opset {opset} and cannot be converted: {shorten(str(error))}",
            f"export the model with opset {lowest} or newer",
        ) from error


class _CalibrationReader:
    """Feeds onnxruntime's calibrator one sample at a time (its ``CalibrationDataReader`` protocol)."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._next = iter(samples)

    def get_next(self) -> Sample | None:
        return next(self._next, None)


def _run_quantiser(
    quantizer: ModuleType,
    model: onnx.ModelProto,
    samples: Sequence[Sample],
    result: Path,
    form: Form,
    ranges: Mapping[str, tuple[float, float]] = MappingProxyType({}),
) -> None:
    """Optimise (constants behind products become weights and biases), calibrate and quantise in the folder of ``result``."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, prepared = result.with_name("float.onnx"), result.with_name(_PREPARED)
    onnx.save(model, source)
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    ready = fold_model(onnx.load(prepared))
    every = ready.graph
    masks.bound_masks(every)
    _flatten_biases(every)
    onnx.save(ready, prepared)
    kind = {"int8": quantizer.QuantType.QInt8, "uint8": quantizer.QuantType.QUInt8, "int16": quantizer.QuantType.QInt16}[form.activations]
    fixed = {**recurrent.state_parameters(quantizer, every), **(_wide_outputs(quantizer, prepared, form, kind) if form.wide else {})}
    computed = {name for node in every.node for name in node.output}
    known = {name: limits for name, limits in ranges.items() if name in computed}
    limits: dict[str, list[dict[str, object]]] = {
        name: [{"rmin": np.array(low, np.float32), "rmax": np.array(high, np.float32), **(fixed.get(name, [{}])[0])}]
        for name, (low, high) in {**known, **masks.score_ranges(ready, result.name, samples, run_tensors)}.items()
    }
    options: dict[str, object] = {"ActivationSymmetric": form.symmetric, "TensorQuantOverrides": {**fixed, **limits}}
    options |= {"CalibPercentile": form.percentile} if form.method == "percentile" else {}
    for turn in range(1 + form.powers):
        with recurrent.layers_are_quantised(form.per_channel), _widen_histograms():
            quantizer.quantize_static(
                prepared,
                result,
                _CalibrationReader(samples),
                quant_format=quantizer.QuantFormat.QDQ,
                per_channel=form.per_channel,
                activation_type=kind,
                weight_type=quantizer.QuantType.QInt8,
                nodes_to_exclude=[*form.keep, *recurrent.state_carriers(every), *magnitude_nodes(every)],
                calibrate_method=getattr(quantizer.CalibrationMethod, {"minmax": "MinMax"}.get(form.method, form.method.capitalize())),
                extra_options=options,
            )
        if form.powers and turn == 0:
            options["TensorQuantOverrides"] = {
                **_power_of_two_parameters(onnx.load(result), {tensor.name for tensor in every.initializer}),
                **fixed,
            }


@contextlib.contextmanager
def _widen_histograms() -> Iterator[None]:
    """Inside, onnxruntime's search for the least divergence has more bins than steps.

    It makes as many of each, 128, and has a single range to choose from then: all values. It passes no option for that on.
    """
    module: Any = importlib.import_module("onnxruntime.quantization.quantize")  # the package has a function of that name
    plain = module.create_calibrator

    def finer(*args: Any, **kwargs: Any) -> Any:
        given = kwargs.pop("extra_options", None) or {}
        return plain(*args, **kwargs, extra_options={"num_bins": _BINS, **given})

    module.create_calibrator = finer
    try:
        yield
    finally:
        module.create_calibrator = plain


def _flatten_biases(graph: onnx.GraphProto) -> None:
    """Biases of Gemm of the shape [1, N], which onnxruntime takes for ones of a single channel, become [N]."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        bias = constants.get(node.input[2]) if node.op_type == "Gemm" and len(node.input) > 2 else None
        if bias is not None and len(bias.dims) == 2 and bias.dims[0] == 1:
            flat = f"{bias.name} (flat)"
            if flat not in constants:
                constants[flat] = numpy_helper.from_array(numpy_helper.to_array(bias)[0], flat)
                graph.initializer.append(constants[flat])
            node.input[2] = flat


def _wide_outputs(quantizer: ModuleType, model: Path, form: Form, kind: object) -> dict[str, list[dict[str, object]]]:
    """The outputs of nodes that have 16 bits, and where they are converted, as onnxruntime takes them."""
    from onnxruntime.quantization.execution_providers.qnn.mixed_precision_overrides_utils import MixedPrecisionTensorQuantOverridesFixer
    from onnxruntime.quantization.tensor_quant_overrides import TensorQuantOverridesHelper

    loaded = onnx.load(model)
    outputs = [name for node in loaded.graph.node if node.name in form.wide for name in node.output]
    helper = TensorQuantOverridesHelper({name: [{"quant_type": quantizer.QuantType.QInt16}] for name in outputs})
    MixedPrecisionTensorQuantOverridesFixer.create_from_model(helper, loaded, kind).apply(kind, form.symmetric)
    overrides: dict[str, list[dict[str, object]]] = helper.get_dict()
    return overrides


def _power_of_two_parameters(model: onnx.ModelProto, constants: Set[str]) -> dict[str, list[dict[str, object]]]:
    """The parameters of every activation and weight with its scales rounded up to powers of two, as onnxruntime takes them."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    overrides: dict[str, list[dict[str, object]]] = {}
    for node in model.graph.node:
        name = node.input[0].removesuffix("_quantized").removesuffix("_QuantizeLinear_Input")  # of a weight, and of an output
        is_weight = node.op_type == "DequantizeLinear" and name in constants and values[node.input[0]].dtype == np.int8
        if node.op_type != "QuantizeLinear" and not is_weight:
            continue
        scales, zeros = np.atleast_1d(values[node.input[1]]), np.atleast_1d(values[node.input[2]])
        rounded = np.exp2(np.ceil(np.log2(scales))).astype(scales.dtype)
        axis = {"axis": onnx.helper.get_node_attr_value(node, "axis")} if scales.size > 1 else {}
        overrides[name] = [
            {"scale": np.array(scale), "zero_point": np.array(zero), **axis} for scale, zero in zip(rounded, zeros, strict=True)
        ]
    return overrides
