"""Recurrent layers on the cluster: its cores divide the units, and meet after every step."""

from __future__ import annotations

from .kernels import GENERIC

KERNELS = tuple(
    GENERIC.kernel(name).variant(f"pulp_{name}", source="pulp/pulp_recurrent.c", struct="recurrent", team="k")
    for name in ("lstm", "gru", "rnn")
)
