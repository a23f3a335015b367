"""What calls have in common whose candidates are computed once."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from deeploy.frontend.lower.build import DOMAIN
from deeploy.midend.assemble import assemble
from deeploy.midend.cost import form, kind
from deeploy.target import load


@pytest.mark.parametrize(("factor", "is_same"), [(1 << 29, True), ((1 << 29) + 12345677, False)])
def test_products_whose_requantisations_take_other_instructions_are_of_other_kinds(factor: int, is_same: bool) -> None:
    """Shapes, types, attributes and kernels are the same; the constants alone say how many bits a product needs."""
    weights = np.random.default_rng(0).integers(-128, 128, (64, 16)).astype(np.int8)
    attrs = {"trans_a": False, "trans_b": False, "a_zero_point": 0, "b_zero_point": 0, "epilogue": ("requantise",)}
    attrs |= {"shift": 42, "low": -128, "high": 127}
    x, nodes, outputs = gs.Variable("x", np.int8, [8, 64]), [], []
    for number, mul in enumerate((1 << 29, factor)):
        constants = {"w": weights, "mul": np.array([mul], np.int32), "add": np.array([1 << 41], np.int64)}
        y = gs.Variable(f"y{number}", np.int8, [8, 16])
        inputs = [x, *(gs.Constant(f"{name}{number}", values) for name, values in constants.items())]
        nodes.append(gs.Node("MatMul", f"product{number}", dict(attrs), inputs=inputs, outputs=[y], domain=DOMAIN))
        outputs.append(y)
    target = load("siracusa")
    program = assemble("network", gs.Graph(nodes=nodes, inputs=[x], outputs=outputs), [k for k in target.kernels if k.engine == "cluster"])
    first, second = program.calls
    assert first.kernel is second.kernel and (form(first, target) == form(second, target)) is is_same
    assert (kind(first, program.buffers) == kind(second, program.buffers)) is is_same
