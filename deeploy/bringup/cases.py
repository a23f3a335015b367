"""What a kernel is tried on: random nodes of its operator that it accepts, and what its reference makes of them.

Shapes and attributes come from the declaration's samples and from the operator (``Operator.draw``);
element types, epilogues, constants and values are drawn here, over all that the declaration accepts.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deeploy.ir import epilogue
from deeploy.ir.kernel import ANY, Kernel, Sample
from deeploy.ir.nodes import Attributes, Node, Tensor
from deeploy.ir.types import HALVES, NARROW, DType, pack_elements, unpack_elements
from deeploy.operators.draws import draw_extent
from deeploy.operators.fused_kernels import fuse_nodes
from deeploy.planning.binding import kernels as bind

_TRIES = 24  # element types and epilogues that are tried for a fixed sample
_FEW_TRIES = 6  # for a random one
_FEW = 300  # products of 12 bits that are added up
_SAMPLES_PER_NODE = 48  # that are drawn for one node that is wanted
_MOST_ATTEMPTS = 1500  # to draw one node at all
_MOST_SHIFT = 38
_RANDOM = 0.5

Choice = tuple[Mapping[str, DType], tuple[str, ...]]  # element types of operands, and stages of the epilogue


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


def draw_cases(kernel: Kernel, samples: int = 0, seed: int = 0) -> list[Case]:
    """Nodes that the kernel accepts: one of every sample of its declaration, and ``samples`` random ones.

    Of the random nodes those come first that need C of their own: other element types, another epilogue, other macros.
    """
    rng = random.Random(f"{seed} {kernel.name} {sorted((n, sorted(t.value for t in types)) for n, types in kernel.types.items())}")
    seen: set[object] = set()
    drawn_cases: list[Case] = []
    for sample in kernel.samples:
        case = _draw_case(kernel, sample, rng, seen)
        if case is not None:
            drawn_cases.append(case)
            seen |= _list_freedom(kernel, case.node)
    drawn: list[Case] = []
    further: list[Case] = []
    for attempt in range(_MOST_ATTEMPTS if samples else 0):
        if len(drawn) == samples or ((drawn_cases or drawn or further) and attempt >= samples * _SAMPLES_PER_NODE):
            break
        case = _draw_fused_case(kernel, rng) if kernel.phases else _draw_case(kernel, _draw_sample(kernel, rng), rng, seen, _FEW_TRIES)
        if case is None:
            continue
        new = _list_freedom(kernel, case.node) - seen
        seen |= new
        (drawn if new else further).append(case)
    return [*drawn_cases, *drawn, *further[: samples - len(drawn)]]


def _draw_sample(kernel: Kernel, rng: random.Random) -> Sample | None:
    """A random node of the operator, or one of the samples with other extents."""
    draw_node = kernel.operator.draw
    if draw_node is not None and not (kernel.samples and rng.random() < _RANDOM):
        return draw_node(rng)
    return _stretch_sample(kernel, rng.choice(kernel.samples), rng) if kernel.samples else None


def _stretch_sample(kernel: Kernel, sample: Sample, rng: random.Random) -> Sample | None:
    """The sample with other extents of the dimensions of the kernel's nest, where all of its operands are mapped to them axis by axis."""
    names = [name.rstrip("?") for name in kernel.inputs if name.rstrip("?") in sample.shapes]
    node = Node("node", kernel.op, tuple(Tensor(n, sample.shapes[n], DType.FLOAT32) for n in names), (), sample.attrs)
    if sample.arrays or kernel.layouts:
        return sample
    maps = kernel.nest(_with_outputs(kernel, node, sample)).maps()
    extents: dict[str, int] = {}
    shapes = dict(sample.shapes)
    for name in shapes:
        axes = maps[name].axes if name in maps else ()
        if any(axis.bare() is None for axis in axes) or len(axes) != len(shapes[name]):
            return sample
        dims = [dim for axis in axes if (dim := axis.bare()) is not None]
        for dim in dims:
            extents.setdefault(dim.name, draw_extent(rng))
        shapes[name] = tuple(1 if size == 1 else extents[dim.name] for size, dim in zip(shapes[name], dims, strict=True))
    return Sample(shapes, sample.attrs)


