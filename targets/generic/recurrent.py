"""Kernels of recurrent layers and cells."""

from __future__ import annotations

from collections.abc import Mapping

from deeploy.operators import integer_recurrent, recurrent
from deeploy.target import Count, Node, Scratch, variant

from .pointwise import c_function


def _list_macros(node: Node) -> Mapping[str, str]:
    functions = {f"{gate}_FUNCTION": c_function(name) for gate, name in zip("FGH", node.attrs["functions"], strict=False)}
    resets = variant("product", node.op == "GRU" and len(node.inputs) > 3)
    op = node.op.removesuffix("Cell")
    return {**_has_flag(op), "CELL": variant("cell", op != node.op), **functions, "RESETS_PRODUCT": resets}


def _has_flag(op: str) -> dict[str, str]:
    return {name: variant(name.lower(), name == op) for name in ("LSTM", "GRU", "RNN")}


def _state_bytes(node: Node, tile: Mapping[str, Count]) -> Count:
    """Bytes in which a GRU that resets its state keeps it, and its update gate."""
    return 8 * tile["k"] if len(node.inputs) == 3 else 8


def _sum_bytes(node: Node, tile: Mapping[str, Count]) -> Count:
    """Bytes of the sums of all gates; a GRU has two of its candidate."""
    return 4 * tile["k"] * (1 if node.op == "IntegerRNN" else 4)


def _integer_macros(node: Node) -> Mapping[str, str]:
    return _has_flag(node.op.removeprefix("Integer"))


KERNELS = (
    recurrent.LSTM.kernel("lstm", "portable/lstm.c", struct="recurrent", macros=_list_macros),
    recurrent.GRU.kernel("gru", "portable/gru.c", struct="recurrent", macros=_list_macros, scratch={"state": Scratch(_state_bytes)}),
    recurrent.RNN.kernel("rnn", "portable/rnn.c", struct="recurrent", macros=_list_macros),
    recurrent.LSTM_CELL.kernel("lstm_cell", "portable/lstm_cell.c", struct="recurrent", macros=_list_macros),
    recurrent.GRU_CELL.kernel("gru_cell", "portable/gru_cell.c", struct="recurrent", macros=_list_macros),
    *(
        operator.kernel(f"integer_{cell}", "portable/integer_recurrent.c", macros=_integer_macros, scratch={"sums": Scratch(_sum_bytes)})
        for cell, operator in (
            ("lstm", integer_recurrent.INTEGER_LSTM),
            ("gru", integer_recurrent.INTEGER_GRU),
            ("rnn", integer_recurrent.INTEGER_RNN),
        )
    ),
)
