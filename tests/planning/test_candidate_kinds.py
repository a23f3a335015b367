"""What calls have in common whose candidates are computed once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from deeploy.ir.kernel import Kernel
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.cost import candidate_kind, instance_words, requantisation_form
from deeploy.planning.program import Program
from deeploy.target import load


def products(kernels: Sequence[Kernel], *factors: int) -> Program:
    """Products of one input that differ in the factors of their requantisations alone."""
    weights = np.random.default_rng(0).integers(-128, 128, (64, 16)).astype(np.int8)
    attrs = {"trans_a": False, "trans_b": False, "a_zero_point": 0, "b_zero_point": 0, "epilogue": ("requantise",)}
    attrs |= {"shift": 42, "low": -128, "high": 127}
    x, outputs = Tensor("x", (8, 64), DType.INT8), list[Tensor]()
    for number, mul in enumerate(factors):
        constants = {"w": weights, "mul": np.array([mul], np.int32), "add": np.array([1 << 41], np.int64)}
        operands = (Tensor(f"{name}{number}", a.shape, DType.of(a.dtype), a) for name, a in constants.items())
        outputs += Node(f"product{number}", "MatMul", (x, *operands), (Tensor(f"y{number}", (8, 16), DType.INT8),), attrs).outputs
    return assemble_program("network", Graph("network", (x,), tuple(outputs)), kernels)


@pytest.mark.parametrize(("factor", "is_same"), [(1 << 29, True), ((1 << 29) + 12345677, False)])
def test_products_whose_requantisations_take_other_instructions_are_of_other_kinds(factor: int, is_same: bool) -> None:
    """Shapes, types, attributes and kernels are the same; the constants alone say how many bits a product needs."""
    target = load("siracusa")
    program = products([k for k in target.kernels if k.engine == "cluster"], 1 << 29, factor)
    first, second = program.calls
    assert first.kernel is second.kernel and (requantisation_form(first, target) == requantisation_form(second, target)) is is_same
    assert (candidate_kind(first, program.buffers) == candidate_kind(second, program.buffers)) is is_same


@pytest.mark.parametrize(("factor", "is_same"), [(1 << 21, True), ((1 << 30) + 12345677, False)])
def test_so_are_products_whose_sums_cores_requantise_in_other_instructions(factor: int, is_same: bool) -> None:
    """An accelerator leaves the sums; the constants alone say whether the post-processing computes in 64 bits."""
    program = products([k for k in load("siracusa").kernels if k.name == "neureka_product_parts"], 1 << 20, factor)
    first, second = program.calls
    assert first.kernel is second.kernel and (instance_words(first.parts[-1]) == instance_words(second.parts[-1])) is is_same
    assert (candidate_kind(first, program.buffers) == candidate_kind(second, program.buffers)) is is_same
