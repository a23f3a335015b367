"""N-EUREKA's kernels as the compiler uses them: tiles, borders, strides and encodings against the references, on the host."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeploy.ir.target import Rate
from deeploy.ir.templates import template_lookup
from deeploy.options import Options
from deeploy.planning.binding.kernels import list_mismatches
from deeploy.target import Target, load
from targets.siracusa import npu
from targets.siracusa.npu import Mode
from targets.siracusa.npu_kernels import KERNELS
from tests.targets.siracusa.neureka_model import busy

from .npu_networks import Array, Layer, check, compile_layers, kernels_of

IMAGE: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "group": 1, "zero_point": 0}
PRODUCT: dict[str, Any] = {"trans_a": False, "trans_b": True, "a_zero_point": 0, "b_zero_point": 0}
RANGES = {"s8": (-128, 127), "u8": (0, 255)}


def only_npu(is_resident: bool = False, without: str = "none") -> Target:
    """Siracusa with N-EUREKA's kernels alone: those with weights in their own memory, or in L1."""
    kernels = (kernel for kernel in KERNELS if bool(kernel.resident) == is_resident and without not in kernel.name)
    return replace(load("siracusa"), kernels=tuple(kernels))


def requantised(random: np.random.Generator, channels: int, depth: int, y: str) -> tuple[tuple[Array, ...], dict[str, Any]]:
    """A bias and a requantisation that spreads sums of ``depth`` products over the type of y."""
    low, high = RANGES[y]
    bias = random.integers(-2000, 2000, channels).astype(np.int32)
    mul = random.integers(1 << 9, 1 << 10, channels).astype(np.int32)
    shift = 9 + max(4, int(np.log2(max(1, depth)) / 2) + 5)
    add = np.full(channels, 1 << (shift - 1), np.int32)
    return (bias, mul, add), {"epilogue": ("bias", "requantise"), "shift": shift, "low": low, "high": high}


def draw(random: np.random.Generator, kind: str, *shape: int) -> Array:
    info = np.iinfo(np.int8 if kind == "s8" else np.uint8)
    return np.asarray(random.integers(info.min, info.max + 1, shape).astype(info.dtype))


