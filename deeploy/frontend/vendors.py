"""Records of operators that the onnx package does not define: of the integer dialect, onnxruntime and QONNX."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from deeploy.frontend.predicates import Operands, first_shape, has_broadcast, type_of
from deeploy.frontend.records import QuantisedForm, Record, vendor_record


def _one_scale(node: Operands) -> str | None:
    """QLinear operators but products: every scale and zero point is one number."""
    wrong = next((t for t in node.inputs if t is not None and type_of(t) == np.float32 and math.prod(t.shape) != 1), None)
    return None if wrong is None else f"has scales of shape {list(wrong.shape)}, where there is one"


_SCALED = (has_broadcast(1, first_shape), has_broadcast(2, first_shape))
DIALECT: Mapping[str, Record] = {
    "RequantShift": vendor_record(3, 3, "div: power; n_levels: steps; signed?: int"),
    "iSoftmax": vendor_record(1, 1, "n_levels: levels; coeffA coeffB coeffC: word; log2: positive", rank=1),
    "ITAMax": vendor_record(1, 1, "n_levels: levels", rank=1),
    "ITAPartialMax": vendor_record(1, 1, "n_levels: levels; group_width: positive", rank=1),
    "iLayerNorm": vendor_record(3, 3, "D: power; n_levels?: int", *_SCALED, rank=1),
    "iRMSNorm": vendor_record(2, 2, "D: power; n_levels?: int", *_SCALED, rank=1),
    "iNoNorm": vendor_record(3, 3, "mul: word; D: power; n_levels?: int", *_SCALED),
    "iGELU": vendor_record(1, 1, "b: negative; one: word"),
    "iHardswish": vendor_record(1, 1, "three: word; six: natural; one_over_six: word"),
    "TrueIntegerDiv": vendor_record(1, 1, "Delta eps eta y: wide"),
    "IntegerDiv": vendor_record(2, 2, "Delta eps eta: wide", like=("Div", (0, 1))),
    "IntegerMean": vendor_record(1, 2, "axes?: ints", like=("ReduceMean", (0,))),
}
ACTIVATIONS = "Relu|Tanh|Sigmoid|Affine|LeakyRelu|ThresholdedRelu|ScaledTanh|HardSigmoid|Elu|Softsign|Softplus"
PADDING = "NOTSET|SAME_UPPER|SAME_LOWER|VALID"
ONNXRUNTIME: Mapping[str, Record] = {
    "QLinearAdd": vendor_record(7, 8, _one_scale, form=QuantisedForm("Add", 2, 6)),
    "QLinearMul": vendor_record(7, 8, _one_scale, form=QuantisedForm("Mul", 2, 6)),
    "QGemm": vendor_record(6, 9, form=QuantisedForm("Gemm", 2, 7, 6)),
    "QLinearConcat": vendor_record(5, 2**31, "axis", _one_scale, form=QuantisedForm("Concat", None, 0)),
    "QLinearSoftmax": vendor_record(4, 5, "opset?: int", _one_scale, rank=1, form=QuantisedForm("Softmax"), defaults={"axis": -1}),
    "QLinearSigmoid": vendor_record(4, 5, _one_scale, form=QuantisedForm("Sigmoid")),
    "QLinearLeakyRelu": vendor_record(4, 5, _one_scale, form=QuantisedForm("LeakyRelu")),
    "QLinearAveragePool": vendor_record(
        4, 5, f"kernel_shape; auto_pad?: {PADDING}; channels_last?: int", _one_scale, rank=3, form=QuantisedForm("AveragePool")
    ),
    "QLinearGlobalAveragePool": vendor_record(4, 5, "channels_last?: int", _one_scale, rank=3, form=QuantisedForm("GlobalAveragePool")),
    "QLinearReduceMean": vendor_record(4, 5, "axes: ints; keepdims", _one_scale, form=QuantisedForm("ReduceMean")),
    "Gelu": vendor_record(1, 1, "approximate?: none|tanh", keeps_shape=True),
    "QuickGelu": vendor_record(1, 1, "alpha?: float", keeps_shape=True),
}
ROUNDING_MODES = ("ROUND", "HALF_EVEN", "CEIL", "FLOOR", "UP", "DOWN", "ROUND_TO_ZERO", "HALF_UP", "HALF_DOWN")
_ROUNDING = "|".join((*ROUNDING_MODES, *map(str.lower, ROUNDING_MODES)))
_QUANT = vendor_record(4, 4, f"signed narrow: flag; rounding_mode?: {_ROUNDING}")
QONNX_RECORDS: Mapping[str, Record] = {
    "Quant": _QUANT,
    "IntQuant": _QUANT,
    "BipolarQuant": vendor_record(2, 2),
    "Trunc": vendor_record(5, 6, f"signed? narrow?: int; rounding_mode?: string {_ROUNDING}"),
    "MultiThreshold": vendor_record(2, 2, "out_scale? out_bias?: float; out_dtype?: string; data_layout?: string NCHW|NHWC", rank=1),
}
TFLITE_DOMAIN = "deeploy.tflite"
CARRIED = " next"  # behind the name of a variable of a TensorFlow Lite file: the output that is its value behind an inference
# What integer operators of TensorFlow Lite are made of that ONNX has no operator for (``deeploy.frontend.tflite``).
TFLITE: Mapping[str, Record] = {
    "Requantise": vendor_record(4, 4, "shift: shift; low high: word", like=("QuantizeLinear", (0, 1, 3))),  # the last has the type
    "LookUp": vendor_record(2, 2, like=("Gather", (1, 0))),
    "QuantisedSoftmax": vendor_record(2, 2, "low high: word", rank=1, keeps_shape=True),
    "L2Norm": vendor_record(1, 1, "zero_point: word", rank=1, keeps_shape=True),
    "MultiplyCentred": vendor_record(3, 3, "a_zero_point b_zero_point: word", like=("Where", (0, 1, 2))),  # the second has the type
    "AddScaled": vendor_record(3, 3, "shift: shift; low high: word", like=("Add", (0, 1))),  # factors of both and a summand
    "DivideScaled": vendor_record(
        3, 3, "a_zero_point b_zero_point zero_point low high: word; shift: shift", like=("Div", (0, 1))
    ),  # a factor
    **dict.fromkeys(
        ("Logistic", "HyperbolicTangent"), vendor_record(2, 2, "whole: natural", like=("Max", (0, 1)))
    ),  # the second has the type
    "RoundedAveragePool": vendor_record(1, 1, "kernel_shape strides pads: ints; low high: word", rank=4, like=("AveragePool", (0,))),
}
