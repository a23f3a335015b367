"""How kernels of the cluster are told the forms of requantisations: macros of ``kernels/pulp``, constants, and a C initialiser."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from deeploy.operators import requantise, scaled, staircase
from deeploy.target import Layout, Node, variant


def _per_channel(array: np.ndarray, node: Node) -> np.ndarray:
    channels = math.prod(node.outputs[0].shape[-1:])
    return np.ascontiguousarray(np.broadcast_to(array, channels))


def of_all(node: Node) -> staircase.StaircaseRequantisation | None:
    """The requantisation of a node in 32 bits whose channels all have one factor and one summand."""
    form = requantise.of_node(node)
    if form is None or form.form == "wide" or _are_different(form.mul) or _are_different(form.add):
        return None
    return form


def _are_different(array: np.ndarray) -> bool:
    """Whether numbers are not all the same one."""
    return not array.size or bool(np.ptp(array))


def _encode_mul(array: np.ndarray, node: Node) -> np.ndarray:
    form = requantise.of_node(node)
    return array if form is None else form.mul


def _encode_add(array: np.ndarray, node: Node) -> np.ndarray:
    form = requantise.of_node(node)
    return array if form is None else form.add


# The constants in the cheapest form, one value per channel; what all channels share is in the call's ``requantisation``.
IN_THE_CALL: Mapping[str, Layout] = {"mul": Layout(lambda array, node: None), "add": Layout(lambda array, node: None)}
PER_CHANNEL: Mapping[str, Layout] = {
    "bias": Layout(_per_channel),
    "mul": Layout(lambda array, node: _per_channel(_encode_mul(array, node), node) if of_all(node) is None else None),
    "add": Layout(lambda array, node: _per_channel(_encode_add(array, node), node) if of_all(node) is None else None),
}
# The same where a bias is part of the summands.
WITHOUT_BIAS: Mapping[str, Layout] = {**PER_CHANNEL, "bias": Layout(lambda array, node: None)}


def is_whole(node: Node) -> bool:
    """Whether outputs are clipped to the range of their type only."""
    return (node.attrs["low"], node.attrs["high"]) == tuple(node.outputs[0].dtype.range)


def macros(node: Node) -> dict[str, str]:
    """The macros of ``pulp_finish.h``: the form of the requantisation of the output."""
    requantised_form = requantise.of_node(node)
    form, limit = ("wide", None) if requantised_form is None else (str(requantised_form.form), requantised_form.limit)
    if requantised_form is not None and form == "wide" and requantised_form.shift >= 32:
        form = "upper"
    return {
        **{f"REQUANT_{word.upper()}": variant(word, word == form) for word in ("narrow", "split", "high", "upper")},
        "REQUANT_CLIPPED": variant("clipped", form != "wide" and limit is not None),
        "CLIP_WHOLE": variant("whole", form != "wide" and is_whole(node)),
        "REQUANT_ONE": variant("one", form != "wide" and of_all(node) is not None),
    }


def operand_macros(node: Node) -> dict[str, str]:
    """The macros of ``pulp_requant_add.c``: what the requantisations of the operands have to do."""
    result: dict[str, str] = {}
    for index, name in enumerate("ab"):
        form, (least, most) = staircase.of_operand(node, index), staircase.operand_results(node, index)
        low, high = (node.attrs[f"{end}_{name}"] for end in ("low", "high"))
        is_same = form.mul.item() == 1 << form.shift and 0 <= form.add.item() < 1 << form.shift
        is_below, is_above = min(least, most) < low, max(least, most) > high
        is_either = is_below and is_above and low == -high - 1
        held = {"scaled": not is_same, "either": is_either, "below": is_below and not is_either, "above": is_above and not is_either}
        result |= {f"{name}_{word}".upper(): variant(f"{name}_{word}", holds) for word, holds in held.items()}
    return result


def sum_macros(node: Node) -> dict[str, str]:
    """The macros of ``pulp_scaled_add.c``: the form of a ``ScaledAdd``, which has one."""
    form = scaled.of_node(node)
    assert form is not None
    halves = {"SUM_NARROW": variant("narrow", form.form == "narrow"), "SUM_HALVES": variant("halves", form.form == "halves")}
    return {**halves, "CLIP_WHOLE": variant("whole", is_whole(node))}


def residual_macros(node: Node) -> dict[str, str]:
    """The macros of ``pulp_sum.c`` for a ``ResidualSum``: the forms of both of its stages, which it has."""
    form, attrs = scaled.of_node(node), node.attrs
    assert form is not None
    least, most = node.outputs[0].dtype.range
    is_range = (attrs["low_sum"], attrs["high_sum"]) == (least, most)
    return {
        **{name: text for name, text in macros(node).items() if name != "CLIP_WHOLE"},
        "SUM_SHORT": variant("sum_short", -(2**15) <= form.mul_a < 2**15),
        "CLIP_WHOLE": variant("clip_whole", (attrs["low"], attrs["high"]) == (-128, 127)),
        "RESULT_SIGNED": variant("signed", is_range and least < 0),
        "RESULT_UNSIGNED": variant("unsigned", is_range and least == 0),
    }


FIELDS = ("bias", "mul", "add", "table", "bias_step", "mul_step", "add_step", "shift", "low", "high")  # of struct pulp_epilogue


def _complete_initialiser(fields: Mapping[str, object]) -> str:
    """The initialiser with all fields: where some are left out, compilers clear the whole structure of arguments by a call first."""
    return "{" + ", ".join(f".{name} = {fields.get(name, 0)}" for name in FIELDS) + "}"


def settings(node: Node) -> dict[str, Any]:
    """For templates: ``requantisation``, the C initialiser of ``struct pulp_requantisation``, and ``complete`` for that of the epilogue."""
    form, shared = requantise.of_node(node), of_all(node)
    mul, add = (int(shared.mul.flat[0]), int(shared.add.flat[0])) if shared is not None else (0, 0)
    upper, mul = divmod(mul, 1 << 32) if shared is not None and shared.form == "split" else (0, mul)
    fields = {"limit": 0, "left": 0, "bits": 0, "shift": 0, "mul": mul, "upper": upper, "add": add}
    if form is not None and form.form != "wide":
        fields |= {"limit": form.limit or 0, "left": form.left, "bits": form.bits, "shift": form.shift}
    text = "{" + ", ".join(f".{name} = {value}" for name, value in fields.items()) + "}"
    return {"requantisation": text, "complete": _complete_initialiser, "per_channel": form is not None and shared is None}
