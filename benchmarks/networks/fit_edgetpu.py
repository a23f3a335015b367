"""Fit the figures of targets/edgetpu/device.toml to what the paper measured on one device; print the fit and what it predicts when a
network is left out.

    make bench NAME='networks/fit_edgetpu [--write]'

Memory comes first: filters in multiples of one number only, and an interval of sizes, reproduce table 2. Times are
non-negative least squares of relative errors over the single-device column of table 7 and the best synthetic network. Their terms are
those that the paper names: products on an array whose side table 2 gives, with the latency of filling it, and what passes between the
device and the host. Others are fitted besides. Those with which no network that needs no host could be as fast as section 4.1 says the
best one is are ruled out; the rest shows how uncertain a prediction is. What several devices are said to do plays no part.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.common import ROOT
from benchmarks.networks import summary
from benchmarks.networks.paper import BEST_ON_THE_DEVICE, MIB, NETWORKS, ON_THE_DEVICE, SYNTHETIC_BEST, SYNTHETIC_MEMORY
from deeploy.devices.layers import Item
from deeploy.devices.stages import Use, device_use
from deeploy.ir.device import Device

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
step = {step:.4g}
byte = {byte:.4g}
fetch = {fetch:.4g}
provenance = "{count} times of one device (table 7, section 4.1), least squares: mean error {fit:.1f} %, network left out {out:.1f} %"
"""


Terms = tuple[str, ...]
CHOSEN: Terms = ("steps", "fetched", "fetches")
TERMS: tuple[Terms, ...] = (
    CHOSEN,
    ("unfilled", "fetched", "fetches"),
    ("taps", "fetched", "fetches"),
    ("slots", "fetched", "fetches"),
    ("steps", "fetched"),
    ("steps", "fetched", "results"),
    ("steps", "fetched", "layers"),
    ("steps", "held", "fetched", "fetches"),
    ("slots", "constants", "fetches"),
    ("taps", "fetched", "fetches", "once"),
)


def features_of(items: Sequence[Item], found: Use, moved: int, device: Device) -> dict[str, float]:
    """What a stage may spend time on; ``moved`` are the bytes that it is given and returns.

    ``unfilled`` are steps without the latency of filling the array; ``taps`` are steps where every tap of a window is a tile; ``slots``
    are products where only results fill up the array.
    """
    shapes = [item.loops for item in items if item.loops]
    positions = [loops[3] * loops[4] for loops in shapes]
    alone = [(loops[0] * loops[1], 1, loops[2], *loops[3:]) for loops in shapes]  # as if every layer had groups
    blocks = [-(-loops[0] * loops[1] // device.filters) * device.filters for loops in shapes]
    return {
        "steps": found.steps,
        "unfilled": sum(device.steps(loops) * p // (p + device.filters) for loops, p in zip(shapes, positions, strict=True)),
        "taps": sum(device.steps(loops) * p // (p + device.filters) for loops, p in zip(alone, positions, strict=True)),
        "slots": sum(b * math.prod(loops[2:]) for loops, b in zip(shapes, blocks, strict=True)),
        "held": found.held,
        "fetched": found.fetched + moved,
        "constants": found.held + found.fetched + moved,
        "fetches": found.fetches,
        "layers": len(shapes),
        "results": sum(item.output for item in items),
        "once": 1,
    }


def features_alone(network: summary.Summary, device: Device) -> dict[str, float]:
    """The same of a whole network on one device."""
    found = device_use(network.layers(), [item.loops for item in network.items], device)
    return features_of(network.items, found, network.input_bytes + network.items[-1].output, device)


def best_rate(terms: Terms, times: np.ndarray) -> float:
    """Operations per second that the networks that need no host could reach at the most, if only what they hold took time."""
    cost = dict(zip(terms, times, strict=True))
    least = [(macs, (cost.get("held", 0) + cost.get("constants", 0)) * held * MIB) for macs, held in ON_THE_DEVICE.values()]
    return max(2e6 * macs / max(seconds + cost.get("once", 0), 1e-12) for macs, seconds in least)


def host_mib(filters: int, device: Device) -> float:
    """MiB of constants of a synthetic network that lie with the host."""
    network = summary.synthetic(filters)
    return device_use(network.layers(), [item.loops for item in network.items], device).fetched / MIB


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


@dataclass(frozen=True)
class Candidate:
    """Terms that times may have, with what one device says of them.

    Attributes:
        times: seconds of each term.
        error, without: mean relative error in percent, of what is fitted, and of networks that are left out.
        rate: see ``best_rate``.
    """

    terms: Terms
    times: np.ndarray
    error: float
    without: float
    rate: float

    @property
    def is_possible(self) -> bool:
        """Whether the best network that needs no host could be as fast as it is."""
        return self.rate >= BEST_ON_THE_DEVICE


def candidates(rows: Sequence[Mapping[str, float]], seconds: np.ndarray) -> list[Candidate]:
    """All sets of terms, fitted."""
    found = []
    for terms in TERMS:
        features = matrix(rows, terms)
        times = least_squares(features, seconds)
        without = mean(left_out(features, seconds, len(NETWORKS)))
        found.append(Candidate(terms, times, mean(features @ times / seconds - 1), without, best_rate(terms, times)))
    return found


def matrix(rows: Sequence[Mapping[str, float]], terms: Terms) -> np.ndarray:
    return np.array([[row[term] for term in terms] for row in rows], float)


def left_out_times(rows: Sequence[Mapping[str, float]], seconds: np.ndarray) -> list[np.ndarray]:
    """The chosen terms' times, fitted to all measurements but one, for each."""
    features, every = matrix(rows, CHOSEN), np.arange(len(seconds))
    return [least_squares(features[every != row], seconds[every != row]) for row in every]


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
    rows = [features_alone(network, device) for network in networks]
    features = matrix(rows, CHOSEN)
    step, byte, fetch = times = least_squares(features, seconds)
    device = replace(device, step=float(step), byte=float(byte), fetch=float(fetch))
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
    print(f"position of a tile {device.step:.4g} s, byte {device.byte:.4g} s, layer fetched {device.fetch:.4g} s")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {FILE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    found = fit()
    show(found)
    for candidate in candidates(found.rows, found.seconds):
        verdict = "" if candidate.is_possible else f", ruled out: at most {candidate.rate / 1e12:.2f} TOPS without the host"
        print(f"{', '.join(candidate.terms)}: mean error {candidate.error:.1f} %, left out {candidate.without:.1f} %{verdict}")
    if options.write:
        device = found.device
        figures = {"memory": device.memory, "filters": device.filters, "low": found.low / MIB, "high": found.high / MIB}
        figures |= {"step": device.step, "byte": device.byte, "fetch": device.fetch}
        FILE.write_text(TEXT.format(**figures, count=len(found.networks), fit=mean(found.errors), out=mean(found.without)))
        print(f"wrote {FILE.relative_to(ROOT)}")
