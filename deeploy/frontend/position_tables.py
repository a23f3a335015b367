"""Constants that depend on the position: tables with a row for every position, and masks that slide along their columns.

A model may compute the position from the shape of a cache: rows of cosines, position ids. With fixed shapes that folds into
constants, which are other ones at every position. The part of the model that computes them is imported once per position.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx

from deeploy.errors import UnsupportedError, shorten
from deeploy.ir.nodes import INTEGER_FORM, Tensor, compute
from deeploy.ir.types import DType
from deeploy.ir.values import Graph, substitute_tensors
from deeploy.operators.views import POSITION, SLIDE

FOLLOWED = "cannot be followed"
Fold = Callable[[onnx.ModelProto, int], Graph]  # imports a model with caches of so many rows in all


def _paired_constants(graph: Graph, shorter: Graph) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Constants of a model and of the same one with one row less, by the name in the first."""
    for node, other in zip(graph.nodes, shorter.nodes, strict=False):
        for a, b in zip(node.inputs, other.inputs, strict=False):
            if a is not None and b is not None and a.data is not None and b.data is not None:
                yield a.name, a.data, b.data


def constants_equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two constants hold the same, in which what is no number equals itself."""
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def differing_constants(graph: Graph, shorter: Graph) -> list[str]:
    """Names of constants of one shape whose values are others when there is one row less."""
    different = (name for name, x, y in _paired_constants(graph, shorter) if x.shape == y.shape and not constants_equal(x, y))
    return list(dict.fromkeys(different))


def position_tables(model: onnx.ModelProto, names: Sequence[str], fold: Fold, positions: Sequence[int]) -> dict[str, np.ndarray]:
    """The values of constants at every position, one row each.

    Args:
        positions: rows in all, from those of the first inference to a full context.

    Raises:
        UnsupportedError: a constant that is not there at every position.
    """
    made = {output for node in model.graph.node for output in node.output}
    stated = [name for name in names if name in made]
    part = _model_part(model, stated) if stated else None
    rows: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for total in positions:
        rows_by_name = _folded_outputs(fold(part, total)) if part is not None else {}
        if len(stated) < len(names):  # what operators that are taken apart compute has no name in the file
            rows_by_name |= _held_constants(fold(model, total))
        for name in names:
            if name not in rows_by_name:
                raise position_error(f"constant {shorten(name)}", FOLLOWED)
            rows[name].append(rows_by_name[name])
    return {name: np.stack(values) for name, values in rows.items()}


def _folded_outputs(graph: Graph) -> dict[str, np.ndarray]:
    """The outputs of a graph that are constants."""
    sources = {tensor.name: tensor.maker.operands[0] for tensor in graph.outputs if tensor.maker is not None and tensor.maker.operands}
    return {name: source.data for name, source in sources.items() if source.data is not None}


def _held_constants(graph: Graph) -> dict[str, np.ndarray]:
    """The constants of a graph."""
    return {tensor.name: tensor.data for tensor in graph.readers if tensor.data is not None}


def _model_part(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The nodes that compute tensors, as a model of their own."""
    makers = {output: node for node in model.graph.node for output in node.output}
    needed, waiting = set[int](), list(names)
    while waiting:
        node = makers.get(waiting.pop())
        if node is not None and id(node) not in needed:
            needed.add(id(node))
            waiting += node.input
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:], result.graph.output[:]
    result.graph.node.extend(node for node in model.graph.node if id(node) in needed)
    result.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return result


def position_error(what: str, how: str) -> UnsupportedError:
    """The error for a part of a model that depends on the position in a way that is not handled."""
    return UnsupportedError(
        f"{what} depends on the position in a way that {how}",
        "Make the position (position_ids, rows of the mask) an input of the model when it is exported.",
    )


def sliding_constants(graph: Graph, shorter: Graph) -> dict[str, int]:
    """Constants that lose their first column with a row, by name, and the axis of the columns: masks of several rows."""
    shifted = ((name, _lost_axis(x, y), x, y) for name, x, y in _paired_constants(graph, shorter))
    lost = ((name, axis, [np.delete(x, place, axis) for place in (-1, 0)], y) for name, axis, x, y in shifted if axis is not None)
    return {
        name: axis
        for name, axis, (without_last, without_first), y in lost
        if not constants_equal(without_last, y) and constants_equal(without_first, y)
    }


def _compute_constants(graph: Graph, names: Container[str], make: Callable[[Tensor], Tensor]) -> Graph:
    """The graph in which ``make`` computes what is read instead of every constant with one of the names."""
    made: dict[str, Tensor] = {}

    def instead(tensor: Tensor) -> Tensor:
        return made.setdefault(tensor.name, make(tensor)) if tensor.data is not None and tensor.name in names else tensor

    return substitute_tensors(graph, instead)


def slide_constants(graph: Graph, tables: Mapping[str, int], rows: int) -> Graph:
    """Read sliding constants at the end of their columns, as many as there are rows; an inference appends ``rows``."""

    def read(tensor: Tensor) -> Tensor:
        name, axis = tensor.name, tables[tensor.name]
        source = replace(tensor, name=f"{name} (full context)")
        return compute(
            SLIDE,
            source,
            name=f"{name} (sliding)",
            called=f"{name} (slide)",
            domain=INTEGER_FORM,
            axis=axis,
            start=tensor.shape[axis] - rows,
        )

    return _compute_constants(graph, tables, read)


def _lost_axis(x: np.ndarray, y: np.ndarray) -> int | None:
    """The only axis along which y is one shorter than x."""
    if x.ndim != y.ndim:
        return None
    axes = [i for i, (m, n) in enumerate(zip(x.shape, y.shape, strict=True)) if m != n]
    return axes[0] if len(axes) == 1 and x.shape[axes[0]] == y.shape[axes[0]] + 1 else None


def look_up(graph: Graph, values: Mapping[str, np.ndarray]) -> Graph:
    """Replace constants by the rows of their tables at the position, which becomes an input of the graph."""
    position = Tensor(POSITION, (1,), DType.INT64)

    def row(tensor: Tensor) -> Tensor:
        name, table = tensor.name, values[tensor.name]
        source = Tensor(f"{name} (every position)", table.shape, DType.of(table.dtype), table)
        table_row = compute("Gather", source, position, axis=0, name=f"{name} (row)", called=f"{name} (look up)")
        return compute("Reshape", table_row, shape=table.shape[1:], name=f"{name} (at the position)", called=f"{name} (shape)")

    graph = _compute_constants(graph, values, row)
    return replace(graph, inputs=(*graph.inputs, position)) if position in graph.readers else graph
