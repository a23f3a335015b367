"""Accelerators for MobileViT-S: the paper's Tables I and III beside ours, what holds of its conclusions, what moves the gains.

The network is examples/layers/mobilevit_s.json (benchmarks/mobilevit.py makes it), the accelerators are those of examples/hardware.
Section ``zigzag`` needs the extra of that name and takes seconds per pair; ``readings`` takes minutes, ``compiled``
needs networks. Exit status 1 when a conclusion that docs/exploration.md
states does not hold, or all pairs at 8192 elements take more than a minute. ``--write`` puts what is printed into
benchmarks/exploration.md.

    make bench NAME='exploration [--only SECTION ...] [--pairs N] [--write]'
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
from benchmarks.common import MODELS, ROOT, copied_into, table
from deeploy.errors import UsageError
from deeploy.explore import zigzag
from deeploy.explore.choose import UnrollingChoice, best_set
from deeploy.explore.command import ExploreOptions, run_exploration
from deeploy.explore.cost import Assumptions, evaluate_unrollings
from deeploy.explore.hardware import Hardware, load_hardware
from deeploy.explore.networks import load_layers as load_layers
from deeploy.explore.study import Study, describe_study, study_unrollings
from deeploy.explore.unrollings import enumerate_unrollings
from deeploy.ir.loops import LOOPS, LayerLoops
from deeploy.jobs import in_order
from deeploy.target import load as load_target

PAGE = ROOT / "benchmarks" / "exploration.md"
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


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("\n".join(table(heads, rows)), flush=True)


def sizes(name: str) -> str:
    """Elements, and bits per cycle, of an accelerator of Table I."""
    return name.removeprefix("array").replace("_bw", ", ")


def gains(layers: list[LayerLoops]) -> bool:
    """Table I, and the gains of Table II's accelerators; which conclusions hold."""
    names = (*TABLE_1, *TABLE_2)
    found = dict(zip(names, in_order(studied, [(layers, name) for name in names]), strict=True))
    ours = {name: result.choices[0].edp / result.choices[1].edp for name, result in found.items()}
    rows = []
    for name, (gain, single) in TABLE_1.items():
        one, two = (short(found[name], choice) for choice in found[name].choices)
        rows.append((sizes(name), f"{gain:.3f}", f"{ours[name]:.3f}", f"{ours[name] / gain:.2f}", single, one[0], " + ".join(two)))
    print("Table I: EDP of one unrolling over EDP of two.\n")
    print_table(("PEs, bits", "paper", "ours", "ratio", "single unrolling, paper", "single unrolling, ours", "pair, ours"), rows)
    rows = []
    for name in TABLE_2:
        one, two = (short(found[name], choice) for choice in found[name].choices)
        rows.append((name, f"{ours[name]:.3f}", one[0], " + ".join(two)))
    print("\nTable II: accelerators with a memory per operand.\n")
    print_table(("accelerator", "EDP of one over two", "single unrolling, ours", "pair, ours"), rows)
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
    print("\nConclusions of the paper:\n")
    for text, holds in checks.items():
        print(f"* {'holds' if holds else 'FAILS'}: {text}")
    return all(checks.values())


def table3(layers: list[LayerLoops]) -> bool:
    """Table III: factors and innermost loops of the sets of one and two."""
    result = study_unrollings(layers, accelerator("table3"), 2)
    rows = [(f"paper, {name}", *map(str, factors), f"for {other}", f"for {depthwise}") for name, factors, other, depthwise in TABLE_3]
    for entry in describe_study(result)["sets"]:
        for position, unrolling in enumerate(entry["unrollings"], 1):
            u = unrolling["factors"]
            label = f"ours, {entry['configs']} SU" + (f"s, nr {position}" if entry["configs"] > 1 else "")
            loops = [unrolling["inner"][kind] for kind in ("other", "depthwise")]
            inner = (f"for {'OX, OY' if loop == 'O' else loop}" if loop else "unused" for loop in loops)
            factors = (u["G"], u["C"], u["K"], u["FX"] * u["FY"], u["OX"] * u["OY"])
            rows.append((label, *map(str, factors), *inner))
    print("Table III: 8192 elements, 1024 bits per cycle for every operand, and the innermost loops that most layers choose.\n")
    print_table(("unrolling", "Gu", "Cu", "Ku", "Fxyu", "Oxyu", "other layers", "depthwise"), rows)
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
    gains_of = in_order(gain_under, [(layers, text, name) for text in VARIANTS for name in names])
    rows = [["paper", *(f"{TABLE_1[name][0]:.3f}" for name in names)]]
    for text in VARIANTS:
        rows.append([text, *("" if (gain := next(gains_of)) is None else f"{gain:.3f}" for _ in names)])
    cells = []
    for name in names:
        hardware = accelerator(name)
        costs = evaluate_unrollings(enumerate_unrollings(hardware.pes, layers).factors, layers, hardware)
        product = costs.cycles * costs.energy * np.array([layer.count for layer in layers])
        one, two = (best_set(product, product, size, "energy").energy for size in (1, 2))
        cells.append(f"{one / two:.3f}")
    rows.append(["EDP summed over layers", *cells])
    print("What moves the gains, one change at a time: EDP of one unrolling over EDP of two.\n")
    print_table(("change", *map(sizes, names)), rows)
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
    rows = []
    for flags in itertools.product((False, True), repeat=len(READINGS)):
        letters = "".join(letter for letter, is_set in zip(READINGS, flags, strict=True) if is_set) or "as stated"
        chosen = {name: value for (name, value, _), is_set in zip(READINGS.values(), flags, strict=True) if is_set}
        rows.append(describe_reading(letters, layers, Assumptions(**chosen)))
    print(f"All combinations of these. {'. '.join(f'`{letter}`: {text}' for letter, (_, _, text) in READINGS.items())}.")
    print(
        f"Gains of Table I count within {100 * CLOSE:.0f} %, unrollings where they are the paper's. Factors of two are those by which the"
    )
    print("five single unrollings of Table I differ from the paper's, on the mean.\n")
    heads = ("reading", "figures of 13", "factors of two", "gains off by", "rows whose gain it has", "rows whose single unrolling it has")
    print_table((*heads, "of Table III"), sorted(rows, key=lambda row: -int(row[1])))
    return True


