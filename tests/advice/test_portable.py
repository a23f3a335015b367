"""A layer that takes much of a network in portable C is named, with what a faster kernel would need."""

from __future__ import annotations

from pathlib import Path

import onnx

import deeploy
from benchmarks.layer_sweep import Layer, model
from deeploy.advice.portable import slow_layers
from deeploy.target import load


def test_a_layer_in_portable_c_is_named_with_what_a_faster_kernel_needs(tmp_path: Path) -> None:
    """Windows of 7x7 over 128 channels of a group are too long for every core to gather some."""
    target = load("siracusa")
    onnx.save(model(Layer("grouped", "qdq", 256, 8, (8, 8), (7, 7), groups=2)), tmp_path / "model.onnx")
    compiled = deeploy.compile(tmp_path / "model.onnx", target, certify=False)
    (found,) = slow_layers(compiled.units["network"], target)
    assert " runs in portable C: " in str(found["title"]) and float(found["share"]) > 0.5 and not found["gain"]
    assert found["why"] == "Kernel pulp_conv2d_grouped would need groups of several input channels, short windows"


def test_layers_of_fast_kernels_are_not_named(tmp_path: Path) -> None:
    target = load("siracusa")
    onnx.save(model(Layer("conv", "qdq", 64, 64, (16, 16), (3, 3))), tmp_path / "model.onnx")
    assert not list(slow_layers(deeploy.compile(tmp_path / "model.onnx", target, certify=False).units["network"], target))
