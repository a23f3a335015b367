"""Cases that kernels are tried on: their outputs are what the reference computes, and hold it."""

from __future__ import annotations

import numpy as np
import pytest

from deeploy.bringup.cases import draw_cases
from deeploy.ir import epilogue
from deeploy.target import load

KERNELS = {kernel.name: kernel for kernel in load("generic").kernels if kernel.link is None}


@pytest.mark.parametrize("name", sorted({*list(KERNELS)[::6], "add", "sub", "expand", "lookup"}))
def test_outputs_hold_what_the_reference_computes(name: str) -> None:
    """Element types are drawn: what does not fit one of them is no case."""
    kernel = KERNELS[name]
    for seed in range(3):
        for case in draw_cases(kernel, 1, seed):
            result = kernel.reference(case.node, *list(case.inputs.values())[: len(kernel.inputs)])
            results = result if isinstance(result, tuple) else (result,)
            for raw, wanted, tensor in zip(results, case.wanted, case.node.outputs, strict=True):
                value = epilogue.apply_stages(case.node, raw, dict(case.inputs))
                assert wanted.dtype == tensor.dtype.numpy and wanted.shape == tensor.shape
                np.testing.assert_array_equal(wanted, value if tensor.dtype.is_float else value.astype(np.int64))
