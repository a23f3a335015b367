"""Element types of the inputs of a dialect graph, whose file calls everything float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from deeploy.errors import UsageError, shorten, suggest
from deeploy.frontend.schemas import DIALECT_OPS
from deeploy.ir.types import DType
from deeploy.ir.values import Graph

Integers = Literal["", "declared", "recognised"]  # by operators of the dialect or an option; by what a float graph computes
_LARGEST = 2.0**62  # of samples that are taken for integers


def is_dialect(graph: Graph) -> bool:
    """Whether the graph contains an operator of the integer dialect."""
    return any(not node.domain and node.op in DIALECT_OPS for node in graph.nodes)


def resolve_input_types(
    graph: Graph,
    declared: Mapping[str, DType],
    integer: bool,
    samples: Sequence[Sequence[np.ndarray]] | None = None,
) -> tuple[dict[str, DType], list[str]]:
    """The element type of every input, and notices for the user.

    In this order: ``declared`` (``--input-type``); an integer type in the file, where an int32 in a dialect graph only says
    "integer"; the range of ``samples``, only for dialect graphs; int8. In a dialect graph, an input is float32 where a
    QuantizeLinear reads it or its samples are not whole numbers.

    Raises:
        UsageError: a declared name is no input.
    """
    names = [t.name for t in graph.inputs]
    for name in declared:
        if name not in names:
            listed = f"{suggest(name, names)}Its inputs: {', '.join(shorten(n) for n in names)}."
            raise UsageError(f"--input-type {shorten(name)}: the model has no input of that name", listed)
    types: dict[str, DType] = {}
    notes: list[str] = []
    for position, tensor in enumerate(graph.inputs):
        file_type, readers = tensor.dtype, graph.readers.get(tensor, ())
        if tensor.name in declared:
            types[tensor.name] = declared[tensor.name]
        elif not integer or file_type not in (DType.INT32, DType.FLOAT32) or any(node.op == "QuantizeLinear" for node in readers):
            types[tensor.name] = file_type
        else:
            arrays = [sample[position] for sample in samples or ()]
            types[tensor.name], note = _from_range(tensor.name, arrays)
            notes.append(note)
    return types, notes


def _from_range(name: str, arrays: Sequence[np.ndarray]) -> tuple[DType, str]:
    filled = [a for a in arrays if a.size]
    label = f"input '{shorten(name)}'"
    how = f"say otherwise with --input-type {shorten(name)}=TYPE"
    if not filled:
        return DType.INT8, f"{label} is taken as int8; {how}"
    if any(not ((np.abs(a) <= _LARGEST) & (a == np.rint(a))).all() for a in filled):
        return DType.FLOAT32, f"{label} is taken as float32, since the sample holds other than whole numbers; {how}"
    low, high = min(int(a.min()) for a in filled), max(int(a.max()) for a in filled)
    dtype = DType.smallest(low, high)
    if low >= 0 and high <= DType.INT8.range[1]:
        return dtype, f"{label} is taken as int8, although the sample, from {low} to {high}, would be uint8 as well; {how}"
    return dtype, f"{label} is taken as {dtype.name.lower()}, since the sample ranges from {low} to {high}; {how}"
