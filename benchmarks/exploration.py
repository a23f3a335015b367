"""Accelerators for MobileViT-S: the paper's Tables I and III beside ours, what holds of its conclusions, what moves the gains.

The network is examples/layers/mobilevit_s.json (benchmarks/mobilevit.py makes it), the accelerators are those of examples/hardware.
Section ``zigzag`` needs the extra of that name and takes seconds per pair; ``readings`` takes minutes, ``compiled``
needs networks. Exit status 1 when a conclusion that docs/exploration.md
states does not hold, or all pairs at 8192 elements take more than a minute.

    make bench NAME='exploration [--only SECTION ...] [--pairs N]'
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

import deeploy
from benchmarks.common import MODELS, ROOT
from deeploy.errors import UsageError
from deeploy.explore import zigzag
from deeploy.explore.choose import UnrollingChoice, best_set
from deeploy.explore.command import ExploreOptions, run_exploration
from deeploy.explore.cost import INNER, Assumptions, evaluate_unrollings
from deeploy.explore.hardware import Hardware, load_hardware
from deeploy.explore.networks import load_layers as load_layers
from deeploy.explore.study import Study, describe_study, study_unrollings
from deeploy.explore.unrollings import enumerate_unrollings
from deeploy.ir.loops import LOOPS, LayerLoops
from deeploy.jobs import in_order
from deeploy.target import load as load_target

LAYERS = ROOT / "examples" / "layers" / "mobilevit_s.json"
HARDWARE = ROOT / "examples" / "hardware"
NETWORKS = (
    MODELS / "mlperf_tiny/kws_int8_qdq_pc/network.onnx",
    MODELS / "mlperf_tiny/ic_int8_qdq_pc/network.onnx",
    MODELS / "real/q_mbv1_qdq_u8s8_pc/network.onnx",
)

TABLE_1 = {  # accelerator: gain, best single unrolling as the paper gives it
    "array256_bw128": (1.557, "Ku 8, OxyU 32"),
    "array256_bw512": (1.409, "Ku 8, OxyU 32"),
    "array256_bw2048": (1.415, "Ku 4, OxyU 64"),
    "array8192_bw2048": (4.124, "Cu 2, Ku 16, OxyU 256"),
    "array8192_bw8192": (3.839, "Cu 4, Ku 8, OxyU 256"),
}
TABLE_3 = (  # Gu, Cu, Ku, Fxyu, Oxyu, innermost loop of other and of depthwise layers
    ("1 SU", (1, 1, 16, 4, 128), "C", "Fx"),
    ("2 SUs, nr 1", (1, 64, 2, 1, 64), "K", "Fx"),
    ("2 SUs, nr 2", (1, 2, 4, 16, 64), "C", "Ox"),
)
TABLE_2 = ("architecture1", "architecture2", "architecture3", "architecture4")
TOLERANCE = 0.25  # of a gain, above which the sensitivity table has to say what moves it
SLOWEST = 60.0  # seconds for all pairs at 8192 elements

# Read and write energy of one access in picojoule, CACTI 7.0 as in examples/hardware: by bytes, bits, kind of transistors.
CACTI = {
    (1 << 20, 128, "itrs-lop"): (35.8, 28.9),
    (1 << 20, 512, "itrs-lop"): (111.9, 110.5),
    (1 << 20, 2048, "itrs-lop"): (409.7, 502.1),
    (1 << 20, 8192, "itrs-lop"): (2645.6, 3606.3),
    (1 << 17, 1024, "itrs-lop"): (42.3, 89.4),
    (1 << 17, 2048, "itrs-lop"): (113.6, 158.6),
    (1 << 17, 4096, "itrs-lop"): (391.6, 434.1),
    (1 << 19, 2048, "itrs-hp"): (294.7, 771.6),
    (1 << 21, 2048, "itrs-hp"): (879.7, 1252.9),
}

Variant = Callable[[Hardware], tuple[Hardware, Assumptions] | None]


def cacti(kind: str, top: int | None = None) -> Variant:
    """Other transistors, or another size of the memory for all operands; None where CACTI was not run for it."""

    def change(hardware: Hardware) -> tuple[Hardware, Assumptions] | None:
        stores = []
        for store in hardware.memories:
            capacity = top if top is not None and len(store.operands) == 3 else store.capacity
            if (top is not None) and capacity == store.capacity:
                stores.append(store)
                continue
            known = CACTI.get((capacity or 0, int(store.bandwidth), kind))
            if known is None:
                return None
            read, write = (energy / store.bandwidth for energy in known)
            stores.append(dataclasses.replace(store, capacity=capacity, read_pj_per_bit=read, write_pj_per_bit=write))
        return dataclasses.replace(hardware, memories=tuple(stores)), Assumptions()

    return change


def assuming(**changes: bool) -> Variant:
    return lambda hardware: (hardware, Assumptions(**changes))


VARIANTS: dict[str, Variant] = {
    "as stated": assuming(),
    "idle lanes need no bandwidth": assuming(idle_lanes_need_bandwidth=False),
    "idle lanes cost energy": assuming(idle_lanes_cost_energy=True),
    "stationary needs no bandwidth": assuming(stationary_needs_bandwidth=False),
    "inputs move to neighbours": lambda hardware: (dataclasses.replace(hardware, shifts_inputs=True), Assumptions()),
    "whole words cost energy": assuming(whole_words=True),
    "a port per operand": assuming(port_per_operand=True),
    "memory energy only": assuming(array_energy=False),
    "low operating power SRAM": cacti("itrs-lop"),
    "top memory of 512 KiB": cacti("itrs-hp", 1 << 19),
    "top memory of 2 MiB": cacti("itrs-hp", 1 << 21),
}


def accelerator(name: str) -> Hardware:
    return load_hardware(HARDWARE / f"{name}.toml")


def studied(task: tuple[list[LayerLoops], str]) -> Study:
    """The study of an accelerator by its name."""
    return study_unrollings(task[0], load_hardware(HARDWARE / f"{task[1]}.toml"), 2)


def short(result: Study, choice: UnrollingChoice) -> list[str]:
    """Unrollings as the paper writes them: products over both directions."""
    texts = []
    for row in choice.rows:
        u = dict(zip(LOOPS, (int(f) for f in result.unrollings.factors[row]), strict=True))
        parts = {"Gu": u["G"], "Cu": u["C"], "Ku": u["K"], "FxyU": u["FX"] * u["FY"], "OxyU": u["OX"] * u["OY"]}
        texts.append(", ".join(f"{name} {factor}" for name, factor in parts.items() if factor > 1))
    return texts


def gains(layers: list[LayerLoops]) -> bool:
    """Table I, and the gains of Table II's accelerators; which conclusions hold."""
    print("Table I: EDP of one unrolling over EDP of two\n")
    print(f"{'accelerator':18} {'paper':>6} {'ours':>6} {'ratio':>6}   best single unrolling, paper | ours | pair, ours")
    names = (*TABLE_1, *TABLE_2)
    found = dict(zip(names, in_order(studied, [(layers, name) for name in names]), strict=True))
    ours = {name: result.choices[0].edp / result.choices[1].edp for name, result in found.items()}
    for name, (gain, single) in TABLE_1.items():
        one, two = (short(found[name], choice) for choice in found[name].choices)
        mark = " " if abs(ours[name] / gain - 1) <= TOLERANCE else "*"
        print(f"{name:18} {gain:6.3f} {ours[name]:6.3f} {ours[name] / gain:6.2f}{mark}  {single} | {one[0]} | {' + '.join(two)}")
    print("  * differs by more than 25 %: see the section sensitivity\n\nTable II: accelerators with a memory per operand\n")
    for name in TABLE_2:
        one, two = (short(found[name], choice) for choice in found[name].choices)
        print(f"{name:18} {'':6} {ours[name]:6.3f} {'':6}   {one[0]} | {' + '.join(two)}")
    return conclusions(found, ours)


