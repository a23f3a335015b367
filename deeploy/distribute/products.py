"""Partial sums of a product on several chips, computed at once or piece by piece.

Pieces lie along the axis of the output along which the constants are divided with them, so that no byte of a matrix is read twice: the
columns of a matrix, the output channels of a convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.distribute.dependence import Declare, read_dependence, shape_of
from deeploy.distribute.shards import ROOT, Box, Shards, chunked_axis, size_of
from deeploy.graph import surgeon
from deeploy.graph.nodes import INTEGER_FORM, Attributes
from deeploy.operators.reduce import REDUCE_SUM
from deeploy.operators.table import shared
from deeploy.operators.views import CONCAT, RESHAPE, SLICE

Operand = Callable[[int, int, Box | None], gs.Tensor]  # of a chip: the input at a position, or a box of it


@dataclass(frozen=True)
class Pieces:
    """Where pieces lie: an axis of the output, and per input the axis whose indices go with it, None where a piece needs all of it."""

    axis: int
    inputs: tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class Product:
    """A node of which every chip computes a partial sum, over its share of a reduction.

    Attributes:
        attrs: of the node on each chip, without an epilogue.
        shapes: of the inputs of the body, as the first chip has them.
        operand: gives these inputs.
        pieces: None where it is computed at once.
    """

    shards: Shards
    node: gs.Node
    attrs: Mapping[int, Attributes]
    shapes: Sequence[tuple[int, ...]]
    operand: Operand
    pieces: Pieces | None
    _whole: dict[int, gs.Tensor] = field(default_factory=dict)

    @property
    def axis(self) -> int:
        """The axis of the output along which it is sent in chunks."""
        return chunked_axis(self.node.outputs[0])[0] if self.pieces is None else self.pieces.axis

    @property
    def reduced(self) -> int:
        """The axis of its input along which chips have parts."""
        source = next(i for i, tensor in enumerate(self.node.inputs) if isinstance(tensor, gs.Variable))
        own, whole = self.shapes[source], shape_of(self.node.inputs[source])
        return next((axis for axis, (a, b) in enumerate(zip(own, whole, strict=True)) if a != b), 0)

    @property
    def extent(self) -> int:
        return shape_of(self.node.outputs[0])[self.axis] if shape_of(self.node.outputs[0]) else 1

    def part(self, chip: int, begin: int, end: int) -> gs.Tensor:
        """What a chip has of the outputs ``begin`` to ``end`` along the axis."""
        if (begin, end) == (0, self.extent):
            return self._computed(chip, None)
        if self.pieces is not None:
            return self._computed(chip, (begin, end))
        if chip not in self._whole:
            self._whole[chip] = self._computed(chip, None)
        name = f"{self.node.outputs[0].name} (partial, from {begin} to {end})"
        return self.shards.cut_out(chip, self._whole[chip], self.axis, begin, end, name)

    def _computed(self, chip: int, part: tuple[int, int] | None) -> gs.Tensor:
        """The node on a chip: all of its outputs, or those from one index to another."""
        inputs = []
        for position in range(len(self.shapes)):
            axis = self.pieces.inputs[position] if self.pieces is not None and part is not None else None
            inputs.append(self.operand(chip, position, None if axis is None or part is None else (axis, *part)))
        extent, suffix = (self.extent, " (partial)") if part is None else (part[1] - part[0], f" (partial, from {part[0]} to {part[1]})")
        result = self.shards.like(self.node.outputs[0], self.axis, extent, suffix, np.int32)
        node = gs.Node(self.node.op, self.node.name, dict(self.attrs[chip]), inputs, [result], domain=self.node.domain)
        self.shards.graphs[chip].nodes.append(node)
        return result

    def example(self) -> gs.Graph:
        """What the first chip computes, as a graph of its own, in which constants are zero."""
        result = self.shards.like(self.node.outputs[0], None, 0, "", np.int32)
        return self._alone(self.shapes, result, self.attrs[ROOT])

    def by_outputs(self) -> gs.Graph | None:
        """What a chip would compute of the node if it had all of the reduction and a share of the outputs, as a graph of its own; None
        where outputs cannot be divided with the constants."""
        if self.pieces is None:
            return None
        chips, axis, extent = len(self.attrs), self.pieces.axis, self.extent
        result = self.shards.like(self.node.outputs[0], axis, -(-extent // chips), "")
        shapes = []
        for position, tensor in enumerate(self.node.inputs):
            shape = list(shape_of(tensor))
            place = self.pieces.inputs[position] if position < len(self.pieces.inputs) else len(shape) - 1
            if place is not None and shape and shape[place] == extent:
                shape[place] = -(-extent // chips)
            shapes.append(tuple(shape))
        return self._alone(shapes, result, self.node.attrs)

    def _alone(self, shapes: Sequence[tuple[int, ...]], result: gs.Tensor, attrs: Attributes) -> gs.Graph:
        body: list[gs.Tensor] = []
        for tensor, shape in zip(self.node.inputs, shapes, strict=False):
            is_constant = isinstance(tensor, gs.Constant)
            dtype = np.dtype(tensor.values.dtype if is_constant else tensor.dtype)
            body.append(gs.Constant(tensor.name, np.zeros(shape, dtype)) if is_constant else surgeon.variable(tensor.name, dtype, shape))
        node = gs.Node(self.node.op, self.node.name, dict(attrs), body, [result], domain=self.node.domain)
        return gs.Graph([node], [t for t in body if isinstance(t, gs.Variable)], [result])


def pieces(node: gs.Node, count: int, declare: Declare) -> Pieces | None:
    """Where pieces of a product may lie: the axis along which most bytes of constants are divided with them; None where there is none.

    Args:
        count: inputs of the body, without those of the epilogue.
    """
    output, view = node.outputs[0], surgeon.described(node)
    variables = [t for t in node.inputs if isinstance(t, gs.Variable)]
    own = read_dependence(gs.Graph([node], variables, [output]), declare)
    found: list[tuple[int, Pieces]] = []
    for axis, extent in enumerate(shape_of(output)):
        wanted = own.atoms(output, axis)
        if extent < 2 or len(np.unique(wanted)) < extent:
            continue
        places: list[int | None] = []
        for tensor in node.inputs[:count]:
            touched = [i for i in range(len(shape_of(tensor))) if np.isin(own.atoms(tensor, i), wanted).any()]
            if len(touched) > 1 or any(not np.array_equal(own.atoms(tensor, i), wanted) for i in touched):
                break
            places.append(touched[0] if touched else None)
        if len(places) < count:
            continue
        axes = (*places, *[None] * (len(node.inputs) - count), axis)
        kept = [None if place is None else np.arange(1) for place in axes]
        divided = sum(size_of(t) for t, place in zip(node.inputs, places, strict=False) if isinstance(t, gs.Constant) and place is not None)
        if divided and shared(view, axes, kept) == dict(node.attrs):
            found.append((divided, Pieces(axis, tuple(places))))
    return max(found, key=lambda entry: entry[0])[1] if found else None


def sum_of(shape: Sequence[int], terms: int) -> gs.Graph:
    """The sum of so many tensors of int32, as a graph of its own."""
    x = surgeon.variable("terms", np.int32, (terms, *shape))
    y = surgeon.variable("sum", np.int32, shape)
    node = gs.Node(REDUCE_SUM.name, "sum", {"axes": (0,), "keepdims": False}, [x], [y], domain=INTEGER_FORM)
    return gs.Graph([node], [x], [y])


def sum_of_rows(shape: Sequence[int], axis: int, rows: int, terms: int) -> gs.Graph:
    """The sum of so many tensors of int32, one of which are the first rows of a tensor of ``shape``, as a graph of its own."""
    own = [rows if i == axis else n for i, n in enumerate(shape)]
    x, others = surgeon.variable("x", np.int32, shape), surgeon.variable("others", np.int32, (terms - 1, *own))
    part, row = surgeon.variable("part", np.int32, own), surgeon.variable("row", np.int32, (1, *own))
    both, y = surgeon.variable("terms", np.int32, (terms, *own)), surgeon.variable("sum", np.int32, own)
    box = {"starts": (0,) * len(own), "ends": tuple(own), "steps": (1,) * len(own)}
    nodes = [
        gs.Node(SLICE, "part", box, [x], [part], domain=INTEGER_FORM),
        gs.Node(RESHAPE, "row", {}, [part], [row], domain=INTEGER_FORM),
        gs.Node(CONCAT, "terms", {"axis": 0}, [row, others], [both], domain=INTEGER_FORM),
        gs.Node(REDUCE_SUM.name, "sum", {"axes": (0,), "keepdims": False}, [both], [y], domain=INTEGER_FORM),
    ]
    return gs.Graph(nodes, [x, others], [y])
