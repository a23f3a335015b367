"""Expressions of one quantised tensor become one table, which gives the same bits; what depends on more stays as it is."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from deeploy.frontend.lower import tables
from tests.frontend.lower import lowered as build
from tests.frontend.lower.test_attention_rewrites import both, constant, named, requantisation

ENDS = {"low": -128, "high": 127}


class Expression:
    """A random graph of operators element by element, on one or two quantised tensors."""

    def __init__(self, random: np.random.Generator, inputs: int = 1) -> None:
        self.random = random
        self.inputs = [build.variable(f"x{i}", random.choice([np.int8, np.uint8]), [2, int(n)]) for i, n in enumerate([9] * inputs)]
        self.graph = gs.Graph([], list(self.inputs), [])

    def add(self, op: str, *inputs: gs.Tensor, dtype: object = np.int8, **attrs: object) -> gs.Tensor:
        return build.add(self.graph, op, inputs, named(self.graph, dtype, [2, 9]), **attrs)

    def number(self, dtype: object, low: float, high: float) -> gs.Constant:
        return build.const(f"c{self.random.integers(2**40)}", np.array([self.random.uniform(low, high)]).astype(dtype))

    def function(self, x: gs.Tensor) -> gs.Tensor:
        """A random function of an 8-bit tensor: a table, a requantisation, limits, or something in floats."""
        kind = self.random.integers(4)
        if kind == 0:
            return self.add("Lookup", x, constant(self.random, np.int8, 256))
        if kind == 1:
            operands, own = requantisation(self.random, self.random.uniform(0.1, 3), np.int8)
            own.pop("epilogue")
            return self.add("RequantShift", x, *operands, **own)
        if kind == 2:
            return self.add("Clip", x, dtype=x.dtype, low=-9, high=int(self.random.integers(40, 90)))
        real = self.add("Dequantize", x, self.number(np.float32, 0.01, 0.1), self.number(np.int32, -9, 9), dtype=np.float32)
        real = self.add("Unary", real, dtype=np.float32, function="tanh", alpha=0, beta=0)
        real = self.add("Div", real, self.number(np.float32, 1, 2), dtype=np.float32)
        return self.add("Quantize", real, self.number(np.float32, 0.01, 0.1), self.number(np.int32, -9, 9), **ENDS)

    def joined(self, a: gs.Tensor, b: gs.Tensor) -> gs.Tensor:
        """A random function of two 8-bit tensors."""
        kind, zeros = self.random.integers(4), {"a_zero_point": 3, "b_zero_point": -5}
        if kind == 0:
            operands, own = requantisation(self.random, self.random.uniform(0.002, 0.02), np.int8)
            return self.add("Mul", a, b, *operands, **zeros, **own, even=1)
        if kind == 1:
            factors = {f"mul_{name}": int(self.random.integers(-900, 900)) for name in "ab"}
            return self.add("ScaledAdd", a, b, **factors, add=-700, shift=10, **ENDS)
        if kind == 2:
            return self.add("ScaledDiv", a, b, **zeros, mul=1 << 12, shift=7, zero_point=5, **ENDS)
        wide = self.add("Add", a, b, dtype=np.int32)
        operands, own = requantisation(self.random, 0.4, np.int8)
        own.pop("epilogue")
        return self.add("RequantShift", wide, *operands, **own)


@pytest.mark.parametrize("seed", range(40))
def test_what_depends_on_one_tensor_is_one_table(seed: int) -> None:
    def make(random: np.random.Generator) -> gs.Graph:
        of = Expression(random)
        y = x = of.inputs[0]
        for _ in range(int(random.integers(1, 4))):
            y = of.joined(*random.permutation(np.array([y, of.function(x)], object)).tolist())
        of.graph.outputs = [of.function(y)]
        return of.graph

    before, after = both(make, tables.PASS, seed)
    assert len(before) > 2 and after == ["Lookup"]


@pytest.mark.parametrize("seed", range(10))
def test_tables_end_where_a_second_tensor_enters(seed: int) -> None:
    def make(random: np.random.Generator) -> gs.Graph:
        of = Expression(random, inputs=2)
        a, b = (of.joined(x, of.function(x)) for x in of.inputs)
        sum_ = of.add("ScaledAdd", a, b, mul_a=300, mul_b=500, add=0, shift=10, **ENDS)
        of.graph.outputs = [of.joined(sum_, of.function(sum_))]
        return of.graph

    assert both(make, tables.PASS, seed)[1] == ["Lookup", "Lookup", "ScaledAdd", "Lookup"]


def test_a_table_that_others_read_is_not_computed_twice() -> None:
    def make(random: np.random.Generator) -> gs.Graph:
        of = Expression(random)
        first = of.add("Lookup", of.inputs[0], constant(random, np.int8, 256))
        of.graph.outputs = [of.add("Lookup", first, constant(random, np.int8, 256)), first]
        return of.graph

    before, after = both(make, tables.PASS, 1)
    assert before == after


def test_factors_per_channel_are_no_function_of_one_value() -> None:
    def make(random: np.random.Generator) -> gs.Graph:
        of = Expression(random)
        operands, own = requantisation(random, random.uniform(0.5, 1, 9), np.int8)
        own.pop("epilogue")
        of.graph.outputs = [of.joined(of.inputs[0], of.add("RequantShift", of.inputs[0], *operands, **own))]
        return of.graph

    before, after = both(make, tables.PASS, 2)
    assert before == after


def test_steps_that_undo_each_other_are_nothing() -> None:
    def make(random: np.random.Generator) -> gs.Graph:
        of = Expression(random)
        of.inputs[0].dtype = np.dtype(np.int8)
        turned = build.const("turned", np.arange(127, -129, -1).astype(np.int8))
        of.graph.outputs = [of.add("Lookup", of.add("Lookup", of.inputs[0], turned), turned)]
        return of.graph

    assert both(make, tables.PASS, 3)[1] in ([], ["Copy"])


def _twice(random: np.random.Generator, first: tuple[int, int, int], second: tuple[int, int, int], low: int = -128) -> gs.Graph:
    """A number of 16 bits that is requantised twice, by multipliers, summands and shifts."""
    graph = gs.Graph([], [build.variable("x", np.int16, [2, 4096])], [])
    y: gs.Tensor = graph.inputs[0]
    for number, (mul, add, shift) in enumerate((first, second)):
        operands = [build.const(f"mul{number}", np.array([mul], np.int32)), build.const(f"add{number}", np.array([add], np.int64))]
        result = named(graph, np.int8, [2, 4096])
        y = build.add(graph, "RequantShift", [y, *operands], result, shift=shift, low=low if number == 0 else -100, high=127)
    graph.outputs = [y]
    return graph


@pytest.mark.parametrize("seed", range(12))
def test_a_requantisation_by_a_shift_behind_another_is_one(seed: int) -> None:
    """Also where both have limits."""

    def make(random: np.random.Generator) -> gs.Graph:
        mul, shift, second = int(random.integers(100, 2**15)), int(random.integers(12, 22)), int(random.integers(1, 6))
        low = int(random.choice([-128, -90]))
        rounding = int(random.integers(0, 1 << second))
        return _twice(random, (mul, 1 << (shift - 1), shift), (1, rounding, second), low)

    before, after = both(make, tables.PASS, seed)
    assert before == ["RequantShift", "RequantShift"] and after == ["RequantShift"]


def test_requantisations_that_no_constants_join_stay_two() -> None:
    """Their thresholds are no multiples of one number."""
    before, after = both(lambda random: _twice(random, (300, 1 << 13, 14), (45, 1 << 5, 6)), tables.PASS, 1)
    assert before == ["RequantShift", "RequantShift"] and after == before
