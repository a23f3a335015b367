"""Siracusa with and without chains (docs/chains.md): bytes between L2 and L1, and cycles, predicted and measured in GVSoC.

    python benchmarks/gvsoc/chains.py [--l1 BYTES] [--no-gvsoc] [PART OF A NAME ...]

Every network is compiled three times: without chains, with those that take fewer cycles, and with those that move fewer bytes. MobileNets
have seeded weights. Outputs are compared with golden ones, or with the interpreter's. Exit status 1 when something differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2]))

import arena
import numpy as np
import onnx
from networks import NETWORKS, files, measure

import deeploy
from deeploy.midend.machine import Options
from kernels import versions

NAMES = ("kws_int8_qdq_pc", "ic_int8_qdq_pc", "ad_int8_qdq_pc", "vww_int8_qdq")
IMAGES = ("mobilenetv2_0.35_96", "mobilenetv2_0.35_160")
CHOICES = {"none": Options(chains=False), "fewer cycles": Options(), "fewer bytes": Options(objective="traffic")}
COLUMNS = "| {} | {} | {} | {} | {} | {} | {} |"


def model_of(name: str, folder: Path) -> tuple[Path, Path, Path | None]:
    """A model, one sample of inputs, and the golden outputs if there are any."""
    if name not in IMAGES:
        return files(next(network for network in NETWORKS if network.name == name), folder)
    model = arena.NETWORKS[name]()
    onnx.save(model, folder / "network.onnx")
    given = model.graph.input[0]
    shape = [size.dim_value for size in given.type.tensor_type.shape.dim]
    np.savez(folder / "inputs.npz", **{given.name: np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)})
    return folder / "network.onnx", folder / "inputs.npz", None


def show(name: str, capacities: dict[str, int], has_gvsoc: bool) -> bool:
    """The rows of a network; whether all outputs are right."""
    is_right = True
    with tempfile.TemporaryDirectory(prefix="deeploy-chains-") as scratch:
        paths = model_of(name, Path(scratch))
        for kind, choice in CHOICES.items():
            options, begin = replace(choice, capacities=capacities), time.process_time()
            compiled = deeploy.compile(paths[0], "siracusa", inputs=paths[1], options=options)
            seconds, run = time.process_time() - begin, compiled.network.predicted
            assert run is not None, "siracusa has a timing"
            measured = "not measured"
            if has_gvsoc:
                result, _ = measure(name, *paths, options)
                measured, is_right = str(result.measured), is_right and result.is_right
            chained = sum(len(chain.members) for chain in compiled.plan.chains)
            moved = run.traffic["L2_L1"].bytes
            print(COLUMNS.format(name, kind, chained, moved, round(run.cycles), measured, f"{seconds:.1f}"), flush=True)
    return is_right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--l1", type=int, help="Bytes of the arena of L1.")
    parser.add_argument("--no-gvsoc", action="store_true", help="Predictions only.")
    given = parser.parse_args()
    print("predictions only" if given.no_gvsoc else "  ".join(f"{key}: {value}" for key, value in versions().items()))
    print(COLUMNS.format("network", "chains", "layers in chains", "bytes", "cycles predicted", "measured", "CPU seconds"))
    print("|---" * 7 + "|")
    wanted = [name for name in (*IMAGES, *NAMES) if not given.names or any(word in name for word in given.names)]
    return 0 if all([show(name, {} if given.l1 is None else {"l1": given.l1}, not given.no_gvsoc) for name in wanted]) else 1


if __name__ == "__main__":
    sys.exit(main())
