"""Sums of partial sums that a residual connection joins (docs/integer-form.md): loop nest and reference."""

from __future__ import annotations

from random import Random

import numpy as np

from deeploy.ir.epilogue import clip_shifted
from deeploy.ir.kernel import BYTES, Operator, Range, Row, Sample, types
from deeploy.ir.nest import Map, Nest, parallel, reduction
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.accumulate import held, scale, span, values
from deeploy.operators.draws import factors, integers, limits, parity, requantisation, sample
from deeploy.operators.elementwise import AXES, wide


def nest(node: Node) -> Nest:
    """Dimension ``term`` runs over the partial sums, ``d<i>`` over axis i of the output; only x has the former, so that it is never cut."""
    x = node.operands[0]
    dims = parallel(*(f"d{axis}" for axis in range(len(x.shape) - 1)))
    (term,) = reduction("term")
    factor = Map(dims[-1]) if dims else Map(0)
    return Nest(
        reads={"x": Map(term, *dims), "b": Map(*dims), "mul": factor, "add": factor},
        writes={"y": Map(*dims)},
    )


def state_requirement(node: Node) -> str | None:
    """The shapes of the operator, and the portable kernel's limit on ranks."""
    x, b, mul, add = node.operands
    if not x.shape or x.shape[1:] != b.shape:
        return "x of the shape of b behind an axis of terms"
    if any(len(t.shape) != 1 or t.shape[0] not in (1, b.shape[-1] if b.shape else 1) for t in (mul, add)):
        return "mul and add of one element, or one for each of the last axis"
    return None if len(b.shape) <= AXES else f"at most {AXES} axes"


def reference(node: Node, x: Array, b: Array, mul: Array, add: Array) -> Array:
    """t = clip((sum*mul + add) >> shift, low, high); clip((t*mul_a + b*mul_b + offset) >> shift_sum, low_sum, high_sum).

    Partial sums x[n, ...S] int32 and a residual connection b[...S] 8 bit; mul, add of extent 1 or the last of S. Ties of the first go as
    ``even`` says, of the second as ``even_sum``. No epilogue.
    """
    attrs = node.attrs
    t = clip_shifted(attrs, x.sum(axis=0, dtype=np.int64) * wide(mul) + wide(add))
    return clip_shifted(attrs, t * attrs["mul_a"] + wide(b) * attrs["mul_b"] + attrs["offset"], "_sum").reshape(b.shape)


def _draw_node(rng: Random) -> Sample:
    shift, mul = rng.choice((7, 14, 20)), requantisation(rng, 15)
    names = {"mul": "mul_a", "add": "offset", "shift": "shift_sum", "low": "low_sum", "high": "high_sum"}
    attributes = {own: mul[name] for name, own in names.items()}
    attributes = {**attributes, **parity(rng), **parity(rng, "even_sum"), "mul_b": rng.choice((1, -1)) * mul["mul"] // 2}
    channels = rng.choice("1c")
    given = {**factors(shift), "mul": integers(1 << shift >> 5, 1 << shift >> 3), "shift": (shift,), "extents": {"n": (1, 2, 3, 4, 8)}}
    return sample(f"b[*s,c] x[n,*s,c] mul[{channels}] add[{channels}]", limits, lambda rng: attributes, **given)(rng)


def _bound_sums(node: Node) -> dict[str, tuple[Range, Range]]:
    """Partial sums in 32 bits, both requantisations in 64."""
    x, b, mul, add = node.operands
    attrs, (low, high) = node.attrs, scale(x.shape[0], values(x))
    products = [sum_end * factor for sum_end in (low, high) for factor in values(mul)]
    terms = scale(attrs["mul_a"], (attrs["low"], attrs["high"])), scale(attrs["mul_b"], values(b)), (attrs["offset"],) * 2
    return {
        "sums": held(low, high),
        "products": held(*span((min(products), max(products)), values(add)), 64),
        "shift": ((attrs["shift"],) * 2, (0, 62)),
        "total": held(*span(*terms), 64),
        "shift of the total": ((attrs["shift_sum"],) * 2, (0, 62)),
        "result": held(attrs["low_sum"], attrs["high_sum"]),
    }


RESIDUAL_SUM = Operator(
    "ResidualSum",
    ("x", "b", "mul", "add"),
    nest,
    reference,
    Row(
        types={"x": types("s32"), "b": BYTES, "mul": types("s32"), "add": types("s32", "s64"), "y": BYTES},
        requires=state_requirement,
        strided={"x": 0, "b": 0, "y": 0},
        overwrites=(("y", "b"),),
    ),
    integers=_bound_sums,
    draw=_draw_node,
)
