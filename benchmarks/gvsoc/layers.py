"""Kinds of layers in the forms in which networks bring them, on GVSoC: cycles, and how far they are from what the machine could do.

    make bench NAME='gvsoc/layers [--write] [PART OF A NAME ...]'

Every layer is a network of its own, in the integer dialect, as QDQ and as QOperator, on the cores alone and on all engines. Outputs
are compared with the interpreter, bit for bit. ``--write`` records what was measured in layers.json, where other layers stay as they
were, and writes benchmarks/gvsoc/layers.md from it. Exit status 1 when something differs or cannot be simulated.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.common import Page, record
from benchmarks.graphs import Graph
from benchmarks.gvsoc.networks import measure
from deeploy.errors import DeeployError
from deeploy.options import Options
from targets.siracusa.npu import EngineLayer as Job
from targets.siracusa.npu import Mode
from tests.targets.siracusa import neureka_model

ENGINES = ("cluster", "all")
CORES, NEUREKA = 21.3, 1150.0  # multiply-accumulates per cycle: eight cores of this instruction set, and N-EUREKA
COLUMNS = "{:<34}{:<11}{:<9}{:<30}{:>10}{:>10}{:>10}{:>8}"
BITS = 14  # of the divisor of requantisations in the dialect


class Layer(Graph):
    """A network of one layer, whose inputs and weights are drawn."""

    def __init__(self) -> None:
        super().__init__(5)
        self.arrays: dict[str, np.ndarray] = {}

    def integers(self, low: int, high: int, *shape: int) -> np.ndarray:
        return self.rng.integers(low, high, shape, endpoint=True)

    def input(self, name: str, *shape: int) -> str:
        self.arrays[name] = self.integers(-128, 127, *shape)
        return name

    def scale(self, value: Any, zero: int = 0, kind: type = np.int8) -> tuple[str, str]:
        """A scale, or one per channel, with its zero points."""
        return self.constant(value), self.constant(np.full(np.shape(value), zero), kind)

    def requantised(self, x: str, size: float, shape: tuple[int, ...] = (), is_signed: bool = True) -> str:
        """In the dialect: sums of standard deviation ``size`` to 8 bits."""
        mul = np.rint(self.rng.uniform(0.7, 1.3, shape) * 40 / size * 2**BITS)
        numbers = {"div": np.float32(2**BITS), "n_levels_out": np.array([256], np.float32), "signed": np.array([is_signed], np.float32)}
        attrs = {key: numpy_helper.from_array(np.asarray(each)) for key, each in numbers.items()}
        return self.node("RequantShift", x, self.constant(mul), self.constant(0 * mul), **attrs)

    def write(self, folder: Path, y: str, shape: Sequence[int], form: str) -> None:
        """``network.onnx`` and ``inputs.npz``; the dialect has its integers in float32."""
        kind = TensorProto.FLOAT if form == "dialect" else TensorProto.INT8
        sources = [helper.make_tensor_value_info(name, kind, array.shape) for name, array in self.arrays.items()]
        graph = helper.make_graph(self.nodes, "layer", sources, [helper.make_tensor_value_info(y, kind, shape)], self.constants)
        sets = [helper.make_opsetid("", 13 if form == "dialect" else 17), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), folder / "network.onnx")
        arrays = self.arrays if form == "dialect" else {name: array.astype(np.int8) for name, array in self.arrays.items()}
        np.savez(folder / "inputs.npz", **arrays)


Make = Callable[[Path, str], bool]  # writes a form of the layer; False: the form has no such layer
X, Y = (0.04, -5), (0.05, 3)  # scale and zero point of inputs and of outputs


def _convolution(size: tuple[int, int], channels: int, filters: int, taps: int, stride: int = 1, group: int = 1) -> Make:
    def make(folder: Path, form: str) -> bool:
        g, pad = Layer(), taps // 2
        x, w = g.input("x", 1, channels, *size), g.integers(-127, 127, filters, channels // group, taps, taps)
        depth = channels // group * taps * taps
        attrs = {"kernel_shape": [taps] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "dilations": [1, 1], "group": group}
        scales = g.rng.uniform(0.7, 1.3, filters) * 1.0 / (74 * depth**0.5)
        bias = g.integers(-500, 500, filters)
        if form == "dialect":
            y = g.requantised(g.node("Conv", x, g.constant(w), **attrs), 74 * 74 * depth**0.5, (filters, 1, 1))
        elif form == "QDQ":
            of_w, of_b = g.scale(scales), g.scale(scales * X[0], kind=np.int32)
            weights = g.node("DequantizeLinear", g.constant(w, np.int8), *of_w, axis=0)
            biases = g.node("DequantizeLinear", g.constant(bias, np.int32), *of_b, axis=0)
            y = g.node("Conv", g.node("DequantizeLinear", x, *g.scale(*X)), weights, biases, **attrs)
            y = g.node("QuantizeLinear", y, *g.scale(*Y))
        else:
            operands = (x, *g.scale(*X), g.constant(w, np.int8), *g.scale(scales), *g.scale(*Y), g.constant(bias, np.int32))
            y = g.node("QLinearConv", *operands, **attrs)
        rows, columns = ((n + 2 * pad - taps) // stride + 1 for n in size)
        g.write(folder, y, (1, filters, rows, columns), form)
        return True

    return make


def _linear(rows: int, depth: int, columns: int) -> Make:
    def make(folder: Path, form: str) -> bool:
        g = Layer()
        x, w = g.input("x", rows, depth), g.integers(-127, 127, depth, columns)
        scale = 1.0 / (74 * depth**0.5)
        if form == "dialect":
            y = g.requantised(g.node("MatMul", x, g.constant(w)), 74 * 74 * depth**0.5)
        elif form == "QDQ":
            weights = g.node("DequantizeLinear", g.constant(w, np.int8), *g.scale(scale))
            y = g.node("MatMul", g.node("DequantizeLinear", x, *g.scale(*X)), weights)
            y = g.node("QuantizeLinear", y, *g.scale(*Y))
        else:
            y = g.node("QLinearMatMul", x, *g.scale(*X), g.constant(w, np.int8), *g.scale(scale), *g.scale(*Y))
        g.write(folder, y, (rows, columns), form)
        return True

    return make


def _attention(heads: int, rows: int, depth: int, columns: int, is_transposed: bool) -> Make:
    """A product of two variables; zero points of both, but in the dialect, which has none."""

    def make(folder: Path, form: str) -> bool:
        g = Layer()
        a, b = g.input("a", 1, heads, rows, depth), g.input("b", 1, heads, *((columns, depth) if is_transposed else (depth, columns)))
        other, turn = (0.04 / depth**0.5, 7), {"perm": [0, 1, 3, 2]}
        if form == "QDQ":
            a, b = g.node("DequantizeLinear", a, *g.scale(*X)), g.node("DequantizeLinear", b, *g.scale(*other))
        if is_transposed:
            b = g.node("Transpose", b, **turn)
        if form == "dialect":
            y = g.requantised(g.node("MatMul", a, b), 74 * 74 * depth**0.5)
        elif form == "QDQ":
            y = g.node("QuantizeLinear", g.node("MatMul", a, b), *g.scale(*Y))
        else:
            y = g.node("QLinearMatMul", a, *g.scale(*X), b, *g.scale(*other), *g.scale(*Y))
        g.write(folder, y, (1, heads, rows, columns), form)
        return True

    return make


def _softmax(*shape: int) -> Make:
    def make(folder: Path, form: str) -> bool:
        g = Layer()
        x = g.input("x", *shape)
        share = g.scale(1 / 256, -128)
        if form == "dialect":
            y = g.node("ITAMax", x, n_levels=256)
        elif form == "QDQ":
            y = g.node("QuantizeLinear", g.node("Softmax", g.node("DequantizeLinear", x, *g.scale(*X)), axis=-1), *share)
        else:
            y = g.node("QLinearSoftmax", x, *g.scale(*X), *share, axis=-1, opset=17)
            g.nodes[-1].domain = "com.microsoft"
        g.write(folder, y, shape, form)
        return True

    return make


def _norm(*shape: int) -> Make:
    def make(folder: Path, form: str) -> bool:
        g, width = Layer(), shape[-1]
        x = g.input("x", *shape)
        if form == "dialect":
            weight, bias = (g.constant(g.integers(*ends, width)) for ends in ((600_000, 900_000), (-60_000, 60_000)))
            y = g.node("iLayerNorm", x, weight, bias, D=numpy_helper.from_array(np.array([2**BITS], np.float32)), n_levels=256)
        elif form == "QDQ":
            weight, bias = g.constant(g.rng.uniform(0.8, 1.2, width)), g.constant(g.rng.normal(0, 0.1, width))
            y = g.node("LayerNormalization", g.node("DequantizeLinear", x, *g.scale(*X)), weight, bias, axis=-1, epsilon=1e-5)
            y = g.node("QuantizeLinear", y, *g.scale(0.03, 3))
        else:
            return False
        g.write(folder, y, shape, form)
        return True

    return make


KINDS: Mapping[str, Make] = {
    "pointwise 25x5x64 to 64": _convolution((25, 5), 64, 64, 1),
    "pointwise 12x12x64 to 64": _convolution((12, 12), 64, 64, 1),
    "depthwise 3x3 25x5x64": _convolution((25, 5), 64, 64, 3, group=64),
    "depthwise 3x3 12x12x64": _convolution((12, 12), 64, 64, 3, group=64),
    "depthwise 3x3 24x24x64, stride 2": _convolution((24, 24), 64, 64, 3, 2, 64),
    "3x3 32x32x16 to 16": _convolution((32, 32), 16, 16, 3),
    "3x3 4x4x64 to 64": _convolution((4, 4), 64, 64, 3),
    "3x3 32x32x1 to 16": _convolution((32, 32), 1, 16, 3),
    "3x3 32x32x3 to 16": _convolution((32, 32), 3, 16, 3),
    "3x3 96x96x3 to 8, stride 2": _convolution((96, 96), 3, 8, 3, 2),
    "fully connected 640 to 128": _linear(1, 640, 128),
    "fully connected 128 to 640": _linear(1, 128, 640),
    "64 rows of 128 to 128": _linear(64, 128, 128),
    "attention scores, 4 of 64x32x64": _attention(4, 64, 32, 64, True),
    "attention sums, 4 of 64x64x32": _attention(4, 64, 64, 32, False),
    "softmax of 256 rows of 64": _softmax(1, 4, 64, 64),
    "layer norm of 64 rows of 128": _norm(1, 64, 128),
}
FORMS = ("dialect", "QDQ", "QOperator")


@dataclass(frozen=True)
class Row:
    """What was measured of a layer: its kernels, multiply-accumulates, outputs, cycles, and the most MAC a cycle that could be done."""

    kind: str
    form: str
    engines: str
    kernel: str
    macs: int
    outputs: int
    cycles: int
    bound: float | None = field(default=None)

    @property
    def rate(self) -> float:
        """Multiply-accumulates per cycle."""
        return self.macs / self.cycles

    @property
    def share(self) -> float | None:
        """Of the bound."""
        return self.rate / self.bound if self.bound else None


def bound(kernel: str, extents: Mapping[str, int], macs: int) -> float | None:
    """Multiply-accumulates per cycle that a kernel's unit can do; of N-EUREKA's depthwise convolutions those of their passes."""
    if not macs:
        return None
    if not kernel.startswith("neureka"):
        return CORES
    if "depthwise" not in kernel:
        return NEUREKA
    times = 2 if "subsampled" in kernel or "all" in kernel else 1
    y_type = "s32" if "sums" in kernel else "s8"
    job = Job(Mode.DEPTHWISE, "s8", y_type, scale_bits=16, shift=None if "sums" in kernel else 12, in_weight_memory="nms" in kernel)
    return macs / neureka_model.busy(job, times * extents["oh"], times * extents["ow"], extents["k"], extents["k"])


def rows(words: Sequence[str]) -> tuple[list[Row], bool]:
    """Every layer whose name has one of the words, in all forms on all engines; and whether all are right."""
    found, is_right = [], True
    for kind, make in KINDS.items():
        if words and not any(word in kind for word in words):
            continue
        for form in FORMS:
            with tempfile.TemporaryDirectory(prefix="deeploy-layers-") as scratch:
                folder = Path(scratch)
                if not make(folder, form):
                    continue
                for engines in ENGINES:
                    try:
                        row, same = _measured(kind, form, engines, folder)
                    except DeeployError as error:
                        print(f"{kind}, {form}, {engines}: {error}", file=sys.stderr)
                        is_right = False
                        continue
                    is_right &= same
                    found.append(row)
                    print(_line(row) + ("" if same else "  OUTPUTS DIFFER"), flush=True)
    return found, is_right


def _measured(kind: str, form: str, engines: str, folder: Path) -> tuple[Row, bool]:
    options = Options(engines=None if engines == "all" else (engines,))
    result, calls = measure(kind, folder / "network.onnx", folder / "inputs.npz", None, options)
    counted = [call for call in calls if call.geometry.macs()] or calls
    cycles = {layer.name: layer.measured for layer in result.layers}
    names = " + ".join(dict.fromkeys(call.kernel.name for call in counted))
    largest = max(calls, key=lambda call: call.geometry.macs())
    most = bound(largest.kernel.name, largest.geometry.extents, result.macs)
    outputs = int(np.prod(calls[-1].node.outputs[0].shape))
    return Row(kind, form, engines, names, result.macs, outputs, sum(cycles[call.name] for call in counted), most), result.is_right


def _line(row: Row) -> str:
    share = "" if row.share is None else f"{row.share:.0%}"
    each = f"{row.rate:.2f}" if row.macs else ""
    limit = "" if row.bound is None else f"{row.bound:.1f}"
    return COLUMNS.format(row.kind[:33], row.form, row.engines, row.kernel[:29], row.cycles, each, limit, share)


# ---- the page


def page(recorded: Mapping[str, Any]) -> str:
    """The documentation's page of what was recorded."""
    tools = [name for name in ("gvsoc", "riscv64-unknown-elf-gcc") if name in recorded["versions"]]
    said = "; ".join([recorded["machine"], *(f"{name} {recorded['versions'][name]}" for name in tools)])
    lines = [
        "# Cycles of kinds of layers on Siracusa",
        "",
        "Written by `make bench NAME='gvsoc/layers --write'`; not edited by hand.",
        "",
        "Every layer is a network of its own; copies that turn images at its ends are left out. Cycles are those of the first inference "
        "after the start on GVSoC, with cold instruction caches, transfers that the layer waits for, and some 180 cycles that measuring "
        "takes. All outputs equal the interpreter's, bit for bit. The dialect has no zero points in attention; QOperator no layer norm.",
        "",
        f"*Share* is that of what the unit could do: {CORES} multiply-accumulates (MAC) a cycle by the eight cores' instruction set, "
        f"{NEUREKA:.0f} by N-EUREKA; of its depthwise convolutions, what the passes of a job take, when nothing else takes time.",
        "",
        f"Measured with {said}.",
        "",
        "| layer | form | engines | kernel | cycles | MAC/cycle | of | share |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in recorded["results"]["rows"]:
        row = Row(**each)
        rate, limit, share = ("", "", "") if row.bound is None else (f"{row.rate:.2f}", f"{row.bound:.1f}", f"{row.share:.0%}")
        cycles = f"{row.cycles:,}".replace(",", " ")
        lines.append(f"| {row.kind} | {row.form} | {row.engines} | `{row.kernel}` | {cycles} | {rate} | {limit} | {share} |")
    return "\n".join([*lines, ""])


PAGE = Page("gvsoc/layers", page)


def main(arguments: Sequence[str]) -> int:
    words = [word for word in arguments if not word.startswith("--")]
    print(COLUMNS.format("layer", "form", "engines", "kernel", "cycles", "MAC/cycle", "of", "share"))
    found, is_right = rows(words)
    record(rows=[asdict(row) for row in found])
    if "--write" in arguments and is_right:
        kept = PAGE.read()["rows"] if words else []
        every = {kind: [asdict(row) for row in found if row.kind == kind] or [row for row in kept if row["kind"] == kind] for kind in KINDS}
        PAGE.write({"rows": [row for some in every.values() for row in some]})
    return int(not is_right)
