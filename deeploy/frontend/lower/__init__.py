"""Lowering: from the normalised graph (docs/normalised-graph.md) to the integer form (docs/integer-form.md)."""

from __future__ import annotations

from deeploy.frontend.lower import (
    affine,
    blocks,
    chains,
    contractions,
    decompose,
    dialect,
    dynamic,
    fuse,
    heads,
    layout,
    operators,
    packing,
    qonnx,
    qoperator,
    recognise,
    recurrent,
    resize,
    rotations,
    siblings,
    staging,
    tables,
    ties,
    volumes,
)
from deeploy.frontend.lower.dialect import assign_types
from deeploy.graph.rewriting import Pass

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
        recurrent.steps(has_near_memory),
        chains.PASS,
        affine.PASS,
        operators.PASS,
        heads.PASS,
        layout.PASS,
        affine.BORDERS,
        fuse.DYNAMIC,
        fuse.PASS,
        tables.PASS,
        rotations.PASS,
        siblings.PASS,
        ties.PASS,
        packing.PASS,
        *((staging.PASS,) if has_near_memory else ()),
    )
