"""Kernels of the cluster: those with streaming registers and packed floats, before the portable ones of the generic target."""

from deeploy.target import FLOAT, Kernel, Node, Tiling, load
from deeploy.target.operators import accumulate, conv, matmul

GENERIC = load("generic")
PAIRS = "of an even length, at multiples of 8 bytes"


def _has_rows(node: Node) -> bool:
    a = node.inputs[0]
    return a is not None and a.shape[-1] % 2 == 0 and not node.attrs["trans_a"]


def _has_columns(node: Node) -> bool:
    return node.outputs[0].shape[-1] % 2 == 0 and not node.attrs["trans_a"]


def _has_runs(node: Node) -> bool:
    window = conv.window(node)
    return window.groups == 1 and window.filters % 2 == 0 and (window.width == 1 or window.dilations[1] == 1)


_PRODUCT = accumulate.on_floats(GENERIC.kernel("matmul_any")).variant(
    "product",
    source="snitch/snitch_matmul.c",
    struct="matmul",
    strided={},
    cores=("m", "n", "b0", "b1", "b2", "b3"),
    reorders=True,
)
_COLUMNS = _PRODUCT.variant(
    "snitch_columns_constant",
    (_has_columns, f"a product whose rows are {PAIRS}"),
    source="snitch/snitch_columns.c",
    struct="matmul",
    types={"b": FLOAT},
    tiling=Tiling(whole=("k",), multiple={"n": 2}),
    **matmul.COLUMNS_LAST,
)
_CONV = accumulate.on_floats(GENERIC.kernel("conv2d")).variant(
    "snitch_conv2d",
    (_has_runs, "an even number of filters, and taps of a row beside each other"),
    source="snitch/snitch_conv2d.c",
    struct="conv2d",
    types={"w": FLOAT},
    strided={"x": 2},
    tiling=Tiling(whole=("c", "fh", "fw"), multiple={"k": 2}),
    reorders=True,
)
_DEPTHWISE = accumulate.on_floats(GENERIC.kernel("depthwise2d")).variant(
    "snitch_depthwise",
    (lambda node: conv.window(node).groups % 2 == 0, "an even number of channels"),
    source="snitch/snitch_depthwise.c",
    struct="depthwise2d",
    types={"w": FLOAT},
    strided={},
    tiling=Tiling(whole=("fh", "fw"), multiple={"k": 2}),
    cores=("oh", "ow"),
    reorders=True,
)

# Functions of snitch_unary.c.
_FUNCTIONS = {
    "sigmoid",
    "tanh",
    "scaled_tanh",
    "silu",
    "gelu",
    "gelu_tanh",
    "erf",
    "exp",
    "affine",
    "neg",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
}
_FLOATS = {kernel.name: kernel for kernel in GENERIC.computing if kernel.types.get("a") == FLOAT}  # of two operands

KERNELS: tuple[Kernel, ...] = (
    _COLUMNS,
    _PRODUCT.variant(
        "snitch_columns",
        (lambda node: _has_columns(node) and not node.attrs["trans_b"], f"a product and a second operand whose rows are {PAIRS}"),
        source="snitch/snitch_columns.c",
        struct="matmul",
        tiling=_COLUMNS.tiling,
    ),
    _PRODUCT.variant("snitch_matmul", (_has_rows, f"rows of a {PAIRS}"), types={"b": FLOAT}, **matmul.ROWS_LAST),
    _PRODUCT.variant("snitch_matmul_rows", (lambda node: _has_rows(node) and bool(node.attrs["trans_b"]), f"rows {PAIRS}, b transposed")),
    _CONV,
    _DEPTHWISE,
    GENERIC.kernel("normalise").variant(
        "snitch_normalise", source="snitch/snitch_normalise.c", struct="normalise", types={"scale": FLOAT}, reorders=True
    ),
    GENERIC.kernel("softmax").variant("snitch_softmax", source="snitch/snitch_softmax.c", struct="softmax", reorders=True),
    *(_FLOATS[name].variant(f"snitch_{name}", source="snitch/snitch_binary.c", struct="binary") for name in ("add", "sub", "mul")),
    GENERIC.kernel("clip").variant("snitch_clip", source="snitch/snitch_clip.c", struct="clip", types={"x": FLOAT, "y": FLOAT}),
    GENERIC.kernel("unary").variant(
        "snitch_unary",
        (lambda node: node.attrs["function"] in _FUNCTIONS, f"one of {', '.join(sorted(_FUNCTIONS))}"),
        source="snitch/snitch_unary.c",
        struct="unary",
        reorders=True,
    ),
    *GENERIC.computing,
)
