"""Weights of 4 bits: which ones of a network that was quantised to 8 bits get them, and with which scales and steps.

Products and convolutions keep 8-bit activations. A weight's steps are chosen one after the other along its depth, so that the rounding of
one makes up for that of those before it (Frantar et al., GPTQ, arXiv:2210.17323), for the inputs that the calibration samples give it; each
scale is the one that loses least of its channel or group. Under a budget those weights stay in 8 bits whose 4 bits cost most at the
network's outputs for a byte saved, one weight tried at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deeploy.documents import Contents
from deeploy.errors import UsageError, shorten
from deeploy.quantization.form import Form
from deeploy.quantization.noise import EXACT, format_ratio
from deeploy.quantization.samples import Sample
from deeploy.report.text import align_table

BITS = 8  # of weights, unless they have 4
OPSET = 21  # the first whose DequantizeLinear takes 4 bits and blocks
LOW, HIGH = -8, 7
DAMPING = 0.01  # of the mean of the squares of inputs, added to all of them
SHRUNK = np.linspace(1.0, 0.6, 17)  # what the range of a channel may be cut to
MOST_SAMPLES = 8  # that a single weight is tried on
_CONVOLUTION = "Conv"
_TABLE = "Gather"  # of rows, which have one scale together
_READERS = frozenset({"MatMul", "Gemm", _CONVOLUTION, _TABLE})
Run = Callable[[onnx.ModelProto, str, Sequence[str], Sequence[Sample]], Iterator[list[np.ndarray]]]


@dataclass(frozen=True, eq=False)
class Weight:
    """A weight of a quantised network: the node that reads it, the float values, and its place in the network.

    Attributes:
        node: of the quantised network, which computes with it.
        source: the tensor of the float network that the node multiplies it by.
        dequantise: the node that gives it.
        array: the float values as the float network has them, and ``values`` as [outputs, depth].
    """

    node: onnx.NodeProto
    source: str
    dequantise: onnx.NodeProto
    array: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Narrowed:
    """What 4 bits cost in one weight.

    Attributes:
        bytes: in 8 bits.
        bits: those that it has in the end.
        signal_to_noise: of the outputs beside those with 8 bits, where this weight alone has 4, in decibel; None where nothing was tried.
    """

    node: str
    bytes: int
    bits: int
    signal_to_noise: float | None

    def contents(self) -> Contents:
        """The loss of one weight in 4 bits as a document for ``--json``."""
        return asdict(self)


def weights_of(model: onnx.ModelProto, prepared: onnx.ModelProto) -> list[Weight]:
    """The weights of a quantised network that may have 4 bits; ``prepared`` is the float network that it was made of."""
    floats = {t.name: t for t in prepared.graph.initializer if t.data_type == TensorProto.FLOAT}
    sources = {node.name: node.input[0] for node in prepared.graph.node if node.input}
    given = {node.output[0]: node for node in model.graph.node if node.op_type == "DequantizeLinear"}
    readers: dict[str, int] = {}
    for name in (name for node in model.graph.node for name in node.input):
        readers[name] = readers.get(name, 0) + 1
    weights = []
    for node in model.graph.node:
        before = given.get(node.input[int(node.op_type != _TABLE)]) if node.op_type in _READERS and len(node.input) > 1 else None
        name = before.input[0].removesuffix("_quantized") if before is not None else ""
        if before is None or name not in floats or node.name not in sources or readers[before.output[0]] > 1:
            continue
        array = numpy_helper.to_array(floats[name])
        if array.ndim == 2 or (node.op_type == _CONVOLUTION and array.ndim > 2):
            weights.append(Weight(node, sources[node.name], before, array, _weight_rows(node, array)))
    return weights


def _is_transposed(node: onnx.NodeProto) -> bool:
    """Whether a product's weight has its outputs on the last axis."""
    flag = next((a.i for a in node.attribute if a.name == "transB"), 0)
    return node.op_type not in (_CONVOLUTION, _TABLE) and not flag


def _weight_rows(node: onnx.NodeProto, array: np.ndarray) -> np.ndarray:
    if node.op_type == _TABLE:
        return array.reshape(1, -1).astype(np.float64)
    rows: np.ndarray = (array.T if _is_transposed(node) else array.reshape(len(array), -1)).astype(np.float64)
    return rows


