"""Trains the small CNN of this example and writes it as float ONNX: `pip install .[train]`, then run this file.

The graph is written node by node, as the network is stated: batch normalisation stays a node, and folding it is the
compiler's business.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from data import SEED, load
from onnx import TensorProto, helper, numpy_helper
from torch import nn

OUTPUT = Path(__file__).with_name("digits.onnx")
EPOCHS = 60
BATCH = 64


def network() -> nn.Sequential:
    """8x8 image -> three times convolution, batch normalisation, ReLU, two poolings -> ten scores."""
    layers: list[nn.Module] = []
    for inputs, outputs, pool in ((1, 16, False), (16, 24, True), (24, 32, True)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pool else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 2 * 2, 10))


def shifted(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Move the whole batch by at most one pixel in each direction."""
    down, right = (int(step) for step in torch.randint(0, 3, (2,), generator=generator))
    return nn.functional.pad(images, (1, 1, 1, 1))[:, :, down : down + 8, right : right + 8]


def train(images: np.ndarray, labels: np.ndarray) -> nn.Sequential:
    """Train on images [N, 1, 8, 8] with labels [N]; the same result on the same machine."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(SEED)
    model = network()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = EPOCHS * -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x), generator=generator).split(BATCH):
            loss = nn.functional.cross_entropy(model(shifted(x[rows], generator)), y[rows], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return model.eval()


def to_onnx(model: nn.Sequential) -> onnx.ModelProto:
    """Return the trained network as ONNX: one image [1, 1, 8, 8] in, scores [1, 10] out."""
    nodes, weights, counts = [], [], {}
    current = "image"
    for layer in model:
        kind, attributes = {
            nn.Conv2d: ("Conv", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
            nn.BatchNorm2d: ("BatchNormalization", {"epsilon": 1e-5}),
            nn.ReLU: ("Relu", {}),
            nn.MaxPool2d: ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
            nn.Flatten: ("Flatten", {}),
            nn.Linear: ("Gemm", {"transB": 1}),
        }[type(layer)]
        counts[kind] = counts.get(kind, 0) + 1
        name = f"{kind.lower()}{counts[kind]}"
        arrays = {key: value for key, value in layer.state_dict().items() if value.ndim > 0}
        weights += [numpy_helper.from_array(value.numpy(), f"{name}.{key}") for key, value in arrays.items()]
        nodes.append(helper.make_node(kind, [current, *(f"{name}.{key}" for key in arrays)], [name], name, **attributes))
        current = name
    nodes[-1].output[0] = "scores"
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 10])],
        weights,
    )
    model_proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="digits")
    onnx.checker.check_model(model_proto, full_check=True)
    return model_proto


def main() -> None:
    digits = load()
    model = train(digits.train_images, digits.train_labels)
    with torch.no_grad():
        scores = model(torch.from_numpy(digits.test_images)).numpy()
    onnx.save(to_onnx(model), OUTPUT)
    accuracy = 100 * np.mean(scores.argmax(1) == digits.test_labels)
    print(f"{OUTPUT.name}: {OUTPUT.stat().st_size} bytes, {accuracy:.2f} % of {len(scores)} held-out images")


if __name__ == "__main__":
    main()
