"""Convolutions of any window as sums of 1x1 ones on N-EUREKA: one job for every run of taps, on an image with its border around it."""

from __future__ import annotations

from collections.abc import Mapping

from deeploy.operators import conv
from deeploy.target import Count, Kernel, Map, Nest, Node, Scratch, encoded, parallel, reduction, variant

from .npu_kernels import declare_pair
from .npu_lowering import count_runs, has_upright_runs, lower_runs


def _nest(node: Node) -> Nest:
    """Weights of every run, one after the other; ``group`` counts the engine's passes over them."""
    (k,), taps = parallel("k"), reduction("fh", "fw", "c")
    run, group, byte = encoded("run", "group", "byte", of=taps)
    return conv.nest(lambda *_: Map(run, k, group, byte))(node)


def _padded_bytes(node: Node, tile: Mapping[str, Count]) -> Count:
    """Bytes of what all windows of a tile see, where it is copied."""
    g = conv.window(node)
    if not any(g.pads) and not has_upright_runs(node):
        return 0
    rows = (tile["oh"] - 1) * g.strides[0] + (g.height - 1) * g.dilations[0] + 1
    return rows * ((tile["ow"] - 1) * g.strides[1] + (g.width - 1) * g.dilations[1] + 1) * g.channels


def _macros(node: Node) -> dict[str, str]:
    """How the image is copied, and whether outputs are a single row."""
    return {"UPRIGHT": variant("upright", has_upright_runs(node)), "LINEAR": variant("linear", node.outputs[0].shape[1] == 1)}


KERNELS: tuple[Kernel, ...] = tuple(
    declare_pair(
        "runs",
        conv.CONV,
        lower_runs,
        {"runs": count_runs},
        source="neureka/neureka_runs.c",
        forks=True,
        macros=_macros,
        nest=_nest,
        strided={"x": 2, "y": 1, "w": 3},
        scratch={"padded": Scratch(_padded_bytes)},
    )
)
