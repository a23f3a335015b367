"""Write the layer summaries of the segmentation study's networks: built in Keras, exported to ONNX, read by the compiler's lowering.

Weights are random, as only shapes are read, and nothing is downloaded. Needs the extra ``keras``.

    make bench NAME='summaries [--onnx FOLDER] [NETWORK ...]'
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch

from benchmarks.networks import definitions, summary

APPLICATIONS = (
    *("Xception", "ResNet50", "ResNet50V2", "ResNet101", "ResNet101V2", "ResNet152", "ResNet152V2"),
    *("InceptionV3", "InceptionResNetV2", "DenseNet121", "DenseNet169", "DenseNet201"),
    *("MobileNet", "MobileNetV2"),
)
HERE = "benchmarks/networks/definitions.py"
NETWORKS: dict[str, tuple[Callable[[], Any], str]] = {
    **{name: (partial(getattr(keras.applications, name), weights=None), "keras.applications") for name in APPLICATIONS},
    "InceptionV4": (definitions.inception_v4, HERE),
    "NASNetMobile": (definitions.nasnet_mobile, HERE),
    "EfficientNetLiteB0": (partial(definitions.efficientnet_lite, 1.0, 1.0, 224), HERE),
    "EfficientNetLiteB1": (partial(definitions.efficientnet_lite, 1.0, 1.1, 240), HERE),
    "EfficientNetLiteB2": (partial(definitions.efficientnet_lite, 1.1, 1.2, 260), HERE),
    "EfficientNetLiteB3": (partial(definitions.efficientnet_lite, 1.2, 1.4, 280), HERE),
    "EfficientNetLiteB4": (partial(definitions.efficientnet_lite, 1.4, 1.8, 300), HERE),
}


def longest(model: Any) -> int:
    """Layers on the longest path of a model, its input not counted."""
    depth: dict[str, int] = {}
    for layer in model.layers:  # sorted by Keras: what a layer reads comes before it
        before = [source.operation.name for node in layer._inbound_nodes for source in node.parent_nodes]
        depth[layer.name] = max((depth[name] + 1 for name in before if name in depth), default=0)
    return max(depth.values())


def export(model: Any, file: Path) -> None:
    """Export a model with one image as its input."""
    model.eval()
    image = torch.zeros(1, *model.input_shape[1:])
    options: dict[str, Any] = {"input_names": ["image"], "output_names": ["classes"], "external_data": False, "verbose": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (image,), str(file), opset_version=18, dynamo=True, **options)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *NETWORKS], help="all of them by default")
    parser.add_argument("--onnx", type=Path, help="where to keep exported models; those that are there are not exported again")
    options = parser.parse_args(arguments)
    torch.set_grad_enabled(False)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.onnx or Path(scratch)
        for name in options.names or NETWORKS:
            make, source = NETWORKS[name]
            keras.utils.clear_session()
            model = make()
            file = folder / f"{name}.onnx"
            if not file.exists():
                export(model, file)
            items = summary.read(file)
            weighted = sum(1 for layer in model.layers if layer.weights)
            found = summary.Summary(name, source, model.input_shape[1], model.count_params(), weighted, longest(model), items)
            summary.save(found)
            print(f"{name}: {len(items)} layers, {found.parameters} parameters, {found.macs} MAC, depth {weighted} and {found.longest}")