def describe_reading(letters: str, layers: list[LayerLoops], assumptions: Assumptions) -> tuple[str, ...]:
    """A row of the table of readings: how many figures of both tables a reading reproduces, how far it is from the others, and which."""
    gains_of, singles, of_three = list[str](), list[str](), list[str]()
    apart, errors = list[float](), list[float]()
    for name, (gain, single) in TABLE_1.items():
        result = study_unrollings(layers, accelerator(name), 2, assumptions=assumptions)
        one, two = result.choices
        ours = one.edp / two.edp
        apart.append(distance(products(result.unrollings.factors[one.rows[0]]), single))
        errors.append(abs(math.log(ours / gain)))
        gains_of += [sizes(name)] * (abs(ours / gain - 1) <= CLOSE)
        singles += [sizes(name)] * (short(result, one)[0] == single)
    result = study_unrollings(layers, accelerator("table3"), 2, assumptions=assumptions)
    for choice in result.choices:
        chosen = [products(result.unrollings.factors[row]) for row in choice.rows]
        of_three += [name for name, factors, _, _ in TABLE_3 if name.startswith(str(len(chosen))) and factors in chosen]
    count = len(gains_of) + len(singles) + len(of_three)
    moved, error = sum(apart) / len(apart), math.expm1(sum(errors) / len(errors))
    named = ("; ".join(names) for names in (gains_of, singles, of_three))
    return letters, str(count), f"{moved:.1f}", f"{100 * error:.0f} %", *named


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
    print(
        "Compiled for emitted targets: cycles of layers on the array with one unrolling and with two, and their gains; whole network: the"
    )
    print("gain with cores, whose cycles are placeholders, beside the array.\n")
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
    print("All pairs at 8192 elements (the paper's ZigZag: about 0.2 CPU seconds for each).\n")
    slowest = 0.0
    rows = []
    optima = []
    for prune in (True, False):
        hardware = accelerator("array8192_bw2048")
        start = time.perf_counter()
        result = study_unrollings(layers, hardware, 2, prune=prune)
        seconds = time.perf_counter() - start
        slowest = max(slowest, result.seconds["pairs"])
        optima.append([choice.edp for choice in result.choices])
        words = "pruned" if prune else "all that fit the layers"
        count = len(result.unrollings)
        times = (f"{each:.1f}" for each in (result.seconds["pairs"], seconds - result.seconds["pairs"]))
        rows.append((words, str(count), str(count * len(layers)), *times))
    print_table(("unrollings", "number", "pairs with layers", "s for all pairs", "s for the best two"), rows)
    agree = np.allclose(*optima, rtol=1e-6)
    better = ", ".join(f"{100 * (a / b - 1):.1f} %" for a, b in zip(*optima, strict=True))
    print(f"\nWithout pruning the optimum is {'the same' if agree else f'better by {better} (one unrolling, two)'}.")
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
    start = time.perf_counter()
    for layer, row in sample(count, layers, len(found)):
        cycles, energy = zigzag.evaluate_layer(layers[layer], found.factors[row], hardware)
        ours = stated.cycles[row, layer], at_rest.cycles[row, layer], at_rest.energy[row, layer]
        rows.append((*ours, cycles, energy))
    fed, cycles, energy, theirs, their_energy = np.array(rows).T
    lines = []
    compared = {
        "cycles, idle lanes at rest": (cycles, theirs),
        "cycles, idle lanes fed (the paper's formulas)": (fed, theirs),
        "energy": (energy, their_energy),
    }
    for name, (a, b) in compared.items():
        error = np.abs(a / b - 1)
        within = f"{np.count_nonzero(error <= 0.1)} of {count}"
        lines.append((name, f"{rank_correlation(a, b):.3f}", f"{100 * np.median(error):.1f} %", within))
    edp = rank_correlation(cycles * energy, theirs * their_energy)
    lines.append(("EDP, idle lanes at rest", f"{edp:.3f}", "", ""))
    print(f"ZigZag: {count} of {len(found) * len(layers)} pairs on {hardware.name}; ", end="")
    print(f"ZigZag takes {(time.perf_counter() - start) / count:.1f} s for a pair.\n")
    print_table(("figure", "rank correlation", "median error", "within 10 %"), lines)
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
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    options = parser.parse_args(arguments)
    layers = load_layers(options.layers)
    fine = True
    for name in options.only:
        try:
            with copied_into(PAGE, f"exploration {name}", options.write):
                fine &= against_zigzag(layers, options.pairs) if name == "zigzag" else (SECTIONS | LONGER)[name](layers)
        except UsageError as error:
            print(f"  skipped: {error.what}")
        print()
    sys.exit(0 if fine else 1)
