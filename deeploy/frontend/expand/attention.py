"""Attention as onnxruntime's optimisers and exporters write it: heads, masks, caches and rotations, taken apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from deeploy.frontend.expand.expansion import Expansion, Refusal, Results, declares
from deeploy.frontend.expand.products import to_float
from deeploy.frontend.predicates import Operands, UnknownOperand, fits_mask, shape_is
from deeploy.ir.nodes import Tensor, concat, constant, where
from deeploy.ir.types import DType

_LOWEST = float(np.finfo(np.float32).min)


def _add_columns(node: Operands) -> tuple[int, ...]:
    """A bias for every column of weights."""
    if len(node.shape(1)) != 2:
        raise UnknownOperand
    return node.shape(1)[1:]


def _check_biases(node: Operands) -> tuple[int, ...]:
    """MultiHeadAttention: one for every column of queries, keys and values."""
    q, v = node.shape(0), node.shape(2)
    if len(q) != 3 or len(v) != 3:
        raise UnknownOperand
    return (2 * q[-1] + v[-1],)


def _check_batches(node: Operands) -> str | None:
    """Queries, keys and values are of the same batches."""
    counts = {node.shape(position)[0] for position in range(3) if node.has(position) and node.shape(position)}
    return f"has queries, keys and values of {' and '.join(map(str, sorted(counts)))} batches" if len(counts) > 1 else None


_ATTENTION = "num_heads: heads; do_rotary? past_present_share_buffer?: int; unidirectional?: flag; mask_filter_value? scale?: float"


def heads_of(x: Tensor, count: int) -> Tensor:
    """Rows [batch, rows, heads x columns] as [batch, heads, rows, columns]."""
    batch, rows, width = x.shape
    return x.reshape([batch, rows, count, width // count]).transpose([0, 2, 1, 3])


def build_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, scale: float = 0, cap: float = 0) -> Tensor:
    """softmax(q k^T scale + bias) v of heads [batch, heads, rows, columns], as rows [batch, rows, heads x columns]."""
    scores = (q @ k.swap_last()) * (scale or 1 / math.sqrt(q.shape[-1]))
    if cap:
        scores = (scores / cap).apply("Tanh") * cap
    if bias is not None:
        scores = scores + bias
    result = scores.apply("Softmax", axis=scores.rank - 1) @ v
    batch, heads, rows, width = result.shape
    return result.transpose([0, 2, 1, 3]).reshape([batch, rows, heads * width])


def build_causal_mask(rows: int, columns: int, window: int = 0) -> np.ndarray:
    """Whether a row [rows, columns] may see a column: those up to its own, which are the last ``rows``; no more than ``window``."""
    allowed = np.tril(np.ones((rows, columns), bool), columns - rows)
    return allowed & ~np.tril(np.ones((rows, columns), bool), columns - rows - window) if window > 0 else allowed


def _mask_scores(mask: Tensor, batch: int, rows: int, columns: int, value: float) -> Tensor:
    """What a mask of 1 and 0 adds to scores, in any of the forms that the operator takes: broadcast over [batch, heads, rows, columns]."""
    if mask.rank == 1:  # the number of columns of each batch, perhaps followed by the first one of each
        seen = _limit_columns(mask, batch, columns)
    else:
        shape = {2: (mask.shape[0], 1, 1, mask.shape[-1]), 3: (mask.shape[0], 1, *mask.shape[1:])}.get(mask.rank, mask.shape)
        seen = mask.reshape(shape)
        if mask.rank == 4 and mask.shape[2:] != (rows, columns):
            seen = seen.cut(2, columns - rows, columns).cut(3, 0, columns)
        seen = seen if seen.dtype is DType.BOOL else seen.apply("Greater", 0)
    return where(seen, 0.0, value)


def _limit_columns(mask: Tensor, batch: int, columns: int) -> Tensor:
    """Which columns a mask of as many ends as there are batches, or of ends and then beginnings, lets through."""
    if mask.shape[0] not in (batch, 2 * batch):
        raise Refusal(f"has a mask of shape {list(mask.shape)}", "give it a mask of all elements")
    places, (end, *begin) = (
        constant(np.arange(columns, dtype=np.int32)),
        mask.cast(DType.INT32).split(0, [batch] * (mask.shape[0] // batch)),
    )
    seen = places.apply("Less", end.reshape([batch, 1, 1, 1]))
    return seen.apply("And", begin[0].reshape([batch, 1, 1, 1]).apply("Less", places + 1)) if begin else seen


def _forbid_columns(allowed: np.ndarray, bias: Tensor | None) -> Tensor:
    """What is added to scores, and far below where columns are not allowed."""
    return where(constant(allowed), 0.0 if bias is None else bias, _LOWEST)


def _bias_scores(m: Expansion, mask: Tensor | None, added: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """What is added to scores: of a mask, of a tensor that the node is given, and far below where columns are ahead of a row."""
    (batch, _, rows, _), columns = q.shape, k.shape[2]
    masked = None if mask is None else _mask_scores(mask, batch, rows, columns, float(m.attrs.get("mask_filter_value", -10000.0)))
    bias = added if masked is None else masked if added is None else masked + added
    return _forbid_columns(build_causal_mask(rows, columns), bias) if m.attrs.get("unidirectional") and rows > 1 else bias


def _self_attention(
    m: Expansion,
    project: Callable[[int, int], Tensor],
    sizes: Sequence[int],
    mask: Tensor | None,
    past: Tensor | None,
    added: Tensor | None,
) -> Results:
    """Attention and QAttention: ``project`` gives columns of the projected input."""
    if m.attrs.get("do_rotary") or m.attrs.get("past_present_share_buffer"):
        raise Refusal("rotates, or shares the buffer of its cache", "export the model with MultiHeadAttention or GroupQueryAttention")
    ends, heads = np.cumsum(sizes), int(m.attrs["num_heads"])
    q, k, v = (heads_of(project(int(end - size), int(end)), heads) for size, end in zip(sizes, ends, strict=True))
    if past is not None:  # [2, batch, heads, rows, columns]
        k, v = (concat([past.cut(0, i, i + 1).reshape(past.shape[1:]), new], 2) for i, new in enumerate((k, v)))
    cache = concat([new.reshape([1, *new.shape]) for new in (k, v)], 0) if m.wants(1) else None
    return [build_attention(q, k, v, _bias_scores(m, mask, added, q, k), float(m.attrs.get("scale", 0))), cache]


@declares(
    "Attention",
    _ATTENTION,
    "rotary_embedding_dim?: natural",
    shape_is(2, _add_columns),
    fits_mask(3),
    inputs=(2, 7),
    rank=3,
)
def expand_attention(
    m: Expansion,
    x: Tensor,
    weights: Tensor,
    offset: Tensor | None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    added: Tensor | None = None,
    *,
    qkv_hidden_sizes: Sequence[int] = (),
) -> Results:
    """Projections of one input by one matrix."""

    def project(begin: int, end: int) -> Tensor:
        part = x @ weights.cut(1, begin, end)
        return part if offset is None else part + offset.cut(0, begin, end)

    return _self_attention(m, project, qkv_hidden_sizes or [weights.shape[1] // 3] * 3, mask, past, added)


@declares("QAttention", _ATTENTION, shape_is(2, _add_columns), fits_mask(5), rank=3)
def quantised_attention(
    m: Expansion,
    x: Tensor,
    weights: Tensor,
    offset: Tensor,
    step: Tensor,
    scales: Tensor,
    mask: Tensor | None = None,
    zero: Tensor | None = None,
    weight_zeros: Tensor | None = None,
    past: Tensor | None = None,
) -> Results:
    """The projections are products of integers."""
    width = weights.shape[1]

    def project(begin: int, end: int) -> Tensor:
        scale, weight_zero = (
            tensor.cut(0, begin, end) if tensor is not None and tensor.shape == (width,) and width > 1 else tensor
            for tensor in (scales, weight_zeros)
        )
        assert scale is not None
        return to_float(x, weights.cut(1, begin, end), step * scale, zero, weight_zero) + offset.cut(0, begin, end)

    return _self_attention(m, project, [width // 3] * 3, mask, past, None)


@declares(
    "MultiHeadAttention",
    "num_heads: heads; mask_filter_value?: float; unidirectional?: flag",
    shape_is(3, _check_biases),
    fits_mask(4),
    _check_batches,
    inputs=(1, 10),
    rank=3,
)
def multi_head_attention(
    m: Expansion,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    offset: Tensor | None = None,
    mask: Tensor | None = None,
    added: Tensor | None = None,
    past: Tensor | None = None,
    past_values: Tensor | None = None,
    *,
    num_heads: int = 1,
    scale: float = 0,
) -> Results:
    """Attention of queries, keys and values, with a cache of keys and one of values."""
    if k is None or v is None:
        raise Refusal("packs queries, keys or values", "export the model with an input for each")
    if offset is not None:
        widths = [each.shape[2] * (each.shape[1] if each.rank == 4 else 1) for each in (q, k, v)]
        q, k, v = (each + part if each.rank == 3 else each for each, part in zip((q, k, v), offset.split(0, widths), strict=True))
    q, k, v = (heads_of(each, num_heads) if each.rank == 3 else each for each in (q, k, v))
    if m.input(8) is not None or m.input(9) is not None or m.wants(3):
        raise Refusal("shares the buffer of its cache, or hands out scores", "export the model with caches that grow")
    if past is not None and past_values is not None:
        k, v = concat([past, k], 2), concat([past_values, v], 2)
    return [build_attention(q, k, v, _bias_scores(m, mask, added, q, k), scale), k, v]


@declares(
    "GroupQueryAttention",
    "num_heads kv_num_heads: heads; smooth_softmax?: int",
    shape_is(5, lambda node: node.shape(0)[:1]),
    shape_is(8, lambda node: node.shape(7)),
    inputs=(1, 14),
    rank=3,
)
def grouped_attention(
    m: Expansion,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    past: Tensor | None,
    past_values: Tensor | None,
    lengths: Tensor | None,
    total: Tensor | None = None,
    cosines: Tensor | None = None,
    sines: Tensor | None = None,
    places: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    num_heads: int = 1,
    kv_num_heads: int = 1,
    scale: float = 0,
    softcap: float = 0,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    local_window_size: int = -1,
) -> Results:
    """Attention whose groups of heads share keys and values, with a cache that grows and whose rows are all valid."""
    heads, shared = num_heads, kv_num_heads
    if k is None or v is None:
        width = q.shape[2] // (heads + 2 * shared)
        q, k, v = q.split(2, [heads * width, shared * width, shared * width])
    q, k, v = heads_of(q, heads), heads_of(k, shared), heads_of(v, shared)
    before = 0 if past is None else past.shape[2]
    if total is not None and (total.number is None or int(total.number) != before + q.shape[2]):
        told = "rows that are counted at run time" if total.number is None else f"{int(total.number)} rows"
        raise Refusal(f"has {before} rows of a cache, {q.shape[2]} new ones, and {told} in all", "export the model with caches that grow")
    if m.attrs.get("smooth_softmax") or m.attrs.get("k_quant_type") or m.input(11) is not None:
        raise Refusal("smoothes its softmax or has sinks", "export the model without them")
    if do_rotary and cosines is not None and sines is not None:
        q, k = (_rotate_heads(x, cosines, sines, places, before, rotary_interleaved) for x in (q, k))
    if past is not None and past_values is not None:
        k, v = concat([past, k], 2), concat([past_values, v], 2)
    batch, _, columns, width = k.shape
    group = [batch, shared, heads // shared, columns, width]
    keys, values = (
        x.reshape([batch, shared, 1, columns, width]).expand(group).reshape([batch, heads, columns, width]) if heads > shared else x
        for x in (k, v)
    )
    allowed = build_causal_mask(q.shape[2], columns, max(0, local_window_size))
    return [build_attention(q, keys, values, bias if allowed.all() else _forbid_columns(allowed, bias), scale, softcap), k, v]


def _rotate_heads(x: Tensor, cosines: Tensor, sines: Tensor, places: Tensor | None, first: int, interleaved: int) -> Tensor:
    """Heads [batch, heads, rows, columns], rotated by their places: from ``first`` on, where none are given."""
    rows = x.shape[2]
    if places is None:
        chosen = [table.cut(0, first, first + rows) for table in (cosines, sines)]
    else:
        if places.elements == 1 and rows != 1:
            places = places.reshape([1]) + np.arange(rows)
        chosen = [table.take(places.reshape([-1, rows])) for table in (cosines, sines)]
    tables = [table.reshape([-1, 1, rows, table.shape[-1]]) for table in chosen]
    width = 2 * cosines.shape[-1]
    turned = _turn_pairs(x.cut(3, 0, width), tables, interleaved)
    return turned if width == x.shape[-1] else concat([turned, x.cut(3, width, x.shape[-1])], 3)


def _turn_pairs(x: Tensor, tables: Sequence[Tensor], interleaved: int) -> Tensor:
    """x cos + turn(x) sin, where turn exchanges halves or neighbours and negates one of each pair."""
    half = x.shape[3] // 2
    if interleaved:
        even, odd = x.cut(3, 0, 2 * half, 2), x.cut(3, 1, 2 * half, 2)
        turned = concat([part.reshape([*part.shape, 1]) for part in (odd.apply("Neg"), even)], 4).reshape(x.shape)
        cosines, sines = (concat([t.reshape([*t.shape, 1])] * 2, 4).reshape([*t.shape[:3], 2 * half]) for t in tables)
    else:
        turned = concat([x.cut(3, half, 2 * half).apply("Neg"), x.cut(3, 0, half)], 3)
        cosines, sines = (concat([t, t], 3) for t in tables)
    return x * cosines + turned * sines


@declares("RotaryEmbedding", "interleaved?: flag; rotary_embedding_dim?: natural", rank=3)
def expand_rotation(
    x: Tensor,
    places: Tensor,
    cosines: Tensor,
    sines: Tensor,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    is_packed_batching: int = 0,
    scale: float = 1.0,
) -> Tensor:
    """Rows [batch, rows, width], or heads."""
    if is_packed_batching or scale != 1.0:
        raise Refusal("packs batches, or scales positions", "export the model without that")
    if x.rank == 4:
        return _rotate_heads(x, cosines, sines, places, 0, interleaved)
    heads = num_heads if rotary_embedding_dim else x.shape[2] // (2 * cosines.shape[-1])
    if not heads:
        raise Refusal("does not say how many heads it has", "set num_heads")
    turned = _rotate_heads(heads_of(x, heads), cosines, sines, places, 0, interleaved)
    return turned.transpose([0, 2, 1, 3]).reshape(x.shape)
