"""The portable kernels as the cluster runs them, and how faster forms are declared on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deeploy.target import Kernel, Node, load, types

CORES = 8  # of the cluster
BYTES = types("s8", "u8")
GENERIC = tuple(replace(kernel, engine="cluster") for kernel in load("generic").kernels if kernel.link is None)
Accepts = Callable[[Node], str | None]


def generic(name: str) -> Kernel:
    """The declaration that a kernel of the cluster is a faster form of."""
    return next(kernel for kernel in GENERIC if kernel.name == name)


def also(kernel: Kernel, holds: Callable[[Node], bool], need: str) -> Accepts:
    """The condition of a declaration and a further one."""
    given = kernel.accepts

    def check(node: Node) -> str | None:
        reason = given(node) if given is not None else None
        return reason if reason is not None or holds(node) else need

    return check
