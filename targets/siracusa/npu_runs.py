"""Convolutions of any window as sums of 1x1 ones on N-EUREKA: one job for every run of taps, on an image with its border around it.

Of several groups, those that fit into one pass of the engine are computed together, by weights that are zero for the others' channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deeploy.operators import conv
from deeploy.target import Count, Kernel, Map, Nest, Node, Scratch, Tiling, encoded, parallel, reduction, variant

from .npu import GROUP
from .npu_kernels import declare_pair
from .npu_lowering import LoweredLayer, count_block, count_runs, has_upright_runs, lower_runs

Form = Callable[[Node], LoweredLayer | str]


def _of(holds: Callable[[Node], bool], need: str) -> Form:
    """Nodes alone for which a condition holds."""
    return lambda node: lower_runs(node) if node.op == "Conv" and holds(node) else need


def _declare_nest(node: Node) -> Nest:
    """Weights of every run, one after the other; ``group`` counts the engine's passes over them."""
    (k,), taps = parallel("k"), reduction("fh", "fw", "c")
    run, group, byte = encoded("run", "group", "byte", of=taps)
    return conv.nest(lambda *_: Map(run, k, group, byte))(node)


def _declare_depthwise_nest(node: Node) -> Nest:
    (k,), taps = parallel("k"), reduction("fh", "fw")
    run, group, byte = encoded("run", "group", "byte", of=taps)
    return conv.depthwise_nest(lambda *_: Map(run, k, group, byte))(node)


def _padded_bytes(node: Node, tile: Mapping[str, Count]) -> Count:
    """Bytes of what all windows of a tile see, where it is copied: blocks of channels, the last of which may be filled up."""
    g, (channels, filters) = conv.window(node), count_block(node)
    if not any(g.pads) and not has_upright_runs(node) and g.groups == 1:
        return 0
    rows = (tile["oh"] - 1) * g.strides[0] + (g.height - 1) * g.dilations[0] + 1
    columns = (tile["ow"] - 1) * g.strides[1] + (g.width - 1) * g.dilations[1] + 1
    return rows * columns * channels * (1 if g.groups == 1 else -(-tile["k"] // filters))


def _macros(node: Node) -> dict[str, str]:
    """How the image is copied, and whether outputs are a single row."""
    return {
        "UPRIGHT": variant("upright", has_upright_runs(node)),
        "LINEAR": variant("linear", node.outputs[0].shape[1] == 1),
        "IN_BLOCKS": variant("blocks", conv.window(node).groups > 1),
    }


def _declare_runs(name: str, form: Form, nest: Callable[[Node], Nest], tiling: Tiling, dense: int) -> tuple[Kernel, ...]:
    """The kernels of what a form takes; ``dense`` axes of the image lie together."""
    return tuple(
        declare_pair(
            name,
            conv.CONV,
            form,
            {"runs": count_runs, "block": count_block},
            source="neureka/neureka_runs.c",
            forks=True,
            macros=_macros,
            nest=nest,
            tiling=tiling,
            strided={"x": dense, "y": 1, "w": 3},
            scratch={"padded": Scratch(_padded_bytes)},
        )
    )


_WHOLE = ("c", "fh", "fw")
KERNELS: tuple[Kernel, ...] = (
    *_declare_runs("runs", _of(conv.is_dense, "one group"), _declare_nest, Tiling(_WHOLE, {"k": GROUP}), 2),
    *_declare_runs(
        "depthwise_runs", _of(conv.is_depthwise, "one channel in each group"), _declare_depthwise_nest, Tiling(_WHOLE[1:], {"k": GROUP}), 1
    ),
    *_declare_runs(
        "grouped_runs",
        _of(lambda node: not conv.is_dense(node) and not conv.is_depthwise(node), "several groups of several channels"),
        _declare_nest,
        Tiling((*_WHOLE, "k")),
        1,
    ),
)
