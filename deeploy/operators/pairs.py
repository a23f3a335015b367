"""Functions of two tensors of one type, and the choice between them (docs/integer-form.md)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from deeploy.graph.nodes import Node


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Towards zero; 0 for a divisor of 0."""
    safe = np.where(b == 0, 1, b)
    whole = a // safe
    return np.where(b == 0, 0, whole + ((whole < 0) & (whole * safe != a)))


FUNCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "max": np.maximum,
    "min": np.minimum,
    "pow": lambda a, b: np.power(a.astype(np.float64), b),
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_or_equal": np.less_equal,
    "greater": np.greater,
    "greater_or_equal": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _quotient,
}
ARITHMETIC = ("add", "sub", "mul", "div")  # of int64, which no accumulator holds
COMPARISONS = ("equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal", "and", "or")


def reference(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The function that ``node`` names, in the type of its output."""
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[node.attrs["function"]](a, b)).astype(node.outputs[0].dtype.numpy)


def select_reference(node: Node, condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a where the condition holds, else b."""
    return np.where(condition, a, b)


def expand_reference(node: Node, x: np.ndarray) -> np.ndarray:
    """x repeated along its axes of extent 1, up to the shape of the output."""
    return np.broadcast_to(x, node.outputs[0].shape)
