"""Who reads what: constants that are the same are one, and tensors lie where and as their readers want them.

A constant that is the transpose of another one is read as that: an embedding that is the output layer too is stored once.

A reordered tensor is read through strides, which is nothing to most kernels. Products want the elements of a row side by side, and no
strides express several heads as one row: that would be a copy. Their writer can put every head in its place in these rows instead. A
Concat of one part says so: containers lie densely, and their parts are written where they belong.

Inputs of the network lie in the memory around the engines' own and stay there: every operator that reads one fetches it. A mask, or the
turns of positions, are read in every layer of a decoder: small ones that several read are copied once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from deeploy.ir.nodes import compute
from deeploy.ir.rewriting import Match, Pass, Reading, Result, lowered, need, require
from deeploy.operators.views import MATERIALISE, VIEWS, Access


@lowered("MatMul")
def copy_transposed(m: Match) -> Result:
    """A product with the transpose of a constant that other nodes read."""
    weights = m.inputs[1]
    values = need(weights.data)
    require(values.ndim == 2, not m.attrs["trans_b"])
    alike = (t for t in m.constants() if t is not weights and t.shape == weights.shape[::-1] and t.dtype is weights.dtype)
    twin = need(next((tensor for tensor in alike if _is_equal(need(tensor.data), values.T)), None))
    view = compute("Reshape", twin, shape=twin.shape)  # which no kernel stores in an order of its own
    return m.replace("MatMul", m.x, view, *m.inputs[2:], **{**m.attrs, "trans_b": True})


def _is_equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two matrices hold the same: mostly their first rows differ."""
    return np.array_equal(one[:1], other[:1]) and np.array_equal(one, other)


TIES = Pass("ties", (copy_transposed,))


def _follow_views(shape: tuple[int, ...], steps: Iterable[Callable[[Access], Access | None] | None]) -> Access | None:
    """Where a tensor lies that views make of one that lies densely; None where strides do not express it."""
    access: Access | None = Access.dense(shape)
    for step in steps:
        access = None if access is None or step is None else step(access)
    return access


@lowered("MatMul")
def copy_packed(m: Match) -> Result:
    """Rows of a product that strides cannot make of a reordered tensor are written as they are read."""
    chain, source = m.views(m.x, is_shared=True)
    require(chain, not m.is_output(m.x), 0 not in m.x.shape, need(m.source(source)).op not in VIEWS)
    require(all(m.only_source(node.operands[0]) for node in chain))  # else others see the source on the way
    views = [VIEWS[node.op](node) for node in chain]
    read = _follow_views(source.shape, (view.parts[0][1] for view in views))
    written = need(_follow_views(m.x.shape, (view.inverse for view in reversed(views))))  # where the source has to lie
    require(read is None or not read.dense_axes(), written.dense_axes())
    return Reading(m.readers(m.x), m.x, compute("Concat", m.x, axis=0))


PACKING = Pass("packing", (copy_packed,))


READERS = 3  # from so many on, one copy costs less than their fetches
LARGEST = 4096  # bytes


@lowered("MatMul", "Add", "Sub", "Mul", "RequantAdd", "ScaledAdd", "Binary", "Where", "Rotate")
def copy_input(m: Match) -> Result:
    """A copy of an input, for all operators that compute with it as it is."""
    for tensor in m.inputs:
        if m.is_input(tensor) and 0 < tensor.elements * tensor.dtype.bytes <= LARGEST:
            readers = [reader for reader in m.readers(tensor) if reader.is_lowered and reader.op not in VIEWS]
            if len(readers) >= READERS:
                return Reading(readers, tensor, compute(MATERIALISE, tensor, label="staged"))
    return None


STAGING = Pass("staging", (copy_input,))


@lowered("MatMul", "Conv")
def multiplied(m: Match) -> Result:
    """Products of floats, and dense convolutions by constants, that a target adds by instructions that round once.

    Weights in 16 bits stay in kernels that read them.
    """
    require(m.y.dtype.is_float, not m.attrs.get("multiply_add"), not any(tensor.narrow for tensor in m.inputs))
    require(m.op == "MatMul" or (m.attrs["group"] == 1 and m.inputs[1].data is not None))
    return m.replace(m.op, *m.inputs, **{**m.attrs, "multiply_add": True})


MULTIPLY_ADD = Pass("multiply-add", (multiplied,))
