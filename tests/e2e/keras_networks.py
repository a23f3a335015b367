"""Small networks of Keras, written as ONNX by tf2onnx: ``python -m tests.e2e.keras_networks FOLDER``.

A process of its own: TensorFlow and the solver of the compiler crash where both are loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

RANDOM = np.random.default_rng(8)


def mobile(k: Any) -> Any:
    """Convolutions, depthwise ones and limits at 6, a residual, a mean over the image, a softmax."""
    layers = k.layers
    x = start = k.Input((16, 16, 3), batch_size=1)
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    y = layers.ReLU(6.0)(layers.DepthwiseConv2D(3, padding="same")(x))
    x = layers.Add()([x, layers.Conv2D(8, 1)(y)])
    x = layers.SeparableConv2D(12, 3, strides=2, activation="hard_sigmoid")(x)
    return k.Model(start, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def segmentation(k: Any, interpolation: str = "bilinear") -> Any:
    """Pools, concatenation, upsampling, padding and cropping."""
    layers = k.layers
    start = k.Input((12, 12, 2), batch_size=1)
    x = layers.Conv2D(6, 3, padding="same", activation="elu")(start)
    deep = layers.Conv2D(8, 3, padding="same", activation="swish")(layers.MaxPooling2D(2)(x))
    # Means of nine have no ties, which onnxruntime breaks by how its floats were rounded.
    up = layers.Conv2DTranspose(6, 3, strides=3)(layers.AveragePooling2D(3)(deep))
    wide = layers.Concatenate()([layers.UpSampling2D(2, interpolation=interpolation)(deep), x])
    wide = layers.Cropping2D(1)(layers.ZeroPadding2D(1)(wide))
    return k.Model(start, layers.Conv2D(3, 1, activation="sigmoid")(layers.Concatenate()([wide, layers.UpSampling2D(2)(up)])))


def keywords(k: Any) -> Any:
    """Convolutions along time and recurrent layers of both directions."""
    layers = k.layers
    x = start = k.Input((20, 10), batch_size=1)
    x = layers.Conv1D(12, 3, padding="causal", activation="relu")(x)
    x = layers.Bidirectional(layers.LSTM(7, return_sequences=True))(layers.MaxPooling1D(2)(x))
    return k.Model(start, layers.Dense(4)(layers.GRU(6)(x)))


def transformer(k: Any) -> Any:
    layers = k.layers
    x = start = k.Input((9, 12), batch_size=1)
    x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(3, 4)(x, x, use_causal_mask=True)]))
    inner = k.ops.gelu(layers.Dense(24)(x), approximate=True)  # tf2onnx has no Erfc, which the exact one is made of
    x = layers.Add()([x, layers.Dense(12)(inner)])
    return k.Model(start, layers.Dense(5)(layers.Flatten()(x)))


def volumes(k: Any) -> Any:
    layers = k.layers
    x = start = k.Input((6, 8, 8, 2), batch_size=1)
    x = layers.MaxPooling3D((1, 2, 2))(layers.Conv3D(4, 3, padding="same", activation="relu")(x))
    return k.Model(start, layers.Dense(3)(layers.GlobalAveragePooling3D()(layers.Conv3D(5, (2, 3, 3), strides=(2, 1, 1))(x))))


NETWORKS: dict[str, Callable[[Any], Any]] = {f.__name__: f for f in (mobile, segmentation, keywords, transformer, volumes)}

NETWORKS["coarse"] = partial(segmentation, interpolation="nearest")
QUANTISED = ("mobile", "coarse")  # no quarters of steps, which have ties as means of four have


def built(name: str) -> tuple[Any, Any]:
    """TensorFlow, and a network of Keras whose biases and means are not 0."""
    import tensorflow

    tensorflow.keras.utils.set_random_seed(4)
    model = NETWORKS[name](tensorflow.keras)
    for variable in model.weights:
        values = np.asarray(variable)
        if variable.name in ("bias", "beta", "moving_mean"):
            variable.assign(RANDOM.normal(size=values.shape, scale=0.2))
    return tensorflow, model


def by_keras(name: str, path: Path) -> None:
    """Write a network as tf2onnx converts it."""
    tensorflow, model = built(name)
    import tf2onnx

    signature = (tensorflow.TensorSpec(model.input_shape, tensorflow.float32, name="x"),)
    tf2onnx.convert.from_keras(model, input_signature=signature, opset=17, output_path=str(path))


def by_lite(name: str, path: Path) -> None:
    """Write a network that TensorFlow Lite's converter quantised in 8 bits, and tf2onnx read."""
    tensorflow, model = built(name)
    import tf2onnx

    converter = tensorflow.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tensorflow.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([RANDOM.normal(size=model.input_shape).astype(np.float32)] for _ in range(8))
    converter.target_spec.supported_ops = [tensorflow.lite.OpsSet.TFLITE_BUILTINS_INT8]
    path.with_suffix(".tflite").write_bytes(converter.convert())
    tf2onnx.convert.from_tflite(str(path.with_suffix(".tflite")), opset=17, output_path=str(path))


if __name__ == "__main__":
    for name in NETWORKS:
        by_keras(name, Path(sys.argv[1]) / f"{name}.onnx")
    for name in QUANTISED:
        by_lite(name, Path(sys.argv[1]) / f"{name}_int8.onnx")