def windows(result: Study, choice: UnrollingChoice) -> list[bool]:
    """Whether each unrolling of a set unrolls FX or FY."""
    taps = [LOOPS.index("FX"), LOOPS.index("FY")]
    return [bool(result.unrollings.factors[row][taps].max() > 1) for row in choice.rows]


def conclusions(found: dict[str, Study], ours: dict[str, float]) -> bool:
    """The paper's conclusions, one by one."""
    pixels = [LOOPS.index("OX"), LOOPS.index("OY")]
    singles = {name: result.unrollings.factors[result.choices[0].rows[0]] for name, result in found.items()}
    dominant = {name: math.prod(row[pixels]) >= np.delete(row, pixels).max() for name, row in singles.items()}
    small = [ours[name] for name in TABLE_1 if "256" in name]
    large = [ours[name] for name in TABLE_1 if "8192" in name]
    has = {name: windows(result, result.choices[0])[0] for name, result in found.items()}
    grouped = {  # unrollings of pairs with FX or FY: whether they have G as well
        name: [
            bool(result.unrollings.factors[row][LOOPS.index("G")] > 1) for row, has in zip(rows, windows(result, pair), strict=True) if has
        ]
        for name, result in found.items()
        for pair in [result.choices[1]]
        for rows in [pair.rows]
    }
    split = {name: sorted(windows(result, result.choices[1])) == [False, True] for name, result in found.items()}
    checks = {
        f"OX OY are the largest factor of the single unrolling: {sum(dominant.values())} of {len(dominant)}": all(dominant.values()),
        f"the gain is larger for 8192 elements: {min(large):.2f} to {max(large):.2f} against {min(small):.2f} to {max(small):.2f}": min(
            large
        )
        > max(small),
        "single unrollings have FX or FY where inputs have 1024 bits (architectures 2 and 4)": has["architecture2"]
        and has["architecture4"],
        "and not where they have 4096 bits (architecture 3)": not has["architecture3"],
        f"of two unrollings one has FX or FY and one has not: {sum(split.values())} of {len(split)}": all(split.values()),
        f"that with FX or FY has G as well: {sum(all(has) for has in grouped.values())} of {len(grouped)}": all(map(all, grouped.values())),
    }
    print("\nConclusions of the paper\n")
    for text, holds in checks.items():
        print(f"  {'holds' if holds else 'FAILS'}  {text}")
    return all(checks.values())