def _with_outputs(kernel: Kernel, node: Node, sample: Sample) -> Node:
    """The node with outputs of a shape that conditions and nests may look at: the sample's, or the first input's."""
    first = node.inputs[0]
    shape = first.shape if first is not None else ()
    outputs = node.outputs or tuple(Tensor(name, (), DType.FLOAT32) for name in kernel.outputs)
    shaped = tuple(Tensor(t.name, sample.shapes.get(t.name, shape), t.dtype) for t in outputs)
    return Node(node.name, node.op, node.inputs, shaped, node.attrs)


def _list_freedom(kernel: Kernel, node: Node) -> set[object]:
    """What a node shows of a kernel's freedom: element types one by one, the epilogue, and all that its C depends on, together."""
    tensors = [t for t in (*node.inputs, *node.outputs) if t is not None]
    macros = tuple((kernel.macros(node) if kernel.macros is not None else {}).items())
    stages = node.epilogue, node.attrs.get("even")
    types = tuple((t.name, *(t.narrow[:1] or [t.dtype])) for t in tensors)
    return {*types, ("epilogue", node.epilogue), (types, stages, macros)}


def _draw_fused_case(kernel: Kernel, rng: random.Random) -> Case | None:
    """A case of kernels one behind the other, of a random case of each; the second one reads what the first one should give."""
    first, second = (phase.kernel for phase in kernel.phases)
    assert first.operator.draw is not None and second.operator.draw is not None
    ahead, behind = first.operator.draw(rng), second.operator.draw(rng)
    x = behind.shapes["x"]
    front = _draw_case(first, replace(ahead, shapes=dict.fromkeys(ahead.shapes, x)), rng, set(), _FEW_TRIES)
    if front is None:
        return None
    rows = _draw_case(second, replace(behind, arrays={**behind.arrays, "x": front.wanted[0]}), rng, set(), _FEW_TRIES)
    if rows is None:
        return None
    node = fuse_nodes(kernel, front.node, rows.node)
    names = bind.operand_names(kernel, node)
    if names is None or bind.list_mismatches(kernel, node):
        return None
    given = {id(t): array for case in (front, rows) for t, array in zip(case.node.inputs, case.inputs.values(), strict=True)}
    inputs = {name: given[id(tensor)] for name, tensor in zip(names, node.inputs, strict=True)}
    return Case(node, inputs, (*rows.wanted, *front.wanted))


def _draw_case(kernel: Kernel, sample: Sample | None, rng: random.Random, seen: set[object], tries: int = _TRIES) -> Case | None:
    """A case of a sample, one that shows something new where it is found soon; None where no types and no epilogue are accepted."""
    body = _body_operands(kernel, sample) if sample is not None else None
    if sample is None or body is None:
        return None
    best: Case | None = None
    for codes, stages in itertools.islice(_draw_choices(kernel, sample, body, rng), tries):
        shown = {*codes.items(), ("epilogue", stages)}
        if best is not None and shown <= seen:
            continue
        case = _make_case(kernel, sample, body, codes, stages, rng)
        if case is not None:
            best = case
            if _list_freedom(kernel, case.node) - seen:
                break
    return best


def _body_operands(kernel: Kernel, sample: Sample) -> tuple[str, ...] | None:
    """The operands of the kernel's body that the sample has, without absent ones at the end; None where it does not suit."""
    names = [name.rstrip("?") for name in kernel.inputs]
    given = {*sample.shapes, *sample.arrays} - {*kernel.outputs}
    while names and names[-1] not in given and f"{names[-1]}?" in kernel.inputs:
        names.pop()
    return tuple(names) if given == set(names) else None


def _draw_choices(kernel: Kernel, sample: Sample, body: tuple[str, ...], rng: random.Random) -> Iterator[Choice]:
    """Element types of operands and outputs with an epilogue; in half of them as many operands as possible have one type."""
    operands = [name for name in (*body, *kernel.outputs) if name not in sample.arrays]
    accepted = {name: sorted(kernel.types.get(name, ANY), key=lambda t: t.value) for name in operands}
    if not all(accepted.values()):
        return
    every = sorted({t for types in accepted.values() for t in types}, key=lambda t: t.value)
    for turn in itertools.count(rng.randrange(4)):
        one = rng.choice(every)
        free = kernel.outputs if turn % 4 == 1 else () if turn % 4 == 3 else operands if turn % 4 == 0 else operands[1:]
        types = {
            n: one if one in accepted_types and n not in free else rng.choice(accepted_types) for n, accepted_types in accepted.items()
        }
        yield types, rng.choice(kernel.epilogues)


