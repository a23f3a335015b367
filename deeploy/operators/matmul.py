"""Batched matrix products (docs/integer-form.md): a[...,M,K] b[...,K,N], either one transposed, with zero points."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Literal

import numpy as np

from deeploy.ir.kernel import INTEGERS, Layout, Operator, Row, Sample, Stored, Tiling, packed, types
from deeploy.ir.nest import Map, Nest, parallel, reduction
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.accumulate import INTEGER_STAGES, Ends, products, stored_whole, sums, values
from deeploy.operators.draws import FLAG, WIDE, ZERO_POINTS, sample
from deeploy.operators.elementwise import wide

BATCH_AXES = 4  # of the portable kernel
ROUNDED = "products of floats that are rounded before they are added"  # what a kernel may need
RUN = 16  # float products that are added up before they enter the accumulator
FUSED_RUN = 64  # the same of products that are not rounded, whose kernels pay for every run


def nest(stored: Literal["rows", "columns"] | None = None) -> Callable[[Node], Nest]:
    """The nest of ``MatMul``: batch axes are aligned to the right and broadcast.

    ``stored`` says which axis of a constant b comes last: its rows ([...,N,K]) or its columns ([...,K,N]).
    """

    def declare(node: Node) -> Nest:
        a, b, *_ = node.operands
        batch = parallel(*(f"b{axis}" for axis in range(node.outputs[0].rank - 2)))
        m, n = parallel("m", "n")
        (k,) = reduction("k")
        rows = (k, m) if node.attrs["trans_a"] else (m, k)
        transposed = node.attrs["trans_b"] if stored is None else stored == "rows"
        columns = (n, k) if transposed else (k, n)
        return Nest(
            reads={"a": Map(*batch[len(batch) + 2 - a.rank :], *rows), "b": Map(*batch[len(batch) + 2 - b.rank :], *columns)},
            writes={"y": Map(*batch, m, n)},
        )

    return declare


def _stored(is_transposed: bool) -> dict[str, Layout]:
    """The layout of b with its rows or its columns last."""
    return {"b": Layout(lambda b, node: b if node.attrs["trans_b"] == is_transposed else np.ascontiguousarray(b.swapaxes(-1, -2)))}


# How a kernel may want a constant b stored: parts of its row.
ROWS_LAST = Stored(nest=nest("rows"), constants=("b",), layouts=_stored(True))  # [...,N,K]
PACKED_ROWS = Stored(nest=packed(nest("rows"), "b"), constants=("b",), layouts=_stored(True))  # [...,N,bytes of K]
COLUMNS_LAST = Stored(nest=nest("columns"), constants=("b",), layouts=_stored(False))  # [...,K,N]


def state_requirement(node: Node) -> str | None:
    """An accumulator that can be stored, and the portable kernel's limits on ranks."""
    return ROUNDED if fuses(node) else state_fused_requirement(node)


def state_fused_requirement(node: Node) -> str | None:
    """What a kernel that rounds once, where a product of floats is added, cannot take: a reason, or None."""
    if reason := stored_whole(node):
        return reason
    if any(t.rank < 2 for t in node.operands[:2]):
        return "operands with at least two axes"
    return None if node.outputs[0].rank <= BATCH_AXES + 2 else f"at most {BATCH_AXES} batch axes"


