"""Recurrent layers on the cluster: its cores divide the units, and meet after every step."""

from __future__ import annotations

from collections.abc import Mapping

from deeploy.target import Count, Node, Scratch

from .depthwise_kernels import GENERIC


def _state_bytes(node: Node, tile: Mapping[str, Count]) -> Count:
    """Bytes of the states of two steps, in groups of four units."""
    return 16 * tile["n"] * ((tile["k"] + 3) // 4)


FLOATS = tuple(
    GENERIC.kernel(name).variant(f"pulp_{name}", source=f"pulp/pulp_{name}.c", struct="recurrent", team="k")
    for name in ("lstm", "gru", "rnn")
)
INTEGERS = tuple(
    GENERIC.kernel(f"integer_{name}").variant(
        f"pulp_integer_{name}",
        source="pulp/pulp_integer_recurrent.c",
        struct="integer_recurrent",
        team="k",
        scratch={**GENERIC.kernel(f"integer_{name}").scratch, "state": Scratch(_state_bytes)},
    )
    for name in ("lstm", "gru", "rnn")
)
KERNELS = FLOATS + INTEGERS
REPLACED = frozenset(kernel.name.removeprefix("pulp_") for kernel in KERNELS)  # by teams, in whatever they do
