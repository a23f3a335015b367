"""Print the tables of "Balanced segmentation of CNNs for multi-TPU inference" (Villarrubia et al.) next to what is planned here.

Networks come from their summaries (``make summaries`` writes them), the device from targets/edgetpu, which is fitted to one device only:
everything on several devices is a prediction.

    make bench NAME='segmentation [device] [table1] [table5] [table7] [uncertainty] [strategies] [synthetic] [differences]'
        [sizes] [performance] [energy] [small] [--write]

``--write`` puts what is printed into benchmarks/segmentation.md.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from benchmarks.common import ROOT, copied_into
from benchmarks.networks import fit_edgetpu, summary
from benchmarks.networks.paper import BATCH, BEST_ON_THE_DEVICE, MIB, NETWORKS, ON_THE_DEVICE, SYNTHETIC_BEST
from deeploy.devices.stages import DeviceStages, seconds_per_input
from deeploy.errors import UsageError
from deeploy.ir.device import load_device
from deeploy.jobs import in_order
from deeploy.partition import balance
from deeploy.partition.balance_levels import Cuts, levels_of, stage_segments

DEVICE = load_device(ROOT / "targets" / "edgetpu" / "device.toml")
PAGE = ROOT / "benchmarks" / "segmentation.md"
STRATEGIES = ("layers", "vendor", "profile", "parameters", "cycles")
FILTERS = range(32, 1153, 10)
LARGEST_LAYER = 8 * MIB  # the paper's synthetic figures leave out networks with larger ones


@dataclass(frozen=True)
class Split:
    """A network cut by a strategy.

    Attributes:
        host: bytes of constants with the host, over all devices.
        sizes: bytes of constants of every stage.
        stages: seconds of every stage.
        planning: seconds that finding the cuts took.
        refined: whether they were moved by what the planner of memory reported.
    """

    cuts: Cuts
    host: int
    sizes: tuple[int, ...]
    stages: tuple[float, ...]
    planning: float
    refined: bool = False

    @property
    def slowest(self) -> float:
        return max(self.stages)

    @property
    def per_input(self) -> float:
        """Seconds per input of the paper's batch, filling and draining the pipeline included."""
        return seconds_per_input(self.stages, BATCH)


class Study:
    """A network on up to so many devices."""

    def __init__(self, network: summary.Summary) -> None:
        self.network = network
        self.layers = network.layers()
        self.levels = levels_of(self.layers, network.input_bytes)
        self.costs = DeviceStages(self.levels, self.layers, [item.loops for item in network.items], DEVICE)
        self.table = self.costs.table()

    def one(self) -> Split:
        """All of it on one device."""
        return self.split((), 0.0)

    def split(self, cuts: Cuts, planning: float, refined: bool = False) -> Split:
        parts = stage_segments(cuts, self.levels.depth)
        uses = [self.costs.use(*part) for part in parts]
        times = tuple(float(self.table[part]) for part in parts)
        return Split(cuts, sum(u.fetched for u in uses), tuple(u.held + u.fetched for u in uses), times, planning, refined)

    def by(self, strategy: str, devices: int) -> Split | None:
        """The network cut by a strategy; None where it would try too many cuts."""
        tables = [self.table] * devices
        refined = False
        start = time.perf_counter()
        try:
            if strategy == "layers":
                cuts = balance.cut_by_layers(self.levels, devices)
            elif strategy == "vendor":
                cuts = balance.cut_by_vendor(self.levels, devices)
            elif strategy == "profile":
                cuts = balance.cut_by_profile(self.levels, tables)
            elif strategy == "parameters":
                found = balance.cut_by_parameters(self.levels, devices, self.costs.overflow)
                cuts, refined = found.cuts, found.moves > 0
            else:
                cuts = balance.cut_by_cycles(self.levels, tables)
        except UsageError:
            return None
        return self.split(cuts, time.perf_counter() - start, refined)


@cache
def study(name: str) -> Study:
    return Study(summary.load(name))


_SPLITS: dict[str, dict[str, Split | None]] = {}