def _rows_as_weight(node: onnx.NodeProto, rows: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    return np.ascontiguousarray(rows.T if _is_transposed(node) else rows.reshape(shape))


def inputs_seen(weight: Weight, x: np.ndarray) -> np.ndarray | None:
    """What the rows of a weight are multiplied by, [positions, depth]; None of tables and grouped convolutions."""
    if weight.node.op_type == _TABLE:
        return None
    if weight.node.op_type == _CONVOLUTION:
        return _convolution_windows(weight, x)
    is_turned = any(a.name == "transA" and a.i for a in weight.node.attribute)
    return (x.T if is_turned else x).reshape(-1, weight.values.shape[1])


def _convolution_windows(weight: Weight, x: np.ndarray) -> np.ndarray | None:
    """The windows of a dense convolution; those at the borders are left out, which padding would fill."""
    attrs = {a.name: helper.get_attribute_value(a) for a in weight.node.attribute}
    taps, rank = weight.array.shape[2:], weight.array.ndim - 2
    if attrs.get("group", 1) > 1:
        return None
    steps, gaps = (attrs.get(name, [1] * rank) for name in ("strides", "dilations"))
    reach = tuple(gap * (n - 1) + 1 for gap, n in zip(gaps, taps, strict=True))
    if any(n < size for n, size in zip(x.shape[2:], reach, strict=True)):
        return None
    every = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, 2 + rank)))
    places = tuple(slice(None, None, step) for step in steps) + tuple(slice(None, None, gap) for gap in gaps)
    windows: np.ndarray = np.moveaxis(every[(slice(None), slice(None), *places)], 1, 1 + rank)
    return windows.reshape(-1, weight.values.shape[1])


def _gram_matrices(weights: Sequence[Weight], seen: Iterable[Mapping[str, np.ndarray]]) -> list[np.ndarray | None]:
    """The sums of products of every pair of a weight's inputs over all samples, [depth, depth]; None where they are not known."""
    grams: list[np.ndarray | None] = [None] * len(weights)
    for values in seen:
        for i, weight in enumerate(weights):
            rows = inputs_seen(weight, values[weight.source])
            if rows is not None:
                square = rows.T.astype(np.float64) @ rows.astype(np.float64)
                before = grams[i]
                grams[i] = square if before is None else before + square
    return grams


