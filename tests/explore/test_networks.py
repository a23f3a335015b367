"""Roles of dimensions are found by structure: every kind of layer, from nests and from ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from deeploy import target
from deeploy.errors import DeeployError, ModelError, UnsupportedError
from deeploy.explore import networks
from deeploy.ir.loops import LOOPS, LayerLoops, distinct_layers, from_geometry
from deeploy.ir.nest import Geometry, Map, Nest, parallel, reduction
from tests.models import save_model

MODELS = Path(__file__).parents[2] / "../shared/models/mlperf_tiny"


def loops(layer: LayerLoops) -> dict[str, int]:
    return {loop: size for loop, size in zip(LOOPS, layer.sizes, strict=True) if size > 1}


def save_ones_model(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    x: Sequence[int],
    y: Sequence[int],
    weights: Mapping[str, Sequence[int]],
    second: Sequence[int] = (),
) -> Path:
    inputs = {"x": x, **({"z": second} if second else {})}
    constants = {name: np.ones(shape, np.float32) for name, shape in weights.items()}
    return save_model(folder / "model.onnx", nodes, inputs, {"y": y}, constants)


def layers_of(path: Path) -> list[LayerLoops]:
    return networks.read_network(path, target.load("generic"))


def node(op: str, inputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), ["y"], name="layer", **attributes)


@pytest.mark.parametrize(
    ("operator", "x", "y", "weights", "expected", "strides"),
    [
        (
            node("Conv", "x w", pads=[1] * 4),
            [1, 3, 10, 12],
            [1, 8, 10, 12],
            [8, 3, 3, 3],
            {"K": 8, "C": 3, "OY": 10, "OX": 12, "FY": 3, "FX": 3},
            (1, 1),
        ),
        (
            node("Conv", "x w", strides=[2, 1]),
            [1, 3, 9, 5],
            [1, 8, 4, 4],
            [8, 3, 3, 2],
            {"K": 8, "C": 3, "OY": 4, "OX": 4, "FY": 3, "FX": 2},
            (2, 1),
        ),
        (node("Conv", "x w"), [1, 16, 6, 6], [1, 4, 6, 6], [4, 16, 1, 1], {"K": 4, "C": 16, "OY": 6, "OX": 6}, (1, 1)),
        (node("Conv", "x w", group=5), [1, 5, 8, 8], [1, 5, 6, 6], [5, 1, 3, 3], {"G": 5, "OY": 6, "OX": 6, "FY": 3, "FX": 3}, (1, 1)),
        (
            node("Conv", "x w", group=5),
            [1, 5, 8, 8],
            [1, 10, 6, 6],
            [10, 1, 3, 3],
            {"G": 5, "K": 2, "OY": 6, "OX": 6, "FY": 3, "FX": 3},
            (1, 1),
        ),
        (
            node("Conv", "x w", group=2),
            [1, 8, 8, 8],
            [1, 6, 6, 6],
            [6, 4, 3, 3],
            {"G": 2, "K": 3, "C": 4, "OY": 6, "OX": 6, "FY": 3, "FX": 3},
            (1, 1),
        ),
        (node("MatMul", "x w"), [4, 9, 10], [4, 9, 7], [10, 7], {"K": 7, "C": 10, "OY": 6, "OX": 6}, (1, 1)),
        (node("Gemm", "x w"), [1, 10], [1, 7], [10, 7], {"K": 7, "C": 10}, (1, 1)),
    ],
)
def test_roles_of_an_operator(
    tmp_path: Path,
    operator: onnx.NodeProto,
    x: list[int],
    y: list[int],
    weights: list[int],
    expected: dict[str, int],
    strides: tuple[int, int],
) -> None:
    (layer,) = layers_of(save_ones_model(tmp_path, [operator], x, y, {"w": weights}))
    assert loops(layer) == expected
    assert layer.strides == strides
    assert layer.macs == int(np.prod(list(expected.values())))


def test_heads_are_groups(tmp_path: Path) -> None:
    (layer,) = layers_of(save_ones_model(tmp_path, [node("MatMul", "x z")], [1, 4, 16, 9], [1, 4, 16, 5], {}, [1, 4, 9, 5]))
    assert loops(layer) == {"G": 4, "K": 5, "C": 9, "OY": 4, "OX": 4}


def test_a_constant_first_factor_is_the_weights(tmp_path: Path) -> None:
    (layer,) = layers_of(save_ones_model(tmp_path, [node("MatMul", "w x")], [10, 16], [7, 16], {"w": [7, 10]}))
    assert loops(layer) == {"K": 7, "C": 10, "OY": 4, "OX": 4}


def test_a_transposed_convolution_has_a_filter_per_phase(tmp_path: Path) -> None:
    """Stride 2: the four positions of an output inside its period have filters of their own, of half the size."""
    (layer,) = layers_of(
        save_ones_model(tmp_path, [node("ConvTranspose", "x w", strides=[2, 2])], [1, 6, 5, 5], [1, 4, 12, 12], {"w": [6, 4, 4, 4]})
    )
    assert loops(layer) == {"K": 4 * 4, "C": 6, "OY": 6, "OX": 6, "FY": 2, "FX": 2}


def test_dimensions_of_any_name_and_operator() -> None:
    """An operator that the compiler has never heard of: names say nothing, maps do."""
    a, b, c = parallel("apples", "bananas", "cherries")
    (d,) = reduction("dates")
    nest = Nest({"left": Map(a, b, d), "right": Map(a, d, c)}, {"out": Map(a, b, c)})
    geometry = Geometry.bind(nest, {"left": (2, 9, 5), "right": (2, 5, 7), "out": (2, 9, 7)})
    (layer,) = from_geometry("n", geometry)
    assert loops(layer) == {"G": 2, "K": 7, "C": 5, "OY": 3, "OX": 3}


def test_groups_of_one_channel_are_no_window() -> None:
    """A grouped nest on a depthwise layer: the channel is (k // 1) * 1 + c, which looks like a window of one tap."""
    n, i, k = parallel("n", "i", "k")
    t, c = reduction("t", "c")
    nest = Nest({"x": Map(n, i + t, (k // 1) + c), "w": Map(t, c, k)}, {"y": Map(n, i, k)})
    (layer,) = from_geometry("n", Geometry.bind(nest, {"x": (1, 10, 6), "w": (3, 1, 6), "y": (1, 8, 6)}))
    assert loops(layer) == {"G": 6, "OX": 8, "FX": 3}


def test_three_sliding_axes_are_refused() -> None:
    i, j, k = parallel("i", "j", "k")
    p, q, r = reduction("p", "q", "r")
    nest = Nest({"x": Map(i + p, j + q, k + r), "w": Map(p, q, r)}, {"y": Map(i, j, k)})
    geometry = Geometry.bind(nest, {"x": (5, 5, 5), "w": (2, 2, 2), "y": (4, 4, 4)})
    with pytest.raises(UnsupportedError, match="layer volume slides along 3 axes"):
        from_geometry("volume", geometry)


def test_a_network_without_products_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no layer that multiplies and accumulates"):
        layers_of(save_ones_model(tmp_path, [node("Relu", "x")], [1, 4], [1, 4], {}))


def test_an_operator_without_a_nest_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeeployError, match="layer"):
        layers_of(save_ones_model(tmp_path, [helper.make_node("Det", ["x"], ["y"], name="layer")], [2, 4, 4], [2], {}))


def test_equal_layers_are_counted() -> None:
    layer = LayerLoops("a", (1, 2, 3, 4, 5, 1, 1))
    other = LayerLoops("b", (1, 2, 3, 4, 5, 1, 1), strides=(2, 2))
    assert distinct_layers([layer, other, layer]) == [LayerLoops("a", layer.sizes, count=2), other]


def test_a_list_of_layers_survives_its_file(tmp_path: Path) -> None:
    layers = [LayerLoops("a", (1, 2, 3, 4, 5, 1, 1), (2, 1), (1, 3), 4), LayerLoops("b", (7, 1, 1, 1, 1, 3, 3))]
    networks.save_layers(tmp_path / "l.json", layers, "test")
    assert layers_of(tmp_path / "l.json") == layers


ODD = '{"format": 1, "layers": [{"name": "odd", "count": 1, "G": 1, "K": %s, "C": 1, "OY": 1, "OX": 1, "FY": 1, "FX": 1, "strides": %s}]}'


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("{", "is not valid JSON"),
        ('{"format": 2, "layers": []}', "format is 2, not 1"),
        (ODD % ("0", "[1, 1]"), r"layers\[0\].K is 0, less than 1"),
        (ODD % ("2", "[1]"), r"layers\[0\].strides has 1 entries, fewer than 2"),
        (ODD % ("true", "[1, 1]"), r"layers\[0\].K is true, not a whole number"),
    ],
)
def test_a_bad_list_is_refused(tmp_path: Path, contents: str, message: str) -> None:
    (tmp_path / "l.json").write_text(contents)
    with pytest.raises(ModelError, match=message):
        layers_of(tmp_path / "l.json")


@pytest.mark.skipif(not MODELS.is_dir(), reason="the shared models are not beside the repository")
def test_a_quantised_network_has_the_layers_of_its_float_twin() -> None:
    quantised, twin = (layers_of(MODELS / name / "network.onnx") for name in ("ic_int8_qdq_pc", "ic_fp32"))
    assert sorted((y.sizes, y.count) for y in quantised) == sorted((y.sizes, y.count) for y in twin)
    assert sum(y.macs * y.count for y in quantised) == 12_501_632
