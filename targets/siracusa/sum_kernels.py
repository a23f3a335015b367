"""Kernels of the cluster that add partial sums, and what follows on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deeploy.operators import requantise, scaled
from deeploy.target import DType, Kernel, Node, types

from . import forms
from .portable import BYTES, also, generic

AXES = 3  # of the result, that the C loops have


def _fits(node: Node) -> bool:
    """Whether there are two terms or more of 32 bits, and few axes of results."""
    x = node.inputs[0]
    return x is not None and x.dtype is DType.INT32 and x.shape[0] > 1 and sum(size > 1 for size in x.shape[1:]) <= AXES


def _has_form(node: Node) -> bool:
    found = requantise.of_node(node)
    return found is not None and found.form != "wide"


def _adds_terms(node: Node) -> bool:
    """Whether the terms lie along the first axis, and their sum is requantised in 32 bits, or kept."""
    if node.attrs["axes"] != (0,) or not _fits(node):
        return False
    is_byte = node.outputs[0].dtype in BYTES
    return _has_form(node) if node.epilogue else not is_byte


def _settings(node: Node) -> dict[str, Any]:
    return {**forms.settings(node), "per_channel": requantise.of_node(node) is not None and forms.of_all(node) is None}


_SUM = replace(
    generic("reduce_sum"),
    name="pulp_sum",
    types={"x": types("s32"), "y": types("s8", "u8", "s32"), "bias": types("s32")},
    accepts=also(generic("reduce_sum"), _adds_terms, "terms of 32 bits along the first axis, and a requantisation of 32 bits"),
    epilogues=((), ("requantise",), ("bias", "requantise")),
    strided={"x": 0, "y": 0},
    macros=forms.macros,
    layouts=forms.WITHOUT_BIAS,
    source="pulp/pulp_sum.c",
    template="pulp_sum.mako",
    settings=_settings,
)


def _joins(node: Node) -> bool:
    found = scaled.of_node(node) if _fits(node) and _has_form(node) else None
    return found is not None and found.form == "narrow"


_RESIDUAL_SUM = replace(
    generic("residual_sum"),
    name="pulp_residual_sum",
    accepts=also(generic("residual_sum"), _joins, "two terms or more, few axes, constant factors, and both stages in 32 bits"),
    overwrites=(),  # elements may be computed twice
    macros=forms.residual_macros,
    layouts=forms.WITHOUT_BIAS,
    source="pulp/pulp_residual_sum.c",
    template="pulp_residual_sum.mako",
    settings=_settings,
)

KERNELS: tuple[Kernel, ...] = (_SUM, _RESIDUAL_SUM)
