"""Teach the story model weights of 4 bits: needs PyTorch (CPU), onnx, and a Debian machine for the text; a quarter of an hour on one core.

The matrices of story.onnx are rounded while a few hundred steps adapt them, every output channel by a scale of its own, the embedding
by one; activations are rounded as train.py does. Writes build/story/few.onnx and a calibration, from which the compiler makes a model:

    deeploy quantize build/story/few.onnx --calibrate build/story/calibration.npz --weights 4 -o build/story/story_int4.onnx
"""

from __future__ import annotations

import math

import numpy as np
import onnx
import torch
from model import Decoder, Rounding
from novels import novels, split
from tokenizer import Tokenizer
from torch import Tensor, nn
from torch.nn.utils import parametrize
from train import HERE, ROUNDED_TOKENS, SHAPE, WORK, batch, calibration, encoded, export, held_out_loss, loss_of

STEPS, WARM_UP, RATE, LEAST = 500, 20, 1e-3, 0.02
MOST = 7.49  # steps of a scale on either side: what is rounded to 7


class Narrow(nn.Module):
    """Rounds a matrix to 4 bits; the gradient passes through."""

    def __init__(self, is_table: bool) -> None:
        super().__init__()
        self.is_table = is_table

    def forward(self, weight: Tensor) -> Tensor:
        sizes = weight.detach().abs()
        step = (sizes.max() if self.is_table else sizes.amax(1, keepdim=True)) / MOST
        return weight + ((weight / step).round().clamp(-8, 7) * step - weight).detach()


def load(model: Decoder) -> None:
    """Take the weights of story.onnx, whose matrices are in the order in which the layers use them."""
    graph = onnx.load(HERE / "story.onnx").graph
    stored = {t.name.removesuffix(" (half)"): onnx.numpy_helper.to_array(t).astype(np.float32) for t in graph.initializer}
    products = {node.input[1] for node in graph.node if node.op_type == "MatMul" and node.input[1] in stored}
    matrices = (stored[name].T for name in sorted(products, key=lambda name: int(name.rsplit("_", 1)[1])))
    for number, block in enumerate(model.blocks):
        for norm in ("before", "between"):
            getattr(block, norm).weight.data = torch.tensor(stored[f"blocks.{number}.{norm}.weight"])
        for layer in (block.query, block.key, block.value, block.out, block.gate, block.up, block.down):
            layer.weight.data = torch.tensor(next(matrices))
    model.scores.weight.data = torch.tensor(next(matrices))
    model.embedding.weight.data = torch.tensor(stored["embedding.weight"])
    model.norm.weight.data = torch.tensor(stored["norm.weight"])


def adapt(model: Decoder, tokens: Tensor, held_out: Tensor) -> None:
    generator = torch.Generator().manual_seed(5)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, betas=(0.9, 0.98))
    for step in range(STEPS):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / WARM_UP) * (LEAST + (1 - LEAST) * (1 + math.cos(math.pi * step / STEPS)) / 2)
        loss = loss_of(model, batch(tokens, ROUNDED_TOKENS, SHAPE.context, generator))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 50 == 49:
            print(f"{step + 1} steps: held-out perplexity {math.exp(held_out_loss(model, held_out)):.2f}", flush=True)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = Tokenizer.load(HERE / "tokenizer.json")
    texts, held_out = split(novels())
    tokens, rest = encoded(tokenizer, texts), encoded(tokenizer, [held_out])
    model = Decoder(SHAPE)
    load(model)
    Rounding.is_on = True
    print(f"perplexity in 8 bits {math.exp(held_out_loss(model, rest)):.2f}", flush=True)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Embedding)]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", Narrow(isinstance(layer, nn.Embedding)))
    adapt(model, tokens, rest)
    for layer in layers:
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    Rounding.is_on = False
    model.eval()
    WORK.mkdir(parents=True, exist_ok=True)
    export(model, WORK / "few.onnx")
    calibration(model, tokens, WORK / "calibration.npz")


if __name__ == "__main__":
    main()
