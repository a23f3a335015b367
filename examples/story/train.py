"""Train the story model again: needs PyTorch (CPU), onnx, and a Debian machine for the text; about half an hour on one core.

Writes tokenizer.json, story.onnx and heldout.txt, and a calibration into build/story, from which the compiler's own command makes
story_int8.onnx:

    deeploy quantize examples/story/story.onnx --calibrate build/story/calibration.npz -o examples/story/story_int8.onnx

The last steps of the training round what a quantised network rounds, so that eight bits are enough afterwards.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import onnx
import torch
from model import Decoder, Rounding, Shape
from novels import novels, split
from tokenizer import END, Tokenizer, learn
from torch import Tensor
from torch.nn import functional

HERE = Path(__file__).resolve().parent
WORK = HERE.parents[1] / "build" / "story"
SHAPE = Shape()
WARM_UP, STEPS, ROUNDED_STEPS = 100, 2_000, 600
RATE, PERIOD, LEAST, DECAY = 4e-3, 3_200, 0.02, 0.05  # the rate falls along a cosine of PERIOD steps, then straight to its LEAST
TOKENS, ROUNDED_TOKENS = 4_096, 2_048  # of one step, in sequences of half a context, then of a whole one
SAMPLES, SAMPLE_ROWS, SAMPLE_PAST = 16, 64, 64  # of the calibration


def batch(tokens: Tensor, count: int, length: int, generator: torch.Generator) -> Tensor:
    """Pieces of the text that begin anywhere."""
    starts = torch.randint(len(tokens) - length - 1, (count // length,), generator=generator)
    return torch.stack([tokens[start : start + length + 1] for start in starts])


def rate_at(step: int) -> float:
    """The learning rate of a step, as a share of RATE."""
    cosine = (1 + math.cos(math.pi * min(step, STEPS) / PERIOD)) / 2
    left = 1 - max(0, step - STEPS) / ROUNDED_STEPS
    return min(1.0, (step + 1) / WARM_UP) * (LEAST + (1 - LEAST) * cosine * left)


def loss_of(model: Decoder, pieces: Tensor) -> Tensor:
    scores = model(pieces[:, :-1], *model.empty(len(pieces)))[0]
    return functional.cross_entropy(scores.flatten(0, 1), pieces[:, 1:].flatten())


def train(model: Decoder, tokens: Tensor, held_out: Tensor) -> None:
    generator = torch.Generator().manual_seed(1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, betas=(0.9, 0.98))
    begin = time.monotonic()
    for step in range(STEPS + ROUNDED_STEPS):
        Rounding.is_on = step >= STEPS
        for group in optimiser.param_groups:
            group["lr"] = RATE * rate_at(step)
        count, length = (ROUNDED_TOKENS, SHAPE.context) if Rounding.is_on else (TOKENS, SHAPE.context // 2)
        loss = loss_of(model, batch(tokens, count, length, generator))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 100 == 99:
            Rounding.is_on = False
            rest, seconds = held_out_loss(model, held_out), time.monotonic() - begin
            print(f"{step + 1} steps, {seconds:.0f} s: loss {loss.item():.3f}, held out {rest:.3f}", flush=True)


@torch.no_grad()
def held_out_loss(model: Decoder, tokens: Tensor) -> float:
    length = SHAPE.context
    pieces = torch.stack([tokens[i : i + length + 1] for i in range(0, len(tokens) - length - 1, length)])
    return loss_of(model, pieces).item()


def export(model: Decoder, path: Path) -> None:
    """ONNX with as many rows, and as many before them, as one likes; weights are stored in half precision."""
    past = [torch.zeros(1, SHAPE.groups, 3, SHAPE.head) for _ in range(2 * SHAPE.layers)]
    kinds = [f"{number}.{kind}" for number in range(SHAPE.layers) for kind in ("key", "value")]
    inputs, outputs = [f"past.{kind}" for kind in kinds], [f"present.{kind}" for kind in kinds]
    axes = {"tokens": {1: "rows"}, "scores": {1: "rows"}}
    axes |= {name: {2: "past"} for name in inputs} | {name: {2: "total"} for name in outputs}
    torch.onnx.export(
        model,
        (torch.zeros(1, 2, dtype=torch.int64), *past),
        path,
        input_names=["tokens", *inputs],
        output_names=["scores", *outputs],
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )
    stored = onnx.load(path)
    casts = []
    for weight in stored.graph.initializer:
        if len(weight.dims) == 2 and weight.data_type == onnx.TensorProto.FLOAT:
            name, values = weight.name, onnx.numpy_helper.to_array(weight)
            weight.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), f"{name} (half)"))
            casts.append(onnx.helper.make_node("Cast", [weight.name], [name], f"{name} (cast)", to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *stored.graph.node]
    del stored.graph.node[:]
    stored.graph.node.extend(nodes)
    onnx.save(stored, path)


@torch.no_grad()
def calibration(model: Decoder, tokens: Tensor, path: Path) -> None:
    """Pieces of the text, each behind the caches of what comes before it."""
    arrays: dict[str, list[np.ndarray]] = {}
    for start in torch.linspace(0, len(tokens) - SAMPLE_PAST - SAMPLE_ROWS, SAMPLES).long():
        before, rows = tokens[start:][:SAMPLE_PAST][None], tokens[start + SAMPLE_PAST :][:SAMPLE_ROWS][None]
        past = model(before, *model.empty(1))[1:]
        names = [f"past.{number}.{kind}" for number in range(SHAPE.layers) for kind in ("key", "value")]
        for name, array in zip(["tokens", *names], [rows, *past], strict=True):
            arrays.setdefault(name, []).append(array.numpy())
    np.savez_compressed(path, **{name: np.stack(values) for name, values in arrays.items()})


def encoded(tokenizer: Tokenizer, texts: list[str]) -> Tensor:
    return torch.tensor([token for text in texts for token in (*tokenizer.encode(text), END)])


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    texts, held_out = split(novels())
    tokenizer = learn("".join(texts), SHAPE.tokens)
    tokenizer.save(HERE / "tokenizer.json")
    (HERE / "heldout.txt").write_text(held_out)
    tokens, rest = encoded(tokenizer, texts), encoded(tokenizer, [held_out])
    print(f"{len(tokens)} tokens, {len(rest)} held out", flush=True)
    model = Decoder(SHAPE)
    train(model, tokens, rest)
    Rounding.is_on = False
    model.eval().half().float()  # as the file stores the weights
    export(model, HERE / "story.onnx")
    WORK.mkdir(parents=True, exist_ok=True)
    calibration(model, tokens, WORK / "calibration.npz")
    print(f"{(HERE / 'story.onnx').stat().st_size} bytes, held-out perplexity {math.exp(held_out_loss(model, rest)):.2f}")


if __name__ == "__main__":
    main()
