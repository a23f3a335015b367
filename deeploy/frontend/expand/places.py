"""Operators that read or write by index: gathered elements, scattered ones, the largest of rows, encodings with one hot element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deeploy.errors import shorten
from deeploy.frontend.expand.builder import Builder, Operand

_MOST_PAIRS = 1 << 22  # comparisons of all elements of rows with each other, up to which ranks are counted


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _flat(coordinates: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Places in a flat tensor of a shape, of coordinates that lie along the first axis."""
    result: np.ndarray = np.tensordot(np.array(_strides(shape), np.int64), coordinates, 1)
    return result


def _positive(b: Builder, indices: Operand, size: int) -> Operand:
    """Indices from 0 on, of which negative ones counted from the end."""
    if indices.value is not None:
        return b.operand(np.where(indices.value < 0, indices.value + size, indices.value).astype(np.int32))
    found = indices.cast(np.int32)
    return b.where(found.less(0), found + size, found)


def gather_elements(b: Builder) -> Operand:
    """GatherElements: the flat places of all elements, which one Gather takes."""
    x, indices = b.needed(0), b.needed(1)
    axis, strides = b.integer("axis", 0) % x.rank, _strides(x.shape)
    coordinates = np.indices(indices.shape)
    coordinates[axis] = 0
    places = _positive(b, indices, x.shape[axis]) * strides[axis] + _flat(coordinates, x.shape).astype(np.int32)
    return x.reshape(x.size).take(places)


def gather_nd(b: Builder) -> Operand:
    """GatherND: the flat places of all slices."""
    x, indices, batch = b.needed(0), b.needed(1), b.integer("batch_dims", 0)
    count = indices.shape[-1]
    strides = _strides(x.shape[: batch + count])
    begins = np.arange(math.prod(x.shape[:batch]), dtype=np.int32) * math.prod(x.shape[batch : batch + count])
    outer = indices.shape[:-1]
    places: Operand = b.operand(begins.reshape(*x.shape[:batch], *[1] * (len(outer) - batch)))
    for position in range(count):
        column = indices.slice(indices.rank - 1, position, position + 1).reshape(*outer)
        places = places + _positive(b, column, x.shape[batch + position]) * strides[batch + position]
    rows = x.reshape(math.prod(x.shape[: batch + count]), *x.shape[batch + count :])
    return rows.take(places.expand(*outer))


def _neutral(reduction: str, dtype: np.dtype[Any]) -> float:
    """What changes nothing where it is combined."""
    if reduction in ("add", "mul"):
        return float(reduction == "mul")
    if dtype.kind == "f":
        return -np.inf if reduction == "max" else np.inf
    return int(np.iinfo(dtype).min if reduction == "max" else np.iinfo(dtype).max)


_COMBINE = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}


def scattered(b: Builder, base: Operand, updates: Operand, places: np.ndarray, reduction: str) -> Operand:
    """Flat elements ``base`` with ``updates`` at constant places: the last one of each place, or all combined with what is there."""
    places = places.ravel()
    if places.size and not 0 <= places.min() <= places.max() < base.size:
        raise b.refused(f"writes to place {places.max()} of {base.size}", "correct the model")
    if reduction in ("none", ""):
        source = np.arange(base.size)
        source[places] = base.size + np.arange(places.size)
        return b.concat([base, updates.reshape(updates.size)], 0).take(source)
    if reduction not in _COMBINE:
        raise b.refused(f"reduces by {shorten(reduction, 40)}", "use add, mul, max or min")
    order = np.argsort(places, kind="stable")
    groups = places[order]
    turn = np.arange(groups.size) - np.searchsorted(groups, groups)  # 0 for the first update of a place, 1 for the second
    b.spend(2 * (int(turn.max(initial=-1)) + 1))
    neutral = b.operand(np.array([_neutral(reduction, base.dtype)]).astype(base.dtype))
    padded = b.concat([updates.reshape(updates.size), neutral], 0)
    for number in range(int(turn.max(initial=-1)) + 1):
        source = np.full(base.size, updates.size)
        source[groups[turn == number]] = order[turn == number]
        base = b.op(_COMBINE[reduction], base, padded.take(source))
    return base


def _fixed(b: Builder, position: int) -> np.ndarray:
    """Indices, which have to be constant where elements are written."""
    found = b.constant_input(position)
    assert found is not None
    return found.astype(np.int64)


