"""Tables that become stages of the calls in front of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deeploy.ir import epilogue
from deeploy.ir.kernel import Kernel
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.planning.binding.kernels import list_mismatches
from deeploy.planning.binding.lookups import with_lookups
from deeploy.target import load

GENERIC = load("generic").kernels
TABLE = np.random.default_rng(0).integers(-128, 128, 256).astype(np.int8)


def constant(name: str, values: np.ndarray) -> Tensor:
    return Tensor(name, values.shape, DType.of(values.dtype), values)


def product_and_table(low: int = -128, high: int = 127) -> list[Node]:
    """A product [2, 3], and a table of its results."""
    x, between, y = (Tensor(name, (2, 3), DType.INT8) for name in ("x", "between", "y"))
    w = constant("w", np.eye(3, dtype=np.int8))
    mul, add = constant("mul", np.array([3], np.int32)), constant("add", np.array([2], np.int32))
    attrs = {"trans_a": False, "trans_b": False, "a_zero_point": 0, "b_zero_point": 0, "epilogue": ("requantise",)}
    front = Node("front", "MatMul", (x, w, mul, add), (between,), {**attrs, "shift": 1, "low": low, "high": high})
    return [front, Node("lookup", "Lookup", (between, constant("table", TABLE)), (y,), {})]


def test_a_table_becomes_the_last_stage_with_the_entries_that_are_reached() -> None:
    (both,) = with_lookups(product_and_table(-20, 30), ["y"], GENERIC)
    assert (both.name, both.epilogue, both.outputs[0].name) == ("front", ("requantise", "lookup"), "y")
    table = both.inputs[-1]
    assert table is not None and table.data is not None
    np.testing.assert_array_equal(table.data, TABLE[128 - 20 : 128 + 31])


def test_results_that_others_read_keep_their_table_apart() -> None:
    front, lookup = product_and_table()
    other = replace(lookup, name="other", outputs=(Tensor("z", (2, 3), DType.INT8),))
    assert with_lookups([front, lookup, other], ["y", "z"], GENERIC) == [front, lookup, other]
    assert with_lookups([front, lookup], ["y", "between"], GENERIC) == [front, lookup]


def test_no_kernel_is_lost_to_a_table() -> None:
    """One kernel that could run the node, and not with a table, is enough."""
    nodes = product_and_table()
    fitting = [kernel for kernel in GENERIC if kernel.op == "MatMul"]
    without: list[Kernel] = [replace(kernel, name=f"{kernel.name} without", epilogues=((), ("requantise",))) for kernel in fitting]
    assert len(with_lookups(nodes, ["y"], fitting)) == 1
    assert with_lookups(nodes, ["y"], [*fitting, *without]) == nodes
    assert with_lookups(nodes, ["y"], ()) == nodes


def test_tables_of_other_types_stay_apart() -> None:
    front, lookup = product_and_table()
    wide = replace(lookup, inputs=(lookup.inputs[0], constant("wide", TABLE.astype(np.int32))), outputs=(Tensor("y", (2, 3), DType.INT32),))
    assert with_lookups([front, wide], ["y"], GENERIC) == [front, wide]
    assert all(
        any(not list_mismatches(kernel, wide) for kernel in kernels if kernel.op == "Lookup")
        for kernels in (GENERIC, load("siracusa").kernels)
    )


def test_operands_of_operators_state_their_types_where_a_stage_has_one_of_that_name() -> None:
    """Else those of the stage would be taken for theirs."""
    kernels = {kernel for name in ("generic", "siracusa", "cortex_m4") for kernel in load(name).computing}
    taken = {(k.name, name) for k in kernels for name in k.inputs if name in epilogue.TYPES and name not in k.types}
    assert {name for _, name in taken} <= {"mul", "add", "bias"}, "these have the types of the stages"
