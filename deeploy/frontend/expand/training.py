"""Training graphs that others made: gradients of com.microsoft, as onnxruntime's training artifacts have them, and ONNX's optimisers.

Each is a row over the rules of ``deeploy.frontend.gradients``: a gradient of an operator is that operator's rule, applied to the inputs
of the forward node; of functions that are given by their results, the formula over these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from deeploy.frontend.expand.expansion import Expansion, Refusal, Results, declares
from deeploy.frontend.gradients import differentiate_node
from deeploy.frontend.gradients.movement import one_hot, place_slice, sum_entries
from deeploy.frontend.gradients.rows import norm_gradients, softmax_gradient
from deeploy.frontend.gradients.rules import sum_copies
from deeploy.frontend.gradients.windows import average_gradient, by_places
from deeploy.ir.nodes import Attributes, Node, Tensor, concat, constant, where

ARTIFACTS = "ai.onnx.preview.training"
_LOSS = "reduction?: mean|sum"


def _of_node(op: str, dy: Tensor, *inputs: Tensor, **attrs: object) -> list[Tensor | None]:
    """The gradients of the inputs of an operator of the normalised graph."""
    result = Tensor("", dy.shape, dy.dtype, label=op.lower())
    return differentiate_node(Node("", op, inputs, (result,), attrs, domain=""), [dy])


_BY_INPUT: Mapping[str, tuple[str, Attributes]] = {  # of the gradient of the result and the input
    "ReluGrad": ("Relu", {}),
    "GeluGrad": ("Gelu", {"approximate": "none"}),
    "FastGeluGrad": ("Gelu", {"approximate": "tanh"}),
    "LeakyReluGrad": ("LeakyRelu", {}),
}
_BY_RESULT: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {  # of the gradient of the result and the result
    "SigmoidGrad": lambda dy, y: dy * y * (y.apply("Neg") + 1.0),
    "TanhGrad": lambda dy, y: dy * ((y * y).apply("Neg") + 1.0),
}


@declares("ReluGrad")
@declares("GeluGrad")
@declares("GeluGrad", domain="")
@declares("FastGeluGrad")
@declares("LeakyReluGrad", "alpha?: float")
def by_input(m: Expansion, dy: Tensor, x: Tensor) -> Results:
    """The gradient of a function of single elements, which are given."""
    op, attrs = _BY_INPUT[m.op]
    return _of_node(op, dy, x, **attrs, **m.attrs)


@declares("BiasGeluGrad_dX")
@declares("BiasFastGeluGrad_dX")
def biased_gelu(m: Expansion, dy: Tensor, x: Tensor, bias: Tensor) -> Results:
    """The gradient of Gelu behind a sum, which is that of both summands."""
    return _of_node("Gelu", dy, x + bias, approximate="tanh" if "Fast" in m.op else "none")


@declares("QuickGeluGrad")
def quick_gelu(dy: Tensor, x: Tensor, *, alpha: float = 1.702) -> Tensor:
    """The gradient of x sigmoid(alpha x)."""
    y = (x * alpha).apply("Sigmoid")
    return dy * y * (x * alpha * (y.apply("Neg") + 1.0) + 1.0)


@declares("SigmoidGrad")
@declares("TanhGrad")
def by_result(m: Expansion, dy: Tensor, y: Tensor) -> Tensor:
    """The gradient of a function by its results."""
    return _BY_RESULT[m.op](dy, y)


@declares("SoftmaxGrad_13", rank=1)
def expand_softmax(dy: Tensor, y: Tensor, *, axis: int = -1) -> Tensor:
    """The gradient of a softmax by its result."""
    return softmax_gradient(dy, y, axis % y.rank)


@declares("SoftmaxGrad", rank=1)
def flat_softmax(dy: Tensor, y: Tensor, *, axis: int = 1) -> Tensor:
    """The gradient of a softmax of all axes from one on, as ONNX had it before version 13; the same where that is the last."""
    return y * (dy - (dy * y).reduce("Sum", *range(axis % y.rank, y.rank)))


@declares("LogSoftmaxGrad_13", rank=1)
def log_softmax(dy: Tensor, y: Tensor, *, axis: int = -1) -> Tensor:
    """The gradient of the logarithm of a softmax by its result."""
    return dy - y.apply("Exp") * dy.reduce("Sum", axis % y.rank)


def _cross_entropy(m: Expansion, dy: Tensor, logarithms: Tensor, label: Tensor, reduction: str) -> Tensor:
    """The gradient of scores, of which ``logarithms`` are those of the softmax; classes are axis 1."""
    classes, rank = logarithms.shape[1], logarithms.rank
    hits = one_hot(label.reshape([-1]), classes, logarithms.dtype).reshape([*label.shape, classes])
    hits = hits.transpose([0, rank - 1, *range(1, rank - 1)])
    share = 1 / label.elements if reduction == "mean" else 1.0
    return (logarithms.apply("Exp") - hits) * (dy.reshape([1]) * share)


@declares("SoftmaxCrossEntropyLossGrad", _LOSS)
def loss_gradient_alone(m: Expansion, logarithms: Tensor, label: Tensor, *, reduction: str = "mean") -> Tensor:
    """The gradient of the loss in the established compiler's training graphs, which divide a mean twice by the samples."""
    share = 1 / label.elements if reduction == "mean" else 1.0
    return _cross_entropy(m, constant(share, logarithms.dtype), logarithms, label, reduction)