def table3(layers: list[LayerLoops]) -> bool:
    """Table III: factors and innermost loops of the sets of one and two."""
    result = study_unrollings(layers, accelerator("table3"), 2)
    print("Table III: 8192 elements, 1024 bits per cycle for every operand\n")
    print(f"{'':22} {'Gu':>4} {'Cu':>4} {'Ku':>4} {'Fxyu':>5} {'Oxyu':>5}  innermost, depthwise")
    for name, factors, other, depthwise in TABLE_3:
        print(
            f"{'paper ' + name:22} {factors[0]:4} {factors[1]:4} {factors[2]:4} {factors[3]:5} {factors[4]:5}  for {other}, for {depthwise}"
        )
    for entry in describe_study(result)["sets"]:
        for position, unrolling in enumerate(entry["unrollings"], 1):
            u = unrolling["factors"]
            label = f"ours {entry['configs']} SU" + (f"s, nr {position}" if entry["configs"] > 1 else "")
            other, depthwise = (
                f"for {unrolling['inner'][kind]}" if unrolling["inner"][kind] else "unused" for kind in ("other", "depthwise")
            )
            factors = (u["G"], u["C"], u["K"], u["FX"] * u["FY"], u["OX"] * u["OY"])
            print(f"{label:22} " + " ".join(f"{factor:{width}}" for factor, width in zip(factors, (4, 4, 4, 5, 5), strict=True)), end="")
            print(f"  {other}, {depthwise}")
    return True


def gain_under(task: tuple[list[LayerLoops], str, str]) -> float | None:
    """The gain of an accelerator under an assumption, both by their names; None where nothing is known of it."""
    layers, text, name = task
    changed = VARIANTS[text](load_hardware(HARDWARE / f"{name}.toml"))
    if changed is None:
        return None
    one, two = (choice.edp for choice in study_unrollings(layers, changed[0], 2, assumptions=changed[1]).choices)
    return one / two


