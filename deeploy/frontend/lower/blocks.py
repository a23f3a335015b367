"""Constants with a scale per block of their elements (``DequantizeLinear`` with ``block_size``) that stay integers: of products and tables.

The first operand of a product stays integer, too, where it is dequantised from bytes. All others that read such constants get the
numbers that they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower.call import Call
from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.lower.movement import indices
from deeploy.frontend.lower.products import times
from deeploy.frontend.lower.quant import byte, repeated
from deeploy.frontend.schemas import Attributes
from deeploy.graph.rewrite import Pass, constant, producer, rule
from deeploy.graph.types import PACKED, DType
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
        return steps if self.zeros is None else steps - repeated(self.zeros.astype(np.int64), self.size, 1, steps.shape)

    @property
    def sums(self) -> np.ndarray:
        """The sum of every block, without zero points."""
        result: np.ndarray = np.add.reduceat(self.centred, np.arange(0, self.steps.shape[1], self.size), axis=1)
        return result


def _blocks(tensor: gs.Tensor, axis: int) -> Blocks | None:
    """What a matrix is dequantised from, turned so that blocks along ``axis`` lie in rows; None where it is something else."""
    turn, node = producer(tensor, "Transpose"), producer(tensor, "DequantizeLinear")
    if turn is not None and len(tensor.shape) == 2:
        node, axis = producer(turn.inputs[0], "DequantizeLinear"), 1 - axis
    size = 0 if node is None else int(node.attrs.get("block_size", 0))
    found = [constant(each) for each in node.inputs] if node is not None and size else []
    if node is None or any(each is None or each.ndim != 2 for each in found) or not found or node.attrs["axis"] != axis:
        return None
    steps, scales, *zeros = (np.asarray(each if axis else each.T) for each in found if each is not None)
    if steps.dtype not in (np.int8, np.uint8) or not 0 < size <= _MOST_SIZE or scales.dtype.kind != "f":
        return None
    return _centred(Blocks(steps, scales.astype(np.float32), zeros[0] if zeros and zeros[0].any() else None, size))


def _centred(blocks: Blocks) -> Blocks:
    """The same without zero points where that takes no more bits."""
    difference = blocks.centred
    bits = _bits(difference)
    if blocks.zeros is None or bits is None or bits > (_bits(blocks.steps) or 0):
        return blocks
    return Blocks(difference.astype(np.int8 if difference.min(initial=0) < 0 else np.uint8), blocks.scales, None, blocks.size)


def _bits(values: np.ndarray) -> int | None:
    """How few bits hold integers; None where 8 do not."""
    ends = int(values.min(initial=0)), int(values.max(initial=0))
    return next((t.bits for t in (*PACKED, DType.INT8, DType.UINT8) if t.holds(*ends)), None)


@rule("MatMul", "Gemm")
def product(graph: gs.Graph, node: gs.Node) -> bool:
    """A product with such a matrix on the right."""
    if node.domain:
        return False
    call = Call(graph, node)
    alpha, beta = call.attrs.get("alpha", 1.0), call.attrs.get("beta", 1.0)
    blocks = _blocks(node.inputs[1], int(call.attrs.get("transB", 0)))
    if blocks is None or len(call.x.shape) < 2 or call.attrs.get("transA", 0):
        return False
    a, summand = byte(call.x), call.input(2) if beta else None
    scales = blocks.scales * np.float32(alpha) if a is None else blocks.scales * np.float32(alpha) * np.float32(a.s)
    operands = [call.x if a is None else a.tensor, call.constant(blocks.steps, label="weights"), call.constant(scales, label="scales")]
    operands += [] if blocks.zeros is None else [call.constant(blocks.zeros, label="zero points")]
    real, offset = None if summand is None else real_constant(summand), np.zeros(1, np.float32)
    if real is not None and real.size in (1, len(scales)):
        summand, offset = None, real.ravel() * np.float32(beta)
    if a is not None and a.z:  # what the zero point adds to a column is the same for all rows
        offset = (offset - a.z * (blocks.sums * scales.astype(np.float64)).sum(axis=1)).astype(np.float32)
    bias = [call.constant(offset, label="bias")] if offset.any() else []
    attrs: Attributes = {"size": blocks.size, "epilogue": ("bias",) * len(bias)}
    if summand is None:
        return call.replace(BLOCK_MATMUL.name, *operands, *bias, **attrs)
    sums = call.create(BLOCK_MATMUL.name, *operands, *bias, shape=call.y.shape, dtype=np.float32, **attrs)
    return call.replace("Add", sums, times(call, summand, beta))


@rule("Gather")
def table(graph: gs.Graph, node: gs.Node) -> bool:
    """Rows of such a table: of their elements, scales and zero points, which are dequantised."""
    blocks = _blocks(node.inputs[0], 1) if not node.domain and node.attrs["axis"] == 0 else None
    if blocks is None or blocks.steps.shape[1] % blocks.size:
        return False
    call = Call(graph, node)
    at = indices(call)

    def rows(values: np.ndarray, label: str, shape: Sequence[int]) -> gs.Tensor:
        return call.reshape(call.create("Gather", call.constant(values, label=label), at, axis=0, label=f"{label}, rows"), shape)

    outer = [*at.shape, blocks.scales.shape[1]]
    steps, scales = rows(blocks.steps, "table", [*outer, blocks.size]), rows(blocks.scales, "scales", [*outer, 1])
    zeros = None if blocks.zeros is None else rows(blocks.zeros.astype(np.int32), "zero points", [*outer, 1])
    zeros = call.constant(np.zeros([1] * len(steps.shape), np.int32), label="zero point") if zeros is None else zeros
    return call.finish(call.create("Dequantize", steps, scales, zeros, dtype=np.float32))


PASS = Pass("blocks", (product, table))
