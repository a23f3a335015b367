"""Networks run by onnxruntime: quietly, tensor by tensor, and step by step where states are carried on."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from deeploy.errors import UnsupportedError, UsageError, shorten
from deeploy.frontend.schemas import ONNX_FAILURES
from deeploy.quantization.samples import Sample

Step = Callable[[Sample], Mapping[str, np.ndarray]]


def unsupported_model(verb: str, name: str, error: Exception, working: str = "") -> UnsupportedError:
    """What is said where onnxruntime fails with a model; ``working`` are options with which it does not."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return UnsupportedError(
        f"onnxruntime cannot {verb} {shorten(name)}: {shorten(lines[-1], 200)}",
        f"It can with {working}." if working else "check that onnxruntime runs the float model on the calibration data",
    )


def load_quantiser() -> ModuleType:
    """onnxruntime's package of that name; raises UsageError where it is missing."""
    try:
        from onnxruntime import quantization
    except ImportError as error:
        raise UsageError("quantisation needs onnxruntime, which is not installed", "pip install onnxruntime") from error
    module: ModuleType = quantization
    return module


def runtime_failures() -> tuple[type[Exception], ...]:
    """The exceptions that onnxruntime and its quantiser raise on a model that they cannot handle."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return (
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.NotImplemented,
        state.RuntimeException,
        KeyError,
        *ONNX_FAILURES,
    )


def session_of(model: onnx.ModelProto, is_plain: bool = False) -> Any:
    """A session of onnxruntime; plain: without its optimisations, which remove tensors."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if is_plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with silence_runtime():
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_tensors(
    model: onnx.ModelProto, name: str, names: Sequence[str], samples: Sequence[Sample], states: Mapping[str, str] | None = None
) -> Iterator[list[np.ndarray]]:
    """These tensors of a model for every sample, as onnxruntime computes them.

    Args:
        states: outputs by the inputs that they are in the next sample.

    Raises:
        UnsupportedError: it cannot run the model.
    """
    wanted = list(dict.fromkeys([*names, *(states or {}).values()]))
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    try:
        session = session_of(copy, is_plain=True)

        def step(sample: Sample) -> Mapping[str, np.ndarray]:
            with silence_runtime():  # not while the values are used
                return dict(zip(wanted, session.run(wanted, sample), strict=True))

        for values in in_sequence(step, samples, states or {}):
            yield [values[name] for name in names]
    except runtime_failures() as error:
        raise unsupported_model("run", name, error) from error


def in_sequence(step: Step, samples: Sequence[Sample], states: Mapping[str, str]) -> Iterator[Mapping[str, np.ndarray]]:
    """What every step computes; the states of the first sample begin the sequence.

    Raises:
        UsageError: a state has another shape behind a step than before it.
    """
    carried: Sample = {}
    for sample in samples:
        result = step({**sample, **carried})
        for past, present in states.items():
            if result[present].shape != sample[past].shape:
                raise UsageError(
                    f"state {shorten(past)}={shorten(present)}: the output has the shape {list(result[present].shape)}, "
                    f"the input {list(sample[past].shape)}",
                    "Name the states with --state IN=OUT, or say that there are none: --state none",
                )
        carried = {past: result[present] for past, present in states.items()}
        yield result


def values_of(model: onnx.ModelProto, name: str, names: Sequence[str], samples: Sequence[Sample]) -> Iterator[dict[str, np.ndarray]]:
    """Tensors of a model for every sample, inputs and constants among them."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name in names}
    given = {value.name for value in model.graph.input} | constants.keys()
    computed = [each for each in names if each not in given]
    runs = run_tensors(model, name, computed, samples) if computed else ([] for _ in samples)
    for sample, values in zip(samples, runs, strict=True):
        inputs = {each: sample[each] for each in names if each in sample}
        yield {**constants, **inputs, **dict(zip(computed, values, strict=True))}


@contextlib.contextmanager
def silence_runtime() -> Iterator[None]:
    """Silence onnxruntime: its log, its quantiser's messages, and NumPy's warnings inside them."""
    import onnxruntime

    previous = logging.root.manager.disable
    if previous >= logging.CRITICAL:  # inside of another one, which ends it
        yield
        return
    logging.disable(logging.CRITICAL)
    onnxruntime.set_default_logger_severity(4)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        onnxruntime.set_default_logger_severity(2)
        logging.disable(previous)
