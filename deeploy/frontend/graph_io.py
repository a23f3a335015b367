"""The edges of a graph: its inputs with their symbolic dimensions pinned, its outputs under the names of the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx

from deeploy.errors import ModelError, UnsupportedError, UsageError, quote_words, shorten, suggest
from deeploy.frontend.attributes import read_array
from deeploy.frontend.shapes import numpy_dtype
from deeploy.frontend.structure import open_inputs
from deeploy.frontend.validate import check_size
from deeploy.frontend.walk import element_type
from deeploy.ir.nodes import Tensor, compute, set_name
from deeploy.ir.values import Graph, sort_nodes

_MOST_PLACES = 4  # of a dimension that a message names


def read_inputs(graph: onnx.GraphProto, dims: Mapping[str, int]) -> list[Tensor]:
    """The graph's inputs that are not initialisers, with static shapes.

    Raises:
        UnsupportedError: dimensions without an extent that ``dims`` does not pin; the message names all of them.
        UsageError: ``dims`` names a dimension that the model does not have, or a negative extent.
        ModelError: an input without an element type or a shape.
    """
    values = open_inputs(graph)
    _check_dims(graph, values, dims)
    dtypes = [_value_dtype(value) for value in values]
    return [
        Tensor(value.name, tuple(shape), element_type(dtype, value.name))
        for value, dtype, shape in zip(values, dtypes, _value_shapes(values, dims), strict=True)
    ]


def name_dims(graph: onnx.GraphProto, dims: Mapping[str, int]) -> None:
    """Give dimensions without a name those of ``dims`` that the model does not have, in place.

    A model without symbolic dimensions, but with open ones, is exported without their names: the names of ``dims``, in their order, are
    those of the open axes of every input, in their order, where the input with most of them has as many.
    """
    shapes = {value.name: value.type.tensor_type.shape.dim for value in open_inputs(graph)}
    is_named = any(dim.dim_param for shape in shapes.values() for dim in shape)
    pinned = any(f"{name}:{axis}" in dims for name, shape in shapes.items() for axis in range(len(shape)))
    open_ones = [[dim for dim in shape if not dim.HasField("dim_value")] for shape in shapes.values()]
    if is_named or pinned or max(map(len, open_ones), default=0) != len(dims):
        return
    for unnamed in open_ones:
        for dim, name in zip(unnamed, dims, strict=False):
            dim.dim_param = name


def fix_dims(graph: onnx.GraphProto, dims: Mapping[str, int]) -> None:
    """Give symbolic dimensions of inputs the extents of ``dims``, in place.

    Raises:
        UsageError: ``dims`` names a dimension that the model does not have.
    """
    values = open_inputs(graph)
    _check_dims(graph, values, dims)
    for value in values:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            key = next((key for key in (dim.dim_param, f"{value.name}:{axis}") if key in dims), None)
            if key is not None and not dim.HasField("dim_value"):
                dim.dim_value = dims[key]


def _check_dims(graph: onnx.GraphProto, inputs: Sequence[onnx.ValueInfoProto], dims: Mapping[str, int]) -> None:
    known = {
        dim.dim_param for value in (*inputs, *graph.value_info, *graph.output) for dim in value.type.tensor_type.shape.dim if dim.dim_param
    }
    for name, extent in dims.items():
        unnamed = {f"{value.name}:{axis}" for value in inputs for axis in range(len(value.type.tensor_type.shape.dim))}
        if name not in known | unnamed:
            listed = ", ".join(shorten(item) for item in sorted(known)[:10]) or "none"
            near = suggest(name, known)
            raise UsageError(f"--dim names '{shorten(name)}', which the model does not have", f"{near}Its symbolic dimensions: {listed}.")
        if extent < 0:
            raise UsageError(f"--dim {shorten(name)}={extent} is negative", "give the number of elements")


def _value_dtype(value: onnx.ValueInfoProto) -> np.dtype[np.generic]:
    if not value.type.tensor_type.elem_type:
        raise ModelError(f"input '{shorten(value.name)}' has no element type", "export the model again")
    return numpy_dtype(value.type.tensor_type.elem_type)


def input_shape(value: onnx.ValueInfoProto, dims: Mapping[str, int]) -> list[int]:
    """The shape of an input whose symbolic dimensions ``dims`` pins.

    Raises:
        UnsupportedError: a dimension without an extent that ``dims`` does not pin.
    """
    return _value_shapes([value], dims)[0]


def _value_shapes(values: Sequence[onnx.ValueInfoProto], dims: Mapping[str, int]) -> list[list[int]]:
    shapes: list[list[int]] = []
    unknown: dict[str, list[str]] = {}
    for value in values:
        tensor, name = value.type.tensor_type, shorten(value.name)
        if not tensor.HasField("shape"):
            raise UnsupportedError(f"input '{name}' has no shape", "Export the model with the shapes of its inputs.")
        shapes.append([])
        for axis, dim in enumerate(tensor.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                shapes[-1].append(int(dim.dim_value))
                continue
            key = next((key for key in (dim.dim_param, f"{value.name}:{axis}") if key and key in dims), None)
            if key is None:
                unknown.setdefault(dim.dim_param or f"{value.name}:{axis}", []).append(
                    f"axis {axis} of input '{name}'{'' if dim.dim_param else ', without a name'}"
                )
            shapes[-1].append(0 if key is None else dims[key])
    if unknown:
        told = [f"'{shorten(option)}' ({', '.join(places[:_MOST_PLACES])})" for option, places in unknown.items()]
        flags = [word for option in unknown for word in ("--dim", f"{option}={1 if 'batch' in option.lower() else 'VALUE'}")]
        raise UnsupportedError(f"dimensions of unknown extent: {'; '.join(told)}", f"Pin them: {quote_words(flags)}")
    for value, shape in zip(values, shapes, strict=True):
        check_size(value.name, shape)
    return shapes


def bind_outputs(inputs: Sequence[Tensor], outputs: Mapping[str, Tensor], fresh: Callable[[str], str]) -> list[Tensor]:
    """The tensors of outputs under their names of the file, by which they are given.

    A tensor that is an input, a constant, or an output already is copied by a Reshape to its own shape.

    Args:
        fresh: makes a name that is not in use from another one.

    Raises:
        UnsupportedError: an input that is an output under the same name.
    """
    taken, bound = set(inputs), list[Tensor]()
    others = {tensor for node in sort_nodes(tuple(outputs.values())) for tensor in (*node.operands, *node.outputs)}
    for name, tensor in outputs.items():
        if any(name == source.name for source in inputs):
            raise UnsupportedError(f"'{shorten(name)}' is an input and an output of the graph", "put an Identity between them")
        if tensor in taken or tensor.maker is None:
            others.add(tensor)
            tensor = compute("Reshape", tensor, shape=tensor.shape, called=f"Reshape_{name}")
        for other in others - {tensor}:
            if other.name == name:
                set_name(other, fresh(f"{name}_inner"))
        set_name(tensor, name)
        taken.add(tensor)
        bound.append(tensor)
    return bound


def check_tensors(graph: Graph) -> None:
    """Raise UnsupportedError for the first tensor whose elements the generated code cannot count."""
    for tensor in {*graph.inputs, *(t for node in graph.nodes for t in (*node.operands, *node.outputs))}:
        check_size(tensor.name, tensor.shape)


def annotated_scales(graph: onnx.GraphProto) -> dict[str, tuple[float, int]]:
    """Scale and zero point of tensors that the graph itself says them of (quantization_annotation), each as a whole."""
    numbers = {tensor.name: tensor for tensor in graph.initializer if math.prod(tensor.dims) == 1}
    scales = {}
    for note in graph.quantization_annotation:
        named = {entry.key: numbers.get(entry.value) for entry in note.quant_parameter_tensor_names}
        scale, zero = named.get("SCALE_TENSOR"), named.get("ZERO_POINT_TENSOR")
        if scale is not None and zero is not None:
            step, origin = read_array(scale, scale.name), read_array(zero, zero.name)
            if step.dtype.kind == "f" and origin.dtype.kind in "iu" and np.isfinite(step).all():
                scales[note.tensor_name] = float(step.item()), int(origin.item())
    return scales
