"""Encoders and decoders as Hugging Face's ``transformers`` builds them, random weights, exported by torch and quantised by onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

WORDS, LENGTH, WIDTH, SIDE = 96, 12, 32, 16
_COMMON = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "attn_implementation": "eager"}
_TEXT = {"vocab_size": WORDS, "max_position_embeddings": 2 * LENGTH}
_IMAGE = {"image_size": SIDE, "patch_size": 4, "intermediate_size": 2 * WIDTH}


@dataclass(frozen=True)
class Family:
    """A class of models, what it is configured with, and what it is called with."""

    model: str
    config: str
    options: dict[str, Any]
    is_image: bool = False


FAMILIES = {
    "bert": Family("BertModel", "BertConfig", {**_COMMON, **_TEXT, "intermediate_size": 2 * WIDTH}),
    "vit": Family("ViTForImageClassification", "ViTConfig", {**_COMMON, **_IMAGE}, is_image=True),
    "llama": Family("LlamaForCausalLM", "LlamaConfig", {**_COMMON, **_TEXT, "num_key_value_heads": 2, "intermediate_size": 2 * WIDTH}),
    "gpt2": Family(
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": WORDS, "n_positions": 2 * LENGTH, "n_embd": WIDTH, "n_layer": 2, "n_head": 4, "attn_implementation": "eager"},
    ),
    "gptj": Family(
        "GPTJForCausalLM",
        "GPTJConfig",
        {
            "vocab_size": WORDS,
            "n_positions": 2 * LENGTH,
            "n_embd": WIDTH,
            "n_layer": 2,
            "n_head": 4,
            "rotary_dim": 8,
            "attn_implementation": "eager",
        },
    ),
    "neox": Family("GPTNeoXForCausalLM", "GPTNeoXConfig", {**_COMMON, **_TEXT, "intermediate_size": 2 * WIDTH}),
}


def samples(family: Family, count: int, seed: int = 5) -> list[np.ndarray]:
    """Images, or tokens."""
    random = np.random.default_rng(seed)
    if family.is_image:
        return [random.uniform(-1, 1, (1, 3, SIDE, SIDE)).astype(np.float32) for _ in range(count)]
    return [random.integers(0, WORDS, (1, LENGTH)) for _ in range(count)]


def _network(family: Family) -> Any:
    """The model with random weights large enough to matter, as a function of one tensor."""
    import torch
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, family.model)(getattr(transformers, family.config)(**family.options)).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.15)

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            extra = {} if family.is_image or "Bert" in family.model else {"use_cache": False}
            return self.model(**{"pixel_values" if family.is_image else "input_ids": x}, **extra)[0]

    return First().eval()


def export(name: str, path: Path, dynamo: bool) -> None:
    """Write a family's network as float ONNX."""
    import torch

    family = FAMILIES[name]
    x = torch.from_numpy(samples(family, 1)[0])
    options: dict[str, Any] = {"dynamo": True, "verbose": False} if dynamo else {"dynamo": False, "opset_version": 17}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(_network(family), (x,), path, input_names=["x"], output_names=["y"], **options)
    onnx.save(onnx.load(path), path)  # weights that were written beside it come into the file


def export_cached(path: Path, has_positions: bool, mask: str = "", dynamo: bool = True) -> None:
    """Write a Llama with its caches as inputs and outputs, as float ONNX with any number of rows, and of rows before them.

    ``mask``: none, "2d" (of ones for what is seen) or "4d" (of floats that are added to scores).
    """
    import torch
    from transformers.cache_utils import DynamicCache

    family = FAMILIES["llama"]
    layers = family.options["num_hidden_layers"]
    model = _network(family).model

    class Cached(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, *more: Any) -> Any:
            seen, more = (more[0], more[1:]) if mask else (None, more)
            places, past = (more[0], more[1:]) if has_positions else (None, more)
            cache = DynamicCache()
            for number in range(layers):
                cache.update(past[2 * number], past[2 * number + 1], number)
            found = self.model(input_ids=ids, attention_mask=seen, position_ids=places, past_key_values=cache, use_cache=True)
            return found.logits, *(t for layer in found.past_key_values.layers for t in (layer.keys, layer.values))

    kinds = [f"{number}.{kind}" for number in range(layers) for kind in ("key", "value")]
    before, rows, head = 5, 2, WIDTH // family.options["num_attention_heads"]
    past = [torch.zeros(1, family.options["num_key_value_heads"], before, head) for _ in kinds]
    places = {"position_ids": torch.arange(before, before + rows)[None]} if has_positions else {}
    ones, added = torch.ones(1, before + rows, dtype=torch.int64), torch.zeros(1, 1, rows, before + rows)
    masks = {"attention_mask": ones if mask == "2d" else added} if mask else {}
    sources, results = [f"past_key_values.{kind}" for kind in kinds], [f"present.{kind}" for kind in kinds]
    axes = {key: {1: "rows"} for key in ("input_ids", *places, "logits")}
    axes |= {key: {1: "total"} if mask == "2d" else {2: "rows", 3: "total"} for key in masks}
    axes |= {key: {2: "past"} for key in sources} | {key: {2: "total"} for key in results}
    inputs = (torch.zeros(1, rows, dtype=torch.int64), *masks.values(), *places.values(), *past)
    names = ["input_ids", *masks, *places, *sources]
    options: dict[str, Any] = {"dynamo": False, "dynamic_axes": axes, "opset_version": 17}
    if dynamo:
        sizes = {name: torch.export.Dim(name) for name in ("rows", "past", "total")}
        shapes = [{axis: sizes[size] for axis, size in axes[name].items()} for name in names]
        options = {"dynamo": True, "verbose": False, "dynamic_shapes": (shapes[0], tuple(shapes[1:]))}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(Cached().eval(), inputs, path, input_names=names, output_names=["logits", *results], **options)
    onnx.save(onnx.load(path), path)


def quantise(source: Path, path: Path, calibration: list[dict[str, np.ndarray]], **options: Any) -> None:
    """Static quantisation, as onnxruntime's documentation does it: preprocessed, then QDQ."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left: Iterator[dict[str, np.ndarray]] = iter(calibration)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    ready = path.with_suffix(".ready.onnx")
    quant_pre_process(source, ready, skip_symbolic_shape=True)
    quantize_static(ready, path, Reader(), quant_format=QuantFormat.QDQ, **options)
