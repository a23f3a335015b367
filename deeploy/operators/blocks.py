"""Products whose second operand has a scale per block of elements that are added up (docs/integer-form.md)."""

from __future__ import annotations

from random import Random

import numpy as np

from deeploy.ir.kernel import BYTES, FLOAT, Need, Operator, Range, Row, Sample, Stored, Tiling, packed
from deeploy.ir.nest import Map, Nest, parallel, reduction
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.accumulate import FLOAT_STAGES, held, products, values
from deeploy.operators.draws import WIDE, floats, integers, sample
from deeploy.operators.matmul import BATCH_AXES, exact_product


def nest(node: Node) -> Nest:
    """a[...,m,k] b[n,k], whose scales and zero points [n,k // size] belong to blocks of k."""
    size = node.attrs["size"]
    batch = parallel(*(f"b{axis}" for axis in range(len(node.outputs[0].shape) - 2)))
    m, n = parallel("m", "n")
    (k,) = reduction("k")
    of_block = Map(n, k // size)
    reads = {"a": Map(*batch, m, k), "b": Map(n, k), "scales": of_block, "zeros": of_block}
    return Nest(reads=reads, writes={"y": Map(*batch, m, n)})


def reference(node: Node, a: Array, b: Array, scales: Array, zeros: Array | None = None) -> Array:
    """The sum over blocks of scale * sum of a * (b - zero), in float32, one after the other; block sums of integers are exact.

    a[...,M,K] float or 8 bit, b[N,K] 8 bit, scales[N,B] float, zeros[N,B] 8 bit (optional), B = K / size, rounded up; size. Epilogues of
    floats.
    """
    size, acc = node.attrs["size"], np.zeros((*a.shape[:-1], b.shape[0]), np.float32)
    for number, begin in enumerate(range(0, b.shape[1], size)):
        left, right = a[..., begin : begin + size], b[:, begin : begin + size].astype(np.int64).T
        right = right if zeros is None else right - zeros[:, number].astype(np.int64)
        if a.dtype.kind != "f":
            part = exact_product(left, right).astype(np.float32)
        else:
            part = np.zeros_like(acc)
            for k, row in enumerate(right.astype(np.float32)):
                part += left[..., k, None] * row
        acc += part * scales[:, number]
    return acc


def _state_requirement(node: Node) -> str | None:
    return None if 2 <= len(node.outputs[0].shape) <= BATCH_AXES + 2 else f"at least two axes, and at most {BATCH_AXES} more"


# A kernel may want the rows of a constant b packed: [N,bytes of K].
PACKED_ROWS = Stored(nest=packed(nest, "b"), constants=("b",))
WHOLE_BYTES: Need = (lambda node: node.attrs["size"] % 8 == 0, "blocks of a multiple of 8 elements")


def _draw_node(rng: Random) -> Sample:
    size, k = rng.choice((3, 4, 8, 16, 32)), rng.choice((*WIDE, 64, 130))
    blocks = f"n,{-(-k // size)}"
    given = {"size": (size,), "scales": floats(0.01, 0.3), "zeros": integers(0, 15, np.uint8)}
    return sample(f"y[*s,m,n] a[*s,m,{k}] b[n,{k}] scales[{blocks}] zeros?[{blocks}]", **given)(rng)


def _bound_sums(node: Node) -> dict[str, tuple[Range, Range]]:
    """Sums of a block, which become floats."""
    a, b, _, *zeros = node.operands
    if a.dtype.is_float:
        return {}
    (low, high), (least, most) = values(b), values(zeros[0]) if zeros and not zeros[0].dtype.is_float else (0, 0)
    (smallest,), (largest,) = products(values(a), (low - most, high - least), min(node.attrs["size"], b.shape[1]))
    return {"sum": held(int(smallest), int(largest))}


BLOCK_MATMUL = Operator(
    "BlockMatMul",
    ("a", "b", "scales", "zeros?"),
    nest,
    reference,
    usual=Row(
        types={"a": BYTES | FLOAT, "b": BYTES, "scales": FLOAT, "zeros": BYTES, "y": FLOAT, "bias": FLOAT},
        requires=_state_requirement,
        epilogues=FLOAT_STAGES,
        strided={"a": 1, "b": 1, "scales": 1, "zeros": 1, "y": 1},
        tiling=Tiling(whole=("k",)),
        cores=("n", "m"),
    ),
    integers=_bound_sums,
    is_product=True,
    draw=_draw_node,
)
