"""Helpers for the tests of kernels: finding a declaration, drawing operands and requantisations."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from deeploy.ir.kernel import Kernel
from deeploy.ir.types import DType
from deeploy.resources import resource


def _compute() -> tuple[Kernel, ...]:
    name = "generic_compute"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, resource("targets") / "generic" / "compute.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    kernels: tuple[Kernel, ...] = sys.modules[name].KERNELS
    return kernels


KERNELS = _compute()


def kernel(name: str, floating: bool = False) -> Kernel:
    """The declaration of that name on integers, or on float32."""
    wanted = DType.FLOAT32 if floating else DType.INT32 if name == "residual_sum" else DType.INT8
    return next(k for k in KERNELS if k.name == name and wanted in next(iter(k.types.values())))


def draw(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """Uniform values over the whole type; at most 12 bits of wider integers, so that sums stay in 32 bits."""
    element = DType(dtype)
    if element.is_float:
        return rng.standard_normal(shape).astype(np.float32)
    low, high = (max(element.range[0], -2048), min(element.range[1], 2047))
    values = rng.integers(low, high, shape, endpoint=True)
    values.flat[:2] = (low, high)[: values.size]
    return values.astype(element.numpy)


def requantisation(
    rng: np.random.Generator, channels: int, result: str, size: int, wide_add: bool = False, mul_step: int = 1, add_step: int = 1
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Operands and attributes of an epilogue that maps accumulators of about ``size`` onto the range of ``result``."""
    low, high = DType(result).range
    shift = 20 if not wide_add else 34
    scale = 2**shift * (high - low) / max(1, 2 * size)
    mul = np.clip(rng.uniform(-1, 1, channels if mul_step else 1) * scale, -(2**31), 2**31 - 1).astype(np.int32)
    zero = rng.integers(low, high, channels if add_step else 1)
    add = (zero << shift) + (1 << (shift - 1))
    return {"mul": mul, "add": add.astype(np.int64 if wide_add else np.int32)}, {"shift": shift, "low": low, "high": high}


def staged(attrs: Mapping[str, Any], *stages: str, **values: Any) -> dict[str, Any]:
    """The attributes with an epilogue."""
    return {**attrs, "epilogue": stages, **values}
