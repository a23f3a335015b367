"""Calibration: networks run on a board, layer by layer, and what its kernels took becomes a timing for later compilations."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from deeploy.backend import project
from deeploy.bringup.rates import Fitted, fit_rates, observe_layers, write_rates
from deeploy.documents import Contents
from deeploy.driver.compile import compile_networks, load_target
from deeploy.driver.verify import random_samples
from deeploy.errors import UsageError
from deeploy.execution.runners import board as boards
from deeploy.options import Options
from deeploy.report.text import align_table


@dataclass(frozen=True)
class Calibrated:
    """The rates of kernels by name, and where they were written."""

    rates: Mapping[str, Fitted]
    output: Path

    def contents(self) -> Contents:
        """The fitted rates as a document for ``--json``: cycles per call, multiply-accumulate and output of each kernel."""
        kernels = {
            name: {**asdict(observed_rate.rate), "layers": observed_rate.layers, "error": observed_rate.error}
            for name, observed_rate in self.rates.items()
        }
        return {"output": str(self.output), "kernels": kernels}

    def __str__(self) -> str:
        rows = [
            (
                name,
                str(observed_rate.layers),
                f"{observed_rate.rate.call:.0f}",
                f"{observed_rate.rate.mac:.3g}",
                f"{observed_rate.rate.output:.3g}",
                f"{observed_rate.error:.1%}",
            )
            for name, observed_rate in self.rates.items()
        ]
        heads = ("kernel", "layers", "per call", "per MAC", "per output", "median error")
        return f"{align_table(heads, rows)}\nwritten to {self.output}"


def calibrate_target(
    models: Sequence[Path],
    target: str,
    board: str,
    port: str | None,
    output: Path,
    seconds: float | None = None,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Calibrated:
    """Run networks on a board and write the rates of all kernels that they have to ``output``.

    Raises:
        DeeployError: a network does not compile or run there, the target has several memories, or the file cannot be written.
    """
    project.check_file(output, "--output")
    machine = replace(load_target(target), timing=None)
    if not machine.is_flat:
        what = f"deeploy calibrate: target {machine.name} has several memories, and a timing of its own"
        raise UsageError(what, "Measure it with benchmarks/gvsoc/calibrate.py --target (docs/timing.md).")
    runner, layers, mhz = boards.Board(board, port, seconds or boards.SECONDS), [], 0.0
    for model in models:
        on_stage(f"measure {model.name}")
        compiled = compile_networks({"network": model}, machine, Options())
        (unit,) = compiled.units.values()
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "project"
            project.write_project(folder, compiled.sources())
            entry = project.select_network(project.read_manifest(folder))
            result = runner.run(folder, entry, random_samples(entry["inputs"])[0][:1])
        layers += observe_layers(unit.network.plan, result.layers)
        mhz = result.mhz or mhz
    rates = fit_rates(layers)
    project.write_file(output, write_rates(machine, rates, f"board {Path(board).name}", mhz).encode(), "--output")
    return Calibrated(rates, output)
