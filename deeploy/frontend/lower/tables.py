"""Functions of one 8-bit tensor as tables of 256 entries, whatever operators they are made of.

SiLU as x * Sigmoid(x), GELU with Erf, HardSwish written out: quantised graphs have an operator for each step, and requantise in between.
The reference of every operator computes its step for all values of the tensor, so that the table gives the same bits.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.fuse import ACCUMULATING, BYTES, stages
from deeploy.frontend.lower.layout import BROADCASTING
from deeploy.frontend.lower.quant import limits, narrow
from deeploy.frontend.lower.rewriter import Rewriter, lowered
from deeploy.graph import epilogue
from deeploy.graph.rewrite import Pass, constant
from deeploy.operators import requantise
from deeploy.operators.table import OPERATORS

POINTWISE = (
    *(*BROADCASTING, "RequantShift", "RequantAdd", "Quantize", "Dequantize", "Cast"),
    *("Lookup", "Clip", "Unary", "IntegerFunction", "IntegerDiv"),
)
_LIMITED = ("RequantShift", "ScaledAdd", "Quantize")
_DEEPEST = 32  # operators in a row; GELU by tanh has nine

Values = tuple[gs.Tensor, np.ndarray]  # the tensor that all depends on, and a result for each of its values


def applied(node: gs.Node, *variables: np.ndarray) -> np.ndarray | None:
    """The results of an operator element by element, in their own type; None where its constants are not one number each, or a table.

    Args:
        variables: values of the inputs that are not constant, in order.
    """
    if node.op not in POINTWISE:
        return None
    given = iter(variables)
    constants = [constant(t) for t in node.inputs]
    if any(c is not None and c.size != 1 and (node.op, i) != ("Lookup", 1) for i, c in enumerate(constants)):
        return None
    arrays = [next(given) if c is None else c.reshape(-1 if c.size > 1 else ()) for c in constants]
    seen, names = build.described(node), epilogue.operands(stages(node))
    body = len(arrays) - len(names)
    with np.errstate(all="ignore"):
        result = OPERATORS[node.op].reference(seen, *arrays[:body])
        result = epilogue.apply(seen, np.asarray(result), dict(zip(names, arrays[body:], strict=True)))
    return np.asarray(result.astype(node.outputs[0].dtype))


def every(tensor: gs.Tensor) -> np.ndarray:
    """All values of the type of an 8-bit tensor."""
    low, high = limits(tensor)
    return np.arange(low, high + 1).astype(tensor.dtype)


def _values(rw: Rewriter, tensor: gs.Tensor, known: dict[int, Values | None], depth: int = _DEEPEST) -> Values | None:
    """What a tensor is for all values of the first 8-bit tensor that it is a function of, element by element."""
    if id(tensor) not in known:
        found = _computed(rw, tensor, known, depth - 1) if depth else None
        if found is None and np.dtype(tensor.dtype) in BYTES:
            found = tensor, every(tensor)
        known[id(tensor)] = found
    return known[id(tensor)]


def _computed(rw: Rewriter, tensor: gs.Tensor, known: dict[int, Values | None], depth: int) -> Values | None:
    node = rw.source(tensor, *POINTWISE)
    variables = [] if node is None else [t for t in node.inputs if constant(t) is None]
    if node is None or any(list(t.shape) != list(tensor.shape) for t in variables):
        return None
    found = [_values(rw, t, known, depth) for t in variables]
    sources = {id(f[0]) for f in found if f is not None}
    if None in found or len(sources) != 1:
        return None
    results = applied(node, *(f[1] for f in found if f is not None))
    return None if results is None or found[0] is None else (found[0][0], results)


@lowered(*POINTWISE)
def composed(rw: Rewriter) -> bool:
    """Several operators, or one that reads the same tensor twice; tables of a table that others read as well stay apart."""
    found = _values(rw, rw.y, {}) if np.dtype(rw.y.dtype) in BYTES else None
    if found is None or found[0] is rw.y:
        return False
    x, results = found
    variables = [t for t in rw.node.inputs if constant(t) is None]
    is_single = len(variables) == 1 and variables[0] is x
    if is_single or (rw.op == "Lookup" and rw.only_source(rw.x) is None):
        return False
    if np.dtype(x.dtype) == results.dtype and np.array_equal(results, every(x)):
        return rw.replace("Reshape", x)
    return rw.replace("Lookup", x, rw.constant(results, label="table"))


@lowered("RequantShift", "Lookup")
def shares(rw: Rewriter) -> bool:
    """What becomes of every result of an integer softmax is a table of the softmax."""
    front = rw.only_source(rw.x, "Softmax")
    if front is None or len(front.inputs) != 2 or any(np.dtype(t.dtype) not in BYTES for t in (rw.x, rw.y)):
        return False
    results = applied(rw.node, every(rw.x))
    if results is None:
        return False
    front.inputs.append(rw.constant(results, label="results"))
    front.attrs["smallest"] = limits(rw.x)[0]
    return rw.give(front)


@lowered("Lookup")
def limit(rw: Rewriter) -> bool:
    """A table that only limits the results of a requantisation: narrower limits of it."""
    front, table = rw.only_source(rw.x, *ACCUMULATING, *_LIMITED), rw.value(1)
    is_limited = front is not None and (front.op in _LIMITED or stages(front) == ("requantise",))
    if (
        front is None
        or table is None
        or not is_limited
        or np.dtype(rw.x.dtype) not in BYTES
        or np.dtype(rw.x.dtype) != np.dtype(rw.y.dtype)
    ):
        return False
    values = np.arange(front.attrs["low"], front.attrs["high"] + 1)
    results = table.astype(np.int64).ravel()[values - np.iinfo(rw.x.dtype).min]
    if not results.size or not np.array_equal(results, np.clip(values, results.min(), results.max())):
        return False
    front.attrs |= {"low": int(results.min()), "high": int(results.max())}
    return rw.give(front)


@lowered("RequantShift", "Lookup")
def joined(rw: Rewriter) -> bool:
    """A requantisation and a function of its results, a second one say, that one requantisation does for all that can occur."""
    front = rw.only_source(rw.x, *ACCUMULATING, "RequantShift") if all(np.dtype(t.dtype) in BYTES for t in (rw.x, rw.y)) else None
    table = None if front is None else applied(rw.node, every(rw.x))
    if front is None or table is None or (front.op != "RequantShift" and stages(front) != ("requantise",)):
        return False
    smallest, (low, high) = limits(rw.x)[0], (front.attrs["low"], front.attrs["high"])
    found = requantise.with_table(build.described(front), table[low - smallest : high - smallest + 1])
    if found is None:
        return False
    front.inputs = [*front.inputs[:-2], rw.constant(found.mul, np.int32, "mul"), rw.constant(narrow(found.add), label="add")]
    front.attrs |= {"shift": found.shift, "low": found.low, "high": found.high}
    front.attrs.pop("even", None)
    return rw.give(front)


PASS = Pass("tables", (composed, shares, limit, joined))
