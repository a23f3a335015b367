"""Operators that are taken apart where a model is read, against the node tests of ONNX; what has bounds or is refused."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case import node as node_cases

import deeploy
from deeploy.errors import DeeployError, ModelError, UnsupportedError
from tests.frontend.models import build, f32

NAMES = [
    *("affine_grid_2d", "affine_grid_3d_align_corners", "averagepool_3d_default", "maxpool_3d_dilations", "batchnorm_epsilon"),
    *("causal_conv_with_state_silu", "center_crop_pad_crop_axes_hwc", "compress_0", "compress_default_axis", "cumprod_2d_int32"),
    *("cumprod_1d_int32_exclusive", "dft_axis", "dft_irfft", "dft_rfft_opset19", "gather_elements_negative_indices"),
    *("gathernd_example_float32", "gathernd_example_int32_batch_dim1", "gridsample_bicubic_align_corners_1_additional_1"),
    *("gridsample_bilinear", "gridsample_nearest_align_corners_0_additional_1", "gridsample_reflection_padding"),
    *("gridsample_volumetric_bilinear_align_corners_1", "gru_batchwise", "gru_with_initial_bias", "instancenorm_epsilon"),
    *("linear_attention_gated_delta", "linear_attention_gated_delta_expanded", "lrn"),
    *("lstm_bidirectional", "lstm_with_initial_bias", "nllloss_NCd1d2_with_weight_reduction_mean", "onehot_negative_indices"),
    *("onehot_with_axis", "reversesequence_batch", "scan9_sum", "scatter_elements_with_negative_indices", "scatter_with_axis"),
    *("scatter_elements_with_reduction_max", "scatternd_multiply", "scatternd_max_with_element_indices", "sce_mean_weight_ii_3d_log_prob"),
    *(
        "sce_none_weights_log_prob_expanded",
        "simple_rnn_reverse",
        "stft_with_window",
        "tensorscatter_circular",
        "top_k_same_values_largest",
    ),
    *("tfidfvectorizer_tf_batch_uniandbigrams_skip5", "tfidfvectorizer_tf_onlybigrams_levelempty", "top_k_smallest", "top_k_negative_axis"),
]
_SETTINGS = {"Compress": (1,), "OneHot": (1,), "TopK": (1,)}


_MODULES = (  # of onnx that make these tests: to collect all of them takes long
    *("affinegrid", "averagepool", "batch_normalization", "causal_conv_with_state", "center_crop_pad", "compress", "cumprod", "dft"),
    *("gatherelements", "gathernd", "gridsample", "gru", "instance_normalization", "linear_attention", "lrn", "lstm", "maxpool"),
    *("negativeloglikelihoodloss", "onehot", "reversesequence", "rnn", "scan", "scatter", "scatterelements", "scatternd"),
    *("softmax_cross_entropy_loss", "stft", "tensorscatter", "tfidfvectorizer", "topk"),
)


@cache
def cases() -> dict[str, Any]:
    for module in _MODULES:
        importlib.import_module(f"{node_cases.__name__}.{module}")
    return {case.name.removeprefix("test_"): case for case in node_cases._NodeTestCases}


def fixed(model: onnx.ModelProto, arrays: list[np.ndarray], settings: bool) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """The model with whole numbers and settings behind the first input as constants, or as it is, and what it is fed."""
    copy, kept = onnx.ModelProto(), list[np.ndarray]()
    copy.CopyFrom(model)
    own = {node.input[i] for node in model.graph.node for i in _SETTINGS.get(node.op_type, ())}
    for number, (value, array) in enumerate(zip(model.graph.input, arrays, strict=True)):
        if settings and number and (array.dtype == np.int64 or array.size == 1 or value.name in own):
            copy.graph.initializer.append(numpy_helper.from_array(array, value.name))
            copy.graph.input.remove(value)
        else:
            kept.append(array)
    return copy, kept


@pytest.mark.parametrize("name", NAMES)
def test_a_node_computes_what_onnx_says(tmp_path: Path, name: str) -> None:
    case = cases()[name]
    inputs, wanted = case.data_sets[0]
    got: list[np.ndarray] = []
    for settings in (False, True):
        model, feeds = fixed(case.model, [np.asarray(array) for array in inputs if array is not None], settings)
        onnx.save(model, tmp_path / "m.onnx")
        try:
            got = deeploy.compile(tmp_path / "m.onnx", dialect="standard").interpret(feeds)
            break
        except DeeployError:
            assert not settings, "it is refused with constants, too"
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def refusal(tmp_path: Path, model: onnx.ModelProto) -> DeeployError:
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(DeeployError) as caught:
        deeploy.compile(tmp_path / "m.onnx")
    return caught.value


def test_what_is_refused(tmp_path: Path) -> None:
    node = helper.make_node
    places = np.array([0, 9], np.int64)
    computed = build([node("ScatterElements", ["x", "i", "u"], ["y"])], {"x": f32(4), "i": ((2,), TensorProto.INT64), "u": f32(2)}, ["y"])
    assert "run-time values" in refusal(tmp_path, computed).what
    outside = build([node("ScatterElements", ["x", "i", "u"], ["y"])], {"x": f32(4), "u": f32(2)}, ["y"], {"i": places})
    assert "entries 0 to 9 of an axis that has 4" in refusal(tmp_path, outside).what
    attention = node("Attention", ["x", "w"], ["y"], domain="com.microsoft", num_heads=3)
    error = refusal(tmp_path, build([attention], {"x": f32(1, 2, 4)}, ["y"], {"w": np.ones((4, 12), np.float32)}))
    assert isinstance(error, ModelError) and "correct the model" in error.remedy
    steps = build([node("GRU", ["x", "w", "r"], ["y"], hidden_size=2)], {"x": f32(2000, 1, 2), "w": f32(1, 6, 2), "r": f32(1, 6, 2)}, ["y"])
    error = refusal(tmp_path, steps)
    assert isinstance(error, UnsupportedError) and "unroll=" in error.remedy
