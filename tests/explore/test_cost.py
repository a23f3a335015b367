"""The cost model against the paper's formulas, and against counting cycle by cycle."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deeploy.explore.cost import INNER, Assumptions, count_pixels, evaluate_unrollings
from deeploy.explore.hardware import Hardware, parse_hardware
from deeploy.explore.unrollings import enumerate_unrollings
from deeploy.ir.loops import LOOPS, LayerLoops
from tests.explore.accelerators import data, separate, shared


def layer(**sizes: int) -> LayerLoops:
    return LayerLoops("layer", tuple(sizes.get(loop, 1) for loop in LOOPS))


def row(**factors: int) -> np.ndarray:
    return np.array([[factors.get(loop, 1) for loop in LOOPS]], np.int64)


def one(hardware: Hardware, y: LayerLoops, factors: np.ndarray, **assumptions: bool) -> dict[str, float]:
    costs = evaluate_unrollings(factors, [y], hardware, Assumptions(**assumptions))
    return {field.name: float(getattr(costs, field.name)[0, 0]) for field in dataclasses.fields(costs)}


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4))
def test_pixels_are_counted(outputs: int, taps: int, stride: int, dilation: int) -> None:
    different = len({stride * i + dilation * j for i in range(outputs) for j in range(taps)})
    assert count_pixels(np.array(outputs), np.array(taps), np.array(stride), np.array(dilation)) == different


def test_pixels_at_stride_one_are_the_papers() -> None:
    assert count_pixels(np.array(8), np.array(3), np.array(1), np.array(1)) == 8 + 3 - 1


@settings(max_examples=50)
@given(st.lists(st.integers(1, 40), min_size=7, max_size=7), st.lists(st.integers(1, 9), min_size=7, max_size=7))
def test_utilisation_is_the_papers(sizes: list[int], factors: list[int]) -> None:
    assume(math.prod(factors) <= 2**20)
    y = LayerLoops("layer", tuple(sizes))
    hardware = separate(math.prod(factors))
    found = one(hardware, y, np.array([factors]))
    expected = math.prod(d / (u * math.ceil(d / u)) for d, u in zip(sizes, factors, strict=True))
    assert found["utilisation"] == pytest.approx(expected)
    assert found["temporal"] == 1.0
    assert found["cycles"] == math.prod(math.ceil(d / u) for d, u in zip(sizes, factors, strict=True))


@settings(max_examples=50)
@given(
    st.lists(st.integers(1, 40), min_size=7, max_size=7),
    st.lists(st.integers(1, 9), min_size=7, max_size=7),
    st.sampled_from([16, 64, 1000]),
    st.sampled_from([16, 64, 1000]),
)
def test_multiply_accumulates_are_the_product_of_all_shares(sizes: list[int], factors: list[int], near: float, far: float) -> None:
    """Cycles times elements, times the share that is at work, times the share of cycles without a stall; bandwidth changes the last."""
    assume(math.prod(factors) < 2**20)
    entry = data(weight=near, input=near, output=near)
    behind = {**entry["memory"][0], "name": "behind", "operands": ["weight", "input", "output"], "capacity": 1 << 40, "bandwidth": far}
    pes = math.prod(factors) + 3
    y = LayerLoops("layer", tuple(sizes))
    found = one(parse_hardware({**entry, "pes": pes, "memory": [*entry["memory"], behind]}, "bound"), y, np.array([factors]))
    assert found["cycles"] * pes * found["utilisation"] * found["temporal"] == pytest.approx(math.prod(sizes))
    assert found["utilisation"] == pytest.approx(one(separate(pes), y, np.array([factors]))["utilisation"])
    assert found["temporal"] <= 1.0


CLASSIC = layer(K=64, C=32, OY=16, OX=16)
UNROLLED = row(K=4, C=2, OY=2, OX=4)  # W: 64 bits, I: 128 bits, O: 512 bits


@pytest.mark.parametrize(
    ("bandwidths", "inner", "temporal"),
    [
        ({"weight": 32, "input": 32, "output": 1024}, "K", 32 / 64),  # for K: W and O; inputs stay
        ({"weight": 64, "input": 128, "output": 100}, "C", 1.0),  # for C: W and I; sums stay
        ({"weight": 16, "input": 128, "output": 512}, "O", 1.0),  # for OX/OY: I and O; weights stay
        ({"weight": 32, "input": 32, "output": 32}, "C", min(32 / 64, 32 / 128)),
    ],
)
def test_temporal_utilisation_is_the_papers(bandwidths: dict[str, float], inner: str, temporal: float) -> None:
    """With energy equal for all loops, the loop with the best temporal utilisation wins."""
    entry = data(**bandwidths)
    for memory in entry["memory"]:
        memory["read_pj_per_bit"] = memory["write_pj_per_bit"] = 0.0
    entry["energy"]["mac_pj"] = 1.0
    found = one(parse_hardware(entry, "free"), CLASSIC, UNROLLED, stationary_needs_bandwidth=False)
    assert INNER[int(found["inner"])] == inner
    assert found["temporal"] == pytest.approx(temporal)


def test_a_stationary_operand_changes_once_a_run() -> None:
    """Sums of 32 bits x 16 cycles: with C innermost, 512 bits once in 16 cycles."""
    free = separate(output=16)
    found = one(free, CLASSIC, UNROLLED)
    assert INNER[int(found["inner"])] == "C"
    assert found["temporal"] == pytest.approx(16 / (512 / 16))
    assert one(free, CLASSIC, UNROLLED, stationary_needs_bandwidth=False)["temporal"] == 1.0


def test_operands_of_a_shared_memory_add_up() -> None:
    found = one(shared(64, 64), CLASSIC, UNROLLED, stationary_needs_bandwidth=False)
    assert found["temporal"] == pytest.approx(64 / (64 + 128))
    assert one(shared(64, 64), CLASSIC, UNROLLED, stationary_needs_bandwidth=False, port_per_operand=True)["temporal"] == pytest.approx(
        64 / 128
    )


def test_idle_lanes_need_bandwidth_as_in_the_formula() -> None:
    """A depthwise layer on unrolled K: the formula counts K lanes of outputs, one is at work."""
    depthwise = layer(G=8, OY=16, OX=16, FY=3, FX=3)
    starved = separate(64, output=64)
    found = one(starved, depthwise, row(K=16, OX=4), stationary_needs_bandwidth=True)
    at_rest = one(starved, depthwise, row(K=16, OX=4), idle_lanes_need_bandwidth=False)
    assert found["temporal"] == pytest.approx(64 / (16 * 16 * 4 / 9))
    assert at_rest["temporal"] == 1.0
    assert found["energy"] == at_rest["energy"]
    assert one(starved, depthwise, row(K=16, OX=4), idle_lanes_cost_energy=True)["energy"] > 8 * found["energy"]


def test_windows_share_columns_where_inputs_are_shifted() -> None:
    entry = data(input=32)
    entry["registers"]["shifts_inputs"] = True
    depthwise = layer(OX=30, FX=3)
    sharing = one(parse_hardware({**entry, "pes": 10}, "s"), depthwise, row(OX=10))
    alone = one(separate(10, input=32), depthwise, row(OX=10))
    assert INNER[int(sharing["inner"])] == "FX"
    assert sharing["temporal"] == pytest.approx(32 / (8 * 12 / 3))  # 12 columns in 3 cycles instead of 30
    assert alone["temporal"] == pytest.approx(32 / (8 * 10))


def test_registers_of_several_words_hold_a_tile() -> None:
    """Four sums per element: inputs stay for four cycles while sums stay all along."""
    entry = data(input=32)
    entry["registers"]["output"] = 4
    found = one(parse_hardware(entry, "r"), CLASSIC, UNROLLED, stationary_needs_bandwidth=True)
    assert found["temporal"] == pytest.approx(32 / (128 / 4))
    assert one(separate(input=32), CLASSIC, UNROLLED)["temporal"] < found["temporal"] * 2


def counted(y: LayerLoops, factors: np.ndarray, order: tuple[str, ...]) -> dict[str, int]:
    """Bits that cross between the array and its memories, cycle by cycle; ``order`` is outermost first.

    Every operand's lanes at work are fetched in full whenever the set of elements that they need changes.
    """
    unroll = dict(zip(LOOPS, (int(u) for u in factors[0]), strict=True))
    size = dict(zip(LOOPS, y.sizes, strict=True))
    steps = [range(math.ceil(size[loop] / unroll[loop])) for loop in order]
    moved = {"weight": 0, "input": 0, "write": 0, "read": 0}
    held: dict[str, frozenset[tuple[int, ...]]] = {}
    seen: set[tuple[int, ...]] = set()
    for at in itertools.product(*steps):
        step = dict(zip(order, at, strict=True))
        lanes = {loop: range(step[loop] * unroll[loop], min(size[loop], (step[loop] + 1) * unroll[loop])) for loop in LOOPS}
        g, k, c, oy, ox, fy, fx = (lanes[loop] for loop in LOOPS)
        need = {
            "weight": frozenset(itertools.product(g, k, c, fy, fx)),
            "input": frozenset(itertools.product(g, c, {a + b for a in oy for b in fy}, {a + b for a in ox for b in fx})),
            "output": frozenset(itertools.product(g, k, oy, ox)),
        }
        for operand in ("weight", "input"):
            moved[operand] += 8 * len(need[operand]) * (need[operand] != held.get(operand))
        if need["output"] != held.get("output"):
            moved["read"] += 16 * len(need["output"] & seen)
            moved["write"] += len(need["output"])
            seen |= need["output"]
        held = need
    return moved


@pytest.mark.parametrize("inner", ["C", "K", "O"])
def test_energy_is_what_counting_gives(inner: str) -> None:
    """One picojoule per bit: bits that a walk over all cycles moves."""
    y, factors = layer(K=6, C=4, OY=4, OX=5), row(K=2, C=2, OX=3)
    orders = {
        "C": ("G", "K", "OY", "OX", "FY", "FX", "C"),
        "K": ("G", "C", "OY", "OX", "FY", "FX", "K"),
        "O": ("G", "C", "K", "FY", "FX", "OY", "OX"),
    }
    moved = counted(y, factors, orders[inner])
    results = 6 * 4 * 5
    expected = moved["weight"] + moved["input"] + moved["read"] + (16 * (moved["write"] - results) + 8 * results)
    starved = {"C": "output", "K": "input", "O": "weight"}[inner]
    found = one(separate(12, **{starved: 16}), y, factors)
    assert INNER[int(found["inner"])] == inner
    assert found["energy"] == pytest.approx(expected)


def two_levels(capacity: int, bandwidth: float) -> Hardware:
    entry = data()
    for memory in entry["memory"]:
        memory.update(capacity=capacity, read_pj_per_bit=0.0, write_pj_per_bit=0.0)
    top = {**entry["memory"][0], "name": "top", "operands": ["weight", "input", "output"], "capacity": 1 << 30, "bandwidth": bandwidth}
    entry["memory"].append({**top, "read_pj_per_bit": 1.0, "write_pj_per_bit": 1.0})
    return parse_hardware(entry, "two levels")


def test_what_fits_moves_once_between_levels() -> None:
    found = one(two_levels(1 << 20, 1e9), CLASSIC, UNROLLED)
    assert found["energy"] == 8 * (64 * 32 + 32 * 256 + 64 * 256)


def test_what_does_not_fit_passes_by_again() -> None:
    """Weights of 2048 bytes in two pieces of 1024: 8192 bytes of inputs twice, or weights eight times: 16 KiB each, the same here."""
    found = one(two_levels(1024, 1e9), CLASSIC, UNROLLED)
    assert found["energy"] == 8 * (min(2048 + 2 * 8192, 8192 + 8 * 2048) + 64 * 256)


def test_the_level_behind_can_be_the_bottleneck() -> None:
    bits = 8 * (64 * 32 + 32 * 256 + 64 * 256)
    found = one(two_levels(1 << 20, 16), CLASSIC, UNROLLED)
    assert found["cycles"] == bits / 16
    assert found["temporal"] == pytest.approx(CLASSIC.macs / 64 / (bits / 16))


def test_chunks_agree_with_single_rows() -> None:
    layers = [CLASSIC, layer(G=16, OY=8, OX=8, FY=3, FX=3)]
    found = enumerate_unrollings(256, layers)
    assert len(found) > 512
    together = evaluate_unrollings(found.factors, layers, shared(256, 512))
    for index in (0, 511, 512, len(found) - 1):
        alone = evaluate_unrollings(found.factors[index : index + 1], layers, shared(256, 512))
        for field in dataclasses.fields(alone):
            np.testing.assert_array_equal(getattr(alone, field.name)[0], getattr(together, field.name)[index])
