"""What it takes to support several unrollings in one datapath: area, in gates (of two inputs, NAND).

Elements of the array are numbered with G outermost and OX innermost. Under an unrolling, an element takes its weight from a lane
of the weight memory's word, its input from a lane of the input memory's word, and adds into a lane of the output memory's word.

*Assignment*: where a set of unrollings gives an element n > 1 different lanes of an operand, it has a multiplexer of n inputs there; where
all agree, a wire. *Aggregation*: elements that share a result add up in a tree; the set has as many adders as the unrolling with most of
them, and where unrollings add up different elements, both inputs of shared adders are multiplexers. These are two of the three parts that
COAC counts (Colleman, Shi, Verhelst 2023). The third, a buffer that reorders results between layers, is not counted, nor are control and
wires.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deeploy.explore.hardware import Hardware
from deeploy.ir.loops import LOOPS

Array = np.ndarray

_NUMBERING = ("G", "K", "C", "FY", "FX", "OY", "OX")  # of elements, outermost first: neighbours share weights

_SUMMED = ("C", "FY", "FX")

# Areas of cells over that of NAND2_X1 (0.798 square micrometres) in the open cell library of FreePDK45: MUX2_X1, FA_X1, DFF_X1, AND2_X1.
MULTIPLEXER, ADDER, FLIP_FLOP, AND = 2.33, 5.33, 5.67, 1.33

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


def datapath_gates(hardware: Hardware) -> int:
    """Gates of the array's elements alone: a multiplier, an adder for a sum that is not complete, and the registers."""
    weight, x, partial = hardware.weight_bits, hardware.input_bits, hardware.partial_bits
    held = sum(words * bits for words, bits in zip(hardware.registers, (weight, x, partial), strict=True))
    return round(hardware.pes * (weight * (x - 1) * ADDER + weight * x * AND + partial * ADDER + held * FLIP_FLOP))


def overhead_gates(factors: Array, hardware: Hardware) -> int:
    """Gates that a set of unrollings takes beside the elements: int64[K, 7] factors."""
    stacked = np.stack([word_lanes(row) for row in factors])
    others = sum((np.all(stacked[: number + 1] != one, axis=0) for number, one in enumerate(stacked[1:])), np.zeros(stacked.shape[1:], int))
    assignment = int((others.sum(axis=1) * _count_bits(hardware)).sum())
    adders, trees = _count_adders(factors), _size_trees(factors)
    kinds = len({tree for tree, count in zip(trees, adders.tolist(), strict=True) if count})
    shared = int(np.sort(adders)[-2]) if len(adders) > 1 else 0
    aggregation = int(adders.max()) * ADDER + 2 * shared * max(0, kinds - 1) * MULTIPLEXER
    return round(assignment * MULTIPLEXER + aggregation * hardware.partial_bits)


def of_pairs(factors: Array, hardware: Hardware) -> Array:
    """float64[N, N]: the gates of every pair; of an array of more than ``MOST_ELEMENTS``, an estimate from a sample of so many."""
    size = int(np.prod(factors[0]))
    count = min(size, MOST_ELEMENTS)
    elements = None if count == size else np.random.default_rng(0).choice(size, count, replace=False).astype(np.int32)
    tables = [word_lanes(row, elements) for row in factors]
    total = np.zeros((len(factors), len(factors)))
    for operand, bits in enumerate(_count_bits(hardware).tolist()):
        kinds, which = np.unique(np.stack([table[operand] for table in tables]), axis=0, return_inverse=True)
        apart = np.stack([np.count_nonzero(kinds != kind, axis=1) for kind in kinds])
        total += bits * MULTIPLEXER * apart[np.ix_(which.ravel(), which.ravel())] * size / count
    adders = _count_adders(factors)
    _, kind = np.unique(np.array(_size_trees(factors)), axis=0, return_inverse=True)
    differ = (kind.reshape(-1, 1) != kind.reshape(1, -1)) * 2 * MULTIPLEXER
    one, two = adders[:, None], adders[None, :]
    return np.asarray(total + hardware.partial_bits * (np.maximum(one, two) * ADDER + np.minimum(one, two) * differ))


def _count_bits(hardware: Hardware) -> Array:
    return np.array([hardware.bits(operand) for operand in ("weight", "input", "output")])


def _count_adders(factors: Array) -> Array:
    """int64[N]: adders of the trees over elements that share a result."""
    summed = np.prod(factors[:, [LOOPS.index(loop) for loop in _SUMMED]], axis=1)
    return np.asarray(np.prod(factors, axis=1) * (summed - 1) // summed)


def _size_trees(factors: Array) -> list[tuple[int, int]]:
    """How many elements add up, and how far they are apart."""
    index = {loop: number for number, loop in enumerate(LOOPS)}
    return [(int(np.prod([row[index[loop]] for loop in _SUMMED])), int(row[index["OX"]] * row[index["OY"]])) for row in factors]


def overhead_front(values: Sequence[float], overheads: Sequence[float]) -> list[int]:
    """Indices of the points that no other beats in value at no more overhead, by ascending overhead."""
    best, front = np.inf, []
    for index in sorted(range(len(values)), key=lambda i: (overheads[i], values[i])):
        if values[index] < best:
            best = values[index]
            front.append(index)
    return front
