"""What a kernel is tried on: samples of its operator in its element types and epilogues, and what its reference makes of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deeploy.graph import epilogue
from deeploy.graph.kernel import Kernel, Sample
from deeploy.graph.nodes import Node, Tensor
from deeploy.graph.types import DType
from deeploy.midend import bind
from deeploy.operators.samples import SAMPLES

_ATTEMPTS = 400  # combinations of element types that are tried for one sample
_SHIFT = 20


@dataclass(frozen=True, eq=False)
class Case:
    """A node that the kernel accepts, its inputs in graph layout, and the outputs that it should give."""

    node: Node
    inputs: Mapping[str, np.ndarray]
    wanted: tuple[np.ndarray, ...]

    def __str__(self) -> str:
        given = ", ".join(f"{name} {t}" for name, t in zip(self.inputs, self.node.inputs, strict=False) if t is not None)
        stages = f" + {' + '.join(self.node.epilogue)}" if self.node.epilogue else ""
        return f"{given} -> {', '.join(map(str, self.node.outputs))}{stages}"


def cases(kernel: Kernel) -> list[Case]:
    """One case per sample and further ones until every element type and every epilogue has had its turn, where possible."""
    found: list[Case] = []
    seen: set[tuple[str, object]] = set()
    for number, sample in enumerate((*kernel.samples, *SAMPLES.get(kernel.op, ()))):
        case = _case(kernel, sample, seen, number)
        if case is not None:
            found.append(case)
    return found


def _case(kernel: Kernel, sample: Sample, seen: set[tuple[str, object]], number: int) -> Case | None:
    """The case of a sample that shows most that is new; None where no types and no epilogue are accepted."""
    body = _body(kernel, sample)
    if body is None:
        return None
    best: tuple[int, Case, set[tuple[str, object]]] | None = None
    for codes, stages in _choices(kernel, sample, body, number):
        shown = {*codes.items(), ("epilogue", stages)}
        new = len(shown - seen)
        if best is not None and best[0] >= new:
            continue
        case = _made(kernel, sample, body, codes, stages)
        if case is not None:
            best = new, case, shown
            if new == len(shown):
                break
    if best is None:
        return None
    seen |= best[2]
    return best[1]


def _body(kernel: Kernel, sample: Sample) -> tuple[str, ...] | None:
    """The operands of the kernel's body that the sample has, without absent ones at the end; None where it does not suit."""
    names = [name.rstrip("?") for name in kernel.inputs]
    given = {*sample.shapes, *sample.arrays} - {*kernel.outputs}
    while names and names[-1] not in given and f"{names[-1]}?" in kernel.inputs:
        names.pop()
    return tuple(names) if given == set(names) else None


def _choices(kernel: Kernel, sample: Sample, body: tuple[str, ...], number: int) -> Iterator[tuple[Mapping[str, DType], tuple[str, ...]]]:
    """Element types of operands and outputs with an epilogue, in an order of their own for every sample."""
    operands = [name for name in (*body, *kernel.outputs) if name not in sample.arrays]
    every = [sorted(kernel.types.get(name, frozenset(DType)), key=lambda t: t.value) for name in operands]
    combinations = list(itertools.islice(itertools.product(*every), 20_000))
    shuffled = random.Random(number)
    shuffled.shuffle(combinations)
    stages = list(kernel.epilogues)
    shuffled.shuffle(stages)
    for index, types in enumerate(combinations[:_ATTEMPTS]):
        for turn in range(len(stages)):
            yield dict(zip(operands, types, strict=True)), stages[(index + turn) % len(stages)]


