"""Operators that read or write by index: gathered elements, scattered ones, the largest of rows, encodings with one hot element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deeploy.errors import shorten
from deeploy.frontend.expand.expansion import Expansion, Refusal, Results, expands
from deeploy.ir.nodes import Tensor, concat, constant, inverse_order, where
from deeploy.ir.types import DType

_MOST_PAIRS = 1 << 22  # comparisons of all elements of rows with each other, up to which ranks are counted
_COMBINE = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}


def _flat_strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _flat_places(coordinates: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Places in a flat tensor of a shape, of coordinates that lie along the first axis."""
    result: np.ndarray = np.tensordot(np.array(_flat_strides(shape), np.int64), coordinates, 1)
    return result


def _positive_indices(indices: Tensor, size: int) -> Tensor:
    """Indices from 0 on, of which negative ones counted from the end."""
    indices = indices.cast(DType.INT32)
    return where(indices.apply("Less", 0), indices + size, indices)


@expands("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """The flat places of all elements, which one Gather takes."""
    axis, strides = axis % x.rank, _flat_strides(x.shape)
    coordinates = np.indices(indices.shape)
    coordinates[axis] = 0
    places = _positive_indices(indices, x.shape[axis]) * strides[axis] + _flat_places(coordinates, x.shape)
    return x.reshape([x.elements]).take(places)


@expands("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """The flat places of all slices."""
    batch, count, outer = batch_dims, indices.shape[-1], indices.shape[:-1]
    strides = _flat_strides(x.shape[: batch + count])
    begins = np.arange(math.prod(x.shape[:batch]), dtype=np.int32) * math.prod(x.shape[batch : batch + count])
    places = constant(begins.reshape(*x.shape[:batch], *[1] * (len(outer) - batch)))
    for position in range(count):
        column = indices.cut(indices.rank - 1, position, position + 1).reshape(outer)
        places = places + _positive_indices(column, x.shape[batch + position]) * strides[batch + position]
    rows = x.reshape([math.prod(x.shape[: batch + count]), *x.shape[batch + count :]])
    return rows.take(places.expand(outer))


def _neutral_value(reduction: str, dtype: np.dtype[Any]) -> float:
    """What changes nothing where it is combined."""
    if reduction in ("add", "mul"):
        return float(reduction == "mul")
    if dtype.kind == "f":
        return -np.inf if reduction == "max" else np.inf
    return int(np.iinfo(dtype).min if reduction == "max" else np.iinfo(dtype).max)


def scatter_updates(m: Expansion, x: Tensor, updates: Tensor, places: np.ndarray, reduction: str = "none") -> Tensor:
    """A tensor with ``updates`` at constant places of its flat elements: the last one of each place, or all combined with what is there."""
    base, places, updates = x.reshape([x.elements]), places.ravel(), updates.reshape([updates.elements])
    if places.size and not 0 <= places.min() <= places.max() < x.elements:
        raise Refusal(f"writes to place {places.max()} of {x.elements}", "correct the model")
    if reduction in ("none", ""):
        source = np.arange(x.elements)
        source[places] = x.elements + np.arange(places.size)
        return concat([base, updates], 0).take(source).reshape(x.shape)
    if reduction not in _COMBINE:
        raise Refusal(f"reduces by {shorten(reduction, 40)}", "use add, mul, max or min")
    order = np.argsort(places, kind="stable")
    groups = places[order]
    turn = np.arange(groups.size) - np.searchsorted(groups, groups)  # 0 for the first update of a place, 1 for the second
    turns = int(turn.max(initial=-1)) + 1
    m.spend(2 * turns)
    dtype = x.dtype.numpy
    padded = concat([updates, constant(np.array([_neutral_value(reduction, dtype)]).astype(dtype))], 0)
    for number in range(turns):
        source = np.full(x.elements, updates.elements)
        source[groups[turn == number]] = order[turn == number]
        base = base.apply(_COMBINE[reduction], padded.take(source))
    return base.reshape(x.shape)


@expands("ScatterElements", "Scatter")
def scatter_elements(m: Expansion, x: Tensor, indices: np.ndarray, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    """Constant indices."""
    axis, indices = axis % x.rank, indices.astype(np.int64)
    coordinates = np.indices(indices.shape)
    coordinates[axis] = np.where(indices < 0, indices + x.shape[axis], indices)
    return scatter_updates(m, x, updates, _flat_places(coordinates, x.shape), reduction)


@expands("ScatterND")
def scatter_nd(m: Expansion, x: Tensor, indices: np.ndarray, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """Constant indices."""
    count, indices = indices.shape[-1], indices.astype(np.int64)
    inner, strides = math.prod(x.shape[count:]), _flat_strides(x.shape)[:count]
    wrapped = np.where(indices < 0, indices + np.array(x.shape[:count]), indices)
    return scatter_updates(m, x, updates, (wrapped * np.array(strides)).sum(axis=-1)[..., None] + np.arange(inner), reduction)


@expands("TensorScatter")
def tensor_scatter(
    m: Expansion, x: Tensor, updates: Tensor, begins: np.ndarray | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Constant places: rows of a cache are replaced, which may go on at its beginning."""
    axis, coordinates = axis % x.rank, np.indices(updates.shape)
    first = np.zeros(x.shape[0], np.int64) if begins is None else begins.astype(np.int64)
    coordinates[axis] += first[coordinates[0]]
    if mode == "circular":
        coordinates[axis] %= x.shape[axis]
    return scatter_updates(m, x, updates, _flat_places(coordinates, x.shape))


@expands("OneHot")
def one_hot(indices: Tensor, depth: np.ndarray, values: Tensor, *, axis: int = -1) -> Tensor:
    """Indices compared with all of the depth; what is outside of it has no hot element."""
    size, axis = int(depth.reshape(-1)[0]), axis % (indices.rank + 1)
    shape = (*indices.shape[:axis], 1, *indices.shape[axis:])
    row = np.arange(size, dtype=np.int32).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    off, on = (part.reshape([1]) for part in values.split(0, [1, 1]))
    return where(_positive_indices(indices, size).reshape(shape).apply("Equal", row), on, off)


@expands("TopK")
def top_k(m: Expansion, x: Tensor, count: np.ndarray | None = None, *, axis: int = -1, k: int = 1, largest: int = 1) -> Results:
    """Short rows: the rank of every element is counted by comparing it with all others, the first of equal ones first."""
    axis = axis % x.rank
    size, k = x.shape[axis], k if count is None else int(count.reshape(-1)[0])
    if x.elements * size > _MOST_PAIRS or x.dtype.numpy.kind not in "if":
        return None
    perm = [i for i in range(x.rank) if i != axis] + [axis]
    rows = x.transpose(perm)
    other, own = rows.reshape([*rows.shape[:-1], 1, size]), rows.reshape([*rows.shape, 1])
    earlier = constant(np.tril(np.ones((size, size), bool), -1))
    is_before = other.apply("Greater" if largest else "Less", own).apply("Or", other.apply("Equal", own).apply("And", earlier))
    ranks = is_before.cast(DType.FLOAT32).reduce("Sum", rows.rank, keepdims=0)
    hot = ranks.reshape([*ranks.shape[:-1], 1, size]).apply("Equal", np.arange(k, dtype=np.float32).reshape(k, 1))  # [..., k, size]
    places = m.compute("ArgMax", hot.cast(DType.INT32), axis=rows.rank, keepdims=0)
    chosen = gather_elements(rows, places, axis=rows.rank - 1)
    return [chosen.transpose(inverse_order(perm)), places.transpose(inverse_order(perm))]


@expands("Compress")
def expand_compress(x: Tensor, condition: np.ndarray, *, axis: int | None = None) -> Tensor:
    """A constant condition."""
    rows = x.reshape([x.elements]) if axis is None else x
    return rows.take(np.flatnonzero(condition), 0 if axis is None else axis % x.rank)


@expands("ReverseSequence")
def reverse_sequence(x: Tensor, lengths: np.ndarray, *, time_axis: int = 0, batch_axis: int = 1) -> Tensor:
    """Constant lengths."""
    coordinates = np.indices(x.shape)
    limit = lengths.astype(np.int64)[coordinates[batch_axis]]
    coordinates[time_axis] = np.where(coordinates[time_axis] < limit, limit - 1 - coordinates[time_axis], coordinates[time_axis])
    return x.reshape([x.elements]).take(_flat_places(coordinates, x.shape))


@expands("CumProd")
def running_product(m: Expansion, x: Tensor, along: np.ndarray, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Every slice along the axis times all before it."""
    axis = int(along.reshape(-1)[0]) % x.rank
    size = x.shape[axis]
    m.spend(2 * size)
    parts = x.split(axis, [1] * size)[:: -1 if reverse else 1]
    total, products = constant(np.ones(parts[0].shape, x.dtype.numpy)), list[Tensor]()
    for part in parts:
        following = total * part
        products.append(total if exclusive else following)
        total = following
    return concat(products[:: -1 if reverse else 1], axis)


@expands("TfIdfVectorizer")
def expand_vectorizer(
    m: Expansion,
    x: Tensor,
    *,
    pool_int64s: Sequence[int] = (),
    ngram_counts: Sequence[int] = (),
    ngram_indexes: Sequence[int] = (),
    weights: Sequence[float] = (),
    min_gram_length: int = 1,
    max_gram_length: int = 1,
    max_skip_count: int = 0,
    mode: str = "TF",
) -> Tensor:
    """How often each sequence of integers of the pool occurs, weighted as the mode says."""
    if "pool_int64s" not in m.attrs:
        raise Refusal("reads texts", "give it numbers")
    rows, pool = x.reshape([-1, x.shape[-1]]), pool_int64s
    begins = itertools.pairwise([*ngram_counts, len(pool)])
    grams = [pool[i : i + n + 1] for n, (begin, end) in enumerate(begins) for i in range(begin, end, n + 1)]
    counts = np.zeros((len(grams), max(ngram_indexes) + 1), np.float32)
    columns: list[Tensor] = []
    for number, gram in enumerate(grams):
        total = _count_occurrences(rows, gram, max_skip_count) if min_gram_length <= len(gram) <= max_gram_length else None
        columns.append(constant(np.zeros((rows.shape[0], 1), np.float32)) if total is None else total)
        counts[number, ngram_indexes[number]] = 1
    m.spend(len(columns))
    result = concat(columns, 1) @ counts
    weight = np.zeros(counts.shape[1], np.float32)
    weight[list(ngram_indexes)] = weights or [1.0] * len(grams)
    if mode != "TF":
        result = result.apply("Min", 1) * weight if mode == "IDF" else result * weight
    return result.reshape([*x.shape[:-1], counts.shape[1]])


def _count_occurrences(rows: Tensor, gram: Sequence[int], skips: int) -> Tensor | None:
    """How often a sequence occurs in every row [rows, 1], its elements one to ``skips`` + 1 places apart; a single one counts once."""
    total: Tensor | None = None
    for apart in range(1, skips + 2 if len(gram) > 1 else 2):
        span = rows.shape[1] - apart * (len(gram) - 1)
        if span <= 0:
            continue
        same: Tensor | None = None
        for position, value in enumerate(gram):
            part = rows.cut(1, apart * position, apart * position + span).apply("Equal", value)
            same = part if same is None else same.apply("And", part)
        assert same is not None
        count = same.cast(DType.FLOAT32).reduce("Sum", 1)
        total = count if total is None else total + count
    return total
