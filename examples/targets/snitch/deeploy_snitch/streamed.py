"""Kernels of the cluster: those with streaming registers, before the portable ones of the generic target."""

from deeploy.target import Kernel, Node, load
from deeploy.target.operators import accumulate, matmul

GENERIC = load("generic")


def _is_paired(node: Node) -> bool:
    a, b = node.inputs[:2]
    return a is not None and b is not None and a.shape[-1] % 2 == 0 and not node.attrs["trans_a"]


def _is_transposed(node: Node) -> bool:
    return _is_paired(node) and bool(node.attrs["trans_b"])


_ANY = accumulate.on_floats(GENERIC.kernel("matmul_any"))
_STREAMED = _ANY.variant(
    "snitch_matmul_rows",
    (_is_transposed, "rows of a and of a transposed b, of an even depth"),
    source="snitch/snitch_matmul.c",
    struct="matmul",
    strided={},
    cores=("m", "n", "b0", "b1", "b2", "b3"),
)

KERNELS: tuple[Kernel, ...] = (
    _STREAMED.variant(
        "snitch_matmul",
        accepts=_ANY.accepts,
        needs=(_is_paired, "rows of a of an even depth"),
        types={"b": accumulate.FLOAT},
        **matmul.ROWS_LAST,
    ),
    _STREAMED,
    *GENERIC.computing,
)
