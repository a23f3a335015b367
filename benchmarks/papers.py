"""Every figure of the papers that this project starts from, beside ours, with a verdict: benchmarks/papers.md.

    make bench NAME='papers [--measure] [--write]'

Ours are read from what other benchmarks recorded (slm.json, energy.json, ablations.json) or wrote into pages (study-collectives.md,
study-chips.md, exploration.md); ``--measure`` computes the segmentation of 15 networks anew and records it in benchmarks/papers.json.
``--write`` writes the page. Exit status 1 when a row has no verdict: one that differs has to name an assumption, one that is not covered a
reason.

A figure is *reproduced* within 10 %, *exceeded* where it is better by more, and *differs* else.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from benchmarks import collective_schemes, slm
from benchmarks.common import ROOT, filled, read_results, record, table, write_results
from benchmarks.inference_over_chips import WORKLOADS
from benchmarks.networks import paper

FILE, PAGE = ROOT / "benchmarks" / "papers.json", ROOT / "benchmarks" / "papers.md"
TOLERANCE = 0.10
Better = Literal["less", "more", "equal"]


@dataclass(frozen=True)
class Row:
    """A figure of a paper.

    Attributes:
        ours: a number, or a word that has to be the paper's; None: not covered, for the reason in ``why``.
        better: which numbers are better than the paper's; ``equal``: neither.
        why: the assumption by which ours differs, or why there is none.
        is_predicted: by the planner's walk, where the paper measured.
    """

    item: str
    command: str
    theirs: float | str
    ours: float | str | None
    better: Better = "equal"
    why: str = ""

    @property
    def verdict(self) -> str:
        """Empty where there is none."""
        if self.ours is None:
            return f"not covered: {self.why}" if self.why else ""
        if isinstance(self.ours, str) or isinstance(self.theirs, str):
            is_same = str(self.ours) == str(self.theirs)
            return "reproduced" if is_same else f"differs: {self.why}" if self.why else ""
        ratio = self.ours / self.theirs if self.theirs else 1.0 if not self.ours else float("inf")
        if abs(ratio - 1) <= TOLERANCE:
            return "reproduced"
        if self.better != "equal" and (ratio < 1) == (self.better == "less"):
            return "exceeded"
        return f"differs: {self.why}" if self.why else ""


def recorded(name: str) -> Any:
    return read_results(ROOT / "benchmarks" / f"{name}.json")


def lying(page: str) -> Path:
    """Where a page lies: beside the benchmarks that wrote it, or with the others."""
    found = [folder / page for folder in (ROOT / "benchmarks", ROOT / "docs") if (folder / page).is_file()]
    if not found:
        raise SystemExit(f"there is no page {page}")
    return found[0]


def link(page: str) -> str:
    return f"[{page}]({os.path.relpath(lying(page), PAGE.parent)})"


@cache
def tables(page: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """The tables of a page, rows of cells; a first cell that is empty is that of the row above."""
    found: list[list[tuple[str, ...]]] = []
    is_inside = False
    for line in lying(page).read_text().splitlines():
        if not line.startswith("|"):
            is_inside = False
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not is_inside:
            found.append([])
            is_inside = True
        elif not re.fullmatch(r"[-: |]+", line):
            cells[0] = cells[0] or found[-1][-1][0]
        else:
            continue
        found[-1].append(tuple(cells))
    return tuple(tuple(table) for table in found)


def cell(page: str, head: str, row: Sequence[str]) -> str:
    """What a page says in the column of a head in the row that begins with these cells; an empty cell takes the one above.

    Raises:
        SystemExit: the page has no such row.
    """
    for lines in tables(page):
        if head not in lines[0]:
            continue
        at = lines[0].index(head)
        above = [""] * len(lines[0])
        for cells in lines[1:]:
            above = [now or old for now, old in zip(cells, above, strict=False)]
            if tuple(above[: len(row)]) == tuple(row):
                return cells[at] if at < len(cells) else ""
    raise SystemExit(f"{page} has no row {' | '.join(row)} with a column {head}")


def number(text: str) -> float:
    found = re.search(r"-?\d+(\.\d+)?", text.replace(" ", ""))
    if found is None:
        raise SystemExit(f"{text!r} holds no number")
    return float(found[0])


# ---- Deeploy

SLM, ENERGY, ABLATIONS = "`slm`", "`energy`", "`ablations`"
HIDDEN = "our plans hide the transfers that the weight memory saves (ablations.md)"
FASTER_BASE = "without the weight memory, layers wait for less than in the paper, even where nothing hides the transfers"
FASTER_CORES = "the cores are faster here by more than N-EUREKA is, so that it gains less over them"
SMALLER_BASE = "the cores without N-EUREKA are faster here, which makes the gain smaller"


def deeploy() -> Iterator[Row]:
    found, energy, ablations = recorded("slm"), recorded("energy"), recorded("ablations")
    for layers, one in enumerate(found["table_1"], 1):
        at, count = layers - 1, f"{layers} layer{'s' * (layers > 1)}"
        yield Row(f"Table I, {count}: compile time, s", SLM, slm.PAPER["compile"][at], one["compile"], "less")
        why = "code is linked and measured for 1, 2, 4 and 8 layers"
        yield Row(f"Table I, {count}: .text, kB", SLM, slm.PAPER["text"][at], one["text"] or None, "less", why)
        yield Row(f"Table I, {count}: weights, kB", SLM, slm.PAPER["weights"][at], one["weights"], "less")
        yield Row(f"Table I, {count}: requantisation, kB", SLM, slm.PAPER["requant"][at], one["requant"], "less")
        yield Row(f"Table I, {count}: inputs, outputs, caches, kB", SLM, slm.PAPER["io"][at], one["io"], "less", CACHES)
    joules, seconds = found["millijoules_cached"], found["seconds_cached"]
    token = joules / 256 * 1e3
    power = "the cores take 13 mW each (energy.md), whatever they do"
    yield Row("Table II: 256 steps without caches, s", SLM, 17.6, found["seconds_parallel"], "less")
    yield Row("Table II: with caches, s", SLM, 0.75, seconds, "less")
    yield Row("Table II: without caches, mJ", SLM, 3193.0, found["millijoules_parallel"], "less", power)
    yield Row("Table II: with caches, mJ", SLM, 125.0, joules, "less", power)
    shared = "without caches our time falls by more than with them: N-EUREKA is fed by layers that are computed side by side"
    yield Row("Table II: caches save time by", SLM, 23.0, found["seconds_parallel"] / seconds, "more", shared)
    yield Row("Table II: caches save energy by", SLM, 26.0, found["millijoules_parallel"] / joules, "more", shared)
    yield Row("tokens a second", SLM, 340.0, 256 / seconds, "more")
    yield Row("energy of a token, µJ", SLM, 490.0, token, "less", power)
    linear = found["encoder_linear"]
    one, eight, npu, nms = (linear[name] for name in (slm.SINGLE.name, slm.CLUSTER.name, slm.NPU.name, slm.NMS.name))
    yield Row("Fig. 6: eight cores over one, linear layers", SLM, 6.2, one / eight, "more", "one core is faster here, too")
    yield Row("Fig. 6: N-EUREKA over eight cores, up to", SLM, 25.0, eight / npu, "more", FASTER_CORES)
    gains = [row[f"hidden, {slm.NPU.name}"] / row[f"hidden, {slm.NMS.name}"] for row in ablations["weight_memory"]]
    exposed = [row[f"exposed, {slm.NPU.name}"] / row[f"exposed, {slm.NMS.name}"] for row in ablations["weight_memory"]]
    yield Row("Fig. 6: weight memory, large layers", ABLATIONS, 1.6, min(gains), "more", HIDDEN)
    yield Row("Fig. 6: weight memory, at most", ABLATIONS, 2.1, max(gains), "more", HIDDEN)
    yield Row("Fig. 6: large layers, transfers exposed", ABLATIONS, 1.6, min(exposed), "more", FASTER_BASE)
    yield Row("Fig. 6: at most, transfers exposed", ABLATIONS, 2.1, max(exposed), "more", FASTER_BASE)
    yield Row("Fig. 7: N-EUREKA over eight cores, linear layers of an encoder", SLM, 17.8, eight / nms, "more", FASTER_CORES)
    yield Row("Fig. 7: gain of the encoder layer, %", SLM, 61.0, 100 * found["encoder_gain"], "more", SMALLER_BASE)
    marshaling = found["encoder_marshaling"][slm.NMS.name]
    yield Row(
        "Fig. 7: overhead of the encoder layer, %", SLM, 9.0, 100 * marshaling, "less", "kernels are shorter, what surrounds them is not"
    )
    yield Row("data marshaling, 256 tokens in parallel, %", SLM, 14.0, 100 * found["marshaling_parallel"], "less")
    yield Row("data marshaling, with caches, %", SLM, 40.0, 100 * found["marshaling_generation"], "less")
    cycles = found["cycles_per_token"]
    gain = 100 * (cycles[slm.CLUSTER.name] / cycles[slm.NMS.name] - 1)
    yield Row("Fig. 8: gain of a token by N-EUREKA, %", SLM, 19.0, gain, "more", SMALLER_BASE)
    saved = (cycles[slm.NPU.name] - cycles[slm.NMS.name]) / 1e3
    yield Row("Fig. 8: thousand cycles a step saved by the weight memory", SLM, 70.0, saved, "more", HIDDEN)
    for network, (title, cores, npu_ms, _) in energy["published"].items():
        for engines, ms, who in (("cores", cores, "Dory"), ("cores", cores, "Deeploy"), ("all engines", npu_ms, "Deeploy with the NPU")):
            one = energy["networks"][network][engines]
            ours = one.get("measured", one["cycles"]) / one["mhz"] / 1e3
            yield Row(f"Table III, {title}: {who}, ms", f"{ENERGY}, GVSoC", ms, ours, "less")
    phone = "an estimate of the paper for a phone, over our predicted energy of a token"
    yield Row("MobileLLM on an iPhone 13: times less energy a token", SLM, 26.0, 12_500 / token, "more", phone)
    yield Row("the same: times more tokens", SLM, 5.0, 256 / seconds / 64, "more")
    yield Row("llama2.c on a Galaxy Watch 4: times less energy a token", SLM, 55.0, 27_000 / token, "more", phone)
    silicon = "no chip was measured: cycles are simulated, energies predicted"
    yield Row("power at 0.8 V and 360 MHz, measured on silicon", "", "167 to 181 mW", None, why=silicon)
    yield Row(
        "quality of the quantised TinyStories model", "", "no loss", None, why="weights are seeded here, with the shapes of that model"
    )


CACHES = "both caches count here; the paper's 8.2 kB a layer are 128 rows of 64 bytes, which is one of them"


# ---- distributed inference

SCHEMES, STUDY = "`collective_schemes`", "`inference_over_chips`"
SLOW = "L3 gives 0.595 bytes in a cycle, which is what the paper's time on one chip says"
AUTO, PROMPT, BERT = "TinyLlama, autoregressive", "TinyLlama, prompt", "MobileBERT"
HEADS, HEADS_PROMPT = "64 heads, autoregressive", "64 heads, prompt"
TITLES = dict(zip((AUTO, PROMPT, BERT, HEADS, HEADS_PROMPT), (workload.title for workload in WORKLOADS), strict=True))


def scheme(head: str, *row: str) -> float:
    return number(cell("study-collectives.md", head, (TITLES[row[0]], *row[1:])))


def distributed() -> Iterator[Row]:
    for workload, chips, paper_gain in (
        (AUTO, "8", 26.1),
        (PROMPT, "8", 9.9),
        (BERT, "4", 4.7),
        (HEADS, "64", 60.1),
        (HEADS_PROMPT, "16", 16.0),
    ):
        title = f"{workload}, {chips} chips: times faster"
        yield Row(f"{title}, L3 as in GVSoC", SCHEMES, paper_gain, scheme("faster: measured", workload, chips, "ours"), "more", SLOW)
        yield Row(f"{title}, L3 as the paper's", SCHEMES, paper_gain, scheme("slow L3", workload, chips, "ours"), "more", NOTHING_HIDES)
        yield Row(f"{title}, nothing hides L3", SCHEMES, paper_gain, scheme("paper's", workload, chips, "ours"), "more", TENSORS)
        yield Row(f"{title}, by the paper's scheme", SCHEMES, paper_gain, scheme("paper's", workload, chips, "paper"), "more", TENSORS)
    yield Row("TinyLlama, 8 chips: ms of a block", SCHEMES, 0.54, scheme("ms", AUTO, "8", "ours"), "less")
    yield Row("TinyLlama, 8 chips: mJ of a block", SCHEMES, 0.64, scheme("mJ", AUTO, "8", "ours"), "less")
    edp = "EDP: measured"
    yield Row("TinyLlama, 8 chips: times less EDP", SCHEMES, 27.2, scheme(edp, AUTO, "8", "ours"), "more", SLOW)
    yield Row("MobileBERT, 4 chips: ms of a block", SCHEMES, 38.8, scheme("ms", BERT, "4", "ours"), "less")
    heads = "TinyLlama with 64 heads, autoregressive"
    alone, many = (number(cell("study-chips.md", "mJ", (heads, chips))) for chips in ("1", "64"))
    yield Row(
        "64 heads, 64 chips: times less energy than one", STUDY, 1.3, alone / many, "more", "none of the paper's tensors lie in L3 here"
    )
    bert = number(cell("study-chips.md", "mJ", ("MobileBERT, S 268", "4"))) / number(
        cell("study-chips.md", "mJ", ("MobileBERT, S 268", "1"))
    )
    yield Row(
        "MobileBERT, 4 chips: energy over one chip's",
        STUDY,
        "slightly more",
        "slightly more" if 1 < bert < 1.25 else f"{bert:.2f}",
        why=TENSORS,
    )
    for chips, where in (("1", "streamed"), ("2", "streamed"), ("4", "streamed"), ("8", "double-buffered"), ("16", "double-buffered")):
        found = cell("study-chips.md", "weights", (heads, chips))
        if found == "streamed" and not number(cell("study-chips.md", "L3, kB", (heads, chips))):
            found = "none streamed within the block"
        yield Row(f"{chips} chips: weights of a block", STUDY, where, found, why="a plan keeps those weights in L2 that fit")
    for chips in ("32", "64"):
        yield Row(
            f"{chips} chips: all weights stay on chip", STUDY, "resident", cell("study-chips.md", "weights", (heads, chips)), why="as above"
        )
    least = next((chips for chips in ("2", "4", "8") if scheme("slow L3", AUTO, chips, "ours") > int(chips)), "none")
    kept = "a plan keeps those weights in L2 that fit and fetches the rest early"
    yield Row("TinyLlama, autoregressive: fewest chips that are faster than by their number", SCHEMES, "8", least, why=kept)
    token = "TinyLlama-42M, autoregressive, S 128"
    alone, many = (number(cell("study-chips.md", "mJ", (token, chips))) for chips in ("1", "8"))
    yield Row("TinyLlama, autoregressive: energy of 8 chips below that of one", STUDY, "yes", "yes" if many < alone else "no", why=TENSORS)
    for chips in ("8", "16", "32"):
        gain = scheme("slow L3", HEADS, chips, "ours")
        said = "superlinear" if gain > int(chips) else f"{gain:.1f}"
        yield Row(f"64 heads, {chips} chips: faster than by the number of chips, L3 as the paper's", SCHEMES, "superlinear", said, why=SLOW)
    counted = collective_schemes.count_scheme()
    yield Row("synchronisations in a block", SCHEMES, 2.0, counted.synchronisations)
    yield Row("bytes of weights that are on two chips", SCHEMES, 0.0, counted.repeated)
    are_joined = "yes" if counted.joined == counted.residuals else "no"
    yield Row("the residual connection joins the last addition", SCHEMES, "yes", are_joined)
    yield Row(
        "silicon of several chips", "", "none: simulated", None, why="neither the paper nor this project has a board of several chips"
    )


NOTHING_HIDES = "nothing hides L3 on the paper's single chip; our plan hides it behind computing"
TENSORS = "on the paper's single chip tensors pass L3 as well, which fit L2 here"


# ---- segmentation

SEGMENTATION = "`segmentation`"
VENDOR = "the vendor's compiler cuts as the partitioner that Google published, which leaves it faster than the paper measured"
STAGES = "the time of a stage follows from a fit to one device: stages that compute most are the early ones"


def segmented() -> dict[str, Any]:
    """Fifteen networks by the strategies of the paper; minutes."""
    from benchmarks import segmentation

    found: dict[str, Any] = {}
    for name in segmentation.NETWORKS:
        one, by = segmentation.study(name).one(), segmentation.splits(name)
        balanced, vendor = by["parameters"], by["vendor"]
        found[name] = {
            "one": 1e3 * one.per_input,
            "balanced": 1e3 * balanced.per_input,
            "over_vendor": vendor.per_input / balanced.per_input,
            "over_one": one.per_input / balanced.per_input,
            "host": balanced.host / paper.MIB,
            "seconds": balanced.planning,
        }
        print(name, found[name], flush=True)
    return found


def segmentation_rows() -> Iterator[Row]:
    found = recorded("papers")["segmentation"]
    for name, row in paper.NETWORKS.items():
        ours = found[name]
        yield Row(f"{name}: one device, ms", SEGMENTATION, row.one, ours["one"], why=STAGES)
        yield Row(f"{name}, {row.devices} devices: balanced, ms", SEGMENTATION, row.balanced, ours["balanced"], why=STAGES)
        yield Row(f"{name}: balanced over the vendor's split", SEGMENTATION, row.vendor / row.balanced, ours["over_vendor"], "more", VENDOR)
        yield Row(f"{name}: balanced over one device", SEGMENTATION, row.one / row.balanced, ours["over_one"], why=STAGES)
        yield Row(f"{name}: host memory of the balanced split, MiB", SEGMENTATION, 0.0, ours["host"])
    slowest = max(one["seconds"] for one in found.values())
    yield Row("seconds to balance, without refinement, at most", SEGMENTATION, 1.0, slowest, "less", "a busy machine")
    yield Row("times on Edge TPUs", "", "measured", None, why="no device was at hand: a model is fitted to what the paper says of one")


# ---- accelerators

EXPLORATION = "`exploration`"
LANES = "whether lanes without data need energy and bandwidth: six points of the text read otherwise change it (exploration.md)"
FACTORS = "the text can be read in 64 ways, of which none gives all of the paper's unrollings (exploration.md)"

TABLE_1 = ("256, 128", "256, 512", "256, 2048", "8192, 2048", "8192, 8192")

# a conclusion, in how many accelerators it holds in the paper, and what the page says of ours
CONCLUSIONS = (
    (
        "OX and OY are the largest factor of a single unrolling, accelerators",
        "nine",
        r"OX and OY are the largest factor of the single unrolling in all (\w+)",
    ),
    ("of two unrollings, one has FX or FY, accelerators", "nine", r"Of two unrollings, one has FX or FY and one has not, in all (\w+)"),
    ("the unrolling with FX or FY also has G, accelerators", "nine", r"with FX or FY always has G as well\. Here it has in (\w+) of nine"),
    (
        "accelerators of 2048 bits whose single unrolling has FX or FY",
        "none",
        r"(Architecture 1) \(2048 bits\) has them here, but not in the paper",
    ),
)


def exploration() -> Iterator[Row]:
    page = "exploration.md"
    for row in TABLE_1:
        theirs, ours = (number(cell(page, head, (row,))) for head in ("paper", "ours"))
        yield Row(f"Table I, {row} bits: EDP of one unrolling over two", EXPLORATION, theirs, ours, why=LANES)
        single = (cell(page, f"single unrolling, {whose}", (row,)) for whose in ("paper", "ours"))
        yield Row(f"Table I, {row} bits: best single unrolling", EXPLORATION, *single, why=FACTORS)
    gains = {row: number(cell(page, "ours", (row,))) for row in TABLE_1}
    small, large = ([gain for row, gain in gains.items() if row.startswith(count)] for count in ("256,", "8192,"))
    yield Row("a second unrolling gains more with more elements", EXPLORATION, "yes", "yes" if min(large) > max(small) else "no", why=LANES)
    lines = next(one for one in tables(page) if "Gu" in one[0])
    heads = lines[0]
    for row in ("1 SU", "2 SUs, nr 1", "2 SUs, nr 2"):
        theirs, ours = (next(cells for cells in lines if cells[0] == f"{who}, {row}") for who in ("paper", "ours"))
        told = [", ".join(f"{head} {cell}" for head, cell in zip(heads[1:6], cells[1:6], strict=True)) for cells in (theirs, ours)]
        yield Row(f"Table III, {row}", EXPLORATION, *told, why=FACTORS)
        for at, what in ((-2, "other layers"), (-1, "depthwise layers")):
            words = [cells[at].removeprefix("for ").upper() for cells in (theirs, ours)]
            yield Row(f"Table III, {row}: innermost loop of {what}", EXPLORATION, *words, why=FACTORS)
    for item, theirs, text in CONCLUSIONS:
        said = re.search(text, " ".join((ROOT / "docs" / page).read_text().split()))
        if said is None:
            raise SystemExit(f"{page} says nothing like {text!r}")
        yield Row(item, EXPLORATION, theirs, said[1], why=FACTORS)
    yield Row(
        "area of the configurable array",
        "",
        "by synthesis",
        None,
        why="areas of cells are added up (exploration.md), nothing is synthesised",
    )


PAPERS: dict[str, tuple[str, Callable[[], Iterator[Row]]]] = {
    "Deeploy: small language models on heterogeneous microcontrollers": (
        f"Siracusa; times at 360 MHz. Ours: cycles of GVSoC in table III, else predicted by the walk ({link('timing.md')}).",
        deeploy,
    ),
    "Distributed inference with minimal off-chip traffic for transformers": (
        f"Two texts of one paper. Ours are explained in {link('study-chips.md')} and {link('study-collectives.md')}.",
        distributed,
    ),
    "Balanced segmentation of CNNs for multi-TPU inference": (
        f"Ours are predicted ({link('segmentation.md')}).",
        segmentation_rows,
    ),
    "Optimizing accelerator configurability for mobile transformer networks": (
        f"MobileViT-S ({link('exploration.md')}).",
        exploration,
    ),
}


# ---- the page


def shown(value: float | str | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def page(found: dict[str, list[Row]]) -> str:
    every = [row for rows in found.values() for row in rows]
    counts = Counter(row.verdict.split(":")[0] for row in every)
    total = ", ".join(f"{counts[name]} {name}" for name in ("reproduced", "exceeded", "differs", "not covered"))
    lines = [
        "# The papers, figure by figure",
        "",
        f"{len(every)} figures of the papers that this project starts from, beside ours: {total}.",
        "Written by `make bench NAME='papers --write'`;",
        "not edited by hand. Measurements are run by their names, too.",
        "*Reproduced*: within 10 %. *Exceeded*: better by more. What differs names the assumption that it depends on.",
        "",
    ]
    for title, rows in found.items():
        cells = [(row.item, row.command, shown(row.theirs), shown(row.ours), row.verdict) for row in rows]
        lines += [f"## {title}", "", PAPERS[title][0], "", *table(("figure", "measurement", "paper", "ours", "verdict"), cells), ""]
    return filled(lines)


def rows() -> dict[str, list[Row]]:
    return {title: list(make()) for title, (_, make) in PAPERS.items()}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    if given.measure:
        write_results(FILE, {"segmentation": segmented()}, name="papers")
    found = rows()
    open_rows = [row.item for every in found.values() for row in every if not row.verdict]
    for item in open_rows:
        print(f"no verdict: {item}", file=sys.stderr)
    if given.write and not open_rows:
        PAGE.write_text(page(found))
    verdicts = Counter(row.verdict.split(":")[0] for every in found.values() for row in every)
    record(verdicts=verdicts)
    print(verdicts)
    return int(bool(open_rows))
