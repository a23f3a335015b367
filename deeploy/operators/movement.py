"""Operators that move data and compute nothing: Pad, Gather (docs/integer-form.md)."""

from __future__ import annotations

from random import Random

import numpy as np

from deeploy.ir.expr import Dim, Expr
from deeploy.ir.kernel import ANY, FLOAT_OR_HALF, Operator, Row, Sample, types
from deeploy.ir.nest import Map, Nest, coupled, parallel
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.accumulate import exclude_overflow, keeps_type
from deeploy.operators.draws import draw_shape, integers
from deeploy.operators.elementwise import fits_loops


def pad_nest(node: Node) -> Nest:
    """Every output reads one input, or the value outside its borders; what borders repeat or mirror may lie anywhere along an axis."""
    pads, rank = node.attrs["pads"], node.operands[0].rank
    is_anywhere = [node.attrs["mode"] != "constant" and (pads[axis] != 0 or pads[axis + rank] != 0) for axis in range(rank)]
    dims: tuple[Dim, ...] = tuple((coupled if far else parallel)(f"d{axis}")[0] for axis, far in enumerate(is_anywhere))
    return Nest(
        reads={"x": Map(*(d - before for d, before in zip(dims, pads, strict=False)), outside=node.attrs["value"])},
        writes={"y": Map(*dims)},
    )


def pad_reference(node: Node, x: Array) -> Array:
    """NumPy's padding (mode constant, reflect, edge; value); negative amounts cut off; pads: all begins, then all ends."""
    rank, pads = x.ndim, node.attrs["pads"]
    box = tuple(slice(max(0, -pads[i]), x.shape[i] - max(0, -pads[i + rank])) for i in range(rank))
    widths = [(max(0, pads[i]), max(0, pads[i + rank])) for i in range(rank)]
    mode = node.attrs["mode"]
    if mode == "constant":
        return np.pad(x[box], widths, constant_values=node.attrs["value"])
    return np.pad(x[box], widths, mode="reflect" if mode == "reflect" else "edge")


def gather_nest(node: Node) -> Nest:
    """The table stays where it lies; along ``axis`` it is read by index."""
    table, indices = node.operands
    axis = node.attrs["axis"]
    rank = len(table.shape)
    dims: list[Dim] = list(parallel(*(f"d{i}" for i in range(rank))))
    places = parallel(*(f"i{i}" for i in range(len(indices.shape))))
    result: list[Expr | int] = [*dims[:axis], *places, *dims[axis + 1 :]]
    return Nest(reads={"x": Map(*dims), "indices": Map(*places)}, writes={"y": Map(*result)}, indirect=("x",))


def gather_reference(node: Node, x: Array, indices: Array) -> Array:
    """Entries of ``x`` along an axis. An index that is out of range reads the nearest entry, as in C."""
    axis = node.attrs["axis"]
    size = x.shape[axis]
    places = indices.astype(np.int64)
    return np.take(x, np.where(places < 0, places + size, places), axis=axis, mode="clip")


def has_rows(node: Node) -> bool:
    """Whether entries of the table are whole rows."""
    table = node.inputs[0]
    return table is not None and node.attrs["axis"] < len(table.shape) - 1


def _draw_pad(rng: Random) -> Sample:
    x, mode = draw_shape(rng), rng.choice(("constant", "reflect", "edge"))
    pads = [rng.choice((0, rng.randint(0, min(3, n - 1) if mode == "reflect" else 3))) for n in x * 2]
    if mode == "constant" and x[0] > 2 and rng.random() < 0.3:
        pads[0] = -1
    return Sample({"x": x}, {"pads": tuple(pads), "mode": mode, "value": rng.choice((0, 1, 7))})


def _draw_gather(rng: Random) -> Sample:
    x = draw_shape(rng, most=4)
    axis = rng.randrange(len(x))
    indices = integers(-x[axis], x[axis] - 1, np.int32, np.int64)(rng, rng.choice(((), draw_shape(rng, most=1), draw_shape(rng, most=2))))
    return Sample({"x": x}, {"axis": axis}, {"indices": indices})


PAD = Operator(
    "Pad",
    ("x",),
    pad_nest,
    pad_reference,
    Row(types={"x": ANY, "y": ANY}, requires=lambda node: keeps_type(node) or fits_loops(node), strided={"x": 0, "y": 0}),
    integers=exclude_overflow,
    draw=_draw_pad,
)
GATHER = Operator(
    "Gather",
    ("x", "indices"),
    gather_nest,
    gather_reference,
    Row(types={"x": ANY | FLOAT_OR_HALF, "indices": types("s32", "s64"), "y": ANY}, requires=keeps_type),
    integers=exclude_overflow,
    draw=_draw_gather,
)
