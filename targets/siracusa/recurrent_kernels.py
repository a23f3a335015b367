"""Recurrent layers on the cluster: its cores divide the units, and meet after every step."""

from __future__ import annotations

from .kernels import GENERIC

KERNELS = tuple(
    GENERIC.kernel(f"{prefix}{name}").variant(
        f"pulp_{prefix}{name}", source=f"pulp/pulp_{prefix}recurrent.c", struct=f"{prefix}recurrent", team="k"
    )
    for prefix in ("", "integer_")
    for name in ("lstm", "gru", "rnn")
)
