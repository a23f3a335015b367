"""Small networks made with onnx.helper: one function for every construct that the lowering must know."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.models import Net, conv

Construct = Callable[[Net], "str | list[str]"]
CONSTRUCTS: dict[str, Construct] = {}


def _add(name: str, construct: Construct) -> None:
    assert name not in CONSTRUCTS, name
    CONSTRUCTS[name] = construct


def _relu_conv(n: Net, *shape: int) -> str:
    """An activation as networks have it: behind a convolution and a Relu."""
    x = n.x(*shape)
    return str(n.Relu(conv(n, x, shape[1], shape[1])))


for _name, _w, _attrs in [
    ("dense", (8, 4, 3, 3), {}),
    ("strided", (8, 4, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("uneven strides", (8, 4, 3, 5), {"strides": [2, 1], "pads": [1, 2, 1, 2]}),
    ("dilated", (8, 4, 3, 3), {"dilations": [2, 3], "pads": [2, 3, 2, 3]}),
    ("asymmetric pads", (8, 4, 3, 3), {"pads": [0, 1, 2, 3]}),
    ("grouped", (8, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    ("depthwise", (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ("depthwise multiplier", (12, 1, 3, 3), {"group": 4, "strides": [2, 2]}),
    ("pointwise", (8, 4, 1, 1), {}),
    ("same upper", (8, 4, 4, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("same lower", (8, 4, 4, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("valid", (8, 4, 2, 2), {"auto_pad": "VALID", "strides": [2, 2]}),
]:
    _add(f"conv {_name}", lambda n, w=_w, a=_attrs: n.Conv(n.x(2, 4, 11, 10), n.w(*w), n.w(w[0]), **a))
for _name, _w, _attrs in [
    ("dense", (8, 4, 5), {"pads": [2, 2]}),
    ("strided dilated", (8, 4, 3), {"strides": [3], "dilations": [2], "pads": [1, 0]}),
    ("depthwise", (4, 1, 3), {"group": 4, "pads": [1, 1]}),
    ("same upper", (8, 2, 4), {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2]}),
]:
    _add(f"conv1d {_name}", lambda n, w=_w, a=_attrs: n.Relu(n.Conv(n.x(1, 4, 50), n.w(*w), n.w(w[0]), **a)))
for _name, _w, _attrs in [
    ("plain", (4, 6, 2, 2), {"strides": [2, 2]}),
    ("pads", (4, 6, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ("asymmetric", (4, 6, 3, 4), {"strides": [2, 3], "pads": [0, 1, 1, 2]}),
    ("grouped", (4, 3, 3, 3), {"group": 2, "strides": [2, 2]}),
    ("depthwise", (4, 1, 3, 3), {"group": 4, "dilations": [2, 2]}),
    ("same", (4, 6, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ("shaped", (4, 6, 3, 3), {"strides": [2, 2], "output_shape": [16, 14]}),
]:
    _add(
        f"conv transpose {_name}",
        lambda n, w=_w, a=_attrs: n.ConvTranspose(n.x(1, 4, 8, 7), n.w(*w), n.w(w[1] * a.get("group", 1)), **a),
    )
_add("conv transpose 1d", lambda n: n.ConvTranspose(n.x(1, 4, 20), n.w(4, 6, 4), n.w(6), strides=[2], pads=[1, 1]))
_add("conv no bias", lambda n: conv(n, n.x(1, 3, 10, 10), 3, 8, bias=False))
_add("conv add bias", lambda n: n.Add(conv(n, n.x(1, 3, 10, 10), 3, 8, bias=False), n.w(8, 1, 1)))
_add("conv relu6", lambda n: n.Clip(conv(n, n.x(1, 3, 10, 10), 3, 8), n.c(0.0), n.c(6.0)))

_add("gemm", lambda n: n.Gemm(n.x(4, 32), n.w(32, 40), n.w(40)))
_add("gemm no bias", lambda n: n.Gemm(n.x(4, 32), n.w(32, 40)))
_add("gemm transB", lambda n: n.Gemm(n.x(4, 32), n.w(40, 32), n.w(40), transB=1))
_add("gemm transA", lambda n: n.Gemm(n.x(32, 4), n.w(32, 40), n.w(40), transA=1))
_add("gemm alpha beta", lambda n: n.Gemm(n.x(4, 32), n.w(40, 32), n.w(40), transB=1, alpha=0.5, beta=2.0))
_add("gemm row bias", lambda n: n.Gemm(n.x(4, 32), n.w(32, 40), n.w(1, 40)))
_add("gemm scalar bias", lambda n: n.Gemm(n.x(4, 32), n.w(32, 40), n.w(1)))
_add("gemm matrix bias", lambda n: n.Gemm(n.x(4, 32), n.w(32, 40), n.w(4, 40)))
_add("gemm column bias", lambda n: n.Gemm(n.x(4, 32), n.w(32, 40), n.w(4, 1)))
_add("gemm two variables", lambda n: n.Gemm(n.x(4, 32), n.x(40, 32), transB=1))
_add("gemm three variables", lambda n: n.Gemm(n.x(4, 32), n.x(40, 32), n.x(4, 40), transB=1, alpha=0.5, beta=0.5))
_add("matmul", lambda n: n.MatMul(n.x(6, 32), n.w(32, 40)))
_add("matmul rank 3", lambda n: n.Add(n.MatMul(n.x(2, 6, 32), n.w(32, 40)), n.w(40)))
_add("matmul batched", lambda n: n.MatMul(n.x(3, 6, 32), n.x(3, 32, 20)))
_add("matmul batch broadcast", lambda n: n.MatMul(n.x(2, 3, 6, 32), n.x(3, 32, 20)))
_add("matmul batched constant", lambda n: n.MatMul(n.x(3, 6, 32), n.w(3, 32, 20)))
_add("matmul constant left", lambda n: n.MatMul(n.w(9, 6), n.x(3, 6, 32)))
_add("matmul vector right", lambda n: n.MatMul(n.x(3, 60, 32), n.w(32)))
_add("matmul vector left", lambda n: n.MatMul(n.x(32), n.w(32, 140)))
_add("matmul two vectors", lambda n: n.MatMul(n.x(32), n.x(32)))
_add("matmul transposed", lambda n: n.MatMul(n.x(2, 6, 32), n.Transpose(n.x(2, 20, 32), perm=[0, 2, 1])))

_FORMS = {
    "same": ((2, 4, 6, 5), (2, 4, 6, 5)),
    "channels": ((2, 4, 6, 5), (1, 4, 1, 1)),
    "channels rank 3": ((2, 4, 6, 5), (4, 1, 1)),
    "row": ((2, 4, 6, 5), (5,)),
    "batch": ((2, 4, 6, 5), (2, 1, 1, 1)),
    "map": ((2, 4, 6, 5), (2, 1, 6, 5)),
    "left": ((5,), (2, 4, 6, 5)),
    "both": ((2, 4, 1, 5), (2, 1, 6, 1)),
    "one": ((2, 4, 6, 5), (1,)),
}


def _pairs(n: Net, op: str, a: Sequence[int], b: Sequence[int]) -> str:
    right = n.x(*b)
    left = n.x(*a)
    return str(getattr(n, op)(left, n.Add(n.Abs(right), n.c(0.5)) if op == "Div" else right))


def _constant(n: Net, op: str, a: Sequence[int], b: Sequence[int]) -> str:
    values = n.random.uniform(0.5, 2, b).astype(np.float32) * n.random.choice([-1, 1], b).astype(np.float32)
    return str(getattr(n, op)(n.x(*a), n.c(values)))


for _op in ("Add", "Sub", "Mul", "Div"):
    for _form, (_a, _b) in _FORMS.items():
        _add(f"{_op} {_form}", lambda n, o=_op, a=_a, b=_b: _pairs(n, o, a, b))
        _add(f"{_op} constant {_form}", lambda n, o=_op, a=_a, b=_b: _constant(n, o, a, b))
    _add(f"{_op} constant scalar", lambda n, o=_op: _constant(n, o, (2, 4, 6, 5), ()))
    _add(f"{_op} reversed scalar", lambda n, o=_op: getattr(n, o)(n.c(1.5), n.Add(n.Abs(n.x(2, 4, 6, 5)), n.c(0.5))))
    _add(f"{_op} reversed row", lambda n, o=_op: getattr(n, o)(n.c([1.5, 2, -3, 1, 2]), n.Add(n.Abs(n.x(2, 4, 6, 5)), n.c(0.5))))
    if _op != "Div":
        _add(
            f"{_op} after conv",
            lambda n, o=_op: getattr(n, o)(conv(n, n.x(1, 4, 8, 8), 4, 6), n.c(n.random.uniform(0.5, 2, (1, 6, 1, 1)))),
        )
        _add(f"{_op} two convs", lambda n, o=_op: getattr(n, o)(_relu_conv(n, 1, 4, 8, 8), conv(n, n.x(1, 3, 8, 8), 3, 4)))
_add("square", lambda n: (lambda x: n.Mul(x, x))(n.x(2, 4, 6, 5)))
_add("add itself", lambda n: (lambda x: n.Add(x, x))(n.x(2, 4, 6, 5)))
_add("sum of three", lambda n: n.Sum(n.x(2, 4, 6, 5), n.x(2, 4, 6, 5), n.x(4, 1, 1)))
_add("mean of three", lambda n: n.Mean(n.x(2, 4, 6, 5), n.x(2, 4, 6, 5), n.x(2, 4, 6, 5)))
_add("sum of one", lambda n: n.Sum(n.Relu(n.x(2, 4, 6, 5))))
_add("max of two", lambda n: n.Max(n.x(2, 4, 6, 5), n.x(2, 4, 6, 5)))
_add("min of two", lambda n: n.Min(n.x(2, 4, 6, 5), n.x(4, 1, 1)))
_add("max of three", lambda n: n.Max(n.x(2, 4, 6, 5), n.x(2, 4, 6, 5), n.x(4, 1, 1)))
_add("max constant", lambda n: n.Max(n.x(2, 4, 6, 5), n.c(0.1)))

for _op, _attrs in [
    ("Relu", {}),
    ("LeakyRelu", {"alpha": 0.1}),
    ("Sigmoid", {}),
    ("Tanh", {}),
    ("HardSwish", {}),
    ("HardSigmoid", {"alpha": 1 / 6}),
    ("Elu", {"alpha": 0.7}),
    ("Selu", {}),
    ("Softplus", {}),
    ("Exp", {}),
    ("Abs", {}),
    ("Neg", {}),
    ("Erf", {}),
]:
    _add(_op, lambda n, o=_op, a=_attrs: getattr(n, o)(n.x(2, 4, 12, 15), **a))
    _add(f"conv {_op}", lambda n, o=_op, a=_attrs: conv(n, getattr(n, o)(conv(n, n.x(1, 4, 9, 9), 4, 8), **a), 8, 4))
_add("Clip one end", lambda n: n.Clip(n.x(2, 4, 6, 5), "", n.c(0.4)))
_add("prelu", lambda n: conv(n, n.PRelu(conv(n, n.x(1, 4, 9, 9), 4, 8), n.c(n.random.uniform(0, 0.5, (8, 1, 1)))), 8, 4))
_add("swish", lambda n: (lambda x: conv(n, n.Mul(x, n.Sigmoid(x)), 8, 4))(conv(n, n.x(1, 4, 9, 9), 4, 8)))
_add(
    "hard swish by hand",
    lambda n: (lambda x: conv(n, n.Div(n.Mul(x, n.Clip(n.Add(x, n.c(3.0)), n.c(0.0), n.c(6.0))), n.c(6.0)), 8, 4))(
        conv(n, n.x(1, 4, 9, 9), 4, 8)
    ),
)

for _op in ("MaxPool", "AveragePool"):
    for _name, _attrs in [
        ("plain", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("pads", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("asymmetric", {"kernel_shape": [3, 2], "strides": [1, 2], "pads": [0, 1, 1, 0]}),
        ("ceil", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ("ceil pads", {"kernel_shape": [3, 3], "strides": [3, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
        ("same", {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ]:
        _add(f"{_op} {_name}", lambda n, o=_op, a=_attrs: getattr(n, o)(_relu_conv(n, 1, 4, 11, 10), **a))
    _add(f"{_op} 1d", lambda n, o=_op: getattr(n, o)(n.x(1, 4, 50), kernel_shape=[3], strides=[2], pads=[1, 1]))
_add("MaxPool dilated", lambda n: n.MaxPool(n.x(1, 4, 11, 10), kernel_shape=[2, 3], dilations=[2, 2]))
for _name, _attrs in [
    ("include pads", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("include ceil", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1, "ceil_mode": 1}),
    ("include ceil even", {"kernel_shape": [2, 2], "strides": [2, 2], "count_include_pad": 1, "ceil_mode": 1}),
]:
    _add(f"AveragePool {_name}", lambda n, a=_attrs: n.AveragePool(n.x(1, 4, 12, 11), **a))
_add("GlobalAveragePool", lambda n: n.GlobalAveragePool(_relu_conv(n, 2, 40, 7, 7)))
_add("GlobalAveragePool 1d", lambda n: n.GlobalAveragePool(n.x(2, 40, 17)))
_add("GlobalMaxPool", lambda n: n.GlobalMaxPool(_relu_conv(n, 2, 40, 7, 7)))
_add("global head", lambda n: n.Gemm(n.Flatten(n.GlobalAveragePool(_relu_conv(n, 2, 16, 7, 7))), n.w(16, 60), n.w(60)))
_add(
    "flatten head",
    lambda n: n.Gemm(n.Flatten(n.MaxPool(_relu_conv(n, 2, 4, 8, 8), kernel_shape=[2, 2], strides=[2, 2])), n.w(64, 60), n.w(60)),
)
_add("reshape head", lambda n: n.MatMul(n.Reshape(_relu_conv(n, 2, 4, 4, 4), n.i(0, -1)), n.w(64, 60)))

for _keep in (0, 1):
    _add(f"ReduceMean spatial {_keep}", lambda n, k=_keep: n.ReduceMean(_relu_conv(n, 2, 20, 6, 7), axes=[2, 3], keepdims=k))
    _add(f"ReduceMean last {_keep}", lambda n, k=_keep: n.ReduceMean(n.x(2, 20, 7), axes=[-1], keepdims=k))
    _add(f"ReduceMean channel {_keep}", lambda n, k=_keep: n.ReduceMean(_relu_conv(n, 2, 4, 9, 7), axes=[1], keepdims=k))
    _add(f"ReduceSum {_keep}", lambda n, k=_keep: n.ReduceSum(_relu_conv(n, 2, 20, 6, 7), n.i(2, 3), keepdims=k))
    _add(f"ReduceSum channel {_keep}", lambda n, k=_keep: n.ReduceSum(n.x(2, 4, 9, 7), n.i(1), keepdims=k))
    _add(f"ReduceMax {_keep}", lambda n, k=_keep: n.ReduceMax(_relu_conv(n, 2, 20, 6, 7), axes=[3], keepdims=k))
_add("ReduceMean all", lambda n: n.ReduceMean(n.x(2, 4, 9, 7)))


def _batch_norm(n: Net, x: str, c: int) -> str:
    return str(n.BatchNormalization(x, n.w(c), n.w(c), n.w(c), n.c(n.random.uniform(0.5, 2, c))))


_add("batch norm", lambda n: _batch_norm(n, n.x(2, 6, 5, 5), 6))
_add("batch norm 1d", lambda n: _batch_norm(n, n.x(2, 6, 25), 6))
_add("batch norm rank 2", lambda n: _batch_norm(n, n.x(20, 6), 6))
_add("conv batch norm", lambda n: n.Relu(_batch_norm(n, conv(n, n.x(1, 4, 8, 8), 4, 6), 6)))
_add("conv batch norm no bias", lambda n: n.Relu(_batch_norm(n, conv(n, n.x(1, 4, 8, 8), 4, 6, bias=False), 6)))
_add("batch norm conv", lambda n: conv(n, n.Relu(_batch_norm(n, n.x(1, 4, 8, 8), 4)), 4, 6))
_add("preactivation", lambda n: (lambda x: n.Add(x, conv(n, n.Relu(_batch_norm(n, x, 4)), 4, 4)))(_relu_conv(n, 1, 4, 8, 8)))
_add("gemm batch norm", lambda n: n.Relu(_batch_norm(n, n.Gemm(n.x(4, 32), n.w(40, 32), n.w(40), transB=1), 40)))
_add("conv transpose batch norm", lambda n: _batch_norm(n, n.ConvTranspose(n.x(1, 4, 8, 7), n.w(4, 6, 2, 2), strides=[2, 2]), 6))
_add("depthwise batch norm", lambda n: n.Relu(_batch_norm(n, conv(n, n.x(1, 6, 8, 8), 6, 6, group=6, bias=False), 6)))

for _axis in (0, 1, 2, 3, -1):
    _add(f"softmax {_axis}", lambda n, a=_axis: n.Softmax(n.x(2, 4, 6, 5), axis=a))
    _add(f"softmax of conv {_axis}", lambda n, a=_axis: n.Softmax(conv(n, n.x(2, 3, 6, 5), 3, 4), axis=a))
_add("softmax head", lambda n: n.Softmax(n.Gemm(n.x(4, 32), n.w(32, 10), n.w(10))))
_add("log softmax", lambda n: n.LogSoftmax(n.x(4, 32)))
_add("log softmax axis 1", lambda n: n.LogSoftmax(n.x(2, 4, 6, 5), axis=1))

_add("pad", lambda n: conv(n, n.Pad(_relu_conv(n, 1, 4, 8, 8), n.i(0, 0, 1, 2, 0, 0, 0, 1)), 4, 6, pads=[0, 0, 0, 0]))
_add("pad value", lambda n: n.Pad(n.x(1, 4, 8, 8), n.i(0, 1, 1, 2, 0, 0, 0, 1), n.c(0.7)))
_add("pad reflect", lambda n: conv(n, n.Pad(_relu_conv(n, 1, 4, 8, 8), n.i(0, 0, 1, 2, 0, 0, 0, 1), mode="reflect"), 4, 6))
_add("pad edge", lambda n: n.Pad(_relu_conv(n, 1, 4, 8, 8), n.i(0, 0, 1, 2, 0, 0, 0, 1), mode="edge"))
_add("concat", lambda n: conv(n, n.Concat(_relu_conv(n, 1, 4, 8, 8), conv(n, n.x(1, 3, 8, 8), 3, 4), axis=1), 8, 6))
_add("concat scales", lambda n: n.Concat(n.Mul(n.x(2, 6, 20), n.c(3.0)), n.Relu(n.x(2, 5, 20)), axis=1))
_add("concat itself", lambda n: (lambda x: n.Concat(x, x, axis=2))(_relu_conv(n, 1, 4, 8, 8)))
_add("concat constant", lambda n: n.Concat(n.x(2, 6, 20), n.w(2, 1, 20), axis=1))
_add("concat rows", lambda n: conv(n, n.Concat(_relu_conv(n, 1, 4, 4, 8), _relu_conv(n, 1, 4, 5, 8), axis=2), 4, 6))
_add("slice", lambda n: conv(n, n.Slice(_relu_conv(n, 1, 8, 8, 8), n.i(2, 1), n.i(6, 7), n.i(1, 3)), 4, 6))
_add("slice steps", lambda n: conv(n, n.Slice(_relu_conv(n, 1, 4, 8, 8), n.i(0, 1), n.i(8, 8), n.i(2, 3), n.i(2, 2)), 4, 6))
_add("slice reversed", lambda n: n.Slice(n.x(4, 40), n.i(-1), n.i(-100), n.i(1), n.i(-1)))
_add("split", lambda n: n.node("Split", [_relu_conv(n, 1, 8, 8, 8), n.i(3, 5)], 2, axis=1))
_add(
    "split branches",
    lambda n: (lambda p: n.Add(conv(n, p[0], 4, 6), conv(n, p[1], 4, 6, 1)))(n.node("Split", [_relu_conv(n, 1, 8, 8, 8)], 2, axis=1)),
)
_add("flatten", lambda n: n.Flatten(n.x(2, 4, 6, 5), axis=2))
_add("squeeze", lambda n: n.Squeeze(n.GlobalAveragePool(_relu_conv(n, 2, 40, 7, 7)), n.i(2, 3)))
_add("unsqueeze", lambda n: conv(n, n.Unsqueeze(n.x(1, 9, 8), n.i(1)), 1, 6))
_add("conv1d through 2d", lambda n: n.Squeeze(n.Relu(n.Conv(n.Unsqueeze(n.x(1, 4, 30), n.i(2)), n.w(8, 4, 1, 3), n.w(8))), n.i(2)))
_add("transpose", lambda n: n.Transpose(_relu_conv(n, 1, 4, 8, 7), perm=[0, 3, 1, 2]))
_add("gather", lambda n: n.Gather(_relu_conv(n, 1, 8, 6, 7), n.c(np.array([3, 1, 6])), axis=1))
_add("gather last scalar", lambda n: n.Gather(n.x(2, 40, 7), n.c(np.array(3)), axis=2))
_add("gather channel scalar", lambda n: n.Gather(_relu_conv(n, 2, 4, 6, 7), n.c(np.array(-1)), axis=1))
_add("expand", lambda n: n.Add(n.Expand(n.x(2, 4, 1, 1), n.i(2, 4, 6, 5)), n.x(2, 4, 6, 5)))
_add("tile", lambda n: n.Tile(n.x(2, 4, 1, 5), n.i(1, 1, 6, 2)))


def _shuffle(n: Net, x: str, c: int, h: int, g: int) -> str:
    split = n.Transpose(n.Reshape(x, n.i(1, g, c // g, h, h)), perm=[0, 2, 1, 3, 4])
    return str(n.Reshape(split, n.i(1, c, h, h)))


_add("channel shuffle", lambda n: conv(n, _shuffle(n, n.Relu(conv(n, n.x(1, 8, 6, 6), 8, 8, 1, group=2)), 8, 6, 2), 8, 8, group=8))
_add("depth to space", lambda n: conv(n, n.DepthToSpace(_relu_conv(n, 1, 12, 4, 5), blocksize=2), 3, 6))
_add("depth to space CRD", lambda n: n.DepthToSpace(_relu_conv(n, 1, 12, 4, 5), blocksize=2, mode="CRD"))
_add("space to depth", lambda n: conv(n, n.SpaceToDepth(_relu_conv(n, 1, 3, 8, 6), blocksize=2), 12, 6))
_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_add("resize", lambda n: conv(n, n.Resize(_relu_conv(n, 1, 4, 5, 6), "", n.c([1.0, 1.0, 2.0, 3.0]), **_NEAREST), 4, 6))
_add("resize sizes", lambda n: n.Resize(_relu_conv(n, 1, 4, 5, 6), "", "", n.i(1, 4, 10, 12), **_NEAREST))
_add("resize half pixel", lambda n: n.Resize(_relu_conv(n, 1, 4, 5, 6), "", n.c([1.0, 1.0, 2.0, 2.0]), mode="nearest"))
_add("resize down", lambda n: n.Resize(_relu_conv(n, 1, 4, 8, 6), "", n.c([1.0, 1.0, 0.5, 0.5]), **_NEAREST))
_LINEAR = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
_add("resize linear", lambda n: conv(n, n.Resize(_relu_conv(n, 1, 4, 5, 6), "", n.c([1.0, 1.0, 2.0, 3.0]), **_LINEAR), 4, 6))
_add("resize linear sizes", lambda n: n.Resize(_relu_conv(n, 1, 4, 5, 6), "", "", n.i(1, 4, 8, 9), mode="linear"))
_ALIGNED = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
_add("resize linear aligned", lambda n: n.Resize(_relu_conv(n, 1, 4, 5, 6), "", "", n.i(1, 4, 9, 11), **_ALIGNED))
_add("resize cubic", lambda n: n.Resize(_relu_conv(n, 1, 4, 5, 6), "", n.c([1.0, 1.0, 2.0, 2.0]), mode="cubic"))
_add("lp normalization", lambda n: n.LpNormalization(_relu_conv(n, 1, 4, 5, 6), axis=1, p=2))
_add("pad wrap", lambda n: conv(n, n.Pad(_relu_conv(n, 1, 4, 5, 6), n.i(0, 0, 1, 2, 0, 0, 1, 2), mode="wrap"), 4, 6))


def _residual(n: Net, x: str, c: int) -> str:
    return str(n.Relu(n.Add(conv(n, n.Relu(conv(n, x, c, c)), c, c), x)))


_add("residual", lambda n: _residual(n, _residual(n, _relu_conv(n, 1, 4, 8, 8), 4), 4))
_add(
    "residual projection",
    lambda n: (lambda x: n.Relu(n.Add(conv(n, x, 4, 8, strides=[2, 2]), conv(n, x, 4, 8, 1, strides=[2, 2]))))(_relu_conv(n, 1, 4, 8, 8)),
)


def _squeeze_excite(n: Net, x: str, c: int, gate: str) -> str:
    s = n.Relu(conv(n, n.GlobalAveragePool(x), c, 4, 1))
    return str(n.Mul(x, getattr(n, gate)(conv(n, s, 4, c, 1))))


_add("squeeze excite", lambda n: conv(n, _squeeze_excite(n, _relu_conv(n, 1, 8, 8, 8), 8, "Sigmoid"), 8, 4))
_add("squeeze excite hard", lambda n: conv(n, _squeeze_excite(n, _relu_conv(n, 1, 8, 8, 8), 8, "HardSigmoid"), 8, 4))
_add(
    "squeeze excite 1x1 mean",
    lambda n: (lambda x: n.Mul(n.HardSigmoid(conv(n, n.ReduceMean(x, axes=[2, 3]), 8, 8, 1)), x))(_relu_conv(n, 1, 8, 8, 8)),
)


def _gated_by_gemm(n: Net) -> str:
    x = _relu_conv(n, 1, 8, 8, 8)
    gate = n.Sigmoid(n.Gemm(n.Flatten(n.GlobalAveragePool(x)), n.w(8, 8), n.w(8)))
    return str(n.Mul(x, n.Reshape(gate, n.i(1, 8, 1, 1))))


_add("squeeze excite gemm", _gated_by_gemm)


def _inverted(n: Net) -> str:
    x = _relu_conv(n, 1, 4, 8, 8)
    six = (n.c(0.0), n.c(6.0))
    h = n.Clip(conv(n, n.Clip(conv(n, x, 4, 16, 1), *six), 16, 16, group=16), *six)
    return str(n.Add(x, conv(n, h, 16, 4, 1)))


_add("inverted residual", _inverted)


def _channels_last(n: Net) -> str:
    x = n.Transpose(n.x(1, 8, 8, 4), perm=[0, 3, 1, 2])
    y = n.Relu(conv(n, x, 4, 6))
    z = n.Transpose(n.MaxPool(y, kernel_shape=[2, 2], strides=[2, 2]), perm=[0, 2, 3, 1])
    z = n.Mul(n.Add(z, n.w(6)), n.c(n.random.uniform(0.5, 1, (1, 1, 1, 6))))
    return str(n.Transpose(n.Relu(conv(n, n.Transpose(z, perm=[0, 3, 1, 2]), 6, 8)), perm=[0, 2, 3, 1]))


_add("channels last", _channels_last)


def _attention_pool(n: Net) -> str:
    x = _relu_conv(n, 1, 16, 6, 6)
    tokens = n.Transpose(n.Reshape(x, n.i(1, 16, 36)), perm=[0, 2, 1])
    weights = n.Softmax(n.MatMul(tokens, n.w(16, 4)), axis=1)
    return str(n.MatMul(n.Transpose(weights, perm=[0, 2, 1]), tokens))


_add("attention pool", _attention_pool)


def _weighted_mean(n: Net) -> str:
    x = _relu_conv(n, 1, 16, 6, 6)
    weights = n.Softmax(n.Reshape(conv(n, x, 16, 1, 1), n.i(1, 1, 36)), axis=2)
    return str(n.ReduceSum(n.Mul(x, n.Reshape(weights, n.i(1, 1, 6, 6))), n.i(2, 3), keepdims=0))


_add("weighted mean", _weighted_mean)


def _spatial_attention(n: Net) -> str:
    x = _relu_conv(n, 1, 8, 8, 8)
    both = n.Concat(n.ReduceMean(x, axes=[1]), n.ReduceMax(x, axes=[1]), axis=1)
    return str(n.Mul(x, n.Sigmoid(conv(n, both, 2, 1, 7))))


_add("spatial attention", _spatial_attention)


def _unet(n: Net) -> str:
    x = _relu_conv(n, 1, 4, 8, 8)
    low = n.Relu(conv(n, n.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2]), 4, 8))
    up = n.ConvTranspose(low, n.w(8, 4, 2, 2), n.w(4), strides=[2, 2])
    return str(n.Sigmoid(conv(n, n.Concat(up, x, axis=1), 8, 2)))


_add("u-net", _unet)
_add(
    "sequence",
    lambda n: n.ReduceMean(
        n.Relu(n.MatMul(n.Transpose(n.Relu(n.Conv(n.x(1, 4, 40), n.w(8, 4, 5), n.w(8))), perm=[0, 2, 1]), n.w(8, 30))), axes=[1], keepdims=0
    ),
)
_add("multi output", lambda n: (lambda x: [conv(n, x, 4, 6), n.GlobalAveragePool(x), x])(_relu_conv(n, 1, 4, 8, 8)))