def draw(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform values over the whole type; at most 12 bits of wider integers, so that sums stay in 32 bits."""
    if dtype.is_float:
        return rng.standard_normal(shape).astype(np.float32)
    low, high = max(dtype.range[0], -2048), min(dtype.range[1], 2047)
    values = np.asarray(rng.integers(low, high, shape, endpoint=True))
    values.flat[:2] = (low, high)[: values.size]
    return values.astype(dtype.numpy)


def _made(kernel: Kernel, sample: Sample, body: tuple[str, ...], codes: Mapping[str, DType], stages: tuple[str, ...]) -> Case | None:
    rng = np.random.default_rng(len(body) + sum(sum(shape) for shape in sample.shapes.values()))
    inputs = {n: sample.arrays[n] if n in sample.arrays else draw(rng, codes[n], sample.shapes[n]) for n in body}
    outputs = tuple(Tensor(name, sample.shapes.get(name, ()), codes[name]) for name in kernel.outputs)
    attrs: dict[str, Any] = {**sample.attrs, "epilogue": stages}
    if all(array.dtype.kind == "f" for array in inputs.values()):  # floats have no zero points
        attrs |= {name: 0 for name in attrs if name.endswith("zero_point")}
    node = _node(kernel, inputs, outputs, attrs)
    unfit = [text for text in bind.mismatch(kernel, _shaped(node, sample)) if not text.startswith(("no epilogue", "constant"))]
    if unfit and not stages:
        return None
    results = _tuple(kernel.reference(node, *inputs.values()))
    more, values = _stages(rng, stages, results[0], codes[kernel.outputs[0]])
    inputs, attrs = {**inputs, **more}, {**attrs, **values}
    shaped = tuple(Tensor(t.name, r.shape, t.dtype) for t, r in zip(outputs, results, strict=True))
    node = _node(kernel, inputs, shaped, attrs)
    if bind.mismatch(kernel, node):
        return None
    final = [epilogue.apply(node, r, dict(inputs)) for r in results]
    for value, tensor in zip(final, shaped, strict=True):
        low, high = tensor.dtype.range if not tensor.dtype.is_float else (-np.inf, np.inf)
        if value.size and (value.min() < low or value.max() > high):
            return None
    return Case(node, inputs, tuple(v.astype(t.dtype.numpy) for v, t in zip(final, shaped, strict=True)))


def _node(kernel: Kernel, inputs: Mapping[str, np.ndarray], outputs: tuple[Tensor, ...], attrs: Mapping[str, Any]) -> Node:
    fixed = {*kernel.constants, *kernel.layouts, *(name for names in epilogue.OPERANDS.values() for name in names)}
    tensors = tuple(Tensor(n, a.shape, DType.of(a.dtype), a if n in fixed else None) for n, a in inputs.items())
    return Node("node", kernel.op, tensors, outputs, attrs)


def _shaped(node: Node, sample: Sample) -> Node:
    """The node before its outputs' shapes are known: with those of its first input, which conditions may look at."""
    first = node.inputs[0]
    shape = first.shape if first is not None else ()
    outputs = tuple(Tensor(t.name, sample.shapes.get(t.name, shape), t.dtype) for t in node.outputs)
    return Node(node.name, node.op, node.inputs, outputs, sample.attrs)


def _stages(
    rng: np.random.Generator, stages: tuple[str, ...], result: np.ndarray, dtype: DType
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Operands and attributes of the stages that bring results of that size into the range of the output."""
    channels = result.shape[-1] if result.ndim else 1
    is_float = result.dtype.kind == "f"
    given: dict[str, np.ndarray] = {}
    size = float(np.abs(result).max()) if result.size else 1.0
    if "bias" in stages:
        bias = rng.uniform(-1, 1, channels) * max(size, 8) / 4
        given["bias"] = bias.astype(np.float32 if is_float else np.int32)
    if "requantise" in stages:
        low, high = dtype.range if dtype.bytes == 1 else (-128, 127)
        scale = min(2**_SHIFT * (high - low) / max(1.0, 2 * size), 2.0**30)
        given["mul"] = np.maximum(1, rng.uniform(0.2, 1, channels) * scale).astype(np.int32)
        given["add"] = np.asarray((rng.integers(low, high, channels) // 4 << _SHIFT) + (1 << (_SHIFT - 1)), np.int32)
        return given, {"shift": _SHIFT, "low": low, "high": high}
    if "clamp" in stages:
        return given, {"low": -size / 2, "high": size / 3} if is_float else {"low": int(-size / 2), "high": int(size / 3)}
    return given, {}


def _tuple(result: Any) -> tuple[np.ndarray, ...]:
    return result if isinstance(result, tuple) else (result,)
