"""Lowering: from the normalised graph (docs/normalised-graph.md) to the integer form (docs/integer-form.md)."""

from __future__ import annotations

from deeploy.frontend.lower import (
    affine,
    blocks,
    contractions,
    decompose,
    dialect,
    fixed_point,
    forms,
    fuse,
    grouped_query,
    horizontal_fusion,
    layout,
    operators,
    qonnx,
    recognise,
    recurrent,
    resize,
    rotations,
    shared_reads,
    tables,
)
from deeploy.frontend.lower.dialect import assign_types
from deeploy.ir.rewriting import Pass

__all__ = ["assign_types", "passes"]


def passes(has_near_memory: bool = False, has_multiply_add: bool = False) -> tuple[Pass, ...]:
    """The standard passes, in order: quantisation first, then every operator, then layout, then epilogues.

    Args:
        has_near_memory: engines work in a memory of their own, which inputs of the network are fetched into.
        has_multiply_add: kernels multiply floats by instructions that add products without having rounded them.
    """
    spelling = (qonnx.PASS, contractions.PASS, resize.PASS, decompose.PASS, contractions.VOLUMES, recognise.PASS)
    return (
        forms.OPERATORS,
        dialect.PASS,
        fixed_point.PASS,
        *spelling,
        forms.DYNAMIC,
        operators.QUANTISED,
        blocks.PASS,
        recurrent.recurrent_steps(has_near_memory),
        forms.CHAINS,
        affine.PASS,
        operators.PASS,
        grouped_query.PASS,
        layout.PASS,
        affine.BORDERS,
        fuse.DYNAMIC,
        fuse.PASS,
        tables.PASS,
        rotations.PASS,
        horizontal_fusion.PASS,
        shared_reads.TIES,
        shared_reads.PACKING,
        *((shared_reads.STAGING,) if has_near_memory else ()),
        *((shared_reads.MULTIPLY_ADD,) if has_multiply_add else ()),
    )
