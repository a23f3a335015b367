"""Lowering: from the normalised graph (docs/normalised-graph.md) to the integer form (docs/integer-form.md)."""

from __future__ import annotations

from deeploy.frontend.lower import (
    blocks,
    chains,
    contractions,
    decompose,
    dialect,
    dynamic,
    fuse,
    heads,
    integer_recurrent,
    layout,
    operators,
    packing,
    qonnx,
    qoperator,
    recognise,
    resize,
    rotations,
    siblings,
    staging,
    tables,
    volumes,
)
from deeploy.frontend.lower.dialect import assign_types
from deeploy.graph.rewrite import Pass

__all__ = ["assign_types", "passes"]


def passes(has_near_memory: bool = False) -> tuple[Pass, ...]:
    """The standard passes, in order: quantisation first, then every operator, then layout, then epilogues.

    Args:
        has_near_memory: engines work in a memory of their own, which inputs of the network are fetched into.
    """
    spelling = (qonnx.PASS, contractions.PASS, resize.PASS, decompose.PASS, volumes.PASS, recognise.PASS)
    return (
        qoperator.PASS,
        dialect.PASS,
        *spelling,
        dynamic.PASS,
        operators.QUANTISED,
        blocks.PASS,
        integer_recurrent.steps(has_near_memory),
        chains.PASS,
        fuse.FOLD,
        operators.PASS,
        heads.PASS,
        layout.PASS,
        dynamic.FUSE,
        fuse.PASS,
        tables.PASS,
        rotations.PASS,
        siblings.PASS,
        packing.PASS,
        *((staging.PASS,) if has_near_memory else ()),
    )
