"""Signal to noise: what a tensor of the quantised network loses of the float one's, summed over samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

BEFORE = "_QuantizeLinear_Input"  # what onnxruntime appends to the name of an output where it is not quantised yet
EXACT = 200.0  # decibel that stand for no noise at all; its negative for nothing that is left


@dataclass
class Noise:
    """Sums of squares, of what is expected and of differences; infinite where finite numbers become others."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, got: np.ndarray, expected: np.ndarray) -> None:
        """Count one more sample; what is not finite in the float network itself is left out."""
        finite = np.isfinite(expected)
        right, other = expected[finite].astype(np.float64), got[finite].astype(np.float64)
        self.signal += float(np.square(right).sum())
        self.noise += float(np.square(np.where(np.isfinite(other), other - right, np.inf)).sum())

    @property
    def decibel(self) -> float:
        """10 log10 of the signal over the noise, between -EXACT and EXACT."""
        if not self.noise:
            return EXACT
        return (
            max(-EXACT, min(EXACT, float(10 * np.log10(self.signal / self.noise)))) if self.signal and np.isfinite(self.noise) else -EXACT
        )


def format_ratio(decibel: float) -> str:
    """A signal-to-noise ratio for people, its unit in it; what ``EXACT`` stands for in words."""
    return "infinite" if decibel >= EXACT else "none" if decibel <= -EXACT else f"{decibel:.1f} dB"


def scales_of(model: onnx.ModelProto) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Scale and zero point of every activation that is quantised, by the tensor's name in the float network."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear" and {*node.input[1:]} <= values.keys()]
    return {node.input[0].removesuffix(BEFORE): (values[node.input[1]], values[node.input[2]]) for node in nodes}


def round_to_steps(values: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """What is left of values in steps of a scale."""
    limits, offset = np.iinfo(zero.dtype), zero.astype(np.float64)
    steps = np.clip(np.rint(values / scale) + offset, limits.min, limits.max)
    result: np.ndarray = (steps - offset) * scale
    return result
