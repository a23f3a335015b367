"""Every network of the shared models on one machine: does it fit, are its outputs right on the host model and on GVSoC, what does it take?

    make bench NAME='gvsoc/shared [PART OF A NAME ...] --target NAME|FOLDER [--on host|gvsoc] [--longest CYCLES] [--seconds SECONDS]'
        [--engines NAMES] [--memory NAME=BYTES ...]

Prints a row per network of ``dialect`` and ``mlperf_tiny``, as Markdown, as soon as it is known. Outputs of one sample are compared with
the golden ones, by the rule that ``deeploy verify`` states, and those of GVSoC with the host model's. What does not fit ends a
compilation with exit status 3, and the row says so. ``--longest`` leaves out simulations
that are predicted to take more cycles, ``--seconds`` says how long one may take. Exit status 1 when an output differs or a
simulation fails.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.gvsoc.networks import DIALECT, TINY, Network, files
from deeploy import api
from deeploy.backend.project import read_manifest, select_network
from deeploy.documents import Document
from deeploy.driver import verify
from deeploy.errors import DeeployError
from deeploy.execution.runners import gvsoc
from deeploy.execution.verification.compare import compare_output
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.options import Options

HEAD = "| network | host model | GVSoC | predicted cycles | measured | error |\n|---|---|---|---|---|---|"
WRONG = "differs"


@dataclass(frozen=True)
class Row:
    """What is known of a network; texts of what was compared, cycles where there are any."""

    name: str
    host: str
    simulated: str = ""
    predicted: float = 0
    measured: int = 0

    def __str__(self) -> str:
        error = f"{self.predicted / self.measured - 1:+.1%}" if self.measured else ""
        cycles = [f"{round(each):,}".replace(",", " ") if each else "" for each in (self.predicted, self.measured)]
        return f"| {' | '.join((self.name, self.host, self.simulated, *cycles, error))} |"


def networks() -> Iterator[Network]:
    """Models of both folders, by their places in them."""
    for folder in (DIALECT, DIALECT.parent / "Kernels", TINY):
        for model in sorted(folder.rglob("network.onnx")):
            yield Network(str(model.parent.relative_to(folder.parent)), model.parent)


def row(network: Network, target: str, on: str, longest: float, seconds: float, options: Options) -> Row:
    """Compile a network, run it, compare its outputs.

    Raises:
        DeeployError: it does not compile, or a project does not run.
    """
    with tempfile.TemporaryDirectory(prefix="deeploy-shared-") as scratch:
        folder = Path(scratch)
        model, inputs, golden = files(network, folder)
        dialect = "integer" if "Kernels/Integer/" in network.name else None  # a single node says too little of its dialect
        compiled = api.compile(model, target, inputs=inputs, **options.given(), dialect=dialect)
        compiled.write(folder / "project")
        verdict = verify.run_project(folder / "project", inputs, golden)
        rules = dict.fromkeys(comparison.rule for _, comparison in verdict.comparisons)
        host = ", ".join(rules) if verdict.passed else WRONG
        run = compiled.network.predicted
        predicted = run.cycles if run is not None else 0.0
        if on == "host" or predicted > longest:
            return Row(network.name, host, "not simulated", predicted)
        entry = select_network(read_manifest(folder / "project"))
        loaded = load_arrays(inputs, [Expected.of(port) for port in entry["inputs"]], "input")
        whole = gvsoc.Gvsoc(seconds, has_layers=False).run(folder / "project", entry, loaded.samples)
    pairs = zip(entry["outputs"], whole.outputs, verdict.outputs, strict=True)
    return Row(network.name, host, _as_on_the_host(pairs), predicted, whole.cycles[0])


def _as_on_the_host(pairs: Iterable[tuple[Document, np.ndarray, np.ndarray]]) -> str:
    """How outputs compare with those of the host model: bit for bit, or, of floats, by the rule of their port."""
    texts = []
    for port, got, wanted in pairs:
        if np.array_equal(got, wanted):
            texts.append("as the host model")
        else:
            found = compare_output(port, got, wanted)
            texts.append(found.rule if found.passed and got.dtype.kind == "f" else WRONG)
    return ", ".join(dict.fromkeys(texts))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--target", required=True, metavar="NAME|FOLDER")
    parser.add_argument("--on", choices=("host", "gvsoc"), default="gvsoc")
    parser.add_argument("--longest", type=float, default=float("inf"), metavar="CYCLES")
    parser.add_argument("--seconds", type=float, default=gvsoc.SECONDS, help="of wall time for a simulation")
    parser.add_argument("--memory", nargs="+", default=[], metavar="NAME=BYTES", help="what may be used of a memory, as deeploy compile")
    parser.add_argument("--engines", default="", metavar="NAMES", help="which engines may be used, separated by commas; all by default")
    given = parser.parse_args(arguments)
    memory = {name.lower(): int(count) for name, count in (one.split("=") for one in given.memory)}
    options = Options(memory=memory, engines=tuple(given.engines.split(",")) if given.engines else None)
    failed = False
    print(HEAD, flush=True)
    for network in networks():
        if given.words and not any(word.lower() in network.name.lower() for word in given.words):
            continue
        try:
            found = row(network, given.target, given.on, given.longest, given.seconds, options)
        except DeeployError as error:
            found = Row(network.name, f"exit status {error.exit_status}: {str(error).splitlines()[0]}")
            failed = failed or error.exit_status != 3
        failed = failed or WRONG in (found.host, found.simulated)
        print(found, flush=True)
    return int(failed)