def fuses(node: Node) -> bool:
    """Whether products of floats enter sums without having been rounded, by the node's ``multiply_add``."""
    return bool(node.attrs.get("multiply_add")) and node.outputs[0].dtype.is_float


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float32, rounded once.

    The product is exact in 64 bits. The sum is rounded to odd there, so that rounding it again is harmless (Boldo and Melquiond,
    Emulation of FMA and correctly rounded sums, 2008): its error, by Knuth's TwoSum, says to which side of an even sum the true one lies.
    """
    product, summand = a.astype(np.float64) * b, c.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        total = product + summand
        rounded = total - product
        error = (product - (total - rounded)) + (summand - rounded)
        is_moved = (error != 0) & np.isfinite(total) & (total.view(np.int64) & 1 == 0)
        return np.asarray(np.where(is_moved, np.nextafter(total, np.copysign(np.inf, error)), total).astype(np.float32))


def exact_product(a: Array, b: Array) -> Array:
    """Integer matrix product in int64, computed in float64 where no partial sum can leave the 53 bits it holds exactly."""
    bound = _magnitude(a) * _magnitude(b) * a.shape[-1]
    if bound < 2**53:
        return np.asarray((a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64))
    return np.asarray(a.astype(np.int64) @ b.astype(np.int64))


def _magnitude(array: Array) -> int:
    return max(abs(int(array.min(initial=0))), abs(int(array.max(initial=0))))


def reference(node: Node, a: Array, b: Array) -> Array:
    """acc = sum over k of (a - a_zero_point) * (b - b_zero_point); floats are summed in float32, in runs of 16; multiply_add: each
    product of floats is added without having been rounded, in runs of 64.

    a[...,M,K] (trans_a: [...,K,M]), b[...,K,N] (trans_b: [...,N,K]), batch axes broadcast; trans_a, trans_b (bool), a_zero_point,
    b_zero_point.
    """
    left = a.swapaxes(-1, -2) if node.attrs["trans_a"] else a
    right = b.swapaxes(-1, -2) if node.attrs["trans_b"] else b
    if a.dtype.kind != "f":
        return exact_product(wide(left) - node.attrs["a_zero_point"], wide(right) - node.attrs["b_zero_point"])
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    acc = np.zeros((*batch, left.shape[-2], right.shape[-1]), np.float32)
    run = FUSED_RUN if fuses(node) else RUN
    for begin in range(0, left.shape[-1], run):
        part = np.zeros_like(acc)
        for k in range(begin, min(begin + run, left.shape[-1])):
            x, w = left[..., :, k, None], right[..., k, None, :]
            part = multiply_add(x, w, part) if fuses(node) else part + x * w
        acc += part
    return acc


def _bound_accumulators(node: Node) -> Ends:
    a, b, *_ = node.operands
    (low, high), zero_b = values(a, int(node.attrs["a_zero_point"])), int(node.attrs["b_zero_point"])
    depth = a.shape[-2 if node.attrs["trans_a"] else -1]
    if b.data is None:
        return products((low, high), values(b, zero_b), depth)
    rows = b.data if node.attrs["trans_b"] else b.data.swapaxes(-1, -2)
    least, most = sums(rows.reshape(-1, depth).astype(np.int64) - zero_b, low, high)
    return least.reshape(-1, rows.shape[-2]).min(axis=0), most.reshape(-1, rows.shape[-2]).max(axis=0)


def _draw_node(rng: Random) -> Sample:
    (a, trans_a), (b, trans_b) = rng.choice((("k,m", True), *[("m,k", False)] * 3)), rng.choice((("n,k", True), ("k,n", False)))
    zero_points = ZERO_POINTS if rng.random() < 0.4 else (0,)
    given = {"trans_a": (trans_a,), "trans_b": (trans_b,), "a_zero_point": zero_points, "b_zero_point": zero_points, "multiply_add": FLAG}
    return sample(f"y[*s,m,n] a[~s,{a}] b[{rng.choice(('~s,', ''))}{b}]", extents={"k": (*WIDE, 130)}, **given)(rng)


MATMUL = Operator(
    "MatMul",
    ("a", "b"),
    nest(),
    reference,
    usual=Row(
        types={"a": INTEGERS, "b": INTEGERS, "y": INTEGERS, "bias": types("s32")},
        requires=state_requirement,
        epilogues=INTEGER_STAGES,
        strided={"a": 0, "b": 0, "y": 1},
        tiling=Tiling(whole=("k",)),
    ),
    bounds=_bound_accumulators,
    is_product=True,
    draw=_draw_node,
)
