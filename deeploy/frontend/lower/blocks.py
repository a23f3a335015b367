"""Constants with a scale per block of their elements (``DequantizeLinear`` with ``block_size``) that stay integers: of products and tables.

So do weights with one scale, or one per column, where nothing else is quantised: a block is a column then. The first operand of a
product stays integer, too, where it is dequantised from bytes. All others that read such constants get the numbers that they stand for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.lower.products import multiply_by
from deeploy.frontend.lower.quant import byte_tensor, plain_tensor, repeat_parameters
from deeploy.frontend.lower.rule_call import RuleCall, gather_indices
from deeploy.frontend.schemas import Attributes
from deeploy.ir.nodes import Tensor, compute, constant
from deeploy.ir.rewriting import Match, Pass, Result, need, require, standard
from deeploy.ir.types import PACKED, DType
from deeploy.operators.blocks import BLOCK_MATMUL

_MOST_SIZE = 2**15  # elements of a block: sums of as many products of differences of bytes fit into 32 bits


@dataclass(frozen=True, eq=False)
class Blocks:
    """A constant matrix of bytes, with a scale and a zero point (None: 0) for every block of a row: [rows, columns], [rows, blocks]."""

    steps: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None
    size: int

    @property
    def centred(self) -> np.ndarray:
        """The integers without their zero points."""
        steps = self.steps.astype(np.int64)
        return steps if self.zeros is None else steps - repeat_parameters(self.zeros.astype(np.int64), self.size, 1, steps.shape)

    @property
    def sums(self) -> np.ndarray:
        """The sum of every block, without zero points."""
        result: np.ndarray = np.add.reduceat(self.centred, np.arange(0, self.steps.shape[1], self.size), axis=1)
        return result

    def narrowed(self) -> Blocks:
        """The weights without zero points, where that takes no more bits."""
        difference = self.centred
        if self.zeros is None or _count_bits(difference) > _count_bits(self.steps):
            return self
        return replace(self, steps=difference.astype(np.int8 if difference.min(initial=0) < 0 else np.uint8), zeros=None)


def _count_bits(values: np.ndarray) -> int:
    """How few bits hold integers, up to 8; more where these do not."""
    ends = int(values.min(initial=0)), int(values.max(initial=0))
    return next((dtype.bits for dtype in (*PACKED, DType.INT8, DType.UINT8) if dtype.holds(*ends)), 9)


def _read_blocks(m: Match, tensor: Tensor, axis: int) -> Blocks:
    """What a matrix is dequantised from, turned so that blocks along ``axis`` lie in rows."""
    turn = m.source(tensor, "Transpose") if tensor.rank == 2 else None
    node = need(m.source(tensor if turn is None else turn.operands[0], "DequantizeLinear"))
    axis, size = axis if turn is None else 1 - axis, int(node.attrs.get("block_size", 0))
    arrays = [need(operand.data) for operand in node.operands]
    require(arrays[0].ndim == 2)
    steps, scales, *zeros = (values if axis or values.ndim < 2 else values.T for values in arrays)
    if size == 0 and (scales.size == 1 or (scales.size == len(steps) and node.attrs["axis"] == 1 - axis)):
        size, (scales, *zeros) = steps.shape[1], [np.broadcast_to(row.reshape(-1, 1), (len(steps), 1)) for row in (scales, *zeros)]
    else:
        require(node.attrs["axis"] == axis)
    require(0 < size <= _MOST_SIZE, steps.dtype in (np.int8, np.uint8), scales.dtype.kind == "f")
    return Blocks(steps, scales.astype(np.float32), zeros[0] if zeros and zeros[0].any() else None, size).narrowed()


@standard("MatMul", "Gemm", lowers=True)
def lower_block_product(
    m: Match,
    x: Tensor,
    w: Tensor,
    summand: Tensor | None = None,
    *,
    transA: int = 0,
    transB: int = 0,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Result:
    """A product with such a matrix on the right."""
    blocks, a = _read_blocks(m, w, transB), byte_tensor(x)
    require(x.rank > 1, not transA, a is None or blocks.scales.shape[1] > 1)
    a, offset = a or plain_tensor(x), np.zeros(1, np.float32)
    scales = blocks.scales * np.float32(alpha) * np.float32(a.s)
    operands = [a.tensor, constant(blocks.steps, label="weights"), constant(scales, label="scales")]
    operands += [] if blocks.zeros is None else [constant(blocks.zeros, label="zero points")]
    summand = summand if beta else None
    real = None if summand is None else real_constant(summand)
    if real is not None and real.size in (1, len(scales)):
        summand, offset = None, real.ravel() * np.float32(beta)
    if a.z:  # what the zero point adds to a column is the same for all rows
        offset = (offset - a.z * (blocks.sums * scales.astype(np.float64)).sum(axis=1)).astype(np.float32)
    bias = [constant(offset, label="bias")] if offset.any() else []
    attrs: Attributes = {"size": blocks.size, "epilogue": ("bias",) * len(bias)}
    sums = compute(BLOCK_MATMUL.name, *operands, *bias, shape=m.y.shape, dtype=DType.FLOAT32, **attrs)
    return sums if summand is None else m.replace("Add", sums, multiply_by(RuleCall(m), summand, beta))


@standard("Gather", lowers=True)
def lower_block_table(m: Match) -> Result:
    """Rows of such a table: of their elements, scales and zero points, which are dequantised."""
    require(m.attrs["axis"] == 0)
    blocks, at = _read_blocks(m, m.x, 1), gather_indices(m)
    require(blocks.steps.shape[1] % blocks.size == 0)
    outer = [*at.shape, blocks.scales.shape[1]]

    def gather(values: np.ndarray, label: str, size: int = 1) -> Tensor:
        return compute("Gather", constant(values, label=label), at, axis=0, label=f"{label}, rows").reshape([*outer, size])

    steps, scales = gather(blocks.steps, "table", blocks.size), gather(blocks.scales, "scales")
    zeros = None if blocks.zeros is None else gather(blocks.zeros.astype(np.int32), "zero points")
    return compute("Dequantize", steps, scales, zeros or constant(np.zeros([1] * steps.rank, np.int32), label="zero point"))


PASS = Pass("blocks", (lower_block_product, lower_block_table))