def sensitivity(layers: list[LayerLoops]) -> bool:
    """The gain of every accelerator under every assumption, alone; and with EDP summed over layers."""
    names = list(TABLE_1)
    print("Sensitivity: EDP of one unrolling over EDP of two, one change at a time\n")
    print(f"{'':32} " + " ".join(f"{name.removeprefix('array'):>12}" for name in names))
    print(f"{'paper':32} " + " ".join(f"{TABLE_1[name][0]:12.3f}" for name in names))
    gains_of = in_order(gain_under, [(layers, text, name) for text in VARIANTS for name in names])
    for text in VARIANTS:
        cells = [f"{'-':>12}" if (gain := next(gains_of)) is None else f"{gain:12.3f}" for _ in names]
        print(f"{text:32} {' '.join(cells)}", flush=True)
    cells = []
    for name in names:
        hardware = accelerator(name)
        costs = evaluate_unrollings(enumerate_unrollings(hardware.pes, layers).factors, layers, hardware)
        product = costs.cycles * costs.energy * np.array([layer.count for layer in layers])
        one, two = (best_set(product, product, size, "energy").energy for size in (1, 2))
        cells.append(f"{one / two:12.3f}")
    print(f"{'EDP summed over layers':32} {' '.join(cells)}")
    return True


READINGS = {  # what the paper leaves open: a letter, the assumption, and what holds instead of what docs/exploration.md states
    "b": ("idle_lanes_need_bandwidth", False, "idle lanes need no bandwidth"),
    "e": ("idle_lanes_cost_energy", True, "idle lanes cost energy"),
    "s": ("stationary_needs_bandwidth", False, "the stationary operand needs no bandwidth"),
    "w": ("whole_words", True, "whole words cost energy"),
    "p": ("port_per_operand", True, "a port per operand"),
    "c": ("complete_sums_are_narrow", True, "sums that are complete have the bits of results"),
}
CLOSE = 0.1  # of a gain, up to which a reading reproduces a row of Table I


def readings(layers: list[LayerLoops]) -> bool:
    """The unrollings chosen under every reading of what the paper leaves open, and the rows of its tables that each reproduces."""
    print("Readings: all combinations of")
    for letter, (_, _, text) in READINGS.items():
        print(f"  {letter}  {text}")
    print(f"Table I: gains within {100 * CLOSE:.0f} % (g) and single unrollings as the paper's (s); Table III: rows with its factors (=).")
    best: list[tuple[int, str]] = []
    residuals: list[tuple[float, float, str]] = []
    for flags in itertools.product((False, True), repeat=len(READINGS)):
        letters = "".join(letter for letter, is_set in zip(READINGS, flags, strict=True) if is_set)
        chosen = {name: value for (name, value, _), is_set in zip(READINGS.values(), flags, strict=True) if is_set}
        count, text, moved, error = reading(layers, Assumptions(**chosen))
        residuals.append((moved, error, letters or "as stated"))
        best.append((count, letters or "as stated"))
        print(f"\n{letters or 'as stated'}: {text}", flush=True)
    print("\nresiduals: factors of two by which the five single unrollings differ, mean; error of the five gains, geometric mean, %")
    for moved, error, letters in sorted(residuals):
        print(f"  {letters:10} {moved:5.1f} {100 * error:6.0f}")
    best.sort(key=lambda entry: -entry[0])
    print(
        "\nmost rows: "
        + ", ".join(f"{letters} {count}" for count, letters in best[:8])
        + f"; as stated {dict(map(reversed, best))['as stated']}"
    )
    return True


