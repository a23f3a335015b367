"""MLPerf Tiny's networks on this host, one thread, beside onnxruntime (README.md): time of an inference, and share of onnxruntime's.

    make bench NAME='host [--write]'

Built with -O3 -march=native, and with -O2 alone, where kernels are chosen for the machine when the program starts. Outputs are compared
by ``deeploy verify``'s rules in the tests. ``--write`` puts the table into the page.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnxruntime

import deeploy
from benchmarks.common import MODELS, ROOT, median_seconds, replace_table, table
from benchmarks.microcontrollers import NETWORKS, model_of
from deeploy.backend.project import read_manifest, select_network
from deeploy.execution.runners.host import Host
from deeploy.frontend.arrays import Expected, load_arrays

PAGE = ROOT / "benchmarks" / "README.md"
TINY = MODELS / "mlperf_tiny"
FLAGS = ("-O3 -march=native", "-O2")
REPEATS, TURNS = 400, 5  # inferences, and how often both contestants take turns
HEADS = ("network", "onnxruntime, µs", *(f"{flags}, µs" for flags in FLAGS), "of onnxruntime's", "-O2 of native")


def measured(name: str, model: Path, samples: Path, folder: Path) -> tuple[str, ...]:
    """A row: the medians of what both take in turns."""
    deeploy.compile(model, "generic").write(folder)
    entry = select_network(read_manifest(folder))
    (sample, *_) = load_arrays(samples, [Expected.of(port) for port in entry["inputs"]], "input").samples
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = {port.name: array for port, array in zip(session.get_inputs(), sample, strict=True)}
    theirs: list[float] = []
    ours: dict[str, list[float]] = {flags: [] for flags in FLAGS}
    for _ in range(TURNS):
        theirs.append(1e6 * median_seconds(lambda: session.run(None, feed), REPEATS, 10))
        for flags in FLAGS:
            nanoseconds = Host(flags=flags, repeat=REPEATS).run(folder, entry, [sample]).nanoseconds
            assert nanoseconds is not None
            ours[flags].append(nanoseconds / 1e3)
    reference, native, plain = statistics.median(theirs), *(statistics.median(ours[flags]) for flags in FLAGS)
    return name, f"{reference:.0f}", f"{native:.0f}", f"{plain:.0f}", f"{native / reference:.2f}", f"{plain / native:.2f}"


def main(arguments: Sequence[str]) -> None:
    layout = "{:<12}{:>17}{:>23}{:>10}{:>18}{:>16}"
    print(layout.format(*HEADS))
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for network, source in NETWORKS.items():
            given = TINY / f"{network}_fp32" / "network.onnx", model_of(network, Path(scratch))
            for kind, model in zip(("float", "int8"), given, strict=True):
                row = measured(f"{network} {kind}", model, TINY / source / "inputs.npz", Path(scratch) / f"{network}_{kind}")
                print(layout.format(*row), flush=True)
                rows.append(row)
    if "--write" in arguments:
        replace_table(PAGE, "host", table(HEADS, rows))