@declares("SoftmaxCrossEntropyLossGrad", _LOSS, domain="", inputs=(3, 3))
def loss_gradient(
    m: Expansion, dy: Tensor, logarithms: Tensor, label: Tensor, *, reduction: str = "mean", ignore_index: int = -1
) -> Tensor:
    """The gradient of ONNX's loss; labels that are ignored do not occur."""
    return _cross_entropy(m, dy, logarithms, label, reduction)


def _without_weights(m: Expansion, weights: Tensor | None) -> None:
    if weights is not None:
        raise Refusal("has weights of classes")


@declares("SoftmaxCrossEntropyLossInternal", _LOSS, rank=2)
def expand_loss(
    m: Expansion,
    scores: Tensor,
    label: Tensor,
    weights: Tensor | None = None,
    ignored: np.ndarray | None = None,
    *,
    reduction: str = "mean",
) -> Results:
    """The cross entropy of scores, and the logarithms of their softmax."""
    _without_weights(m, weights)
    logarithms = m.compute("LogSoftmax", scores, axis=1)
    hits = one_hot(label.reshape([-1]), scores.shape[1], scores.dtype).reshape([*label.shape, scores.shape[1]])
    hits = hits.transpose([0, scores.rank - 1, *range(1, scores.rank - 1)])
    total = (logarithms * hits).reduce("Sum", *range(scores.rank), keepdims=0).apply("Neg")
    return [total * (1 / label.elements) if reduction == "mean" else total, logarithms]


@declares("SoftmaxCrossEntropyLossInternalGrad", _LOSS)
def inner_loss_gradient(
    m: Expansion,
    dy: Tensor,
    logarithms: Tensor,
    label: Tensor,
    weights: Tensor | None = None,
    ignored: np.ndarray | None = None,
    bias: Tensor | None = None,
    *,
    reduction: str = "mean",
) -> Tensor:
    """The gradient of scores, perhaps added to another one; labels that are ignored do not occur."""
    _without_weights(m, weights)
    gradient = _cross_entropy(m, dy, logarithms, label, reduction)
    return gradient if bias is None else gradient + bias.reshape(gradient.shape)


@declares("ConvGrad", "auto_pad?: NOTSET|VALID", rank=3)
def expand_convolution(
    dy: Tensor,
    x: Tensor,
    weights: Tensor,
    *,
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    kernel_shape: Sequence[int] = (),
    group: int = 1,
) -> Results:
    """The gradients of data, weights and bias."""
    rank = x.rank - 2
    bias = constant(np.zeros(weights.shape[0], np.float32))
    windows = {"strides": strides or [1] * rank, "dilations": dilations or [1] * rank, "pads": pads or [0] * (2 * rank)}
    return _of_node("Conv", dy, x, weights, bias, group=group, **windows)


_POOLED = "auto_pad?: NOTSET|VALID"


