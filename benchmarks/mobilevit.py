"""Write the layer list of MobileViT-S at 256 x 256, that exploration's figures are made from, out of transformers' configuration.

Weights are random: exploration reads shapes only, and nothing is downloaded. Needs the extra ``hf`` (torch, transformers).

    make bench NAME='mobilevit [--onnx FILE] [--layers examples/layers/mobilevit_s.json]'
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import ROOT
from deeploy import target
from deeploy.explore import networks

ABOUT = (
    "MobileViT-S, 256 x 256, 1000 classes: MobileViTConfig(num_labels=1000) of transformers {version}; written by benchmarks/mobilevit.py"
)


def export(file: Path) -> str:
    """Export the network; returns the version of transformers."""
    import torch
    import transformers

    torch.manual_seed(0)
    configuration = transformers.MobileViTConfig(num_labels=1000)
    model = transformers.MobileViTForImageClassification(configuration).eval()
    image = torch.zeros(1, 3, configuration.image_size, configuration.image_size)
    torch.onnx.export(model, (image,), str(file), opset_version=17, dynamo=False, input_names=["image"], output_names=["classes"])
    return str(transformers.__version__)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--onnx", type=Path, help="where to keep the exported model")
    parser.add_argument("--layers", type=Path, default=ROOT / "examples" / "layers" / "mobilevit_s.json")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        model = options.onnx or Path(scratch) / "mobilevit_s.onnx"
        version = export(model)
        layers = networks.read_network(model, target.load("generic"))
    networks.save_layers(options.layers, layers, ABOUT.format(version=version))
    total = sum(layer.macs * layer.count for layer in layers)
    print(f"wrote {options.layers}: {sum(layer.count for layer in layers)} layers, {len(layers)} different, {total} MAC")
