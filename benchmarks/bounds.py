"""How far plans are from what bounds them: of every network, predicted cycles, the solver's bound, products at the peak, transfers.

    make bench NAME='bounds [--l1 BYTES] [--engines NAMES] [NETWORK ...]'

Networks are those of gvsoc/networks.py, by a word of their names. The solver's bound is what it proves of its own model. Products at the
peak: multiply-accumulates of every engine over the most that its kernels reach on layers without end. Transfers: constants, inputs and
outputs once over every path. The largest of the last two bounds any schedule of the same layers on the same engines.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import record
from benchmarks.gvsoc.networks import NETWORKS, Network, files
from deeploy import api
from deeploy.errors import DeeployError
from deeploy.jobs import in_order
from deeploy.options import Options
from deeploy.planning.planner.bounds import plan_bounds

ROW = "{:<22}{:>12}{:>12}{:>8}{:>14}{:>8}{:>12}{:>8}  {}"


def row(task: tuple[Network, Options]) -> dict[str, Any] | str:
    """What is found of a network, or why nothing is."""
    network, options = task
    with tempfile.TemporaryDirectory(prefix="deeploy-bounds-") as scratch:
        model, inputs, _ = files(network, Path(scratch))
        try:
            compiled = api.compile(model, "siracusa", inputs=inputs, **options.given())
        except DeeployError as error:
            return str(error)
    run, prediction = compiled.network.predicted, compiled.plan.prediction
    assert run is not None and prediction is not None, "Siracusa has a timing"
    found = plan_bounds(compiled.plan)
    products, transfers = max(found.compute.values(), default=0), max(found.traffic.values(), default=0)
    cycles = {"cycles": round(run.cycles), "planned": prediction.cycles, "solver": prediction.bound}
    return {"network": network.name, **cycles, "products": products, "transfers": transfers, "binds": found.binding[0]}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--l1", type=int, default=64_000)
    parser.add_argument("--engines")
    chosen = parser.parse_args(arguments)
    options = Options(memory={"l1": chosen.l1}, engines=tuple(chosen.engines.split(",")) if chosen.engines else None)
    rows, status = list[dict[str, Any]](), 0
    print(ROW.format("network", "cycles", "solver", "gap", "products", "share", "transfers", "share", "binds"))
    networks = [n for n in NETWORKS if not chosen.names or any(name.lower() in n.name.lower() for name in chosen.names)]
    for network, found in zip(networks, in_order(row, [(network, options) for network in networks]), strict=True):
        if isinstance(found, str):
            print(f"{network.name}: {found}", file=sys.stderr)
            status = 1
            continue
        rows.append(found)
        gap = f"{1 - found['solver'] / found['planned']:.1%}"
        shares = [f"{found[name] / found['cycles']:.1%}" for name in ("products", "transfers")]
        numbers = found["cycles"], found["solver"], gap, found["products"], shares[0], found["transfers"], shares[1]
        print(ROW.format(found["network"], *numbers, found["binds"]), flush=True)
    record(networks=rows)
    return status