def draw_values(rng: random.Random, dtype: DType, shape: tuple[int, ...], most: int = 2047) -> np.ndarray:
    """Values over the whole type but not beyond ``most``, so that sums stay in 32 bits; few small ones, or both ends."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    if dtype.is_float:
        values = np.asarray(numbers.standard_normal(shape), np.float32)
        small = np.where(numbers.random(shape) < _RANDOM / 2, np.float32(2**-16), np.float32(1))  # less than binary16 has in full
        is_short = dtype is DType.FLOAT32 and rng.random() < _RANDOM  # what a half holds, too
        short = DType.BFLOAT16 if is_short else dtype
        return unpack_elements(pack_elements(values * small, short), short) if short in HALVES else values
    low, high = max(dtype.range[0], -most - 1), min(dtype.range[1], most)
    kind = rng.randrange(6)
    if kind == 0:
        return np.where(numbers.random(shape) < _RANDOM, low, high).astype(dtype.numpy)
    if kind == 1:
        low, high = max(low, -3), min(high, 3)
    values = np.asarray(numbers.integers(low, high, shape, endpoint=True))
    values.flat[:2] = (low, high)[: values.size]
    if dtype is DType.INT1:
        values[values == 0] = 1
    return values.astype(dtype.numpy)


def _make_case(
    kernel: Kernel, sample: Sample, body: tuple[str, ...], codes: Mapping[str, DType], stages: tuple[str, ...], rng: random.Random
) -> Case | None:
    terms = min((math.prod(shape) for shape in sample.shapes.values()), default=1)  # of a sum, at most
    most = 2047 if terms <= _FEW else 255
    inputs = {n: sample.arrays[n] if n in sample.arrays else draw_values(rng, codes[n], sample.shapes[n], most) for n in body}
    first, free = inputs[body[0]], (n for n in body[1:] if n not in sample.arrays)
    same = [n for n in free if inputs[n].shape == first.shape and inputs[n].dtype == first.dtype]
    if same and rng.random() < 0.2:  # of one tensor twice, a kernel may read one buffer
        inputs[same[0]] = first
    outputs = tuple(Tensor(name, sample.shapes.get(name, ()), codes[name]) for name in kernel.outputs)
    attrs = {name: _fit_attribute(name, value, inputs) for name, value in sample.attrs.items()} | {"epilogue": stages}
    constants = {*kernel.constants, *kernel.layouts, *epilogue.stage_operands(stages)}
    constants |= {name for name in (*body[1:], *sample.arrays) if name not in codes or rng.random() < 0.3}
    node = _make_node(kernel, inputs, outputs, attrs, constants)
    try:
        results = _as_tuple(kernel.reference(node, *inputs.values()))
    except (ArithmeticError, IndexError, KeyError, OverflowError, TypeError, ValueError):
        if bind.list_mismatches(kernel, _with_outputs(kernel, node, sample)):
            return None
        raise
    if stages and results[0].dtype.kind != "f" and _largest_magnitude(results[0]) >= 2**31:
        return None
    more, values = _draw_stages(rng, kernel, stages, results[0], codes[kernel.outputs[0]])
    inputs, attrs = {**inputs, **more}, {**attrs, **values}
    shaped = tuple(Tensor(t.name, r.shape, t.dtype) for t, r in zip(outputs, results, strict=True))
    node = _make_node(kernel, inputs, shaped, attrs, constants)
    if bind.list_mismatches(kernel, node):
        return None
    with np.errstate(invalid="ignore"):
        final = [epilogue.apply_stages(node, r, dict(inputs)) for r in results]
    for value, tensor in zip(final, shaped, strict=True):
        low, high = tensor.dtype.range if not tensor.dtype.is_float else (-np.inf, np.inf)
        if value.size == 0 or value.min() < low or value.max() > high:
            return None
    return Case(node, inputs, tuple(v.astype(t.dtype.numpy) for v, t in zip(final, shaped, strict=True)))


def _fit_attribute(name: str, value: Any, inputs: Mapping[str, np.ndarray]) -> Any:
    """An attribute as the types of the operands allow it: a zero point is a value of its operand, and floats have none; true is 1."""
    if name == "value" and any(array.dtype.kind == "b" for array in inputs.values()):
        return min(value, 1)
    if not name.endswith("zero_point"):
        return value
    if all(array.dtype.kind == "f" for array in inputs.values()):
        return 0
    owner = inputs.get(name.split("_")[0], next(iter(inputs.values())))
    if owner.dtype.kind not in "iu":
        return value
    return min(max(value, int(np.iinfo(owner.dtype).min)), int(np.iinfo(owner.dtype).max))


def _largest_magnitude(values: np.ndarray) -> int:
    return max(abs(int(values.min(initial=0))), abs(int(values.max(initial=0))))


def _make_node(
    kernel: Kernel, inputs: Mapping[str, np.ndarray], outputs: tuple[Tensor, ...], attrs: Attributes, constants: set[str]
) -> Node:
    narrow = {n: _narrow_types(kernel.types.get(n, ()), a) for n, a in inputs.items() if n in constants}
    tensors = (Tensor(n, a.shape, DType.of(a.dtype), a if n in constants else None, narrow.get(n, ())) for n, a in inputs.items())
    return Node("node", kernel.op, tuple(tensors), outputs, attrs)


def _narrow_types(accepted: Collection[DType], array: np.ndarray) -> tuple[DType, ...]:
    """The narrow types that hold a constant: those that the kernel reads, and of floats those that another kernel may read."""
    return tuple(t for t in NARROW if (t in accepted or (t in HALVES and array.dtype.kind == "f")) and t.stores(array))


def _draw_stages(
    rng: random.Random, kernel: Kernel, stages: tuple[str, ...], result: np.ndarray, dtype: DType
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Operands and attributes of the stages, one for all channels or one each, that bring results of that size near the output's range."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    channels = result.shape[-1] if result.ndim else 1
    is_float = result.dtype.kind == "f"
    given: dict[str, np.ndarray] = {}
    attrs: dict[str, Any] = {}
    size = max(1.0, float(_largest_magnitude(result)) if not is_float else float(np.abs(result).max(initial=0)))

    def count() -> int:
        return rng.choice((1, channels, channels))

    if "bias" in stages:
        bias = numbers.uniform(-1, 1, count()) * min(max(size, 8) / 4, 2**31 - 256 - size)
        given["bias"] = bias.astype(np.float32 if is_float else np.int32)
    if "requantise" in stages:
        low, high = dtype.range if dtype.bytes == 1 else (-128, 127)
        factor = rng.choice((0.3, 1.0, 1.0, 4.0)) * (high - low) / (2 * size)
        shift = min(rng.choice((8, 14, 20, _MOST_SHIFT)), int(math.log2((2**31 - 1) / factor)))
        given["mul"] = np.clip(numbers.uniform(0.2, 1, count()) * factor * 2**shift, 1, 2**31 - 1).astype(np.int32)
        is_wide = shift > 20 or rng.random() < 0.3
        add = (numbers.integers(low, high, count(), endpoint=True) // 4 << shift) + (1 << shift >> 1)
        given["add"] = np.asarray(add, np.int64 if is_wide and DType.INT64 in kernel.types.get("add", epilogue.TYPES["add"]) else np.int32)
        if rng.random() < 0.3:
            low, high = rng.choice(((low, low + 100), (low // 4 + high // 4, high), (low + 1, high - 1)))
        attrs = {"shift": shift, "low": low, "high": high, **({"even": rng.randrange(2)} if rng.random() < 0.3 else {})}
        if "lookup" in stages:
            given["table"] = draw_values(rng, dtype if dtype.bytes == 1 else DType.INT8, (high - low + 1,))
    elif "clamp" in stages:
        ends = (-size / 2, size / 3) if is_float else (int(-size / 2), int(size / 3))
        attrs = {"low": ends[0] if rng.random() < 0.9 else None, "high": ends[1]}
    return given, attrs


def _as_tuple(result: Any) -> tuple[np.ndarray, ...]:
    return result if isinstance(result, tuple) else (result,)
