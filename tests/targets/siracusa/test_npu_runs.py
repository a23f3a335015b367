"""Convolutions by runs of taps, which N-EUREKA adds up: windows, strides, dilations and borders against the references, on the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeploy.options import Options
from deeploy.planning.binding.kernels import list_mismatches
from deeploy.target import Target, load
from targets.siracusa.npu_lowering import count_runs, has_upright_runs
from targets.siracusa.npu_runs import KERNELS

from .npu_networks import Layer, check, compile_layers, kernels_of
from .test_npu_kernels import ONE, image, product
from .test_npu_sums import exactly, looked_up


def windowed(shape: tuple[int, ...], filters: int, taps: tuple[int, int], x: str = "u8", y: str = "s8", **attrs: Any) -> Layer:
    """A convolution of ``shape`` [N,H,W,C] with any window."""
    size = {"strides": (1, 1), "dilations": (1, 1), **attrs}
    least = tuple((n - 1) * by + 1 for n, by in zip(taps, size["dilations"], strict=True))
    assert all(extent + attrs["pads"][axis] + attrs["pads"][axis + 2] >= least[axis] for axis, extent in enumerate(shape[1:3]))
    layer = image((*shape[:1], *(max(n, 3) for n in shape[1:3]), shape[3]), filters, 3, x, y, **{**size, "pads": ONE})
    w = np.random.default_rng([*taps, filters]).integers(-30, 30, (filters, shape[3] // attrs.get("group", 1), *taps)).astype(np.int8)
    inside = np.ascontiguousarray(layer.x[:, : shape[1], : shape[2]])
    made = replace(layer, x=inside, constants=(w, *layer.constants[1:]), attrs={**layer.attrs, "pads": attrs["pads"]})
    return made if y == "s32" else exactly(made)


LAYERS = [
    windowed((1, 8, 9, 20), 33, (5, 5), pads=(2, 2, 2, 2), zero_point=7),
    windowed((2, 7, 12, 17), 40, (1, 7), "s8", pads=(0, 3, 0, 3), zero_point=-3),
    windowed((1, 13, 6, 32), 20, (7, 1), pads=(3, 0, 3, 0), zero_point=200),
    windowed((1, 12, 11, 16), 32, (3, 3), pads=(0, 0, 0, 0), strides=(2, 2)),
    windowed((1, 12, 11, 19), 32, (5, 3), pads=(4, 0, 1, 2), strides=(2, 1), dilations=(2, 1), zero_point=1),
    windowed((2, 6, 7, 24), 8, (2, 2), "s8", "s32", pads=(0, 1, 0, 0), zero_point=1),
    windowed((1, 9, 8, 20), 8, (3, 2), dilations=(1, 2), pads=(1, 1, 1, 1), zero_point=4),
    windowed((1, 10, 9, 40), 9, (2, 3), dilations=(3, 4), pads=(1, 5, 0, 0), zero_point=9),
    windowed((1, 1, 50, 33), 33, (1, 5), pads=(0, 4, 0, 4), dilations=(1, 2), zero_point=2),
    windowed((2, 1, 34, 16), 20, (1, 4), "s8", strides=(1, 2), pads=(0, 1, 0, 2)),
    looked_up(windowed((1, 1, 5, 64), 65, (1, 3), pads=(0, 1, 0, 1), zero_point=3)),
    windowed((1, 5, 20, 16), 16, (5, 2), pads=(0, 0, 0, 0)),
    windowed((1, 9, 8, 70), 70, (5, 5), pads=(2, 2, 2, 2), group=70, zero_point=11),
    windowed((2, 7, 8, 24), 24, (7, 3), "s8", strides=(2, 1), pads=(3, 1, 3, 0), group=24, zero_point=-7),
    windowed((1, 1, 40, 64), 64, (1, 9), pads=(0, 8, 0, 8), dilations=(1, 2), group=64, zero_point=5),
    windowed((1, 8, 9, 36), 54, (3, 3), pads=(1, 1, 1, 1), group=3, zero_point=6),
    windowed((2, 6, 7, 80), 50, (1, 1), "s8", "s32", pads=(0, 0, 0, 0), group=2),
    windowed((1, 6, 7, 20), 40, (2, 2), pads=(0, 1, 1, 0), dilations=(2, 2), group=20, zero_point=3),
]


def only_runs(is_resident: bool) -> Target:
    return replace(load("siracusa"), kernels=tuple(kernel for kernel in KERNELS if bool(kernel.resident) == is_resident))


@pytest.mark.parametrize(("l1", "is_resident", "sanitize"), [(240_000, True, False), (32_000, False, True), (14_000, True, False)])
def test_sums_of_runs_are_what_the_references_give(tmp_path: Path, l1: int, is_resident: bool, sanitize: bool) -> None:
    made = compile_layers(LAYERS, only_runs(is_resident), Options(memory={"l1": l1}))
    kernels = kernels_of(made)
    names = {kernel.name.removesuffix("_sums").removesuffix("_nms") for kernel in kernels}
    assert names == {"neureka_runs", "neureka_depthwise_runs", "neureka_grouped_runs"}
    words = [kernel.macros(layer.node()) for kernel, layer in zip(kernels, LAYERS, strict=True) if kernel.macros is not None]
    for macro, word in (("UPRIGHT", "upright"), ("LINEAR", "linear")):
        assert 2 <= sum(word in each[macro] for each in words) < len(words), "with and without"
    macs = [call.geometry.macs() for call in made.plan.program.calls]
    assert macs == [layer.node().outputs[0].elements * layer.constants[0][0].size for layer in LAYERS]
    assert l1 > 200_000 or max(made.plan.tiling(step).tiles for step in range(len(LAYERS))) > 2
    check(made, LAYERS, tmp_path, sanitize=sanitize)


@pytest.mark.parametrize(
    ("taps", "dilations", "runs"),
    [
        ((5, 5), (1, 1), (5, 1)),
        ((1, 7), (1, 1), (1, 1)),
        ((7, 1), (1, 1), (1, 1)),
        ((5, 3), (1, 1), (1, 3)),
        ((5, 3), (2, 1), (5, 1)),
        ((3, 5), (1, 2), (1, 5)),
        ((3, 3), (2, 2), (3, 3)),
        ((1, 3), (1, 4), (1, 3)),
    ],
)
def test_runs_lie_along_the_longer_side_whose_taps_are_neighbours(
    taps: tuple[int, int], dilations: tuple[int, int], runs: tuple[int, int]
) -> None:
    node = windowed((1, 12, 12, 16), 8, taps, dilations=dilations, pads=(4, 4, 4, 4)).node()
    assert count_runs(node) == runs
    assert has_upright_runs(node) == (dilations[0] == 1 and taps[0] > (taps[1] if dilations[1] == 1 else 1))


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (image((1, 9, 9, 64), 8, 3, group=2), "24 channels of outputs"),
        (image((1, 9, 9, 32), 8, 1), "a window of several pixels"),
        (image((1, 9, 9, 3), 8, 3), "runs of 16 bytes"),
        (product((3, 20), 4), "a convolution"),
    ],
)
def test_what_has_no_runs_has_a_reason(layer: Layer, reason: str) -> None:
    problems = [list_mismatches(kernel, layer.node()) for kernel in KERNELS]
    assert all(problems) and (layer.op != "Conv" or any(reason in str(each) for each in problems)), problems