def scales_of(values: np.ndarray, power: np.ndarray, group: int) -> np.ndarray:
    """The scale of every row and group of its elements that loses least, [rows, groups].

    Args:
        values: [rows, depth].
        power: [depth], what the square of an element's error counts for.
    """
    rows, depth = values.shape
    count = -(-depth // group)
    filled = np.pad(values, ((0, 0), (0, count * group - depth))).reshape(rows, count, group)
    shares = np.pad(power, (0, count * group - depth)).reshape(1, count, group)
    whole = np.maximum(np.abs(filled).max(axis=-1) / HIGH, np.finfo(np.float32).tiny)
    best, least = whole, np.full(whole.shape, np.inf)
    for share in SHRUNK:
        scale = (whole * share).astype(np.float32).astype(np.float64)[..., None]
        error = ((filled - np.clip(np.rint(filled / scale), LOW, HIGH) * scale) ** 2 * shares).sum(axis=-1)
        best, least = np.where(error < least, scale[..., 0], best), np.minimum(error, least)
    result: np.ndarray = best.astype(np.float32)
    return result


def steps_of(values: np.ndarray, gram: np.ndarray | None, group: int | None) -> tuple[np.ndarray, np.ndarray]:
    """A weight in 4 bits: steps int8 [rows, depth], and scales float32 [rows, groups].

    Args:
        values: [rows, depth].
        gram: [depth, depth], of its inputs.
        group: elements of a row with one scale; None: all of them.
    """
    depth = values.shape[1]
    size = depth if group is None else group
    if gram is None or not gram.any():
        scales = scales_of(values, np.ones(depth), size)
        spread = np.repeat(scales, size, axis=1)[:, :depth].astype(np.float64)
        return np.clip(np.rint(values / spread), LOW, HIGH).astype(np.int8), scales
    damped = gram + np.eye(depth) * DAMPING * np.diag(gram).mean()
    scales = scales_of(values, np.diag(damped), size)
    spread = np.repeat(scales, size, axis=1)[:, :depth].astype(np.float64)
    order = np.argsort(-np.diag(damped), kind="stable")  # what counts most is rounded first
    upper = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T
    rest, steps = values[:, order].copy(), np.zeros(values.shape, np.int8)
    for place, column in enumerate(order):
        chosen = np.clip(np.rint(rest[:, place] / spread[:, column]), LOW, HIGH)
        steps[:, column] = chosen
        error = (rest[:, place] - chosen * spread[:, column]) / upper[place, place]
        rest[:, place:] -= np.outer(error, upper[place, place:])
    return steps, scales


def narrow_weight(model: onnx.ModelProto, weight: Weight, steps: np.ndarray, scales: np.ndarray, group: int | None) -> None:
    """Give a weight of a quantised network these steps of 4 bits, and a bias behind it the scales that follow."""
    (dequantise,) = [node for node in model.graph.node if node.output[0] == weight.dequantise.output[0]]
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    name = dequantise.input[0]
    array, axis = _rows_as_weight(weight.node, steps, weight.array.shape), int(_is_transposed(weight.node))
    constants[name].CopyFrom(helper.make_tensor(name, TensorProto.INT4, array.shape, array.ravel()))
    blocks = _rows_as_weight(weight.node, scales, scales.shape) if group is not None else scales[:, 0]
    blocks = blocks.reshape(()) if weight.node.op_type == _TABLE else blocks
    own = [f"{name}_scale_4", f"{name}_zero_4"]
    model.graph.initializer.append(numpy_helper.from_array(blocks, own[0]))
    model.graph.initializer.append(helper.make_tensor(own[1], TensorProto.INT4, blocks.shape, np.zeros(blocks.size, np.int8)))
    dequantise.input[1:] = own
    del dequantise.attribute[:]
    dequantise.attribute.append(helper.make_attribute("axis", 1 - axis if group is not None else axis))
    if group is not None:
        dequantise.attribute.append(helper.make_attribute("block_size", group))
        return
    _fit_bias(model, weight, constants, scales[:, 0])


def _fit_bias(model: onnx.ModelProto, weight: Weight, constants: Mapping[str, TensorProto], scales: np.ndarray) -> None:
    """A bias has the scale of the sums that it is added to: that of the input times that of the weight."""
    given = {node.output[0]: node for node in model.graph.node if node.op_type == "DequantizeLinear"}
    x, bias = (given.get(weight.node.input[i]) if len(weight.node.input) > i else None for i in (0, 2))
    if x is None or bias is None or x.input[1] not in constants or constants[bias.input[0]].data_type != TensorProto.INT32:
        return
    stored, old = (numpy_helper.to_array(constants[name]) for name in bias.input[:2])
    new = (numpy_helper.to_array(constants[x.input[1]]) * scales).astype(np.float32)
    values = np.clip(np.rint(stored * old.astype(np.float64) / new), -(2**31), 2**31 - 1).astype(np.int32)
    constants[bias.input[0]].CopyFrom(numpy_helper.from_array(values, bias.input[0]))
    constants[bias.input[1]].CopyFrom(numpy_helper.from_array(new if old.ndim else new.reshape(()), bias.input[1]))


def choose_weights(noise: Sequence[float], sizes: Sequence[int], whole: int, form: Form) -> list[int]:
    """The numbers of the weights that get 4 bits: those that bring the least noise for a byte saved, as many as budgets ask for.

    Args:
        noise: of each alone, as a share of the signal at the outputs.
        sizes: bytes of each in 8 bits.
        whole: bytes of all weights in 8 bits.

    Raises:
        UsageError: the budget of bytes is less than all of them take in 4 bits.
    """
    least = whole - sum(size // 2 for size in sizes)
    if form.weight_bytes is not None and form.weight_bytes < least:
        raise UsageError(f"--weight-bytes {form.weight_bytes}: with weights of 4 bits the network has {least}", "Give a larger budget.")
    taken: list[int] = []
    size, total = whole, 0.0
    for i in sorted(range(len(sizes)), key=lambda i: noise[i] / sizes[i]):
        if form.weight_bytes is not None and size <= form.weight_bytes:
            break
        if form.weight_loss is None or total + noise[i] <= 10 ** (-form.weight_loss / 10):
            taken.append(i)
            size, total = size - sizes[i] // 2, total + noise[i]
    return sorted(taken)


def narrow_network(
    model: onnx.ModelProto, prepared: onnx.ModelProto, name: str, samples: Sequence[Sample], form: Form, run: Run
) -> tuple[onnx.ModelProto, list[Narrowed]]:
    """A network that was quantised to 8 bits with weights of 4, as the form wants it; and what was found of each.

    Args:
        prepared: the float network that ``model`` was made of.
        name: of the network, for messages.
        run: gives tensors of a model for every sample.

    Raises:
        UsageError: no weight can have 4 bits, or groups and budgets do not fit.
    """
    weights = weights_of(model, prepared)
    _check_weights(form, weights)
    given = {tensor.name for tensor in prepared.graph.input}
    sources = list(dict.fromkeys(weight.source for weight in weights if weight.source not in given))
    runs = run(prepared, name, sources, samples) if sources else ([] for _ in samples)
    seen = ({**sample, **dict(zip(sources, values, strict=True))} for sample, values in zip(samples, runs, strict=True))
    grams = _gram_matrices(weights, seen)
    forms = [steps_of(weight.values, gram, _group_size(weight, form)) for weight, gram in zip(weights, grams, strict=True)]
    has_budget = form.weight_bytes is not None or form.weight_loss is not None
    tried = _try_weights(model, weights, forms, name, samples[:: -(-len(samples) // MOST_SAMPLES)], form, run) if has_budget else []
    sizes = [weight.array.size for weight in weights]
    taken = choose_weights(tried, sizes, _weight_bytes(model), form) if tried else list(range(len(weights)))
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for i in taken:
        narrow_weight(result, weights[i], *forms[i], _group_size(weights[i], form))
    _without_unused(result)
    decibels = [min(EXACT, float(-10 * np.log10(noise))) if noise else EXACT for noise in tried]
    shares: list[float | None] = [*decibels] or [None] * len(weights)
    rows = zip(weights, sizes, shares, strict=True)
    return result, [Narrowed(w.node.name, size, 4 if i in taken else BITS, share) for i, (w, size, share) in enumerate(rows)]


def _try_weights(
    model: onnx.ModelProto,
    weights: Sequence[Weight],
    forms: Sequence[tuple[np.ndarray, np.ndarray]],
    name: str,
    samples: Sequence[Sample],
    form: Form,
    run: Run,
) -> list[float]:
    """The noise at the outputs where one weight alone has 4 bits, as a share of the signal, for each."""
    expected = _float_outputs(model, name, samples, run)
    signal = sum(float(np.square(e).sum()) for e in expected)
    tried = []
    for weight, (steps, scales) in zip(weights, forms, strict=True):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        narrow_weight(changed, weight, steps, scales, _group_size(weight, form))
        noise = sum(float(np.square(g - e).sum()) for g, e in zip(_float_outputs(changed, name, samples, run), expected, strict=True))
        tried.append(noise / signal if signal else 0.0)
    return tried


def _check_weights(form: Form, weights: Sequence[Weight]) -> None:
    """Raise UsageError where no weight can have 4 bits, or groups do not fit."""
    if not weights:
        raise UsageError("--weights 4: no product or convolution has constant weights of 8 bits", "Leave the option out.")
    depths = {w.node.name: w.values.shape[1] for w in weights if _group_size(w, form) is not None}
    bad = next((node for node, depth in depths.items() if form.group is not None and depth % form.group), None)
    if bad is not None:
        raise UsageError(f"--group {form.group}: node {shorten(bad)} adds up {depths[bad]} products", "Give a divisor of all such numbers.")


def _group_size(weight: Weight, form: Form) -> int | None:
    """Elements of a weight with one scale; convolutions have one for a whole channel, tables one in all."""
    return form.group if weight.node.op_type not in (_CONVOLUTION, _TABLE) else None


def _weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of all weights of 8 bits."""
    return sum(
        math.prod(t.dims) for t in model.graph.initializer if t.data_type in (TensorProto.INT8, TensorProto.UINT8) and len(t.dims) > 1
    )


def _float_outputs(model: onnx.ModelProto, name: str, samples: Sequence[Sample], run: Run) -> list[np.ndarray]:
    """All outputs of floats over the samples."""
    names = [output.name for output in model.graph.output if output.type.tensor_type.elem_type == TensorProto.FLOAT]
    return [values.astype(np.float64) for outputs in run(model, name, names, samples) for values in outputs]


def _without_unused(model: onnx.ModelProto) -> None:
    """Remove initialisers that no node reads."""
    read = {name for node in model.graph.node for name in node.input} | {output.name for output in model.graph.output}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def summarise_weights(narrowed: Sequence[Narrowed]) -> str:
    """The weights as a table, those first that lose most in 4 bits, under what they take."""
    before, after = sum(w.bytes for w in narrowed), sum(w.bytes * w.bits // BITS for w in narrowed)
    head = f"weights that may have 4 bits: {before} bytes in 8, {after} now"
    if narrowed[0].signal_to_noise is None:
        return head
    ranked = sorted(narrowed, key=lambda w: w.signal_to_noise or 0.0)
    rows = [(shorten(w.node), str(w.bytes), format_ratio(w.signal_to_noise or 0.0), str(w.bits)) for w in ranked]
    return head + "\n" + align_table(("weights of", "bytes", "signal to noise with 4 bits", "bits now"), rows)
