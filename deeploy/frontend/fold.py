"""Values of nodes whose inputs are all constant.

The reference implementation of the onnx package computes them; where it fails, a definition of this module, then
onnxruntime if it is installed.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper, version_converter

from deeploy.errors import UnsupportedError, shorten
from deeploy.frontend.schemas import Attributes, find_signature
from deeploy.frontend.shapes import Value
from deeploy.frontend.structure import describe_node
from deeploy.ir.nodes import pad

# Their constants stay in the graph: scale and zero point of a weight are what a quantised model consists of.
_KEPT = frozenset({"DequantizeLinear"})
RANDOM = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"})
_MOST_ELEMENTS = 1 << 28  # of a computed constant: no machine that this compiles for holds more

# References that are wrong: before opset 13 over several axes at once; of all images but the first.
_WRONG_REFERENCES = frozenset({"Hardmax", "LRN"})

Arrays: TypeAlias = Sequence[np.ndarray | None]


def is_foldable(op: str, domain: str, version: int) -> bool:
    """Whether ``evaluate_node`` can compute an operator."""
    return not domain and op not in _KEPT | RANDOM and find_signature(op, version, frozenset(), 1) is not None


def evaluate_node(node: onnx.NodeProto, attributes: Attributes, arrays: Arrays, outputs: Sequence[Value], version: int) -> list[np.ndarray]:
    """The node's outputs for constant inputs, in the element types of ``outputs`` where these are known.

    Raises:
        UnsupportedError: the constant would be huge, or nothing that is installed computes it.
    """
    sizes = [value.static_shape for value in outputs]
    if any(math.prod(shape) > _MOST_ELEMENTS for shape in sizes if shape is not None):
        raise UnsupportedError(
            f"{describe_node(node)} computes a constant of shape {next(s for s in sizes if s is not None)}",
            f"constants have at most {_MOST_ELEMENTS} elements",
        )
    signature = find_signature(node.op_type, version, frozenset(attributes), len(arrays))
    model = _model_of_node(node, arrays, outputs, version if signature is None else signature.schema.since_version)
    failures: list[str] = []
    for compute in (_by_reference, _by_own_definition, _by_onnxruntime):
        try:
            with np.errstate(all="ignore"):
                results = compute(model, attributes, arrays)
                if results is not None:
                    return [_of_type(result, value) for result, value in zip(results, outputs, strict=True)]
        except Exception as error:  # of other packages, which have many
            failures.append(str(error))
    raise UnsupportedError(
        f"{describe_node(node)} has constant inputs but cannot be computed: "
        f"{shorten(next(iter(failures), 'nothing here computes it'), 120)}",
        "replace it by its value in the model, or install onnxruntime",
    )


def _of_type(result: Any, value: Value) -> np.ndarray:
    array = np.asarray(result)
    return array if value.dtype is None else array.astype(value.dtype, copy=False)


def _by_reference(model: onnx.ModelProto, attributes: Attributes, arrays: Arrays) -> Sequence[Any] | None:
    """By the reference of the onnx package in the operator's newest version: of older versions it has some, and some of these are wrong."""
    from onnx.reference import ReferenceEvaluator  # only here: its import takes longer than that of a whole small model

    node, newest = model.graph.node[0], onnx.defs.onnx_opset_version()
    if node.op_type in _WRONG_REFERENCES:
        return None
    if onnx.defs.get_schema(node.op_type, newest).since_version > model.opset_import[0].version:
        model = version_converter.convert_version(model, newest)
    return list(ReferenceEvaluator(model).run(None, {}))


def _by_own_definition(model: onnx.ModelProto, attributes: Attributes, arrays: Arrays) -> Sequence[Any] | None:
    """By the definitions of this module, of operators whose references fail on valid operands."""
    own = _OWN.get(model.graph.node[0].op_type)
    return None if own is None else [own(attributes, arrays)]


def _by_onnxruntime(model: onnx.ModelProto, attributes: Attributes, arrays: Arrays) -> Sequence[Any] | None:
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return list(onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"]).run(None, {}))


def _gather_elements(attributes: Attributes, arrays: Arrays) -> np.ndarray:
    """GatherElements, whose indices may be fewer than the data along the other axes."""
    data, indices = (np.asarray(array) for array in arrays)
    axis = attributes.get("axis", 0) % data.ndim
    part = data[tuple(slice(None if i == axis else extent) for i, extent in enumerate(indices.shape))]
    return np.take_along_axis(part, indices, axis)


def _pad_constant(attributes: Attributes, arrays: Arrays) -> np.ndarray:
    """Pad with negative pads, which cut."""
    data = np.asarray(arrays[0])
    rank = data.ndim
    given = [*arrays[1:], None, None, None]
    pads = np.asarray(attributes["pads"] if "pads" in attributes else given[0]).tolist()
    axes = range(rank) if given[2] is None else [axis % rank for axis in given[2].tolist()]
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    fill = attributes.get("value", 0) if given[1] is None else given[1].reshape(())
    cut = data[tuple(slice(max(-b, 0), extent - max(-a, 0)) for b, a, extent in zip(before, after, data.shape, strict=True))]
    return pad(cut, pads=[max(n, 0) for n in (*before, *after)], mode=attributes.get("mode", "constant"), value=fill)


_OWN: dict[str, Callable[[Attributes, Arrays], np.ndarray]] = {"GatherElements": _gather_elements, "Pad": _pad_constant}


def _model_of_node(node: onnx.NodeProto, arrays: Arrays, outputs: Sequence[Value], version: int) -> onnx.ModelProto:
    """A model of this node alone, in the version of its operator."""
    names = ["" if array is None else f"i{i}" for i, array in enumerate(arrays)]
    results = [f"o{i}" for i in range(len(node.output))]
    copy = helper.make_node(node.op_type, names, results)
    copy.attribute.extend(node.attribute)
    constants = [numpy_helper.from_array(array, name) for name, array in zip(names, arrays, strict=True) if array is not None]
    types = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in results]
    for value, known in zip(types, outputs, strict=True):
        if known.dtype is not None:
            value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(known.dtype)
    graph = helper.make_graph([copy], "constant", [], types, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
