"""What it takes to support several unrollings in one datapath: multiplexer inputs, as a proxy.

Elements of the array are numbered with G outermost and OX innermost. Under an unrolling, an element takes its weight from a lane
of the weight memory's word, its input from a lane of the input memory's word, and adds into a lane of the output memory's word.
Where a set of unrollings gives an element n > 1 different lanes of an operand, it needs a multiplexer of n inputs there; where
all agree, a wire. The proxy counts these inputs over all elements and operands. Adder trees, control and wire length are not in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deeploy.ir.loops import LOOPS

Array = np.ndarray

_NUMBERING = ("G", "K", "C", "FY", "FX", "OY", "OX")  # of elements, outermost first: neighbours share weights

MOST_ELEMENTS = 8192  # of an array whose lanes are all compared, pair by pair


def word_lanes(factors: Array, elements: Array | None = None) -> Array:
    """int32[3, PEs]: the lane of the weights', inputs' and outputs' word that every element is wired to, or some ``elements`` are."""
    at, rest = {}, np.arange(int(np.prod(factors)), dtype=np.int32) if elements is None else elements
    unroll = dict(zip(LOOPS, (int(u) for u in factors), strict=True))
    for loop in reversed(_NUMBERING):
        rest, at[loop] = np.divmod(rest, unroll[loop]) if unroll[loop] > 1 else (rest, np.zeros((), np.int32))
    rows, columns = (unroll["O" + d] + unroll["F" + d] - 1 for d in "YX")

    def index(*digits: tuple[Array, int]) -> Array:
        total = np.zeros(len(rest), np.int32)
        for digit, base in digits:
            total = total * base + digit
        return total

    of = {loop: (at[loop], unroll[loop]) for loop in LOOPS}
    weights = index(of["G"], of["K"], of["C"], of["FY"], of["FX"])
    inputs = index(of["G"], of["C"], (at["OY"] + at["FY"], rows), (at["OX"] + at["FX"], columns))
    outputs = index(of["G"], of["K"], of["OY"], of["OX"])
    return np.stack([weights, inputs, outputs])


def multiplexer_inputs(factors: Array) -> int:
    """The proxy for a set of unrollings: int64[K, 7] factors."""
    stacked = np.stack([word_lanes(row) for row in factors])
    different = 1 + sum(np.all(stacked[: number + 1] != one, axis=0) for number, one in enumerate(stacked[1:]))
    return int(np.sum(np.where(different > 1, different, 0)))


def of_pairs(factors: Array) -> Array:
    """int64[N, N]: the proxy of every pair; of an array of more than ``MOST_ELEMENTS``, an estimate from a sample of so many."""
    size = int(np.prod(factors[0]))
    count = min(size, MOST_ELEMENTS)
    elements = None if count == size else np.random.default_rng(0).choice(size, count, replace=False).astype(np.int32)
    tables = [word_lanes(row, elements) for row in factors]
    total = np.zeros((len(factors), len(factors)), np.int64)
    for operand in range(3):
        kinds, which = np.unique(np.stack([table[operand] for table in tables]), axis=0, return_inverse=True)
        apart = np.stack([np.count_nonzero(kinds != kind, axis=1) for kind in kinds])
        total += 2 * apart[np.ix_(which.ravel(), which.ravel())]
    return total * size // count


def overhead_front(values: Sequence[float], overheads: Sequence[int]) -> list[int]:
    """Indices of the points that no other beats in value at no more overhead, by ascending overhead."""
    best, kept = np.inf, []
    for index in sorted(range(len(values)), key=lambda i: (overheads[i], values[i])):
        if values[index] < best:
            best = values[index]
            kept.append(index)
    return kept
