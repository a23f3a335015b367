"""Operators of TensorFlow Lite that only move elements, choose among them, or compute where they lie: in whatever quantisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from deeploy.frontend.schemas import Attributes
from deeploy.frontend.tflite import quantised
from deeploy.frontend.tflite.network import Builder, LiteCall, LiteTensor, Operand, read_axes
from deeploy.ir.types import Array

Read = Callable[[LiteCall], Sequence[Operand]]


def build_move(op: str, read: Read, attributes: Callable[[LiteCall], Attributes] | None = None) -> Builder:
    """An operator of ONNX whose operands ``read`` gives; all quantised ones have the scale of the result."""

    def build(call: LiteCall) -> None:
        operands = read(call)
        quantised.check_same(call, *(each for each in operands if isinstance(each, LiteTensor)))
        call.add(op, *operands, outputs=call.outputs, **(attributes(call) if attributes else {}))

    return build


def read_numbers(call: LiteCall, position: int, count: int | None = None) -> list[int]:
    """A constant list of integers, perhaps of a length that is known."""
    values = call.constant(position)
    call.need(values.dtype.kind in "iu" and values.ndim < 3, f"has no list of integers as its input {position}")
    call.need(count is None or values.size == count, f"has {values.size} numbers in its input {position}, {count} are needed")
    return [int(value) for value in values.ravel()]


def read_reshape(call: LiteCall) -> Sequence[Operand]:
    """The input and the shape of the output, which the file has."""
    call.need(math.prod(call.x.shape) == math.prod(call.y.shape), f"makes {list(call.y.shape)} of {list(call.x.shape)}")
    return call.x, call.y.shape


def build_transpose(call: LiteCall) -> None:
    order = read_numbers(call, 1, len(call.x.shape))
    call.need(sorted(order) == list(range(len(order))), f"has the order {order}")
    build_move("Transpose", lambda call: [call.x], lambda call: {"perm": order})(call)


def read_edges(call: LiteCall, position: int, count: int) -> Array:
    """The borders [axis, side] of as many axes, an input that is constant."""
    edges = np.array(read_numbers(call, position, 2 * count), np.int64).reshape(-1, 2)
    call.need(edges.min(initial=0) >= 0 and edges.max(initial=0) < 2**20, "has borders of no sensible width")
    return edges


def read_padding(call: LiteCall) -> Sequence[Operand]:
    """The input, its borders, and what they are of: a number, or the zero point."""
    widths = read_edges(call, 1, len(call.x.shape)).T.ravel()
    if call.op == "MIRROR_PAD":
        return call.x, widths
    value = call.constant(2) if call.input(2) is not None else call.x.zero_point
    call.need(value.size == 1, "pads with several numbers")
    return call.x, widths, value.reshape(()).astype(call.x.dtype)


def build_mirror(call: LiteCall) -> Attributes:
    if call.options["mode"]:
        raise call.refused("repeats elements at the border (SYMMETRIC)", "Use REFLECT.")
    return {"mode": "reflect"}


def _read_parts(call: LiteCall) -> tuple[list[LiteTensor], int]:
    """All inputs, which have the scale of the output, and its axis along which they lie one behind the other."""
    parts, (at,) = [call.needed(at) for at in range(len(call.inputs))], read_axes(call, call.y, call.options["axis"])
    quantised.check_same(call, *parts)
    return parts, at


def build_concatenate(call: LiteCall) -> None:
    parts, at = _read_parts(call)
    call.activate(call.add("Concat", *parts, axis=at))


def build_pack(call: LiteCall) -> None:
    parts, at = _read_parts(call)
    shape = [1 if place == at else extent for place, extent in enumerate(call.y.shape)]
    rows = [call.add("Reshape", part, shape) for part in parts]
    call.add("Concat", *rows, axis=at, outputs=[call.y])


def build_split(call: LiteCall) -> None:
    """SPLIT, SPLIT_V, UNPACK: one output after the other along an axis."""
    x, at = call.x, None
    if call.op == "SPLIT":
        x, at = call.needed(1), read_numbers(call, 0, 1)[0]
    elif call.op == "SPLIT_V":
        at = read_numbers(call, 2, 1)[0]
    quantised.check_same(call, x)
    (along,) = read_axes(call, x, call.options["axis"] if at is None else at)
    begin = 0
    for part in call.outputs:
        extent = 1 if call.op == "UNPACK" else part.shape[along]
        piece = slice_tensor(call, x, [begin], [begin + extent], [along])
        call.add("Reshape", piece, part.shape, outputs=[part])
        begin += extent
    call.need(begin == x.shape[along], f"divides {x.shape[along]} into {begin}")


def slice_tensor(
    call: LiteCall, x: Operand, begin: Sequence[int], end: Sequence[int], along: Sequence[int], step: Sequence[int] = ()
) -> str:
    """A part of a tensor; ``end`` is -1 - extent or less where a negative step reaches the first element."""
    return call.add("Slice", x, begin, end, along, *([step] if step else []))


def build_cut(call: LiteCall) -> None:
    """SLICE: begin and size, of which -1 is all that follows."""
    rank = len(call.x.shape)
    begin, size = read_numbers(call, 1, rank), read_numbers(call, 2, rank)
    end = [extent if n == -1 else b + n for b, n, extent in zip(begin, size, call.x.shape, strict=True)]
    call.need(all(0 <= b <= e <= n for b, e, n in zip(begin, end, call.x.shape, strict=True)), "leaves its input")
    quantised.check_same(call, call.x)
    call.result(slice_tensor(call, call.x, begin, end, range(rank)))


def cut_strided(call: LiteCall) -> None:
    """STRIDED_SLICE, without new axes and ellipses."""
    rank, options = len(call.x.shape), call.options
    if options["ellipsis_mask"] or options["new_axis_mask"]:
        raise call.refused("adds axes or has an ellipsis", "Export the slice with one begin and end per axis.")
    first, last, step = (read_numbers(call, position) for position in (1, 2, 3))
    call.need(len(first) == len(last) == len(step) <= rank and 0 not in step, "has lists that do not fit its input")
    begin, end = list[int](), list[int]()
    for at, (b, e, s) in enumerate(zip(first, last, step, strict=True)):
        n, shrinks = call.x.shape[at], options["shrink_axis_mask"] >> at & 1
        least, most = (0, n) if s > 0 else (-1, n - 1)
        b = min(max(b + n * (b < 0), least), most)
        b = (0 if s > 0 else n - 1) if options["begin_mask"] >> at & 1 else b
        e = b + 1 if shrinks else min(max((e + b if options["offset"] else e) + n * (e < 0), least), most)
        e = (n if s > 0 else -1) if options["end_mask"] >> at & 1 and not shrinks else e
        begin.append(b)
        end.append(-1 - n if e < 0 else e)
    quantised.check_same(call, call.x)
    steps = [1 if options["shrink_axis_mask"] >> at & 1 else s for at, s in enumerate(step)]
    piece = slice_tensor(call, call.x, begin, end, range(len(first)), steps)
    call.reshape(piece)


def build_reverse(call: LiteCall) -> None:
    along = read_axes(call, call.x, call.constant(1))
    ends = [-1 - call.x.shape[at] for at in along]
    call.result(slice_tensor(call, call.x, [-1] * len(along), ends, along, [-1] * len(along)))


def build_gather(call: LiteCall) -> None:
    quantised.check_same(call, call.x)
    if call.options.get("batch_dims", 0):
        raise call.refused("has batch axes", "Gather from one tensor.")
    call.add("Gather", call.x, call.needed(1), axis=read_axes(call, call.x, call.options["axis"])[0], outputs=[call.y])


def look_up_rows(call: LiteCall) -> None:
    """EMBEDDING_LOOKUP: indices, then the table."""
    quantised.check_same(call, call.needed(1))
    call.add("Gather", call.needed(1), call.x, axis=0, outputs=[call.y])


def depth_and_space(call: LiteCall) -> None:
    """DEPTH_TO_SPACE, SPACE_TO_DEPTH of channels-last images."""
    quantised.check_same(call, call.x)
    size, (n, h, w, c) = call.options["block"], call.x.shape if len(call.x.shape) == 4 else (0, 0, 0, 0)
    call.need(size > 0 and n, "has no image of four axes or no block")
    if call.op == "DEPTH_TO_SPACE":
        call.need(c % (size * size) == 0, f"divides {c} channels by blocks of {size}")
        apart = n, h, w, size, size, c // (size * size)
    else:
        call.need(h % size == 0 and w % size == 0, f"divides {h} x {w} by blocks of {size}")
        apart = n, h // size, size, w // size, size, c
    parts = call.add("Transpose", call.add("Reshape", call.x, apart), perm=[0, 1, 3, 2, 4, 5])
    call.reshape(parts)


def batch_and_space(call: LiteCall) -> None:
    """BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND: blocks of the axes behind the first become its entries, or back."""
    quantised.check_same(call, call.x)
    blocks = read_numbers(call, 1)
    count = len(blocks)
    call.need(0 < count < len(call.x.shape) and min(blocks) > 0, "has blocks that do not fit its input")
    edges = read_edges(call, 2, count)
    n, *rest = call.x.shape
    spatial, others = rest[:count], rest[count:]
    if call.op == "SPACE_TO_BATCH_ND":
        wide = [e + int(a + b) for e, (a, b) in zip(spatial, edges, strict=True)]
        call.need(all(e % b == 0 for e, b in zip(wide, blocks, strict=True)), "has blocks that do not fit its input")
        widths = np.concatenate([[0], edges[:, 0], [0] * (len(others) + 1), edges[:, 1], [0] * len(others)]).astype(np.int64)
        x = call.add("Pad", call.x, widths, call.x.zero_point) if edges.any() else call.x.name
        apart = [n, *(part for e, b in zip(wide, blocks, strict=True) for part in (e // b, b)), *others]
        order = [*(2 + 2 * at for at in range(count)), 0, *(1 + 2 * at for at in range(count)), *range(1 + 2 * count, len(apart))]
        moved = call.add("Transpose", call.add("Reshape", x, apart), perm=order)
        call.reshape(moved)
        return
    call.need(n % math.prod(blocks) == 0, "has blocks that do not fit its input")
    apart = [*blocks, n // math.prod(blocks), *rest]
    order = [count, *(part for at in range(count) for part in (count + 1 + at, at)), *range(2 * count + 1, len(apart))]
    wide = [e * b for e, b in zip(spatial, blocks, strict=True)]
    moved = call.add("Transpose", call.add("Reshape", call.x, apart), perm=order)
    whole = call.add("Reshape", moved, [n // math.prod(blocks), *wide, *others])
    ends = [e - int(b) for e, b in zip(wide, edges[:, 1], strict=True)]
    call.result(slice_tensor(call, whole, [int(a) for a in edges[:, 0]], ends, range(1, count + 1)))


def resize_nearest(call: LiteCall) -> None:
    """Rows and columns that the positions of the result fall on, as TensorFlow Lite computes them in float32."""
    quantised.check_same(call, call.x)
    call.need(len(call.x.shape) == len(call.y.shape) == 4 and 0 not in call.x.shape, "has no image of four axes")
    corners, half, image = call.options["align_corners"], call.options["half_pixel"], call.x.name
    for at in (1, 2):
        before, after = call.x.shape[at], call.y.shape[at]
        scale = np.float32(before - 1) / np.float32(after - 1) if corners and after > 1 else np.float32(before) / np.float32(after)
        places = (np.arange(after, dtype=np.float32) + np.float32(0.5 if half else 0)) * scale
        indices = np.floor(places + np.float32(0.5)) if corners else np.floor(places)
        image = call.add("Gather", image, np.clip(indices, 0, before - 1).astype(np.int32), axis=at)
    call.result(image)


def find_extreme(call: LiteCall) -> None:
    """ARG_MAX, ARG_MIN: the first of equal ones."""
    (at,) = read_axes(call, call.x, read_numbers(call, 1, 1))
    call.cast(call.add("ArgMax" if call.op == "ARG_MAX" else "ArgMin", call.x, axis=at, keepdims=0))


def build_compare(op: str) -> Builder:
    """Comparisons; of quantised numbers where both have one scale."""

    def build(call: LiteCall) -> None:
        a, b = call.x, call.needed(1)
        if a.is_quantised and (a.s, a.z) != (b.s, b.z):
            raise call.refused("compares numbers of different scales", "Quantise both in one scale.")
        call.result(call.add("Not", call.add("Equal", a, b)) if op == "NotEqual" else call.add(op, a, b))

    return build


def build_choose(op: str) -> Builder:
    """The larger or smaller of two, or one by a condition: all in the scale of the result."""

    def build(call: LiteCall) -> None:
        parts = [call.needed(at) for at in range(3 if op == "Where" else 2)]
        quantised.check_same(call, *parts)
        call.add(op, *parts, outputs=[call.y])

    return build


def reduce_extreme(call: LiteCall) -> None:
    """REDUCE_MAX, REDUCE_MIN."""
    quantised.check_same(call, call.x)
    reduce_tensor(call, "ReduceMax" if call.op == "REDUCE_MAX" else "ReduceMin")


def reduce_tensor(call: LiteCall, op: str) -> None:
    along = read_axes(call, call.x, call.constant(1))
    whole = call.add(op, call.x, along, keepdims=1) if along else call.x.name
    call.reshape(whole)


def build_constant(read: Callable[[LiteCall], Array]) -> Builder:
    """A tensor that does not depend on any value."""

    def build(call: LiteCall) -> None:
        call.reshape(read(call).astype(call.y.dtype))

    return build
