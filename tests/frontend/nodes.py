"""One small model for every operator and every attribute that the importer knows, and ways to damage one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

TRAINING = "ai.onnx.preview.training"
MS, QONNX, TFLITE = "com.microsoft", "qonnx.custom_op.general", "deeploy.tflite"
F, I8, U8, I64 = np.float32, np.int8, np.uint8, np.int64


def sample(op: str, inputs: list[Any], outputs: int = 1, domain: str = "", opset: int = 17, **attrs: Any) -> onnx.ModelProto:
    """A model of one node: a tuple is the shape of an input, with its type or float, an array a constant, None an input that is absent."""
    names, values, constants = [], [], []
    for position, given in enumerate(inputs):
        names.append("" if given is None else f"i{position}")
        if isinstance(given, tuple):
            shape, kind = given if given and isinstance(given[0], tuple) else (given, F)
            values.append(helper.make_tensor_value_info(names[-1], helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape))
        elif given is not None:
            constants.append(numpy_helper.from_array(np.asarray(given), names[-1]))
    node = helper.make_node(op, names, [f"o{i}" for i in range(outputs)], name=f"the {op}", domain=domain, **attrs)
    results = [helper.make_tensor_value_info(f"o{i}", TensorProto.FLOAT, None) for i in range(outputs)]
    graph = helper.make_graph([node], "g", values, results, constants)
    versions = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


def w(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=F).reshape(shape) % 5 - 2


S, Z = np.array(0.1, F), np.array(3, I8)
X, IMAGE = (2, 3), (1, 2, 6, 6)
_WINDOW = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "auto_pad": "NOTSET"}
_QUANT = [np.array(0.1, F), np.array(3, U8)]


def _standard() -> Iterator[onnx.ModelProto]:
    yield sample("Conv", [IMAGE, w(2, 2, 3, 3), w(2)], group=1, **_WINDOW)
    yield sample("ConvTranspose", [IMAGE, w(2, 2, 3, 3), w(2)], group=1, output_padding=[0, 0], output_shape=[6, 6], **_WINDOW)
    yield sample("QLinearConv", [(IMAGE, U8), *_QUANT, w(2, 2, 3, 3).astype(U8), *_QUANT, *_QUANT], group=1, **_WINDOW)
    yield sample("ConvInteger", [(IMAGE, U8), w(2, 2, 3, 3).astype(U8), _QUANT[1], _QUANT[1]], group=1, **_WINDOW)
    yield sample("MaxPool", [IMAGE], ceil_mode=0, storage_order=0, **_WINDOW)
    yield sample("AveragePool", [IMAGE], opset=19, ceil_mode=0, count_include_pad=1, **_WINDOW)
    yield sample("LpPool", [IMAGE], opset=18, p=2, ceil_mode=0, **_WINDOW)
    yield from (sample(op, [IMAGE]) for op in ("GlobalAveragePool", "GlobalMaxPool"))
    yield sample("Gemm", [X, w(3, 4), w(4)], alpha=0.5, beta=2.0, transA=0, transB=0)
    yield sample("MatMul", [X, w(3, 4)])
    yield sample("QLinearMatMul", [((2, 3), U8), *_QUANT, w(3, 2).astype(U8), *_QUANT, *_QUANT])
    yield sample("MatMulInteger", [((2, 3), U8), w(3, 2).astype(U8), _QUANT[1], _QUANT[1]])
    yield sample("QuantizeLinear", [X, np.full(3, 0.1, F), np.full(3, 3, I8)], axis=1)
    yield sample("DequantizeLinear", [((2, 3), I8), np.full(3, 0.1, F), np.full(3, 3, I8)], axis=1)
    yield sample("DynamicQuantizeLinear", [X], outputs=3)
    yield from (sample(op, [X, (1, 3)]) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Less", "Equal", "Sum", "Mean"))
    yield from (
        sample(op, [X]) for op in ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Exp", "Erf", "Sqrt", "Floor", "Ceil", "Round", "Softsign")
    )
    yield from (sample(op, [X], alpha=0.5) for op in ("LeakyRelu", "Elu", "ThresholdedRelu", "Celu"))
    yield sample("HardSigmoid", [X], alpha=0.2, beta=0.5)
    yield sample("Selu", [X], alpha=1.6, gamma=1.05)
    yield sample("HardSwish", [X])
    yield sample("Gelu", [X], opset=20, approximate="tanh")
    yield sample("PRelu", [X, w(3)])
    yield sample("Clip", [X, np.array(-1, F), np.array(1, F)])
    yield sample("Clip", [X], opset=7, min=-1.0, max=1.0)
    yield from (sample(op, [X], axis=-1) for op in ("Softmax", "LogSoftmax", "Hardmax"))
    yield from (sample(op, [X], axis=1, keepdims=1, select_last_index=0) for op in ("ArgMax", "ArgMin"))
    yield from (sample(op, [X], opset=11, axes=[1], keepdims=1) for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"))
    yield sample("ReduceMean", [X, np.array([1], I64)], opset=18, keepdims=1, noop_with_empty_axes=0)
    yield sample("TopK", [X, np.array([2], I64)], outputs=2, axis=1, largest=1, sorted=1)


def _moved() -> Iterator[onnx.ModelProto]:
    """Operators that move elements, and norms, networks of steps, and constants."""
    yield sample("Transpose", [X], perm=[1, 0])
    yield sample("Reshape", [X, np.array([3, 2], I64)], allowzero=0)
    yield sample("Flatten", [IMAGE], axis=1)
    yield sample("Squeeze", [(1, 3)], opset=11, axes=[0])
    yield sample("Unsqueeze", [X, np.array([0], I64)])
    yield sample("Expand", [(1, 3), np.array([2, 3], I64)])
    yield sample("Tile", [X, np.array([2, 1], I64)])
    yield sample("Concat", [X, X], axis=0)
    yield sample("Split", [(4, 3), np.array([1, 3], I64)], outputs=2, axis=0)
    yield sample("Split", [(4, 3)], outputs=2, opset=11, axis=0, split=[1, 3])
    yield sample("Slice", [X, np.array([0], I64), np.array([2], I64), np.array([1], I64), np.array([1], I64)])
    yield sample("Slice", [X], opset=9, starts=[0], ends=[2], axes=[1])
    yield from (sample("Pad", [X, np.array([0, 1, 0, 1], I64), np.array(1, F)], mode=mode) for mode in ("constant", "reflect", "edge"))
    yield sample("Pad", [X], opset=9, mode="constant", pads=[0, 1, 0, 1], value=1.0)
    yield sample("Gather", [X, np.array([1, 0], I64)], axis=1)
    yield sample("GatherElements", [X, np.array([[1, 0, 2]], I64)], axis=1)
    yield sample("ScatterElements", [X, np.array([[1]], I64), np.array([[1]], F)], axis=1, reduction="none")
    yield sample("Where", [np.array([[True], [False]]), X, X])
    yield sample("Cast", [X], to=TensorProto.INT32)
    yield sample("DepthToSpace", [(1, 4, 2, 2)], blocksize=2, mode="DCR")
    yield sample("SpaceToDepth", [(1, 1, 4, 4)], blocksize=2)
    resized = [IMAGE, None, np.array([1, 1, 2, 2], F)]
    yield sample("Resize", resized, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor", cubic_coeff_a=-0.75)
    yield sample("Resize", resized, opset=19, mode="linear", antialias=0, exclude_outside=0, extrapolation_value=0.0, axes=[0, 1, 2, 3])
    yield sample("Upsample", [IMAGE], opset=7, mode="nearest", scales=[1.0, 1.0, 2.0, 2.0])
    yield sample("BatchNormalization", [IMAGE, w(2), w(2), w(2), w(2) ** 2 + 1], opset=15, epsilon=1e-5, momentum=0.9, training_mode=0)
    yield sample("InstanceNormalization", [IMAGE, w(2), w(2)], epsilon=1e-5)
    yield sample("LayerNormalization", [X, w(3), w(3)], axis=-1, epsilon=1e-5, stash_type=1)
    yield sample("GroupNormalization", [IMAGE, w(2), w(2)], opset=21, num_groups=2, epsilon=1e-5)
    yield sample("LpNormalization", [X], axis=-1, p=2)
    yield sample("LRN", [IMAGE], size=3, alpha=1e-4, beta=0.75, bias=1.0)
    yield sample("Einsum", [X, w(3, 4)], equation="ij,jk->ik")
    yield sample("CumSum", [X, np.array(1, I64)], exclusive=0, reverse=0)
    yield sample("Trilu", [X, np.array(0, I64)], upper=1)
    yield sample("OneHot", [X, np.array(3, I64), np.array([0, 1], F)], axis=-1)
    yield sample("IsInf", [X], detect_negative=1, detect_positive=1)
    yield sample("Shape", [X], start=0, end=1)
    yield sample("ConstantOfShape", [np.array([2], I64)], value=numpy_helper.from_array(np.array([1], F)))
    yield sample("Constant", [], value=numpy_helper.from_array(w(2)))
    yield sample("Constant", [], value_floats=[1.0, 2.0])
    yield sample("Dropout", [X, np.array(0.5, F)], seed=1)
    yield sample(
        "LSTM", [(3, 1, 2), w(1, 8, 2), w(1, 8, 2)], outputs=1, hidden_size=2, direction="forward", activations=["Sigmoid", "Tanh", "Tanh"]
    )
    yield sample("GRU", [(3, 1, 2), w(1, 6, 2), w(1, 6, 2)], hidden_size=2, direction="forward", linear_before_reset=0)


def _dialect() -> Iterator[onnx.ModelProto]:
    yield sample("RequantShift", [IMAGE, w(1, 2, 1, 1), w(1, 2, 1, 1)], div=256, n_levels=256, signed=1)
    yield sample("iSoftmax", [X], n_levels=256, coeffA=1, coeffB=10, coeffC=100, log2=30)
    yield sample("ITAMax", [X], n_levels=256)
    yield sample("ITAPartialMax", [X], n_levels=256, group_width=3)
    yield sample("iLayerNorm", [X, w(3), w(3)], D=64, n_levels=256)
    yield sample("iRMSNorm", [X, w(3)], D=64, n_levels=256)
    yield sample("iNoNorm", [X, w(3), w(3)], D=64, mul=3, n_levels=256)
    yield sample("iGELU", [X], b=-80, one=6000)
    yield sample("iHardswish", [X], three=120, six=240, one_over_six=42)
    yield sample("TrueIntegerDiv", [X], Delta=100, eps=1, eta=3, y=5)
    yield sample("IntegerDiv", [X, X], Delta=100, eps=1, eta=3)
    yield sample("IntegerMean", [X], axes=[1], keepdims=1)


def _contributed() -> Iterator[onnx.ModelProto]:
    q = [((2, 3), U8), *_QUANT]
    yield from (sample(op, [*q, *q, *_QUANT], domain=MS) for op in ("QLinearAdd", "QLinearMul"))
    yield sample("QGemm", [*q, w(3, 2).astype(U8), *_QUANT, None, *_QUANT], domain=MS, alpha=1.0, transA=0, transB=0)
    yield sample("QLinearConcat", [*_QUANT, *q, *q], domain=MS, axis=0)
    yield sample("QLinearSoftmax", [*q, *_QUANT], domain=MS, axis=-1, opset=13)
    yield sample("QLinearSigmoid", [*q, *_QUANT], domain=MS)
    yield sample("QLinearLeakyRelu", [*q, *_QUANT], domain=MS, alpha=0.1)
    image = [(IMAGE, U8), *_QUANT]
    yield sample("QLinearAveragePool", [*image, *_QUANT], domain=MS, ceil_mode=0, count_include_pad=0, channels_last=0, **_WINDOW)
    yield sample("QLinearGlobalAveragePool", [*image, *_QUANT], domain=MS, channels_last=0)
    yield sample("QLinearReduceMean", [*image, *_QUANT], domain=MS, axes=[2, 3], keepdims=1)
    yield sample("FusedConv", [IMAGE, w(2, 2, 3, 3), w(2)], domain=MS, group=1, activation="Relu", activation_params=[0.1], **_WINDOW)
    yield sample(
        "FusedGemm",
        [X, w(3, 4), w(4)],
        domain=MS,
        alpha=1.0,
        beta=1.0,
        transA=0,
        transB=0,
        activation="Relu",
        activation_alpha=0.1,
        activation_beta=0.2,
        activation_gamma=0.3,
    )
    yield sample("FusedMatMul", [X, w(3, 4)], domain=MS, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0)
    yield from (sample(op, [X], domain=MS) for op in ("Gelu", "FastGelu", "QuickGelu"))
    yield sample("BiasGelu", [X, w(3)], domain=MS)
    one, none, bits = np.array(0.5, F), np.array(0, F), np.array(4, F)
    yield sample("Quant", [X, one, none, bits], domain=QONNX, signed=1, narrow=0, rounding_mode="ROUND")
    yield sample("IntQuant", [X, one, none, bits], domain=QONNX, signed=1, narrow=0, rounding_mode="ROUND")
    yield sample("BipolarQuant", [X, one], domain=QONNX)
    yield sample("Trunc", [X, one, none, np.array(8, F), bits], domain=QONNX, rounding_mode="FLOOR")
    yield sample("MultiThreshold", [X, np.sort(w(3, 4), 1)], domain=QONNX, out_scale=1.0, out_bias=0.0, out_dtype="UINT4")
    yield sample("SkipLayerNormalization", [(1, 2, 3), (1, 2, 3), w(3), w(3)], domain=MS, epsilon=1e-5)
    yield sample("SkipSimplifiedLayerNormalization", [(1, 2, 3), (1, 2, 3), w(3)], domain=MS, epsilon=1e-5)
    yield sample("SimplifiedLayerNormalization", [X, w(3)], axis=-1, epsilon=1e-5)


def _of_transformers() -> Iterator[onnx.ModelProto]:
    rows, mask, flags = (1, 2, 16), (((1, 2)), np.int32), {"mask_filter_value": -10000.0, "scale": 0.5, "unidirectional": 1}
    old = {"do_rotary": 0, "past_present_share_buffer": 0, "num_heads": 2}
    yield sample(
        "Attention", [rows, w(16, 48), w(48), mask], domain=MS, qkv_hidden_sizes=[16, 16, 16], rotary_embedding_dim=0, **flags, **old
    )
    bytes_ = [(rows, U8), w(16, 48).astype(I8), w(48), S, S, mask, np.array(3, U8), np.array(0, I8)]
    yield sample("QAttention", bytes_, domain=MS, **flags, **old)
    yield sample("MultiHeadAttention", [rows, rows, rows, w(48), mask], domain=MS, num_heads=2, **flags)
    groups = {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1, "rotary_interleaved": 0, "local_window_size": 2, "smooth_softmax": 0}
    counts = [np.array([1], np.int32), np.array(2, np.int32)]
    yield sample(
        "GroupQueryAttention", [(1, 2, 32), None, None, None, None, *counts, w(4, 4), w(4, 4)], domain=MS, scale=0.5, softcap=1.0, **groups
    )
    turns = {"interleaved": 0, "is_packed_batching": 0, "num_heads": 2, "rotary_embedding_dim": 8, "scale": 1.0}
    yield sample("RotaryEmbedding", [rows, ((1, 2), I64), w(4, 4), w(4, 4)], domain=MS, **turns)
    ids, tables = ((1, 2), np.int32), [w(5, 8), w(4, 8), w(2, 8), w(8), w(8)]
    yield sample("EmbedLayerNormalization", [ids, ids, *tables], domain=MS, epsilon=1e-5, mask_index_type=0)
    packed = np.arange(40, dtype=U8).reshape(5, 1, 8)
    yield sample("MatMulNBits", [(2, 16), packed, np.full(5, 0.1, F)], domain=MS, K=16, N=5, bits=4, block_size=16, accuracy_level=0)
    table = [packed.reshape(5, 8), ((2,), I64), np.full((5, 1), 0.1, F)]
    yield sample("GatherBlockQuantized", table, domain=MS, bits=4, block_size=16, gather_axis=0, quantize_axis=1)
    yield sample("DynamicQuantizeMatMul", [X, w(3, 4).astype(I8), S], domain=MS)
    yield sample("MatMulIntegerToFloat", [(X, U8), w(3, 4).astype(I8), S, S, np.array(3, U8)], domain=MS)
    weights = [w(1, 2, 8).astype(I8), w(1, 2, 8).astype(I8)]
    quantised = [np.full(1, 0.1, F), np.zeros(1, I8)] * 2
    gates = {"hidden_size": 2, "direction": "forward", "input_forget": 0, "clip": 0.0, "activations": ["Sigmoid", "Tanh", "Tanh"]}
    empty = {"activation_alpha": [0.0], "activation_beta": [0.0]}
    yield sample("DynamicQuantizeLSTM", [(3, 1, 2), *weights, None, None, None, None, None, *quantised], domain=MS, **gates, **empty)


def _of_training() -> Iterator[onnx.ModelProto]:
    """Gradients and optimisers."""
    scores, label = (2, 3), np.array([2, 0], I64)
    yield from (sample(op, [X, X], domain=MS) for op in ("ReluGrad", "GeluGrad", "FastGeluGrad", "SigmoidGrad", "TanhGrad"))
    yield from (sample(op, [X, X, w(3)], domain=MS) for op in ("BiasGeluGrad_dX", "BiasFastGeluGrad_dX"))
    yield sample("QuickGeluGrad", [X, X], domain=MS, alpha=1.5)
    yield from (sample(op, [X, X], domain=MS, axis=1) for op in ("SoftmaxGrad_13", "LogSoftmaxGrad_13"))
    yield sample("SoftmaxCrossEntropyLossGrad", [(), scores, label], reduction="mean", ignore_index=-1)
    yield sample("SoftmaxCrossEntropyLossInternal", [scores, label], 2, MS, reduction="mean")
    yield sample("SoftmaxCrossEntropyLossInternalGrad", [(), scores, label], domain=MS, reduction="sum")
    window = {name: value for name, value in _WINDOW.items() if name != "auto_pad"}
    yield sample("ConvGrad", [IMAGE, IMAGE, w(2, 2, 3, 3)], 3, MS, group=1, auto_pad="NOTSET", **window)
    yield sample("LayerNormalizationGrad", [X, X, w(3), (2,), (2,)], 3, MS, axis=-1)
    yield sample("SoftmaxCrossEntropyLossGrad", [scores, label], domain=MS, reduction="sum")
    yield sample("LeakyReluGrad", [X, X], domain=MS, alpha=0.1)
    yield sample("ZeroGradient", [X, ((1,), np.bool_)], domain=MS)
    yield sample("GeluGrad", [X, X])
    yield sample("SoftmaxGrad", [X, X], domain=MS, axis=1)
    yield sample("SimplifiedLayerNormalizationGrad", [X, X, w(3), (2,)], 2, MS, axis=-1)
    yield sample("BatchNormalizationGrad", [IMAGE, IMAGE, w(2), w(2), w(2)], 3, MS, epsilon=1e-5)
    yield sample("SplitTraining", [X, np.array([1, 2], I64)], 2, MS, axis=1)
    yield sample("ReduceSumTraining", [X, np.array([1], I64)], domain=MS, keepdims=0, noop_with_empty_axes=1)
    yield sample("DivGrad", [X, X, X], 2, MS)
    for op, inputs, about in (("MaxPoolGrad", [IMAGE, (IMAGE, I64)], {}), ("AveragePoolGrad", [IMAGE], {"count_include_pad": 1})):
        model = sample(op, inputs, ceil_mode=0, **_WINDOW, **about)
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("o0", TensorProto.FLOAT, IMAGE))
        yield model
    yield sample("SGD", [X, X], lr=0.1)
    yield sample("SGDOptimizer", [(), X, X], 2, MS)
    yield sample("SGDOptimizerV2", [(), X, X], 2, MS)
    yield sample("AdamWOptimizer", [(), np.array(3, I64), X, X, X, X], 4, MS, alpha=0.8, beta=0.9, weight_decay=0.1, correct_bias=1)
    yield sample("InplaceClipGradNorm", [X, X], 2, MS, max_norm=0.5, norm_type="fro")
    yield sample("GatherGrad", [np.array([5, 3], I64), np.array([1, 4], I64), X], domain=MS, axis=0)
    yield sample("SliceGrad", [X, *(np.array(values, I64) for values in ([4, 3], [1], [3], [0]))], domain=MS)
    yield sample("ConcatTraining", [X, X], 2, MS, axis=1)
    yield sample("InPlaceAccumulator", [X, X], domain=MS)
    yield sample("InPlaceAccumulatorV2", [X, X, ((1,), np.bool_)], 2, MS)
    rates = [(), np.array(3, I64)]
    about = {"epsilon": 1e-6, "norm_coefficient": 0.01}
    yield sample("Adagrad", [*rates, X, X, X], 2, TRAINING, decay_factor=0.1, **about)
    yield sample("Momentum", [*rates, X, X, X], 2, TRAINING, alpha=0.8, beta=0.5, norm_coefficient=0.01, mode="nesterov")
    yield sample("Adam", [*rates, X, X, X, X], 3, TRAINING, alpha=0.8, beta=0.9, norm_coefficient_post=0.02, **about)


def _of_tensorflow_lite() -> Iterator[onnx.ModelProto]:
    """What files of TensorFlow Lite are read as; a model may hold it, too."""
    limits, sums = {"low": -128, "high": 127}, ((2, 3), np.int32)
    yield sample("Requantise", [sums, np.array([1 << 30]), np.array([1 << 34]), Z], domain=TFLITE, shift=35, **limits)
    yield sample("LookUp", [((2, 3), I8), np.arange(256).astype(I8)], domain=TFLITE)
    yield sample("QuantisedSoftmax", [((2, 3), I8), np.arange(1, 257)], domain=TFLITE, **limits)
    yield sample("L2Norm", [((2, 3), I8)], domain=TFLITE, zero_point=5)
    yield from (sample(op, [((2, 3), np.int16), np.array(0, np.int16)], domain=TFLITE, whole=3) for op in ("Logistic", "HyperbolicTangent"))
    quotient = {"a_zero_point": 1, "b_zero_point": -2, "zero_point": 3, "shift": 20, "low": -128, "high": 127}
    yield sample("DivideScaled", [((2, 3), I8), ((2, 3), I8), np.array([1 << 20])], domain=TFLITE, **quotient)
    yield sample("MultiplyCentred", [((2, 3), I8), np.array(0, np.int32), ((2, 3), I8)], domain=TFLITE, a_zero_point=1, b_zero_point=-2)
    yield sample("AddScaled", [((2, 3), I8), ((2, 3), I8), np.array([3, 5, 7])], domain=TFLITE, shift=4, **limits)
    window = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 0, 0]}
    yield sample("RoundedAveragePool", [(IMAGE, I8)], domain=TFLITE, **window, **limits)


def sample_models() -> dict[str, onnx.ModelProto]:
    """Every sample by a name of its own."""
    found: dict[str, onnx.ModelProto] = {}
    for model in (*_standard(), *_moved(), *_dialect(), *_contributed(), *_of_transformers(), *_of_training(), *_of_tensorflow_lite()):
        base = f"{model.graph.node[0].domain}{model.graph.node[0].op_type}"
        found[base if base not in found else f"{base} {len(found)}"] = model
    return found


_HOSTILE = ("", "'); exit(1); //", "*/ int x; /*", "A\nB", "\x1b[31m", "${1}", "CONSTANT", "x" * 10_000)
_NUMBERS = (0, -1, 1, 7, 2**31, 2**62, -(2**63))
_REALS = (0.0, -1.0, 0.5, float("nan"), float("inf"), 1e38)


Change = Callable[[onnx.ModelProto], None]


def changed(model: onnx.ModelProto, change: Change) -> onnx.ModelProto:
    result = copy.deepcopy(model)
    change(result)
    return result


def attributes_damaged(model: onnx.ModelProto) -> Iterator[tuple[str, Change]]:
    """Each attribute removed, of another kind, empty, long, huge, negative, not a number; and texts that are hostile."""
    for index, attribute in enumerate(model.graph.node[0].attribute):
        values: list[Any] = [None, b"\xff\xfe", *_HOSTILE, *_NUMBERS, *_REALS, [], [1], [-1] * 3, [0] * 4, [2**62] * 2, [0.5]]
        values += [[float("nan")] * 2, ["a", "b"], [b"\xff"]]
        values += [numpy_helper.from_array(np.zeros((0, 2), F)), numpy_helper.from_array(np.array(["a"], object))]
        values += [helper.make_graph([], "g", [], []), onnx.SparseTensorProto(), helper.make_tensor_type_proto(1, [2])]
        for value in values:
            yield f"{attribute.name} = {str(value)[:40]!r}", partial(_replaced, index, attribute.name, value)
        for kind in (0, 1, 2, 3, 4, 6, 7, 8, 99):
            yield f"type of {attribute.name} = {kind}", partial(_typed, index, kind)
    yield "attributes twice", _doubled


def _replaced(index: int, name: str, value: Any, model: onnx.ModelProto) -> None:
    node = model.graph.node[0]
    del node.attribute[index]
    if value is not None:
        node.attribute.append(helper.make_attribute(name, value, attr_type=AttributeProto.INTS if value == [] else None))


def _typed(index: int, kind: int, model: onnx.ModelProto) -> None:
    attribute = model.graph.node[0].attribute[index]
    attribute.ClearField("type")
    attribute.MergeFromString(bytes([0xA0, 0x01, kind]))  # field 20: the type, whatever the enumeration knows


def _doubled(model: onnx.ModelProto) -> None:
    node = model.graph.node[0]
    node.attribute.extend(list(node.attribute))
    node.attribute.append(helper.make_attribute("surplus", "text"))


def inputs_damaged(model: onnx.ModelProto) -> Iterator[tuple[str, Change]]:
    """Each input removed, absent, unknown, of another rank, type or size, without elements, or with other values; outputs likewise."""
    node = model.graph.node[0]
    for position in range(len(node.input)):
        for what, names in (("removed", []), ("absent", [""]), ("unknown", ["nobody"]), ("twice", [node.input[position]] * 2)):
            whole = [*node.input[:position], *names, *node.input[position + 1 :]]
            yield f"input {position} {what}", partial(_renamed, "input", whole)
        yield from _values_damaged(model, position)
    for names in ([], [""], ["o0", "o9"], ["o0", "o8", "o9", "more", "even"], ["i0"], ["o0", "o0"]):
        yield f"outputs {names}", partial(_renamed, "output", names)
    for field in ("domain", "op_type", "name"):
        for text in ("", "*/ int x;", "com.nobody", "x" * 10_000, "\x1b[2J"):
            yield f"{field} = {text[:20]!r}", partial(_texted, field, text)


def _renamed(field: str, names: list[str], model: onnx.ModelProto) -> None:
    getattr(model.graph.node[0], field)[:] = names


def _texted(field: str, text: str, model: onnx.ModelProto) -> None:
    setattr(model.graph.node[0], field, text)


def _values_damaged(model: onnx.ModelProto, position: int) -> Iterator[tuple[str, Change]]:
    name = model.graph.node[0].input[position]
    for index, tensor in enumerate(model.graph.initializer):
        if tensor.name != name:
            continue
        array = numpy_helper.to_array(tensor)
        changes = [array.reshape(1, *array.shape), array.ravel()[:1], *(np.zeros(shape, array.dtype) for shape in ((0,), (2, 0), (7,)))]
        changes += [array.astype(kind) for kind in (np.float64, np.int32, bool, np.float16)] + [np.array(["a"], object)]
        numbers = (0, -1, 2**62) if array.dtype == I64 else (0, -1, np.inf, np.nan, 1e-40) if array.dtype.kind == "f" else (0, 1)
        changes += [np.full_like(array, number) for number in numbers]
        for number, value in enumerate(changes):
            yield f"constant {position}, {number}", partial(_stored, index, numpy_helper.from_array(value, name))
        yield f"constant {position} of other bytes", lambda m, i=index: setattr(m.graph.initializer[i], "raw_data", b"abc")
        yield f"constant {position} of 2^80 elements", partial(_sized, index)
    for index, value in enumerate(model.graph.input):
        if value.name != name:
            continue
        for shape in ((), (0,), (5,), (1, 1, 1, 1, 1, 1, 1), (2**40, 2**40), (-3, 2), (2, 0, 6, 6)):
            yield f"input {position} of shape {shape}", partial(_declared, index, TensorProto.FLOAT, shape)
        for kind in (TensorProto.STRING, TensorProto.BOOL, TensorProto.INT64, TensorProto.FLOAT16, TensorProto.INT4, 99):
            yield f"input {position} of type {kind}", partial(_declared, index, kind, (2, 3))


def _stored(index: int, tensor: onnx.TensorProto, model: onnx.ModelProto) -> None:
    model.graph.initializer[index].CopyFrom(tensor)


def _sized(index: int, model: onnx.ModelProto) -> None:
    model.graph.initializer[index].dims[:] = [2**40, 2**40]


def _declared(index: int, kind: int, shape: tuple[int, ...], model: onnx.ModelProto) -> None:
    given = model.graph.input[index]
    given.CopyFrom(helper.make_tensor_value_info(given.name, TensorProto.FLOAT, shape))
    given.type.tensor_type.elem_type = kind