def reading(layers: list[LayerLoops], assumptions: Assumptions) -> tuple[int, str, float, float]:
    """How many rows of both tables a reading reproduces, gains and unrollings counted apart; what it chooses, as text; factors of two by
    which single unrollings of Table I differ from the paper's, on the mean; and by how much gains do.
    """
    lines, rows = [], 0
    apart, errors = list[float](), list[float]()
    for name, (gain, single) in TABLE_1.items():
        result = study_unrollings(layers, accelerator(name), 2, assumptions=assumptions)
        one, two = result.choices
        ours, label = one.edp / two.edp, short(result, one)[0]
        apart.append(distance(products(result.unrollings.factors[one.rows[0]]), single))
        errors.append(abs(math.log(ours / gain)))
        marks = "g" * (abs(ours / gain - 1) <= CLOSE) + "s" * (label == single)
        rows += len(marks)
        lines.append(f"  {name:18} {ours:7.3f} ({gain}) {marks:2}  {label} | {' + '.join(short(result, two))}")
    result = study_unrollings(layers, accelerator("table3"), 2, assumptions=assumptions)
    wanted = [factors for _, factors, _, _ in TABLE_3]
    for choice in result.choices:
        found = [products(result.unrollings.factors[row]) for row in choice.rows]
        same = [factors in (wanted[:1] if len(found) == 1 else wanted[1:]) for factors in found]
        rows += sum(same)
        texts = [f"{text}{' =' if is_same else ''}" for text, is_same in zip(short(result, choice), same, strict=True)]
        lines.append(f"  table3, {len(found)} SU  {' + '.join(texts)}")
    moved, error = sum(apart) / len(apart), math.expm1(sum(errors) / len(errors))
    head = f"{rows} of {2 * len(TABLE_1) + len(TABLE_3)}; singles {moved:.1f} factors of two apart, gains {100 * error:.0f} %\n"
    return rows, head + "\n".join(lines), moved, error


def distance(factors: tuple[int, ...], label: str) -> float:
    """How many factors of two have to be moved from one loop to another, to make an unrolling that of a label as "Ku 8, OxyU 32"."""
    said = dict(part.split(" ") for part in label.split(", "))
    wanted = [int(said.get(name, 1)) for name in ("Gu", "Cu", "Ku", "FxyU", "OxyU")]
    return sum(abs(math.log2(ours / theirs)) for ours, theirs in zip(factors, wanted, strict=True)) / 2


def products(factors: np.ndarray) -> tuple[int, ...]:
    """Factors as the paper's tables have them: Gu, Cu, Ku, Fxyu, Oxyu."""
    u = dict(zip(LOOPS, (int(f) for f in factors), strict=True))
    return u["G"], u["C"], u["K"], u["FX"] * u["FY"], u["OX"] * u["OY"]


def compiled(layers: list[LayerLoops]) -> bool:
    """The gain of two unrollings over one that a study predicts in cycles, and that of the layers on the array of emitted targets.

    Networks of MLPerf Tiny and MobileNetV1, compiled for what ``deeploy explore --emit-target`` writes, on the model of the machine.
    """
    print("Compiled for emitted targets: cycles of layers on the array with one unrolling and with two, predicted | compiled; their gains;")
    print("the gain of the whole network, with cores beside the array\n")
    print("| network | hardware | predicted | compiled | gain, predicted | compiled | differs by | whole network |\n|" + "---|" * 8)
    worst = 0.0
    for network, name in itertools.product(NETWORKS, ("table3", "array256_bw128", "array256_bw512")):
        predicted, array, whole = [], [], []
        for configs in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                options = ExploreOptions(configs=configs, target=Path(folder), as_json=True, machine="siracusa")
                description = json.loads(run_exploration([network], HARDWARE / f"{name}.toml", load_target("generic"), {}, options))
                project = deeploy.compile(network, Path(folder))
            timing = project.network.predicted
            assert timing is not None
            predicted.append(description["sets"][-1]["cycles"])
            calls = zip(project.plan.program.calls, timing.calls, strict=True)
            array.append(sum(own.cycles for call, own in calls if call.kernel.engine != "cores"))
            whole.append(timing.cycles)
        gains = [cycles[0] / cycles[1] for cycles in (predicted, array, whole)]
        worst = max(worst, abs(gains[1] / gains[0] - 1))
        cells = [network.parent.name, name, *(f"{cycles[0]:.0f}, {cycles[1]:.0f}" for cycles in (predicted, array))]
        cells += [f"{gains[0]:.3f}", f"{gains[1]:.3f}", f"{100 * (gains[1] / gains[0] - 1):+.1f} %", f"{gains[2]:.3f}"]
        print(f"| {' | '.join(cells)} |", flush=True)
    return worst <= CLOSE