def scatter_elements(b: Builder) -> Operand:
    """ScatterElements and Scatter with constant indices."""
    x, indices, updates = b.needed(0), _fixed(b, 1), b.needed(2)
    axis = b.integer("axis", 0) % x.rank
    coordinates = np.indices(indices.shape)
    coordinates[axis] = np.where(indices < 0, indices + x.shape[axis], indices)
    places = _flat(coordinates, x.shape)
    return scattered(b, x.reshape(x.size), updates, places, b.text("reduction", "none")).reshape(*x.shape)


def scatter_nd(b: Builder) -> Operand:
    """ScatterND with constant indices."""
    x, indices, updates = b.needed(0), _fixed(b, 1), b.needed(2)
    count = indices.shape[-1]
    inner, strides = math.prod(x.shape[count:]), _strides(x.shape)[:count]
    wrapped = np.where(indices < 0, indices + np.array(x.shape[:count]), indices)
    places = (wrapped * np.array(strides)).sum(axis=-1)[..., None] + np.arange(inner)
    return scattered(b, x.reshape(x.size), updates, places, b.text("reduction", "none")).reshape(*x.shape)


def tensor_scatter(b: Builder) -> Operand:
    """TensorScatter with constant places: rows of a cache are replaced, which may go on at its beginning."""
    x, updates = b.needed(0), b.needed(1)
    begins = b.constant_input(2)
    axis = b.integer("axis", -2) % x.rank
    coordinates = np.indices(updates.shape)
    first = np.zeros(x.shape[0], np.int64) if begins is None else begins.astype(np.int64)
    coordinates[axis] += first[coordinates[0]]
    if b.text("mode", "linear") == "circular":
        coordinates[axis] %= x.shape[axis]
    return scattered(b, x.reshape(x.size), updates, _flat(coordinates, x.shape), "none").reshape(*x.shape)


def one_hot(b: Builder) -> Operand:
    """OneHot: indices compared with all of the depth; what is outside of it has no hot element."""
    indices, depth, values = b.needed(0), b.constant_input(1), b.needed(2)
    size = int(np.asarray(depth).reshape(-1)[0])
    axis = b.integer("axis", -1) % (indices.rank + 1)
    shape = (*indices.shape[:axis], 1, *indices.shape[axis:])
    row = np.arange(size, dtype=np.int32).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    hot = _positive(b, indices, size).reshape(*shape).equal(row)
    off, on = (values.slice(0, i, i + 1).reshape(1) for i in range(2))
    return b.where(hot, on, off)


def top_k(b: Builder) -> list[Operand | None] | None:
    """TopK of short rows: the rank of every element is counted by comparing it with all others, the first of equal ones first."""
    x, count = b.needed(0), b.constant_input(1)
    axis = b.integer("axis", -1) % x.rank
    size, k = x.shape[axis], int(np.asarray(count).reshape(-1)[0]) if count is not None else b.integer("k", 1)
    if x.size * size > _MOST_PAIRS or x.dtype.kind not in "if":
        return None
    perm = [i for i in range(x.rank) if i != axis] + [axis]
    rows = x.transpose(*perm)
    other, own = rows.reshape(*rows.shape[:-1], 1, size), rows.reshape(*rows.shape, 1)
    is_before = other.greater(own) if b.integer("largest", 1) else other.less(own)
    earlier = b.operand(np.tril(np.ones((size, size), bool), -1))
    is_before = b.op("Or", is_before, other.equal(own).both(earlier))
    ranks = is_before.cast(np.float32).reduce("Sum", [rows.rank], keep=False)
    hot = ranks.reshape(*ranks.shape[:-1], 1, size).equal(np.arange(k, dtype=np.float32).reshape(k, 1))  # [..., k, size]
    places = hot.cast(np.int32).apply("ArgMax", axis=rows.rank, keepdims=0)
    chosen = b.op("GatherElements", rows, places, axis=rows.rank - 1)
    back = [perm.index(i) for i in range(x.rank)]
    return [chosen.transpose(*back), places.transpose(*back)]


