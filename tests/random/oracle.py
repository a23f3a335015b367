"""What single nodes and whole graphs compute, by onnxruntime or, where it has no kernel, by onnx's own reference."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.defs import SchemaError
from onnx.reference import ReferenceEvaluator

NEWEST = 26  # opset that onnxruntime loads; nodes of newer ones are the same to it as far as their definition is older
os.environ["ALLOW_RELEASED_ONNX_OPSETS_ONLY"] = "0"  # it loads the newest ones only when told so


class Invalid(Exception):
    """A node that neither evaluator computes: the generator draws another one."""


def session(model: onnx.ModelProto, optimise: bool = True) -> object | None:
    """A session of onnxruntime, or None where it does not load the model."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    version = _loadable(model)
    if version is None:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    failures = (state.Fail, state.InvalidGraph, state.NotImplemented, state.InvalidArgument, state.RuntimeException, RuntimeError)
    try:
        return onnxruntime.InferenceSession(version.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except failures:
        return None


def _loadable(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with an opset that onnxruntime knows; None where a node's definition is newer."""
    version = max(entry.version for entry in model.opset_import if not entry.domain)
    if version <= NEWEST:
        return model
    try:
        since = max(
            (onnx.defs.get_schema(n.op_type, version, "").since_version for n in model.graph.node if not n.domain),
            default=0,
        )
    except SchemaError:
        return None
    if since > NEWEST:
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in copy.opset_import:
        if not entry.domain:
            entry.version = NEWEST
    return copy


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], optimise: bool = True) -> list[np.ndarray] | None:
    """Outputs of a whole model by onnxruntime; None where it cannot compute it."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    loaded = session(model, optimise)
    if loaded is None:
        return None
    try:
        return list(loaded.run(None, dict(feeds)))
    except (state.Fail, state.NotImplemented, state.InvalidArgument, state.RuntimeException, RuntimeError):
        return None


def evaluate(node: onnx.NodeProto, values: Mapping[str, np.ndarray], constants: Sequence[str], opset: int) -> list[np.ndarray]:
    """Outputs of one node; ``constants`` are those of its inputs that are initialisers.

    Raises:
        Invalid: it has none, or none that are finite.
    """
    names = list(dict.fromkeys(name for name in node.input if name))
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(values[n].dtype), values[n].shape)
            for n in names
            if n not in constants
        ],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
        [numpy_helper.from_array(values[n], n) for n in names if n in constants],
    )
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(node.domain, 1)] if node.domain else [])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    feeds = {n: values[n] for n in names if n not in constants}
    outputs = run(model, feeds)
    if outputs is None:
        if node.domain:
            raise Invalid
        outputs = _by_reference(model, feeds)
    for array in outputs:
        if array is None or not np.size(array) or (array.dtype.kind == "f" and not np.isfinite(array).all()):
            raise Invalid
    return [np.asarray(array) for array in outputs]


def _by_reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    try:
        onnx.checker.check_model(model, full_check=True)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, dict(feeds))]
    except Exception as error:  # onnx's reference raises whatever its NumPy code happens to raise
        raise Invalid from error
