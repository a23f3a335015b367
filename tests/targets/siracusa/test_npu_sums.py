"""Layers whose sums N-EUREKA computes and cores requantise: the parameters of that, and the C of such layers on the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeploy.ir import epilogue
from deeploy.options import Options
from deeploy.planning.plan import Buffering
from deeploy.target import Target, load
from targets.siracusa.npu_kernels import KERNELS
from targets.siracusa.sums import FREE, Channels, channel_parameters

from .npu_networks import Array, Layer, check, compile_layers, kernels_of
from .test_npu_kernels import LAYERS, ONE, image, product

WIDE = -1


def computed(acc: Array, found: Channels, shift: int, mul: Array, add: Array, even: int | None) -> Array:
    """What ``pulp_requantise_sums.c`` makes of sums [N, K], before it clips: in 32 bits but for channels that need 64."""
    packed = found.add >> 32
    bits, right, centre, said = packed & 31, packed >> 5 & 31, packed >> 10, found.mul >> 32
    limit = np.where(said < WIDE, -2 - said, said)
    factor, summand = found.mul & 0x7FFFFFFF, (found.add & 0xFFFFFFFF).astype(np.uint32).astype(np.int32).astype(np.int64)
    near = np.clip(acc + np.where(limit == FREE, 0, centre), -limit - 1, limit)
    earlier = np.random.default_rng(0).choice([-128, 0, 255], acc.shape)  # the ends of what the kernel may add, and nothing
    earlier[:, said < WIDE] = 0
    low, high = near * (factor & ((1 << bits) - 1)) + earlier, near * (factor >> bits)
    total = (low >> bits) + high + summand
    is_wide = limit == WIDE
    for values in (low, high, total, (low >> bits) + high):
        assert (np.abs(np.where(is_wide, 0, values)) < 2**31).all(), "it needs more than 32 bits"
    exact = epilogue.shift_right(acc * mul + add, shift, even)
    return np.where(is_wide, exact, total >> right)


@pytest.mark.parametrize("even", [None, 0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_parameters_step_at_the_same_sums(seed: int, even: int | None) -> None:
    random = np.random.default_rng(seed)
    count, size = 48, 1 << int(random.integers(8, 23))
    least, most = -random.integers(size // 2, size, count), random.integers(size // 2, size, count)
    shift = int(random.integers(20, 45))
    scale = random.uniform(0.2, 4, count) * 256 / (2 * size)
    mul = np.clip(scale * 2.0**shift, 1, 2**31 - 1).astype(np.int64)
    add = (random.integers(-200, 200, count) << shift) + (1 << shift >> 1)
    low, high = (-128, 127) if seed % 2 else (-20, 100)
    found = channel_parameters(mul, add, shift, (low, high), even, least, most)
    assert found is not None
    assert size > 1 << 18 or (found.mul >> 32 == WIDE).mean() < 0.1, "nearly all channels need 32 bits"
    acc = np.concatenate([random.integers(least, most, (4000, count), endpoint=True), [least, most]])
    ties = np.clip(((np.arange(low, high + 1)[:, None] << shift) - add) // mul + [[[-1]], [[0]], [[1]]], least, most).reshape(-1, count)
    acc = np.concatenate([acc, ties])
    wanted = np.clip(epilogue.shift_right(acc * mul + add, shift, even), low, high)
    assert (np.clip(computed(acc, found, shift, mul, add, even), low, high) == wanted).all()


@pytest.mark.parametrize("even", [None, 0])
def test_channels_with_one_output_are_as_fast_as_others(even: int | None) -> None:
    """Those whose weights are zero, and those whose sums all are beyond one end of the range; cores add to an earlier result."""
    mul, shift, limits = np.array([1, 1327, 2**31 - 1, 2**30, 2**30]), 38, (-128, 127)
    add = np.array([-130, 90, 500, -(2**20), 0]) << shift
    least, most = np.array([0, 0, 0, -1000, -1000]), np.array([0, 0, 0, 1000, 1000])
    found = channel_parameters(mul, add, shift, limits, even, least, most)
    assert found is not None
    assert (found.mul[:4] >> 32 == FREE).all() and (found.mul[:4] & 0x7FFFFFFF == 0).all() and found.mul[4] & 0x7FFFFFFF
    acc = np.stack([least, most, (least + most) // 2])
    wanted = np.clip(epilogue.shift_right(acc * mul + add, shift, even), *limits)
    assert (np.clip(computed(acc, found, shift, mul, add, even), *limits) == wanted).all()


def test_what_no_form_has_room_for_is_refused() -> None:
    one = np.array([1])
    assert channel_parameters(-one, one, 20, (-128, 127), None, -one, one) is None
    assert channel_parameters(one, one, 60, (-128, 127), None, -one, one) is None
    assert channel_parameters(one << 31, one, 20, (-128, 127), None, -one, one) is None
    assert channel_parameters(one, one, 20, (-128, 127), None, -one, one << 31) is None


def exactly(layer: Layer) -> Layer:
    """The layer with a requantisation as QDQ graphs have it: factors of 31 bits, summands of 64."""
    random = np.random.default_rng(layer.x.shape)
    w, count = layer.constants[0], layer.constants[0].shape[0]
    size = np.abs(w.astype(np.int64)).reshape(count, -1).sum(axis=1) * 40.0
    shift = 30 + int(np.log2(max(1.0, size.min() / 128)))
    mul = np.clip(128 / size * random.uniform(0.5, 1.5, count) * 2.0**shift, 1, 2**31 - 1).astype(np.int32)
    zero_point = 0 if layer.y == "s8" else 100
    add = np.full(count, (1 << shift >> 1) + (zero_point << shift), np.int64)
    bias = random.integers(-2000, 2000, count).astype(np.int32)
    attrs: dict[str, Any] = {**layer.attrs, "epilogue": ("bias", "requantise"), "shift": shift}
    return replace(layer, constants=(w, bias, mul, add), attrs=attrs)


def looked_up(layer: Layer) -> Layer:
    """The layer with a table of its results as the last stage."""
    low, high = layer.attrs["low"], layer.attrs["high"]
    table = np.random.default_rng(3).integers(*layer.node().outputs[0].dtype.range, high - low + 1, endpoint=True)
    attrs = {**layer.attrs, "epilogue": (*layer.attrs["epilogue"], "lookup")}
    return replace(layer, constants=(*layer.constants, table.astype(layer.node().outputs[0].dtype.numpy)), attrs=attrs)


SUMS = [exactly(layer) for layer in LAYERS if layer.y != "s32" and layer.x.size > 1]
SUMS += [
    replace(exactly(image((1, 9, 7, 20), 5, 1, "s8")), attrs={**exactly(image((1, 9, 7, 20), 5, 1, "s8")).attrs, "low": -20, "even": 1}),
    exactly(image((1, 6, 5, 30), 12, 3, "s8", "u8", pads=ONE, zero_point=-9)),
    exactly(product((1, 50), 10, a_zero_point=-5)),
]
SUMS += [looked_up(layer) for layer in SUMS[:2]]


def only_sums(is_resident: bool) -> Target:
    """Siracusa with the kernels alone whose sums cores requantise."""
    return replace(load("siracusa"), kernels=tuple(k for k in KERNELS if k.post_processing is not None and bool(k.resident) == is_resident))


@pytest.mark.parametrize(("l1", "buffering", "is_resident"), [(240_000, "auto", True), (40_000, "double", False), (40_000, "single", True)])
def test_layers_are_what_the_references_give(tmp_path: Path, l1: int, buffering: Buffering, is_resident: bool) -> None:
    made = compile_layers(SUMS, only_sums(is_resident), Options(memory={"l1": l1}, buffering=buffering))
    names = {kernel.name.removesuffix("_sums").removesuffix("_nms") for kernel in kernels_of(made)}
    every = (
        "pointwise",
        "dense",
        "depthwise",
        "product",
        "patches",
        "windows",
        "depthwise_all",
        "dense_all",
        "depthwise_dilated",
        "dense_dilated",
    )
    assert names <= {f"neureka_{name}" for name in every} and len(names) >= 6, names
    tiles = [made.plan.tiling(step).tiles for step in range(len(SUMS))]
    assert (max(tiles) > 1) == (l1 < 200_000) or buffering == "auto", tiles
    check(made, SUMS, tmp_path)


def test_what_the_engine_requantises_itself_it_does() -> None:
    """Unless it does so in parts along a reduction: sums that it adds to are never requantised by it."""
    for kernel in KERNELS:
        if kernel.post_processing is not None and kernel.requires is not None:
            nodes = [layer.node() for layer in LAYERS if layer.op == kernel.op]
            assert all(kernel.requires(node) is not None for node in nodes if not kernel.nest(node).accumulated), kernel.name
    assert sum(kernel.name.endswith("_parts") for kernel in KERNELS) == 3


def test_sums_of_a_product_take_four_bytes_each() -> None:
    """Encoded weights have an axis of 32 bytes more, which the sums have not."""
    kernel = next(kernel for kernel in KERNELS if kernel.name == "neureka_product_sums")
    layer = exactly(product((1, 50), 10))
    assert kernel.scratch["sums"].total(layer.node(), {"m": 6, "n": 32, "k": 50, "byte": 32}) == 4 * 6 * 32
