"""Prediction against GVSoC: cycles of whole networks and of their layers, as a compilation states them and as they are simulated.

    make bench NAME='gvsoc/predict [--l1 BYTES] [--cores N] [--engines NAMES] [--target T] [--all] [PART OF A NAME ...]'

One inference, the first after the start, with constants in L2. Layers below one hundredth of the time are left out, unless ``--all``.
Outputs are compared with the golden ones (with the interpreter where there are none). Exit status 1 when something differs or
cannot be simulated, 2 when no network has such a name.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.common import record
from benchmarks.gvsoc.networks import NETWORKS, Layer, Result, results
from deeploy.errors import UsageError
from deeploy.options import Options

SHARE = 0.01  # of a network's cycles, below which a layer does not count
NETWORK, LAYER = 0.10, 0.20  # errors that are aimed at
COLUMNS = "{:<26}{:<26}{:>12}{:>12}{:>12}{:>9}"


def counted(result: Result) -> list[Layer]:
    """The layers that count."""
    return [layer for layer in result.layers if max(layer.measured, layer.predicted) > SHARE * result.measured]


def summary(found: Sequence[Result]) -> dict[str, Any]:
    """Errors over all networks, and over all their layers that count."""
    networks = [abs(result.error) for result in found]
    layers = [abs(layer.error) for result in found for layer in counted(result)]
    return {
        "networks": len(networks),
        "networks_within": sum(error <= NETWORK for error in networks),
        "network_median": statistics.median(networks),
        "network_largest": max(networks),
        "layers": len(layers),
        "layers_within": sum(error <= LAYER for error in layers),
        "layer_median": statistics.median(layers),
        "layer_largest": max(layers),
    }


def show(result: Result, is_all: bool) -> None:
    for layer in result.layers if is_all else counted(result):
        error = f"{layer.error:+.1%}"
        print(COLUMNS.format(f"  {layer.name[:23]}", layer.kernel[:25], layer.macs, round(layer.predicted), layer.measured, error))
    right = "" if result.is_right else "  OUTPUTS DIFFER"
    print(COLUMNS.format(result.name, "", result.macs, round(result.predicted), result.measured, f"{result.error:+.1%}") + right)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--all", action="store_true")
    for name in ("--l1", "--cores"):
        parser.add_argument(name, type=int)
    parser.add_argument("--engines")
    parser.add_argument("--target", default="siracusa", metavar="NAME|FOLDER")
    given = parser.parse_args(arguments)
    engines = tuple(given.engines.split(",")) if given.engines else None
    found: list[Result] = []
    failed = False
    print(COLUMNS.format("network, layer", "kernel", "MAC", "predicted", "measured", "error"))
    options = Options(memory={"l1": given.l1} if given.l1 else {}, cores=given.cores, engines=engines)
    for one in results(given.words, options, given.target):
        if not isinstance(one, Result):
            print(f"{one[0]}: {one[1]}", file=sys.stderr)
            failed = True
            continue
        found.append(one)
        failed = failed or not one.is_right
        show(one, given.all)
    if not found:
        if not failed:
            error = UsageError(
                f"no network has {' or '.join(given.words)} in its name", f"Give a part of one of {', '.join(n.name for n in NETWORKS)}."
            )
            print(error, file=sys.stderr)
            return 2
        return 1
    total = summary(found)
    record(summary=total, networks=[asdict(r) | {"error": r.error} for r in found])
    print(
        f"networks: {total['networks_within']} of {total['networks']} within {NETWORK:.0%}, median {total['network_median']:.1%}, "
        f"largest {total['network_largest']:.1%}"
    )
    print(
        f"layers above {SHARE:.0%}: {total['layers_within']} of {total['layers']} within {LAYER:.0%}, median {total['layer_median']:.1%}, "
        f"largest {total['layer_largest']:.1%}"
    )
    return int(failed)