def speed(layers: list[LayerLoops]) -> bool:
    """Seconds for all pairs, and whether pruning changes the optimum."""
    print("All pairs at 8192 elements (the paper's ZigZag: about 0.2 CPU seconds for each)\n")
    slowest = 0.0
    optima = []
    for prune in (True, False):
        hardware = accelerator("array8192_bw2048")
        start = time.perf_counter()
        result = study_unrollings(layers, hardware, 2, prune=prune)
        seconds = time.perf_counter() - start
        slowest = max(slowest, result.seconds["pairs"])
        optima.append([choice.edp for choice in result.choices])
        words = "pruned" if prune else "all that fit the layers"
        print(f"  {words:24} {len(result.unrollings):6} unrollings, {len(result.unrollings) * len(layers):7} pairs", end="")
        print(f" in {result.seconds['pairs']:.2f} s, the best pair of unrollings in {seconds - result.seconds['pairs']:.1f} s more")
    agree = np.allclose(*optima, rtol=1e-6)
    print(f"  optimum without pruning: {'the same' if agree else 'better by ' + str([a / b - 1 for a, b in zip(*optima, strict=True)])}")
    return slowest < SLOWEST


def sample(count: int, layers: list[LayerLoops], total: int) -> Iterator[tuple[int, int]]:
    """Layers and unrollings, spread evenly over both by a fixed seed."""
    random = np.random.default_rng(1)
    for index in range(count):
        yield index * len(layers) // count, int(random.integers(total))


def against_zigzag(layers: list[LayerLoops], count: int = 40) -> bool:
    """Cycles and energy of a sample of pairs in both models: rank correlation and error."""
    hardware = accelerator("table3")
    found = enumerate_unrollings(hardware.pes, layers)
    at_rest = evaluate_unrollings(found.factors, layers, hardware, Assumptions(idle_lanes_need_bandwidth=False))
    stated = evaluate_unrollings(found.factors, layers, hardware)
    rows = []
    print(f"ZigZag: {count} of {len(found) * len(layers)} pairs on {hardware.name}; ours / ZigZag's\n")
    start = time.perf_counter()
    for layer, row in sample(count, layers, len(found)):
        cycles, energy = zigzag.evaluate_layer(layers[layer], found.factors[row], hardware)
        ours = stated.cycles[row, layer], at_rest.cycles[row, layer], at_rest.energy[row, layer]
        rows.append((*ours, cycles, energy))
        inner = INNER[int(at_rest.inner[row, layer])]
        print(f"  {layers[layer].loops:36} {found.labels[row]:36} for {inner:2}", end="")
        print(f"  cycles {ours[1] / cycles:5.2f} (idle lanes fed {ours[0] / cycles:6.2f})  energy {ours[2] / energy:5.2f}", flush=True)
    fed, cycles, energy, theirs, their_energy = np.array(rows).T
    for name, a, b in (("cycles", cycles, theirs), ("cycles, idle lanes fed", fed, theirs), ("energy", energy, their_energy)):
        error = np.abs(a / b - 1)
        product = f"median error {100 * np.median(error):.1f} %, within 10 %: {np.count_nonzero(error <= 0.1)} of {count}"
        print(f"  {name:24} rank correlation {rank_correlation(a, b):.3f}, {product}")
    edp = rank_correlation(cycles * energy, theirs * their_energy)
    print(f"  {'EDP':24} rank correlation {edp:.3f}; {(time.perf_counter() - start) / count:.1f} s per pair in ZigZag")
    return edp > 0.9


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's: the correlation of ranks, ties sharing their mean rank."""
    ranks = [np.array([(np.sum(x < v) + np.sum(x <= v) - 1) / 2 for v in x]) for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


LONGER: dict[str, Callable[[list[LayerLoops]], bool]] = {"readings": readings, "compiled": compiled}
SECTIONS: dict[str, Callable[[list[LayerLoops]], bool]] = {"gains": gains, "table3": table3, "sensitivity": sensitivity, "speed": speed}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[*SECTIONS, *LONGER, "zigzag"], default=list(SECTIONS))
    parser.add_argument("--pairs", type=int, default=40, help="pairs that ZigZag evaluates too")
    parser.add_argument("--layers", type=Path, default=LAYERS)
    options = parser.parse_args(arguments)
    layers = load_layers(options.layers)
    fine = True
    for name in options.only:
        try:
            fine &= against_zigzag(layers, options.pairs) if name == "zigzag" else (SECTIONS | LONGER)[name](layers)
        except UsageError as error:
            print(f"  skipped: {error.what}")
        print()
    sys.exit(0 if fine else 1)
