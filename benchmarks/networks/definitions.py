"""Networks that keras.applications does not have: InceptionV4, EfficientNet-Lite and NASNet, from their papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from keras import Model, layers

BatchNorm = {"momentum": 0.99, "epsilon": 1e-3}

# EfficientNet's stages: repeats, kernel, stride, expansion, filters (Tan & Le 2019, table 1).
STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320))


def _conv(x: Any, filters: int, size: int | tuple[int, int], stride: int = 1, padding: str = "same") -> Any:
    x = layers.Conv2D(filters, size, stride, padding, use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization(scale=False, **BatchNorm)(x))


def _chain(x: Any, steps: Sequence[tuple[int, int | tuple[int, int]]]) -> Any:
    for filters, size in steps:
        x = _conv(x, filters, size)
    return x


def _pool(x: Any) -> Any:
    return layers.MaxPooling2D(3, 2, "valid")(x)


def _average(x: Any, filters: int) -> Any:
    return _conv(layers.AveragePooling2D(3, 1, "same")(x), filters, 1)


def _join(*branches: Any) -> Any:
    return layers.Concatenate()(list(branches))


def _stem(x: Any) -> Any:
    x = _conv(x, 32, 3, 2, "valid")
    x = _conv(_conv(x, 32, 3, 1, "valid"), 64, 3)
    x = _join(_pool(x), _conv(x, 96, 3, 2, "valid"))
    short = _conv(_conv(x, 64, 1), 96, 3, 1, "valid")
    long = _conv(_chain(x, [(64, 1), (64, (1, 7)), (64, (7, 1))]), 96, 3, 1, "valid")
    x = _join(short, long)
    return _join(_conv(x, 192, 3, 2, "valid"), _pool(x))


def _split(x: Any, first: tuple[int, int], second: tuple[int, int]) -> tuple[Any, Any]:
    return _conv(x, 256, first), _conv(x, 256, second)


def inception_v4() -> Model:
    """InceptionV4 (Szegedy et al. 2016, figures 3 to 9), 299 x 299, 1000 classes."""
    image = layers.Input((299, 299, 3))
    x = _stem(image)
    for _ in range(4):
        x = _join(_conv(x, 96, 1), _chain(x, [(64, 1), (96, 3)]), _chain(x, [(64, 1), (96, 3), (96, 3)]), _average(x, 96))
    x = _join(_conv(x, 384, 3, 2, "valid"), _conv(_chain(x, [(192, 1), (224, 3)]), 256, 3, 2, "valid"), _pool(x))
    for _ in range(7):
        short = _chain(x, [(192, 1), (224, (1, 7)), (256, (7, 1))])
        long = _chain(x, [(192, 1), (192, (7, 1)), (224, (1, 7)), (224, (7, 1)), (256, (1, 7))])
        x = _join(_conv(x, 384, 1), short, long, _average(x, 128))
    short = _conv(_conv(x, 192, 1), 192, 3, 2, "valid")
    long = _conv(_chain(x, [(256, 1), (256, (1, 7)), (320, (7, 1))]), 320, 3, 2, "valid")
    x = _join(short, long, _pool(x))
    for _ in range(3):
        short = _split(_conv(x, 384, 1), (1, 3), (3, 1))
        long = _split(_chain(x, [(384, 1), (448, (3, 1)), (512, (1, 3))]), (3, 1), (1, 3))
        x = _join(_conv(x, 256, 1), *short, *long, _average(x, 256))
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))
    return Model(image, layers.Dense(1000, activation="softmax")(x))


def _filters(filters: int, width: float) -> int:
    """A scaled number of filters: the nearest multiple of 8 that is not below 90 % of it."""
    scaled = filters * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded


def _block(x: Any, kernel: int, stride: int, expansion: int, filters: int) -> Any:
    """An inverted residual without squeeze and excitation; clipped at 6, as all of the Lite family."""
    source, channels = x, x.shape[-1]
    if expansion > 1:
        x = layers.Conv2D(channels * expansion, 1, padding="same", use_bias=False)(x)
        x = layers.ReLU(6.0)(layers.BatchNormalization(**BatchNorm)(x))
    x = layers.DepthwiseConv2D(kernel, stride, "same", use_bias=False)(x)
    x = layers.ReLU(6.0)(layers.BatchNormalization(**BatchNorm)(x))
    x = layers.Conv2D(filters, 1, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization(**BatchNorm)(x)
    return layers.Add()([layers.Dropout(0.2)(x), source]) if stride == 1 and channels == filters else x


def efficientnet_lite(width: float, depth: float, size: int) -> Model:
    """EfficientNet-Lite: stem, head, first and last stage are not scaled (tensorflow/tpu, efficientnet/lite)."""
    image = layers.Input((size, size, 3))
    x = layers.Conv2D(32, 3, 2, "same", use_bias=False)(image)
    x = layers.ReLU(6.0)(layers.BatchNormalization(**BatchNorm)(x))
    for number, (repeats, kernel, stride, expansion, filters) in enumerate(STAGES):
        is_end = number in (0, len(STAGES) - 1)
        for repeat in range(repeats if is_end else math.ceil(repeats * depth)):
            x = _block(x, kernel, stride if repeat == 0 else 1, expansion, _filters(filters, width))
    x = layers.Conv2D(1280, 1, padding="same", use_bias=False)(x)
    x = layers.ReLU(6.0)(layers.BatchNormalization(**BatchNorm)(x))
    x = layers.Dropout(0.3)(layers.GlobalAveragePooling2D()(x))
    return Model(image, layers.Dense(1000, activation="softmax")(x))


def _norm(x: Any) -> Any:
    return layers.BatchNormalization(momentum=0.9997, epsilon=1e-3)(x)


def _separable(x: Any, filters: int, size: int, stride: int = 1) -> Any:
    for step in (stride, 1):
        x = _norm(layers.SeparableConv2D(filters, size, step, "same", use_bias=False)(layers.ReLU()(x)))
    return x


def _squeezed(x: Any, filters: int) -> Any:
    return _norm(layers.Conv2D(filters, 1, padding="same", use_bias=False)(layers.ReLU()(x)))


def _adjusted(before: Any, x: Any, filters: int) -> Any:
    """What the cell before the last one gave, in the size and the channels of this one."""
    if before is None:
        return x
    if before.shape[1] != x.shape[1]:
        before = layers.ReLU()(before)
        moved = layers.Cropping2D(((1, 0), (1, 0)))(layers.ZeroPadding2D(((0, 1), (0, 1)))(before))
        halves = [layers.AveragePooling2D(1, 2, "valid")(part) for part in (before, moved)]
        return _norm(_join(*(layers.Conv2D(filters // 2, 1, padding="same", use_bias=False)(half) for half in halves)))
    return _squeezed(before, filters) if before.shape[-1] != filters else before


def _normal(x: Any, before: Any, filters: int) -> Any:
    p, h = _adjusted(before, x, filters), _squeezed(x, filters)
    smooth = layers.AveragePooling2D(3, 1, "same")
    pairs = (
        (_separable(h, filters, 5), _separable(p, filters, 3)),
        (_separable(p, filters, 5), _separable(p, filters, 3)),
        (smooth(h), p),
        (smooth(p), smooth(p)),
        (_separable(h, filters, 3), h),
    )
    return _join(p, *(layers.Add()(list(pair)) for pair in pairs))


def _reduction(x: Any, before: Any, filters: int) -> Any:
    p, h = _adjusted(before, x, filters), _squeezed(x, filters)
    most, mean = (kind(3, 2, "same")(h) for kind in (layers.MaxPooling2D, layers.AveragePooling2D))
    one = layers.Add()([_separable(h, filters, 5, 2), _separable(p, filters, 7, 2)])
    two = layers.Add()([most, _separable(p, filters, 7, 2)])
    three = layers.Add()([mean, _separable(p, filters, 5, 2)])
    four = layers.Add()([layers.AveragePooling2D(3, 1, "same")(one), two])
    return _join(two, three, four, layers.Add()([_separable(one, filters, 3), most]))


def nasnet_mobile() -> Model:
    """NASNet-A (4 @ 1056) of Zoph et al. 2018, 224 x 224, as its published Keras definition connects cells."""
    image = layers.Input((224, 224, 3))
    x, before, filters = _norm(layers.Conv2D(32, 3, 2, "valid", use_bias=False)(image)), None, 1056 // 24
    for width in (filters // 4, filters // 2):
        x, before = _reduction(x, before, width), x
    for scale in (1, 2, 4):
        if scale > 1:
            x, before = _reduction(x, before, scale * filters), x
        for _ in range(4):
            x, before = _normal(x, before, scale * filters), x
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(x))
    return Model(image, layers.Dense(1000, activation="softmax")(x))
