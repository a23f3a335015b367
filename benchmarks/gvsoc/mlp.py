"""The MLP of a vision transformer on Siracusa, its two products as a chain and one after the other (docs/fusion.md): cycles in GVSoC.

    make bench NAME='gvsoc/mlp [--no-gvsoc] [PART OF A NAME ...]'

Two int8 products with a GELU in between, 197 rows, seeded weights. Weights and the layer between the products are beyond L2: what L2 may
hold is less than that layer, and constants lie in L3 (or in N-EUREKA's own memory, where it reads them in place). The published figures are
those of Fused-Tiled Layers (arXiv 2504.03676). Outputs are compared with the interpreter's. Exit status 1 when something differs.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import deeploy
from benchmarks.gvsoc.networks import measure
from deeploy.options import Options
from deeploy.planning import cost
from deeploy.planning.plan import Plan
from deeploy.planning.planner.bounds import plan_bounds

ROWS = 197
ENGINES = {"cores": ("cluster",), "both engines": ("cluster", "npu")}
PUBLISHED = {"cores": "-28.8 %", "both engines": "-60.1 %"}
COLUMNS = "| {} | {} | {} | {} | {} | {} | {} | {} | {} |"


@dataclass(frozen=True)
class Size:
    """Columns of the MLP and of its hidden layer, and bytes of the memories: L1 holds neither, L2 not the hidden layer."""

    width: int
    hidden: int
    l1: int
    l2: int


# N-EUREKA's memory holds 4 MiB: all weights of 640 columns, and one of both products of 768 columns; the other one's come from L3.
SIZES = {
    "ViT-Tiny": Size(192, 768, 128_000, 100_000),
    "ViT-Base-like": Size(640, 2560, 248_000, 420_000),
    "ViT-Base": Size(768, 3072, 248_000, 560_000),
}
CHOICES = {"none": Options(fusion=False), "fewer cycles": Options(), "fewer bytes": Options(objective="traffic")}


def mlp(size: Size) -> onnx.ModelProto:
    """Two products, with the GELU of the first one in between, and every tensor quantised."""
    random, nodes, constants = np.random.default_rng(20), list[onnx.NodeProto](), list[onnx.TensorProto]()

    def constant(value: object, dtype: type = np.float32) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value, dtype), f"c{len(constants)}"))
        return constants[-1].name

    def node(op: str, *inputs: str, axis: int | None = None, output: str = "") -> str:
        nodes.append(helper.make_node(op, inputs, [output or f"t{len(nodes)}"], **({} if axis is None else {"axis": axis})))
        return nodes[-1].output[0]

    def read(x: str) -> str:
        return node("DequantizeLinear", x, constant(0.05), constant(-128, np.int8))

    def stored(x: str, output: str = "") -> str:
        return node("QuantizeLinear", x, constant(0.05), constant(-128, np.int8), output=output)

    def product(x: str, depth: int, columns: int) -> str:
        scale = np.full(columns, 0.01 / depth**0.5)
        weights = constant(random.integers(-127, 128, (depth, columns)), np.int8)
        bias = constant(random.integers(-1000, 1000, columns), np.int32)
        w = node("DequantizeLinear", weights, constant(scale), constant(np.zeros(columns), np.int8), axis=1)
        b = node("DequantizeLinear", bias, constant(0.05 * scale), constant(np.zeros(columns), np.int32), axis=0)
        return node("Add", node("MatMul", read(x), w), b)

    def gelu(x: str) -> str:
        erf = node("Erf", node("Div", read(x), constant(2**0.5)))
        return node("Mul", node("Mul", read(x), node("Add", erf, constant(1.0))), constant(0.5))

    hidden = stored(gelu(stored(product("x", size.width, size.hidden))))
    stored(product(hidden, size.hidden, size.width), "y")
    x, y = (helper.make_tensor_value_info(name, TensorProto.INT8, [ROWS, size.width]) for name in "xy")
    graph = helper.make_graph(nodes, "mlp", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def requantised(plan: Plan) -> int:
    """Cycles at least in which cores make outputs of the sums that an accelerator leaves."""
    found = 0.0
    for call in plan.program.calls:
        second = cost.post_processing_cost(call, plan.target, plan.machine.cores)
        if second is not None:
            found += cost.kernel_rate(call.parts[-1], plan.target).output * math.prod(call.node.outputs[0].shape) / second.cores
    return round(found)


def show(name: str, engines: str, has_gvsoc: bool) -> bool:
    """The rows of a network; whether all outputs are right."""
    size, is_right, cycles = SIZES[name], True, dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="deeploy-mlp-") as scratch:
        folder = Path(scratch)
        onnx.save(mlp(size), folder / "network.onnx")
        np.savez(folder / "inputs.npz", x=np.random.default_rng(0).integers(-128, 128, (ROWS, size.width)).astype(np.int8))
        paths = folder / "network.onnx", folder / "inputs.npz"
        capacities = {"l1": size.l1, "l2": size.l2}
        for kind, choice in CHOICES.items():
            options = replace(choice, memory=capacities, engines=ENGINES[engines], default_memory="L3")
            compiled = deeploy.compile(paths[0], "siracusa", inputs=paths[1], **options.given())
            run = compiled.network.predicted
            assert run is not None, "siracusa has a timing"
            measured = "not measured"
            cycles[kind] = run.cycles
            if has_gvsoc:
                result, _ = measure(name, *paths, None, options)
                measured, cycles[kind], is_right = str(result.measured), result.measured, is_right and result.is_right
            what, bound = max(
                plan_bounds(compiled.plan).binding, ("requantisation by cores", requantised(compiled.plan)), key=lambda one: one[1]
            )
            ratio = f"{cycles[kind] / bound:.2f}"
            moved = [run.traffic[path].bytes for path in ("L2_L1", "L3_L2")]
            change = f"{100 * (cycles[kind] / cycles['none'] - 1):+.1f} %, published {PUBLISHED[engines]}" if kind != "none" else ""
            kind += "" if compiled.plan.fused_groups or kind == "none" else " (no chain)"
            row = f"{name}, {engines}", kind, *moved, round(run.cycles), measured
            print(COLUMNS.format(*row, f"{bound} ({what})", ratio, change), flush=True)
    return is_right


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--no-gvsoc", action="store_true", help="Predictions only.")
    given = parser.parse_args(arguments)
    head = "MLP", "chains", "bytes between L2 and L1", "L3 and L2", "cycles predicted", "measured", "bound", "measured / bound", "change"
    print(COLUMNS.format(*head))
    print("|---" * len(head) + "|")
    every = [(name, engines) for name in SIZES for engines in ENGINES]
    wanted = [one for one in every if not given.names or any(word in ", ".join(one) for word in given.names)]
    return 0 if all([show(*one, not given.no_gvsoc) for one in wanted]) else 1