def splits(name: str) -> dict[str, Split | None]:
    """A network of the paper by all strategies, on as many devices as the paper takes; those of all networks are made at once."""
    if not _SPLITS:
        _SPLITS.update(zip(NETWORKS, in_order(_all_splits, list(NETWORKS)), strict=True))
    return _SPLITS[name]


def _all_splits(name: str) -> dict[str, Split | None]:
    found = Study(summary.load(name))
    return {strategy: found.by(strategy, NETWORKS[name].devices) for strategy in STRATEGIES}


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def device() -> None:
    """How the figures of one device are fitted, and what they predict of networks that are left out."""
    found = fit_edgetpu.fit()
    fit_edgetpu.show(found)
    same = np.allclose([found.device.step, found.device.byte, found.device.fetch], [DEVICE.step, DEVICE.byte, DEVICE.fetch], rtol=1e-3)
    is_same = same and (found.device.memory, found.device.filters) == (DEVICE.memory, DEVICE.filters)
    print(f"targets/edgetpu/device.toml has {'these figures' if is_same else 'OTHER FIGURES'}")


def table1() -> None:
    """What the networks are."""
    print("Table 1. Networks: the paper's figures, then ours. The paper's depth is the number of layers with parameters where keras.io has")
    print(
        "the network, and the longest path elsewhere; levels are the depth of the int8 network, normalisations folded, which is cut here.\n"
    )
    print("| network | M parameters | ours | M MACs | ours | depth | with parameters | longest path | layers | levels |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, row in NETWORKS.items():
        network, levels = study(name).network, study(name).levels
        print(
            f"| {name} | {row.parameters} | {network.parameters / 1e6:.1f} | {row.macs} | {network.macs / 1e6:.0f} "
            f"| {row.depth} | {network.weighted} | {network.longest} | {len(network.items)} | {levels.depth} |"
        )


def table5() -> None:
    """Host memory and sizes of the segments."""
    shown = ("layers", "vendor", "parameters", "cycles")
    print("Table 5. Host MiB on one device, and over all devices; then what the largest segment has more than the smallest, in MiB.")
    print("Columns of the paper first; `vendor` is the published partitioner, `layers` what the paper's text says of the vendor.\n")
    print(f"| network | devices | one, paper | ours | vendor, paper | {' | '.join(shown)} | spread, paper | {' | '.join(shown)} |")
    print("|" + "---|" * (6 + 2 * len(shown)))
    for name, row in NETWORKS.items():
        found = [split for strategy in shown if (split := splits(name)[strategy])]
        hosts = [f"{split.host / MIB:.2f}" for split in found]
        spreads = [f"{(max(split.sizes) - min(split.sizes)) / MIB:.2f}" for split in found]
        hosts = [f"{row.host:.2f}", f"{study(name).one().host / MIB:.2f}", f"{row.vendor_host:.2f}", *hosts]
        print(f"| {name} | {row.devices} | {' | '.join(hosts)} | {row.vendor_spread:.2f} | {' | '.join(spreads)} |")
    same = sum(
        (row.vendor_host > 0) == (bool(split) and split.host > 0) for name, row in NETWORKS.items() for split in [splits(name)["vendor"]]
    )
    print(f"\nvendor: host memory in those networks of the paper that have some, and not in the others, for {same} of {len(NETWORKS)}")
    balanced = [split for name in NETWORKS if (split := splits(name)["parameters"])]
    clean, moved = sum(split.host == 0 for split in balanced), sum(split.refined for split in balanced)
    print(f"parameters: no host memory in {clean} of {len(balanced)} networks, refined in {moved} (paper: 15 and 5),", end=" ")
    print(f"at most {max(split.planning for split in balanced):.3f} s")


def table7() -> None:
    """Times and speedups."""
    print(f"Table 7. Milliseconds per input of a batch of {BATCH}, filling and draining included; the slowest stage in brackets. Speedups:")
    print("parameters over vendor (P/V), over layers (P/L), over one device (P/1), and cycles over vendor (C/V) and parameters (C/P).\n")
    head = "one | ours | vendor | ours | layers | parameters | ours | cycles | profile | P/V | ours | P/L | P/1 | ours | C/V | C/P"
    print(f"| network | devices | {head} |\n|" + "---|" * (2 + len(head.split("|"))))
    gains: list[tuple[float, ...]] = []
    absolute = []
    for name, row in NETWORKS.items():
        one, found = study(name).one(), splits(name)
        layers, vendor, parameters, cycles = found["layers"], found["vendor"], found["parameters"], found["cycles"]
        assert layers and vendor and parameters and cycles
        ratios = (row.vendor / row.balanced, vendor.per_input / parameters.per_input, layers.per_input / parameters.per_input)
        over = (row.one / row.balanced, one.per_input / parameters.per_input)
        gains.append((*ratios, *over, vendor.per_input / cycles.per_input, parameters.per_input / cycles.per_input))
        absolute.append((1e3 * one.per_input / row.one, 1e3 * vendor.per_input / row.vendor, 1e3 * parameters.per_input / row.balanced))
        times = [f"{row.one:.2f}", f"{1e3 * one.per_input:.2f}", f"{row.vendor:.2f}", _ms(vendor), _ms(layers), f"{row.balanced:.2f}"]
        times += [_ms(parameters), _ms(cycles), _ms(found["profile"])]
        print(f"| {name} | {row.devices} | {' | '.join(times)} | {' | '.join(f'{gain:.2f}' for gain in gains[-1])} |")
    names = ("P/V of the paper", "P/V", "P/L", "P/1 of the paper", "P/1", "C/V", "C/P")
    print("\ngeometric means: " + ", ".join(f"{name} {mean([gain[i] for gain in gains]):.2f}" for i, name in enumerate(names)))
    faster = sum(gain[4] > row.devices for gain, row in zip(gains, NETWORKS.values(), strict=True))
    print(f"P/1 is more than the number of devices in {faster} of {len(gains)} networks (paper: {len(gains)});", end=" ")
    print(f"P/V is above 1 in {sum(gain[1] > 1 for gain in gains)} (paper: {len(gains)})")
    columns = ("one device", "vendor", "parameters")
    print(
        "predicted times over the paper's: " + ", ".join(f"{name} {mean([r[i] for r in absolute]):.2f}" for i, name in enumerate(columns))
    )


def _ms(split: Split | None) -> str:
    return "too many" if split is None else f"{1e3 * split.per_input:.2f} ({1e3 * split.slowest:.2f})"


def uncertainty() -> None:
    """What the predictions are by other figures of the device that the measurements of one device allow."""
    found = fit_edgetpu.fit()
    print(
        "Predictions by other figures that measurements of one device allow. Cuts stay those by targets/edgetpu. Geometric means: time of"
    )
    print(
        "`parameters` over the paper's, its speedup over one device (P/1) with the networks where that is more than the number of devices,"
    )
    print("and speedups over vendor of parameters (P/V) and cycles (C/V). With one link for all devices, a pipeline takes no less than all")
    print("bytes of all stages take: the last two columns.\n")
    print("| terms | left out, error % | time over the paper's | P/1 | superlinear | P/V | C/V | P/1, one link | superlinear |")
    print("|" + "---|" * 9)
    possible = [candidate for candidate in fit_edgetpu.candidates(found.rows, found.seconds) if candidate.is_possible]
    rows = [_predicted(candidate.terms, candidate.times) for candidate in possible]
    for candidate, row in zip(possible, rows, strict=True):
        print(f"| {', '.join(candidate.terms)} | {candidate.without:.1f} | {row.text()} |")
    refitted = [_predicted(fit_edgetpu.CHOSEN, times) for times in fit_edgetpu.left_out_times(found.rows, found.seconds)]
    for what, among in (("other terms", rows), ("one measurement left out", refitted)):
        ranges = [(min(row[i] for row in among), max(row[i] for row in among)) for i in (1, 3, 4)]
        texts = [f"{name} {low:.2f} to {high:.2f}" for name, (low, high) in zip(("P/1", "P/V", "C/V"), ranges, strict=True)]
        print(f"{what}: {', '.join(texts)}")
    print(f"cycles over vendor: geometric mean {rows[0].cycles:.2f}, from", end=" ")
    print(f"{min(row.cycles for row in (*rows, *refitted)):.2f} to {max(row.cycles for row in (*rows, *refitted)):.2f} by all of these")


class Predicted(NamedTuple):
    """Geometric means over all networks, by some figures of a device; see ``uncertainty``."""

    time: float
    alone: float
    superlinear: int
    parameters: float
    cycles: float
    shared: float
    shared_superlinear: int

    def text(self) -> str:
        return " | ".join(f"{value:.2f}" if isinstance(value, float) else str(value) for value in self)


def _predicted(terms: fit_edgetpu.Terms, times: np.ndarray) -> Predicted:
    """What figures of a device say of all networks, cut as they are by those of targets/edgetpu."""
    rows = []
    for name, row in NETWORKS.items():
        one, _ = _timed(name, (), terms, times)
        taken = {}
        for strategy in ("vendor", "parameters", "cycles"):
            split = splits(name)[strategy]
            assert split
            taken[strategy] = _timed(name, split.cuts, terms, times)
        (vendor, _), (parameters, shared), (cycles, _) = (taken[strategy] for strategy in ("vendor", "parameters", "cycles"))
        gain = one / parameters
        is_more, is_more_shared = gain > row.devices, one / shared > row.devices
        rows.append((1e3 * parameters / row.balanced, gain, is_more, vendor / parameters, vendor / cycles, one / shared, is_more_shared))
    columns = list(zip(*rows, strict=True))
    return Predicted(*(sum(column) if isinstance(column[0], bool) else mean(column) for column in columns))


def _timed(name: str, cuts: Cuts, terms: fit_edgetpu.Terms, times: np.ndarray) -> tuple[float, float]:
    """Seconds per input of a batch by some figures of a device, and with one link for all devices."""
    found = study(name)
    rows = []
    for first, end in stage_segments(cuts, found.levels.depth):
        items = [found.network.items[position] for row in found.levels.layers[first:end] for position in row]
        moved = found.levels.crossing[first] + found.levels.crossing[end]
        rows.append(fit_edgetpu.features_of(items, found.costs.use(first, end), moved, DEVICE))
    stages = fit_edgetpu.matrix(rows, terms) @ times
    link = sum(row["fetched"] for row in rows) * float(times[terms.index("fetched")])
    per_input = seconds_per_input(stages.tolist(), BATCH)
    return per_input, max(per_input, link)


def synthetic() -> None:
    """The family of section 3.1 on 2 to 4 devices."""
    print("Synthetic family, five convolutions: speedups over one device by number of devices and strategy, then host MiB.\n")
    head = [f"{strategy} {devices}" for devices in (2, 3, 4) for strategy in STRATEGIES]
    print(f"| f | MiB | {' | '.join(head)} | host one | vendor 4 | parameters 4 |")
    print("|" + "---|" * (5 + len(head)))
    best: dict[tuple[str, int], float] = {}
    equal: list[tuple[int, float]] = []
    for filters in FILTERS:
        one_study = Study(summary.synthetic(filters))
        one = one_study.one()
        if max(one_study.levels.weights) > LARGEST_LAYER:
            continue
        found = {(s, n): split for n in (2, 3, 4) for s in STRATEGIES if (split := one_study.by(s, n))}
        gains = {key: one.per_input / split.per_input for key, split in found.items()}
        if one.host:
            equal += [(n, found["parameters", n].per_input / found["profile", n].per_input) for n in (2, 3, 4)]
            best |= {key: max(gain, best.get(key, 0.0)) for key, gain in gains.items()}
        hosts = [one.host, found["vendor", 4].host, found["parameters", 4].host]
        cells = [f"{gains[s, n]:.2f}" for n in (2, 3, 4) for s in STRATEGIES]
        print(f"| {filters} | {sum(one.sizes) / MIB:.2f} | {' | '.join(cells)} | {' | '.join(f'{h / MIB:.2f}' for h in hosts)} |")
    print()
    for devices in (2, 3, 4):
        behind = [row for row in equal if row[0] == devices]
        gaps = [gap for _, gap in behind if gap > 1.005]
        print(f"parameters as fast as profile on {devices}: {len(behind) - len(gaps)} of {len(behind)}", end=" ")
        print(f"(else up to {max(gaps, default=1):.3f} times slower)")
    print("best speedups where one device uses host memory (paper: 1.8 by vendor and 6 by profile on four):", end=" ")
    print(", ".join(f"{s} {best[s, 4]:.2f}" for s in STRATEGIES))


def strategies() -> None:
    """All that the study asks of every strategy."""
    print("Every strategy: MiB with the host, of the largest and the smallest segment, ms of the slowest stage, speedups of a batch")
    print("over vendor (/V) and over one device (/1); then those of the paper's Segm_Balanced.\n")
    print("| network | devices | strategy | host | largest | smallest | slowest | /V | /1 | paper /V | paper /1 |")
    print("|" + "---|" * 11)
    for name, row in NETWORKS.items():
        one, found = study(name).one(), splits(name)
        vendor = found["vendor"]
        assert vendor
        for strategy in STRATEGIES:
            split = found[strategy]
            if split is None:
                print(f"| {name} | {row.devices} | {strategy} | too many cuts |" + " |" * 7)
                continue
            cells = [f"{size / MIB:.2f}" for size in (split.host, max(split.sizes), min(split.sizes))] + [f"{1e3 * split.slowest:.2f}"]
            cells += [f"{other.per_input / split.per_input:.2f}" for other in (vendor, one)]
            paper = (f"{row.vendor / row.balanced:.2f}", f"{row.one / row.balanced:.2f}") if strategy == "parameters" else ("", "")
            print(f"| {name} | {row.devices} | {strategy} | {' | '.join((*cells, *paper))} |")


def differences() -> None:
    """Where cycles is better than parameters, and why."""
    print("What the slowest stage by vendor, parameters and cycles spends its time on, in ms, and how unequal all stages are.\n")
    print("| network | strategy | slowest stage | products | fetched | given and returned | fastest stage |")
    print("|---|---|---|---|---|---|---|")
    for name in NETWORKS:
        for strategy in ("vendor", "parameters", "cycles"):
            split = splits(name)[strategy]
            assert split
            part = stage_segments(split.cuts, study(name).levels.depth)[int(np.argmax(split.stages))]
            times = [split.slowest, *study(name).costs.shares(*part), min(split.stages)]
            print(f"| {name} | {strategy} | {' | '.join(f'{1e3 * t:.2f}' for t in times)} |")


def sizes() -> None:
    """What the paper's own tables 5 and 7 allow: whether unequal sizes can explain the vendor's times."""
    print("Networks whose vendor's split leaves nothing with the host. The largest segment has at most (size + (devices - 1) spread) /")
    print("devices, by table 5: so many times the mean. A stage takes no more than that many times as long, if its bytes decide; and")
    print(
        "if its products decide, the vendor's slowest stage is that of the published partitioner. The paper's times are those of table 7.\n"
    )
    print("| network | devices | largest over mean, at most | products: vendor over parameters | time: vendor over balanced, paper |")
    print("|---|---|---|---|---|")
    beyond = []
    for name, row in NETWORKS.items():
        if row.vendor_host:
            continue
        size = row.device + row.host
        most = (size + (row.devices - 1) * row.vendor_spread) / size
        vendor, parameters = splits(name)["vendor"], splits(name)["parameters"]
        assert vendor and parameters
        products = [max(study(name).costs.shares(*part)[0] for part in _parts(name, split)) for split in (vendor, parameters)]
        measured = row.vendor / row.balanced
        beyond.append(measured > max(most, products[0] / products[1]))
        print(f"| {name} | {row.devices} | {most:.2f} | {products[0] / products[1]:.2f} | {measured:.2f} |")
    print(f"\nbeyond both: {sum(beyond)} of {len(beyond)}")


def _parts(name: str, split: Split) -> Sequence[tuple[int, int]]:
    return stage_segments(split.cuts, study(name).levels.depth)


def small() -> None:
    """The networks that fit one device: section 4.1's figure 2 has their performance, one number of which is said."""
    print("Networks that fit one device: memory, and performance at one input at a time.\n")
    print("| network | M MACs | ours | device MiB | ours | host MiB | ms | TOPS |\n|---|---|---|---|---|---|---|---|")
    best = 0.0
    for name, (macs, held) in ON_THE_DEVICE.items():
        found = Study(summary.load(name))
        one = found.one()
        rate = 2 * found.network.macs / one.slowest
        best = max(best, rate)
        cells = f"{one.sizes[0] / MIB:.2f} | {one.host / MIB:.2f} | {1e3 * one.slowest:.2f} | {rate / 1e12:.2f}"
        print(f"| {name} | {macs} | {found.network.macs / 1e6:.0f} | {held} | {cells} |")
    print(f"\nthe best has {best / 1e12:.2f} TOPS (paper: {BEST_ON_THE_DEVICE / 1e12})")


def performance() -> None:
    """Figure 2: TOPS of one device by the size of the network, one input at a time."""
    print("Figure 2. Size in MiB and TOPS on one device, one input at a time: networks of table 7, then the synthetic family.\n")
    print("| network | MiB | TOPS, paper (operations of table 1 over milliseconds of table 7) | TOPS |\n|---|---|---|---|")
    for name, row in NETWORKS.items():
        one = study(name).one()
        rates = 2e6 * row.macs / (1e-3 * row.one) / 1e12, 2 * study(name).network.macs / one.slowest / 1e12
        print(f"| {name} | {sum(one.sizes) / MIB:.2f} | {rates[0]:.2f} | {rates[1]:.2f} |")
    for filters in (32, 232, 442, 452, 632, 642, 932, 942, 1152):
        found = Study(summary.synthetic(filters))
        one = found.one()
        said = f"{SYNTHETIC_BEST[1] / 1e12}" if filters == SYNTHETIC_BEST[0] else ""
        print(f"| f {filters} | {sum(one.sizes) / MIB:.2f} | {said} | {2 * found.network.macs / one.slowest / 1e12:.2f} |")


WATT = 2.0  # of a device at its most, by its data sheet (section 2.1); what passes over PCIe and the host are not counted


def energy() -> None:
    """Millijoules of one input: 2 W while a device works, on one device and on a pipeline."""
    print(f"Energy of one input at {WATT} W while a device works, in mJ; the paper measured none.\n")
    print("| network | devices | one | vendor | parameters | cycles | EDP of one over parameters |\n|---|---|---|---|---|---|---|")
    for name, row in NETWORKS.items():
        found = [study(name).one(), *(split for s in ("vendor", "parameters", "cycles") if (split := splits(name)[s]))]
        spent = [1e3 * WATT * sum(split.stages) for split in found]
        gain = spent[0] * found[0].per_input / (spent[2] * found[2].per_input)
        print(f"| {name} | {row.devices} | {' | '.join(f'{mj:.1f}' for mj in spent)} | {gain:.2f} |")


PARTS: dict[str, Callable[[], None]] = {
    "device": device,
    "table1": table1,
    "table5": table5,
    "table7": table7,
    "uncertainty": uncertainty,
    "strategies": strategies,
    "synthetic": synthetic,
    "differences": differences,
    "sizes": sizes,
    "performance": performance,
    "energy": energy,
    "small": small,
}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all of them by default")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    options = parser.parse_args(arguments)
    for part in options.parts or PARTS:
        with copied_into(PAGE, f"segmentation {part}", options.write):
            PARTS[part]()
        print()
