"""Functions of one 8-bit tensor as tables of 256 entries, whatever operators they are made of.

SiLU as x * Sigmoid(x), GELU with Erf, HardSwish written out: quantised graphs have an operator for each step, and requantise in between.
The reference of every operator computes its step for all values of the tensor, so that the table gives the same bits.
"""

from __future__ import annotations

import numpy as np

from deeploy.frontend.lower.fuse import ACCUMULATING
from deeploy.frontend.lower.layout import BROADCASTING, SINGLE
from deeploy.frontend.lower.lookup import look_up
from deeploy.frontend.lower.quant import BYTES, every_value, requantisation_operands
from deeploy.ir import epilogue
from deeploy.ir.nodes import Node, Tensor, constant
from deeploy.ir.rewriting import Match, Pass, Result, lowered, need, require
from deeploy.operators import requantise
from deeploy.operators.table import OPERATORS

POINTWISE = (*BROADCASTING, *SINGLE, "Quantize", "RequantShift", "RequantAdd", "IntegerFunction", "IntegerDiv")
_LIMITED = ("RequantShift", "ScaledAdd", "Quantize")
_DEEPEST = 32  # operators in a row; GELU by tanh has nine

Values = tuple[Tensor, np.ndarray]  # the tensor that all depends on, and a result for each of its values


def apply_operator(node: Node, *variables: np.ndarray) -> np.ndarray | None:
    """The results of an operator element by element, in their own type; None where its constants are not one number each, or a table.

    Args:
        variables: values of the inputs that are not constant, in order.
    """
    constants, given = [None if tensor is None else tensor.data for tensor in node.inputs], iter(variables)
    is_known = all(c is None or c.size == 1 or (node.op, i) == ("Lookup", 1) for i, c in enumerate(constants))
    if node.op not in POINTWISE or not is_known:
        return None
    arrays = [next(given) if c is None else c.reshape(-1 if c.size > 1 else ()) for c in constants]
    names = epilogue.stage_operands(node.epilogue)
    body = len(arrays) - len(names)
    with np.errstate(all="ignore"):
        result = OPERATORS[node.op].reference(node, *arrays[:body])
        result = epilogue.apply_stages(node, np.asarray(result), dict(zip(names, arrays[body:], strict=True)))
    return np.asarray(result.astype(node.outputs[0].dtype.numpy))


def _tabulate_tensor(m: Match, tensor: Tensor, known: dict[Tensor, Values | None], depth: int = _DEEPEST) -> Values | None:
    """What a tensor is for all values of the first 8-bit tensor that it is a function of, element by element."""
    if tensor not in known:
        values = _compute_table(m, tensor, known, depth - 1) if depth else None
        known[tensor] = (tensor, every_value(tensor)) if values is None and tensor.dtype in BYTES else values
    return known[tensor]


def _compute_table(m: Match, tensor: Tensor, known: dict[Tensor, Values | None], depth: int) -> Values | None:
    node = m.source(tensor, *POINTWISE)
    if node is None or any(variable.shape != tensor.shape for variable in node.variables):
        return None
    parts = [_tabulate_tensor(m, variable, known, depth) for variable in node.variables]
    sources, arrays = zip(*(part or (None, np.zeros(0)) for part in parts), strict=True) if parts else ((), ())
    if len(set(sources)) != 1 or sources[0] is None:
        return None
    results = apply_operator(node, *arrays)
    return None if results is None else (sources[0], results)


@lowered(*POINTWISE)
def compose_tables(m: Match) -> Result:
    """Several operators, or one that reads the same tensor twice; tables of a table that others read as well stay apart."""
    require(m.y.dtype in BYTES)
    x, results = need(_tabulate_tensor(m, m.y, {}))
    require(x is not m.y, m.node.variables != [x], m.op != "Lookup" or m.only_source(m.x))
    return look_up(x, results)


@lowered("RequantShift", "Lookup")
def compose_softmax_table(m: Match) -> Result:
    """What becomes of every result of an integer softmax is a table of the softmax."""
    front = need(m.only_source(m.x, "Softmax"))
    require(len(front.inputs) == 2, m.x.dtype in BYTES, m.y.dtype in BYTES)
    return m.fuse(front, constant(need(apply_operator(m.node, every_value(m.x))), label="results"), smallest=m.x.dtype.range[0])


def _is_requantised(front: Node, *ops: str) -> bool:
    """Whether a node has one of some operators, or a requantisation behind its body."""
    return front.op in ops or front.epilogue == ("requantise",)


@lowered("Lookup")
def fold_limits(m: Match, x: Tensor, table: np.ndarray) -> Result:
    """A table that only limits the results of a requantisation: narrower limits of it."""
    front = need(m.only_source(x, *ACCUMULATING, *_LIMITED))
    require(x.dtype in BYTES, x.dtype is m.y.dtype, _is_requantised(front, *_LIMITED))
    values = np.arange(front.attrs["low"], front.attrs["high"] + 1)
    results = table.astype(np.int64).ravel()[values - x.dtype.range[0]]
    require(results.size and np.array_equal(results, np.clip(values, results.min(), results.max())))
    return m.fuse(front, low=int(results.min()), high=int(results.max()))


@lowered("RequantShift", "Lookup")
def fold_second_table(m: Match) -> Result:
    """A requantisation and a function of its results, a second one say, that one requantisation does for all that can occur."""
    require(m.x.dtype in BYTES, m.y.dtype in BYTES)
    front, (smallest, _) = need(m.only_source(m.x, *ACCUMULATING, "RequantShift")), m.x.dtype.range
    require(_is_requantised(front, "RequantShift"))
    results = need(apply_operator(m.node, every_value(m.x)))[front.attrs["low"] - smallest : front.attrs["high"] - smallest + 1]
    parameters = need(requantise.fold_table(front, results))
    return m.fuse(
        front,
        *requantisation_operands(parameters.mul, parameters.add),
        leading=-2,
        shift=parameters.shift,
        low=parameters.low,
        high=parameters.high,
    )


PASS = Pass("tables", (compose_tables, compose_softmax_table, fold_limits, fold_second_table))
