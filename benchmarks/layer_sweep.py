"""Layers of every shape beside what bounds them: random layers are planned one by one, the farthest from its bound comes first.

    make bench NAME='layer_sweep [--target NAME] [--engines NAMES] [--count N] [--seed N] [--gvsoc N] [KIND ...]'

A layer's bound is the longest of three: its products at the peak of its class, its bytes at the rate of the path to the engines, and
its outputs at the rate of a requantisation. Peaks and rates are those that the target's timing gives for layers without end that its
kernels are best at (``ANCHORS``), on the fastest of its engines: what a class of layers can reach, whatever runs a layer of it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import deeploy
from benchmarks.graphs import Graph
from deeploy.driver.verify import run_project
from deeploy.errors import DeeployError
from deeploy.execution.simulation.walk import walk_plan
from deeploy.options import Options
from deeploy.planning.plan import Plan
from deeploy.planning.planner.bounds import peak_products
from deeploy.planning.program import Role
from deeploy.target import Target, load

WINDOWED = ("conv", "depthwise", "grouped", "transposed", "average", "max")
KINDS = (*WINDOWED, "product", "nearest", "linear", "shuffle", "add", "softmax")
FORMS = ("qdq", "qoperator", "dialect", "float")
ALLOWED = {**dict.fromkeys(WINDOWED[:3], FORMS), "product": ("qdq", "qoperator", "float"), "add": ("qdq", "dialect", "float")}
CHANNELS = (1, 2, 3, 7, 8, 16, 24, 32, 37, 53, 64, 128)
FULL = 10_000  # cycles from which on a layer counts: below, what every call costs weighs more than what it does


@dataclass(frozen=True)
class Layer:
    """A layer: extents of the image [channels, *size], of the window, and what else its kind needs."""

    kind: str
    form: str
    channels: int
    filters: int
    size: tuple[int, ...]
    window: tuple[int, ...]
    stride: int = 1
    dilation: int = 1
    groups: int = 1

    def __str__(self) -> str:
        taps, extents = ("x".join(map(str, each)) for each in (self.window, (self.channels, *self.size)))
        steps = "".join(f" {name} {each}" for name, each in (("stride", self.stride), ("dilation", self.dilation)) if each > 1)
        groups = f" in {self.groups} groups" * (self.groups > 1)
        return f"{self.kind} {self.form} {taps}{steps} on {extents} to {self.filters}{groups}"


def draw(rng: Random, kinds: Sequence[str] = KINDS) -> Layer:
    """A random layer; every choice is drawn alike, images of one row or one dimension among them."""
    kind = rng.choice(kinds)
    is_long = rng.random() < 0.25
    size = (rng.choice((8, 64, 128)),) if is_long else (rng.choice((1, 4, 7, 16, 32, 64)), rng.choice((4, 8, 16, 33)))
    window = tuple(min(extent, rng.choice((1, 2, 3, 5, 7, 9, 11))) for extent in size)
    dilation = rng.choice((1, 1, 1, 2, 3)) if kind in WINDOWED[:3] else 1
    window = tuple(taps if (taps - 1) * dilation < extent else 1 for taps, extent in zip(window, size, strict=True))
    channels, filters, groups = rng.choice(CHANNELS), rng.choice(CHANNELS), 1
    if kind == "grouped":
        groups, channels, filters = (own := rng.choice((2, 4))), own * rng.choice((2, 3, 8, 16)), own * rng.choice((1, 4, 9, 16))
    if kind not in ("conv", "grouped", "transposed", "product"):
        groups, filters = channels if kind == "depthwise" else 1, channels
    strides, form = rng.choice((1, 1, 2)), rng.choice(ALLOWED.get(kind, ("qdq", "float")))
    return Layer(kind, form, channels, filters, size, window, strides, dilation, groups)


def model(layer: Layer) -> onnx.ModelProto:
    """The layer as a network of its own, inputs and outputs in bytes unless its form is that of floats."""
    g, batch = Graph(0), 1
    is_float, is_dialect = layer.form == "float", layer.form == "dialect"
    shapes = [(batch, layer.channels, *layer.size)] * (2 if layer.kind == "add" else 1)
    if layer.kind == "product":
        rows, depth = layer.size[0], layer.channels
        shapes = [(2, rows, depth), (2, depth, layer.filters)]
    names = [f"x{n}" for n in range(len(shapes))]
    scale, zero = g.constant(0.05), g.constant(3, np.uint8)
    wide = g.constant(0.37)
    if layer.form == "qoperator" and layer.kind == "product":
        result = g.node("QLinearMatMul", names[0], scale, zero, names[1], scale, zero, wide, zero)
    elif layer.form == "qoperator":
        w = g.constant(_weights(layer), np.int8)
        result = g.node("QLinearConv", names[0], scale, zero, w, scale, g.constant(0, np.int8), wide, zero, **_attributes(layer))
    else:
        values = names if is_float or is_dialect else [g.node("DequantizeLinear", name, scale, zero) for name in names]
        result = _operator(g, layer, values)
        if is_dialect:
            shape = [1] * len(shapes[0]) if layer.kind == "add" else [layer.filters, *[1] * len(layer.size)]
            result = g.node(
                "RequantShift", result, *(g.constant(np.full(shape, each)) for each in (37, 90)), div=2.0**12, n_levels=256.0, signed=1.0
            )
        elif not is_float:
            result = g.node("QuantizeLinear", result, wide, zero)
    kind = TensorProto.FLOAT if is_float or is_dialect else TensorProto.UINT8
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in zip(names, shapes, strict=True)]
    outputs = [helper.make_tensor_value_info(result, kind, None)]
    graph = helper.make_graph(g.nodes, layer.kind, inputs, outputs, g.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def _weights(layer: Layer) -> np.ndarray:
    first, second = (layer.channels, layer.filters) if layer.kind == "transposed" else (layer.filters, layer.channels // layer.groups)
    return np.random.default_rng(1).integers(-127, 127, (first, second, *layer.window))


def _attributes(layer: Layer) -> dict[str, Any]:
    pads = [(taps - 1) * layer.dilation // 2 for taps in layer.window]
    rank = len(layer.window)
    found: dict[str, Any] = {"strides": [layer.stride] * rank, "pads": [0] * 2 * rank if layer.kind == "transposed" else pads * 2}
    if layer.kind in WINDOWED[:4]:
        return found | {"dilations": [layer.dilation] * rank, "group": layer.groups}
    return found | {"kernel_shape": list(layer.window)}


def _operator(g: Graph, layer: Layer, values: Sequence[str]) -> str:
    x = values[0]
    if layer.kind in WINDOWED[:4]:
        w = g.constant(_weights(layer), np.float32 if layer.form in ("float", "dialect") else np.int8)
        if layer.form == "qdq":
            w = g.node("DequantizeLinear", w, g.constant(0.01), g.constant(0, np.int8))
        return g.node("ConvTranspose" if layer.kind == "transposed" else "Conv", x, w, **_attributes(layer))
    if layer.kind in WINDOWED:
        return g.node({"average": "AveragePool", "max": "MaxPool"}[layer.kind], x, **_attributes(layer))
    if layer.kind in ("nearest", "linear"):
        scales = g.constant([1, 1, *[2] * len(layer.size)])
        return g.node("Resize", x, "", scales, mode=layer.kind, coordinate_transformation_mode="asymmetric")
    if layer.kind == "shuffle":
        groups = next((n for n in (2, 3, 5, 7) if layer.channels % n == 0), 1)
        apart = g.node("Reshape", x, g.constant([1, groups, layer.channels // groups, *layer.size], np.int64))
        turned = g.node("Transpose", apart, perm=[0, 2, 1, *range(3, 3 + len(layer.size))])
        return g.node("Reshape", turned, g.constant([1, layer.channels, *layer.size], np.int64))
    return g.node({"product": "MatMul", "add": "Add", "softmax": "Softmax"}[layer.kind], *values)


ANCHORS = {  # of classes of layers: those that kernels are best at
    "dense": Layer("conv", "qdq", 64, 64, (16, 16), (3, 3)),
    "depthwise": Layer("depthwise", "qdq", 64, 64, (16, 16), (3, 3), groups=64),
    "output": Layer("add", "dialect", 64, 64, (32, 8), ()),
}
PEAKS = dict.fromkeys(("conv", "grouped", "transposed", "product"), "dense") | dict.fromkeys(("depthwise", "average"), "depthwise")
MOVED = ("nearest", "shuffle")  # nothing is computed


def planned(layer: Layer, target: Target, options: Options) -> Plan:
    """The plan of a layer alone.

    Raises:
        DeeployError: the target cannot run it.
    """
    with tempfile.TemporaryDirectory(prefix="deeploy-sweep-") as scratch:
        file = Path(scratch) / "layer.onnx"
        onnx.save(model(layer), file)
        return compiled(layer, file, target, options).plan


def compiled(layer: Layer, file: Path, target: Target, options: Options) -> deeploy.Compiled:
    """The layer in a file; variables of the dialect are bytes."""
    types = {f"x{n}": "int8" for n in range(1 + (layer.kind == "add"))} if layer.form == "dialect" else {}
    return deeploy.compile(file, target, **options.given(), input_types=types, certify=False)


@dataclass(frozen=True)
class Swept:
    """What is found of a layer: predicted cycles, its bound, and the kernels that run it."""

    layer: Layer
    cycles: float
    bound: float
    kernels: tuple[str, ...]

    @property
    def ratio(self) -> float:
        return self.cycles / self.bound


class Sweep:
    """Layers planned alone for a target, and what bounds them there."""

    def __init__(self, target: Target, options: Options) -> None:
        self.target, self.options = target, options
        self._anchors: dict[tuple[str, bool], float] = {}

    def anchor(self, name: str, is_float: bool) -> float:
        """MAC in a cycle of a class of layers, or cycles of an output, in bytes or floats."""
        if (name, is_float) not in self._anchors:
            plan = planned(replace(ANCHORS[name], form=ANCHORS[name].form * (not is_float) or "float"), self.target, self.options)
            outputs = sum(buffer.bytes // buffer.dtype.bytes for buffer in plan.program.buffers.values() if buffer.role is Role.OUTPUT)
            self._anchors[name, is_float] = (
                walk_plan(plan).calls[-1].compute / outputs if name == "output" else max(peak_products(plan).values())
            )
        return self._anchors[name, is_float]

    def bound(self, layer: Layer, plan: Plan) -> float:
        """Cycles that no schedule of a layer's products, transfers or outputs takes less than."""
        assert plan.target.timing is not None
        is_float, buffers = layer.form == "float", plan.program.buffers.values()
        path = plan.target.timing.paths[plan.target.outward(plan.target.engines[0].memory)[0].name]
        moved = sum(b.bytes for b in buffers if b.role in (Role.INPUT, Role.OUTPUT, Role.CONSTANT))
        outputs = sum(b.bytes // b.dtype.bytes for b in buffers if b.role is Role.OUTPUT) * (layer.kind not in MOVED)
        macs = sum(call.geometry.macs() for call in plan.program.calls) * (layer.kind in PEAKS)
        peak = self.anchor(PEAKS.get(layer.kind, "dense"), is_float)
        return max(macs / peak, moved * max(path.byte), outputs * self.anchor("output", is_float))

    def layers(self, count: int, seed: int, kinds: Sequence[str] = KINDS) -> Iterator[Swept]:
        """So many random layers; those that the target cannot run are left out."""
        rng = Random(seed)
        for layer in [draw(rng, kinds) for _ in range(count)]:
            try:
                plan = planned(layer, self.target, self.options)
            except DeeployError as error:
                print(f"{layer}: {error}", file=sys.stderr)
                continue
            yield Swept(layer, walk_plan(plan).cycles, self.bound(layer, plan), tuple(call.kernel.name for call in plan.program.calls))


def simulated(layer: Layer, target: Target, options: Options) -> int:
    """Cycles of a layer on GVSoC."""
    with tempfile.TemporaryDirectory(prefix="deeploy-sweep-") as scratch:
        file, inputs = Path(scratch) / "layer.onnx", Path(scratch) / "inputs.npz"
        onnx.save(model(layer), file)
        rng, kind = np.random.default_rng(2), np.float32 if layer.form in ("float", "dialect") else np.uint8
        shapes = [[d.dim_value for d in value.type.tensor_type.shape.dim] for value in model(layer).graph.input]
        np.savez(inputs, *(rng.integers(0, 127, shape).astype(kind) for shape in shapes))
        compiled(layer, file, target, options).write(Path(scratch) / "project")
        return run_project(Path(scratch) / "project", inputs, on="gvsoc").cycles[0]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--target", default="siracusa")
    parser.add_argument("--engines")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gvsoc", type=int, default=0, help="how many of them run on GVSoC, too")
    chosen = parser.parse_args(arguments)
    options = Options(engines=tuple(chosen.engines.split(",")) if chosen.engines else None)
    target = load(chosen.target)
    found = sorted(Sweep(target, options).layers(chosen.count, chosen.seed, chosen.kinds or KINDS), key=lambda one: -one.ratio)
    measured = Random(chosen.seed).sample(found, min(chosen.gvsoc, len(found)))
    print(f"{'cycles':>10}{'bound':>10}{'times':>8}{'GVSoC':>10}  layer")
    for one in found:
        cycles = str(simulated(one.layer, target, options)) if one in measured else ""
        print(f"{one.cycles:>10.0f}{one.bound:>10.0f}{one.ratio:>8.1f}{cycles:>10}  {one.layer}: {', '.join(one.kernels)}", flush=True)
    large = [one.ratio for one in found if one.cycles > FULL]
    if large:
        shares = [sum(ratio <= most for ratio in large) / len(large) for most in (2, 4)]
        print(f"of {len(large)} layers over {FULL} cycles, {shares[0]:.0%} take at most twice their bound, {shares[1]:.0%} four times")
    return 0