def _pool_attributes(
    m: Expansion, dy: Tensor, kernel_shape: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> tuple[Attributes, Sequence[int]]:
    """The attributes of a pool as the normalised graph has them, and the shape of its image, which the file has to say."""
    declared, rank = m.walk.declared.get(m.output(0)), dy.rank - 2
    shape = declared.static_shape if declared is not None else None
    if m.attrs.get("ceil_mode") or m.attrs.get("storage_order"):
        raise Refusal("rounds the number of windows up, or counts places by columns", "export the model with a pool that does not")
    if shape is None or len(shape) != dy.rank or shape[:2] != [*dy.shape[:2]]:
        raise Refusal("does not say the shape of its result", "declare it in the model's value_info")
    strides, pads, dilations = strides or [1] * rank, pads or [0] * (2 * rank), dilations or [1] * rank
    padded = [size + before + after for size, before, after in zip(shape[2:], pads[:rank], pads[rank:], strict=False)]
    taken = [(taps - 1) * dilation + 1 for taps, dilation in zip(kernel_shape, dilations, strict=False)]
    if [(room - size) // stride + 1 for room, size, stride in zip(padded, taken, strides, strict=False)] != [*dy.shape[2:]]:
        raise Refusal("has another number of windows than its first input has elements", "correct its windows, or the shape of its result")
    return {"kernel_shape": kernel_shape, "strides": strides, "pads": pads, "dilations": dilations}, shape


@declares("MaxPoolGrad", _POOLED, "ceil_mode? storage_order?: int", domain="", rank=3)
def expand_largest(
    m: Expansion,
    dy: Tensor,
    places: Tensor,
    *,
    kernel_shape: Sequence[int] = (),
    strides: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilations: Sequence[int] = (),
) -> Tensor:
    """The gradient of the largest elements, by the places that MaxPool found them at."""
    return by_places(dy, places, *_pool_attributes(m, dy, kernel_shape, strides, pads, dilations))


@declares("AveragePoolGrad", _POOLED, "ceil_mode?: int", domain="", rank=3)
def expand_average(
    m: Expansion,
    dy: Tensor,
    *,
    kernel_shape: Sequence[int] = (),
    strides: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilations: Sequence[int] = (),
    count_include_pad: int = 0,
) -> Tensor:
    """The gradient of averages over windows."""
    windows, shape = _pool_attributes(m, dy, kernel_shape, strides, pads, dilations)
    return average_gradient(dy, {**windows, "count_include_pad": count_include_pad}, shape)


@declares("BatchNormalizationGrad", rank=3)
def batch_norm(dy: Tensor, x: Tensor, scale: Tensor, mean: Tensor, inverse: Tensor, *, epsilon: float = 1e-5) -> Results:
    """The gradients of data, scale and bias, by mean and one over the deviation of the batch."""
    channels, axes = [1, -1, *[1] * (x.rank - 2)], [0, *range(2, x.rank)]
    gradients = norm_gradients(
        dy, (x - mean.reshape(channels)) * inverse.reshape(channels), inverse.reshape(channels), scale.reshape(channels), axes
    )
    return [gradients[0], *(each and each.reduce("Sum", *axes, keepdims=0) for each in gradients[1:])]


@declares("SimplifiedLayerNormalizationGrad", rank=1)
def rms_norm(dy: Tensor, x: Tensor, scale: Tensor, inverse: Tensor, *, axis: int = -1) -> Results:
    """The gradients of data and scale, by one over the root of the mean square."""
    axes = range(axis % x.rank, x.rank)
    inverse = inverse.reshape([1 if i in axes else n for i, n in enumerate(x.shape)])
    normal, scaled = x * inverse, dy * scale
    return [(scaled - normal * (scaled * normal).reduce("Mean", *axes)) * inverse, (dy * normal).reduce("Sum", *range(axes[0]), keepdims=0)]


@declares("LayerNormalizationGrad", rank=1)
def layer_norm(
    dy: Tensor,
    x: Tensor,
    scale: Tensor,
    mean: Tensor,
    inverse: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Results:
    """The gradients of data, scale and bias, by mean and one over the deviation.

    The established compiler's has the bias in their place, and computes the gradient of data alone.
    """
    if inverse is None:
        return _of_node("LayerNormalization", dy, x, scale, mean, axis=axis % x.rank, epsilon=epsilon)[:1]
    axes = range(axis % x.rank, x.rank)
    rows = [1 if i in axes else n for i, n in enumerate(x.shape)]
    found = norm_gradients(dy, (x - mean.reshape(rows)) * inverse.reshape(rows), inverse.reshape(rows), scale, axes)
    return [found[0], *(each and each.reduce("Sum", *range(axes[0]), keepdims=0) for each in found[1:])]


@declares("GatherGrad")
def expand_gather(shape: np.ndarray, places: Tensor, dy: Tensor, *, axis: int = 0) -> Tensor:
    """The sum of what each entry of a table got."""
    return sum_entries(dy, places, [int(n) for n in shape], axis % len(shape))


@declares("SliceGrad")
def slice_gradient(
    dy: Tensor, shape: np.ndarray, starts: np.ndarray, ends: np.ndarray, axes: np.ndarray | None = None, steps: np.ndarray | None = None
) -> Tensor:
    """Zeros around what was cut out."""
    chosen = range(len(starts)) if axes is None else [int(axis) % len(shape) for axis in axes]
    spans = [range(int(n)) for n in shape]
    for axis, start, end, step in zip(chosen, starts, ends, np.ones(len(starts), np.int64) if steps is None else steps, strict=True):
        spans[axis] = spans[axis][int(start) : int(end) : int(step)]
    if min(span.step for span in spans) < 1:
        raise Refusal("walks an axis backwards")
    if [len(span) for span in spans] != [*dy.shape] or 0 in dy.shape:
        raise ValueError("what was cut out has another shape")
    return place_slice(dy, [span.start for span in spans], [span.step for span in spans], [int(n) for n in shape])


@declares("ConcatTraining", inputs=(1, 2**16), rank=1)
def concat_parts(m: Expansion, *, axis: int = 0) -> Results:
    """Tensors one behind the other, and the extent of each."""
    parts = m.inputs()
    return [concat(parts, axis), constant(np.array([part.shape[axis] for part in parts], np.int64))]


@declares("SplitTraining", rank=1)
def expand_split(m: Expansion, x: Tensor, sizes: np.ndarray, *, axis: int = 0) -> Results:
    """A tensor cut in parts, whose extents are an input."""
    return x.split(axis % x.rank, [int(n) for n in sizes])


@declares("ReduceSumTraining", rank=1)
def sum_axes(x: Tensor, axes: np.ndarray, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
    """A sum over axes, which are an input."""
    chosen = [int(axis) % x.rank for axis in axes] or ([] if noop_with_empty_axes else [*range(x.rank)])
    return x.reduce("Sum", *chosen, keepdims=keepdims) if chosen else x


@declares("DivGrad")
def expand_quotient(dy: Tensor, a: Tensor, b: Tensor) -> Results:
    """The gradients of dividend and divisor."""
    shares = dy / b
    return [sum_copies(shares, a.shape), sum_copies((shares * a / b).apply("Neg"), b.shape)]


@declares("ZeroGradient")
def expand_forget(gradient: Tensor, signal: Tensor) -> Tensor:
    """Zeros, where a new sum of gradients begins."""
    return constant(np.zeros(gradient.shape, gradient.dtype.numpy))


@declares("InPlaceAccumulator")
def expand_accumulate(total: Tensor, gradient: Tensor, signal: Tensor | None = None) -> Tensor:
    """A sum of gradients; where a signal is false, it stays as it was."""
    return total + gradient if signal is None else where(signal, total + gradient, total)


@declares("InPlaceAccumulatorV2")
def accumulate_anew(total: Tensor, gradient: Tensor, is_first: Tensor | None = None) -> Results:
    """That there is a sum of gradients, and the sum, which begins with the first of them."""
    added = total + gradient
    return [constant(np.ones(1, bool)), added if is_first is None else where(is_first, gradient, added)]


def _unless_skipped(signal: Tensor | None, pairs: Sequence[tuple[Tensor, Tensor]]) -> Results:
    """Whether tensors change, and these: the first of each pair before, the second behind it."""
    if signal is None:
        return [constant(np.ones(1, bool)), *(new for _, new in pairs)]
    return [signal, *(where(signal, new, old) for old, new in pairs)]


@declares("SGD", domain="")
def expand_descend(w: Tensor, g: Tensor, *, lr: float) -> Tensor:
    """A weight that goes down its gradient, as the established compiler's training graphs have it."""
    return w - g * lr


@declares("SGDOptimizer")
def descend_by(rate: Tensor, w: Tensor, g: Tensor) -> Results:
    """A weight that goes down its gradient, and the step that it takes."""
    step = g * rate.reshape([1])
    return [w - step, step.apply("Neg")]


@declares("SGDOptimizerV2")
def descend_unless(rate: Tensor, w: Tensor, g: Tensor, signal: Tensor | None = None) -> Results:
    """A member of the weights that go down their gradients."""
    return _unless_skipped(signal, [(w, w - g * rate.reshape([1]))])


@declares("AdamWOptimizer", "adam_mode? correct_bias?: flag")
def adam_with_decay(
    m: Expansion,
    rate: Tensor,
    steps: Tensor,
    w: Tensor,
    g: Tensor,
    mean: Tensor,
    square: Tensor,
    signal: Tensor | None = None,
    *,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 1e-2,
) -> Results:
    """A member of the weights of Adam: PyTorch's AdamW, or with ``adam_mode`` that of Transformers, which decays behind the update."""
    rate, one = rate.reshape([1]), constant(1.0, rate.dtype)
    new_mean, new_square = mean * alpha + g * (1 - alpha), square * beta + g * g * (1 - beta)
    shares = [constant(base, rate.dtype).apply("Pow", steps.reshape([1]).cast(rate.dtype)).apply("Neg") + 1.0 for base in (alpha, beta)]
    first, second = shares if m.attrs.get("correct_bias", 1) else (one, one)
    if m.attrs.get("adam_mode", 0):
        changed = w - new_mean * (rate * second.apply("Sqrt") / first) / (new_square.apply("Sqrt") + epsilon)
        changed = changed - changed * (rate * weight_decay)
    else:
        step = new_mean * (rate / first) / ((new_square / second).apply("Sqrt") + epsilon)
        changed = w - w * (rate * weight_decay) - step
    return _unless_skipped(signal, [(w, changed), (mean, new_mean), (square, new_square)])


@declares("InplaceClipGradNorm", "norm_type?: fro|fro", inputs=(1, 2**16))
def clip_norm(m: Expansion, *, max_norm: float = 1.0) -> Results:
    """Gradients of all weights, made smaller where they are longer together than a limit."""
    gradients = m.inputs()
    squares = concat([(g * g).reduce("Sum", *range(g.rank)).reshape([1]) for g in gradients], 0)
    share = constant(max_norm, gradients[0].dtype) / (squares.reduce("Sum", 0).apply("Sqrt") + 1e-6)
    share = share.apply("Min", 1.0)
    return [g * share for g in gradients]


def _read_groups(m: Expansion, count: int) -> tuple[Tensor, Tensor, list[list[Tensor]]]:
    """The rate and the number of updates before this one, and as many lists of equally many tensors."""
    rate, steps, *tensors = m.inputs()
    size = len(tensors) // count
    if size * count != len(tensors):
        raise Refusal(f"has {len(tensors)} tensors, which are no {count} for each that it changes", "correct the model")
    return rate.reshape([1]), steps.reshape([1]).cast(rate.dtype), [tensors[i * size : (i + 1) * size] for i in range(count)]


@declares("Adagrad", domain=ARTIFACTS, inputs=(3, 2**16))
def expand_adagrad(m: Expansion, *, decay_factor: float = 0.0, epsilon: float = 0.0, norm_coefficient: float = 0.0) -> Results:
    """ONNX's definition of Adagrad."""
    rate, steps, groups = _read_groups(m, 3)
    rate = rate / (steps * decay_factor + 1.0)
    changed, squares = list[Tensor](), list[Tensor]()
    for x, g, square in zip(*groups, strict=True):
        g = g + x * norm_coefficient
        squares.append(square + g * g)
        changed.append(x - g * rate / (squares[-1].apply("Sqrt") + epsilon))
    return [*changed, *squares]


@declares("Momentum", "mode: standard|nesterov", domain=ARTIFACTS, inputs=(3, 2**16))
def expand_momentum(
    m: Expansion, *, alpha: float = 0.9, beta: float = 1.0, norm_coefficient: float = 0.0, mode: str = "standard"
) -> Results:
    """ONNX's definition of Momentum; the first update has the whole gradient."""
    rate, steps, groups = _read_groups(m, 3)
    share = where(steps.apply("Greater", 0.0), beta, constant(1.0, rate.dtype))
    changed, velocities = list[Tensor](), list[Tensor]()
    for x, g, velocity in zip(*groups, strict=True):
        g = g + x * norm_coefficient
        velocities.append(velocity * alpha + g * share)
        changed.append(x - (velocities[-1] if mode == "standard" else g + velocities[-1] * alpha) * rate)
    return [*changed, *velocities]


@declares("Adam", domain=ARTIFACTS, inputs=(3, 2**16))
def expand_adam(
    m: Expansion,
    *,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Results:
    """ONNX's definition of Adam."""
    rate, steps, groups = _read_groups(m, 4)
    first, second = (constant(base, rate.dtype).apply("Pow", steps).apply("Neg") + 1.0 for base in (alpha, beta))
    adjusted = where(steps.apply("Greater", 0.0), rate * second.apply("Sqrt") / first, rate)
    lists: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    for x, g, mean, square in zip(*groups, strict=True):
        g = g + x * norm_coefficient
        mean, square = mean * alpha + g * (1 - alpha), square * beta + g * g * (1 - beta)
        x = x - mean * adjusted / (square.apply("Sqrt") + epsilon)
        for results, each in zip(lists, (x * (1 - norm_coefficient_post), mean, square), strict=True):
            results.append(each)
    return [tensor for results in lists for tensor in results]
