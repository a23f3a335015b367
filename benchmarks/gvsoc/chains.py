"""Siracusa with and without chains (docs/fusion.md): bytes between L2 and L1, and cycles, predicted and measured in GVSoC.

    make bench NAME='gvsoc/chains [--l1 BYTES] [--no-gvsoc] [--choices NAME,NAME] [PART OF A NAME ...]'

Every network is compiled four times: ``off`` has neither chains nor anything else that overlaps (``--no-fusion --buffering single``), then
without chains, with those that take fewer cycles, and with those that move fewer bytes. ``--choices`` names those that are wanted.
MobileNets have seeded weights. ``pooled`` is a convolution that N-EUREKA requantises itself, behind a copy of the caller's image, and a
pool: here a chain takes fewer cycles. ``hidden`` is the share of what N-EUREKA or the cores do, whichever is less, that is hidden behind
the other; ``bound`` is what either does, whichever is more, so that no schedule of these tiles is faster. ``of off`` compares cycles with
those of ``off``, measured ones where they are measured. Outputs are compared with golden ones, or with the interpreter's. Exit status 1
when something differs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import deeploy
from benchmarks import arena
from benchmarks.gvsoc.networks import NETWORKS, files, measure
from deeploy.options import Options

NAMES = ("kws_int8_qdq_pc", "ic_int8_qdq_pc", "ad_int8_qdq_pc", "vww_int8_qdq")
IMAGES = ("mobilenetv2_0.35_96", "mobilenetv2_0.35_160")
POOLED = "pooled"
OFF = "off"
CHOICES = {
    OFF: Options(fusion=False, buffering="single"),
    "none": Options(fusion=False),
    "fewer cycles": Options(),
    "fewer bytes": Options(objective="traffic"),
}
HEAD = ("network", "chains", "layers in chains", "bytes", "cycles predicted", "bound", "hidden", "measured", "of off", "CPU seconds")


def model_of(name: str, folder: Path) -> tuple[Path, Path, Path | None]:
    """A model, one sample of inputs, and the golden outputs if there are any."""
    if name not in (*IMAGES, POOLED):
        return files(next(network for network in NETWORKS if network.name == name), folder)
    model = pooled() if name == POOLED else arena.NETWORKS[name]()
    onnx.save(model, folder / "network.onnx")
    given = model.graph.input[0]
    shape = [size.dim_value for size in given.type.tensor_type.shape.dim]
    np.savez(folder / "inputs.npz", **{given.name: np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)})
    return folder / "network.onnx", folder / "inputs.npz", None


def pooled(channels: int = 32, size: int = 64) -> onnx.ModelProto:
    """A 3x3 convolution of an int8 image with its channels first, and a 3x3 pool of stride 1."""
    constants = {
        "scale": np.array(0.05, np.float32),
        "zero": np.array(-128, np.int8),
        "w": np.random.default_rng(20).integers(-127, 128, (channels, channels, 3, 3)).astype(np.int8),
        "w_scale": np.full(channels, 0.01 / (9 * channels) ** 0.5, np.float32),
        "w_zero": np.zeros(channels, np.int8),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["x_float"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["w_float"], axis=0),
        helper.make_node("Conv", ["x_float", "w_float"], ["sums"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["sums"], ["positive"]),
        helper.make_node("QuantizeLinear", ["positive", "scale", "zero"], ["conv"]),
        helper.make_node("DequantizeLinear", ["conv", "scale", "zero"], ["conv_float"]),
        helper.make_node("MaxPool", ["conv_float"], ["pool"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("QuantizeLinear", ["pool", "scale", "zero"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.INT8, [1, channels, size, size]) for name in "xy")
    graph = helper.make_graph(nodes, POOLED, [x], [y], [numpy_helper.from_array(array, name) for name, array in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def show(name: str, capacities: dict[str, int], has_gvsoc: bool, choices: Sequence[str]) -> bool:
    """The rows of a network; whether all outputs are right."""
    is_right, off = True, None
    with tempfile.TemporaryDirectory(prefix="deeploy-chains-") as scratch:
        paths = model_of(name, Path(scratch))
        for kind in choices:
            options, begin = replace(CHOICES[kind], memory=capacities), time.process_time()
            form: Literal["exact", "engine"] = "engine" if name == POOLED else "exact"
            compiled = deeploy.compile(paths[0], "siracusa", inputs=paths[1], **options.given(), requantise=form)
            seconds, run = time.process_time() - begin, compiled.network.predicted
            assert run is not None, "siracusa has a timing"
            cycles, measured = run.cycles, "not measured"
            if has_gvsoc:
                result, _ = measure(name, *paths, options, requantise=form)
                cycles, measured, is_right = result.measured, str(result.measured), is_right and result.is_right
            off = cycles if kind == OFF else off
            less = "" if off is None or kind == OFF else f"{100 * (cycles / off - 1):+.1f} %"
            chained = sum(len(chain.members) for chain in compiled.plan.fused_groups)
            hidden = "" if run.engines.hidden is None else f"{100 * run.engines.hidden:.1f} %"
            bound = round(max(run.engines.accelerators, run.engines.cores))
            moved = run.traffic["L2_L1"].bytes
            row(name, kind, chained, moved, round(run.cycles), bound, hidden, measured, less, f"{seconds:.1f}")
    return is_right


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--l1", type=int, help="Bytes of the arena of L1.")
    parser.add_argument("--no-gvsoc", action="store_true", help="Predictions only.")
    parser.add_argument("--choices", default=",".join(CHOICES), help=f"Of {', '.join(CHOICES)}; all of them by default.")
    given = parser.parse_args(arguments)
    choices = given.choices.split(",")
    if not set(choices) <= set(CHOICES):
        parser.error(f"choices are {', '.join(CHOICES)}")
    row(*HEAD)
    print("|---" * len(HEAD) + "|")
    wanted = [name for name in (*IMAGES, POOLED, *NAMES) if not given.names or any(word in name for word in given.names)]
    capacities = {} if given.l1 is None else {"l1": given.l1}
    return 0 if all([show(name, capacities, not given.no_gvsoc, choices) for name in wanted]) else 1
