"""Attention as onnxruntime's optimisers and exporters write it: heads, masks, caches and rotations, taken apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from deeploy.frontend.expand.builder import Builder, Operand
from deeploy.frontend.expand.products import to_float

_LOWEST = float(np.finfo(np.float32).min)


def heads_of(x: Operand, count: int) -> Operand:
    """Rows [batch, rows, heads x columns] as [batch, heads, rows, columns]."""
    batch, rows, width = x.shape
    return x.reshape(batch, rows, count, width // count).transpose(0, 2, 1, 3)


def attend(b: Builder, q: Operand, k: Operand, v: Operand, bias: Operand | None = None, scale: float = 0, cap: float = 0) -> Operand:
    """softmax(q k^T scale + bias) v of heads [batch, heads, rows, columns], as rows [batch, rows, heads x columns]."""
    scores = (q @ k.swap_last()) * (scale or 1 / math.sqrt(q.shape[-1]))
    if cap:
        scores = (scores / cap).apply("Tanh") * cap
    if bias is not None:
        scores = scores + bias
    result = scores.apply("Softmax", axis=-1) @ v
    batch, heads, rows, width = result.shape
    return result.transpose(0, 2, 1, 3).reshape(batch, rows, heads * width)


def causal(rows: int, columns: int, window: int = 0) -> np.ndarray:
    """Whether a row [rows, columns] may see a column: those up to its own, which are the last ``rows``; no more than ``window``."""
    allowed = np.tril(np.ones((rows, columns), bool), columns - rows)
    return allowed & ~np.tril(np.ones((rows, columns), bool), columns - rows - window) if window > 0 else allowed


def _masked(b: Builder, mask: Operand | None, rows: int, columns: int, value: float) -> Operand | None:
    """What a mask of 1 and 0 adds to scores, in any of the forms that the operator takes: broadcast over [batch, heads, rows, columns]."""
    if mask is None:
        return None
    if mask.rank == 1:  # the number of columns of each batch, perhaps followed by the first one of each
        return _limited(b, mask, columns, value)
    shape = {2: (mask.shape[0], 1, 1, mask.shape[-1]), 3: (mask.shape[0], 1, *mask.shape[1:])}.get(mask.rank, mask.shape)
    wide = mask.reshape(*shape)
    if mask.rank == 4 and mask.shape[2:] != (rows, columns):
        wide = wide.slice(2, columns - rows, columns).slice(3, 0, columns)
    seen = wide if wide.dtype == np.bool_ else wide.greater(0)
    return b.where(seen, np.float32(0), np.float32(value))


def _limited(b: Builder, mask: Operand, columns: int, value: float) -> Operand:
    """A mask of as many ends as there are batches, or of ends and then beginnings."""
    batch = b.needed(0).shape[0]
    if mask.shape[0] not in (batch, 2 * batch):
        raise b.refused(f"has a mask of shape {list(mask.shape)}", "give it a mask of all elements")
    places = b.operand(np.arange(columns, dtype=np.int32))
    seen = places.less(mask.slice(0, 0, batch).cast(np.int32).reshape(batch, 1, 1, 1))
    if mask.shape[0] == 2 * batch:
        first = mask.slice(0, batch, 2 * batch).cast(np.int32).reshape(batch, 1, 1, 1)
        seen = seen.both(first.less(places + 1))
    return b.where(seen, np.float32(0), np.float32(value))


def _plus(a: Operand | None, b: Operand | None) -> Operand | None:
    return a if b is None else b if a is None else a + b


def _bias(b: Builder, mask: Operand | None, added: Operand | None, rows: int, columns: int, is_causal: bool) -> Operand | None:
    """What is added to scores: of a mask, of a tensor that the node is given, and below -10000 where columns are ahead of a row."""
    found = _plus(_masked(b, mask, rows, columns, b.number("mask_filter_value", -10000.0)), added)
    if not is_causal or rows == 1:
        return found
    allowed = b.operand(causal(rows, columns))
    return b.where(allowed, b.operand(np.float32(0)) if found is None else found, np.float32(_LOWEST))


def _unpacked_past(b: Builder, past: Operand | None, k: Operand, v: Operand) -> tuple[Operand, Operand, Operand | None]:
    """Keys and values behind those of a cache [2, batch, heads, rows, columns], and the new cache."""
    if past is not None:
        old = [past.slice(0, i, i + 1).reshape(*past.shape[1:]) for i in range(2)]
        k, v = (b.concat([before, new], 2) for before, new in zip(old, (k, v), strict=True))
    return k, v, b.concat([each.reshape(1, *each.shape) for each in (k, v)], 0) if b.wants(1) else None


def _self_attention(
    b: Builder, project: Callable[[int, int], Operand], sizes: Sequence[int], mask: int, past: int, added: int
) -> list[Operand | None]:
    """Attention and QAttention: ``project`` gives columns of the projected input; positions of the mask, the cache and what is added."""
    heads = b.integer("num_heads", 1)
    if b.integer("do_rotary", 0) or b.integer("past_present_share_buffer", 0):
        raise b.refused("rotates, or shares the buffer of its cache", "export the model with MultiHeadAttention or GroupQueryAttention")
    ends = np.cumsum(sizes)
    q, k, v = (heads_of(project(int(end - size), int(end)), heads) for size, end in zip(sizes, ends, strict=True))
    rows = q.shape[2]
    k, v, cache = _unpacked_past(b, b.input(past), k, v)
    bias = _bias(b, b.input(mask), b.input(added) if added else None, rows, k.shape[2], bool(b.integer("unidirectional", 0)))
    return [attend(b, q, k, v, bias, b.number("scale", 0)), cache]


def attention(b: Builder) -> list[Operand | None]:
    """Attention of com.microsoft: projections of one input by one matrix."""
    x, weights, offset = b.needed(0), b.needed(1), b.input(2)
    width = weights.shape[1]
    sizes = [int(n) for n in b.attributes.get("qkv_hidden_sizes", [width // 3] * 3)]

    def project(begin: int, end: int) -> Operand:
        part = x @ weights.slice(1, begin, end)
        return part if offset is None else part + offset.slice(0, begin, end)

    return _self_attention(b, project, sizes, 3, 4, 5)


def quantised_attention(b: Builder) -> list[Operand | None]:
    """QAttention: the projections are products of integers."""
    x, weights, offset, steps = (b.needed(position) for position in range(4))
    width = weights.shape[1]

    def project(begin: int, end: int) -> Operand:
        parts = (weights.slice(1, begin, end), *(_columns(b.input(p), begin, end, width) for p in (4, 7)))
        part, scale, zero = parts
        assert part is not None and scale is not None
        return to_float(b, x, part, steps * scale, b.input(6), zero) + offset.slice(0, begin, end)

    return _self_attention(b, project, [width // 3] * 3, 5, 8, 0)


def _columns(x: Operand | None, begin: int, end: int, width: int) -> Operand | None:
    return x.slice(0, begin, end) if x is not None and x.shape == (width,) and width > 1 else x


def multi_head_attention(b: Builder) -> list[Operand | None]:
    """MultiHeadAttention: of queries, keys and values, with a cache of keys and one of values."""
    heads, q, k, v = b.integer("num_heads", 1), b.needed(0), b.input(1), b.input(2)
    if k is None or v is None:
        raise b.refused("packs queries, keys or values", "export the model with an input for each")
    offset = b.input(3)
    if offset is not None:
        widths = [each.shape[2] * (each.shape[1] if each.rank == 4 else 1) for each in (q, k, v)]
        ends = np.cumsum(widths)
        parts = (offset.slice(0, int(end - width), int(end)) for width, end in zip(widths, ends, strict=True))
        q, k, v = (each + part if each.rank == 3 else each for each, part in zip((q, k, v), parts, strict=True))
    q, k, v = (heads_of(each, heads) if each.rank == 3 else each for each in (q, k, v))
    if b.input(8) is not None or b.input(9) is not None or b.wants(3):
        raise b.refused("shares the buffer of its cache, or hands out scores", "export the model with caches that grow")
    if (past := b.input(6)) is not None:
        k, v = b.concat([past, k], 2), b.concat([b.needed(7), v], 2)
    bias = _bias(b, b.input(4), b.input(5), q.shape[2], k.shape[2], bool(b.integer("unidirectional", 0)))
    return [attend(b, q, k, v, bias, b.number("scale", 0)), k, v]


def grouped_attention(b: Builder) -> list[Operand | None]:
    """GroupQueryAttention with a cache that grows, whose rows are all valid: groups of heads share keys and values."""
    heads, shared = b.integer("num_heads", 1), b.integer("kv_num_heads", 1)
    q, k, v = b.needed(0), b.input(1), b.input(2)
    if k is None or v is None:
        width = q.shape[2] // (heads + 2 * shared)
        q, k, v = q.split(2, [heads * width, shared * width, shared * width])
    q, k, v = heads_of(q, heads), heads_of(k, shared), heads_of(v, shared)
    past, old = b.input(3), b.input(4)
    before = 0 if past is None else past.shape[2]
    total = b.input(6)
    if total is not None and (total.value is None or int(total.value.item()) != before + q.shape[2]):
        told = "rows that are counted at run time" if total.value is None else f"{total.value.item()} rows"
        raise b.refused(f"has {before} rows of a cache, {q.shape[2]} new ones, and {told} in all", "export the model with caches that grow")
    if any(b.integer(name, 0) for name in ("smooth_softmax", "k_quant_type")) or b.input(11) is not None:
        raise b.refused("smoothes its softmax or has sinks", "export the model without them")
    if b.integer("do_rotary", 0):
        q, k = (_rotated(b, each, b.needed(7), b.needed(8), b.input(9), before, b.integer("rotary_interleaved", 0)) for each in (q, k))
    if past is not None and old is not None:
        k, v = b.concat([past, k], 2), b.concat([old, v], 2)
    batch, _, columns, width = k.shape
    wide = [
        each.reshape(batch, shared, 1, columns, width)
        .expand(batch, shared, heads // shared, columns, width)
        .reshape(batch, heads, columns, width)
        if heads > shared
        else each
        for each in (k, v)
    ]
    rows, bias = q.shape[2], b.input(10)
    allowed = causal(rows, columns, max(0, b.integer("local_window_size", -1)))
    if not allowed.all():
        bias = b.where(b.operand(allowed), b.operand(np.float32(0)) if bias is None else bias, np.float32(_LOWEST))
    return [attend(b, q, wide[0], wide[1], bias, b.number("scale", 0), b.number("softcap", 0)), k, v]


def _rotated(b: Builder, x: Operand, cosines: Operand, sines: Operand, places: Operand | None, first: int, interleaved: int) -> Operand:
    """Heads [batch, heads, rows, columns], rotated by their places: from ``first`` on, where none are given."""
    rows = x.shape[2]
    if places is None:
        tables = [table.slice(0, first, first + rows).reshape(1, 1, rows, table.shape[-1]) for table in (cosines, sines)]
    else:
        if places.size == 1 and rows != 1:
            places = (places.reshape(1) + b.operand(np.arange(rows))).reshape(1, rows)
        tables = [table.take(places.reshape(-1, rows), 0).reshape(-1, 1, rows, table.shape[-1]) for table in (cosines, sines)]
    width = 2 * cosines.shape[-1]
    turned = _turned(b, x if width == x.shape[-1] else x.slice(3, 0, width), tables, interleaved)
    return turned if width == x.shape[-1] else b.concat([turned, x.slice(3, width, x.shape[-1])], 3)


def _turned(b: Builder, x: Operand, tables: Sequence[Operand], interleaved: int) -> Operand:
    """x cos + turn(x) sin, where turn exchanges halves or neighbours and negates one of each pair."""
    half = x.shape[3] // 2
    if interleaved:
        even, odd = x.slice(3, 0, 2 * half, 2), x.slice(3, 1, 2 * half, 2)
        pairs = [part.reshape(*part.shape, 1) for part in (odd.apply("Neg"), even)]
        turned = b.concat(pairs, 4).reshape(*x.shape)
        cosines, sines = (b.concat([t.reshape(*t.shape, 1)] * 2, 4).reshape(*t.shape[:3], 2 * half) for t in tables)
    else:
        turned = b.concat([x.slice(3, half, 2 * half).apply("Neg"), x.slice(3, 0, half)], 3)
        cosines, sines = (b.concat([t, t], 3) for t in tables)
    return x * cosines + turned * sines


def rotation(b: Builder) -> Operand:
    """RotaryEmbedding of com.microsoft, of rows [batch, rows, width] or of heads."""
    x, places, cosines, sines = (b.needed(position) for position in range(4))
    if b.integer("is_packed_batching", 0) or b.number("scale", 1.0) != 1.0:
        raise b.refused("packs batches, or scales positions", "export the model without that")
    if x.rank == 4:
        return _rotated(b, x, cosines, sines, places, 0, b.integer("interleaved", 0))
    width = b.integer("rotary_embedding_dim", 0)
    heads = b.integer("num_heads", 0) if width else x.shape[2] // (2 * cosines.shape[-1])
    if not heads:
        raise b.refused("does not say how many heads it has", "set num_heads")
    turned = _rotated(b, heads_of(x, heads), cosines, sines, places, 0, b.integer("interleaved", 0))
    return turned.transpose(0, 2, 1, 3).reshape(*x.shape)


ATTENTION: Mapping[str, Callable[[Builder], Operand | list[Operand | None]]] = {
    "Attention": attention,
    "GroupQueryAttention": grouped_attention,
    "MultiHeadAttention": multi_head_attention,
    "QAttention": quantised_attention,
    "RotaryEmbedding": rotation,
}
