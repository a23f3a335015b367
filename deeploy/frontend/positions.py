"""Constants that depend on the position: tables with a row for every position, and masks that slide along their columns.

A model may compute the position from the shape of a cache: rows of cosines, position ids. With fixed shapes that folds into
constants, which are other ones at every position. The part of the model that computes them is imported once per position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from deeploy.errors import UnsupportedError, shorten
from deeploy.frontend.lower.build import DOMAIN
from deeploy.graph.rewrite import sort
from deeploy.operators.views import SLIDE

POSITION = "position of the first new row"  # the input that the emitted code gives itself
Fold = Callable[[onnx.ModelProto, int], gs.Graph]  # imports a model with caches of so many rows in all


def differing(graph: gs.Graph, shorter: gs.Graph) -> list[str]:
    """Names of constants of one shape whose values are others when there is one row less."""
    names: list[str] = []
    for node, other in zip(graph.nodes, shorter.nodes, strict=False):
        for a, b in zip(node.inputs, other.inputs, strict=False):
            if isinstance(a, gs.Constant) and isinstance(b, gs.Constant) and a.name not in names:
                x, y = np.asarray(a.values), np.asarray(b.values)
                if x.shape == y.shape and not np.array_equal(x, y, equal_nan=x.dtype.kind == "f"):
                    names.append(a.name)
    return names


def tables(model: onnx.ModelProto, names: Sequence[str], fold: Fold, positions: Sequence[int]) -> dict[str, np.ndarray]:
    """The values of constants at every position, one row each.

    Args:
        positions: rows in all, from those of the first inference to a full context.

    Raises:
        UnsupportedError: a constant that the file does not compute under its name.
    """
    part = _part(model, names)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for total in positions:
        graph = fold(part, total)
        for tensor in graph.outputs:
            source = tensor.inputs[0].inputs[0] if tensor.inputs else None
            if not isinstance(source, gs.Constant):
                raise _unsupported(tensor.name)
            rows[tensor.name].append(np.asarray(source.values))
    return {name: np.stack(values) for name, values in rows.items()}


def _part(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The nodes that compute tensors, as a model of their own."""
    makers = {output: node for node in model.graph.node for output in node.output}
    for name in names:
        if name not in makers:
            raise _unsupported(name)
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


def _unsupported(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"constant {shorten(name)} depends on the position in a way that cannot be followed",
        "Make the position (position_ids, rows of the mask) an input of the model when it is exported.",
    )


def sliding(graph: gs.Graph, shorter: gs.Graph) -> dict[str, int]:
    """Constants that lose their first column with a row, by name, and the axis of the columns: masks of several rows."""
    found: dict[str, int] = {}
    for node, other in zip(graph.nodes, shorter.nodes, strict=False):
        for a, b in zip(node.inputs, other.inputs, strict=False):
            if isinstance(a, gs.Constant) and isinstance(b, gs.Constant):
                x, y = np.asarray(a.values), np.asarray(b.values)
                axis = _lost(x, y)
                if axis is not None and not np.array_equal(np.delete(x, -1, axis), y) and np.array_equal(np.delete(x, 0, axis), y):
                    found[a.name] = axis
    return found


def slide(graph: gs.Graph, found: Mapping[str, int], rows: int) -> None:
    """Read sliding constants at the end of their columns, as many as there are rows; an inference appends ``rows``."""
    made: dict[str, gs.Variable] = {}
    for node in list(graph.nodes):
        for place, tensor in enumerate(node.inputs):
            if not isinstance(tensor, gs.Constant) or tensor.name not in found:
                continue
            if tensor.name not in made:
                made[tensor.name] = gs.Variable(f"{tensor.name} (sliding)", tensor.dtype, list(tensor.shape))
                attrs = {"axis": found[tensor.name], "start": tensor.shape[found[tensor.name]] - rows}
                source = gs.Constant(f"{tensor.name} (full context)", np.asarray(tensor.values))
                graph.nodes.append(gs.Node(SLIDE, f"{tensor.name} (slide)", attrs, [source], [made[tensor.name]], domain=DOMAIN))
            node.inputs[place] = made[tensor.name]
    if made:
        sort(graph)


def _lost(x: np.ndarray, y: np.ndarray) -> int | None:
    """The only axis along which y is one shorter than x."""
    if x.ndim != y.ndim:
        return None
    axes = [i for i, (m, n) in enumerate(zip(x.shape, y.shape, strict=True)) if m != n]
    return axes[0] if len(axes) == 1 and x.shape[axes[0]] == y.shape[axes[0]] + 1 else None


def look_up(graph: gs.Graph, values: Mapping[str, np.ndarray]) -> None:
    """Replace constants by the rows of their tables at the position, which becomes an input of the graph."""
    position = gs.Variable(POSITION, np.int64, [1])
    made: dict[str, gs.Variable] = {}
    for node in list(graph.nodes):
        for place, tensor in enumerate(node.inputs):
            table = values.get(tensor.name) if isinstance(tensor, gs.Constant) else None
            if table is None:
                continue
            if tensor.name not in made:
                found = gs.Variable(f"{tensor.name} (row)", table.dtype, [1, *table.shape[1:]])
                result = gs.Variable(f"{tensor.name} (at the position)", table.dtype, list(table.shape[1:]))
                source = gs.Constant(f"{tensor.name} (every position)", table)
                graph.nodes.append(gs.Node("Gather", f"{tensor.name} (look up)", {"axis": 0}, [source, position], [found], domain=""))
                graph.nodes.append(gs.Node("Reshape", f"{tensor.name} (shape)", {}, [found], [result], domain=""))
                made[tensor.name] = result
            node.inputs[place] = made[tensor.name]
    if made:
        graph.inputs.append(position)
        sort(graph)