def compress(b: Builder) -> Operand:
    """Compress by a constant condition."""
    x, condition = b.needed(0), b.constant_input(1)
    assert condition is not None
    axis = b.attributes.get("axis")
    rows = x.reshape(x.size) if axis is None else x
    return rows.take(np.flatnonzero(condition), 0 if axis is None else int(axis) % x.rank)


def reverse_sequence(b: Builder) -> Operand:
    """ReverseSequence of constant lengths."""
    x, lengths = b.needed(0), b.constant_input(1)
    assert lengths is not None
    time, batch = b.integer("time_axis", 0), b.integer("batch_axis", 1)
    coordinates = np.indices(x.shape)
    limit = lengths.astype(np.int64)[coordinates[batch]]
    coordinates[time] = np.where(coordinates[time] < limit, limit - 1 - coordinates[time], coordinates[time])
    return x.reshape(x.size).take(_flat(coordinates, x.shape))


def running_product(b: Builder) -> Operand:
    """CumProd: every slice along the axis times all before it."""
    x, given = b.needed(0), b.constant_input(1)
    axis = int(np.asarray(given).reshape(-1)[0]) % x.rank
    size = x.shape[axis]
    b.spend(2 * size)
    parts = [x.slice(axis, i, i + 1) for i in range(size)][:: -1 if b.integer("reverse", 0) else 1]
    ones = b.operand(np.ones(parts[0].shape, x.dtype))
    found, total = [], ones
    for part in parts:
        following = total * part
        found.append(total if b.integer("exclusive", 0) else following)
        total = following
    return b.concat(found[:: -1 if b.integer("reverse", 0) else 1], axis)


def vectorizer(b: Builder) -> Operand:
    """TfIdfVectorizer of integers: how often each sequence of the pool occurs, weighted as the mode says."""
    if "pool_int64s" not in b.attributes:
        raise b.refused("reads texts", "give it numbers")
    x, pool = b.needed(0), [int(n) for n in b.attributes["pool_int64s"]]
    rows = x.reshape(-1, x.shape[-1])
    begins = [*b.attributes["ngram_counts"], len(pool)]
    shortest, longest, skips = (
        b.integer(name, default) for name, default in (("min_gram_length", 1), ("max_gram_length", 1), ("max_skip_count", 0))
    )
    places = [int(n) for n in b.attributes["ngram_indexes"]]
    grams = [pool[i : i + n + 1] for n, (begin, end) in enumerate(itertools.pairwise(begins)) for i in range(begin, end, n + 1)]
    weights = [float(n) for n in b.attributes.get("weights", [1.0] * len(grams))]
    counts = np.zeros((len(grams), max(places) + 1), np.float32)
    columns: list[Operand] = []
    for number, gram in enumerate(grams):
        total = _occurrences(b, rows, gram, skips) if shortest <= len(gram) <= longest else None
        columns.append(b.zeros(rows.shape[0], 1) if total is None else total)
        counts[number, places[number]] = 1
    b.spend(len(columns))
    found = b.concat(columns, 1) @ counts
    mode, weight = b.text("mode", "TF"), np.zeros(counts.shape[1], np.float32)
    weight[places] = weights
    if mode != "TF":
        found = found.smaller(1) * weight if mode == "IDF" else found * weight
    return found.reshape(*x.shape[:-1], counts.shape[1])


def _occurrences(b: Builder, rows: Operand, gram: Sequence[int], skips: int) -> Operand | None:
    """How often a sequence occurs in every row [rows, 1], its elements one to ``skips`` + 1 places apart; a single one counts once."""
    length = rows.shape[1]
    found: Operand | None = None
    for apart in range(1, skips + 2 if len(gram) > 1 else 2):
        span = length - apart * (len(gram) - 1)
        if span <= 0:
            continue
        same: Operand | None = None
        for position, value in enumerate(gram):
            part = rows.slice(1, apart * position, apart * position + span).equal(value)
            same = part if same is None else same.both(part)
        assert same is not None
        count = same.cast(np.float32).reduce("Sum", [1])
        found = count if found is None else found + count
    return found


PLACES: Mapping[str, Callable[[Builder], Operand | list[Operand | None] | None]] = {
    "Compress": compress,
    "CumProd": running_product,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "OneHot": one_hot,
    "ReverseSequence": reverse_sequence,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "TensorScatter": tensor_scatter,
    "TfIdfVectorizer": vectorizer,
    "TopK": top_k,
}
