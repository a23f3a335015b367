"""Fit the figures of targets/edgetpu/device.toml to what the paper measured on one device; print the fit and what it predicts when a
network is left out.

    python benchmarks/networks/fit_edgetpu.py [--write]

Memory comes first: filters in multiples of one number only, and an interval of sizes, reproduce table 2. Times are
non-negative least squares of relative errors over the single-device column of table 7 and the best synthetic network. Which terms they
have is decided by the error of the network that is left out; what several devices are said to do plays no part.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import ROOT
from networks import summary
from networks.paper import MIB, NETWORKS, SYNTHETIC_BEST, SYNTHETIC_MEMORY

from deeploy.devices.stages import use
from deeploy.graph.device import Device

FILE = ROOT / "targets" / "edgetpu" / "device.toml"
UNITS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # of filters
STEP = MIB // 64

TEXT = """\
# What is planned with for one Edge TPU (docs/segmentation.md): written by benchmarks/networks/fit_edgetpu.py --write.

[memory]
bytes = {memory}
filters = {filters}
provenance = "between {low:.2f} and {high:.2f} MiB, and filters in multiples of {filters} only: table 2 of Villarrubia et al."

[time]
slot = {slot:.4g}
byte = {byte:.4g}
fetch = {fetch:.4g}
provenance = "{count} times of one device (table 7, section 4.1), least squares: mean error {fit:.1f} %, network left out {out:.1f} %"
"""


CHOSEN = ("slots", "constants", "fetches")
TERMS = (  # the last one lets constants of the device cost something else than those of the host
    ("slots", "fetched"),
    ("products", "fetched", "layers"),
    ("slots", "fetched", "results"),
    ("slots", "fetched", "layers"),
    ("slots", "fetched", "fetches"),
    ("products", "constants", "fetches"),
    CHOSEN,
    ("slots", "held", "fetched", "fetches"),
)


def features_of(network: summary.Summary, device: Device) -> dict[str, float]:
    """What a network on one device may spend time on; bytes that it is given and returns count as constants from the host."""
    found = use(network.layers(), [item.loops for item in network.items], device)
    moved = network.input_bytes + network.items[-1].output
    return {
        "products": network.macs,
        "slots": found.slots,
        "held": found.held,
        "fetched": found.fetched + moved,
        "constants": found.held + found.fetched + moved,
        "fetches": found.fetches,
        "layers": sum(bool(item.loops) for item in network.items),
        "results": sum(item.output for item in network.items),
    }


def host_mib(filters: int, device: Device) -> float:
    """MiB of constants of a synthetic network that lie with the host."""
    network = summary.synthetic(filters)
    return use(network.layers(), [item.loops for item in network.items], device).fetched / MIB


def memories() -> list[Device]:
    """Devices with which every row of table 2 has as many layers with the host as the paper says, memories in steps."""
    tolerance = 0.1  # MiB, less than a twentieth of the smallest layer that is at stake
    tried = (Device(memory, unit) for unit in UNITS for memory in range(4 * MIB, 8 * MIB + 1, STEP))
    rows = SYNTHETIC_MEMORY.items()
    return [device for device in tried if all(abs(host_mib(filters, device) - host) < tolerance for filters, (_, host) in rows)]


def least_squares(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Non-negative coefficients with the least sum of squares of relative errors: the best over all sets of coefficients in use."""
    scaled, best = features / targets[:, None], (np.inf, np.zeros(features.shape[1]))
    for count in range(1, features.shape[1] + 1):
        for columns in itertools.combinations(range(features.shape[1]), count):
            chosen = list(columns)
            unit = np.linalg.norm(scaled[:, chosen], axis=0)
            found = np.linalg.lstsq(scaled[:, chosen] / unit, np.ones(len(targets)), rcond=None)[0] / unit
            error = float(((scaled[:, chosen] @ found - 1) ** 2).sum())
            if (found >= 0).all() and error < best[0]:
                coefficients = np.zeros(features.shape[1])
                coefficients[chosen] = found
                best = error, coefficients
    return best[1]


def left_out(features: np.ndarray, targets: np.ndarray, count: int) -> list[float]:
    """The relative error of the predictions of the first ``count`` by what is fitted to all others."""
    errors = []
    for row in range(count):
        others = np.arange(len(targets)) != row
        errors.append(float(features[row] @ least_squares(features[others], targets[others]) / targets[row] - 1))
    return errors