def image(shape: tuple[int, ...], filters: int, taps: int, x: str = "u8", y: str = "s8", spread: int = 30, **attrs: Any) -> Layer:
    """A convolution of ``shape`` [N,H,W,C]; ``group`` = C makes it depthwise; y of "s32" leaves the sums."""
    random = np.random.default_rng([*shape, filters, taps])
    attrs = {**IMAGE, **attrs}
    w = random.integers(-spread, spread, (filters, shape[3] // attrs["group"], taps, taps)).astype(np.int8)
    constants, epilogue = requantised(random, filters, w[0].size * spread * spread, y) if y != "s32" else ((), {})
    return Layer("Conv", draw(random, x, *shape), (w, *constants), y, attrs | epilogue)


def product(shape: tuple[int, ...], columns: int, x: str = "s8", y: str = "s8", **attrs: Any) -> Layer:
    """A product of ``shape`` [..., M, K] with a constant."""
    random = np.random.default_rng([*shape, columns])
    b = random.integers(-60, 60, (columns, shape[-1])).astype(np.int8)
    constants, epilogue = requantised(random, columns, shape[-1] * 3600, y) if y != "s32" else ((), {})
    return Layer("MatMul", draw(random, x, *shape), (b, *constants), y, {**PRODUCT, **attrs} | epilogue)


ONE = (1, 1, 1, 1)
LAYERS = [
    image((1, 7, 9, 33), 35, 1),
    image((1, 25, 5, 64), 64, 1, y="u8"),
    image((1, 9, 11, 17), 40, 1, "s8", strides=(2, 2)),
    image((2, 5, 4, 8), 70, 1, strides=(1, 2)),
    image((1, 13, 8, 40), 33, 1, "s8", "s32"),
    image((1, 1, 1, 1), 1, 1),
    image((1, 12, 12, 29), 33, 3, pads=ONE),
    image((1, 8, 15, 3), 16, 3, "s8", "u8", pads=ONE, zero_point=-7),
    image((2, 7, 7, 30), 9, 3, pads=(1, 0, 0, 1), spread=2),
    image((1, 14, 6, 12), 70, 3, "u8", "s32", pads=(0, 1, 1, 0)),
    image((1, 3, 3, 5), 4, 3),
    image((1, 20, 5, 64), 64, 3, y="u8", pads=ONE, group=64),
    image((1, 11, 13, 29), 29, 3, "s8", pads=ONE, group=29, zero_point=3),
    image((1, 9, 8, 57), 57, 3, "u8", "s32", pads=(1, 1, 0, 0), group=57),
    image((1, 20, 13, 1), 64, 10, "u8", "u8", strides=(2, 2)),
    image((1, 13, 12, 3), 8, 3, "s8", strides=(2, 2), pads=ONE, zero_point=5),
    image((2, 9, 8, 20), 40, 3, strides=(2, 1), pads=(0, 1, 1, 0)),
    image((1, 10, 9, 6), 7, 3, "u8", "s32", dilations=(2, 3), pads=(2, 3, 2, 3)),
    image((1, 11, 13, 20), 40, 3, "s8", dilations=(2, 2), pads=(2, 2, 2, 2), zero_point=5),
    image((2, 12, 15, 33), 33, 3, "u8", "u8", dilations=(3, 3), pads=(3, 1, 2, 3), group=33, zero_point=7),
    image((1, 10, 9, 30), 9, 3, "u8", "s32", dilations=(4, 4), pads=(4, 3, 4, 0)),
    image((1, 17, 16, 30), 30, 3, strides=(2, 2), pads=ONE, group=30, zero_point=2),
    image((2, 14, 7, 8), 8, 3, "s8", "u8", strides=(1, 2), pads=(1, 1, 0, 1), group=8),
    image((1, 30, 9, 65), 65, 3, strides=(2, 2), pads=(0, 0, 1, 1), group=65),
    product((37, 40), 65),
    product((1, 6, 100), 33, "u8", "u8"),
    product((3, 5, 31), 8),
    product((1, 130), 128, y="s32"),
]


@pytest.mark.parametrize(("l1", "is_resident"), [(240_000, False), (16_000, True), (22_000, False)])
def test_layers_are_what_the_references_give(tmp_path: Path, l1: int, is_resident: bool) -> None:
    made = compile_layers(LAYERS, only_npu(is_resident), Options(memory={"l1": l1}, buffering="single" if l1 > 200_000 else "auto"))
    assert all(kernel.engine == "npu" for kernel in kernels_of(made))
    program = made.plan.program
    tiles = [made.plan.tiling(step).tiles for step in range(len(LAYERS))]
    buffers = [[program.buffers[operand.buffer] for operand in call.operands.values()] for call in program.calls]
    whole = [sum(buffer.bytes for buffer in used if not buffer.memory) for used in buffers]  # weights may lie in a memory of their own
    assert all(n > 1 for n, needed in zip(tiles, whole, strict=True) if needed > l1), "what does not fit is cut"
    assert max(tiles) == 1 if l1 > 200_000 else sum(n > 1 for n in tiles) >= 3, tiles
    weights = [call.operands[call.kernel.inputs[1]].buffer for call in made.plan.program.calls]
    assert all((made.plan.residences[name] == "WM") == is_resident for name in weights)
    check(made, LAYERS, tmp_path)


def test_single_buffers_under_the_sanitizers(tmp_path: Path) -> None:
    layers = [layer for number, layer in enumerate(LAYERS) if number % 3 == 0]
    check(compile_layers(layers, only_npu(), Options(memory={"l1": 22_000}, buffering="single")), layers, tmp_path, sanitize=True)


@pytest.mark.parametrize("l1", [240_000, 30_000])
def test_windows_of_one_column_of_outputs(tmp_path: Path, l1: int) -> None:
    """Outputs follow each other row after row: along the axis of extent 1 nothing is stepped."""
    layers = [image((1, 40, 5, 10), 70, 5, spread=5), image((2, 30, 5, 9), 33, 5, y="s32", spread=5)]
    made = compile_layers(layers, only_npu(without="patches"), Options(memory={"l1": l1}))
    assert {kernel.name for kernel in kernels_of(made)} == {"neureka_windows"}
    assert (made.plan.tiling(0).tiles > 1) == (l1 < 200_000)
    check(made, layers, tmp_path)


def test_jobs_of_linear_images_take_all_of_their_pixels() -> None:
    """An image whose rows follow each other may be computed as one of another shape, where that fills the engine better."""
    tile = template_lookup(tuple(load("siracusa").template_folders)).get_template("neureka.mako").get_def("tile")
    jobs = 0
    for height, width in itertools.product((1, 2, 3), range(1, 70)):
        sizes = {"height": height, "width": width, "channels_in": 4, "channels_out": 4, "x_pixel": 4, "y_pixel": 16}
        sizes |= {"x_row": 4 * width, "y_row": 16 * width} | dict.fromkeys(("top", "left", "bottom", "right"), 0)
        text = tile.render("kernel", {"config": "0"}, {"weights": "w"}, sizes, (1, 0, 0), True)
        if "neureka_known_job" in text:
            job = {name: int(value) for name, value in re.findall(r"\.(\w+) = (\d+)", text)}
            for side, pixel in (("x", 4), ("y", 16)):
                rows, columns = np.arange(job["height"])[:, None] * job[f"{side}_row"], np.arange(job["width"]) * job[f"{side}_pixel"]
                np.testing.assert_array_equal(np.sort((rows + columns).ravel()), np.arange(height * width) * pixel)
            jobs += 1
    assert jobs > 100


def test_windows_in_patches_are_those_of_few_channels(tmp_path: Path) -> None:
    layers = [layer for layer in LAYERS if layer.op == "Conv" and layer.x.shape[3] <= 8 and layer.attrs["group"] == 1]
    patches = compile_layers(layers, only_npu(), Options())
    windows = compile_layers(layers, only_npu(without="patches"), Options())
    names = {kernel.name for kernel in kernels_of(patches)}
    assert "neureka_patches" in names and "neureka_patches" not in {kernel.name for kernel in kernels_of(windows)}
    check(windows, layers, tmp_path)


def test_multiply_accumulates_are_the_nodes_own() -> None:
    made = compile_layers(LAYERS, only_npu(True), Options())
    macs = [call.geometry.macs() for call in made.plan.program.calls]
    wanted = []
    for layer in LAYERS:
        w, outputs = layer.constants[0], layer.node().outputs[0].elements
        wanted.append(outputs * w.size // w.shape[0])
    assert macs == wanted


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (image((1, 8, 8, 40), 4, 5, pads=(2, 2, 2, 2)), "a window of at most"),
        (image((1, 9, 9, 8), 8, 5, group=8), "one group"),
        (image((1, 4, 90, 64), 64, 3, group=64, strides=(2, 2)), "rows of at most"),
        (image((1, 9, 9, 8), 8, 3, group=2, pads=ONE), "one group"),
        (product((2, 3, 5, 8), 4), "batch"),
    ],
)
def test_what_is_not_accepted_has_a_reason(layer: Layer, reason: str) -> None:
    node = layer.node()
    found = [list_mismatches(kernel, node) for kernel in KERNELS if kernel.op == node.op]
    assert all(found), "some kernel takes it"
    assert any(reason in text for problems in found for text in problems), found


def test_cycles_are_those_of_jobs() -> None:
    """The terms of timing.toml against the formula of jobs, which the simulator confirms."""
    timing = load("siracusa").timing
    assert timing is not None
    sizes = [(6, 6, 32, 32), (12, 12, 64, 64), (25, 5, 64, 64), (32, 32, 16, 16), (48, 48, 8, 16), (3, 3, 256, 256), (7, 13, 40, 33)]
    for mode in Mode:
        for is_resident in (False, True):
            rate = timing.kernel(f"neureka_{mode.name.lower()}{'_nms' if is_resident else ''}")
            for height, width, channels, filters in sizes:
                c = filters if mode is Mode.DEPTHWISE else channels
                layer = npu.EngineLayer(mode, bits=6, weight_offset=-32, scale_bits=16, shift=12, in_weight_memory=is_resident)
                is_near(rate, layer, height, width, c, filters)


def is_near(rate: Rate, layer: npu.EngineLayer, height: int, width: int, channels: int, filters: int) -> None:
    """A rate is about what the formula says of a job."""
    extents = {"n": 1, "oh": height, "ow": width, "k": filters, "c": channels, "bit": 6}
    terms = [(each, [factor.partition("/") for factor in text.split()]) for text, each in rate.per.items()]
    found = sum(each * math.prod(-(-extents[d] // int(step or 1)) for d, _, step in factors) for each, factors in terms)
    wanted = busy(layer, height, width, channels, filters)
    assert abs(found - wanted) < 0.08 * wanted, (layer, height, width, channels, filters)


@pytest.mark.parametrize("mode", [Mode.DENSE, Mode.POINTWISE])
def test_cycles_of_parts_are_those_of_jobs_that_add(mode: Mode) -> None:
    """What comes in of the sums is as many pixels as a subtile may have, however few it has."""
    timing = load("siracusa").timing
    assert timing is not None
    rate = timing.kernel(f"neureka_{mode.name.lower()}_parts")
    layer = npu.EngineLayer(mode, "s8", "s32", 6, -32, accumulate=True)
    for height, width, channels, filters in [
        (6, 6, 32, 32),
        (12, 12, 64, 64),
        (25, 5, 64, 64),
        (3, 3, 256, 256),
        (7, 13, 40, 33),
        (1, 1, 300, 64),
    ]:
        is_near(rate, layer, height, width, channels, filters)
