"""What transformers are made of, as exporters write it: norms, activations, masks, rotations, attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.frontend.lower.nets import CONSTRUCTS, Construct
from tests.models import Net

OPSETS: dict[str, int] = {}  # of constructs with operators that are newer than the others'


def _add(name: str, construct: Construct, opset: int | None = None) -> None:
    assert name not in CONSTRUCTS, name
    CONSTRUCTS[name] = construct
    if opset is not None:
        OPSETS[name] = opset


def dense(n: Net, x: str, inputs: int, outputs: int) -> str:
    return str(n.MatMul(x, n.c((n.random.standard_normal((inputs, outputs)) / math.sqrt(inputs)).astype(np.float32))))


# ---- norms


def centred(n: Net, x: str, axes: list[int]) -> str:
    return str(n.Sub(x, n.ReduceMean(x, axes=axes)))


def layer_norm(n: Net, x: str, columns: int, form: str = "torch") -> str:
    """A layer norm in one of the spellings of exporters."""
    d = centred(n, x, [-1])
    square = n.Mul(d, d) if form == "reciprocal" else n.Pow(d, n.c(2.0))
    deviation = n.Sqrt(n.Add(n.ReduceMean(square, axes=[-1]), n.c(1e-5)))
    if form == "twice":  # the difference is computed again
        y = n.Div(centred(n, x, [-1]), deviation)
    elif form == "reciprocal":
        y = n.Mul(n.Reciprocal(deviation), d)
    else:
        y = n.Div(d, deviation)
    return str(n.Add(n.Mul(y, n.w(columns)), n.w(columns)))


def rms_norm(n: Net, x: str, columns: int, form: str = "torch") -> str:
    mean = n.Add(n.ReduceMean(n.Pow(x, n.c(2.0)), axes=[-1]), n.c(1e-6))
    if form == "power":
        y = n.Mul(x, n.Pow(mean, n.c(-0.5)))
    elif form == "divided":
        y = n.Mul(x, n.Div(n.c(1.0), n.Sqrt(mean)))
    else:
        y = n.Mul(x, n.Reciprocal(n.Sqrt(mean)))
    return str(n.Mul(n.w(columns), y))


def _channels_first(n: Net) -> str:
    """As in image networks: over channels, which come before the pixels."""
    x = n.x(2, 12, 5, 4)
    d = centred(n, x, [1])
    y = n.Div(d, n.Sqrt(n.Add(n.ReduceMean(n.Mul(d, d), axes=[1]), n.c(1e-6))))
    return str(n.Add(n.Mul(n.w(12, 1, 1), y), n.w(12, 1, 1)))


_add("layer norm", lambda n: n.LayerNormalization(n.x(2, 6, 40), n.w(40), n.w(40), epsilon=1e-5))
_add("layer norm no bias", lambda n: n.LayerNormalization(n.x(2, 6, 40), n.w(40)))
_add("layer norm axis 1", lambda n: n.LayerNormalization(n.x(3, 6, 10), n.w(6, 10), n.w(6, 10), axis=1))
_add("layer norm long", lambda n: n.LayerNormalization(n.x(3, 700), n.w(700), n.w(700)))
_add("layer norm behind a transpose", lambda n: n.LayerNormalization(n.Transpose(n.x(2, 24, 10), perm=[0, 2, 1]), n.w(24), n.w(24)))
for _form in ("torch", "twice", "reciprocal"):
    _add(f"layer norm spelled, {_form}", lambda n, f=_form: layer_norm(n, n.x(2, 6, 40), 40, f))
_add("layer norm channels first", _channels_first)
for _form in ("torch", "power", "divided"):
    _add(f"rms norm spelled, {_form}", lambda n, f=_form: rms_norm(n, n.x(2, 6, 40), 40, f))
_add("rms norm", lambda n: n.RMSNormalization(n.x(2, 6, 40), n.w(40), epsilon=1e-6), opset=23)

# ---- activations


def _gelu_erf(n: Net, order: int) -> str:
    x = dense(n, n.x(4, 16), 16, 24)
    e = n.Add(n.Erf(n.Div(x, n.c(math.sqrt(2)))), n.c(1.0))
    return str([n.Mul(n.Mul(x, e), n.c(0.5)), n.Mul(n.Mul(n.c(0.5), x), e), n.Mul(x, n.Mul(n.c(0.5), e))][order])


def _gelu_tanh(n: Net) -> str:
    x = dense(n, n.x(4, 16), 16, 24)
    inner = n.Mul(n.Add(x, n.Mul(n.Pow(x, n.c(3.0)), n.c(0.044715))), n.c(math.sqrt(2 / math.pi)))
    return str(n.Mul(n.Mul(n.c(0.5), x), n.Add(n.c(1.0), n.Tanh(inner))))


def _silu(n: Net) -> str:
    x = dense(n, n.x(4, 16), 16, 24)
    return str(n.Mul(x, n.Sigmoid(x)))


def _gated(n: Net) -> str:
    x = n.x(4, 16)
    gate = dense(n, x, 16, 24)
    return dense(n, n.Mul(n.Mul(gate, n.Sigmoid(gate)), dense(n, x, 16, 24)), 24, 16)


def _silu_divided(n: Net) -> str:
    x = dense(n, n.x(4, 16), 16, 24)
    return str(n.Div(x, n.Add(n.c(1.0), n.Exp(n.Neg(x)))))


def _quick_gelu(n: Net) -> str:
    x = dense(n, n.x(4, 16), 16, 24)
    return str(n.Mul(x, n.Sigmoid(n.Mul(n.c(1.702), x))))


def _mish(n: Net) -> str:
    x = dense(n, n.x(4, 16), 16, 24)
    return str(n.Mul(x, n.Tanh(n.Softplus(x))))


for _order in range(3):
    _add(f"gelu spelled with erf, {_order}", lambda n, o=_order: _gelu_erf(n, o))
_add("gelu spelled with tanh", _gelu_tanh)
_add("gelu", lambda n: n.Gelu(n.x(4, 24)), opset=20)
_add("gelu tanh", lambda n: n.Gelu(n.x(4, 24), approximate="tanh"), opset=20)
_add("silu", _silu)
_add("silu divided", _silu_divided)
_add("silu gate", _gated)
_add("quick gelu", _quick_gelu)
_add("mish", _mish)
_add("erf pow sqrt exp", lambda n: n.Add(n.Erf(n.Sqrt(n.Abs(n.x(3, 20)))), n.Exp(n.Neg(n.Pow(n.x(3, 20), n.c(2.0))))))
_add("pow of two tensors", lambda n: n.Pow(n.Abs(n.x(3, 20)), n.x(20)))

# ---- choices and masks


def causal(size: int) -> np.ndarray:
    """Zero where a query may look; elsewhere what makes a softmax negligible, and a quantisation still says something."""
    return np.triu(np.full((size, size), -20.0, np.float32), 1)


def _mask_by_where(n: Net) -> str:
    scores = n.MatMul(n.x(2, 3, 8, 6), n.x(2, 3, 6, 8))
    return str(n.Softmax(n.Where(n.c(causal(8) == 0), scores, n.c(-20.0)), axis=-1))


def _mask_by_sum(n: Net) -> str:
    return str(n.Softmax(n.Add(n.MatMul(n.x(2, 3, 8, 6), n.x(2, 3, 6, 8)), n.c(causal(8)[None, None])), axis=-1))


def _padding_mask(n: Net) -> str:
    """1 - mask, times a large negative number, expanded over heads and queries."""
    scores = n.MatMul(n.x(2, 3, 8, 6), n.x(2, 3, 6, 8))
    kept = n.Cast(n.Greater(n.x(2, 8), n.c(-0.8)), to=1)
    mask = n.Mul(n.Sub(n.c(1.0), n.Expand(n.Unsqueeze(kept, n.i(1, 2)), n.i(2, 1, 8, 8))), n.c(-20.0))
    return str(n.Softmax(n.Add(scores, mask), axis=-1))


def _mask_of_both(n: Net) -> str:
    scores = n.MatMul(n.x(2, 3, 8, 6), n.x(2, 3, 6, 8))
    kept = n.And(n.c(causal(8) == 0), n.Unsqueeze(n.Not(n.Less(n.x(2, 8), n.c(-0.8))), n.i(1, 2)))
    return str(n.Softmax(n.Where(kept, scores, n.c(-20.0)), axis=-1))


_add("mask by where", _mask_by_where)
_add("mask by sum", _mask_by_sum)
_add("padding mask", _padding_mask)
_add("causal and padding mask", _mask_of_both)
_add("where of two tensors", lambda n: n.Where(n.Greater(n.x(3, 1), n.x(1, 20)), n.Relu(n.x(3, 20)), n.x(20)))
_add("where with a constant", lambda n: n.Where(n.c(np.arange(20) % 3 == 0), n.c(0.5), n.x(3, 20)))
_add("max of two broadcast", lambda n: n.Max(n.x(3, 1, 20), n.x(4, 1)))
_add("expand and concat", lambda n: n.Concat(n.Expand(n.x(3, 1, 5), n.i(2, 3, 4, 5)), n.x(2, 3, 4, 5), axis=2))
_add("expand behind", lambda n: n.Tanh(n.Expand(n.x(3, 1, 5), n.i(2, 3, 4, 5))))
_add("tile of several", lambda n: n.Tile(n.x(2, 3, 4), n.i(1, 2, 3)))

# ---- rotations and attention


def rotation(n: Net, length: int, width: int) -> tuple[str, str]:
    """Tables of cosines and sines, both halves alike."""
    angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(width // 2)[None] * 2 / width)
    return n.c(np.cos(np.tile(angles, 2)).astype(np.float32)), n.c(np.sin(np.tile(angles, 2)).astype(np.float32))


def rotated(n: Net, x: str, cos: str, sin: str, width: int) -> str:
    """x * cos + concat(-second half, first half) * sin."""
    first = n.Slice(x, n.i(0), n.i(width // 2), n.i(-1))
    second = n.Slice(x, n.i(width // 2), n.i(2**63 - 1), n.i(-1))
    return str(n.Add(n.Mul(x, cos), n.Mul(n.Concat(n.Neg(second), first, axis=-1), sin)))


def _rotation(n: Net) -> str:
    return rotated(n, n.x(2, 3, 10, 8), *rotation(n, 10, 8), 8)


def _rotation_of_pairs(n: Net) -> str:
    """Neighbouring elements turn together."""
    x = n.Reshape(n.x(2, 3, 10, 8), n.i(2, 3, 10, 4, 2))
    parts: Any = n.node("Split", [x, n.i(1, 1)], 2, axis=-1)
    cos, sin = n.w(10, 4, 1), n.w(10, 4, 1)
    even = n.Sub(n.Mul(parts[0], cos), n.Mul(parts[1], sin))
    odd = n.Add(n.Mul(parts[0], sin), n.Mul(parts[1], cos))
    return str(n.Reshape(n.Concat(even, odd, axis=-1), n.i(2, 3, 10, 8)))


def heads(n: Net, x: str, length: int, count: int, width: int) -> str:
    """[1,S,H*D] as [1,H,S,D]."""
    return str(n.Transpose(n.Reshape(x, n.i(1, length, count, width)), perm=[0, 2, 1, 3]))


def repeated(n: Net, x: str, length: int, count: int, width: int, groups: int, form: str) -> str:
    """Every head as often as there are queries for it."""
    if form == "tile":
        return str(n.Tile(x, n.i(1, groups, 1, 1)))
    long = n.Expand(n.Unsqueeze(x, n.i(2)), n.i(1, count, groups, length, width))
    return str(n.Reshape(long, n.i(1, count * groups, length, width)))


def attention(n: Net, x: str, length: int, q_heads: int, kv_heads: int, width: int, form: str = "expand", turn: bool = True) -> str:
    """Grouped-query attention with a causal mask, from [1,S,H*D] to itself."""
    size, groups = q_heads * width, q_heads // kv_heads
    q = heads(n, dense(n, x, size, size), length, q_heads, width)
    k, v = (heads(n, dense(n, x, size, kv_heads * width), length, kv_heads, width) for _ in range(2))
    if turn:
        tables = rotation(n, length, width)
        q, k = rotated(n, q, *tables, width), rotated(n, k, *tables, width)
    if groups > 1:
        k, v = (repeated(n, t, length, kv_heads, width, groups, form) for t in (k, v))
    scores = n.Mul(n.MatMul(q, n.Transpose(k, perm=[0, 1, 3, 2])), n.c(1 / math.sqrt(width)))
    weights = n.Softmax(n.Add(scores, n.c(causal(length)[None, None])), axis=-1)
    result = n.Reshape(n.Transpose(n.MatMul(weights, v), perm=[0, 2, 1, 3]), n.i(1, length, size))
    return dense(n, result, size, size)


def _llama_layer(n: Net) -> str:
    x = n.x(1, 9, 32)
    y = n.Add(x, attention(n, rms_norm(n, x, 32), 9, 4, 2, 8))
    z = rms_norm(n, y, 32)
    gate = dense(n, z, 32, 48)
    return str(n.Add(y, dense(n, n.Mul(n.Mul(gate, n.Sigmoid(gate)), dense(n, z, 32, 48)), 48, 32)))


def _encoder_layer(n: Net) -> str:
    x = n.x(1, 9, 32)
    y = layer_norm(n, n.Add(x, attention(n, x, 9, 4, 4, 8, turn=False)), 32)
    inner = n.Add(dense(n, y, 32, 64), n.w(64))
    gelu = n.Mul(n.Mul(inner, n.Add(n.Erf(n.Div(inner, n.c(math.sqrt(2)))), n.c(1.0))), n.c(0.5))
    return layer_norm(n, n.Add(y, dense(n, gelu, 64, 32)), 32)


_add("rotary embedding", _rotation)
_add("rotary embedding of pairs", _rotation_of_pairs)
_add("attention", lambda n: attention(n, n.x(1, 9, 32), 9, 4, 4, 8, turn=False))
_add("attention of groups", lambda n: attention(n, n.x(1, 9, 32), 9, 4, 2, 8))
_add("attention of tiled groups", lambda n: attention(n, n.x(1, 9, 32), 9, 4, 2, 8, "tile"))
_add("attention of one key head", lambda n: attention(n, n.x(1, 9, 32), 9, 4, 1, 8))
_add("decoder layer", _llama_layer)
_add("encoder layer", _encoder_layer)


# ---- operators that are taken apart


def _cached_attention(n: Net, has_mask: bool = True) -> list[str]:
    mask = n.w(1, 10) if has_mask else ""
    inputs = [n.x(2, 4, 1, 8), n.x(2, 2, 3, 8), n.x(2, 2, 3, 8), mask, n.x(2, 2, 7, 8), n.x(2, 2, 7, 8)]
    return n.node("Attention", inputs, 3)


_add("rotary embedding operator", lambda n: n.RotaryEmbedding(n.x(2, 3, 10, 8), n.w(2, 10, 4), n.w(2, 10, 4)), 23)
_add(
    "rotary embedding by position",
    lambda n: n.RotaryEmbedding(n.x(2, 5, 24), n.w(50, 4), n.w(50, 4), n.c(np.arange(10).reshape(2, 5)), num_heads=3, interleaved=1),
    23,
)
_add("attention operator", lambda n: n.Attention(n.x(2, 9, 32), n.x(2, 9, 16), n.x(2, 9, 16), n.w(9, 9), q_num_heads=4, kv_num_heads=2), 23)
_add("attention operator, causal", lambda n: n.Attention(n.x(2, 4, 9, 8), n.x(2, 2, 9, 8), n.x(2, 2, 9, 8), is_causal=1, softcap=2.0), 23)
_add("attention operator with a cache", _cached_attention, 23)
_add("attention operator with a cache and no mask", lambda n: _cached_attention(n, has_mask=False), 23)
_add("group norm", lambda n: n.GroupNormalization(n.x(2, 8, 5, 4), n.w(8), n.w(8), num_groups=4), 21)
_add("mean variance norm", lambda n: n.MeanVarianceNormalization(n.x(2, 8, 5, 4)))
_add("thresholds", lambda n: n.Add(n.ThresholdedRelu(n.x(3, 20), alpha=0.4), n.Shrink(n.Celu(n.x(3, 20)), lambd=0.3, bias=0.1)))
for _op in ("L1", "L2", "LogSumExp", "SumSquare"):
    _add(f"reduce {_op}", lambda n, op=_op: n.node(f"Reduce{op}", [n.x(3, 4, 20)], 1, axes=[0, 2], keepdims=0)[0])
_add("reduce LogSum", lambda n: n.ReduceLogSum(n.Abs(n.x(3, 4, 20)), axes=[1]))
_add("running sum", lambda n: n.CumSum(n.x(3, 7, 4), n.i(1)))
_add("running sum, exclusive and reverse", lambda n: n.CumSum(n.x(3, 7), n.i(-1), exclusive=1, reverse=1))
_add("running sum, exclusive", lambda n: n.CumSum(n.x(3, 7), n.i(0), exclusive=1))
for _equation, _left, _right in [
    ("bhid,bhjd->bhij", (2, 3, 5, 4), (2, 3, 6, 4)),
    ("bhij,bhjd->bihd", (2, 3, 5, 6), (2, 3, 6, 4)),
    ("bij,jk->bik", (2, 5, 6), (6, 4)),
    ("ij,kj", (5, 6), (4, 6)),
    ("bsh,hnd->bsnd", (2, 5, 6), (6, 3, 4)),
    ("...ij,jk->...ik", (2, 3, 5, 6), (6, 4)),
]:
    _add(f"einsum {_equation}", lambda n, e=_equation, a=_left, b=_right: n.Einsum(n.x(*a), n.x(*b), equation=e))
_add("einsum of one", lambda n: n.Einsum(n.x(2, 5, 3), equation="bij->jb"))
_add("instance norm", lambda n: n.InstanceNormalization(n.x(2, 6, 5, 4), n.w(6), n.w(6)))
_add(
    "triangles",
    lambda n: n.Concat(
        n.Trilu(n.x(2, 5, 6), n.c(1, np.int64), upper=1),
        n.Trilu(n.x(2, 5, 6), upper=0),
        n.Trilu(n.x(2, 5, 6), n.c(2**62, np.int64), upper=0),
        axis=2,
    ),
)
_add("no NaN", lambda n: n.Where(n.IsNaN(n.Log(n.x(3, 20))), n.c(-1.0), n.x(3, 20)))
_add("scalars", lambda n: n.Tanh(n.Mul(n.ReduceSum(n.x(3, 4), keepdims=0), n.c(0.1))))
