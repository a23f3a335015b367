"""Cheaper forms of requantisations: the same results for every accumulator in the range, and no value beyond 32 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeploy.ir.epilogue import clip_shifted
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.operators.requantise import fold_table, narrow_words, of_node
from deeploy.operators.staircase import WORD, StaircaseRequantisation, cheapest_form


def requantise(x: np.ndarray, mul: np.ndarray, add: np.ndarray, shift: int, low: int, high: int, even: int | None) -> np.ndarray:
    return clip_shifted(
        {"shift": shift, "low": low, "high": high, "even": even}, x.astype(np.int64) * mul.astype(np.int64) + add.astype(np.int64)
    )


def apply(form: StaircaseRequantisation, acc: np.ndarray, channel: int, low: int, high: int) -> np.ndarray:
    """What the C does with the constants, step by step within 32 bits."""

    def word(value: np.ndarray) -> np.ndarray:
        assert value.min() >= -WORD and value.max() < WORD
        return value

    mul, add = (int(a.astype(np.int64)[min(channel, a.size - 1)]) for a in (form.mul, form.add))
    if form.limit is not None:
        acc = np.clip(acc, -form.limit - 1, form.limit)
    if form.form == "narrow":
        return np.asarray(np.clip(word(word(acc * mul) + add) >> form.shift, low, high))
    if form.form == "split":
        lower, upper = mul & 0xFFFFFFFF, mul >> 32
        assert 0 <= lower < 1 << form.bits and 0 <= upper < WORD
        part = word(acc * lower) >> form.bits
        return np.asarray(np.clip(word(word(part + word(acc * upper)) + add) >> form.shift, low, high))
    high_half = (word(acc << form.left) * mul) >> 32
    return np.asarray(np.clip(word(high_half + add) >> form.shift, low, high))


def check(
    mul: np.ndarray,
    add: np.ndarray,
    shift: int,
    low: int,
    high: int,
    even: int | None,
    least: np.ndarray,
    most: np.ndarray,
    has_split: bool = False,
) -> StaircaseRequantisation:
    """Compare the cheapest form with the 64-bit one on all accumulators near a step, on the ends, and on some between."""
    form = cheapest_form(mul, add, shift, low, high, even, least, most, has_split)
    if form.form == "split":
        assert form.mul.shape == form.add.shape and form.mul.size in (1, len(least)) and form.mul.dtype == np.int64
    else:
        assert (form.mul.shape, form.add.shape) == (mul.shape, add.shape)
    if form.form == "wide":
        return form
    assert form.mul.dtype == (np.int64 if form.form == "split" else np.int32) and form.add.dtype == np.int32 and 0 <= form.shift < 32
    for channel in range(len(least)):
        m, a = int(mul[min(channel, mul.size - 1)]), int(add[min(channel, add.size - 1)])
        near = [((step << shift) - a) // m + d for step in range(low, high + 2) for d in (-1, 0, 1)] if m else []
        points = np.concatenate([np.linspace(least[channel], most[channel], 101).astype(np.int64), np.array(near, np.int64)])
        acc = np.unique(np.clip(points, least[channel], most[channel]))
        np.testing.assert_array_equal(
            apply(form, acc, channel, low, high), requantise(acc, np.array(m), np.array(a), shift, low, high, even)
        )
    return form


RANGES = st.tuples(st.integers(0, 2**24), st.integers(0, 2**24))


@settings(max_examples=150, deadline=None)
@given(
    muls=st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=3),
    reach=st.lists(RANGES, min_size=3, max_size=3),
    steps=st.integers(3, 14),
    zero=st.integers(-128, 127),
    even=st.sampled_from([None, 0, 1]),
    scalar=st.booleans(),
    has_split=st.booleans(),
)
def test_the_same_results(
    muls: list[int], reach: list[tuple[int, int]], steps: int, zero: int, even: int | None, scalar: bool, has_split: bool
) -> None:
    shift = min(53, max(1, max(muls).bit_length() + steps))
    add = np.array([(zero << shift) + (1 << (shift - 1))] * (1 if scalar else len(muls)), np.int64)
    ends = reach[: len(muls)]
    least, most = (np.array([sign * end[i] for end in ends], np.int64) for i, sign in ((0, -1), (1, 1)))
    check(np.array(muls, np.int32), add, shift, -128, 127, even, least, most, has_split)


def test_small_multipliers_stay_in_32_bits() -> None:
    mul, add = np.array([514], np.int32), np.array([32768], np.int32)
    form = check(mul, add, 16, 0, 255, None, np.array([-20_000_000]), np.array([20_000_000]))
    assert (form.form, form.limit is not None) == ("narrow", True)
    assert check(mul, add, 16, 0, 255, None, np.array([-2_000_000]), np.array([2_000_000])).limit is None


def test_multipliers_are_rounded_when_they_are_shortened() -> None:
    """Cut off, they would be further away, and miss a step."""
    for multiplier, reach, shift in ((27384959, 9261, 31), (12797809, 17010, 31), (2580015, 10369, 29)):
        mul, add = np.array([multiplier], np.int32), np.array([1 << (shift - 1)], np.int64)
        assert check(mul, add, shift, -128, 127, None, np.array([-reach]), np.array([reach])).form == "narrow"


@pytest.mark.parametrize("even", [None, 0])
def test_large_multipliers_use_the_upper_half(even: int | None) -> None:
    mul = np.array([1192384022, 497609111], np.int32)
    add = np.array([68543442544075, -131764180971375], np.int64)
    assert check(mul, add, 37, -128, 127, even, np.array([-1_000_000] * 2), np.array([1_000_000] * 2)).form == "high"


@pytest.mark.parametrize("even", [None, 0])
def test_factors_of_two_parts(even: int | None) -> None:
    """Without a limit, behind one, and one for all channels; steps too far from zero take the upper half."""
    rng = np.random.default_rng(3)
    mul, add = rng.integers(2**29, 2**31, 64).astype(np.int32), np.full(64, 5 << 38, np.int64)
    least, most = np.full(64, -100_000), np.full(64, 100_000)
    assert (form := check(mul, add, 39, -128, 127, even, least, most, True)).form == "split" and form.limit is None
    form = check(mul, add, 39, -128, 127, even, 30 * least, 30 * most, True)
    assert form.form == "split" and form.limit is not None
    form = check(mul[:1], add[:1], 39, -128, 127, even, least, most, True)
    assert form.form == "split" and form.mul.shape == (1,)
    assert check(mul, add, 42, -128, 127, even, 30 * least, 30 * most, True).form != "split"


def test_what_has_no_cheaper_form() -> None:
    ends = np.array([-100]), np.array([100])
    assert check(np.array([0], np.int32), np.array([2**40]), 38, -128, 127, None, *ends).form == "wide"
    assert check(np.array([-3], np.int32), np.array([5]), 2, -128, 127, None, *ends).form == "narrow"
    assert check(np.array([5], np.int32), np.array([1]), 60, -128, 127, None, *ends).form == "wide"


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    largest=st.sampled_from([0, 100, 2**20, 2**30]),
    bits=st.integers(2, 31),
    op=st.sampled_from(["MatMul", "Conv", "ReduceSum"]),
)
def test_forms_of_nodes_hold_for_all_that_reaches_them(seed: int, largest: int, bits: int, op: str) -> None:
    """The most and the least that a product with constant weights can be, bias included."""
    random = np.random.default_rng(seed)
    channels, depth = 3, 4
    w = random.integers(-128, 128, (channels, depth)).astype(np.int8)
    bias = random.integers(-largest, largest + 1, channels).astype(np.int32)
    mul = random.integers(1, 2**bits, channels).astype(np.int32)
    positive, negative = np.maximum(w.astype(np.int64), 0).sum(1), np.minimum(w.astype(np.int64), 0).sum(1)
    sums = np.array([negative * 127 - positive * 128, positive * 127 - negative * 128])
    sums = np.clip(sums + bias, -WORD, WORD - 1) - bias
    shift = max(1, bits + int(np.abs(sums).max()).bit_length() - 9)
    add = np.full(channels, 1 << (shift - 1), np.int64)
    attrs = {"epilogue": ("bias", "requantise"), "shift": shift, "low": -128, "high": 127}
    own = {
        "MatMul": {"a_zero_point": 0, "b_zero_point": 0, "trans_a": False, "trans_b": True},
        "Conv": {},
        "ReduceSum": {"axes": (0,)},
    }[op]
    x = {"MatMul": [2, depth], "Conv": [1, 1, 1, depth], "ReduceSum": [2, channels]}[op]
    weights = [] if op == "ReduceSum" else [w if op == "MatMul" else w.reshape(channels, 1, 1, depth)]
    constants = [Tensor(f"c{i}", array.shape, DType.of(array.dtype), array) for i, array in enumerate([*weights, bias, mul, add])]
    first = Tensor("x", tuple(x), DType.INT32 if op == "ReduceSum" else DType.INT8)
    node = Node("node", op, (first, *constants), (Tensor("y", (2, channels), DType.INT8),), {**attrs, **own})
    form = of_node(node)
    assert form is not None
    if form.form == "wide":
        return
    for channel in range(channels):
        acc = np.linspace(*sums[:, channel], 101).astype(np.int64)
        m, b = int(mul[channel]), int(bias[channel])
        wanted = requantise(acc + b, np.array(m), np.array(1 << (shift - 1)), shift, -128, 127, None)
        given_to_form = acc if op == "ReduceSum" else acc + b
        np.testing.assert_array_equal(apply(form, given_to_form, channel, -128, 127), wanted)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), even=st.sampled_from([None, 0, 1]), divisor=st.integers(0, 4), factor=st.sampled_from([1, 3]))
def test_a_requantisation_that_is_joined_with_another_gives_the_same(seed: int, even: int | None, divisor: int, factor: int) -> None:
    """For every number of 16 bits. One by a shift that leaves several results is joined, unless ties of the first go to even steps."""
    random = np.random.default_rng(seed)
    channels, shift = int(random.choice([1, 5])), int(random.integers(8, 20))
    mul, add = random.integers(1, 2**12, channels).astype(np.int32), random.integers(-(2 ** (shift + 6)), 2 ** (shift + 6), channels)
    low, high = int(random.integers(-128, 0)), int(random.integers(1, 128))
    rounded = (np.arange(low, high + 1) * factor + int(random.integers(0, 1 << divisor))) >> divisor
    results = np.clip(rounded, -100, 110)
    attrs = {"shift": shift, "low": low, "high": high} | ({} if even is None else {"even": even})
    operands = [Tensor(name, array.shape, DType.of(array.dtype), array) for name, array in (("mul", mul), ("add", add))]
    x, y = Tensor("x", (4, 5), DType.INT16), Tensor("y", (4, 5), DType.INT8)
    found = fold_table(Node("node", "RequantShift", (x, *operands), (y,), attrs), results)
    if found is None:
        assert even is not None or factor > 1 or results[0] == results[-1]
        return
    acc = np.arange(-(2**15), 2**15)[:, None]
    wanted = results[requantise(acc, mul, add, shift, low, high, even) - low]
    np.testing.assert_array_equal(requantise(acc, found.mul, found.add, found.shift, found.low, found.high, None), wanted)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), bits=st.integers(20, 31), even=st.sampled_from([None, 0]))
def test_upper_words_of_products_give_the_same(seed: int, bits: int, even: int | None) -> None:
    """For every sum that constant weights allow, of channels whose factors differ by orders of magnitude, and of one that is constant."""
    random = np.random.default_rng(seed)
    channels, depth = 4, 12
    w = random.integers(-128, 128, (channels, depth)).astype(np.int8)
    bias = random.integers(-(2**12), 2**12, channels).astype(np.int32)
    mul = np.array([2**bits - 1 - int(random.integers(2 ** (bits - 2))), 2 ** (bits - 6), int(random.integers(1, 200)), 1], np.int32)
    shift = bits + int(random.integers(7, 12))
    add = random.integers(-(2 ** (shift + 6)), 2 ** (shift + 6), channels)
    attrs = {"epilogue": ("bias", "requantise"), "shift": shift, "low": -128, "high": 127} | ({} if even is None else {"even": even})
    constants = [Tensor(f"c{i}", a.shape, DType.of(a.dtype), a) for i, a in enumerate((w.reshape(channels, 1, 1, depth), bias, mul, add))]
    x, y = Tensor("x", (1, 1, 1, depth), DType.INT8), Tensor("y", (1, 1, 1, channels), DType.INT8)
    found = narrow_words(Node("node", "Conv", (x, *constants), (y,), attrs))
    assert (found is None) <= (shift < 32 or even is not None)
    if found is None:
        return
    factor, both = found
    assert factor.dtype == np.int32 and both.dtype == np.int64
    reach = np.abs(w.astype(np.int64)).sum(axis=1) * 128
    for channel, wide in enumerate(reach):
        acc = np.unique(np.linspace(-wide, wide, 5001).astype(np.int64))
        acc = acc[np.abs(acc) <= 127 * np.abs(w[channel].astype(np.int64)).sum()]
        before = acc + both[channel].astype(np.int32)
        assert before.min() >= -WORD and before.max() < WORD
        after = (before * factor[channel] >> 32) + (both[channel] >> 32)
        assert after.min() >= -WORD and after.max() < WORD
        wanted = requantise(acc + bias[channel], mul[channel], add[channel], shift, -128, 127, even)
        np.testing.assert_array_equal(np.clip(after >> (shift - 32), -128, 127), wanted)
