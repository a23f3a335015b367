"""Functions of one 8-bit tensor as tables of 256 entries, whatever operators they are made of.

SiLU as x * Sigmoid(x), GELU with Erf, HardSwish written out: quantised graphs have an operator for each step, and requantise in between.
The reference of every operator computes its step for all values of the tensor, so that the table gives the same bits.
"""

from __future__ import annotations

import numpy as np

from deeploy.frontend.lower.fuse import ACCUMULATING, BYTES
from deeploy.frontend.lower.layout import BROADCASTING
from deeploy.frontend.lower.lookup import look_up
from deeploy.frontend.lower.quant import every, narrow
from deeploy.graph import epilogue
from deeploy.graph.nodes import Node, Tensor, constant
from deeploy.graph.rewriting import Match, Pass, Result, lowered
from deeploy.graph.types import DType
from deeploy.operators import requantise
from deeploy.operators.table import OPERATORS

POINTWISE = (
    *(*BROADCASTING, "RequantShift", "RequantAdd", "Quantize", "Dequantize", "Cast"),
    *("Lookup", "Clip", "Unary", "IntegerFunction", "IntegerDiv"),
)
_LIMITED = ("RequantShift", "ScaledAdd", "Quantize")
_DEEPEST = 32  # operators in a row; GELU by tanh has nine

Values = tuple[Tensor, np.ndarray]  # the tensor that all depends on, and a result for each of its values


def applied(node: Node, *variables: np.ndarray) -> np.ndarray | None:
    """The results of an operator element by element, in their own type; None where its constants are not one number each, or a table.

    Args:
        variables: values of the inputs that are not constant, in order.
    """
    if node.op not in POINTWISE:
        return None
    given = iter(variables)
    constants = [None if tensor is None else tensor.data for tensor in node.inputs]
    if any(c is not None and c.size != 1 and (node.op, i) != ("Lookup", 1) for i, c in enumerate(constants)):
        return None
    arrays = [next(given) if c is None else c.reshape(-1 if c.size > 1 else ()) for c in constants]
    names = epilogue.operands(node.epilogue)
    body = len(arrays) - len(names)
    with np.errstate(all="ignore"):
        result = OPERATORS[node.op].reference(node, *arrays[:body])
        result = epilogue.apply(node, np.asarray(result), dict(zip(names, arrays[body:], strict=True)))
    return np.asarray(result.astype(node.outputs[0].dtype.numpy))


def _values(m: Match, tensor: Tensor, known: dict[Tensor, Values | None], depth: int = _DEEPEST) -> Values | None:
    """What a tensor is for all values of the first 8-bit tensor that it is a function of, element by element."""
    if tensor not in known:
        found = _computed(m, tensor, known, depth - 1) if depth else None
        if found is None and tensor.dtype in BYTES:
            found = tensor, every(tensor)
        known[tensor] = found
    return known[tensor]


def _computed(m: Match, tensor: Tensor, known: dict[Tensor, Values | None], depth: int) -> Values | None:
    node = m.source(tensor, *POINTWISE)
    variables = [] if node is None else node.variables
    if node is None or any(variable.shape != tensor.shape for variable in variables):
        return None
    found = [_values(m, variable, known, depth) for variable in variables]
    if None in found or len({each[0] for each in found if each is not None}) != 1:
        return None
    results = applied(node, *(each[1] for each in found if each is not None))
    return None if results is None or found[0] is None else (found[0][0], results)


@lowered(*POINTWISE)
def composed(m: Match) -> Result:
    """Several operators, or one that reads the same tensor twice; tables of a table that others read as well stay apart."""
    found = _values(m, m.y, {}) if m.y.dtype in BYTES else None
    if found is None or found[0] is m.y:
        return None
    x, results = found
    if m.node.variables == [x] or (m.op == "Lookup" and m.only_source(m.x) is None):
        return None
    return look_up(x, results)


@lowered("RequantShift", "Lookup")
def shares(m: Match) -> Result:
    """What becomes of every result of an integer softmax is a table of the softmax."""
    front = m.only_source(m.x, "Softmax")
    if front is None or len(front.inputs) != 2 or m.x.dtype not in BYTES or m.y.dtype not in BYTES:
        return None
    results = applied(m.node, every(m.x))
    return None if results is None else m.fuse(front, constant(results, label="results"), smallest=m.x.dtype.range[0])


@lowered("Lookup")
def limit(m: Match, x: Tensor, table: np.ndarray) -> Result:
    """A table that only limits the results of a requantisation: narrower limits of it."""
    front = m.only_source(x, *ACCUMULATING, *_LIMITED)
    if front is None or x.dtype not in BYTES or x.dtype is not m.y.dtype:
        return None
    if front.op not in _LIMITED and front.epilogue != ("requantise",):
        return None
    values = np.arange(front.attrs["low"], front.attrs["high"] + 1)
    results = table.astype(np.int64).ravel()[values - x.dtype.range[0]]
    if not results.size or not np.array_equal(results, np.clip(values, results.min(), results.max())):
        return None
    return m.fuse(front, low=int(results.min()), high=int(results.max()))


@lowered("RequantShift", "Lookup")
def joined(m: Match) -> Result:
    """A requantisation and a function of its results, a second one say, that one requantisation does for all that can occur."""
    front = m.only_source(m.x, *ACCUMULATING, "RequantShift") if m.x.dtype in BYTES and m.y.dtype in BYTES else None
    table = None if front is None else applied(m.node, every(m.x))
    if front is None or table is None or (front.op != "RequantShift" and front.epilogue != ("requantise",)):
        return None
    smallest, (low, high) = m.x.dtype.range[0], (front.attrs["low"], front.attrs["high"])
    found = requantise.with_table(front, table[low - smallest : high - smallest + 1])
    if found is None:
        return None
    constants = constant(found.mul, DType.INT32, "mul"), constant(narrow(found.add), label="add")
    return m.fuse(front, *constants, kept=-2, shift=found.shift, low=found.low, high=found.high)


PASS = Pass("tables", (composed, shares, limit, joined))
