"""Files shaped like those of TensorFlow Lite Micro's examples, among the cases of ``files``.

python -m tests.frontend.tflite.examples        writes ``expected.npz`` anew, with the outputs of LiteRT's reference kernels
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.frontend.tflite.files import CASES, EXPECTED, OTHER_KERNELS, Draft, build_case, case, interpret


def _convolve(d: Draft, x: int, outputs: int, size: Sequence[int] = (3, 3), stride: int = 1, is_depthwise: bool = False) -> int:
    """A rectified convolution with borders; by default by the last tensor's quantisation."""
    number, *extents, channels = d.tensors[x].shape
    shape = (1, *size, outputs) if is_depthwise else (outputs, *size, channels)
    y = d.tensor(number, *(-(-extent // stride) for extent in extents), outputs, scale=0.05)
    about = {"multiplier": outputs // channels} if is_depthwise else {}
    op, weights = "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D", d.weights(x, shape, 3 * is_depthwise, outputs)
    return d.op(op, [x, *weights], y, padding=0, stride_w=stride, stride_h=stride, fused=1, **about)


def _reshape(d: Draft, x: int, *shape: int) -> int:
    return d.op("RESHAPE", [x, d.constant(np.array(shape, np.int32))], d.like(x, *shape))


def _classify(d: Draft, x: int, *units: int) -> int:
    """Dense layers, all but the last one rectified, and a softmax where there is more than one result."""
    x = _reshape(d, x, 1, math.prod(d.tensors[x].shape))
    for place, count in enumerate(units):
        w, is_last = d.weights(x, (count, d.tensors[x].shape[-1]), 0, count, False), place == len(units) - 1
        x = d.op("FULLY_CONNECTED", [x, *w], d.tensor(1, count, scale=1.0 if is_last else 0.1), fused=int(not is_last))
    return d.op("SOFTMAX", [x], d.tensor(1, units[-1], scale=1 / 256, zero=-128), beta=0.05) if units[-1] > 1 else x


@case
def hello_world(d: Draft) -> Sequence[int]:
    return [_classify(d, d.given(1, 1), 16, 16, 1)]


@case
def micro_speech(d: Draft) -> Sequence[int]:
    return [_classify(d, _convolve(d, _reshape(d, d.given(1, 1960), 1, 49, 40, 1), 8, (10, 8), 2, True), 4)]


@case
def magic_wand(d: Draft) -> Sequence[int]:
    x = _convolve(d, d.given(1, 128, 3, 1), 8, (4, 3))
    x = d.op("MAX_POOL_2D", [x], d.like(x, 1, 42, 1, 8), padding=1, stride_w=3, stride_h=3, filter_w=3, filter_h=3)
    x = _convolve(d, x, 16, (4, 1))
    x = d.op("MAX_POOL_2D", [x], d.like(x, 1, 14, 1, 16), padding=1, stride_w=1, stride_h=3, filter_w=1, filter_h=3)
    return [_classify(d, x, 16, 4)]


@case
def person_detection(d: Draft) -> Sequence[int]:
    """MobileNet of a quarter of its width, for images of 96 x 96 in grey."""
    x = _convolve(d, d.given(1, 96, 96, 1), 8, stride=2)
    for outputs, stride in zip((16, 32, 32, 64, 64, *[128] * 6, 256, 256), (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1), strict=True):
        x = _convolve(d, x, d.tensors[x].shape[-1], stride=stride, is_depthwise=True)
        x = _convolve(d, x, outputs, (1, 1))
    x = d.op("AVERAGE_POOL_2D", [x], d.like(x, 1, 1, 1, 256), padding=1, stride_w=3, stride_h=3, filter_w=3, filter_h=3)
    return [_classify(d, x, 2)]


def main() -> None:
    found: dict[str, np.ndarray] = {}
    for name in sorted(CASES):
        outputs = interpret(*build_case(name), name not in OTHER_KERNELS)
        found |= {f"{name} {i} {k}": array for i, sample in enumerate(outputs) for k, array in enumerate(sample)}
    np.savez_compressed(EXPECTED, **found)


if __name__ == "__main__":
    main()