def mean(errors: Sequence[float] | np.ndarray) -> float:
    """Mean of absolute values, in percent."""
    return 100 * float(np.mean(np.abs(errors)))


def compare(rows: Sequence[Mapping[str, float]], seconds: np.ndarray) -> None:
    """Print what other terms would do."""
    print("\n| terms | mean error % | network left out, % |\n|---|---|---|")
    for terms in TERMS:
        features = np.array([[row[term] for term in terms] for row in rows], float)
        fitted = features @ least_squares(features, seconds) / seconds - 1
        print(f"| {', '.join(terms)} | {mean(fitted):.1f} | {mean(left_out(features, seconds, len(NETWORKS))):.1f} |")


@dataclass(frozen=True)
class Fit:
    """What was fitted, and how well.

    Attributes:
        low, high: bytes between which the memory lies.
        rows: of all networks: seconds of the paper, features.
        errors: relative, of what was fitted; ``without`` those of networks that are left out.
    """

    device: Device
    low: int
    high: int
    networks: list[summary.Summary]
    rows: list[dict[str, float]]
    seconds: np.ndarray
    errors: np.ndarray
    without: list[float]


def fit() -> Fit:
    """Fit the five figures of a device: what its memory holds, the unit of filters, and three times."""
    fitting = memories()
    (unit,) = {device.filters for device in fitting}
    low, high = fitting[0].memory, fitting[-1].memory
    device = Device((low + high) // 2 // STEP * STEP, unit)
    networks = [summary.load(name) for name in NETWORKS] + [summary.synthetic(SYNTHETIC_BEST[0])]
    seconds = np.array([row.one / 1e3 for row in NETWORKS.values()] + [2 * networks[-1].macs / SYNTHETIC_BEST[1]])
    rows = [features_of(network, device) for network in networks]
    features = np.array([[row[term] for term in CHOSEN] for row in rows], float)
    slot, byte, fetch = times = least_squares(features, seconds)
    device = replace(device, slot=float(slot), byte=float(byte), fetch=float(fetch))
    return Fit(device, low, high, networks, rows, seconds, features @ times / seconds - 1, left_out(features, seconds, len(NETWORKS)))


def show(found: Fit) -> None:
    """Print a fit, and what it predicts of networks that are left out."""
    device = found.device
    print("Fitted to one device: memory to table 2, times to table 7 and section 4.1; several devices play no part.\n")
    print(
        f"memory: filters in multiples of {device.filters}, of the powers of two up to {UNITS[-1]} the only one that reproduces table 2;",
        end=" ",
    )
    print(f"{found.low / MIB:.2f} to {found.high / MIB:.2f} MiB do, {device.memory / MIB:.2f} taken")
    print("\n| network | host MiB, paper | ours | ms, paper | fitted | error % | left out, error % |\n|---|---|---|---|---|---|---|")
    for network, row, ms, error, without in zip(
        found.networks, found.rows, found.seconds * 1e3, found.errors, [*found.without, None], strict=True
    ):
        host = (row["fetched"] - network.input_bytes - network.items[-1].output) / MIB
        paper = NETWORKS[network.name].host if network.name in NETWORKS else SYNTHETIC_MEMORY[SYNTHETIC_BEST[0]][1]
        last = f"{100 * without:+.0f}" if without is not None else ""
        print(f"| {network.name} | {paper:.2f} | {host:.2f} | {ms:.2f} | {ms * (1 + error):.2f} | {100 * error:+.0f} | {last} |")
    print(f"\nmean error {mean(found.errors):.1f} %, leaving one network out {mean(found.without):.1f} %")
    print(f"product {device.slot:.4g} s, byte {device.byte:.4g} s, layer fetched {device.fetch:.4g} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {FILE.relative_to(ROOT)}")
    options = parser.parse_args()
    found = fit()
    show(found)
    compare(found.rows, found.seconds)
    if options.write:
        device = found.device
        figures = {"memory": device.memory, "filters": device.filters, "low": found.low / MIB, "high": found.high / MIB}
        figures |= {"slot": device.slot, "byte": device.byte, "fetch": device.fetch}
        FILE.write_text(TEXT.format(**figures, count=len(found.networks), fit=mean(found.errors), out=mean(found.without)))
        print(f"wrote {FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
