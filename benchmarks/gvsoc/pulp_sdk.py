"""Whole networks on GVSoC with the PULP SDK's runtime beside those without an SDK: cycles of one inference, and whether outputs are equal.

    source SDK/configs/siracusa.sh; make bench NAME='gvsoc/pulp_sdk [NETWORK ...]'

PULP_RISCV_GCC_TOOLCHAIN is the PULP toolchain, or ``tests/targets/siracusa/stock``, which takes the stock gcc in its place; GVSOC is the
launcher. Exit status 1 where outputs differ or nothing can be built.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.gvsoc.networks import NETWORKS, Network, files, text_bytes
from deeploy import api
from deeploy.backend.project import read_manifest, select_network
from deeploy.execution.runners import gvsoc
from deeploy.execution.runners.runner import sample_bytes

NAMES = ("KeywordSpotting", "ImageClassification", "VisualWakeWords", "AnomalyDetection", "microLlama1", "microLlama64")
STOCK = Path(__file__).resolve().parents[2] / "tests" / "targets" / "siracusa" / "stock"
L1_BYTES = 64_000  # as in compare.py


def on_sdk(project: Path, sample: bytes) -> tuple[int, bytes]:
    """Cycles of one inference with the SDK's runtime, and the bytes of its outputs.

    Raises:
        subprocess.CalledProcessError: it cannot be built or run.
    """
    folder = project / "sdk"
    folder.mkdir()
    (folder / "inputs.bin").write_bytes(sample)
    environment = {"PULP_RISCV_GCC_TOOLCHAIN": str(STOCK), **os.environ}
    command = ["make", "-s", "-C", str(project), "PLATFORM=pulp-sdk", f"BUILD={folder}", "DEFINES=", "all", "run"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    (total,) = (line.split() for line in done.stdout.splitlines() if line.startswith("total "))
    return int(total[2]), (folder / "outputs.bin").read_bytes()


def compare(network: Network, engines: tuple[str, ...] | None) -> bool:
    """Print a line for a network on some engines (None: all); whether outputs are equal."""
    with tempfile.TemporaryDirectory(prefix="deeploy-sdk-") as scratch:
        model, inputs, _ = files(network, Path(scratch))
        project = Path(scratch) / "project"
        compiled = api.compile(model, "siracusa", inputs=inputs, memory={"l1": L1_BYTES}, engines=engines)
        compiled.write(project)
        with np.load(inputs) as arrays:
            sample = list(arrays.values())
        entry = select_network(read_manifest(project))
        bare = gvsoc.Gvsoc(has_layers=False).run(project, entry, [sample])
        cycles, outputs = on_sdk(project, sample_bytes(entry, sample))
        is_right = outputs == b"".join(array[0].tobytes() for array in bare.outputs)
        text = text_bytes(project / "build" / "whole" / "application.elf"), text_bytes(project / "sdk" / "network" / "network")
        ratio = cycles / bare.cycles[0]
        head = f"{network.name:20} {'cluster' if engines else 'all':8} {bare.cycles[0]:10} {cycles:10}"
        print(f"{head} {ratio:6.2f} {text[0]:9} {text[1]:9}   {'equal' if is_right else 'DIFFER'}", flush=True)
        return is_right


def main(arguments: Sequence[str]) -> int:
    wanted = arguments or NAMES
    print("network              engines        bare        SDK  ratio    .text bare and SDK   outputs")
    chosen = [network for network in NETWORKS if network.name in wanted]
    return 0 if all([compare(network, engines) for engines in (("cluster",), None) for network in chosen]) else 1
